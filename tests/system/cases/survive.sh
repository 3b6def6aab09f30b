# SPDX-License-Identifier: GPL-2.0-or-later
# Instances, a command that runs, and all limits live through everything that happens to hostd and to systemd.
# LIMIT: 900
. tests/system/lib.sh

# All files of the boxes that say what may be used, byte for byte.
box_files() {
        local name
        for name in a b; do
                (cd "$(unit_group $name)/box" && find . -path ./payload -prune -o \( -name '*.max' -o -name '*.min' -o -name '*.low' -o -name '*.high' -o -name '*.weight' -o \
                        -name cpuset.cpus -o -name cpuset.mems -o -name 'memory.oom.group' -o -name 'cgroup.max.*' -o -name 'cgroup.subtree_control' \) -type f \
                        -not -path './commands/*/*' -print | sort | xargs grep -H '' 2>/dev/null || true
                 grep -H . payload/{memory.max,pids.max,cpu.max})
        done
        limits a b
        cat /sys/fs/cgroup/hostd.slice/{memory.max,pids.max,cpu.weight}
}

pids() { systemctl show -P MainPID hostd-instance@a hostd-instance@b; hostctl exec a -- cat /proc/sys/kernel/random/boot_id; }
main_pid() { systemctl show -P MainPID hostd; }

survive() { # WHAT SECONDS COMMAND...: the command's output is streamed through and its exit code comes, while COMMAND happens
        local what=$1 ticks=$2 running before processes status=0
        shift 2
        before=$(box_files)
        processes=$(pids)
        hostctl exec a -- sh -c "i=0; while [ \$i -lt $ticks ]; do i=\$((i + 1)); echo tick \$i; sleep 1; done; exit 7" >ticks &
        running=$!
        until_true 30 grep -q 'tick 2' ticks
        "$@"
        wait $running || status=$?
        [ $status -eq 7 ]
        [ "$(cat ticks)" = "$(seq $ticks | sed 's/^/tick /')" ]
        until_true 60 hostctl info
        until_true 30 hostctl exec b -- true
        [ "$(pids)" = "$processes" ]
        box_files >after
        [ "$(cat after)" = "$before" ] || { diff after - <<<"$before"; return 1; }
        hostctl leaks
        echo "survived: $what"
}

crash() { kill -9 "$(main_pid)"; }
# The socket stays: whoever asks next, here the command that runs, starts it again.
stop_service() { systemctl stop hostd; until_true 30 systemctl -q is-active hostd; }
# For good, until somebody starts it.
stop_both() { systemctl stop hostd.socket hostd; sleep 3; refused systemctl -q is-active hostd; systemctl start hostd; }
reexec() { systemctl daemon-reload; systemctl daemon-reexec; systemctl daemon-reload; }
upgrade() { make -s -C build install >/dev/null; systemctl daemon-reload; systemctl restart hostd; }
property_of_unit() { systemctl set-property --runtime hostd-instance@a.service MemoryMax=2G TasksMax=5000 CPUWeight=77; systemctl daemon-reload; }

# Stopped for longer than its watchdog: systemd ends it, the next one takes everything over.
hang() {
        local pid end
        pid=$(main_pid)
        kill -STOP "$pid"
        end=$((SECONDS + 100))
        while [ "$(main_pid)" = "$pid" ] || [ "$(main_pid)" = 0 ]; do
                [ $SECONDS -lt $end ] || { echo "the watchdog does not bite"; kill -KILL "$pid"; return 1; }
                sleep 1
        done
        journalctl -q -u hostd -o cat | tail -n 20 | grep -i watchdog
        [ -z "$(ls /core* 2>/dev/null)" ] # its memory holds keys
}

hostctl launch agent a -s memory=512MiB -s pids=256 -s cpu=0.5 -s disk=300MiB -s inodes=10000 -s io_write=100MiB
hostctl launch agent b -s memory=512MiB -s pids=256 -s cpu=1 -s disk=300MiB -s inodes=10000
until_true 120 hostctl exec a -- test -S /run/dbus/system_bus_socket
survive "restart of hostd" 15 systemctl restart hostd
survive "stop of hostd" 15 stop_service
survive "stop and start of hostd and its socket" 20 stop_both
survive "kill -9 of hostd" 15 crash
survive "daemon-reload and daemon-reexec" 15 reexec
survive "properties set on the unit" 12 property_of_unit
survive "upgrade of the files and restart" 25 upgrade
survive "a hostd that hangs" 90 hang
[ "$(systemctl show -P NRestarts hostd)" -ge 1 ]
systemctl --failed --no-legend | tee failed
[ ! -s failed ]
