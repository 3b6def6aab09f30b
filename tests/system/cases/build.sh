# SPDX-License-Identifier: GPL-2.0-or-later
# A template is built of Debian's packages by a hostd under systemd: in a unit of its own, by mmdebstrap, with nothing but what the unit
# allows. An instance of it boots. A build that is given up, and one without packages, leave nothing.
# LIMIT: 2400
# NEEDS: repository
. tests/system/lib.sh
. tests/lib/repository.sh
. tests/lib/mirror.sh
property() { systemctl show -P "$2" "$1"; }
units() { systemctl list-units --all --plain --no-legend 'hostd-build@*' | awk '{ print $1 }'; }
no_build() { [ -z "$(units)$(pgrep -u hostd-build)$(ls -A /var/lib/hostd/build 2>/dev/null)$(ip -o link | grep hv04)" ]; }

serve() {
        mirror_serve /root/repository /root/served
        trap 'kill $mirror_server; mirror_unserve' EXIT
        until_true 30 curl -sf -o /dev/null $mirror_url/dists/trixie/InRelease
        repository_use $mirror_url # the host's own sources are what builds take
}

# What the unit has, while mmdebstrap is at work.
look() {
        local unit keeper pid
        until_true 60 pgrep -u hostd-build
        unit=$(units)
        keeper=$(property "$unit" MainPID)
        [ "$(wc -w <<<"$unit")" = 1 ]
        until_true 120 pgrep -f /usr/bin/mmdebstrap
        [ "$(sed -n 's/^CapEff:\t//p' "/proc/$keeper/status")" = 00000000000000c0 ]
        for pid in $(cat "/sys/fs/cgroup$(property "$unit" ControlGroup)/cgroup.procs"); do
                grep -qsE '^NoNewPrivs:.1$' "/proc/$pid/status" && grep -qsE '^Seccomp:.2$' "/proc/$pid/status" || [ ! -d "/proc/$pid" ]
                # Nobody of the build is root of this host.
                [ "$(stat -c %u "/proc/$pid" 2>/dev/null || echo 1)" != 0 ]
        done
        [ "$(cat "/sys/fs/cgroup$(property "$unit" ControlGroup)/memory.max")" = $((2 << 30)) ]
        # In a network of its own, with a wire, from which the host itself is not reached.
        pid=$(pgrep -u hostd-build -f 'hostd-build served' | while read -r p; do [ "$(readlink "/proc/$p/ns/net")" = "$(readlink /proc/self/ns/net)" ] || echo "$p"; done | head -n 1)
        nsenter -t "$pid" -n ip -o -4 addr show dev eth0 | grep -q inet
        ip -o link | grep -q hv040f
        nsenter -t "$pid" -n curl -sf -m 5 -o /dev/null $mirror_url/dists/trixie/InRelease
        refused nsenter -t "$pid" -n curl -s -m 5 -o /dev/null telnet://198.51.100.29:22
        echo "build: as $unit, group $(property "$unit" ControlGroup)"
}

serve
begin=$SECONDS
hostctl template build debian >built 2>&1 &
build=$!
look
wait $build || { tail -n 20 built; journalctl -b -o cat -u 'hostd-build@*' | tail -n 40; false; }
cat built
echo "built after $((SECONDS - begin)) s"
until_true 20 no_build
hostctl template list
hostctl launch debian d -s memory=256MiB -s disk=300MiB
until_true 180 hostctl exec d -- test -S /run/dbus/system_bus_socket
[ "$(hostctl exec d -- sh -c '. /etc/os-release; echo $VERSION_CODENAME' | tr -d '\r')" = trixie ]
hostctl exec d -- dpkg --audit
# Ids and capabilities of files came through the jail whole.
[ "$(hostctl exec d -- stat -c %a:%U:%G /usr/bin/passwd /etc/shadow | tr -d '\r' | xargs)" = "4755:root:root 640:root:shadow" ]
hostctl delete --force d
echo "build: boots"

# Given up half way, by who asked for it.
status=0
timeout -s INT 40 hostctl template build debian >given-up 2>&1 || status=$?
[ $status -eq 124 ] # it was not done by then
until_true 30 no_build

# Without packages: an end with words, and nothing is left.
kill $mirror_server
mirror_unserve
trap - EXIT
refused hostctl template build debian >failed 2>&1
cat failed
grep -q 'mmdebstrap failed' failed
until_true 20 no_build
[ "$(hostctl template list -f csv -c name | tr -d '\r' | grep -cx debian)" = 1 ]
hostctl leaks
systemctl --failed --no-legend | tee failed
[ ! -s failed ]
