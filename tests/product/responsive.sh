#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# While something slow is under way, everybody else is answered: a pause that a process holds up, a build that is cancelled with a hundred
# thousand files behind it, and under systemd a unit that takes seconds to start. Each of them is made really slow here.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
bound=700 # ms; what blocked the loop blocked it for a second and more
attempts=1
[ "$slow" -eq 1 ] || attempts="1 2 3" # two seconds are not long where others have the processors

# watch_begin; ...; watch_end; then watched NAME: every answer to "list" meanwhile came within the bound. On a machine that is slow itself nobody
# knows that one; there it is half of the time that the slow thing took: what waits for it waits for nearly all of it.
watch_begin() {
        touch "$work/watch"
        watched_from=$(now_ms)
        while [ -e "$work/watch" ]; do
                local t
                t=$(now_ms)
                timeout 60 hostctl list >/dev/null 2>&1
                echo $(($(now_ms) - t))
        done >"$work/latency" &
        watcher=$!
}
watch_end() {
        watched_for=$(($(now_ms) - watched_from))
        rm -f "$work/watch"
        wait $watcher
        lists=$(wc -l <"$work/latency")
        slowest=$(sort -n "$work/latency" | tail -n 1)
}
answered() { [ "$lists" -ge 3 ] && [ "$slowest" -le $((slow > 1 ? watched_for / 2 : bound)) ]; }
at_once() { local took=$(($(now_ms) - begin)); if [ "$slow" -gt 1 ] || [ $took -le "$2" ]; then ok "$1 ($took ms)"; else fail "$1" "$took ms"; fi; } # NAME MS, from begin
watched() { if answered; then ok "$1: $lists lists in $watched_for ms, the slowest answered after $slowest ms"; else fail "$1" "$lists lists in $watched_for ms, the slowest after $slowest ms"; fi; }
took_at_least() { if [ $(($(now_ms) - begin)) -ge "$2" ]; then ok "$1 ($(($(now_ms) - begin)) ms)"; else fail "$1" "only $(($(now_ms) - begin)) ms: it was not slow"; fi; }

# --- pause: a process waits for a file system whose server never answers, and the kernel does not stop it there. Not every host lets
# its guests open /dev/fuse, so it is one of the host's that is put into the guest's group.
cat >"$work/stuck.c" <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char *argv[]) {
        char options[64], path[4096];
        struct stat st;
        int fd = open("/dev/fuse", O_RDWR);
        snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
        snprintf(path, sizeof(path), "%s/x", argc > 1 ? argv[1] : "");
        if (fd < 0 || mount("stuck", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
                perror("mount");
                return 1;
        }
        pid_t pid = fork();
        if (pid == 0)
                return stat(path, &st) < 0;
        printf("%d\n", pid);
        fflush(stdout);
        pause();
        return 0;
}
C
group_of() { # PID: its v2 group as a directory
        local top=/sys/fs/cgroup
        [ -d $top/unified ] && top=$top/unified
        echo "$top$(sed -n 's/^0:://p' "/proc/$1/cgroup")"
}
stick() { # a process in pt-a's payload that cannot be stopped
        mkdir -p "$work/mnt"
        unshare -m "$work/stuck" "$work/mnt" >"$work/stuck.out" 2>&1 &
        sticky=$!
        wait_for 5 grep -q '^[0-9]' "$work/stuck.out" && sleep 0.2 && head -n 1 "$work/stuck.out" >"$(group_of "$(instance_pid pt-a)")/cgroup.procs"
}
# hostctl pause in the background, and hostd has begun with it.
freezing() { grep -qx 1 "$freezer"; }
pause_begins() {
        freezer=$(group_of "$(instance_pid pt-a)")
        freezer=${freezer%%/payload*}/payload/cgroup.freeze
        timeout 60 hostctl pause pt-a >"$work/pause" 2>&1 &
        pause=$!
        wait_for 10 freezing
}
launch pt-a >/dev/null || { fail launch pt-a; finish; }
if ! cc -O1 -o "$work/stuck" "$work/stuck.c" 2>"$work/cc"; then
        skip "slow pause" "there is no C compiler: $(tail -n 1 "$work/cc")"
elif stick; then
        for attempt in $attempts; do
                begin=$(now_ms)
                watch_begin
                pause_begins
                refused=no
                timeout $((slow > 1 ? 60 : 1)) hostctl exec pt-a -- true >"$work/exec" 2>&1
                status=$?
                [ $status -eq 125 ] && grep -q paused "$work/exec" && kill -0 $pause 2>/dev/null && refused=yes
                wait $pause
                given_up=$?
                watch_end
                note "attempt $attempt: exec ended with $status, the pause with $given_up; $lists lists in $watched_for ms, the slowest after $slowest ms"
                answered && [ $refused = yes ] && break
        done
        check_is "what would wait for a process that may be stopped is refused before that is known" yes echo $refused
        took_at_least "the pause is given up after two seconds" 1800
        watched "a slow pause"
        if [ $given_up -eq 11 ]; then ok "it is given up with a sentence: $(tail -n 1 "$work/pause")"; else fail "slow pause" "status $given_up: $(tail -n 1 "$work/pause")"; fi
        check "everything runs on" ex pt-a -- true
        check_is "and is not paused" running state pt-a
        # Others come in between. That the pause was not given up before tells its status.
        for attempt in $attempts; do
                pause_begins
                begin=$(now_ms)
                check "a resume ends a pause that is under way" within 5 hostctl resume pt-a
                at_once "at once" 1000
                wait $pause
                status=$?
                [ $status -eq 11 ] || break
        done
        if [ $status = 12 ]; then ok "whose caller is told"; else fail "cancelled pause" "status $status"; fi
        for attempt in $attempts; do
                pause_begins
                begin=$(now_ms)
                check "so does a forced stop" within 5 hostctl stop --force pt-a
                at_once "at once, too" 1500
                wait $pause
                status=$?
                [ $status -eq 11 ] || break
                kill $sticky
                hostctl start pt-a && stick
        done
        if [ $status = 12 ]; then ok "and its caller is told"; else fail "cancelled pause" "status $status"; fi
        kill $sticky
        check "it starts again" hostctl start pt-a
        check "and can be paused" hostctl pause pt-a
        check "and resumed" hostctl resume pt-a
        check "no leaks" no_leaks
else
        skip "slow pause" "no file system of our own can be mounted: $(tail -n 1 "$work/stuck.out")"
fi

# --- a build that is cancelled, with much to remove
mkdir "$work/many"
dirs=$((slow > 1 ? 60 : 300))
python3 - "$work/many" $dirs <<'P'
import os, sys
for d in range(int(sys.argv[2])):
    os.mkdir("%s/%d" % (sys.argv[1], d))
    for f in range(300):
        open("%s/%d/%d" % (sys.argv[1], d, f), "w").close()
P
scratch() { find "$HOSTD_STATE/build" -mindepth 1 -maxdepth 1 2>/dev/null; }
is_many() { [ "$(find "$HOSTD_STATE/build" 2>/dev/null | head -n $((dirs * 100)) | wc -l)" -ge $((dirs * 100)) ]; }
no_scratch() { [ -z "$(scratch)" ]; }
hostctl template import pt-many "$work/many" >"$work/out" 2>&1 &
client=$!
if wait_for 60 is_many; then
        watch_begin
        kill -9 $client
        check "a cancelled build is removed" wait_for 60 no_scratch
        watch_end
        watched "a cancelled build"
        check_not "and makes no template" hostctl template show pt-many
else
        fail "cancelled build" "its files did not appear: $(tail -n 1 "$work/out")"
        kill $client
fi
wait $client 2>/dev/null

# --- a unit that starts slowly
if systemd_is_up; then
        dropin=/run/systemd/system/hostd-instance@pt-a.service.d
        unit_slow() { mkdir -p $dropin && printf '[Service]\nExecStartPre=/bin/sleep 4\n' >$dropin/slow.conf && systemctl daemon-reload; }
        unit_quick() { rm -rf $dropin; systemctl daemon-reload; }
        trap 'unit_quick; finish' EXIT
        hostctl stop --force pt-a >/dev/null 2>&1
        unit_slow
        begin=$(now_ms)
        watch_begin
        check "a unit that takes its time starts" timeout 60 hostctl start pt-a
        watch_end
        took_at_least "after that time" 3900
        watched "a slow unit"
        check "the guest answers" ex pt-a -- true
        hostctl stop --force pt-a >/dev/null
        timeout 60 hostctl start pt-a >"$work/out" 2>&1 &
        client=$!
        check "it is starting" wait_for 5 is_state pt-a starting
        check "a stop meanwhile" timeout 60 hostctl stop --force pt-a
        wait $client
        check_is "ends the start" stopped state pt-a
        check "no leaks after it" wait_for 10 no_leaks
        timeout 60 hostctl start pt-a >"$work/out" 2>&1 &
        client=$!
        wait_for 5 is_state pt-a starting
        check "hostd dies meanwhile" hostd_kill
        wait $client
        sleep 5
        hostd_start
        settled() { case "$(state pt-a)" in starting | stopping) return 1 ;; esac; }
        check "and settles it when it is back" wait_for 40 settled
        unit_quick
        hostctl stop --force pt-a >/dev/null 2>&1
        check "it starts" hostctl start pt-a
        check "and answers" ex pt-a -- true
        check "no leaks of slow units" wait_for 10 no_leaks
        trap finish EXIT
else
        skip "slow unit" "systemd is not process 1 here"
fi
hostctl delete --force pt-a >/dev/null 2>&1
check "no leaks at the end" wait_for 10 no_leaks
finish
