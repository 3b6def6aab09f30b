#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Commands in the background: what they write is there afterwards, from any offset, bounded and counted, whatever becomes of hostd and of hostd-io.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin

start() { hostctl command start "$@"; }
io_pid() { # NAME: of its hostd-io
        pgrep -u hostd-io -f "hostd-io $HOSTD_RUN/io/$(slot "$1")\$" | head -n 1
}
how() { hostctl command kept -f csv -c id,state,exit | tr -d '\r' | sed -n "s/^$1,//p"; }
ended() { [[ $(how "$1") = ended* ]]; }
records() { hostctl audit query --since 10min -f json | jq -r "[.records[] | select(.detail.id == \"$1\")] | sort_by(.seq) | map(.method[17:] + \" \" + .result) | join(\", \")"; }

launch pt-a memory=512MiB pids=4096 disk=300MiB cpu=2 >/dev/null || { fail "launch" "pt-a"; finish; }

# --- begin and end
id=$(start pt-a -- sh -c 'echo out; echo err >&2; exit 3')
check "it has an id" [ -n "$id" ]
check_is "its end can be waited for" 3 sh -c "hostctl command wait $id >/dev/null; echo \$?"
check "it has ended" wait_for 5 ended "$id"
check_is "and again, afterwards" 3 sh -c "hostctl command wait $id >/dev/null; echo \$?"
check_is "what it wrote is there" out sh -c "hostctl logs pt-a $id 2>/dev/null"
check_is "and its errors" err sh -c "hostctl logs pt-a $id 2>&1 >/dev/null"
check_is "from an offset" "ut err" sh -c "hostctl logs pt-a $id --offset 1 2>&1 | tr '\n' ' ' | sed 's/ \$//'"
check_is "from behind its end" "" hostctl logs pt-a "$id" --offset 100000
check_is "the list says how it ended" "ended,3" how "$id"
check_status "all of it is recorded" 0 "^Start started, Start ok, .*Exec ended" records "$id"
check_is "exec --detach is the same" yes sh -c "id=\$(hostctl exec --detach pt-a -- sh -c 'sleep 0.2; echo yes'); hostctl logs --follow pt-a \$id"
check_status "what is not there ends at once" 127 'command not found: nonsuch' hostctl command wait "$(start pt-a -- nonsuch)"
check_status "no such command" 3 'no output of such a command is kept' hostctl logs pt-a 0123456789abcdef
check_status "no such instance" 3 'pt-none' hostctl logs pt-none "$id"
check_is "it has no input" "" sh -c "hostctl logs -f pt-a \$(hostctl exec -d pt-a -- cat)"
check_is "as whom and where it is asked to" "1000 /tmp x" sh -c "hostctl logs -f pt-a \$(hostctl exec -d -u agent -w /tmp -e V=x pt-a -- sh -c 'echo \$(id -u) \$(pwd) \$V')"
begin=$(now_ms)
id=$(start -t 2s pt-a -- sh -c 'printf partial; sleep 30')
check_status "its time runs out" 124 "its time was over" hostctl command wait "$id"
took=$(($(now_ms) - begin))
check "in two seconds and not much more" [ $took -lt $((2500 * (slow > 1 ? 5 : 1))) ]
check_is "and what it wrote is there" partial hostctl logs -f pt-a "$id"

# --- how much
write='head -c 4194306 /dev/zero | tr "\0" x | dd bs=8M iflag=fullblock 2>/dev/null'
sum=$(head -c 4194306 /dev/zero | tr '\0' x | sha256sum | cut -c1-64)
check_is "4 194 306 bytes, each of them" "$sum" sh -c "hostctl logs -f pt-a \$(hostctl exec -d pt-a -- sh -c '$write') | sha256sum | cut -c1-64"
# Numbers of seven digits and a line break: each offset tells what stands there.
seq -f %07.0f 0 8388607 >"$work/whole"
hostctl file push "$work/whole" pt-a:/var/tmp/whole >/dev/null || fail "a file to write" "push"
id=$(start pt-a -- cat /var/tmp/whole)
check "64 MiB are written although nobody reads" within 60 hostctl command wait "$id"
hostctl logs pt-a "$id" >"$work/log" 2>"$work/missing"
dropped=$(sed -n 's/.* \([0-9]*\) bytes from byte [0-9]* on were dropped$/\1/p' "$work/missing") from=$(sed -n 's/.* bytes from byte \([0-9]*\) on were dropped$/\1/p' "$work/missing")
kept=$(stat -c %s "$work/log")
note "kept $kept of 67108864 bytes, dropped $dropped from $from on"
check_is "what is kept and what was dropped are all" 67108864 expr "$kept" + "$dropped"
check "about 8 MiB are kept" [ "$kept" -gt 8000000 -a "$kept" -le 8388608 ]
check "the begin is what was written" cmp -n "$from" "$work/log" "$work/whole"
check "and the end" cmp -i "$from:$((from + dropped))" "$work/log" "$work/whole"
check "the file is no larger" [ "$(stat -c %s "$HOSTD_STATE/output/pt-a/$id")" -le 8388608 ]
rm -f "$work/whole" "$work/log"
small=$(start -k 256KiB pt-a -- head -c 4000000 /var/tmp/whole)
hostctl command wait "$small" >/dev/null
check "less may be asked for" [ "$(stat -c %s "$HOSTD_STATE/output/pt-a/$small")" -le 262144 ]
check_status "but not too little" 2 keep hostctl command start -k 1KiB pt-a -- true
for i in $(seq 10); do hostctl command wait "$(start pt-a -- head -c 9000000 /var/tmp/whole)" >/dev/null; done
check "64 MiB are the most of an instance" [ "$(du -sm "$HOSTD_STATE/output/pt-a" | cut -f1)" -le 65 ]
check_status "the oldest made room" 3 'no output' hostctl logs pt-a "$id"
check_is "and are in no list" "" how "$id"

# --- who goes away
id=$(start pt-a -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 0.5; done')
hostctl logs --follow pt-a "$id" >"$work/followed" &
follower=$!
timeout 1 hostctl command wait "$id" >/dev/null 2>&1
check_is "who waited and went away ends nothing" running sh -c "hostctl command kept -f csv -c id,state | tr -d '\r' | sed -n 's/^$id,//p'"
check "hostd is killed and comes back" hostd_crash
check "the command runs on" sh -c "hostctl command kept -f csv -c id,state | grep -q '$id,running'"
check_is "its end can be waited for" 0 sh -c "within() { timeout 60 \"\$@\"; }; for i in 1 2 3 4 5 6 7 8 9 10; do timeout 60 hostctl command wait $id >/dev/null 2>&1; s=\$?; [ \$s = 125 ] || break; sleep 0.5; done; echo \$s"
wait $follower
check_is "who followed has all of it" "$(seq 12)" cat "$work/followed"
check_is "so has who asks afterwards" "$(seq 12)" hostctl logs pt-a "$id"
id=$(start pt-a -- sh -c 'echo before; sleep 1000')
check "a stop of hostd" hostd_stop
check "and a start" hostd_start
check_is "leave it and its output" before sh -c "hostctl logs pt-a $id"
check "it can be ended" hostctl command signal "$id" 15
check "and has" wait_for 5 ended "$id"

# --- hostd-io dies
id=$(start pt-a -- sh -c 'for i in 1 2 3 4 5; do echo $i; done; sleep 1; echo more || echo "nobody reads" >/tmp/seen; sleep 1000')
wait_for 5 sh -c "hostctl logs pt-a $id | grep -q 5"
pid=$(io_pid pt-a)
check "hostd-io runs as a user of its own" [ -n "$pid" ]
check_is "without rights" "0000000000000000 2 1" sh -c "awk '/^CapEff|^Seccomp:|^NoNewPrivs/ { v[\$1] = \$2 } END { print v[\"CapEff:\"], v[\"Seccomp:\"], v[\"NoNewPrivs:\"] }' /proc/$pid/status"
check "with little memory" [ "$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status")" -lt 32768 ]
kill -9 "$pid"
check_is "what it had written is there" "1 2 3 4 5" sh -c "hostctl logs pt-a $id 2>/dev/null | tr '\n' ' ' | sed 's/ \$//'"
check_status "and that it died" 9 "nothing was kept: hostd-io died" hostctl logs pt-a "$id"
check_is "the next command has another one" again sh -c "hostctl logs -f pt-a \$(hostctl exec -d pt-a -- echo again)"
hostctl command signal "$id" 9 >/dev/null

# --- a hostd-io that somebody took over
# Debian's Python: another one may be where that user cannot read.
fake() { # WHAT: what it says to whoever connects, in Python
        setpriv --reuid hostd-io --regid hostd-io --clear-groups /usr/bin/python3 - "$HOSTD_RUN/io/$(slot pt-a)/sock" "$1" 2>"$work/fake.err" <<'PYTHON'
import os, socket, struct, sys, time
path, what = sys.argv[1:]
os.path.exists(path) and os.unlink(path)
listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listening.bind(path)
listening.listen(8)
MESSAGE = struct.Struct("<IIQ48sQQiI5Q")
HELLO, LIVE, READY, ANSWER, ENDED = 1, 2, 3, 9, 10
def message(kind, value=0, cookie=0, ident=b"", error=0):
    return MESSAGE.pack(0x6f692d64, kind, cookie, ident, value, 0, error, 0, *[0] * 5)
while True:
    c, _ = listening.accept()
    say = c.send
    greet = lambda: (say(message(HELLO, value=1)), say(message(READY)))
    try:
        eval(what)
    except OSError:
        pass
PYTHON
}
stop_io() {
        local pid
        for pid in $(pgrep -u hostd-io); do kill -9 "$pid"; done
        for _ in $(seq 100); do pgrep -u hostd-io >/dev/null || return 0; sleep 0.05; done
}
while IFS='|' read -r what python; do
        stop_io
        fake "$python" &
        wait_for 5 sh -c "setpriv --reuid hostd-io --clear-groups /usr/bin/python3 -c 'import socket; socket.socket(1, 5).connect(\"$HOSTD_RUN/io/$(slot pt-a)/sock\")'" ||
                fail "$what: it listens" "$(tail -n 1 "$work/fake.err")"
        check_status "$what is no answer" 9 "hostd-io, which keeps the output of commands" within 60 hostctl exec -d pt-a -- true
        check "and hostd answers" hostd_answers
done <<'SAID'
a byte|say(b"x")
another version|say(message(HELLO, value=99))
no greeting|say(message(ANSWER, cookie=1))
an answer that nobody asked for|greet() and say(message(ANSWER, cookie=77))
a hundred thousand of them|greet() and [say(message(ANSWER, cookie=77)) for _ in range(100000)]
an end of what is not there|greet() and say(message(ENDED, ident=b"nobody"))
what is live a thousand times|say(message(HELLO, value=1)) and [say(message(LIVE, ident=b"%d" % i)) for i in range(1000)]
an id without an end|say(message(HELLO, value=1)) and say(message(LIVE, ident=b"a" * 48))
an error that is none|greet() and say(message(ANSWER, cookie=struct.unpack_from("<Q", c.recv(200), 8)[0], error=7))
an end before it began|c.close()
silence|time.sleep(30)
SAID
stop_io
check_is "the real one is started again" back sh -c "hostctl logs -f pt-a \$(hostctl exec -d pt-a -- echo back)"
check_is "what was refused left no output" "" sh -c "hostctl command kept -f csv -c command,state | grep '^true,'"

# --- many
ids=$(for i in $(seq 100); do start -k 128KiB pt-a -- sh -c "sleep 2; echo $i" & done; wait)
check_is "100 at once" 100 sh -c "echo '$ids' | sort -u | wc -l"
wait_for 30 sh -c "! hostctl command kept -f csv -c state | grep -q running"
check_is "each has its output" "$(seq 100 | sort)" sh -c "for i in $(echo $ids); do hostctl logs pt-a \$i; done | sort"

# --- values of secrets
if printf correct-horse-battery | hostctl secret set pt-key >/dev/null 2>&1; then
        hostctl secret grant pt-key pt-a --file >/dev/null 2>&1
        id=$(start pt-a -- sh -c 'echo a correct-horse-battery b')
        check_is "a value is replaced" "a [secret pt-key] b" hostctl logs -f pt-a "$id"
        check_not "and in no file" grep -rqa correct-horse-battery "$HOSTD_STATE/output/pt-a"
        hostctl secret revoke pt-key >/dev/null 2>&1
else
        skip "a value is replaced" "secrets cannot be set here"
fi

# --- the instance ends
id=$(start pt-a -- sh -c 'echo here; sleep 1000')
wait_for 5 sh -c "hostctl logs pt-a $id | grep -q here"
check "a stop" hostctl stop pt-a --force
check_is "leaves what was written" here hostctl logs pt-a "$id"
check_status "and says how it ended" 125 'stopped|died'  hostctl command wait "$id"
check_status "a command of another instance is not shown" 3 'no output' sh -c "hostctl create tiny pt-b -s memory=64MiB -s disk=128MiB >/dev/null && hostctl logs pt-b $id"
hostctl start pt-a >/dev/null
id=$(start pt-a -- sleep 1000)
pid=$(io_pid pt-a)
check "a deletion" hostctl delete --force pt-a
check "ends its hostd-io" wait_for 3 process_gone "${pid:-1}"
check_not "takes its output with it" [ -e "$HOSTD_STATE/output/pt-a" ]
check_is "and its lines" "" sh -c "hostctl command kept -f csv -c name | grep pt-a"
finish
