#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Sandboxes: made, used, limited, ended by each of their clocks and causes, kept over a restart of hostd; nothing of one is left.
set -u
. "$(dirname "$0")/../lib/product.sh"
. "$(dirname "$0")/../lib/sandbox.sh"
product_begin
command -v bwrap >/dev/null || { skip "sandboxes" "bubblewrap is not installed here"; finish; }

check "a template with bwrap" box_import
launch_from pt-box pt-a memory=256MiB pids=512 sandboxes=5 >/dev/null || { fail launch pt-a; finish; }

count() { hostctl sandbox list pt-a -f json | jq '[.sandboxes[] | select(.state != "ended")] | length'; }
groups() { cgroup_dirs | grep -E '/sandboxes/[^/]+$'; }
no_group() { ! groups | grep -q "/$1\$"; }
event() { hostctl events pt-a -f json 2>/dev/null | grep -c "\"$1\".*\"$2\"\|\"$2\".*\"$1\""; }

# --- what it is
id=$(make -m 48MiB -p 32 -l purpose=test)
check_is "an id" 12 expr length "$id"
check_is "it runs" running shown "$id" state
check_is "commands in it are the agent" "uid=1000(agent) gid=1000(agent) groups=50(staff),1000(agent)" in_box "$id" -- id
check_is "in its workspace, below a name of its own" "/workspace $id" in_box "$id" -- sh -c 'echo $(pwd) $(hostname)'
check_is "exit codes come through" 7 sh -c "hostctl sandbox exec $id -- sh -c 'exit 7'; echo \$?"
check_is "and signals" 143 sh -c "hostctl sandbox exec $id -- sh -c 'kill -TERM \$\$'; echo \$?"
check_is "input and output" hello sh -c "echo hello | hostctl sandbox exec $id -- cat"
check_is "2 MiB come whole" "$((2 << 20))" sh -c "hostctl sandbox exec $id -- head -c 2097152 /dev/zero | wc -c"
check_is "what is written stays for the next command" kept sh -c "hostctl sandbox exec $id -- sh -c 'echo kept >file'; hostctl sandbox exec $id -- cat file"
check_status "its root cannot be written" 1 'Read-only' in_box "$id" -- touch /bin/x
check_is "it has no network" lo in_box "$id" -- sh -c "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"
check_is "no capabilities, no new privileges, a filter" "0000000000000000 1 2" in_box "$id" -- sh -c "echo \$(grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status | cut -f2)"
ex pt-a -- sh -c 'touch /root/of-root /home/agent/of-agent'
check_is "the instance's homes are not there" "" in_box "$id" -- sh -c 'ls /home/agent /root 2>/dev/null | grep -v : | grep .'
check_status "no other user without --root" 125 'without --root|not made with --root' in_box "$id" -u 0 -- id
check_is "a time limit" 124 sh -c "hostctl sandbox exec -t 200ms $id -- sleep 20; echo \$?"
check_is "a timed-out command leaves nothing" "" in_box "$id" -- sh -c 'grep -lx sleep /proc/[0-9]*/comm'
check_is "its limit is in the kernel" "$((48 << 20))" sh -c "cat $(groups | grep "/$id\$" | tr '\n' ' ' | sed 's,\([^ ]*\) ,\1/memory.max \1/memory.limit_in_bytes ,g') 2>/dev/null"
check_is "commands are listed with their place" "pt-a/$id" sh -c "hostctl sandbox exec $id -- sleep 1 & sleep 0.4; hostctl command list -f json | jq -r '.commands[0].name'; wait"

# --- keys, labels, counts, refusals
check_is "a label" test shown "$id" labels.purpose
one=$(make -k job1)
check_is "the same key gives the same" "$one" make -k job1
check_is "which is one more" 2 count
check_status "no such runtime" 2 'podman.*not there' make --runtime podman
check_status "no such runtime at all" 2 'no runtime' make --runtime zzz
check_status "a network that nobody wrote a policy for" 3 'network names "private".*no policy' make --network private
check_status "and one that is no name" 2 'network.*lower-case' make --network Private
check_status "no template yet" 2 'template' make --template pt-box
check_status "a workspace that is not there" 9 'workspace /nowhere' make -w /nowhere
check_status "one that is not the agent's" 9 'workspace /etc' make -w /etc
hostctl exec -u agent pt-a -- ln -sfn /home/agent /home/agent/elsewhere
check_status "one behind a link" 9 'workspace /home/agent/elsewhere' make -w /home/agent/elsewhere
for i in 1 2 3; do make >/dev/null; done
check_status "more than its limit" 6 'sandboxes' make
check_status "an unknown one" 3 'no sandbox' sb show sbnothere
check_status "and a command in it" 125 'no sandbox' in_box sbnothere -- true
for s in $(hostctl sandbox list pt-a -f json | jq -r '.sandboxes[].id'); do [ "$s" = "$id" ] || sb delete "$s"; done
check_is "deleted ones are not known any more" 1 sh -c "hostctl sandbox list pt-a -f json | jq '.sandboxes | length'"

# --- a probe
t=$(now_ms)
probed=$(make --probe-command 'test -e /workspace/ready || { sleep 0.3; touch /workspace/ready; false; }')
check_is "ready when its probe succeeds" "running yes" sh -c "echo \$(hostctl sandbox show $probed -f json | jq -r .state) \$(hostctl sandbox exec $probed -- sh -c 'test -e ready && echo yes')"
check "and not before" test $(($(now_ms) - t)) -ge 300
sb delete "$probed"
check_status "one that does not succeed" 9 'probe did not succeed' make --probe-command false --probe-timeout 700ms
check_status "one that runs when the time is over" 9 'probe did not succeed' make --probe-command 'sleep 60' --probe-timeout 700ms
sleep 0.6 # in which another attempt would have come
check "hostd goes on" hostd_answers
check_status "nor does a deadline wait for it" 9 'deadline was over' make --probe-command 'sleep 60' --probe-timeout 1h --deadline 1s
make --probe-command 'sleep 5; true' -k slow >/dev/null 2>&1 &
sleep 0.7
slow_one=$(hostctl sandbox list pt-a -f json | jq -r '.sandboxes[] | select(.key == "slow") | .id')
check_status "nobody enters while it is probed" 125 'not ready' in_box "$slow_one" -- true
check "it is deleted all the same" sb delete "$slow_one"
wait $!

# --- a workspace of the agent's, and root
hostctl exec pt-a -- sh -c 'mkdir -p /home/agent/work; echo mine >/home/agent/work/file; chown -R 1000:1000 /home/agent'
root=$(make -R -w /home/agent/work)
check_is "root of its own namespace, in the agent's directory" "0 mine" in_box "$root" -- sh -c 'echo $(id -u) $(cat file)'
check_is "it may give files away" 33 in_box "$root" -- sh -c 'touch x; chown 33 x; stat -c %u x'
check_status "it cannot mount" 1 'ermission|ermitted' in_box "$root" -- mount -t tmpfs none /mnt
sb delete "$root"
check_is "the agent keeps what is in its directory" mine ex pt-a -- cat /home/agent/work/file

# --- limits
hostctl sandbox exec -t 3s "$id" -- sh -c '(while :; do sleep 9 & done) 2>/dev/null; exec sleep 9' >/dev/null 2>&1 & # the shell gives up where it cannot fork: what it made stays
bomb=$!
sleep 1
used=$(shown "$id" pids_used)
if [ "${used:-0}" -gt 20 ] && [ "$used" -le 32 ]; then ok "a fork bomb has its processes and no more ($used)"; else fail "a fork bomb" "$used processes of at most 32"; fi
check_is "and leaves its instance alone" alive ex pt-a -- echo alive
wait $bomb
check_is "the sandbox takes commands again" again in_box "$id" -- echo again
check_not "a hog dies" in_box "$id" -- sh -c 'head -c 100m /dev/zero >/tmp/big; tail /dev/zero'
wait_for 5 is_shown "$id" state ended
check_is "and its sandbox with it: out of memory" oom why "$id" cause
check "with its peak" test "$(why "$id" memory_peak)" -gt $((40 << 20))
check_is "its instance lives" running state pt-a
check "nothing of it is left" wait_for 2 no_group "$id"
check_status "no command in it any more" 125 'ended' in_box "$id" -- true
check "an event tells" test "$(event sandbox-ended oom)" -ge 1

# --- clocks
id=$(make -d 1500ms)
check_status "a deadline is told" 0 'deadline: *20[0-9][0-9]-' sb show "$id"
check "it is over by then" wait_for 4 is_shown "$id" state ended
check_is "by its deadline" deadline why "$id" cause
check_status "nobody renews what has ended" 8 'ended' sb renew "$id" 1min
id=$(make -d 3s)
check "renewed before" sb renew "$id" 1min
sleep 3.3
check_is "it lives past the first deadline" running shown "$id" state
check "shortened" sb renew "$id" 300ms
check "and dies by the new one" wait_for 3 is_shown "$id" cause deadline
id=$(make -i 3s)
for i in 1 2 3 4; do sleep 1; in_box "$id" -- true; done
check_is "used, it is not idle" running shown "$id" state
in_box "$id" -- sleep 4
check_is "nor while a command runs" running shown "$id" state
check "unused, it ends" wait_for 8 is_shown "$id" cause idle
id=$(make -d 300ms --grace 500ms)
gone() { ! hostctl sandbox show "$1" >/dev/null 2>&1; }
check "after its grace it is forgotten" wait_for 4 gone "$id"

# --- pause
id=$(make)
hostctl sandbox exec "$id" -- sh -c 'i=0; while :; do i=$((i+1)); echo $i >/workspace/n; done' &
busy=$!
sleep 0.5
check "pause" sb pause "$id"
check_is "it stands still" same sh -c "a=\$(hostctl sandbox show $id -f json | jq .cpu_usec); sleep 0.3; [ \$a = \$(hostctl sandbox show $id -f json | jq .cpu_usec) ] && echo same"
check_status "no command meanwhile" 125 'paused' in_box "$id" -- true
check_is "those that stand still are told, and no other" 1 shown "$id" commands
check "resume" sb resume "$id"
check_is "it goes on" on in_box "$id" -- echo on
check "paused again" sb pause "$id"
check "and deleted as it is" sb delete "$id"
wait $busy
check_is "the command in it ended with it" 125 echo $?
check "no group is left" no_group "$id"

# --- deletion
id=$(make)
hostctl sandbox exec "$id" -- sh -c 'trap "" TERM; setsid sleep 1000 & setsid sleep 1000 & wait' >/dev/null 2>&1 &
sleep 0.3
t=$(now_ms)
sb delete "$id" 2>"$work/first" &
first=$!
sb delete "$id" 2>"$work/second"
second=$?
wait $first
check "two at once: one deletes it, the other does or finds none" grep -qE '^(0 [03]|3 0)$' <<<"$? $second"
check "quickly: $(($(now_ms) - t)) ms" test $(($(now_ms) - t)) -lt $((1000 * slow))
check "nothing is left of it" no_group "$id"
check_status "once more: there is none" 3 'no sandbox' sb delete "$id"

# --- hostd goes and comes back
id=$(make -d 5min -k keep) short=$(make -d 2s)
paused=$(make)
sb pause "$paused"
hostctl sandbox exec "$id" -- sh -c 'sleep 4; echo done; exit 5' >"$work/exec" 2>&1 &
running=$!
sleep 0.5
check "kill -9 of hostd, and a new one" hostd_crash
check "it is found again" wait_for 5 is_shown "$id" state running
check_is "the paused one as well" paused shown "$paused" state
check_is "by its key" "$id" make -k keep
check_is "it takes commands" back in_box "$id" -- echo back
wait $running
check_is "the command in it went on, and its client has its end" "5 done" echo "$? $(grep -x done "$work/exec")"
check "a deadline was kept by the new hostd" wait_for 4 is_shown "$short" cause deadline
check "the paused one goes on" sb resume "$paused"
check_is "and answers" yes in_box "$paused" -- echo yes
check "stopped as an operator does" hostd_stop
check "and started" hostd_start
check_is "still there" "still" in_box "$id" -- echo still
sb delete "$paused"

# --- what it hangs on dies
pid1=$(groups | grep "/unified/.*/$id\$\|/hostd.slice/.*/$id\$" | head -n 1)
kill -9 $(cat "$pid1/main/cgroup.procs") 2>/dev/null
check "its first process is killed" wait_for 3 is_shown "$id" state ended
check_is "that is its cause" exited why "$id" cause
id=$(make)
other=$(make)
helper=$(for p in $(instance_processes pt-a); do case $(tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null) in hostd-guest*) echo "$p" ;; esac; done | head -n 1)
check "the instance has a helper" test -n "$helper"
kill -9 "$helper"
check "its instance's helper is killed: it lives on" in_box "$id" -- true
check "and others are made" wait_for 10 sb create pt-a
sb delete "$other"
check "the instance is paused" hostctl pause pt-a
check_status "no command meanwhile" 125 'paused' in_box "$id" -- true
check_status "and no new one" 7 'paused' make
check "a sandbox of a paused instance is deleted" sb delete "$id"
hostctl resume pt-a >/dev/null
id=$(make)
check "the instance is stopped" within 60 hostctl stop pt-a --force
check_is "and so are its sandboxes" instance why "$id" cause
check_status "none is made in what does not run" 7 'start it first' make
check "no group is left at all" sh -c '! find /sys/fs/cgroup -type d -path "*/sandboxes/sb*" | grep .'
check "deleted after all" sb delete "$id"

# --- killed between any two steps
hostctl start pt-a >/dev/null
for i in 1 2 3 4 5; do
        for k in 1 2 3; do (sb create pt-a >/dev/null 2>&1 &); done
        sleep "0.0$((RANDOM % 9))$((RANDOM % 9))"
        hostd_crash || fail "hostd comes back" "round $i"
        wait_for 10 sh -c "! hostctl sandbox list pt-a -f json | jq -r '.sandboxes[].state' | grep -E 'creating|restoring'"
        alive=$(hostctl sandbox list pt-a -f json | jq -r '.sandboxes[] | select(.state != "ended") | .id' | sort | tr '\n' ' ')
        there=$(groups | grep -o 'sb[a-z0-9]*$' | sort -u | tr '\n' ' ')
        for _ in 1 2 3 4 5 6 7 8 9 10; do [ "$alive" = "$there" ] && break; sleep 0.2; there=$(groups | grep -o 'sb[a-z0-9]*$' | sort -u | tr '\n' ' '); done
        check_is "kill -9 of hostd while some are made, $i: what is there is what is told" "$alive" echo "$there"
        for s in $alive; do in_box "$s" -- true || fail "a sandbox that survived" "$s takes no command"; sb delete "$s"; done
done
id=$(make -d 300ms)
wait_for 4 is_shown "$id" state ended
hostctl delete --force pt-a >/dev/null
check_is "with its instance all is forgotten that was known of them" 0 sh -c "hostctl sandbox list -f json | jq '[.sandboxes[] | select(.instance == \"pt-a\")] | length'"

# --- a template without bwrap
launch pt-b >/dev/null
check_status "no bwrap: said clearly" 9 'bubblewrap' sb create pt-b
check_is "and why" failed sh -c "hostctl sandbox why \$(hostctl sandbox list pt-b -f json | jq -r '.sandboxes[0].id') -f json | jq -r .cause"
hostctl delete --force pt-b >/dev/null
within 20 hostctl template delete pt-box >/dev/null 2>&1
check "no leaks" no_leaks
finish
