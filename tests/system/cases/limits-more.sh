# SPDX-License-Identifier: GPL-2.0-or-later
# The limits that limits.sh has no time for: pin, memory in every form, swap, the rates of a disk around the page cache and through it, open
# files, upload; and every way to see, raise or leave them from inside, as root and as the agent.
# LIMIT: 2000
. tests/system/lib.sh
. tests/lib/origins.sh

attack() { # USER ARGUMENT...
        local user=$1
        shift
        hostctl exec --user "$user" a -- python3 /opt/limit_attack.py "$@"
}

box() { cat "$(unit_group a)/box/$1"; }
of() { sed -n "s/^$2[ =]*//p" "$(unit_group a)/box/$1"; } # FILE KEY

# In thirds of a second it would be noise: how long a command takes, in milliseconds.
took() {
        local begin
        begin=$(date +%s%N)
        "$@" >/dev/null
        echo $((($(date +%s%N) - begin) / 1000000))
}

# Two processors, one of them its own; what is asked for beyond is not given.
pin() {
        local other=1 mine
        for mine in 1 0; do
                hostctl set a cpu_pin=$mine
                attack agent pin | tee /tmp/pin
                grep -qx "ran on \[$mine\], may use \[$mine\]" /tmp/pin
                attack root pin | grep -qx "ran on \[$mine\], may use \[$mine\]"
                [ "$(hostctl exec a -- nproc)" = 1 ]
                other=$mine
        done
        [ "$(box cpuset.cpus.effective)" = $other ]
        hostctl set a cpu_pin=max
        attack root pin | grep -qF 'may use [0, 1]'
        bites cpu_pin
}

# Whatever form it has: never above the limit, and what took it is killed, or is told that there is no more.
memory_forms() {
        local way user status
        hostctl set a memory=256MiB
        hostctl restart a # a peak is since the group was made
        until_true 120 hostctl exec a -- true
        for way in anonymous memfd tmpfs ramfs shared sockets forks; do
                user=agent
                [ $way = ramfs ] && user=root
                status=0
                attack $user hog $way >/tmp/hog || status=$?
                echo "memory as $way: status $status, $(tail -n 1 /tmp/hog) peak $(($(box memory.peak) >> 20)) MiB"
                # 1: it got all that it asked for; 3: next to nothing, so that nothing was tried
                [ $status -eq 137 ] || [ $status -eq 2 ] || [ "$(hostctl audit tail -n 1 -f json | jq '.records[0].detail.oom')" = true ]
                [ "$(box memory.peak)" -le $((260 << 20)) ]
                until_true 60 hostctl exec a -- true
        done
        hostctl set a memory=512MiB
        [ "$(hostctl list -f csv -c name,state | tr -d '\r' | grep ^a,)" = a,running ]
        bites "memory in every form"
}

# Takes memory, while the most swap it has is looked at: of what was killed nothing is left to see, and Linux 6.1 keeps no peak.
swapped() { # WHAT: sets peak, in bytes
        local status=0
        : >/tmp/swapped
        (while [ -e /tmp/swapped ]; do box memory.swap.current >>/tmp/swapped; sleep 0.1; done) &
        attack agent hog anonymous || status=$?
        peak=$(sort -n /tmp/swapped | tail -n 1)
        rm /tmp/swapped
        wait $!
        echo "swap: status $status, peak $((peak >> 20)) MiB of $1"
        [ $status -ne 1 ] && [ $status -ne 3 ]
}

# The host has swap; what may use none uses none, what may use 64 MiB has no more.
swap() {
        local peak
        fallocate -l 1G /swap
        chmod 600 /swap
        mkswap -q /swap
        swapon /swap
        hostctl set a memory=256MiB
        [ "$(box memory.swap.max)" = 0 ]
        swapped 0
        [ "$peak" -eq 0 ]
        hostctl set a swap=64MiB
        swapped 64
        [ "$peak" -gt $((16 << 20)) ]
        [ "$peak" -le $((65 << 20)) ]
        hostctl set a swap=0 memory=512MiB
        [ "$(box memory.swap.max)" = 0 ]
        swapoff /swap
        rm /swap
        bites swap
}

# rate NAME MILLISECONDS LEAST: what is limited must take that long, and took less before.
rate() {
        echo "$1: $2 ms with its limit, at least $3 wanted"
        [ "$2" -ge "$3" ]
}

disk_dd() { hostctl exec --user "$1" a -- dd status=none bs=256k "${@:2}"; }

# 16 MiB at 2 MiB/s are 8 s, of which what the kernel lets through at first is taken off.
disk_rates() {
        local file=/home/agent/rate user
        # Both write to one file, which fs.protected_regular forbids in a sticky directory.
        hostctl exec a -- install -d -m 777 /var/tmp/both
        for file in /home/agent/rate /var/tmp/both/rate; do
                echo "$file without limit: write $(took disk_dd agent if=/dev/zero of=$file count=64 oflag=direct) ms, read $(took disk_dd agent if=$file of=/dev/null iflag=direct) ms"
                for user in agent root; do
                        hostctl set a io_write=2MiB
                        rate "direct write by $user to $file" "$(took disk_dd $user if=/dev/zero of=$file count=64 oflag=direct)" 6000
                        [ $user = root ] || rate "buffered write by $user" "$(took disk_dd $user if=/dev/zero of=$file count=64 conv=fsync)" 6000
                        hostctl set a io_write=max io_read=2MiB
                        rate "direct read by $user" "$(took disk_dd $user if=$file of=/dev/null iflag=direct)" 6000
                        sync
                        echo 3 >/proc/sys/vm/drop_caches
                        [ $user = root ] || rate "buffered read by $user" "$(took disk_dd $user if=$file of=/dev/null)" 5000
                        hostctl set a io_read=max
                done
        done
        hostctl set a io_read_ops=20
        rate "200 direct reads at 20 a second" "$(took hostctl exec --user agent a -- dd status=none if=$file of=/dev/null bs=4k count=200 iflag=direct)" 7000
        hostctl set a io_read_ops=max io_write_ops=20
        rate "200 direct writes at 20 a second" "$(took hostctl exec --user agent a -- dd status=none if=/dev/zero of=$file bs=4k count=200 oflag=direct conv=notrunc)" 7000
        hostctl set a io_write_ops=max
        hostctl exec a -- rm -f /home/agent/rate /var/tmp/both/rate
        bites "io_read, io_write, their operations"
}

open_files() {
        local more status=0
        hostctl set a open_files=300
        hostctl restart a
        until_true 120 hostctl exec a -- test -S /run/dbus/system_bus_socket
        [ "$(attack agent files)" = 300 ]
        [ "$(attack root files)" = 300 ]
        # Nor does the guest's systemd, by a unit or a session of its own.
        more=$(hostctl exec a -- systemd-run -q --pipe --wait -p LimitNOFILE=5000 python3 /opt/limit_attack.py files 2>/dev/null) || status=$?
        echo "a unit with LimitNOFILE=5000: status $status, ${more:-no} files"
        [ "$more" = 300 ] || [ $status -eq 205 ] # EXIT_LIMITS: it does not start
        [ "$(hostctl exec --login --user agent a -- python3 /opt/limit_attack.py files | tr -d '\r')" = 300 ]
        bites open_files
}

# Whoever listens counts; the first two seconds empty the bucket of one.
upload() {
        local proto
        origins_make || { echo 'no origin'; return 1; } # "||": what it tidies up first need not be there
        hostctl policy set up "allow $origin_allowed/32 tcp 9000" "allow $origin_allowed/32 udp 9000"
        hostctl set a policies=up upload=10Mbit
        for proto in tcp udp; do
                ip netns exec hostd-qs-a timeout 60 python3 - $proto >/tmp/uploaded <<'EOF' &
import socket, sys, threading, time
total = [0]
def count(c):
    try:
        while data := c.recv(1 << 16): total[0] += len(data)
    except OSError: pass
if sys.argv[1] == "udp":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 9000))
    threading.Thread(target=count, args=(s,), daemon=True).start()
else:
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("", 9000)); s.listen(20)
    def take():
        while True: threading.Thread(target=count, args=(s.accept()[0],), daemon=True).start()
    threading.Thread(target=take, daemon=True).start()
print("ready", flush=True)
while total[0] == 0: time.sleep(0.05)
time.sleep(3); begin, t = total[0], time.monotonic()
time.sleep(6); print("%.1f" % ((total[0] - begin) * 8 / (time.monotonic() - t) / 1e6), flush=True)
EOF
                until_true 20 grep -q ready /tmp/uploaded
                hostctl exec --user agent --timeout 15s a -- python3 -c '
import os, socket, sys
for i in range(4): # one flow or four: one limit
    if os.fork() == 0:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if sys.argv[1] == "udp" else socket.SOCK_STREAM)
        s.connect((sys.argv[2], 9000))
        while True: s.send(bytes(1200 if sys.argv[1] == "udp" else 65536))
os.wait()' $proto $origin_allowed || true
                wait $!
                echo "upload by $proto at 10 Mbit/s: $(tail -n 1 /tmp/uploaded) Mbit/s"
                awk 'END { exit !($1 > 3 && $1 < 11.5) }' /tmp/uploaded
        done
        hostctl set a policies= upload=max
        hostctl policy delete up
        origins_remove || true
        bites upload
}

# A group made inside has what it likes written in its files, and what is above counts.
in_own() { # COMMAND...: in a group of the guest's own, as what its systemd starts: what hostd starts may not get there
        refused hostctl exec a -- sh -c 'echo 0 >/sys/fs/cgroup/own/cgroup.procs' 2>/dev/null
        hostctl exec --timeout 120s a -- systemd-run -q --pipe --wait -- sh -c 'echo 0 >/sys/fs/cgroup/own/cgroup.procs && exec "$@"' - "$@"
}

delegated() {
        local kills
        hostctl exec a -- sh -ec 'cd /sys/fs/cgroup; mkdir own; for f in memory.max memory.swap.max pids.max cpu.max; do [ ! -e own/$f ] || echo max >own/$f; done'
        kills=$(of memory.events oom_kill)
        refused in_own python3 /opt/limit_attack.py hog anonymous
        [ "$(of memory.events oom_kill)" -gt "$kills" ]
        in_own python3 -c "$all_processes" | grep refused
        until_true 60 hostctl exec a -- rmdir /sys/fs/cgroup/own
        bites "the limits above a group of the guest's own"
}

[ $# -lt 2 ] || { "${@:2}"; exit; } # one part by itself, beside a running guest
hostctl launch agent a -s memory=512MiB -s pids=256 -s cpu=2 -s disk=300MiB -s inodes=20000
hostctl create agent b -s memory=256MiB -s pids=256 -s cpu=1 -s disk=300MiB -s inodes=20000
hostctl start b
until_true 120 hostctl exec a -- test -S /run/dbus/system_bus_socket
hostctl file push tests/system/limit_attack.py a:/opt/limit_attack.py
before=$(limits a b)
# As what hostd starts, which has a group beside the guest's, and from within the guest's own.
attack root leave
attack agent leave
hostctl exec a -- systemd-run -q --pipe --wait python3 /opt/limit_attack.py leave
hostctl exec --login --user agent a -- python3 /opt/limit_attack.py leave
[ "$(limits a b)" = "$before" ] # nor did the attempts change any
pin
delegated
memory_forms
swap
disk_rates
open_files
upload
hostctl delete --force a b
hostctl leaks
