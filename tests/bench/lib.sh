# SPDX-License-Identifier: GPL-2.0-or-later
# Measuring: reading hostd's numbers, statistics, lines. Sourced by run.

note() { printf '%s\n' "$*" >&2; }
skip() { printf 'SKIP: %s: %s\n' "$1" "$2"; }
failed() { printf 'bench: %s\n' "$*" >&2; failures=$((failures + 1)); }
fail() { failed "$@"; exit 1; }

# The process behind the socket, as the kernel names it; with socket activation that is systemd, which knows the pid of the service.
hostd_pid() {
        python3 - "$HOSTD_SOCKET" <<'P'
import socket, struct, subprocess, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
pid = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
if pid == 1:
    pid = int(subprocess.run(["systemctl", "show", "-P", "MainPID", "hostd"], capture_output=True, text=True).stdout or 0)
print(pid)
P
}

rss_kib() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$1/status"; }
cpu_ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }
count_fds() { find "/proc/$1/fd" -mindepth 1 -maxdepth 1 | wc -l; }

# What `hostctl leaks` may not know of: counted before and after, whatever it is.
count_kernel() {
        local groups mounts links
        groups=$(find /sys/fs/cgroup -path '*/hostd*' -type d 2>/dev/null | wc -l)
        mounts=$(wc -l </proc/self/mountinfo)
        links=$(ls /sys/class/net | wc -l)
        echo $((groups + mounts + links))
}

# line NAME VALUE UNIT PEER N P99 LIMIT: PEER and P99 may be "-" or empty. LIMIT is ratio:N, max:N or "-".
line() {
        awk -v name="$1" -v value="$2" -v unit="$3" -v peer="${4:--}" -v n="$5" -v p99="${6:--}" -v limit="${7:--}" 'BEGIN {
                ratio = peer == "-" || peer == 0 ? "-" : sprintf("%.3f", value / peer)
                split(limit, l, ":")
                met = limit == "-" ? "-" : l[1] == "ratio" ? (ratio == "-" ? "-" : ratio + 0 <= l[2] + 0 ? "yes" : "no") : value + 0 <= l[2] + 0 ? "yes" : "no"
                printf "bench %s value=%s unit=%s peer=%s ratio=%s n=%s p99=%s limit=%s met=%s\n", name, value, unit, peer, ratio, n, p99, limit, met
        }'
}

# percentile FILE LABEL PERCENT DIVISOR: the nearest rank; nothing when there are no samples
percentile() {
        awk -v l="$2" '$1 == l { print $2 }' "$1" | sort -n |
                awk -v p="$3" -v d="$4" '{ v[NR] = $1 } END { if (NR) { i = int((NR * p + 99) / 100); printf "%.2f", v[i < 1 ? 1 : i] / d } }'
}

# report NAME UNIT DIVISOR LIMIT FILE LABEL PEER-LABEL: median against median
report() {
        local value
        value=$(percentile "$5" "$6" 50 "$3")
        if [ -z "$value" ]; then failed "$1: no sample"; return; fi
        line "$1" "$value" "$2" "$(percentile "$5" "$7" 50 "$3")" "$(grep -c "^$6 " "$5")" "$(percentile "$5" "$6" 99 "$3")" "$4"
}

# The smallest root with an init: the same tree becomes hostd's template and the peer's image.
tiny_root() { # DIRECTORY
        local busybox a
        busybox=$(command -v busybox) || return 1
        mkdir -p "$1"/{bin,sbin,etc,proc,sys,dev,tmp,root,run,var/log,usr/bin,mnt,home}
        cp "$busybox" "$1/bin/busybox"
        for a in sh true sleep ls cat mount ip; do ln -sf busybox "$1/bin/$a"; done
        ln -sf ../bin/busybox "$1/sbin/init"
        printf '::sysinit:/bin/true\n' >"$1/etc/inittab"
        printf 'root:x:0:0:root:/root:/bin/sh\n' >"$1/etc/passwd"
        printf 'root:x:0:\n' >"$1/etc/group"
}

# The same with bubblewrap of this machine, and an agent with ids of its own.
box_root() { # DIRECTORY
        local lib
        tiny_root "$1" && cp "$(command -v bwrap)" "$1/usr/bin/bwrap" || return 1
        for lib in $(ldd "$(command -v bwrap)" | grep -o '/[^ ]*'); do mkdir -p "$1$(dirname "$lib")" && cp -L "$lib" "$1$lib" || return 1; done
        ln -sf busybox "$1/bin/echo"
        mkdir -p "$1/var/tmp" "$1/media"
        printf 'agent:x:1000:1000::/home/agent:/bin/sh\n' >>"$1/etc/passwd"
        printf 'agent:x:1000:\n' >>"$1/etc/group"
        printf 'agent:100000:65536\n' | tee "$1/etc/subuid" >"$1/etc/subgid"
}

# The tree of a template that hostd has, by mounting its image where only this process looks.
template_tree() { # NAME DIRECTORY
        local digest image
        digest=$(hostctl template list -f csv -c name,digest | tr -d '\r' | awk -F, -v n="$1" '$1 == n { print $2; exit }')
        image=$(find "$(state_directory)/templates" -name "$digest.erofs" 2>/dev/null)
        [ -n "$digest" ] && [ -f "$image" ] && mkdir -p "$2" && mount -o ro,loop "$image" "$2"
}

state_directory() {
        tr '\0' '\n' <"/proc/$pid/cmdline" | awk 'found { print; exit } $0 == "--state-dir" { found = 1 } END { if (!found) print "/var/lib/hostd" }'
}

# have_root NAME: the template is there, and so is the peer's image of it
have_root() {
        hostctl template show "$1" >/dev/null 2>&1 || return 1
        $peer || return 0
        peer_incus image show "$1" >/dev/null 2>&1 && return 0
        if [ "$1" = bench-tiny ]; then
                peer_image "$1" "$work/tiny" || fail "the peer did not take the image $1"
                return 0
        fi
        template_tree "$1" "$work/tree" && peer_image "$1" "$work/tree"
        local status=$?
        umount "$work/tree" 2>/dev/null
        [ $status -eq 0 ] || skip "$1" "the peer did not take its image"
        return $status
}

setup() {
        [ "$(id -u)" = 0 ] || fail "must run as root"
        hostctl info >/dev/null || fail "no hostd answers at $HOSTD_SOCKET: run ./quickstart first"
        pid=$(hostd_pid)
        [ -d "/proc/$pid" ] || fail "hostd's process was not found"
        sweep
        tiny_root "$work/tiny" || fail "busybox is not installed (package busybox-static)"
        hostctl template import bench-tiny "$work/tiny" >>"$log" 2>&1 || fail "the template bench-tiny was refused: $(tail -1 "$log")"
        peer=false
        case " $benches " in
        *" launch "* | *" exec "* | *" delete "* | *" resident "*)
                if [ "${BENCH_PEER:-yes}" = no ]; then
                        skip peer "BENCH_PEER=no"
                elif peer_start; then
                        peer=true
                        have_root bench-tiny
                else
                        skip peer "$peer_reason"
                fi
                ;;
        esac
}

# Everything of ours that an interrupted run left.
sweep() {
        local names policies
        names=$(hostctl list -f csv -c name | tr -d '\r' | grep "^$prefix" | tr '\n' ' ')
        [ -z "$names" ] || hostctl delete --force $names >>"$log" 2>&1
        for policies in bench-load bench-rules; do hostctl policy delete $policies >>"$log" 2>&1; done
        hostctl template delete bench-tiny >>"$log" 2>&1
        hostctl template delete bench-box >>"$log" 2>&1
        foreign_remove
        rm -rf "$(state_directory)"/bench.??????
}

teardown() {
        trap - EXIT
        sweep
        peer_stop
        if $keep; then note "kept: $work"; else rm -rf "$work"; fi
        exit "${1:-0}"
}

machine() {
        printf 'machine: %s, kernel %s, %s cpus, %s MiB, state on %s, hostd %s KiB resident\n' "$(. /etc/os-release; echo "$PRETTY_NAME")" "$(uname -r)" \
                "$(nproc)" "$(awk '$1 == "MemTotal:" { print int($2 / 1024) }' /proc/meminfo)" "$(findmnt -no FSTYPE -T "$(state_directory)")" "$(rss_kib "$pid")"
}

main() {
        local b all="launch exec delete resident list policy policy-names resolve splice intercept rotate file-io sandbox cycles"
        keep=false benches= peer=false
        for b in "$@"; do
                [ "$b" = --keep ] && keep=true && continue
                case " $all " in
                *" $b "*) benches="$benches $b" ;;
                *) printf 'usage: sudo tests/bench/run [--keep] [%s]...\n' "${all// /|}" >&2; exit 2 ;;
                esac
        done
        benches="${benches:-$all} "
        trap 'teardown 1' EXIT
        trap 'exit 130' INT TERM
        setup
        machine
        for b in $benches; do "bench_$b"; done
        six_gone
        teardown $((failures > 0))
}
