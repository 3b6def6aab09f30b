#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The life of an instance: each verb in each state, ends from inside and from outside, what survives what, and two operators at once.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin

is_not_running() { [ "$(state "$1")" != running ]; }
settled() { case "$(state "$1")" in starting | stopping) return 1 ;; esac; }
boot_done() { [ "$(count_state running pt-a pt-b)" = 2 ]; }
slow() { ex "$1" -- sh -c "echo $2 >/var/tmp/slow-halt"; } # its halt takes that long
box_of() { local p; p=$(instance_pid "$1"); sed -n 's/.*:\(.*\/box\)\/payload.*/\1/p' "/proc/$p/cgroup" | head -n 1; }
supervisor() { hostctl show "$1" -f json | sed -n 's/.*"supervisor": \([0-9]*\).*/\1/p'; }
events_of() { hostctl events "$1" -f json; }

# --- the verbs
check_status "create refuses a template that is not there" 3 'no template' hostctl create absent pt-a
for what in events "command list" log; do check_status "$what of an instance that never was" 3 pt-never hostctl $what pt-never; done
check_status "nor are its events waited for" 3 pt-never timeout 10 hostctl events --follow pt-never
check "nothing is left of it" absent pt-a
check "create" hostctl create tiny pt-a -s memory=64MiB -s disk=128MiB -s pids=100 -l team=x -d "first"
check_status "create again" 4 'pt-a' hostctl create tiny pt-a
check_is "a created instance is down" stopped state pt-a
check_status "exec in it" 125 'start it first' hostctl exec pt-a -- true
check "start" hostctl start pt-a
check "start again is no error" hostctl start pt-a
check_is "running" running state pt-a
check "exec" ex pt-a -- true
check "restart" hostctl restart pt-a
check "exec after restart" ex pt-a -- true
check "pause" hostctl pause pt-a
check_is "paused" paused state pt-a
check_status "exec in a paused one fails at once" 125 paused within 2 hostctl exec pt-a -- true
check "resume" hostctl resume pt-a
check_is "resumed" running state pt-a
check "exec after resume" ex pt-a -- true
check "stop" hostctl stop pt-a
check "stop again is no error" hostctl stop pt-a
check_is "stopped" stopped state pt-a
check_status "pause when stopped" 7 pt-a hostctl pause pt-a
check_status "resume when stopped" 7 'pt-a is stopped.*resumed' hostctl resume pt-a
check "delete" hostctl delete pt-a
check "it is gone" absent pt-a
check_status "start of what is not there" 3 pt-a hostctl start pt-a
check_status "delete of what is not there" 3 pt-a hostctl delete pt-a
check "no leaks" no_leaks

# --- several names
check "three by one create" hostctl create tiny pt-a pt-b pt-c -s memory=64MiB -s disk=128MiB
check "start three" hostctl start pt-a pt-b pt-c
check_is "three run" 3 count_state running pt-a pt-b pt-c
check_status "one bad name does not keep the others from their turn" 3 pt-x hostctl stop pt-a pt-x pt-b
check_is "both stopped" 2 count_state stopped pt-a pt-b
others=$(csv name | grep -v '^pt-')
if [ -z "$others" ]; then
        check "start --all" hostctl start --all
        check_is "all run" 3 count_state running pt-a pt-b pt-c
        check "stop --all" hostctl stop --all
        check_is "all are stopped" 3 count_state stopped pt-a pt-b pt-c
else
        skip "--all" "whatever else is on this host stays as it is: $(tr '\n' ' ' <<<"$others")"
fi
check "delete three" hostctl delete --force pt-a pt-b pt-c

# --- list and show
launch pt-a pids=99 labels.team=blue >/dev/null
check "list as json" sh -c "hostctl list -f json | jq -e '.instances[] | select(.name == \"pt-a\") | .state == \"running\" and .memory == 67108864'"
check_is "list as csv with chosen columns" "name,memory
pt-a,67108864" sh -c "hostctl list -f csv -c name,memory | tr -d '\r' | grep -e ^name -e ^pt-a"
check_status "an unknown column is named" 2 nonsense hostctl list -c name,nonsense
# columns_told KEY COMMAND...: each column that a list knows is in hostd's answer.
columns_told() {
        local key=$1 reply column
        shift
        reply=$("$@" -f json) || return 1
        for column in $("$@" -c nonsense 2>&1 | sed -n 's/,//g; s/.*there are: //p'); do
                jq -e --arg c "$column" ".$key[0] | has(\$c)" <<<"$reply" >/dev/null || { echo "no $column"; return 1; }
        done
        [ -n "${column:-}" ]
}
hostctl policy set pt-columns "allow 198.51.100.0/24" >/dev/null
for list in "instances list" "templates template list" "policies policy list" "protections doctor" "records audit tail" "files file list pt-a:/etc"; do
        read -r key words <<<"$list"
        check "every column of $words is told" columns_told "$key" hostctl $words
done
hostctl policy delete pt-columns >/dev/null
check_is "the packages of a template are counted" "$(hostctl template show tiny | grep -c '^  ')" sh -c "hostctl template list -f csv -c name,packages | tr -d '\r' | sed -n 's/^tiny,//p'"
check "events of an instance are told with their state" sh -c "hostctl show pt-a | grep -E '^TIME.* STATE' && hostctl show pt-a | grep -E 'instance-state.* running'"
check "show --expanded says where each value comes from" sh -c "hostctl show pt-a --expanded | grep -E '^pids +99 +instance' && hostctl show pt-a --expanded | grep -E '^cpu +1 +default' "
check "a preset is such a source" sh -c "hostctl set pt-a preset=small && hostctl show pt-a --expanded | grep -E '^cpu .*preset'"
check "label" hostctl label pt-a team=red role=web
check_is "labels are shown" "blue" sh -c "hostctl label pt-a team=blue >/dev/null && hostctl show pt-a -f json | jq -r .labels.team"
check "an empty value removes a label" sh -c "hostctl label pt-a role= && hostctl show pt-a -f json | jq -e '.labels | has(\"role\") | not'"
check "unset" sh -c "hostctl unset pt-a pids && hostctl show pt-a --expanded | grep -E '^pids .*(preset|default)'"
check "a console without input ends by itself" sh -c "timeout 10 hostctl console pt-a </dev/null"
check "and so does one at the end of its input" sh -c "printf '\\n' | timeout 10 hostctl console pt-a"
check "log shows the console" sh -c "hostctl log pt-a | grep -q 'tiny: up'"

# --- the state that delete meets
for s in new running paused stopped; do
        hostctl delete --force pt-a >/dev/null 2>&1
        hostctl create tiny pt-a -s memory=64MiB -s disk=128MiB >/dev/null 2>&1
        [ $s = new ] || hostctl start pt-a >/dev/null 2>&1
        [ $s = paused ] && hostctl pause pt-a >/dev/null 2>&1
        [ $s = stopped ] && hostctl stop pt-a >/dev/null 2>&1
        [ $s = new ] || is_state pt-a $s || fail "delete when $s" "it is $(state pt-a)"
        case $s in running | paused) check_status "delete when $s needs --force" 7 force hostctl delete pt-a ;; esac
        check "delete --force when $s" hostctl delete --force pt-a
        check "gone after delete when $s" absent pt-a
done
launch pt-a >/dev/null
slow pt-a 8
hostctl stop pt-a >/dev/null 2>&1 &
wait_for 3 is_state pt-a stopping || fail "stopping" "it is $(state pt-a)"
check "delete --force when stopping" within 5 hostctl delete --force pt-a
wait $!
check "gone after delete when stopping" absent pt-a
launch pt-a stop_timeout=2s >/dev/null
slow pt-a 8
hostctl stop pt-a >/dev/null 2>&1 &
wait_for 3 is_state pt-a stopping || fail "stopping" "it is $(state pt-a)"
check "start when stopping waits for the end and starts" within 20 hostctl start pt-a
wait $!
check "it runs" ex pt-a -- true
hostctl stop --force pt-a >/dev/null 2>&1 &
hostctl delete --force pt-a >/dev/null 2>&1 &
hostctl start pt-a >/dev/null 2>&1
wait
check "a delete beside a stop and a start wins" absent pt-a
hostctl create tiny pt-a -s memory=64MiB -s disk=128MiB >/dev/null
hostctl start pt-a >/dev/null 2>&1 &
check "delete --force when starting" within 10 hostctl delete --force pt-a
wait $!
check "gone after delete when starting" absent pt-a
check "no leaks after deletes" no_leaks

# --- stop: graceful, deaf, forced
launch pt-a stop_timeout=2s >/dev/null
ex pt-a -- touch /var/tmp/deaf
hostctl restart --force pt-a >/dev/null
begin=$(now_ms)
check "a guest that ignores the halt signal is killed after stop_timeout" within 10 hostctl stop pt-a
took=$(($(now_ms) - begin))
if [ $took -ge 1900 ] && [ $took -le $((2000 + 2500 * slow)) ]; then ok "which took $took ms"; else fail "stop_timeout" "it took $took ms instead of 2 s"; fi
hostctl start pt-a >/dev/null
begin=$(now_ms)
check "stop --force kills at once" hostctl stop --force pt-a
took=$(($(now_ms) - begin))
if [ $took -le $((1000 * slow)) ]; then ok "at once ($took ms)"; else fail "stop --force" "it took $took ms"; fi
hostctl delete --force pt-a >/dev/null

# --- BR-1: a halt that comes too early must not be lost
launch pt-a >/dev/null
hostctl stop pt-a >/dev/null
worst=0
for i in $(seq 20); do
        hostctl start pt-a >/dev/null 2>&1
        begin=$(now_ms)
        within 25 hostctl stop pt-a >/dev/null 2>&1 || { fail "stop right after start" "round $i"; break; }
        took=$(($(now_ms) - begin))
        [ $took -gt $worst ] && worst=$took
done
if [ $worst -lt $((5000 * slow)) ]; then ok "20 times start and stop at once, the slowest stop took $worst ms"; else fail "stop right after start" "$worst ms"; fi
if has_agent; then
        launch_from agent pt-s memory=512MiB disk=512MiB pids=512 >/dev/null
        worst=0
        for i in 1 2 3; do
                [ $i -gt 1 ] && hostctl start pt-s >/dev/null 2>&1
                begin=$(now_ms)
                within 30 hostctl stop pt-s >"$work/out" 2>&1 || fail "stop of systemd right after start" "round $i: $(cat "$work/out")"
                took=$(($(now_ms) - begin))
                [ $took -gt $worst ] && worst=$took
        done
        if [ $worst -lt $((20000 * slow)) ]; then ok "3 times start and stop of systemd at once, the slowest took $worst ms"; else fail "stop of systemd" "$worst ms"; fi
        check_not "no stop of systemd was forced" sh -c "hostctl events pt-s -f json | grep -i -e forced -e killed"
        check "no leaks after systemd" no_leaks
        hostctl delete --force pt-s >/dev/null
else
        skip "stop of systemd right after start" "there is no template agent"
fi

# --- ends from inside
ipv4=$(field pt-a ipv4)
hostctl set pt-a pids=111 upload=1MiB memory=96MiB >/dev/null
hostctl start pt-a >/dev/null
before=$(instance_pid pt-a)
slot=$(slot pt-a)
ex pt-a -- reboot -f >/dev/null 2>&1
other_init() { local p; p=$(csv name,state,pid | grep '^pt-a,running,') && [ "${p##*,}" != "$before" ]; }
wait_for 10 other_init
check "reboot from inside brings it back" test "$(instance_pid pt-a)" != "$before" -a "$(state pt-a)" = running
check_is "with the same address" "$ipv4" field pt-a ipv4
check_is "also on its interface" "$ipv4" sh -c "hostctl exec pt-a -- ip -4 -o addr show dev eth0 | sed 's/.*inet \([0-9.]*\).*/\1/'"
check_is "with the limits that were set meanwhile" 111 sh -c "hostctl show pt-a -f json | jq -r .enforced.pids"
check_is "which are the kernel's" 111 sh -c "cat \$(find /sys/fs/cgroup -path '*i$(printf %04x "$slot")*/box/pids.max' -o -path '*hostd-instance@pt-a*/box/pids.max' | head -n 1)"
check_is "and 96 MiB of memory" $((96 << 20)) sh -c "cat \$(find /sys/fs/cgroup \( -path '*i$(printf %04x "$slot")*' -o -path '*hostd-instance@pt-a*' \) \( -path '*/box/memory.max' -o -path '*/box/memory.limit_in_bytes' \) | head -n 1)"
check "and the upload rate" sh -c "nft list ruleset | grep -A2 'chain i$(printf %04x "$slot")_rate' | grep -q limit"
ex pt-a -- halt -f >/dev/null 2>&1
check "halt from inside stops it" wait_for 10 is_state pt-a stopped
sleep 2
check_is "and it is not started again" stopped state pt-a
check "no leaks after a halt from inside" no_leaks

# --- crash: noticed, cleaned, started again with back-off
hostctl start pt-a >/dev/null
first=$(supervisor pt-a)
init=$(instance_pid pt-a)
kill -9 "$first"
check "death of hostd-instance is noticed" wait_for 3 is_not_running pt-a
check "a warning says so while it is down" wait_for 3 sh -c "hostctl warning list -f csv | grep -q 'instance-failed.*pt-a'"
check "its processes died with it" wait_for 5 process_gone "$init"
check "it is started again" wait_for 8 is_state pt-a running
check "and an event tells of it afterwards" sh -c "hostctl events pt-a | grep -q 'state=failed'"
check "and answers" ex pt-a -- true
second=$(supervisor pt-a)
begin=$(now_ms)
kill -9 "$second"
wait_for 3 is_not_running pt-a
wait_for 15 is_state pt-a running
took=$(($(now_ms) - begin))
if [ $took -ge 1800 ]; then ok "the second restart waits longer ($took ms)"; else fail "back-off" "the second restart came after $took ms"; fi
check "no leaks after crashes" no_leaks
check "warning clear" hostctl warning clear instance-failed pt-a
check_not "it is cleared" sh -c "hostctl warning list -f csv | grep 'instance-failed.*pt-a'"
kill -9 "$(instance_pid pt-a)"
check "death of init counts as a crash too" wait_for 10 sh -c "hostctl warning list -f csv | tr -d '\r' | grep -q 'instance-failed.*pt-a'"
wait_for 15 is_state pt-a running
hostctl delete --force pt-a >/dev/null

# --- what rebuild keeps
launch pt-a >/dev/null
ex pt-a -- sh -c 'echo root >/etc/of-root; echo home >/home/agent/of-data; chown 1000:1000 /home/agent/of-data; mkdir -p /var/lib/containers/x'
check_status "rebuild of a running one needs --force" 7 . hostctl rebuild pt-a
check "rebuild --force" hostctl rebuild --force pt-a
is_state pt-a running || hostctl start pt-a >/dev/null
check_is "home survives with its owner" "home 1000" ex pt-a -- sh -c 'echo "$(cat /home/agent/of-data) $(stat -c %u /home/agent/of-data)"'
check "container storage survives" ex pt-a -- test -d /var/lib/containers/x
check_not "the root does not" ex pt-a -- test -e /etc/of-root
check_status "rebuild from a template that is not there" 3 absent hostctl rebuild --force pt-a --template absent
check "diff shows what the work left" sh -c "hostctl exec pt-a -- touch /etc/left && hostctl diff pt-a | grep -q etc/left"

# --- read-only root
check "read_only" sh -c "hostctl set pt-a read_only=true && hostctl restart pt-a"
check_not "the root cannot be written" ex pt-a -- touch /etc/x
check "tmp, run and home can" ex pt-a -- sh -c 'touch /tmp/x /run/x /home/agent/x'
hostctl delete --force pt-a >/dev/null

# --- boot order and mode, seen in a restart of the whole set
for n in pt-a:5 pt-b:-5 pt-c:0; do hostctl create tiny ${n%:*} -s memory=64MiB -s disk=64MiB -s boot_order=${n#*:} >/dev/null; done
check "boot settings are kept" sh -c "hostctl show pt-b --expanded | grep -E '^boot_order +-5 +instance'"
hostctl set pt-c boot=off >/dev/null
hostctl start pt-a pt-b pt-c >/dev/null
# A lost start of the host: hostd is away while all of them end, and its run directory is new, as after a boot.
supervisors=$(for n in pt-a pt-b pt-c; do supervisor $n; done)
if hostd_kill; then
        for p in $supervisors; do kill -9 "$p"; done
        sleep 0.5
        hostd_start
        check "what was wanted comes back after hostd was away" wait_for 15 boot_done
        check "in its order: the lower number first" sh -c "[ \"\$(hostctl events -f json | grep '\"starting\"' | grep -oE 'pt-[ab]' | head -n 1)\" = pt-b ]"
else
        fail "boot" "hostd cannot be killed here"
fi
hostctl delete --force pt-a pt-b pt-c >/dev/null

# --- two operators at once on one name
launch pt-a >/dev/null
rm -f "$work"/race.*
for i in $(seq 8); do
        (for j in 1 2 3; do
                hostctl set pt-a pids=$((100 + i * 10 + j))
                hostctl stop --force pt-a
                hostctl start pt-a
                hostctl pause pt-a
                hostctl resume pt-a
                hostctl exec pt-a -- true
                hostctl rebuild --force pt-a
        done) >"$work/race.$i" 2>&1 &
done
wait $(jobs -p)
cat "$work"/race.* >"$work/race"
check_not "no strange answer among them" grep -avE 'pt-a|^(name|state|after_restart|digest): |^[ -]*$|meanwhile|starting|stopping|running|paused|stopped|helper|busy' "$work/race"
check_not "no internal error among them" grep -aiE 'internal|assert|cannot connect|connection' "$work/race"
check "hostd lives" hostd_answers
wait_for 20 settled pt-a
hostctl resume pt-a >/dev/null 2>&1
check "and the instance can be started" hostctl start pt-a
check "and answers" ex pt-a -- true
for i in $(seq 6); do hostctl delete --force pt-a >"$work/race.$i" 2>&1 & done
wait $(jobs -p)
check "parallel deletes end with none" absent pt-a
for i in $(seq 6); do hostctl create tiny pt-a -s memory=64MiB -s disk=64MiB >"$work/race.$i" 2>&1; echo "status $?" >>"$work/race.$i" & done
wait $(jobs -p)
check_is "of parallel creates exactly one wins" 1 sh -c "cat $work/race.[1-6] | grep -c 'status 0'"
check_is "the others say that it exists" 5 sh -c "cat $work/race.[1-6] | grep -c 'status 4'"
hostctl delete --force pt-a >/dev/null
check "no leaks at the end" no_leaks
check "the audit chain is whole" hostctl audit verify
finish
