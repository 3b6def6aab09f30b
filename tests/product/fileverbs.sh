#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What can be asked about files in an instance and done to them: stat, list, search, parts, changes, watch, tar; and what is hostile about names, sizes and
# file systems. Content, trees and races of push and pull are in files.sh.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/product.sh"
product_begin
launch pt-v disk=3GiB memory=256MiB >/dev/null || { fail launch pt-v; finish; }
cd "$work" || exit 1
f() { within 60 hostctl file "$@"; }
rows() { f "$@" -f json | jq -r '.files[] | [.path, .type, .permissions, .owner, (.size | tostring), .target] | join("|")'; } # of a list

# --- what they are
ex pt-v -- sh -c 'chmod 700 /root; mkdir -p /tmp/l/sub/deep; cd /tmp/l; printf 12345 >one; chmod 640 one; ln -s /etc/shadow link; mkfifo pipe; touch sub/two.c sub/deep/three.c; chown 1000:1000 sub/two.c'
check_is "stat of a file" "/tmp/l/one|file|0640|root|5|" rows stat pt-v:/tmp/l/one
check_is "of a link itself" "/tmp/l/link|symlink|0777|root|11|/etc/shadow" rows stat pt-v:/tmp/l/link
check_is "of a pipe, which is not opened" "other" sh -c 'timeout 10 hostctl file stat pt-v:/tmp/l/pipe -f json | jq -r ".files[0].type"'
check_is "of several" "/tmp/l/one /tmp/l/sub" sh -c 'hostctl file stat pt-v:/tmp/l/one pt-v:/tmp/l/sub -f json | jq -r ".files[].path" | xargs'
check_status "one that is not there" 3 'o such' f stat pt-v:/tmp/l/one pt-v:/tmp/l/none
check_is "and the others are told" /tmp/l/one sh -c 'hostctl file stat pt-v:/tmp/l/one pt-v:/tmp/l/none -f json 2>/dev/null | jq -r ".files[].path"'
check_status "as the agent, below what it may not enter" 5 'ermission' f stat -u agent pt-v:/root/x
check_is "list of one level" "link one pipe sub" sh -c 'hostctl file list pt-v:/tmp/l -f json | jq -r ".files[].path" | xargs'
check_is "list with depth" "link one pipe sub sub/deep sub/two.c" sh -c 'hostctl file list --depth 2 pt-v:/tmp/l -f json | jq -r ".files[].path" | xargs'
check_is "search" "/tmp/l/sub/deep/three.c /tmp/l/sub/two.c" sh -c 'hostctl file search --pattern "*.c" pt-v:/tmp/l -f json | jq -r ".files[].path" | xargs'
check_is "a search in a file" /tmp/l/one sh -c 'hostctl file search pt-v:/tmp/l/one -f json | jq -r ".files[].path"'
check_status "a search that is cut says so" 0 'more than these' f search --max 1 pt-v:/tmp/l
check_status "a depth of nothing is refused" 2 'depth' f list --depth 0 pt-v:/tmp/l

# --- parts
check_is "a part" 234 f pull --offset 1 --length 3 pt-v:/tmp/l/one -
check_is "to the end" 45 f pull --offset 3 pt-v:/tmp/l/one -
check_is "behind the end there is nothing" "" f pull --offset 1GiB pt-v:/tmp/l/one -
check_not "a tree has no parts" f pull -r --offset 1 pt-v:/tmp/l "$work/never"

# --- names
ex pt-v -- sh -c 'mkdir /tmp/n; cd /tmp/n; touch "$(printf "new\nline")" "$(printf "\033[31mred\a")" "$(printf "no\377utf8")" "a -> b" -- "-rf"'
check_is "names with newlines, escapes and bytes that are no text are one row each" 5 sh -c 'hostctl file list pt-v:/tmp/n | tail -n +2 | wc -l'
for verb in list search; do
        check_not "and none steers the terminal: $verb" sh -c 'hostctl file '$verb' pt-v:/tmp/n | LC_ALL=C grep -q "$(printf "[\033\a\377]")"'
done
check_is "JSON holds them whole where they are text" "new
line" sh -c 'hostctl file list pt-v:/tmp/n -f json | jq -r ".files[].path | select(startswith(\"new\"))"'

# --- many
limit=300 ex pt-v -- sh -c 'mkdir /tmp/many; cd /tmp/many; seq -w 1 100000 | xargs touch'
began=$(now_ms)
check_is "a directory of 100 000" 100000 sh -c 'hostctl file list pt-v:/tmp/many -f csv -c path | tail -n +2 | wc -l'
note "list of 100 000: $(($(now_ms) - began)) ms"
check_is "a search in it" /tmp/many/077777 sh -c 'hostctl file search -p "07777[7]" pt-v:/tmp/many -f json | jq -r ".files[].path"'

# --- changes
g() { ex pt-v -- sh -c "$1"; }
check_is "mkdir with parents, as whom it is said" "1000 755 1000 700" sh -c 'hostctl file mkdir -u agent -p -m 700 pt-v:/home/agent/m/n && hostctl exec pt-v -- stat -c "%u %a" /home/agent/m /home/agent/m/n | xargs'
check_status "mkdir of what is there" 4 'xists' f mkdir pt-v:/home/agent/m
check_is "push makes parents" "x 1000" sh -c 'printf x | hostctl file push -u agent -p - pt-v:/home/agent/p/q/r && hostctl exec pt-v -- sh -c "cat /home/agent/p/q/r; stat -c \" %u\" /home/agent/p/q"'
check_is "and gives it away" "1000:1000" sh -c 'printf x | hostctl file push -o agent -g 1000 - pt-v:/tmp/given && hostctl exec pt-v -- stat -c %u:%g /tmp/given'
check_status "to nobody it does not" 3 'no user or group' sh -c 'printf x | hostctl file push -o nosuch - pt-v:/tmp/given2'
check_is "chmod" "4711" sh -c 'hostctl file chmod 4711 pt-v:/tmp/given && hostctl exec pt-v -- stat -c %a /tmp/given'
check_is "chown of a tree" "" sh -c 'hostctl file chown -r agent:agent pt-v:/tmp/l && hostctl exec pt-v -- find /tmp/l ! -user agent'
check_status "what the agent may not give away" 5 'permitted|ermission' f chown -u agent root pt-v:/tmp/given
check_is "mv" "moved" sh -c 'hostctl exec pt-v -- sh -c "echo moved >/tmp/l/from" && hostctl file mv -p pt-v:/tmp/l/from pt-v:/tmp/l/new/to && hostctl exec pt-v -- cat /tmp/l/new/to'
check_status "mv onto something blames that" 4 '/tmp/l/one in pt-v: .*xists' f mv pt-v:/tmp/l/new/to pt-v:/tmp/l/one
check_status "mv to where nothing is as well" 3 '/tmp/l/no/one in pt-v: No such' f mv pt-v:/tmp/l/new/to pt-v:/tmp/l/no/one
check_status "mv of nothing does not" 3 '/tmp/l/none in pt-v: No such' f mv pt-v:/tmp/l/none pt-v:/tmp/l/no/one
check_status "mv to the data volume" 2 '/home/agent/one in pt-v: another file system' f mv pt-v:/tmp/l/one pt-v:/home/agent/one
g 'printf "a.b a.b axb" >/tmp/l/text; chmod 640 /tmp/l/text'
check_is "replace is to the letter, and counts" 2 sh -c 'hostctl file replace --old a.b --new "c
d" pt-v:/tmp/l/text -f json | jq ".files[0].replaced"'
check_is "and keeps the mode" "640 c
d c
d axb" g 'printf "%s " $(stat -c %a /tmp/l/text); cat /tmp/l/text'
check_is "nothing to replace is no error" 0 sh -c 'hostctl file replace --old nothing --new x pt-v:/tmp/l/text -f json | jq ".files[0].replaced"'
check_status "an empty text is refused" 2 'empty' f replace --old '' --new x pt-v:/tmp/l/text
g 'mkdir /tmp/half; head -c 20000000 /dev/zero | tr "\0" a >/tmp/half/file'
verb_runs() { [ "$(hostctl command list pt-v -f csv -c command | tr -d '\r' | grep -c "^/$1")" = 1 ]; }
hostctl file replace --old a --new bb pt-v:/tmp/half/file >/dev/null 2>&1 &
p=$!
wait_for 5 verb_runs tmp/half
sleep 1
check "a replacement takes its time" verb_runs tmp/half
kill $p
check "broken off, it ends" wait_for 8 no_command_groups
check_is "leaves nothing, and the file as it was" "file 20000000 aa" g 'echo $(ls -A /tmp/half) $(stat -c %s /tmp/half/file) $(head -c 2 /tmp/half/file)'
for where in /tmp/half /home/agent; do # the root, and the data volume
        g "echo old >$where/cut"
        (head -c 5000000 /dev/zero; sleep 5) | hostctl file push - pt-v:$where/cut >/dev/null 2>&1 &
        wait_for 5 verb_runs "${where#/}/cut"
        sleep 0.5
        check "a push is killed" hostctl command signal "$(hostctl command list pt-v -f json | jq -r '.commands[0].id')" 9
        wait_for 5 no_command_groups
        check_is "and leaves nothing, and the old file: $where" old g "ls -A $where | grep hostd; cat $where/cut"
done
g 'rm -r /tmp/half /home/agent/cut'
calls() { hostctl audit tail -n 200 -f json | jq -c '.. | objects | select(.method? == "io.hostd.File.Replace")'; }
check_is "audit has the calls without the texts" "yes no" sh -c "$(declare -f calls); calls | grep -q /tmp/l/text && printf 'yes '; calls | grep -qF a.b || echo no"

# --- what is no file
g 'mkfifo /tmp/l/fifo'
for verb in "pull pt-v:%s -" "pull --offset 1 pt-v:%s -" "replace --old a --new b pt-v:%s"; do
        for path in /tmp/l/fifo /dev/zero; do
                check_status "${verb/\%s/$path}" 2 'a pipe, a socket or a device' f ${verb/\%s/$path}
        done
done
check_status "push onto a device" 2 'a pipe, a socket or a device' sh -c 'echo x | timeout 10 hostctl file push - pt-v:/dev/zero'
check_status "chmod of a link" 2 'a link' f chmod 777 pt-v:/tmp/l/link

# --- a disk that is full in the middle
g 'mkdir /tmp/small && mount -t tmpfs -o size=1m none /tmp/small && echo old >/tmp/small/f && yes x | head -c 700000 >/tmp/small/g'
check_status "a push that does not fit" 6 'what was there before is unchanged' sh -c 'head -c 3000000 /dev/zero | hostctl file push - pt-v:/tmp/small/f'
check_status "a replacement that does not fit" 6 'what was there before is unchanged' f replace --old x --new yyyy pt-v:/tmp/small/g
check_is "and so it is" "f g old 700000" sh -c 'hostctl exec pt-v -- sh -c "ls -A /tmp/small; cat /tmp/small/f; wc -c </tmp/small/g" | xargs'

# --- a racer that puts links in the way of root
g 'echo s >/root/target; chmod 600 /root/target; mkdir -p /tmp/r/d; cat >/tmp/racer; chmod 755 /tmp/racer' <<'E'
#!/bin/sh
cd /tmp/r
while :; do rm -rf d; ln -s /root d; rm -f d; mkdir d; ln -s /root/target d/target; rm -f d/target; echo x >d/target; done
E
hostctl exec --timeout 60s pt-v -- /tmp/racer >/dev/null 2>&1 &
racer=$!
rounds=0 done=0 end=$(($(now_ms) + 6000))
while [ "$(now_ms)" -lt $end ]; do
        rounds=$((rounds + 1))
        within 10 hostctl file chmod -r 666 pt-v:/tmp/r >/dev/null 2>&1 && done=$((done + 1))
        within 10 hostctl file chmod -r 777 pt-v:/tmp/r >/dev/null 2>&1 && done=$((done + 1))
        within 10 hostctl file chown -r agent pt-v:/tmp/r >/dev/null 2>&1
done
check "the racer runs" process_lives $racer
kill $racer 2>/dev/null
wait $racer 2>/dev/null
check "and some changes come through ($done of $((2 * rounds)))" test $done -gt 0
check_is "$rounds rounds of chmod and chown against a racer reach nothing outside" "600 0" g 'stat -c "%a %u" /root/target'

# --- watch
hostctl file watch -r pt-v:/tmp/l >"$work/events" 2>&1 &
watch=$!
wait_for 10 sh -c "hostctl exec pt-v -- touch /tmp/l/ready && sleep .2 && grep -q ready $work/events"
g 'cd /tmp/l; printf x >"$(printf "w\033[31mx")"; mkdir wd; sleep 1; echo >wd/f; sleep .3; mv wd wd2; sleep .3; rm -r wd2'
for event in 'created *.*/tmp/l/wd/f$' 'moved-from *.*/tmp/l/wd$' 'moved-to *.*/tmp/l/wd2$' 'deleted *.*/tmp/l/wd2$' 'written *.*x1b'; do
        check "watch tells: $event" wait_for 5 grep -qE "$event" "$work/events"
done
check_not "and steers no terminal" grep -q "$(printf '\033')" "$work/events"
kill $watch
wait $watch 2>/dev/null
check "a watch ends with its client" wait_for 5 no_command_groups

# --- tar
mkdir -p "$work/t/d/e"
echo text >"$work/t/d/e/f"
ln -s e/f "$work/t/d/l"
chmod 640 "$work/t/d/e/f"
check_is "push of a tar" "text 640 e/f" sh -c 'tar -C '"$work"'/t -cf - . | hostctl file push --tar - pt-v:/tmp/tar && hostctl exec pt-v -- sh -c "cat /tmp/tar/d/e/f; stat -c %a /tmp/tar/d/e/f; readlink /tmp/tar/d/l" | xargs'
check "pull to a tar" sh -c 'hostctl file pull --tar pt-v:/tmp/tar '"$work"'/out.tar && mkdir '"$work"'/back && tar -C '"$work"'/back -xpf '"$work"'/out.tar'
check "they are the same" diff -r --no-dereference "$work/t" "$work/back"
check_is "through a pipe" text sh -c 'hostctl file pull --tar pt-v:/tmp/tar - | tar -xOf - d/e/f'
check_status "a compressed one is refused" 2 'no tar' sh -c 'tar -C '"$work"'/t -czf - . | hostctl file push --tar - pt-v:/tmp/tar2'
tar -C "$work/t" -P --transform 's,^,../../,' -cf "$work/evil.tar" d
check_status "one that leads out is refused" 2 '\.\.' f push --tar "$work/evil.tar" pt-v:/tmp/tar3
check "and nothing came out of it" g '! test -e /d && ! test -e /tmp/d'

# --- two GiB
grow() { # PID...: the most memory that any of them had, in MiB
        local p
        for p in "$@"; do awk '$1 == "VmHWM:" { print int($2 / 1024) }' "/proc/$p/status" 2>/dev/null; done | sort -n | tail -n 1
}
guests() { local p; for p in $(instance_processes pt-v); do case $(tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null) in hostd-guest*) echo "$p" ;; esac; done; }
large() { # WHAT COMMAND...
        local what=$1 pid most=0 now before inside helpers=0
        shift
        before=$(grow "$(hostd_pid)")
        "$@" >/dev/null 2>"$work/err" &
        pid=$!
        while process_lives $pid; do
                inside=$(guests)
                now=$(grow $pid $inside)
                [ "${now:-0}" -gt $most ] && most=$now
                [ "$(wc -w <<<"$inside")" -gt $helpers ] && helpers=$(wc -w <<<"$inside")
                sleep 0.2
        done
        if wait $pid; then ok "$what"; else fail "$what" "$(tail -n 1 "$work/err")"; fi
        now=$(grow "$(hostd_pid)")
        note "$what: at most $most MiB in hostctl and $helpers of hostd-guest, hostd $before to $now MiB"
        if [ $helpers -ge 2 ] && [ $most -gt 0 ] && [ $most -lt 24 ] && [ $((now - before)) -lt 4 ]; then ok "$what grows no process"; else fail "$what" "a process had $most MiB"; fi
}
g 'truncate -s 2147483648 /tmp/large'
large "pull of 2 GiB" hostctl file pull pt-v:/tmp/large -
truncate -s 2G "$work/large"
large "push of 2 GiB" hostctl file push "$work/large" pt-v:/tmp/large
check_is "it is whole" 2147483648 g 'stat -c %s /tmp/large'
hostctl file pull --tar pt-v:/tmp/large "$work/large.tar" >"$work/shrunk" 2>&1 &
p=$!
sleep 0.3
g 'truncate -s 5000 /tmp/large'
if wait $p; then skip "a file that shrinks while it is read" "it was read before"; else check "a file that shrinks while it is read is told" grep -q 'changed while' "$work/shrunk"; fi
rm -f "$work/large" "$work/large.tar"
hostctl file rm pt-v:/tmp/large

# --- a file system that never answers
if hostctl exec pt-v -- sh -c ': <>/dev/fuse' 2>/dev/null && gcc -std=gnu11 -D_GNU_SOURCE -O1 -static -w -o "$work/escape" "$here/../escape"/*.c; then
        hostctl file push -m 755 "$work/escape" pt-v:/bin/escape
        g 'mkdir -p /tmp/hang'
        hostctl exec pt-v -- /bin/escape fuse-hang /tmp/hang >"$work/hang" 2>&1 &
        hang=$!
        wait_for 5 grep -q mounted "$work/hang"
        cut_off() { timeout -k 2 2 "$@"; [ $? -eq 124 ]; } # it waits, and goes at once when it is told to
        for verb in "stat pt-v:/tmp/hang/x" "search pt-v:/tmp/hang" "pull --tar pt-v:/tmp/hang -" "mkdir -p pt-v:/tmp/hang/a/b" "chmod 600 pt-v:/tmp/hang/x" \
                "mv pt-v:/tmp/hang/x pt-v:/tmp/hang/y" "watch -r pt-v:/tmp/hang" "replace --old a --new b pt-v:/tmp/hang/x" "rm -r pt-v:/tmp/hang/x"; do
                check "${verb%% *} on it ends when its client does" cut_off hostctl file $verb
        done
        check_status "and in its time" 11 'in time' f stat --timeout 1s pt-v:/tmp/hang/x
        check_is "beside it files are read" c sh -c 'timeout 5 hostctl file pull --length 1 pt-v:/tmp/l/text -'
        check "and hostd answers" timeout 2 hostctl list
        one_group() { [ "$(command_groups | sed 's,.*/,,' | sort -u | wc -l)" -le 1 ]; }
        check "nothing of them is left" wait_for 10 one_group
        kill $hang 2>/dev/null
        wait $hang 2>/dev/null
else
        skip "a file system that never answers" "/dev/fuse is closed to users of this host, or there is no compiler"
fi

check "no group of a command is left" wait_for 5 no_command_groups
cd /
hostctl delete --force pt-v >/dev/null
check "no leaks at the end" no_leaks
finish
