# SPDX-License-Identifier: GPL-2.0-or-later
# Each limit bites, on control groups v2 and on xfs with project quotas, and stays what it is through everything systemd and hostd do.
# LIMIT: 900
# SHORT
. tests/system/lib.sh

memory() {
        local status=0
        hostctl exec --user agent a -- python3 -c 'x = []
while True: x.append(bytearray(16 << 20))' || status=$?
        [ $status -eq 137 ]
        [ "$(sed -n 's/^oom_kill //p' "$(unit_group a)/box/memory.events")" -ge 1 ]
        # What the kernel must have, it takes above the limit too: a few pages.
        [ "$(cat "$(unit_group a)/box/memory.peak")" -le $((528 << 20)) ]
        hostctl audit tail -n 3 -f json | grep -q '"oom": *true'
        hostctl exec a -- true
        bites memory
}

# Every process the instance can make is made; the helper's share lets hostd in all the same.
pids() {
        hostctl exec --user agent --timeout 60s a -- python3 -c "$all_processes" | tee refused
        grep -q refused refused
        hostctl exec a -- true
        bites pids
}

# Two loops for 10 s on half a CPU.
cpu() {
        local before after
        before=$(sed -n 's/^usage_usec //p' "$(unit_group a)/box/cpu.stat")
        hostctl exec --user agent --timeout 10s a -- sh -c 'while :; do :; done & while :; do :; done' || true
        after=$(sed -n 's/^usage_usec //p' "$(unit_group a)/box/cpu.stat")
        echo "cpu: $(((after - before) / 1000)) ms in 10 s"
        [ $((after - before)) -lt 7000000 ]
        [ "$(sed -n 's/^nr_throttled //p' "$(unit_group a)/box/cpu.stat")" -ge 10 ]
        bites cpu
}

# 24 MiB at 4 MiB/s, through the page cache.
io() {
        local begin
        hostctl set a io_write=4MiB
        begin=$SECONDS
        hostctl exec --user agent a -- dd if=/dev/zero of=/var/tmp/io bs=1M count=24 conv=fsync
        echo "io: 24 MiB in $((SECONDS - begin)) s"
        [ $((SECONDS - begin)) -ge 4 ]
        hostctl exec --user agent a -- rm /var/tmp/io
        hostctl set a io_write=max
        bites io
}

# Nobody inside takes a limit away.
held() {
        local file
        for file in memory.max memory.swap.max pids.max cpu.max; do
                hostctl exec a -- test -e /sys/fs/cgroup/$file
                refused hostctl exec a -- sh -c "echo max >/sys/fs/cgroup/$file"
        done
        refused hostctl exec a -- sh -c 'mkdir /tmp/cg && mount -t cgroup2 none /tmp/cg && echo max >/tmp/cg/memory.max'
        # FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR, the project in the fourth word
        refused hostctl exec a -- python3 -c 'import fcntl, os, struct
fd = os.open("/var/tmp", os.O_RDONLY)
attr = bytearray(28)
fcntl.ioctl(fd, 0x801c581f, attr)
struct.pack_into("I", attr, 12, 0)
fcntl.ioctl(fd, 0x401c5820, bytes(attr))'
        echo held
}

hostctl create agent a -s memory=512MiB -s pids=256 -s cpu=0.5 -s disk=300MiB -s inodes=10000
hostctl create agent b -s memory=512MiB -s pids=256 -s cpu=1 -s disk=300MiB -s inodes=10000
hostctl start a
hostctl start b
until_true 120 hostctl exec a -- test -S /run/dbus/system_bus_socket
memory
pids
cpu
io
disk
inodes
held
hostctl set a io_write=100MiB
before=$(limits a b)
systemctl restart hostd
until_true 60 hostctl exec a -- true
[ "$(limits a b)" = "$before" ]
systemctl daemon-reload
systemctl daemon-reexec
systemctl set-property --runtime hostd-instance@a.service MemoryMax=2G
[ "$(limits a b)" = "$before" ]
# Live change, up and down, and it is the kernel that has it.
hostctl set a memory=768MiB pids=300 disk=400MiB
[ "$(cat "$(unit_group a)/box/memory.max")" = $((768 << 20)) ]
[ "$(cat "$(unit_group a)/box/pids.max")" = 300 ]
[ "$(hostctl exec a -- df -m --output=size / | tail -n 1 | tr -d ' ')" -eq 400 ]
hostctl stop a
until_true 10 test ! -e "$(unit_group a)" # by systemd
hostctl start a
[ "$(cat "$(unit_group a)/box/memory.max")" = $((768 << 20)) ]
hostctl leaks
