# SPDX-License-Identifier: GPL-2.0-or-later
# What the product tests share. They use a running hostd as its user does, by hostctl, and look at the kernel for the truth.
#
# Every name they make begins with pt-; product_end removes all of them, so that a script leaves what it found.
#   HOSTD_SOCKET   where hostd listens         HOSTD_ETC, HOSTD_STATE, HOSTD_RUN   its directories
#   HOSTD_RESTART  a command that starts hostd again once it is dead (default: systemctl, or as quickstart does)
#   HOSTD_PID      a command that prints its process id
#   HOSTD_TEST_SLOW  how much slower than a real machine this one may be: 20 under emulation
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:$PATH
export HOSTD_SOCKET=${HOSTD_SOCKET:-/run/hostd/hostd.sock}
HOSTD_ETC=${HOSTD_ETC:-/etc/hostd} HOSTD_STATE=${HOSTD_STATE:-/var/lib/hostd} HOSTD_RUN=${HOSTD_RUN:-/run/hostd}
export HOSTD_ETC HOSTD_STATE HOSTD_RUN
# How much slower than a real machine this one may be: limits on time are multiplied with it.
slow=${HOSTD_TEST_SLOW:-1}
. "$lib/tiny.sh"
. "$lib/origins.sh"

# within SECONDS COMMAND...: timeout(1), with more where everything takes longer
within() { timeout $(($1 * (slow > 1 ? 5 : 1))) "${@:2}"; }

passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); echo "ok $*"; }
fail() { local name=$1; shift; failed=$((failed + 1)); echo "FAIL $name: $*"; }
skip() { local name=$1; shift; skipped=$((skipped + 1)); echo "SKIP $name: $*"; }
note() { echo "# $*"; }

# check NAME COMMAND...: the command must succeed; its last lines are the reason when it does not.
check() {
        local name=$1
        shift
        if "$@" >"$work/out" 2>&1; then ok "$name"; else fail "$name" "status $?: $(tail -n 3 "$work/out" | tr '\n' ' ')"; fi
}
# check_not NAME COMMAND...: the command must fail.
check_not() {
        local name=$1
        shift
        if "$@" >"$work/out" 2>&1; then fail "$name" "it succeeded: $(tail -n 3 "$work/out" | tr '\n' ' ')"; else ok "$name"; fi
}
# check_is NAME EXPECTED COMMAND...: what it prints, without the last newline.
check_is() {
        local name=$1 expected=$2 got
        shift 2
        got=$("$@" 2>"$work/err")
        if [ "$got" = "$expected" ]; then ok "$name"; else fail "$name" "'${got:0:300}' instead of '${expected:0:200}' $(tail -n 2 "$work/err")"; fi
}
# check_status NAME STATUS PATTERN COMMAND...: the exit status, and a regular expression that its output matches.
check_status() {
        local name=$1 status=$2 pattern=$3 got
        shift 3
        "$@" >"$work/out" 2>&1 </dev/null
        got=$?
        if [ $got -ne "$status" ]; then
                fail "$name" "status $got instead of $status: $(tail -n 3 "$work/out" | tr '\n' ' ')"
        elif ! grep -qaE -- "$pattern" "$work/out"; then
                fail "$name" "no '$pattern' in: $(tail -n 3 "$work/out" | tr '\n' ' ')"
        else
                ok "$name"
        fi
}

finish() {
        trap - EXIT
        product_end
        echo "$passed passed, $failed failed, $skipped skipped"
        [ "$failed" -eq 0 ]
        exit
}

# product_begin: to be called first. Without a hostd there is nothing to test.
product_begin() {
        work=$(mktemp -d /var/tmp/hostd-product.XXXXXX)
        chmod 0755 "$work"
        if [ "$(id -u)" != 0 ]; then skip "$(basename "$0")" "needs root"; finish; fi
        if ! within 10 hostctl info >/dev/null 2>&1; then fail "$(basename "$0")" "no hostd answers at $HOSTD_SOCKET"; finish; fi
        trap finish EXIT
        trap 'exit 130' INT TERM
        started=$SECONDS
        product_remove
        tiny_import || { fail "template" "tiny cannot be imported"; finish; }
}

product_remove() {
        local n
        for n in $(csv name 2>/dev/null | grep '^pt-'); do within 60 hostctl delete --force "$n" >/dev/null 2>&1; done
        for n in $(within 20 hostctl policy list -f csv -c policy 2>/dev/null | tr -d '\r' | grep '^pt-'); do within 20 hostctl policy delete "$n" >/dev/null 2>&1; done
}

product_end() {
        [ -n "${started:-}" ] || { rm -rf "$work"; return; }
        local jobs_left
        jobs_left=$(jobs -p)
        [ -n "$jobs_left" ] && kill $jobs_left 2>/dev/null
        hostd_answers || hostd_start
        product_remove
        note "$(basename "$0"): $((SECONDS - started)) s"
        rm -rf --one-file-system "$work"
}

# launch NAME [KEY=VALUE...]: a tiny instance with small limits.
launch() { launch_from tiny "$@"; }
launch_from() {
        local template=$1 name=$2 s args=()
        shift 2
        for s in "$@"; do args+=(-s "$s"); done
        case " $* " in *memory=*) ;; *) args+=(-s memory=64MiB) ;; esac
        case " $* " in *disk=*) ;; *) args+=(-s disk=128MiB) ;; esac
        within 60 hostctl launch "$template" "$name" "${args[@]}"
}
has_agent() { hostctl template show agent >/dev/null 2>&1; }

ex() { within "${limit:-60}" hostctl exec "$@"; }
csv() { within 20 hostctl list -f csv -c "$1" | tr -d '\r' | tail -n +2; } # COLUMNS
# in_state STATE NAME...: how many of them are in it
count_state() { local s=$1; shift; csv name,state | grep -cE "^($(tr ' ' '|' <<<"$*")),$s\$"; }
field() { hostctl list -f csv -c "name,$2" | tr -d '\r' | awk -F, -v n="$1" '$1 == n { print $2 }'; } # NAME COLUMN
state() { field "$1" state; }
is_state() { [ "$(state "$1")" = "$2" ]; }
absent() { [ -z "$(state "$1")" ]; }
instance_pid() { field "$1" pid; } # of its init
slot() { field "$1" slot; }
ifname() { printf 'hv%04x' "$(slot "$1")"; }

# wait_for SECONDS COMMAND...
wait_for() {
        local deadline=$(($(now_ms) + $1 * (slow > 1 ? 5000 : 1000)))
        shift
        until "$@" >/dev/null 2>&1; do
                [ "$(now_ms)" -lt $deadline ] || return 1
                sleep 0.05
        done
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }
no_leaks() { within 20 hostctl leaks; }
record() { hostctl audit tail -n "${1:-1}" -f json; } # the newest audit records
config_head() { git -C "$HOSTD_ETC" rev-parse HEAD 2>/dev/null; }

# Every control group directory that belongs to instance slots of this hostd, one a line.
# Only at the places where a hostd of this machine puts them: another one may run in namespaces of its own.
cgroup_dirs() { find /sys/fs/cgroup/hostd /sys/fs/cgroup/*/hostd /sys/fs/cgroup/hostd.slice -type d \( -path '*/hostd/*' -o -path '*/hostd-instance@*' \) 2>/dev/null; }
# command_groups: of running commands. None may outlive its command.
command_groups() { cgroup_dirs | grep -E '/commands/[^/]+$'; }
no_command_groups() { [ -z "$(command_groups)" ]; }
# process_lives PID: a zombie that nobody has reaped yet does not.
process_lives() { [ -d "/proc/$1" ] && ! grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; }
process_gone() { ! process_lives "$1"; }
# instance_processes NAME: host pids of everything in its user namespace.
instance_processes() {
        local init ns p
        init=$(instance_pid "$1")
        [ -n "$init" ] && ns=$(readlink "/proc/$init/ns/user") || return 1
        for p in /proc/[0-9]*; do [ "$(readlink "$p/ns/user" 2>/dev/null)" = "$ns" ] && echo "${p#/proc/}"; done
}

# --- hostd itself
systemd_is_up() { [ -d /run/systemd/system ] && systemctl cat hostd.service >/dev/null 2>&1; }
hostd_pid() {
        if [ -n "${HOSTD_PID:-}" ]; then
                bash -c "$HOSTD_PID"
        elif systemd_is_up; then
                systemctl show -P MainPID hostd.service
        else
                cat "$HOSTD_RUN/quickstart.pid"
        fi
}
hostd_answers() { within 5 hostctl info >/dev/null 2>&1; }
hostd_start() {
        if [ -n "${HOSTD_RESTART:-}" ]; then
                bash -c "$HOSTD_RESTART"
        elif systemd_is_up; then
                systemctl reset-failed hostd.service 2>/dev/null
                systemctl start hostd.service
        else
                setsid hostd >>/var/log/hostd.log 2>&1 </dev/null &
                echo $! >"$HOSTD_RUN/quickstart.pid"
                disown
        fi
        wait_for 10 hostd_answers
}
hostd_kill() { # -9 and wait until it is gone
        local pid
        pid=$(hostd_pid)
        [ -n "$pid" ] && [ "$pid" != 0 ] || return 1
        if systemd_is_up; then systemctl kill -s KILL --kill-who=main hostd.service; else kill -9 "$pid"; fi
        for _ in $(seq 200); do
                [ -d "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null || return 0
                sleep 0.02
        done
        return 1
}
hostd_crash() { hostd_kill && hostd_start; }
hostd_stop() { # as an operator does
        local pid
        pid=$(hostd_pid)
        if systemd_is_up; then systemctl stop hostd.service; else kill "$pid"; fi
        for _ in $(seq 500); do
                [ -d "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null || return 0
                sleep 0.02
        done
        return 1
}
