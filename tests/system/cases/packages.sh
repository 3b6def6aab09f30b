# SPDX-License-Identifier: GPL-2.0-or-later
# The life of hostd as Debian packages, on a machine that has nothing else of it: installed, it runs, enabled and fenced; an upgrade
# under a running command changes nothing of what runs; a reboot; removed, nothing runs and all data are there; purged, they are gone only
# when that was said.
# LIMIT: 1500
# FROM: stock
. tests/system/lib.sh
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin

install_hostd() { apt-get -q -y --no-install-recommends install "$@"; }
note() { echo "== $* (after $SECONDS s)"; }

group_limits() {
        (cd "$(unit_group a)/box" && grep -H . memory.max memory.swap.max pids.max cpu.max cpu.weight {payload,guest,commands}/pids.max)
        hostctl exec a -- df -k --output=size,itotal /
}

# What is the case after each installation.
runs() {
        local unit
        for unit in hostd.service hostd.socket; do
                [ "$(systemctl is-active $unit)" = active ]
                [ "$(systemctl is-enabled $unit)" = enabled ]
        done
        hostctl info >/dev/null
        hostctl doctor
        nft list table inet hostd >/dev/null
        grep -qx 'hostd-instance (enforce)' /sys/kernel/security/apparmor/profiles
        [ "$(stat -c %a:%U /run/hostd)" = 755:root ]
        [ "$(stat -c %a:%U /var/lib/hostd)" = 700:root ]
        systemctl --failed --no-legend | tee failed
        [ ! -s failed ]
}

accounts() {
        local group
        for group in hostd-admin hostd hostd-view; do getent group $group >/dev/null || return 1; done
        [ "$(getent passwd hostd-build | cut -d: -f7)" = /usr/sbin/nologin ] || return 1
        grep -qx root:1048576:1073741824 /etc/subuid && grep -qx root:1048576:1073741824 /etc/subgid &&
                grep -q '^hostd-build:' /etc/subuid && grep -q '^hostd-build:' /etc/subgid &&
                grep -q '^hostd-haproxy:.*:1024$' /etc/subuid && grep -q '^hostd-haproxy:.*:1024$' /etc/subgid
}

# What is the case when the packages are gone, whatever became of the data.
nothing_runs() {
        nothing group "$(find /sys/fs/cgroup -name 'hostd*' -type d)"
        nothing interface "$(ip -br link 2>/dev/null | grep -vE '^(lo|en[a-z0-9]*|eth0) ')"
        nothing table "$(nft list tables | grep hostd)"
        nothing rule "$(ip rule | grep -vE 'lookup (local|main|default)')"
        nothing mount "$(grep -E '/run/hostd|erofs' /proc/self/mounts)"
        nothing program "$(find /usr /run -xdev -path /run/systemd -prune -o \( -name '*hostd*' -o -name '*hostctl*' \) -print)"
        nothing process "$(pgrep -a hostd)"
        # What an enabled unit leaves until it is purged is a link.
        nothing unit "$(systemctl list-units --all --no-legend 'hostd*' | grep -v not-found)"
        refused grep -q hostd-instance /sys/kernel/security/apparmor/profiles
}

data_is_there() {
        [ -d /var/lib/hostd/instances/a/data ] && [ -f /etc/hostd/instances.d/a.conf ] && [ -d /etc/hostd/.git ] && accounts
}

case ${1:-1} in
1)
        before=$(cat /etc/subuid)
        note "install beside a hostd below /usr/local"
        touch /usr/local/sbin/hostd
        refused install_hostd /root/packages/*.deb /root/packages/depends/*.deb >said 2>&1
        grep -q 'installed below /usr/local by quickstart' said
        rm /usr/local/sbin/hostd

        note install
        install_hostd /root/packages/*.deb /root/packages/depends/*.deb
        runs
        accounts
        grep -qxF "$before" /etc/subuid || [ -z "$before" ]
        hostctl doctor -f csv -c protection,state | tr -d '\r' | grep -v ,enforced >not-enforced || true
        [ "$(sed 1d not-enforced)" = "limit io_weight,degraded" ]
        systemd-analyze verify --man=no /usr/lib/systemd/system/hostd.service /usr/lib/systemd/system/hostd.socket
        [ "$(systemctl show -P LockPersonality hostd.service)" = yes ]
        refused dpkg -S /etc/hostd/hostd.conf 2>/dev/null
        dpkg -S /usr/lib/systemd/system/hostd.service | grep -q '^hostd:'
        [ "$(journalctl --list-catalog | grep -c '^6f2b8d50c0f64dd5a2b1a2a0ad2d5b')" -ge 10 ]
        refused ./quickstart >said 2>&1
        grep -q 'the Debian package hostd is installed' said

        note launch
        hostctl launch agent a -s memory=512MiB -s pids=256 -s cpu=1 -s disk=300MiB -s inodes=10000
        hostctl exec --user agent a -- sh -c 'echo mine >/home/agent/file'
        grep -qx 'hostd-instance (enforce)' "/proc/$(hostctl list -f csv -c pid | sed 1d | tr -d '\r')/attr/current"
        journalctl -x -u 'hostd-instance@a' -u hostd HOSTD_INSTANCE=a | grep -q 'The init of the instance runs within its limits'

        note "upgrade under a running command"
        printf '# a line of the operator\n' >>/etc/hostd/hostd.conf
        hostctl apply
        cp /etc/hostd/hostd.conf hostd.conf.before
        limits_before=$(group_limits)
        unit_before=$(systemctl show -P InvocationID hostd-instance@a.service)
        daemon_before=$(systemctl show -P MainPID hostd.service)
        hostctl exec a -- sh -c 'i=0; while [ ! -e /run/enough ]; do i=$((i + 1)); echo "tick $i"; sleep 1; done; echo end; exit 7' >ticks &
        running=$!
        trap 'kill $running' EXIT # or a failure waits for it
        until_true 30 grep -q 'tick 2' ticks
        apt-get -q -y install /root/packages/next/*.deb
        [ "$(dpkg-query -W -f '${Version}' hostd | tail -c 5)" = +next ]
        [ "$(systemctl show -P MainPID hostd.service)" != "$daemon_before" ]
        [ "$(systemctl show -P InvocationID hostd-instance@a.service)" = "$unit_before" ]
        hostctl exec a -- touch /run/enough
        status=0
        wait $running || status=$?
        trap - EXIT
        [ $status -eq 7 ]
        [ "$(tail -n 1 ticks)" = end ]
        [ "$(group_limits)" = "$limits_before" ]
        cmp /etc/hostd/hostd.conf hostd.conf.before
        runs
        hostctl leaks
        exit 88
        ;;
2)
        note "after a reboot"
        until_true 120 hostctl exec a -- true
        runs

        note "removal, refused"
        echo 'hostd hostd/stop-instances boolean false' | debconf-set-selections
        refused apt-get -q -y remove hostd >said 2>&1
        grep -q 'not removed, as you said' said
        hostctl exec a -- true
        runs
        echo 'hostd hostd/stop-instances boolean true' | debconf-set-selections

        note removal
        apt-get -q -y remove hostd hostctl hostd-guest hostd-templates hostd-doc
        nothing_runs
        data_is_there
        journalctl -b -u 'hostd-instance@a' -o cat | grep -qE 'init is gone \((halt|terminated)\)'

        note "installed again, what ran runs"
        install_hostd /root/packages/next/*.deb
        until_true 120 hostctl exec a -- true
        [ "$(hostctl exec a -- cat /home/agent/file)" = mine ]
        runs

        note "purge without a word"
        apt-get -q -y purge hostd hostctl hostd-guest hostd-templates hostd-doc 2>&1 | tee said
        grep -q 'hostd: /etc/hostd, /var/lib/hostd, /var/lib/hostd-proxy and /var/log/hostd stay' said
        nothing_runs
        data_is_there

        note "purge with consent"
        install_hostd /root/packages/next/*.deb
        until_true 120 hostctl exec a -- true
        echo 'hostd hostd/remove-data boolean true' | debconf-set-selections
        apt-get -q -y purge hostd hostctl hostd-guest hostd-templates hostd-doc
        nothing_runs
        nothing data "$(ls -A /var/lib/hostd)"
        mountpoint -q /var/lib/hostd
        nothing file "$(find /etc /usr/local /var -xdev -path /var/log/journal -prune -o \( -name '*hostd*' -o -name '*hostctl*' \) -print | grep -vx /var/lib/hostd)"
        nothing account "$(grep -h hostd /etc/passwd /etc/group /etc/subuid /etc/subgid)"
        nothing range "$(grep -h ^root: /etc/subuid /etc/subgid)"
        echo "nothing is left after $SECONDS s"
        ;;
esac
