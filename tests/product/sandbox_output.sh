#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Commands in the background and files, of sandboxes: as in instances (output.sh, fileverbs.sh), as one user, and with an end that takes everything along.
set -u
. "$(dirname "$0")/../lib/product.sh"
. "$lib/sandbox.sh"
product_begin
command -v bwrap >/dev/null || { skip "output and files of sandboxes" "bubblewrap is not installed here"; finish; }
check "a template with bwrap" box_import
launch_from pt-box pt-a memory=512MiB pids=1024 sandboxes=8 disk=300MiB cpu=2 >/dev/null || { fail launch pt-a; finish; }
cd "$work" || exit 1

f() { within 60 hostctl file "$@"; }
start() { hostctl command start "$@"; }
how() { hostctl command kept -f csv -c id,state,exit | tr -d '\r' | sed -n "s/^$1,//p"; }
ended() { [[ $(how "$1") = ended* ]]; }
has_ended() { [ "$(why "$1" state)" = ended ]; }
kept() { find "$HOSTD_STATE/output/pt-a" -name "$1.*" 2>/dev/null | wc -l; } # SANDBOX: files of it
rows() { f "$@" -f json | jq -r '.files[] | [.path, .type, .permissions, .owner, (.size | tostring), .target] | join("|")'; }

# --- output: begin and end
sb=$(make)
id=$(hostctl sandbox exec --detach "$sb" -- sh -c 'echo out; echo err >&2; exit 3')
check_is "sandbox exec --detach: its end can be waited for" 3 sh -c "hostctl command wait $id >/dev/null; echo \$?"
check_is "sandbox logs: what it wrote" out sh -c "hostctl sandbox logs $sb $id 2>/dev/null"
check_is "and its errors" err sh -c "hostctl logs $sb $id 2>&1 >/dev/null"
check_is "from an offset" "ut err" sh -c "hostctl logs $sb $id --offset 1 2>&1 | xargs"
check_is "command start takes it for a place" "1000 /workspace x" sh -c "hostctl logs -f $sb \$(hostctl command start -e V=x $sb -- sh -c 'echo \$(id -u) \$(pwd) \$V')"
check_is "so does exec" "1000 /workspace" ex "$sb" -- sh -c 'echo $(id -u) $(pwd)'
check_is "the list has it with its place" "pt-a/$sb,ended,3" sh -c "hostctl command kept $sb -f csv -c id,name,state,exit | tr -d '\r' | sed -n 's/^$id,//p'"
check_is "and with its instance's" 1 sh -c "hostctl command kept pt-a -f csv -c id | grep -c $id"
check_status "of its instance it is no command" 3 'no output' hostctl logs pt-a "$id"
check_status "nor of another sandbox" 3 'no output' sh -c "other=\$(hostctl sandbox create pt-a) && hostctl logs \$other $id; r=\$?; hostctl sandbox delete \$other; exit \$r"
check_status "nobody else's command" 5 'without --root|not made with --root' start -u 0 "$sb" -- id
check_status "nor a login" 2 'no logins' sh -c "hostctl shell $sb; r=\$?; [ \$r = 125 ] && exit 2; exit \$r"
check_status "what is not there ends at once" 127 'not found: nonsuch' hostctl command wait "$(start "$sb" -- nonsuch)"
check_status "its time runs out" 124 "its time was over" hostctl command wait "$(start -t 1s "$sb" -- sleep 30)"
id=$(start "$sb" -- sh -c 'echo here; sleep 1000')
wait_for 5 sh -c "hostctl logs $sb $id | grep -q here"
check_is "it is listed" "pt-a/$sb" sh -c "hostctl command list $sb -f json | jq -r '.commands[] | select(.id == \"$id\").name'"
check "it can be ended" hostctl command signal "$id" 15
check_is "and tells by what" 143 sh -c "hostctl command wait $id >/dev/null; echo \$?"

# --- how much
in_box "$sb" -- sh -c 'seq -w 0 2097151 >whole' # of 8 bytes each
seq -w 0 2097151 >whole
id=$(start "$sb" -- cat /workspace/whole)
check "16 MiB are written although nobody reads" within 60 hostctl command wait "$id"
hostctl logs "$sb" "$id" >log 2>missing
dropped=$(sed -n 's/.* \([0-9]*\) bytes from byte [0-9]* on were dropped$/\1/p' missing) from=$(sed -n 's/.* bytes from byte \([0-9]*\) on were dropped$/\1/p' missing)
check_is "what is kept and what was dropped are all" 16777216 expr "$(stat -c %s log)" + "${dropped:-0}"
check "one MiB is kept of it" [ "$(stat -c %s log)" -gt 950000 -a "$(stat -c %s log)" -le 1048576 ]
check "the begin is what was written" cmp -n "${from:-1}" log whole
check "and the end" cmp -i "${from:-0}:$((${from:-0} + ${dropped:-0}))" log whole
for i in 1 2 3; do hostctl command wait "$(start -k 8MiB "$sb" -- cat /workspace/whole)" >/dev/null; done
size=$(cat "$HOSTD_STATE/output/pt-a/$sb".* | wc -c)
check "16 MiB are the most of a sandbox, and are used" [ "$size" -le 16777216 -a "$size" -gt 8388608 ]
own=$(start -k 128KiB pt-a -- echo own)
hostctl command wait "$own" >/dev/null
check_is "its instance's own output is another's" own hostctl logs pt-a "$own"

# --- hostd and hostd-io die
id=$(start "$sb" -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.5; done')
hostctl logs --follow "$sb" "$id" >followed &
follower=$!
sleep 1
check "hostd is killed and comes back" hostd_crash
check_is "the command in the sandbox goes on, and its end can be waited for" 0 sh -c "for i in 1 2 3 4 5 6 7 8 9 10; do timeout 60 hostctl command wait $id >/dev/null 2>&1; s=\$?; [ \$s = 125 ] || break; sleep 0.5; done; echo \$s"
wait $follower
check_is "who followed has all of it" "$(seq 10)" cat followed
id=$(start "$sb" -- sh -c 'echo before; sleep 1; echo after || exit 9; sleep 1000')
wait_for 5 sh -c "hostctl logs $sb $id | grep -q before"
for pid in $(pgrep -u hostd-io -f "hostd-io $HOSTD_RUN/io/$(slot pt-a)\$"); do kill -9 "$pid"; done
check_status "hostd-io is killed: what it had written is there, and that it died" 9 "nothing was kept: hostd-io died" hostctl logs "$sb" "$id"
check_is "the next command has another one" again sh -c "hostctl logs -f $sb \$(hostctl sandbox exec -d $sb -- echo again)"

# --- a flood
flood=$(start "$sb" -- sh -c 'exec cat /dev/zero')
sleep 0.5
begin=$(now_ms)
check_is "while a sandbox floods its output, its instance answers" yes ex pt-a -- echo yes
check_is "and it itself" yes in_box "$sb" -- echo yes
check "and hostd" hostd_answers
took=$(($(now_ms) - begin))
check "all of it soon: $took ms" [ $took -lt $((3000 * slow)) ]
check "the file is no larger than it may be" [ "$(stat -c %s "$HOSTD_STATE/output/pt-a/$sb.$flood")" -le 1048576 ]

# --- the sandbox ends in the middle
(hostctl logs --follow "$sb" "$flood" >/dev/null 2>gone; echo $? >>gone) &
follower=$!
sleep 0.3
t=$(now_ms)
check "it is deleted in its flood" within 20 hostctl sandbox delete "$sb"
wait $follower
check "who followed ends soon: $(($(now_ms) - t)) ms" [ $(($(now_ms) - t)) -lt $((3000 * slow)) ]
check_status "with the reason" 0 'with its sandbox|the sandbox ended' cat gone
check_is "all that was kept of it is gone" 0 kept "$sb"
check_is "and its lines" "" sh -c "hostctl command kept -f csv -c name | grep $sb"
check_status "so nobody finds it" 3 'no instance or sandbox' hostctl logs "$sb" "$flood"
check_is "its instance's own stays" own hostctl logs pt-a "$own"
sb=$(make -d 2s --grace 3s)
id=$(start "$sb" -- sh -c 'echo until the end; sleep 1000')
check "a deadline" wait_for 5 has_ended "$sb"
check_status "ends the command" 125 'the sandbox ended' hostctl command wait "$id"
check_is "what it wrote is there for the grace" "until the end" hostctl logs "$sb" "$id"
check_status "and who follows it is told why it ended" 0 'the sandbox ended' hostctl logs -f "$sb" "$id"
check_status "a new one is refused" 9 'has ended' start "$sb" -- true
gone() { ! hostctl sandbox show "$1" >/dev/null 2>&1; }
check "and goes with it" wait_for 8 gone "$sb"
check_is "with its file" 0 kept "$sb"
sb=$(make -m 32MiB)
id=$(start "$sb" -- sh -c 'tail /dev/zero')
check_status "out of memory, by the host's word" 137 'out of memory' hostctl command wait "$id"
check_is "the cause of its sandbox as well" oom why "$sb" cause
hostctl sandbox delete "$sb"

# --- files
sb=$(make)
root=$(make -R)
head -c 3000000 /dev/urandom >up
check "push" f push up "$sb:/workspace/up"
check_is "it is the agent's" "1000 3000000" in_box "$sb" -- stat -c '%u %s' up
check "and comes back" sh -c "hostctl sandbox file pull $sb:/workspace/up - | cmp - up"
check_is "a part" "$(tail -c +1001 up | head -c 10 | od -An -tx1)" sh -c "hostctl file pull --offset 1000 --length 10 $sb:/workspace/up - | od -An -tx1"
check_is "mkdir, push with parents, list" "a a/b a/b/c up" sh -c "echo x | hostctl file push -p - $sb:/workspace/a/b/c && hostctl file list --depth 3 $sb:/workspace -f json | jq -r '.files[].path' | xargs"
check_is "stat" "/workspace/a/b/c|file|0644|agent|2|" rows stat "$sb:/workspace/a/b/c"
check_is "chmod, mv, replace" "640 yz" sh -c "hostctl file chmod 640 $sb:/workspace/a/b/c && hostctl file mv $sb:/workspace/a/b/c $sb:/workspace/d && hostctl file replace --old x --new yz $sb:/workspace/d >/dev/null && hostctl sandbox exec $sb -- sh -c 'stat -c %a d; cat d' | xargs"
check_is "search" /workspace/d sh -c "hostctl file search -p d $sb:/workspace -f json | jq -r '.files[].path'"
check "rm" f rm -r "$sb:/workspace/a"
check_status "what is not its user's" 5 'ermitted|ermission|ead-only' sh -c "echo x | timeout 20 hostctl file push - $sb:/root/x"
check_status "nor may it be given away" 5 'ermitted' f chown root "$sb:/workspace/d"
check_status "nor read as another" 5 'without --root|not made with --root' f pull -u 0 "$sb:/etc/passwd" -
check_status "its root is read-only" 1 'ead-only' sh -c "echo x | timeout 20 hostctl file push - $root:/etc/x"
check_is "root of its own may give away" "1000" sh -c "echo x | hostctl file push -o agent - $root:/tmp/x && hostctl sandbox exec $root -- stat -c %u /tmp/x"
mkdir -p t/d && echo text >t/d/file && ln -s file t/d/link
check_is "push of a tar, and back" "text file" sh -c "tar -C t -cf - . | hostctl file push --tar - $sb:/workspace/tar && hostctl file pull --tar $sb:/workspace/tar - | (mkdir back && tar -C back -xf -) && (cat back/d/file; readlink back/d/link) | xargs"
check_status "a place in two is none" 2 'not in one instance or sandbox' f mv "$sb:/workspace/d" "$root:/tmp/d"
check_is "records have place and instance" "$sb pt-a" sh -c "hostctl audit query --target $sb --method io.hostd.File.Push -f json | jq -r '[.records[0].target, .records[0].detail.instance] | join(\" \")'"

# --- what is hostile about them
in_box "$sb" -- sh -c 'mkfifo fifo; ln -s /dev/zero dev; ln -s / loop'
for path in /workspace/fifo /dev/zero /workspace/dev; do
        check_status "pull of $path" 2 'a pipe, a socket or a device' within 20 hostctl file pull "$sb:$path" -
done
check_status "push onto a pipe" 2 'a pipe, a socket or a device' sh -c "echo x | timeout 20 hostctl file push - $sb:/workspace/fifo"
check_status "onto a link" 2 'a link' sh -c "echo x | timeout 20 hostctl file push - $sb:/workspace/dev"
check_is "no file system that never answers can be there: FUSE is not" "no no" in_box "$root" -- sh -c 'test -e /dev/fuse || printf "no "; mount -t fuse none /mnt 2>/dev/null || echo no'
in_box "$sb" -- sh -c 'truncate -s 300000000 /tmp/large'
hostctl file pull --tar "$sb:/tmp/large" large.tar >shrunk 2>&1 &
p=$!
sleep 0.2
in_box "$sb" -- truncate -s 5000 /tmp/large
if wait $p; then skip "a file that shrinks while it is read" "it was read before"; else check "a file that shrinks while it is read is told" grep -q 'changed while' shrunk; fi
rm -f large.tar
timeout 2 hostctl file push - "$sb:/workspace/up" < <(head -c 200000 /dev/urandom; sleep 9) >/dev/null 2>&1
check "a push that is cut leaves the old file" sh -c "hostctl file pull $sb:/workspace/up - | cmp - up"
check_is "and nothing else" "" in_box "$sb" -- sh -c 'ls -A | grep hostd'
hostctl sandbox exec "$sb" -- sh -c 'while :; do for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = hostd-guest ] && kill -9 ${p#/proc/}; done; done' >/dev/null 2>&1 &
killer=$!
sleep 0.5
check_not "what the sandbox kills fails" sh -c "(head -c 100000 /dev/zero; sleep 3) | timeout 20 hostctl file push - $sb:/workspace/killed"
kill $killer 2>/dev/null
wait $killer 2>/dev/null
check_not "and leaves no file" f stat "$sb:/workspace/killed"
check_is "under no name" "" in_box "$sb" -- sh -c 'ls -A | grep hostd'
check "hostd answers" hostd_answers

# --- paused, ended
check "pause" hostctl sandbox pause "$sb"
check_status "paused: no push" 7 'paused: resume it first' sh -c "echo x | timeout 20 hostctl file push - $sb:/workspace/up"
check_status "nor pull" 7 'paused' f pull "$sb:/workspace/up" -
check_status "nor a command" 7 'paused' start "$sb" -- true
check "resume" hostctl sandbox resume "$sb"
check "and nothing changed" sh -c "hostctl file pull $sb:/workspace/up - | cmp - up"

# --- deleted in the middle of each
in_box "$sb" -- sh -c 'truncate -s 2000000000 /tmp/large'
hostctl file push - "$sb:/workspace/cut" < <(sleep 60) 2>push.err &
hostctl file pull "$sb:/tmp/large" - 2>pull.err | while [ "$(head -c 65536 | wc -c)" -gt 0 ]; do sleep 0.05; done &
hostctl file push --tar - "$sb:/workspace/cuttar" < <(sleep 60) 2>tar.err &
hostctl file watch "$sb:/workspace" >watch.out 2>watch.err &
watch=$!
wait_for 10 sh -c "hostctl sandbox exec $sb -- touch ready && sleep .2 && grep -q ready watch.out"
hostctl sandbox exec "$sb" -- sh -c 'cat >/dev/null; sleep 1000' </dev/null >/dev/null 2>exec.err &
sleep 0.5
t=$(now_ms)
check "delete" within 20 hostctl sandbox delete "$sb"
wait $watch
check "a watch ends at once: $(($(now_ms) - t)) ms" [ $(($(now_ms) - t)) -lt $((3000 * slow)) ]
wait_for 5 test -s push.err -a -s pull.err -a -s tar.err
for what in push tar pull watch exec; do check_status "$what says why" 0 'the sandbox ended' cat $what.err; done
check "no group is left" sh -c '! find /sys/fs/cgroup -type d -path "*/sandboxes/'"$sb"'*" | grep .'
check_status "a file of what is deleted" 3 'no instance or sandbox' f pull "$sb:/workspace/up" -

# --- hostd is killed in the middle
(for i in 1 2 3 4 5 6; do head -c 1000000 up; sleep 0.5; done) | hostctl file push - "$root:/tmp/slow" >push.err 2>&1 &
p=$!
hostctl file watch "$root:/tmp" >watch.out 2>watch.err &
sleep 1
check "kill -9 of hostd, and a new one" hostd_crash
wait $p
check "the push ends, one way or the other, and the file is whole or not there" sh -c "s=\$(hostctl file stat $root:/tmp/slow -f json 2>/dev/null | jq '.files[0].size'); [ -z \"\$s\" -o \"\$s\" = 6000000 ]"
wait_for 40 sh -c "! hostctl sandbox exec $root -- ls -A /tmp | grep hostd"
check_is "nothing of it is left" "" in_box "$root" -- sh -c 'ls -A /tmp | grep hostd'
check "files go on" sh -c "hostctl file list $root:/tmp >/dev/null"
hostctl sandbox delete "$root"

hostctl delete --force pt-a >/dev/null
check_not "an instance takes all of it along" [ -e "$HOSTD_STATE/output/pt-a" ]
check_is "and the lines" "" sh -c "hostctl command kept -f csv -c name | grep pt-a"
within 20 hostctl template delete pt-box >/dev/null 2>&1
check "no leaks" no_leaks
finish
