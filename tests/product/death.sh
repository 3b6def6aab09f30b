#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Death and return: hostd killed at random moments under load, its helpers killed, a disk that is full in the middle of a create, a
# lost store. Afterwards every instance is whole or absent, runs on untouched, and nothing is left over.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
rounds=${HOSTD_DEATH_ROUNDS:-30}
fence() { # NAME: what the kernel enforces for it, without counters
        local h
        h=$(printf 'i%04x' "$(slot "$1")")
        nft -s list ruleset | grep -A40 "chain ${h}_\(rules\|out\|in\|host\|rate\)\|set ${h}_live" | grep -v -e counter -e '^--' | sha256sum
        find /sys/fs/cgroup \( -path "*/$h-g*/box/*" -o -path "*/hostd-instance@$1.service/box/*" \) \( -name pids.max -o -name memory.max -o -name memory.limit_in_bytes -o -name cpu.max -o -name cpu.cfs_quota_us \) 2>/dev/null | grep -v /commands/. | sort | while read -r f; do echo "$f $(cat "$f")"; done
}
supervisor() { hostctl show "$1" -f json | jq -r .supervisor; }
consistent() { # files, history and memory agree
        [ -z "$(hostctl apply --dry-run 2>&1 | grep pt-)" ] && [ -z "$(git -C "$HOSTD_ETC" status --porcelain -uno)" ]
}

launch pt-keep pids=150 memory=96MiB upload=5MiB >/dev/null || { fail launch pt-keep; finish; }
hostctl policy set pt-net "allow 198.51.100.0/24 tcp 80" >/dev/null
hostctl set pt-keep policies=pt-net >/dev/null
ex pt-keep -- sh -c 'echo kept >/home/agent/kept'

# --- what is no reason to die
kill -PIPE "$(hostd_pid)"
check "a pipe that nobody reads any more does not end hostd" hostd_answers

# --- one death, looked at closely
init=$(instance_pid pt-keep)
before=$(fence pt-keep)
ex pt-keep -- sh -c 'echo x | timeout 1 nc 203.0.113.9 81' >/dev/null 2>&1
denied=$(hostctl network show pt-keep | sed -n 's/^ *denied_packets: *//p')
hostd_kill
begin=$(now_ms)
check "the instance runs on without hostd" process_lives "$init"
if ! systemd_is_up && [ -z "${HOSTD_RESTART:-}" ]; then
        (flock 9 && exec setsid hostd >>/var/log/hostd.log 2>&1 </dev/null) 9>"$work/lock" &
        echo $! >"$HOSTD_RUN/quickstart.pid"
        disown
        begin=$(now_ms)
else
        hostd_start
fi
until [ "$(state pt-keep 2>/dev/null)" = running ] || [ $(($(now_ms) - begin)) -gt $((5000 * slow)) ]; do :; done
took=$(($(now_ms) - begin))
if [ $took -le $((1000 * slow)) ]; then ok "adopted $took ms after the start of hostd"; else fail "adoption" "$took ms"; fi
if [ -e "$work/lock" ]; then check "a lock that was held when it was started is not held by it" flock -n "$work/lock" true; else skip "a lock that was held when it was started" "it is started by somebody else here"; fi
check "it can be entered at once" ex pt-keep -- true
took=$(($(now_ms) - begin))
if [ $took -le $((1500 * slow)) ]; then ok "entered after $took ms"; else fail "entering" "$took ms"; fi
check_is "the same process 1" "$init" instance_pid pt-keep
check_is "the same limits and rules" "$before" fence pt-keep
now=$(hostctl network show pt-keep | sed -n 's/^ *denied_packets: *//p')
if [ "${now:-0}" -ge "${denied:-1}" ]; then ok "the counters went on ($denied, now $now)"; else fail "counters" "$denied, now $now"; fi
check "no leaks" no_leaks

# --- an orderly stop and start changes nothing either
hostd_stop
check "an orderly stop leaves the instance alone" process_lives "$init"
hostd_start
check_is "the same limits and rules after it" "$before" fence pt-keep

# --- many deaths under load
: >"$work/stop"
worker() { # NAME
        local n=$1
        while [ -e "$work/stop" ]; do
                hostctl create tiny "$n" -s memory=64MiB -s disk=64MiB
                hostctl start "$n"
                hostctl exec "$n" -- sh -c 'echo data >/home/agent/f; sleep 0.1; cat /home/agent/f'
                hostctl set "$n" pids=$((100 + RANDOM % 50))
                hostctl stop --force "$n"
                hostctl start "$n"
                hostctl rebuild --force "$n"
                hostctl delete --force "$n"
        done >"$work/worker.$n" 2>&1
}
worker pt-w1 &
worker pt-w2 &
worker pt-w3 &
bad=0 slowest=0
for i in $(seq "$rounds"); do
        sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
        hostd_kill || { bad=$((bad + 1)); note "round $i: hostd was not there to be killed"; }
        begin=$(now_ms)
        hostd_start || { bad=$((bad + 1)); note "round $i: hostd did not come back"; break; }
        took=$(($(now_ms) - begin))
        [ $took -gt $slowest ] && slowest=$took
        [ "$(state pt-keep)" = running ] && [ "$(instance_pid pt-keep)" = "$init" ] || { bad=$((bad + 1)); note "round $i: pt-keep is $(state pt-keep)"; }
done
rm -f "$work/stop"
for p in $(jobs -p); do wait "$p"; done 2>/dev/null
if [ $bad = 0 ]; then ok "$rounds deaths under load; hostd answered after at most $slowest ms"; else fail "deaths" "$bad of $rounds rounds"; fi
check "hostd answers" hostd_answers
quiet_down() { ! csv name,state | grep -E ',(starting|stopping)$'; }
wait_for 20 quiet_down
broken=
for n in $(csv name | grep '^pt-w'); do
        hostctl start "$n" >/dev/null 2>&1
        ex "$n" -- true >/dev/null 2>&1 || broken="$broken $n ($(state "$n"))"
done
if [ -z "$broken" ]; then ok "what is there is whole: it starts and answers"; else fail "half an instance" "$broken"; fi
for n in $(csv name | grep '^pt-w'); do hostctl delete --force "$n" >"$work/out" 2>&1 || fail "delete $n" "$(cat "$work/out")"; done
check_is "pt-keep runs, untouched" "$init" instance_pid pt-keep
check_is "with the same limits and rules" "$before" fence pt-keep
check_is "and its data" kept ex pt-keep -- cat /home/agent/kept
check "no leaks" wait_for 10 no_leaks
no_leaks | head -n 5
check "the audit chain is whole" hostctl audit verify
check "files, history and memory agree" consistent
check "the repository is whole" git -C "$HOSTD_ETC" fsck --no-progress
check "no storage without an instance" sh -c "for d in $HOSTD_STATE/instances/*; do n=\${d##*/}; hostctl list -f csv -c name | tr -d '\r' | grep -qx \"\$n\" || { echo \$n; exit 1; }; done"
check "no mount is left in the host's namespace" sh -c "! grep -E ' - overlay | /instances/' /proc/self/mountinfo | grep pt-"
check "no error among the answers but those of a dying hostd" sh -c "! grep -ahE 'internal|assert|corrupt|malformed' $work/worker.*"

# --- its helpers die
guest() { for p in $(instance_processes pt-keep); do [ "$(cat "/proc/$p/comm")" = hostd-guest ] && echo "$p" && return; done; return 1; }
if g=$(guest); then
        within 20 hostctl exec pt-keep -- sleep 15 >"$work/out2" 2>&1 &
        client=$!
        sleep 0.5
        g=$(guest)
        kill -9 "$g"
        wait $client
        status=$?
        if [ $status -ne 0 ] && [ $status -ne 124 ]; then ok "death of hostd-guest ends its commands (status $status: $(tail -n 1 "$work/out2"))"; else fail "hostd-guest" "status $status"; fi
        check "it is started again" wait_for 5 hostctl exec pt-keep -- true
        check_is "the instance did not notice" "$init" instance_pid pt-keep
        check "hostd tells" sh -c "hostctl events pt-keep | grep -q guest-helper-lost"
        check "no control group of the lost command is left" wait_for 5 no_command_groups
else
        fail "hostd-guest" "it was not found in the instance"
fi
kill -TERM "$(supervisor pt-keep)"
check "a SIGTERM to hostd-instance stops the guest" wait_for 20 is_state pt-keep stopped
check "its processes are gone" wait_for 5 process_gone "$init"
check "hostd tells that it was not asked" sh -c "hostctl events pt-keep | grep -q instance-terminated"
sleep 2
check "and takes it for the operator's wish" is_state pt-keep stopped
hostctl start pt-keep >/dev/null
init=$(instance_pid pt-keep)
s=$(supervisor pt-keep)
hostd_kill
kill -9 "$s"
check "death of hostd-instance takes its processes along, also without hostd" wait_for 5 process_gone "$init"
hostd_start
check "hostd notices when it is back, and starts it again" wait_for 15 is_state pt-keep running
check_is "data and limits are as before" "kept 150" sh -c "echo \$(hostctl exec pt-keep -- cat /home/agent/kept) \$(hostctl show pt-keep -f json | jq -r .enforced.pids)"
check "no leaks" no_leaks

# --- death of any helper at any step of a start
namespaces() { readlink /proc/[0-9]*/ns/net 2>/dev/null | sort -u | wc -l; }
wires() { ip -br link show type veth | grep -E '^(hv|hp|eth0)'; }
starters() { pgrep -f "hostd-instance .*/(i$(printf %04x "$(slot pt-d)")|by-name/pt-d)$"; } # supervisor, liblxc's monitor, who is to be init
hostctl create tiny pt-d -s memory=64MiB -s disk=64MiB >/dev/null
spaces=$(namespaces) before=$(wires) killed=0
for i in $(seq 30); do
        within 20 hostctl start pt-d >"$work/out" 2>&1 &
        client=$!
        sleep "0.0$((RANDOM % 10))"
        victim=$(starters | shuf -n 1)
        [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null && killed=$((killed + 1))
        [ $((i % 6)) = 0 ] && hostd_crash
        wait $client
        within 20 hostctl stop --force pt-d >/dev/null 2>&1
done
settled() { case "$(state pt-d)" in starting | stopping) return 1 ;; esac; }
check "after deaths at $killed moments of a start it is settled" wait_for 20 settled
hostctl stop --force pt-d >/dev/null
check "no leaks" wait_for 10 no_leaks
check_is "no interface is left" "$before" wires
spaces_gone() { [ "$(namespaces)" -le "$spaces" ]; }
check "and no network namespace" wait_for 10 spaces_gone
check "it starts and answers" sh -c "hostctl start pt-d && hostctl exec pt-d -- true"

# --- an interface that somebody removed while no hostd was there
wire=$(ifname pt-d)
has_wire() { ip link show "$wire"; }
if hostd_kill && ip link del "$wire" && hostd_start; then
        check "an interface that is gone is made anew" wait_for 5 has_wire
        check_is "with its address inside" "$(field pt-d ipv4)" sh -c "hostctl exec pt-d -- ip -4 -o addr show dev eth0 | sed 's/.*inet \([0-9.]*\).*/\1/'"
        check "and it reaches its gateway" ex pt-d -- ping -c 1 -W 2 169.254.0.1
else
        fail "interface" "hostd or the interface cannot be removed here"
fi
hostctl delete --force pt-d >/dev/null

# --- a disk that is full in the middle of a create
if [ "$(findmnt -no FSTYPE -T "$HOSTD_STATE")" != tmpfs ]; then
        free=$(df --output=avail -B1M "$HOSTD_STATE" | tail -n 1)
        launch pt-gone >/dev/null
        if mountpoint -q "$HOSTD_STATE" && fallocate -l $((free - 4))M "$HOSTD_STATE/.pt-fill" 2>/dev/null; then
                dd if=/dev/zero of="$HOSTD_STATE/.pt-fill2" bs=64k >/dev/null 2>&1
                sync -f "$HOSTD_STATE"
                before_list=$(ls "$HOSTD_STATE/instances" "$HOSTD_ETC/instances.d")
                for i in 1 2 3; do
                        hostctl launch tiny pt-full -s memory=64MiB -s disk=64MiB >"$work/out" 2>&1
                        status=$?
                        [ $status -ne 0 ] || hostctl delete --force pt-full >/dev/null 2>&1
                done
                note "launch on a full disk: status $status, $(tail -n 1 "$work/out")"
                check_is "a create on a full disk leaves nothing" "$before_list" sh -c "ls $HOSTD_STATE/instances $HOSTD_ETC/instances.d"
                check "hostd lives on a full disk" hostd_answers
                check "and comes back on one" hostd_crash
                gone() { hostctl delete --force pt-gone >/dev/null 2>&1; absent pt-gone; } # where /etc is full, too, its commit comes later
                check "an instance can be deleted on a full disk" gone
                check "running instances are entered or told why not" sh -c 'timeout 10 hostctl exec pt-keep -- true; s=$?; [ $s -eq 0 ] || [ $s -eq 125 ]'
                rm -f "$HOSTD_STATE/.pt-fill" "$HOSTD_STATE/.pt-fill2"
                sync -f "$HOSTD_STATE"
                check "with room again everything works" wait_for 10 hostctl launch tiny pt-full -s memory=64MiB -s disk=64MiB
                check "no leaks after a full disk" no_leaks
                check "the audit chain is whole after it" hostctl audit verify
                hostctl delete --force pt-full >/dev/null 2>&1
        else
                rm -f "$HOSTD_STATE/.pt-fill" "$HOSTD_STATE/.pt-fill2"
                skip "full disk" "the state directory is no file system of its own, or cannot be filled"
        fi
fi

# --- a lost store
launch pt-stopped >/dev/null
hostctl stop pt-stopped >/dev/null
warn_of_helper() {
        python3 -c 'import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as store:
    store.execute("INSERT INTO warning (kind, entity, text, first_seen, last_seen, count) VALUES (?, ?, ?, 1, 1, 1)", ("guest-helper", "pt-stopped", "died"))' "$HOSTD_STATE/state.db"
}
helper_warned() { hostctl warning list -f csv | grep 'guest-helper.*pt-stopped'; }
hostd_kill
check "what the last hostd said of a helper" warn_of_helper
check "is in the store that the next one starts with" hostd_start
check_not "but of an instance that does not run it is no longer said" helper_warned
init=$(instance_pid pt-keep)
before=$(fence pt-keep)
slots=$(csv name,slot | grep '^pt-' | sort)
hostd_kill
rm -f "$HOSTD_STATE"/state.db*
check "hostd starts without its store" hostd_start
check_is "the running instance is adopted" "$init" instance_pid pt-keep
check_is "all have their slots" "$slots" sh -c "hostctl list -f csv -c name,slot | tr -d '\r' | grep '^pt-' | sort"
check_is "limits and rules are the same" "$before" fence pt-keep
check_is "a stopped one is still stopped" stopped state pt-stopped
check "and starts" hostctl start pt-stopped
check "the running one can be entered" ex pt-keep -- true
launch pt-new >/dev/null
check_is "a new one gets a slot of its own" 3 sh -c "hostctl list -f csv -c name,slot | grep '^pt-' | cut -d, -f2 | sort -u | wc -l"
hostd_kill
dd if=/dev/urandom of="$HOSTD_STATE/state.db" bs=4096 count=8 conv=notrunc >/dev/null 2>&1
rm -f "$HOSTD_STATE"/state.db-*
if hostd_start; then
        check_is "a damaged store is replaced, or" "$init" instance_pid pt-keep
else
        note "a damaged store: $(tail -n 1 /var/log/hostd.log 2>/dev/null)"
        rm -f "$HOSTD_STATE"/state.db*
        check "a damaged store refuses the start with a sentence, and goes by removing it" hostd_start
        check_is "the instance runs on" "$init" instance_pid pt-keep
fi
hostctl delete --force pt-keep pt-stopped pt-new >/dev/null 2>&1
hostctl policy delete pt-net >/dev/null
check "no leaks at the end" wait_for 10 no_leaks
finish
