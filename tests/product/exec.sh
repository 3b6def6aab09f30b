#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Commands in instances: exit codes, streams, ends, what is inherited and what is not, limits that bite, terminals, restarts of hostd.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
pty="$(dirname "$0")/terminal.py"

settle() { wait_for 5 no_groups; } # no control group of a command is left
no_groups() { [ -z "$(command_groups)" ]; }
records() { hostctl audit tail -n "${1:-1}" -f json | jq -c '.records[] | select(.method == "io.hostd.Command.Exec") | .detail.record'; }
record_of() { # TEXT JQ: of the newest record whose command has TEXT in it
        hostctl audit tail -n 300 -f json | jq -r "[.records[] | select(.method == \"io.hostd.Command.Exec\" and ((.detail.command // []) | join(\" \") | contains(\"$1\")))] | sort_by(.seq) | last | .detail.record | $2"
}
status_of() { "$@" >/dev/null 2>&1; echo $?; }

launch pt-a memory=256MiB pids=256 disk=1GiB cpu=2 >/dev/null || { fail "launch" "pt-a"; finish; }

# --- how it ends
check_is "exit 0" 0 status_of ex pt-a -- true
check_is "exit 7" 7 status_of ex pt-a -- sh -c 'exit 7'
check_is "exit 255" 255 status_of ex pt-a -- sh -c 'exit 255'
check_is "not found is 127" 127 status_of ex pt-a -- /no/such/program
check_status "and says so" 127 'command not found: nonsuch' ex pt-a -- nonsuch
check_is "not executable is 126" 126 status_of ex pt-a -- /etc/passwd
check_is "a directory is 126" 126 status_of ex pt-a -- /etc
check_is "SIGTERM is 143" 143 status_of ex pt-a -- sh -c 'kill -TERM $$'
check_is "SIGKILL is 137" 137 status_of ex pt-a -- sh -c 'kill -KILL $$'
check_is "SIGSEGV is 139" 139 status_of ex pt-a -- sh -c 'kill -SEGV $$'
ex pt-a -- sh -c ': seen; exit 9' >/dev/null 2>&1
check_is "the record has the exit code" "9 0 false false" record_of ': seen' '"\(.exit) \(.signal) \(.oom) \(.timed_out)"'
ex pt-a -- sh -c ': killed; kill -USR1 $$' >/dev/null 2>&1
check_is "the record has the signal" "-1 10" record_of ': killed' '"\(.exit) \(.signal)"'
# pair_of TEXT: the results of the records that share the id of the newest "started" whose command has TEXT in it, oldest first
pair_of() {
        hostctl audit query --since 10min -f json | jq -r ".records as \$all | [\$all[] | select(.result == \"started\" and ((.detail.command // []) | join(\" \") | contains(\"$1\")))]
                | sort_by(.seq) | last | .detail.id as \$id | [\$all[] | select(\$id != null and .detail.id == \$id)] | sort_by(.seq) | map(.method[9:] + \" \" + .result) | join(\", \")"
}
check_is "start and end are recorded under one id" "Command.Exec started, Command.Exec ok" pair_of ': seen'
check "the record has processor time and peak memory" sh -c "[ $(record_of ': seen' .cpu_usec) -gt 0 ] && [ $(record_of ': seen' .memory_peak) -gt 1000 ]"

# --- streams
check_is "stdout" out sh -c 'hostctl exec pt-a -- sh -c "echo out; echo err >&2" 2>/dev/null'
check_is "stderr" err sh -c 'hostctl exec pt-a -- sh -c "echo out; echo err >&2" 2>&1 >/dev/null'
check_is "stdin" "one two" sh -c 'printf "one two" | hostctl exec pt-a -- cat'
check_is "no stdin is the end at once" "" sh -c 'timeout 5 hostctl exec pt-a -- cat </dev/null'
check_is "a closed stdin too" "" sh -c 'timeout 5 hostctl exec pt-a -- cat <&-'
check_is "a here document" "a b" ex pt-a -- sh -c 'cat <<E
a b
E'
check_is "arguments arrive as they are" "[a b][][*][\"'\\][é]" ex pt-a -- sh -c 'printf "[%s]" "$@"' - 'a b' '' '*' "\"'\\" é
head -c 200000000 /dev/urandom >"$work/big"
sum=$(sha256sum <"$work/big" | cut -c1-64)
begin=$(now_ms)
check_is "200 MB in, sum inside" "$sum" sh -c "hostctl exec pt-a -- sha256sum <$work/big | cut -c1-64"
check_is "200 MB through cat, sum outside" "$sum" sh -c "hostctl exec pt-a -- cat <$work/big | sha256sum | cut -c1-64"
note "400 MB in $(($(now_ms) - begin)) ms"
head -c 4194306 "$work/big" >"$work/four"
four=$(sha256sum <"$work/four" | cut -c1-64)
ex pt-a -- sh -c 'cat >/tmp/four' <"$work/four"
check_is "one write of 4194306 bytes" "$four" sh -c "hostctl exec pt-a -- dd if=/tmp/four bs=4194306 count=1 2>/dev/null | sha256sum | cut -c1-64"
check_is "with a reader that sleeps first" "$four" sh -c "hostctl exec pt-a -- cat /tmp/four | (sleep 3; sha256sum) | cut -c1-64"
check "a reader that goes away ends the writer" timeout 10 sh -c 'hostctl exec pt-a -- yes | head -n 1 >/dev/null'
rm -f "$work/big" "$work/four"
ex pt-a -- rm -f /tmp/four
settle

# --- time
begin=$(now_ms)
check "a child in the background does not hold the call" within 20 hostctl exec pt-a -- sh -c 'sleep 300 &'
[ $(($(now_ms) - begin)) -lt $((2000 * slow)) ] || fail "background" "it took $(($(now_ms) - begin)) ms"
settle
begin=$(now_ms)
out=$(within 10 hostctl exec --timeout 2s pt-a -- sh -c 'printf partial; sleep 30')
status=$?
took=$(($(now_ms) - begin))
if [ "$out" = partial ] && [ $status = 124 ] && [ $took -ge 1950 ] && [ $took -le $((2000 + 900 * slow)) ]; then ok "a time limit of 2 s: partial output, 124, $took ms"; else fail "time limit" "output '$out', status $status, $took ms"; fi
check_is "its record" "true false" record_of 'printf partial' '"\(.timed_out) \(.oom)"'
within 10 hostctl exec --timeout 1s pt-a -- sh -c 'trap "" TERM INT HUP; (setsid sh -c "trap \"\" TERM HUP; sleep 7001 & sleep 7002" &) & sleep 7003' >/dev/null 2>&1
check "nothing of its group is left, double forks and deaf ones neither" wait_for 3 sh -c "! hostctl exec pt-a -- ps | grep -v grep | grep 'sleep 700'"
check "nor its control group" settle

# --- its client dies
timeout -s KILL 1 hostctl exec pt-a -- sh -c 'setsid sleep 7101 & sleep 7102' 2>/dev/null
check "kill -9 of hostctl ends the whole group" wait_for 3 sh -c "! hostctl exec pt-a -- ps | grep -v grep | grep 'sleep 710'"
check "and removes its control group" settle
timeout -k 1 15 hostctl exec pt-a -- sh -c 'trap "echo got; exit 5" TERM; while :; do sleep 0.1; done' >"$work/out2" 2>&1 &
sleep 0.5
kill -TERM $!
wait $!
status=$?
if [ $status = 5 ] && grep -q got "$work/out2"; then ok "SIGTERM of hostctl reaches the command"; else fail "signal" "status $status, $(cat "$work/out2")"; fi

# --- many at once
begin=$(now_ms)
for i in $(seq 100); do hostctl exec pt-a -- sh -c "echo $i; exit $((i % 50))" >"$work/many.$i" 2>&1; echo "status $?" >>"$work/many.$i" & done 2>/dev/null
wait $(jobs -p)
wrong=0
for i in $(seq 100); do [ "$(tr '\n' ' ' <"$work/many.$i")" = "$i status $((i % 50)) " ] || wrong=$((wrong + 1)); done
if [ $wrong = 0 ]; then ok "100 one after the other in $(($(now_ms) - begin)) ms"; else fail "100" "$wrong of 100 are wrong"; fi
hostctl set pt-a pids=2048 >/dev/null
rm -f "$work"/many.*
begin=$(now_ms)
for i in $(seq 100); do (hostctl exec pt-a -- sh -c "sleep 1; echo $i; exit $((i % 50))" >"$work/many.$i" 2>&1; echo "status $?" >>"$work/many.$i") & done
wait_for 20 sh -c "[ \$(hostctl command list -f csv | wc -l) -ge 50 ]" || note "fewer than 50 were seen at once"
for p in $(jobs -p); do wait "$p"; done
wrong=0
for i in $(seq 100); do [ "$(tr '\n' ' ' <"$work/many.$i")" = "$i status $((i % 50)) " ] || { wrong=$((wrong + 1)); cat "$work/many.$i"; }; done
if [ $wrong = 0 ]; then ok "100 at once in $(($(now_ms) - begin)) ms"; else fail "100 at once" "$wrong are wrong"; fi
settle

# --- what is inherited
hostctl exec pt-a -- sleep 2 &
wait_for 2 sh -c "hostctl command list pt-a -f csv -c pid | grep -q '[1-9]'"
p=$(hostctl command list pt-a -f csv -c pid | tr -d '\r' | tail -n 1)
check_is "descriptors are exactly 0, 1, 2" "0 1 2 " sh -c "ls /proc/$p/fd | tr '\n' ' '"
wait
check_is "and all of them pipes" "pipe pipe pipe " ex pt-a -- sh -c 'for f in 0 1 2; do l=$(readlink /proc/$$/fd/$f); printf "%s " "${l%%:*}"; done'
check_is "the environment is exactly this" "HOME=/root
LANG=C.UTF-8
LOGNAME=root
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
SHELL=/bin/sh
USER=root" sh -c "SECRET=x hostctl exec pt-a -- cat /proc/self/environ | tr '\\0' '\\n' | sort"
check_is "--env adds and replaces" "b=c other" ex -e A=b=c -e HOME=other pt-a -- sh -c 'echo "$A $HOME"'
check_is "no capability is inheritable" "0000000000000000" sh -c "hostctl exec pt-a -- sed -n 's/^CapInh:.//p' /proc/self/status"
check_is "none is ambient" "0000000000000000" sh -c "hostctl exec pt-a -- sed -n 's/^CapAmb:.//p' /proc/self/status"
check_is "an ordinary user has none" "0000000000000000" sh -c "hostctl exec -u agent pt-a -- sed -n 's/^CapEff:.//p' /proc/self/status"
check_is "seccomp filters it" 2 sh -c "hostctl exec pt-a -- sed -n 's/^Seccomp:.//p' /proc/self/status"
check_is "no signal is blocked or ignored" "0000000000000000 0000000000000000" sh -c "hostctl exec pt-a -- sed -n 's/^Sig\(Blk\|Ign\):.//p' /proc/self/status | tr '\n' ' ' | sed 's/ \$//'"
check_is "no controlling terminal" 0 sh -c "hostctl exec pt-a -- cat /proc/self/stat | cut -d' ' -f7"
check_is "its own session" yes ex pt-a -- sh -c '[ $(cut -d" " -f6 /proc/$$/stat) = $$ ] && echo yes'
check_is "umask" 0022 ex pt-a -- sh -c umask
check_is "its own control group" yes sh -c "hostctl exec pt-a -- grep -q '/commands/' /proc/self/cgroup && echo yes || (hostctl exec pt-a -- sleep 1 & sleep 0.5; find /sys/fs/cgroup -path '*/commands/*' -name cgroup.procs | grep -q . && echo yes; wait)"
# --- where and as whom
check_is "the working directory is the user's home" "/root /home/agent" sh -c 'echo $(hostctl exec pt-a -- pwd) $(hostctl exec -u agent pt-a -- pwd)'
check_is "--cwd" /var/tmp ex --cwd /var/tmp pt-a -- pwd
check_status "--cwd that is not there" 126 'working directory' ex --cwd /no/where pt-a -- true
for d in /proc/self/fd/9 /proc/self/fd/3 /proc/self/fd/5 /proc/self/fd/7 /proc/1/cwd/../../..; do
        hostctl exec --cwd "$d" pt-a -- sh -c 'cat /proc/self/mountinfo | head -n 1; ls /lost+found /boot 2>/dev/null; pwd -P' >"$work/out" 2>&1
        status=$?
        if [ $status = 126 ] || [ $status = 2 ] || [ $status = 125 ]; then ok "--cwd $d is refused"; elif grep -qE '^/$' "$work/out" && ! grep -qE 'vmlinuz|lost' "$work/out"; then ok "--cwd $d stays inside"; else fail "--cwd $d" "status $status: $(cat "$work/out")"; fi
done
check_is "--user by name" "1000:1000" ex -u agent pt-a -- sh -c 'echo $(id -u):$(id -g)'
check_is "with its groups" "1000 50" ex -u agent pt-a -- id -G
check_is "--user by number" 1000 ex -u 1000 pt-a -- id -u
check_is "--user by a number without a name" 4321 ex -u 4321 pt-a -- id -u
check_status "--user unknown" 126 'no user "nobodyhere"' ex -u nobodyhere pt-a -- true
for u in "" "a b" "root:x" "../x" "-1" "4294967295" "$(printf 'a%.0s' $(seq 100))"; do
        hostctl exec --user="$u" pt-a -- id -u >"$work/out" 2>&1
        status=$?
        case $status in 2 | 125 | 126) ok "--user '${u:0:12}' is refused" ;; *) fail "--user '${u:0:12}'" "status $status: $(cat "$work/out")" ;; esac
done
# What the guest's own files say is read with limits, inside.
ex pt-a -- sh -c 'cp /etc/passwd /etc/passwd.good; mv /etc/passwd /etc/passwd.old; ln -s /dev/zero /etc/passwd'
check_status "an endless /etc/passwd ends the call, not the helper" 126 . within 10 hostctl exec -u agent pt-a -- true
ex -u 0 pt-a -- sh -c 'rm /etc/passwd; mkfifo /etc/passwd' 2>/dev/null
check "a pipe for /etc/passwd does not hang" sh -c 'timeout 10 hostctl exec -u agent pt-a -- true; [ $? -ne 124 ]'
ex -u 0 pt-a -- sh -c 'rm -f /etc/passwd; cp /etc/passwd.good /etc/passwd' 2>/dev/null
check_is "and back" 1000 ex -u agent pt-a -- id -u

# --- limits that bite
bomb() { # a real one: it goes on when fork fails
        printf '#include <unistd.h>\nint main(void) { for (;;) if (fork() < 0) usleep(20000); }\n' >"$work/bomb.c"
        gcc -static -O1 -o "$work/bomb" "$work/bomb.c" && hostctl file push --mode 755 "$work/bomb" pt-a:/tmp/bomb
}
fullest() { # SECONDS: the most processes seen
        local end=$(($(now_ms) + $1 * 1000)) most=0 n
        while [ "$(now_ms)" -lt $end ]; do n=$(field pt-a pids_used); [ "${n:-0}" -gt $most ] && most=$n; sleep 0.1; done
        echo $most
}
hostctl set pt-a pids=128 cpu=1 >/dev/null
if bomb >"$work/out" 2>&1; then
        hostctl exec --timeout 80s pt-a -- /tmp/bomb >/dev/null 2>&1 &
        client=$!
        used=$(fullest $((slow > 1 ? 20 : 2)))
        if [ "$used" -le 128 ] && [ "$used" -ge 16 ]; then ok "a fork bomb in a command stays within the limit ($used of 128)"; else fail "command bomb" "$used of 128"; fi
        check "exec works beside a bomb in a command" within 10 hostctl exec pt-a -- true
        check "file list too" within 10 hostctl file list pt-a:/etc
        kill -9 $client
        wait $client 2>/dev/null
        check "kill -9 of its client ends the bomb" settle
        # In the payload: the bomb goes where init is.
        init=$(instance_pid pt-a)
        procs=
        for h in /sys/fs/cgroup/pids /sys/fs/cgroup; do
                group=$h$(sed -n 's/^[0-9]*:pids:\(.*\)/\1/p; s/^0::\(.*payload.*\)/\1/p' "/proc/$init/cgroup" | head -n 1)
                [ -e "$group/cgroup.procs" ] && [ "$group" != "$h" ] && procs=$group/cgroup.procs && break
        done
        (echo $BASHPID >"$procs"; exec nsenter -t "$init" -m -p -U -n -u -i -S 0 -G 0 -- /tmp/bomb) >/dev/null 2>&1 &
        used=$(fullest $((slow > 1 ? 20 : 2)))
        if [ "$used" -le 128 ] && [ "$used" -ge 80 ]; then ok "a fork bomb in the payload fills its share ($used of 128)"; else fail "payload bomb" "$used of 128"; fi
        check "exec works in the bombed instance" within 10 hostctl exec pt-a -- true
        check "10 times" timeout 30 sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do hostctl exec pt-a -- true || exit 1; done'
else
        skip "fork bombs" "no static program can be made: $(tail -n 1 "$work/out")"
fi
check "stop --force ends it" within 15 hostctl stop --force pt-a
check "no leaks after the bomb" no_leaks
hostctl set pt-a pids=256 memory=64MiB >/dev/null
hostctl start pt-a >/dev/null
init=$(instance_pid pt-a)
check_is "a memory hog is killed: 137" 137 status_of within 30 hostctl exec pt-a -- sh -c ': hog; x=a; while :; do x=$x$x$x$x; done'
check_is "its record says out of memory" true record_of ': hog' .oom
peak=$(record_of ': hog' .memory_peak)
if [ "$peak" -gt $((20 << 20)) ] && [ "$peak" -le $((70 << 20)) ]; then ok "and the peak, $peak bytes"; else fail "peak" "$peak"; fi
check_is "init is alive, the same" "$init" instance_pid pt-a
check "and the instance answers" ex pt-a -- true
check "an event names the victim" sh -c "hostctl events pt-a -f json | grep -i oom"
ex pt-a -- dd if=/dev/zero of=/home/agent/cache bs=1M count=80 >/dev/null 2>&1
check_is "page cache is no reason to kill" 0 status_of ex pt-a -- cat /home/agent/cache
check_is "a command that uses the page cache only is not oom" false record_of 'cat /home/agent/cache' .oom

# --- paused
hostctl pause pt-a >/dev/null
begin=$(now_ms)
check_status "exec in a paused instance" 125 paused within 5 hostctl exec pt-a -- true
check_status "file pull too" 7 paused within 5 hostctl file pull pt-a:/etc/passwd -
[ $(($(now_ms) - begin)) -lt $((1000 * slow)) ] && ok "at once" || fail "paused" "it took $(($(now_ms) - begin)) ms"
hostctl resume pt-a >/dev/null

# --- terminals
if [ -e "$pty" ]; then
        python3 "$pty" pt-a >"$work/pty" 2>&1
        while read -r word rest; do
                case $word in ok) ok "$rest" ;; FAIL) fail "${rest%%: *}" "${rest#*: }" ;; *) note "pty: $word $rest" ;; esac
        done <"$work/pty"
fi
settle

# --- hostd goes, commands stay
step=0.1 two=2.5
[ "$slow" -gt 1 ] && step=0.6 two=15 # hostd must die before they end
hostctl exec pt-a -- sh -c "i=0; while [ \$i -lt 30 ]; do echo \$i; i=\$((i+1)); sleep $step; done; echo late; exit 42" >"$work/live" 2>"$work/live.err" &
client=$!
within 50 hostctl exec --timeout 60s pt-a -- sh -c "sleep $two; exit 6" >/dev/null 2>&1 &
second=$!
sleep 0.7
check "hostd is killed and starts again beside running commands" hostd_crash
wait $client
status=$?
check_is "the command ended as it should" 42 echo $status
check_is "with all of its output" "30 late" sh -c "echo \$(grep -c '^[0-9]' $work/live) \$(tail -n 1 $work/live)"
wait $second
check_is "the other one too" 6 echo $?
check_is "its record is in the audit log" 42 sh -c "hostctl audit tail -n 50 -f json | jq -c '[.records[] | select(.method == \"io.hostd.Command.Attach\" or .method == \"io.hostd.Command.Exec\") | .detail.record.exit] | map(select(. == 42)) | last'"
check_is "under the id of its start, by the call that came back for it" "Command.Exec started, Command.Attach ok" pair_of 'echo late; exit 42'
hostctl exec pt-a -- sleep 7301 >/dev/null 2>&1 &
client=$!
sleep 0.5
hostd_kill
kill -9 $client
wait $client 2>/dev/null
hostd_start
check "a command whose client died while hostd was away is ended" wait_for 45 sh -c "! hostctl exec pt-a -- ps | grep -v grep | grep 'sleep 7301'"
check "nothing of it is left" settle
check_is "and hostd itself records its end under its id" "Command.Exec started, Command.Exec ended" pair_of 'sleep 7301'

# --- and again and again
count=0 wrong=0
deadline=$(($(now_ms) + ${HOSTD_ECHO_SECONDS:-20} * 1000))
while [ $count -lt 2000 ] && [ "$(now_ms)" -lt $deadline ]; do
        for i in 1 2 3 4 5 6 7 8 9 10; do
                [ "$(hostctl exec pt-a -- echo ok)" = ok ] || wrong=$((wrong + 1))
                count=$((count + 1))
        done
done
if [ $wrong = 0 ]; then ok "$count times echo ok"; else fail "echo ok" "$wrong of $count are wrong"; fi

# --- the real thing
if has_agent; then
        launch_from agent pt-s memory=1GiB disk=1GiB pids=512 cpu=2 >/dev/null
        check_is "systemd: exec as agent" agent ex -u agent pt-s -- id -un
        check "systemd: the user's manager comes up" wait_for 60 hostctl exec -u agent pt-s -- test -S /run/user/1000/bus
        check_is "systemd: --login has the session's environment" /run/user/1000 ex --login -u agent pt-s -- sh -c 'echo $XDG_RUNTIME_DIR'
        check_is "systemd: exit code through --login" 9 status_of ex --login -u agent pt-s -- sh -c 'exit 9'
        check "systemd: a service can be run" ex pt-s -- systemd-run --wait --quiet true
        check_is "systemd: bwrap as agent" ok ex -u agent pt-s -- bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev echo ok
        check "systemd: 10 bwraps at once" ex -u agent pt-s -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do bwrap --unshare-all --ro-bind / / --proc /proc true & p="$p $!"; done; for i in $p; do wait $i || exit 1; done'
        check "systemd: a nested memory hog meets the limit, the instance lives" sh -c 'timeout 30 hostctl exec -u agent pt-s -- bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev python3 -c "x=[]
while True: x.append(bytearray(32<<20))"; [ $? -ne 0 ] && hostctl exec pt-s -- systemctl is-active dbus'
        check_not "systemd: a session survives nothing after kill -9 of its client" sh -c 'timeout -s KILL 2 hostctl exec --login -u agent pt-s -- sleep 7401; sleep 4; hostctl exec pt-s -- pgrep -f "sleep 7401"'
        hostctl delete --force pt-s >/dev/null
else
        skip "exec with systemd" "there is no template agent"
fi
hostctl delete --force pt-a >/dev/null
check "no leaks at the end" no_leaks
finish
