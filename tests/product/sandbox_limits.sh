#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Sandboxes: limits of each kind, against those of its instance; what it waits for until it is ready.
set -u
. "$(dirname "$0")/../lib/product.sh"
. "$(dirname "$0")/../lib/sandbox.sh"
product_begin
command -v bwrap >/dev/null || { skip "limits of sandboxes" "bubblewrap is not installed here"; finish; }
check "a template with bwrap" box_import
launch_from pt-box pt-a memory=256MiB pids=300 cpu=1.5 open_files=4096 sandboxes=8 >/dev/null || { fail launch pt-a; finish; }

# --- what is asked for is there and is shown; what is not, is its instance's
id=$(make -m 64MiB -p 20 -C 0.5 --disk 8MiB --open-files 40 --run-time 3s)
check_is "what was asked for is shown" "67108864 20 0.5 8388608 40 3000000 null" sh -c "hostctl sandbox show $id -f json | jq -r '[.memory, .pids, .cpu, .disk, .open_files, .run_time, .io_read] | map(tostring) | join(\" \")'"
check_is "a process has so many open files and no more" "40 40" in_box "$id" -- sh -c 'echo $(ulimit -n) $(ulimit -Hn)'
check_not "nobody raises it" in_box "$id" -- sh -c 'ulimit -n 41'
check_is "what it may write is the end of what it writes" full in_box "$id" -- sh -c 'head -c 20m /dev/zero >/tmp/big 2>/dev/null || { n=$(stat -c %s /tmp/big); [ $n -gt 7000000 ] && [ $n -le $((8 << 20)) ] && echo full; }; rm -f /tmp/big'
check_is "each command has its run time" 124 sh -c "hostctl sandbox exec $id -- sleep 20; echo \$?"
check_is "and an earlier end of its own" 124 sh -c "hostctl sandbox exec -t 100ms $id -- sleep 20; echo \$?"
check_status "but no later one" 125 'timeout.*run time.*3s' in_box "$id" -t 5s -- true
check "kill -9 of hostd, and a new one" hostd_crash
check "it is found again" wait_for 5 is_shown "$id" state running
check_is "with its limits" "40 3000000" sh -c "hostctl sandbox show $id -f json | jq -r '[.open_files, .run_time] | map(tostring) | join(\" \")'"
check_is "which hold" "40 124" sh -c "echo \$(hostctl sandbox exec $id -- sh -c 'ulimit -n') \$(hostctl sandbox exec $id -- sleep 20; echo \$?)"
sb delete "$id"
id=$(make -R --open-files 40)
check_is "root of its own namespace raises nothing either" "40 refused" in_box "$id" -- sh -c 'echo $(ulimit -n) $(ulimit -Hn 4096 2>/dev/null || echo refused)'
sb delete "$id"
id=$(make)
check_is "without a word: what is usual, and no more than its instance has" "268435456 128 null null" sh -c "hostctl sandbox show $id -f json | jq -r '[.memory, .pids, .cpu, .open_files] | map(tostring) | join(\" \")'"
check_is "open files are its instance's" 4096 in_box "$id" -- sh -c 'ulimit -n'
used=$(shown "$id" memory_used) pids=$(shown "$id" pids_used)
echo "# one that does nothing: $used bytes, $pids processes"
check "what it has then is within what each keeps of its instance" test "$used" -le $((4 << 20)) -a "$pids" -le 4
sb delete "$id"

# --- above its instance's: refused, by name, and nothing is made
check_status "memory" 2 'memory 257MiB .*instance.*256MiB' make -m 257MiB
check_status "pids" 2 'pids 301 .*instance.*300' make -p 301
check_status "cpu" 2 'cpu 2 .*instance.*1.5' make -C 2
check_status "disk, which is memory" 2 'disk 300MiB .*memory' make --disk 300MiB
check_status "open files" 2 'open_files 4097 .*instance.*4096' make --open-files 4097
check_status "no rate" 2 'io_read "fast"' make --io-read fast
check_status "too few open files" 2 'open.files' make --open-files 3
if hostctl doctor -f csv | tr -d '\r' | grep -q '^limit io_read,enforced'; then
        id=$(make --io-read 1MiB --io-write 2MiB --io-read-ops 100)
        check_is "io is shown" "1048576 2097152 100 null" sh -c "hostctl sandbox show $id -f json | jq -r '[.io_read, .io_write, .io_read_ops, .io_write_ops] | map(tostring) | join(\" \")'"
        check "and in the kernel" sh -c "cat $(cgroup_dirs | grep "/sandboxes/$id\$" | head -n 1)/io.max | grep 'rbps=1048576 wbps=2097152 riops=100 wiops=max'"
        sb delete "$id"
        check "io_read of the instance" hostctl set pt-a io_read=1MiB
        check_status "above it" 2 'io_read 2MiB/s .*instance.*1MiB/s' make --io-read 2MiB
        hostctl unset pt-a io_read >/dev/null
else
        check_status "io cannot be limited here: refused, by name" 10 'io_read' make --io-read 1MiB
fi
check_is "none of them was made" 0 sh -c "hostctl sandbox list pt-a -f json | jq '[.sandboxes[] | select(.state != \"ended\")] | length'"

# --- an entry, and a port
id=$(make --entry 'sleep 0.5; exec nc -ll -p 8080 -e cat' --probe-port 8080)
check_is "ready when something listens" open in_box "$id" -- sh -c 'echo open | nc -w 2 127.0.0.1 8080'
check_is "its entry is a command in it" "1 nc" sh -c "echo \$(hostctl sandbox show $id -f json | jq .commands) \$(hostctl sandbox exec $id -- sh -c 'grep -lx nc /proc/[0-9]*/comm >/dev/null && echo nc')"
check_is "nothing listens on the host" "" sh -c "grep ':1F90 00000000:0000 0A' /proc/net/tcp"
sb delete "$id"
id=$(make --entry 'exec nc -ll -p 8081 -e cat' --probe-port 8081 --probe-command 'test "$(echo x | nc -w 1 127.0.0.1 8081)" = x')
check_is "a port, then a command" running shown "$id" state
sb delete "$id"
t=$(now_ms)
check_status "nothing listens there" 9 'probe did not succeed' make --entry 'exec nc -ll -p 8080 -e cat' --probe-port 8082 --probe-timeout 900ms
check "until its time is over" test $(($(now_ms) - t)) -ge 900
check_status "a port that is none" 2 'probe.port' make --probe-port 65536
id=$(make --entry 'echo begun >/workspace/file; exec sleep 1000')
begun() { [ "$(in_box "$id" -- cat file)" = begun ]; }
check "an entry alone" wait_for 5 begun
check "kill -9 of hostd, and a new one" hostd_crash
check "it is found again" wait_for 5 is_shown "$id" commands 1
check "deleted" sb delete "$id"
id=$(make --entry false)
check_is "an entry that ends leaves the sandbox" running shown "$id" state
sb delete "$id"

# --- what it can write, and whose it is
id=$(make --disk 4MiB)
check_is "shared memory is for everybody, within what it may write" "yes full" in_box "$id" -- sh -c 'echo yes >/dev/shm/a; head -c 20m /dev/zero >/dev/shm/big 2>/dev/null || echo $(cat /dev/shm/a) full'
sb delete "$id"
id=$(make -R --disk 4MiB)
check_status "root finds no other place to write, not even below /dev" 1 'Read-only' in_box "$id" -- touch /dev/x
check_is "all that root can write is its /disk" "" in_box "$id" -- sh -c "awk '\$4 ~ /^rw/ && \$3 !~ /^(proc|devpts)\$/ { print \$3, \$2 }' /proc/mounts | grep -v '^tmpfs ' | grep -v '/dev/[a-z]*\$'"
check_is "devices work" "4 ok" in_box "$id" -- sh -c 'echo ok >/dev/null && echo $(head -c 4 /dev/zero | wc -c) ok'
sb delete "$id"
hostctl exec pt-a -- sh -c 'mkdir -p /srv/own; echo mine >/srv/own/secret; chmod 0600 /srv/own/secret; mkdir -p /home/agent/work; chown -R 1000:1000 /srv/own /home/agent'
id=$(make) with=$(make -w /home/agent/work)
check_not "without a workspace nobody in it is the agent" in_box "$id" -- cat /srv/own/secret
check_is "to whom its own files are nobody's" "65534 1000" in_box "$id" -- sh -c 'touch f; echo $(stat -c %u /srv/own/secret) $(stat -c %u f)'
check_is "with one it is, as the documentation says" mine in_box "$with" -- cat /srv/own/secret
sb delete "$id"
sb delete "$with"

# --- its own limit, and the instance's
id=$(make -m 220MiB)
hostctl exec pt-a -- sh -c 'dd if=/dev/zero bs=90M count=1 2>/dev/null | sleep 1000' &
held=$!
sleep 1
check_not "a hog within its limit dies when its instance has no more" in_box "$id" -- tail /dev/zero
check "and its sandbox with it" wait_for 5 is_shown "$id" state ended
check_is "which is not said of its own limit" oom-outside why "$id" cause
check_is "the instance lives" alive ex pt-a -- echo alive
kill $held
wait $held 2>/dev/null
id=$(make -m 32MiB)
check_not "a hog above its limit" in_box "$id" -- tail /dev/zero
check "ends as well" wait_for 5 is_shown "$id" state ended
check_is "by its own" oom why "$id" cause

# --- what its runtime has to say
ex pt-a -- sh -c 'mv /bin/bwrap /bin/bwrap.real; printf "#!/bin/sh\nprintf \"first\\\\n\\\\033[31mlast: words\\\\377\" >&2\nexit 3\n" >/bin/bwrap; chmod 755 /bin/bwrap'
check_status "in one line, printable" 9 'ended with status 3, and said: first .*last: words' make
check_is "and nothing else" 0 sh -c "hostctl sandbox create pt-a 2>&1 | LC_ALL=C grep -c \$'[^ -~]'"
ex pt-a -- mv /bin/bwrap.real /bin/bwrap

# --- those that have ended are remembered, but not without end
for _ in $(seq 64); do for _ in 1 2 3 4; do make -w /nowhere >/dev/null 2>&1 & done; wait; done
check_is "256 of them" 256 sh -c "hostctl sandbox list pt-a -f json | jq '.sandboxes | length'"
check_is "the last is among them" failed sh -c "hostctl sandbox create pt-a -w /nowhere >/dev/null 2>&1; hostctl sandbox list pt-a -f json | jq -r '.sandboxes[0].cause'"

# --- a little of the instance for each
hostctl set pt-a pids=64 >/dev/null
for _ in $(seq 8); do make >/dev/null 2>&1; done
hostctl set pt-a sandboxes=64 >/dev/null
for _ in $(seq 8); do make >/dev/null 2>&1; done
check_status "one that would find nothing left" 6 'pids: each sandbox keeps 4' make

hostctl delete --force pt-a >/dev/null
within 20 hostctl template delete pt-box >/dev/null 2>&1
check "no leaks" no_leaks
finish
