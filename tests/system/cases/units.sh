# SPDX-License-Identifier: GPL-2.0-or-later
# Units as an operator meets them: what status, journal and cgls show, what stop, kill, restart and start of an instance's unit do, what
# is kept for the host, and how much of it each unit could reach.
# LIMIT: 900
. tests/system/lib.sh

state() { hostctl list -f csv -c name,state | tr -d '\r' | sed -n "s/^$1,//p"; }
is() { [ "$(state "$1")" = "$2" ]; }
property() { systemctl show -P "$2" "$1"; }
journal() { journalctl -q -u "hostd-instance@$1" -o cat; }

show() {
        # Captured first: "grep -q" would end systemctl by SIGPIPE.
        systemctl status --no-pager hostd-instance@a >status
        grep -q 'Active: active (running)' status
        grep -q 'Status: "Runs, init is process' status
        grep -q 'Instance a' status
        systemd-cgls --no-pager -u hostd-instance@a.service >groups
        grep -q 'run' groups
        grep -q 'payload' groups
        grep -q 'hostd-guest' groups
        [ "$(property hostd-instance@a.service Slice)" = hostd.slice ]
        # Fields, and nothing that the guest wrote.
        [ "$(journalctl -q HOSTD_INSTANCE=a _SYSTEMD_UNIT=hostd-instance@a.service -o cat | grep -c 'init runs')" -ge 1 ]
        hostctl exec a -- sh -c 'echo written-to-the-console >/dev/console; logger written-to-syslog; echo "<3>written-to-kmsg" >/dev/kmsg || true' || true
        sleep 2
        hostctl log a >console
        grep -q written-to-the-console console
        journalctl -q -b -o cat >everything
        refused grep -q 'written-to-' everything
        [ -z "$(machinectl --no-legend list 2>/dev/null | grep -v '^ *$' || true)" ]
        echo "shown: status, cgls, journal"
}

# Nobody but hostd makes a start: the operator is told what to type, and nothing happens.
start_by_hand() {
        hostctl create agent c -s memory=512MiB -s pids=256 -s disk=300MiB
        refused systemctl start hostd-instance@c
        journal c | grep 'started by "hostctl start c"'
        systemctl status --no-pager hostd-instance@c >status || true
        grep -q 'hostctl start c' status
        is c stopped
        hostctl start c
        is c running
        # What runs already stays as it is.
        systemctl start hostd-instance@c
        is c running
        hostctl delete --force c
        refused systemctl start hostd-instance@none
        journal none | grep 'started by "hostctl start none"'
        systemctl reset-failed
        hostctl leaks
        echo "start by hand: refused"
}

# An operator's stop is heard, told apart from a crash, and stays.
stop_by_hand() {
        systemctl stop hostd-instance@a
        until_true 10 is a stopped
        journalctl -q -u hostd -o cat HOSTD_INSTANCE=a | tail -n 3 | grep 'stopped by a signal to hostd-instance'
        journal a | grep 'SIGTERM: the guest is asked to shut down'
        [ "$(property hostd-instance@a.service Result)" = success ]
        sleep 3
        is a stopped
        hostctl leaks
        systemctl restart hostd
        until_true 30 hostctl info
        sleep 2
        is a stopped
        hostctl start a
        is a running
        # SIGTERM to everything in it, init included, ends it as well.
        systemctl kill hostd-instance@a
        until_true 100 is a stopped
        hostctl start a
        echo "stop by hand: heard"
}

# A kill is a crash: it is back, after the first second of the growing delays.
kill_by_hand() {
        local pid
        pid=$(property hostd-instance@a.service MainPID)
        systemctl kill -s KILL hostd-instance@a
        until_true 60 sh -c "hostctl exec a -- true && [ \"\$(systemctl show -P MainPID hostd-instance@a)\" != $pid ]"
        journalctl -q -u hostd -o cat HOSTD_INSTANCE=a >log
        grep 'hostd-instance was killed' log
        [ "$(property hostd-instance@a.service Result)" = success ]
        hostctl leaks
        echo "kill by hand: is back"
}

# The second half finds a spec that was used: it says so at once, and does not run into what hostd is removing.
restart_by_hand() {
        systemctl restart hostd-instance@a || true
        until_true 30 sh -c '[ "$(systemctl show -P ActiveState hostd-instance@a)" != active ] || hostctl exec a -- true'
        until_true 30 is a stopped
        systemctl reset-failed
        hostctl leaks
        hostctl start a
        hostctl exec a -- true
        echo "restart by hand: stopped, said why"
}

# What is kept for the host.
shares() {
        local ram limit
        ram=$(($(awk '/^MemTotal/ { print $2 }' /proc/meminfo) * 1024))
        limit=$(cat /sys/fs/cgroup/hostd.slice/memory.max)
        [ "$limit" -lt "$ram" ]
        [ "$limit" -gt $((ram * 7 / 10)) ]
        [ "$(cat /sys/fs/cgroup/hostd.slice/pids.max)" -lt "$(cat /proc/sys/kernel/threads-max)" ]
        [ "$(cat /sys/fs/cgroup/hostd.slice/cpu.weight)" = 50 ]
        [ "$(cat /sys/fs/cgroup/system.slice/memory.min)" = $((128 << 20)) ]
        [ "$(cat /sys/fs/cgroup/system.slice/ssh.service/memory.min)" = $((32 << 20)) ]
        [ "$(cat /sys/fs/cgroup/user.slice/memory.low)" = $((256 << 20)) ]
        [ "$(cat "/proc/$(property hostd.service MainPID)/oom_score_adj")" = -900 ]
        [ "$(cat "/proc/$(property hostd-instance@a.service MainPID)/oom_score_adj")" = 0 ]
        hostctl doctor -f csv -c protection,state | tr -d '\r' | grep -x host-share,enforced
        # It stays through what systemd does, follows the reserve, and leaves what an administrator sets.
        systemctl daemon-reload
        systemctl daemon-reexec
        [ "$(cat /sys/fs/cgroup/hostd.slice/memory.max)" = "$limit" ]
        sed -i '/^memory_reserve/d' /etc/hostd/hostd.conf
        echo 'memory_reserve = "512MiB";' >>/etc/hostd/hostd.conf
        hostctl apply
        [ "$(cat /sys/fs/cgroup/hostd.slice/memory.max)" -gt "$limit" ]
        systemctl set-property hostd.slice MemoryMax=1G
        systemctl restart hostd
        until_true 30 hostctl info
        [ "$(cat /sys/fs/cgroup/hostd.slice/memory.max)" = $((1 << 30)) ]
        systemctl daemon-reload
        [ "$(cat /sys/fs/cgroup/hostd.slice/memory.max)" = $((1 << 30)) ]
        systemctl revert hostd.slice
        sed -i '/^memory_reserve/d' /etc/hostd/hostd.conf
        systemctl restart hostd
        until_true 30 hostctl info
        [ "$(cat /sys/fs/cgroup/hostd.slice/memory.max)" = "$limit" ]
        echo "shares: kept"
}

# A drop-in of the administrator's comes after ours.
foreign_settings() {
        mkdir -p /etc/systemd/system/system.slice.d
        printf '[Slice]\nMemoryMin=1M\n' >/etc/systemd/system/system.slice.d/override.conf
        systemctl daemon-reload
        [ "$(property system.slice MemoryMin)" = $((1 << 20)) ]
        rm -r /etc/systemd/system/system.slice.d
        systemctl daemon-reload
        [ "$(property system.slice MemoryMin)" = $((128 << 20)) ]
        echo "foreign settings: win"
}

exposure() {
        local unit bound said
        for unit in hostd.service=63 hostd-instance@a.service=72; do
                bound=${unit#*=} unit=${unit%=*}
                said=$(systemd-analyze security --no-pager "$unit" | sed -n 's/.*Overall exposure level for .*: \([0-9]*\)\.\([0-9]\) .*/\1\2/p')
                echo "$unit: exposure $said of 100, bound $bound"
                [ "$said" -le "$bound" ]
        done
        # What the unit files say is what the processes have.
        grep -q '^Seccomp:.*2' "/proc/$(property hostd.service MainPID)/status"
        grep -q '^Seccomp:.*2' "/proc/$(property hostd-instance@a.service MainPID)/status"
        [ "$(sed -n 's/^CapBnd:\t//p' "/proc/$(property hostd-instance@a.service MainPID)/status")" = "$(sed -n 's/^CapPrm:\t//p' "/proc/$(property hostd-instance@a.service MainPID)/status")" ]
}

# What hostd-instance may not hand on, guests do not have; what they need, they have.
inherited() {
        hostctl exec a -- python3 -c 'import socket
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK): socket.socket(family, socket.SOCK_DGRAM).close()
try: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)
except OSError as e: print("no AF_ALG:", e)
else: raise SystemExit("AF_ALG is there")'
        [ "$(hostctl exec a -- sed -n 's/^CapBnd:\t//p' /proc/1/status | tr -d '\r')" = "$(sed -n 's/^CapBnd:\t//p' /proc/1/status)" ]
        hostctl exec --user agent a -- bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev true
        hostctl exec a -- sh -c 'exec 3<>/dev/fuse && exec 4<>/dev/net/tun && exec 5<>/dev/ptmx'
        echo "inherited: what it should be"
}

# What hostd runs for itself works under what its units allow.
own_helpers() {
        hostctl exec a -- touch /var/tmp/changed
        hostctl diff a >changes
        grep -q /var/tmp/changed changes
        hostctl set a description="by a commit of its own" >/dev/null
        hostctl config log >history
        [ -s history ]
        echo "helpers: work"
}

# A build is a unit: limited, a keeper with two capabilities, a job without any, and gone afterwards or when its client goes.
builds() {
        local unit keeper job import
        bash -ec '. tests/lib/tiny.sh; rm -rf /root/tiny; mkdir /root/tiny; tiny_root /root/tiny/r; tar -C /root/tiny/r -c . >/root/tiny/t.tar'
        { head -c 65536 /root/tiny/t.tar; sleep 15; tail -c +65537 /root/tiny/t.tar; } | hostctl template import tiny-units - &
        import=$!
        until_true 20 sh -c 'systemctl list-units --plain --no-legend "hostd-build@*" | grep -q running'
        unit=$(systemctl list-units --plain --no-legend 'hostd-build@*' | awk '{ print $1 }')
        keeper=$(property "$unit" MainPID)
        until_true 10 pgrep -P "$keeper"
        job=$(pgrep -P "$keeper")
        [ "$(property "$unit" MemoryMax)" = $((2 << 30)) ]
        [ "$(sed -n 's/^CapEff:\t//p' "/proc/$keeper/status")" = 00000000000000c0 ]
        until_true 10 grep -q '^CapEff:.0000000000000000$' "/proc/$job/status"
        grep -q '^NoNewPrivs:.1$' "/proc/$job/status"
        [ "$(stat -c %U "/proc/$job")" = hostd-build ]
        wait $import
        hostctl template delete tiny-units
        { head -c 65536 /root/tiny/t.tar; sleep 10; } | timeout 5 hostctl template import tiny-units - || true
        until_true 20 sh -c '[ -z "$(systemctl list-units --all --plain --no-legend "hostd-build@*")$(pgrep -u hostd-build)" ]'
        rm -r /root/tiny
        echo "builds: are units"
}

# The HAProxy of an instance is a unit, another user than that of the unit, outlives hostd, and ends with the last grant.
haproxies() { systemctl list-units --plain --no-legend --state=active 'hostd-haproxy@*' | awk '{ print $1 }'; }
interceptor() {
        local base unit pid id
        printf 'a value' | hostctl secret set units-secret
        hostctl secret grant units-secret a --host api.example.com --header X-Key >granted
        id=$(grep -oE '[0-9a-f]{16}' granted | head -n 1)
        until_true 30 sh -c 'hostctl secret grants a | grep -q ready'
        unit=$(haproxies)
        [ "$(wc -w <<<"$unit")" = 1 ]
        pid=$(property "$unit" MainPID)
        base=$(sed -n 's/^hostd-haproxy:\([0-9]*\):.*/\1/p' /etc/subuid)
        [ "$(sed -n 's/^Uid:\t\([0-9]*\)\t.*/\1/p' "/proc/$pid/status")" -gt "$base" ]
        grep -q '^CapEff:.0000000000000000$' "/proc/$pid/status"
        grep -q '^CapPrm:.0000000000000000$' "/proc/$pid/status"
        grep -q '^Seccomp:.*2' "/proc/$pid/status"
        [ "$(readlink "/proc/$pid/exe")" = /usr/sbin/haproxy ]
        nft list chain inet hostd helpers | grep -q "$base-"
        systemctl restart hostd
        until_true 30 sh -c 'hostctl secret grants a | grep -q ready'
        [ "$(haproxies)" = "$unit" ] && [ "$(property "$unit" MainPID)" = "$pid" ]
        kill -9 "$pid"
        until_true 60 sh -c "[ -n \"\$(systemctl list-units --plain --no-legend --state=active 'hostd-haproxy@*' | grep -v '$unit')\" ]"
        until_true 30 sh -c 'hostctl secret grants a | grep -q ready'
        hostctl secret ungrant "$id"
        until_true 30 sh -c "[ -z \"\$(systemctl list-units --plain --no-legend 'hostd-haproxy@*')\" ]"
        hostctl secret revoke units-secret
        echo "interceptor: a unit"
}

hostctl launch agent a -s memory=512MiB -s pids=512 -s disk=300MiB
until_true 120 hostctl exec a -- test -S /run/dbus/system_bus_socket
show
exposure
inherited
own_helpers
builds
interceptor
start_by_hand
stop_by_hand
kill_by_hand
restart_by_hand
shares
foreign_settings
systemctl --failed --no-legend | tee failed
[ ! -s failed ]
