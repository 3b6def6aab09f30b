#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# While something slow is under way, everybody else is answered: a pause that a process holds up, a build that is cancelled with a hundred
# thousand files behind it, and under systemd a unit that takes seconds to start. Each of them is made really slow here.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
bound=700 # ms; what blocked the loop blocked it for a second and more

# watch_begin; ...; watch_end NAME: every answer to "list" meanwhile came within the bound
watch_begin() {
        touch "$work/watch"
        while [ -e "$work/watch" ]; do
                local t
                t=$(now_ms)
                timeout 30 hostctl list >/dev/null 2>&1
                echo $(($(now_ms) - t))
        done >"$work/latency" &
        watcher=$!
}
watch_end() {
        local n slowest
        rm -f "$work/watch"
        wait $watcher
        n=$(wc -l <"$work/latency")
        slowest=$(sort -n "$work/latency" | tail -n 1)
        if [ "$n" -ge 3 ] && [ "$slowest" -le $bound ]; then ok "$1: $n lists meanwhile, the slowest answered after $slowest ms"; else fail "$1" "$n lists, the slowest after $slowest ms"; fi
}
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
launch pt-a >/dev/null || { fail launch pt-a; finish; }
if ! cc -O1 -o "$work/stuck" "$work/stuck.c" 2>"$work/cc"; then
        skip "slow pause" "there is no C compiler: $(tail -n 1 "$work/cc")"
elif stick; then
        begin=$(now_ms)
        watch_begin
        timeout 20 hostctl pause pt-a >"$work/pause" 2>&1 &
        pause=$!
        sleep 0.4
        check_status "what would wait for a process that may be stopped is refused at once" 125 paused timeout 1 hostctl exec pt-a -- true
        wait $pause
        status=$?
        took_at_least "the pause is given up after two seconds" 1800
        watch_end "a slow pause"
        if [ $status -eq 11 ]; then ok "with a sentence: $(tail -n 1 "$work/pause")"; else fail "slow pause" "status $status: $(tail -n 1 "$work/pause")"; fi
        check "everything runs on" ex pt-a -- true
        check_is "and is not paused" running state pt-a
        # Others come in between.
        timeout 20 hostctl pause pt-a >"$work/pause" 2>&1 &
        pause=$!
        sleep 0.3
        begin=$(now_ms)
        check "a resume ends a pause that is under way" timeout 5 hostctl resume pt-a
        if [ $(($(now_ms) - begin)) -le 1000 ]; then ok "at once"; else fail "resume" "$(($(now_ms) - begin)) ms"; fi
        wait $pause
        status=$?
        if [ $status = 12 ]; then ok "whose caller is told"; else fail "cancelled pause" "status $status"; fi
        timeout 20 hostctl pause pt-a >"$work/pause" 2>&1 &
        pause=$!
        sleep 0.3
        begin=$(now_ms)
        check "so does a forced stop" timeout 5 hostctl stop --force pt-a
        if [ $(($(now_ms) - begin)) -le 1500 ]; then ok "at once, too"; else fail "stop" "$(($(now_ms) - begin)) ms"; fi
        wait $pause
        status=$?
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
python3 - "$work/many" <<'P'
import os, sys
for d in range(300):
    os.mkdir("%s/%d" % (sys.argv[1], d))
    for f in range(300):
        open("%s/%d/%d" % (sys.argv[1], d, f), "w").close()
P
scratch() { find "$HOSTD_STATE/build" -mindepth 1 -maxdepth 1 2>/dev/null; }
is_many() { [ "$(find "$HOSTD_STATE/build" 2>/dev/null | head -n 20001 | wc -l)" -gt 20000 ]; }
no_scratch() { [ -z "$(scratch)" ]; }
hostctl template import pt-many "$work/many" >"$work/out" 2>&1 &
client=$!
if wait_for 60 is_many; then
        watch_begin
        sleep 0.3
        begin=$(now_ms)
        kill -9 $client
        check "a cancelled build is removed" wait_for 60 no_scratch
        note "after $(($(now_ms) - begin)) ms"
        sleep 0.3
        watch_end "a cancelled build"
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
        check "a unit that takes its time starts" timeout 30 hostctl start pt-a
        took_at_least "after that time" 3900
        watch_end "a slow unit"
        check "the guest answers" ex pt-a -- true
        hostctl stop --force pt-a >/dev/null
        timeout 30 hostctl start pt-a >"$work/out" 2>&1 &
        client=$!
        sleep 1
        check_is "it is starting" starting state pt-a
        check "a stop meanwhile" timeout 15 hostctl stop --force pt-a
        wait $client
        check_is "ends the start" stopped state pt-a
        check "no leaks after it" wait_for 10 no_leaks
        timeout 30 hostctl start pt-a >"$work/out" 2>&1 &
        client=$!
        sleep 1
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
