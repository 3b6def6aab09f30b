# SPDX-License-Identifier: GPL-2.0-or-later
# What the cases share. They run as root in a guest, from the top of the tree, and end at the first thing that is not as it should be.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:$PATH LC_ALL=C.UTF-8
set -E
trap '[ $BASH_SUBSHELL -gt 0 ] || echo "FAILED at line $LINENO: $BASH_COMMAND"' ERR

# until_true SECONDS COMMAND...
until_true() {
        local end=$((SECONDS + $1))
        shift
        while ! "$@" >/dev/null 2>&1; do
                if [ $SECONDS -ge $end ]; then
                        echo "not in time: $*"
                        return 1
                fi
                sleep 0.5
        done
}

# hostd as quickstart sets it up, without what quickstart shows.
hostd_up() {
        bash -c '. <(grep -v "^main " quickstart); : >"$log"; build_hostd && make_accounts && make_storage && make_config && start_hostd && build_template' quickstart
}

# A changed tree in a guest where hostd may be running already.
hostd_update() {
        if [ ! -e /usr/local/sbin/hostd ]; then return; fi
        make -s -C build install
        systemctl daemon-reload
        apparmor_parser -r /etc/apparmor.d/hostd-instance
        systemctl restart hostd
        until_true 30 hostctl info
}

# For errexit a plain "! command" is never a failure.
refused() {
        if "$@"; then
                echo "was not refused: $*"
                return 1
        fi
}

# nothing WHAT LINES: what is left is shown.
nothing() {
        if [ -n "$2" ]; then
                printf 'there should be no %s:\n%s\n' "$1" "$2"
                return 1
        fi
}

# After quickstart --clean.
nothing_left() {
        nothing group "$(find /sys/fs/cgroup -name 'hostd*' -type d)"
        nothing interface "$(ip -br link | grep -vE '^(lo|en[a-z0-9]*|eth0) ')"
        nothing table "$(nft list tables | grep hostd)"
        nothing mount "$(grep -E '/run/hostd|erofs' /proc/self/mounts)"
        nothing file "$(ls -A /var/lib/hostd 2>/dev/null; find /usr/local /etc /var/cache /var/log /run -xdev -path /run/systemd -prune -o \( -name '*hostd*' -o -name '*hostctl*' \) -print)"
        nothing "loop device" "$(losetup -a | grep hostd)"
        refused grep -q hostd-instance /sys/kernel/security/apparmor/profiles
        refused getent passwd hostd-build
        nothing unit "$(systemctl list-units --all --no-legend 'hostd*')"
        echo "nothing is left"
}

unit_group() { echo "/sys/fs/cgroup/hostd.slice/hostd-instance@$1.service"; }

# The limits of instances as the kernel has them.
limits() { # NAME...
        local name
        for name in "$@"; do
                (cd "$(unit_group "$name")/box" &&
                        grep -H . memory.max memory.swap.max pids.max cpu.max cpu.weight io.max cpuset.cpus {payload,guest,commands}/pids.max)
        done
        # project, soft and hard limit
        xfs_quota -x -c 'report -pN -b' -c 'report -pN -i' /var/lib/hostd | awk '{ print $1, $3, $4 }'
}

bites() { echo "bites: $*"; }

# Python that makes every process it may have, says how many, and leaves them for 20 s.
all_processes='import os, time
n = 0
try:
    while n < 1000:
        if os.fork() == 0: time.sleep(20); os._exit(0)
        n += 1
except BlockingIOError: print("refused after", n)'

# For the instances a and b, both with disk=300MiB and inodes=10000.
# One budget for the root file system and for the home, which is a mount of its own.
disk() {
        refused hostctl exec --user agent a -- dd if=/dev/zero of=/var/tmp/full bs=1M count=400
        refused hostctl exec --user agent a -- dd if=/dev/zero of=/home/agent/full bs=1M count=100
        [ "$(hostctl exec --user agent a -- df -m --output=size / | tail -n 1 | tr -d ' ')" -le 300 ]
        hostctl exec --user agent b -- dd if=/dev/zero of=/var/tmp/fits bs=1M count=50
        hostctl exec --user agent a -- rm -f /var/tmp/full /home/agent/full
        hostctl exec --user agent a -- dd if=/dev/zero of=/var/tmp/fits bs=1M count=50
        bites disk
}

inodes() {
        refused hostctl exec --user agent a -- python3 -c 'import os
os.mkdir("/home/agent/many")
for i in range(20000): open("/home/agent/many/%d" % i, "w").close()'
        hostctl exec --user agent a -- rm -r /home/agent/many
        hostctl exec --user agent a -- touch /home/agent/one
        bites inodes
}

# ---- every way to take more disk than one may have ----

# quota_attack NAME USER DIRECTORY LIMIT WAY: while what was taken is still held, the file system's own count and the blocks on disk
# are within the limit (in KiB).
quota_attack() {
        local name=$1 user=$2 dir=$3 limit=$4 way=$5 out=/tmp/attack.out status=0 used pid
        rm -f /tmp/hold
        mkfifo /tmp/hold
        hostctl exec --user "$user" "$name" -- python3 /opt/quota_attack.py fill "$way" "$dir/a" </tmp/hold >$out 2>&1 &
        pid=$!
        exec 9>/tmp/hold
        until_true 120 sh -c "grep -q : $out || ! kill -0 $pid"
        sync -f /var/lib/hostd
        used=$(($(du -skx "/var/lib/hostd/instances/$name" | cut -f1)))
        echo "$user in $dir, $(tail -n 1 $out); $used KiB on disk, $(($(quota_used "$name") / 1024)) KiB counted, of $limit"
        # What the map of a fragmented file needs, xfs and ext4 take above the limit: a few blocks.
        [ "$used" -le $((limit + 64)) ]
        [ "$(quota_used "$name")" -le $(((limit + 64) * 1024)) ]
        echo >&9
        exec 9>&-
        wait $pid || status=$?
        [ $status -eq 0 ] || [ $status -eq 3 ] || { cat $out; return 1; }
}

quota_used() { hostctl show "$1" -f json | jq .disk_used; }

# Between two instances the file system itself refuses what would take a file from one count into the other.
quota_apart() { # NAME OTHER
        local from=/var/lib/hostd/instances/$1/data to=/var/lib/hostd/instances/$2/data
        touch "$from/moved"
        refused python3 -c 'import os, sys; os.link(*sys.argv[1:])' "$from/moved" "$to/moved" 2>/dev/null
        refused python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$from/moved" "$to/moved" 2>/dev/null
        rm "$from/moved"
}

quota_attacks() {
        local way ways="dense small empty links sparse fallocate kept truncated special unnamed deleted clones mapped attributes directories renamed"
        hostctl launch agent q -s memory=512MiB -s pids=256 -s disk=32MiB -s inodes=1500
        hostctl create agent r -s memory=256MiB -s disk=64MiB -s inodes=3000
        until_true 120 hostctl exec q -- test -S /run/dbus/system_bus_socket
        hostctl file push tests/system/quota_attack.py q:/opt/quota_attack.py
        # The home is the data volume, /var/tmp the overlay.
        for way in $ways; do quota_attack q agent /home/agent $((32 << 10)) $way; done
        for way in $ways; do quota_attack q root /var/tmp $((32 << 10)) $way; done
        for way in dense small; do quota_attack q agent /var/tmp $((32 << 10)) $way; done
        for way in dense small; do quota_attack q root /home/agent $((32 << 10)) $way; done
        hostctl exec q -- python3 /opt/quota_attack.py leave /var/tmp
        hostctl exec q -- python3 /opt/quota_attack.py leave /root
        hostctl exec q -- python3 /opt/quota_attack.py leave /home/agent/roots
        hostctl exec --user agent q -- python3 /opt/quota_attack.py leave /home/agent
        hostctl exec --user agent q -- python3 /opt/quota_attack.py leave /var/tmp/agents
        hostctl exec --user agent q -- touch /var/tmp/room /home/agent/room
        quota_apart q r
        hostctl delete --force q r
        bites "disk and inodes, in every way"
}

# In a guest from "boot": the second disk becomes ext4 with project quotas, and hostd is installed on it.
ext4_up() {
        cp -a /var/lib/hostd/templates /root/templates
        umount /var/lib/hostd
        mkfs.ext4 -q -F -O quota,project -E quotatype=prjquota /dev/vdb
        sed -i 's|^/dev/vdb .*|/dev/vdb /var/lib/hostd ext4 prjquota 0 0|' /etc/fstab
        systemctl daemon-reload
        mount /var/lib/hostd
        mv /root/templates /var/lib/hostd/
        hostd_up
}
