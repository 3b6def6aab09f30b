#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Attempts to get out of an instance, as its root and as uid 1000, judged from the host: tests/escape. Under AppArmor where the kernel
# has it; tests/system/cases/confine.sh compares that with an unconfined run.
#   HOSTD_ESCAPE_REPORT   file that gets each attempt's outcome
#   HOSTD_ESCAPE_ONLY     regular expression: only these attempts
#   HOSTD_ESCAPE_PART     "attempts": only they, and not what follows
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
here=$(cd "$(dirname "$0")/../escape" && pwd)
export HOSTD_PID

lines() { # of a python program: ok, FAIL
        local word rest
        while read -r word rest; do
                case $word in ok) ok "$rest" ;; FAIL) fail "${rest%%: *}" "${rest#*: }" ;; *) note "$word $rest" ;; esac
        done
}
escape_build() {
        local built=${BUILD:-$here/../../build}/tests/escape/escape
        if [ -x "$built" ] && [ -z "$(find "$here" -name '*.[ch]' -newer "$built")" ]; then
                cp "$built" "$work/escape"
        else
                gcc -std=gnu11 -D_GNU_SOURCE -O1 -static -w -o "$work/escape" "$here"/*.c
        fi
}
escape_put() { # NAME
        hostctl file push --mode 755 "$work/escape" "$1:/bin/escape"
        hostctl exec "$1" -- sh -c 'head -c 1000000 /dev/zero >/tmp/image; chmod 644 /tmp/image'
}

check "the program of attempts is built" escape_build
[ -x "$work/escape" ] || finish
apparmor=
[ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ] && ! hostctl doctor -f csv -c protection,state | tr -d '\r' | grep -qx 'apparmor,missing' && apparmor=--apparmor
[ -n "$apparmor" ] || skip "AppArmor" "this kernel has none, or the profile is not loaded: user namespaces, seccomp and mounts alone"

dumps=enforced
case $(cat /proc/sys/kernel/core_pattern) in "|"*) dumps=degraded ;; esac
check_is "doctor says whether a crash inside runs a program of the host" "core-dumps,$dumps" sh -c "hostctl doctor -f csv -c protection,state | tr -d '\r' | grep ^core-dumps"

# --- every attempt, in an instance that was started from a session with a key in it
restart_with_key() {
        hostd_stop
        bash -c '. "$0"; hostd_start' "$lib/product.sh"
        launch pt-a memory=256MiB pids=256 disk=256MiB && escape_put pt-a
        # shellcheck disable=SC2086 # options
        python3 "$here/host.py" pt-a "$work/escape" $apparmor ${HOSTD_ESCAPE_REPORT:+--report "$HOSTD_ESCAPE_REPORT"} ${HOSTD_ESCAPE_ONLY:+--only "$HOSTD_ESCAPE_ONLY"}
}
# shellcheck disable=SC2046 # names
export -f $(compgen -A function) # whatever product.sh is made of
export slow
export lib here work apparmor
python3 "$here/host.py" --with-key bash -c restart_with_key >"$work/rows" 2>&1
lines <"$work/rows"
check "there were attempts" test "$(grep -c 'escape: ' "$work/rows")" -ge "${HOSTD_ESCAPE_ROWS:-1}"
if [ "${HOSTD_ESCAPE_PART:-}" = attempts ]; then
        hostctl delete --force pt-a >/dev/null
        finish
fi
state pt-a | grep -q running || launch pt-a memory=256MiB pids=256 disk=256MiB >/dev/null

# --- the same filter for what init starts as for what hostd-guest starts: liblxc loads one, hostd-instance the other
filtered="bpf io_uring userfaultfd request-key families netlink x32 ldisc syslog perf int80 modules kexec"
at_boot() { hostctl exec "$1" -- sh -c "for a in $filtered; do echo \$a \$(/bin/escape \$a); done"; }
printf '#!/bin/sh\nfor a in %s; do echo $a $(/bin/escape $a); done\n' "$filtered" >"$work/at-boot"
hostctl file push --mode 755 "$work/at-boot" pt-a:/var/tmp/at-boot
hostctl restart pt-a >/dev/null
check "what init starts has run" wait_for 20 hostctl exec pt-a -- grep -q kexec /var/tmp/at-boot.out
check_is "and met the same refusals as what hostd-guest starts" "$(at_boot pt-a)" hostctl exec pt-a -- cat /var/tmp/at-boot.out

# --- the terminal
python3 "$here/terminal.py" pt-a >"$work/terminal" 2>&1
lines <"$work/terminal"

# --- a file system that never answers
cut_off() { timeout -k 2 3 "$@"; [ $? -eq 124 ]; } # it waits, and goes at once when it is told to
if hostctl exec -u agent pt-a -- sh -c ': <>/dev/fuse' 2>/dev/null; then
        ex pt-a -- mkdir -p /mnt-hang /etc-hang
        hostctl exec pt-a -- /bin/escape fuse-hang /mnt-hang >"$work/hang" 2>&1 &
        hang=$!
        wait_for 5 grep -q mounted "$work/hang"
        check "a pull from a dead file system ends when its client does" cut_off hostctl file pull pt-a:/mnt-hang/x "$work/x"
        check "a list too" cut_off hostctl file list pt-a:/mnt-hang
        check "a command with its working directory there too" cut_off hostctl exec --cwd /mnt-hang pt-a -- true
        check "meanwhile commands run" timeout 5 hostctl exec pt-a -- true
        check "and hostd answers" timeout 2 hostctl list
        hostctl exec pt-a -- /bin/escape fuse-hang /etc >"$work/hang2" 2>&1 &
        wait_for 5 grep -q mounted "$work/hang2"
        for _ in $(seq 30); do timeout 0.2 hostctl exec -u agent pt-a -- true 2>/dev/null; done
        check "30 look-ups of users that hang later hostd answers" timeout 2 hostctl list
        check "diff does not wait for it" timeout 20 hostctl diff pt-a
        check "stop --force works" timeout 15 hostctl stop --force pt-a
        wait "$hang" 2>/dev/null
        check "and no leak is left" no_leaks
        hostctl start pt-a >/dev/null
else
        skip "a file system that never answers" "/dev/fuse is closed to users of this host"
fi

# --- a guest that prepares its own root for the next start
canary=$work/canary
echo untouched >"$canary"
hostile() { # WHAT COMMANDS PATTERN
        ex pt-a -- sh -c "$2" >"$work/out" 2>&1
        hostctl stop --force pt-a >/dev/null 2>&1
        timeout 60 hostctl start pt-a >"$work/out" 2>&1
        local status=$?
        if [ -n "$3" ] && [ $status -ne 0 ] && grep -q "$3" "$work/out"; then
                ok "next start ($1): refused with a reason"
        elif [ -z "$3" ] && [ $status -eq 0 ] && ex pt-a -- true >/dev/null 2>&1; then
                ok "next start ($1): it starts"
        else
                fail "next start ($1)" "status $status: $(tail -n 2 "$work/out" | tr '\n' ' ')"
        fi
        check_is "next start ($1): the host's file is as it was" untouched cat "$canary"
        check_not "next start ($1): no mount of it on the host" sh -c "grep -e '$work' -e ' overlay root ' /proc/self/mountinfo"
        hostctl rebuild --force pt-a >"$work/out" 2>&1 || fail "rebuild after ($1)" "$(tail -n 1 "$work/out")"
        hostctl start pt-a >/dev/null 2>&1
        check "next start ($1): a rebuild helps" timeout 30 hostctl exec pt-a -- true
}
# busybox's umount works on a copy of the table that it keeps in memory.
for dir in dev proc sys run tmp; do
        hostile "/$dir is a link" "umount -l -r /$dir 2>/dev/null; while umount -l /$dir 2>/dev/null; do :; done; rm -rf /$dir; /bin/busybox ln -s $work /$dir" "/$dir in the root is no plain directory"
done
hostile "/proc is a file" "while umount -l /proc 2>/dev/null; do :; done; rm -rf /proc; : >/proc" '/proc in the root'
# /home is a mount that was made outside: it can neither be taken away nor renamed.
hostile "/home shall be a link" "umount -l /home; mv /home /home.old; rmdir /home && ln -s $work /home" ''
hostile "init is a link out" "rm /sbin/init; ln -s $canary /sbin/init" '/sbin/init'
hostile "init is not executable" "chmod 644 /sbin/init" '/sbin/init'
hostile "/etc is a link" "mv /etc /etc.old; ln -s $work /etc" ''
check_not "which nothing was written to" sh -c "ls $work | grep -E '^(hostname|hosts|resolv.conf|passwd)$'"
hostctl stop --force pt-a >/dev/null
hostctl set pt-a read_only=true >/dev/null
hostctl start pt-a >/dev/null
check "read-only start" ex pt-a -- true
hostctl stop --force pt-a >/dev/null
hostctl set pt-a read_only=false >/dev/null
hostctl start pt-a >/dev/null
for link in var/tmp var/log; do
        ex pt-a -- sh -c "mkdir -p /var; rm -rf /$link; ln -s $work /$link" >/dev/null
        hostctl set pt-a read_only=true >/dev/null
        hostctl stop --force pt-a >/dev/null
        timeout 60 hostctl start pt-a >"$work/out" 2>&1
        check_is "read-only start with /$link a link: the host's file is as it was" untouched cat "$canary"
        check_not "and nothing of the host shows through it" ex pt-a -- cat "/$link/canary"
        hostctl stop --force pt-a >/dev/null 2>&1
        hostctl set pt-a read_only=false >/dev/null
        hostctl rebuild --force pt-a >/dev/null 2>&1
        hostctl start pt-a >/dev/null 2>&1
done

hostctl delete --force pt-a >/dev/null
check "no leaks at the end" no_leaks
finish
