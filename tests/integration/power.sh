#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Power cuts: hostd creates, deletes, changes, imports, starts and rebuilds on a disk whose writes are recorded; then the disk is made
# as 50 cuts at different moments leave it, each with another part of what was not flushed, and hostd comes up on each of them.
#   tests/integration/power.sh [BUILD_DIR]
#   POWER_CUTS=50 POWER_SEED=1 POWER_FS="xfs ext4 btrfs" POWER_ROUNDS=6 POWER_KEEP=DIR
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-${BUILD:-$top/build}}
power_here=$top/tests/power
cuts=${POWER_CUTS:-50} seed=${POWER_SEED:-1} rounds=${POWER_ROUNDS:-6}
. "$top/tests/lib/tiny.sh"
. "$power_here/machine.sh"
. "$power_here/roots.sh"
passed=0 failed=0
export LC_ALL=C.UTF-8

skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
command -v qemu-storage-daemon >/dev/null || skip "qemu-storage-daemon is not installed (qemu-utils or qemu-system-common)"
qemu-storage-daemon --help | grep -q 'type=\]fuse' || skip "this qemu-storage-daemon cannot export by FUSE"
[ -c /dev/fuse ] || skip "this kernel has no FUSE"

work=$(mktemp -d /var/tmp/hostd-power.XXXXXX)
recorder_stop() {
        [ -s "$work/recorder.pid" ] || return 0
        local pid
        pid=$(cat "$work/recorder.pid")
        kill "$pid" 2>/dev/null
        for _ in $(seq 100); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
        rm -f "$work/recorder.pid"
}
trap 'recorder_stop; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

# DISK becomes a file that stands for base.raw, every write to which is also in log.raw.
recorder_start() {
        rm -f "$work/log.raw"
        truncate -s 8G "$work/log.raw"
        touch "$work/disk"
        qemu-storage-daemon --daemonize --pidfile "$work/recorder.pid" \
                --blockdev driver=file,filename="$work/base.raw",node-name=base,cache.no-flush=on \
                --blockdev driver=file,filename="$work/log.raw",node-name=log,cache.no-flush=on \
                --blockdev driver=blklogwrites,file=base,log=log,node-name=disk \
                --export type=fuse,id=e,node-name=disk,mountpoint="$work/disk",writable=on
}

record() { # FSTYPE
        rm -f "$work/base.raw"
        truncate -s 2G "$work/base.raw"
        local loop
        loop=$(losetup --show -f --offset 4194304 "$work/base.raw") || return 1
        case $1 in xfs) mkfs.xfs -q -f "$loop" ;; ext4) mkfs.ext4 -q -F "$loop" ;; btrfs) mkfs.btrfs -q -f "$loop" >/dev/null ;; esac
        local status=$?
        losetup -d "$loop"
        [ $status -eq 0 ] && recorder_start || return 1
        cp --sparse=always "$work/base.raw" "$work/first.raw"
        machine_run "$work/disk" bash /srv/power/inside.sh work /srv/image "$rounds" /srv/work/roots/{one,two,t0,t1}
        status=$?
        recorder_stop
        return $status
}

check_cuts() { # FSTYPE
        python3 - "$power_here" "$work" "$cuts" "$seed" >"$work/points" <<'P' || return 1
import sys
sys.path.insert(0, sys.argv[1])
import cut
log = sys.argv[2] + "/log.raw"
for point in cut.choose(cut.read_log(log), log, int(sys.argv[3]), int(sys.argv[4])):
    print(point)
P
        local point n=0
        for point in $(cat "$work/points"); do
                n=$((n + 1))
                how=$(python3 "$power_here/cut.py" make "$work/log.raw" "$work/first.raw" "$point" "$((seed * 1000 + n))" "$work/image.raw") || return 1
                if timeout 300 bash -c "$(declare -p work build power_here); . $power_here/machine.sh; machine_run $work/image.raw bash /srv/power/inside.sh verify /srv/image" >"$work/verify.log" 2>&1; then
                        passed=$((passed + 1))
                        echo "ok $1: cut $n at $point ($how): $(grep answered "$work/verify.log")"
                else
                        failed=$((failed + 1))
                        echo "FAIL $1: cut $n at $point ($how):"
                        grep BROKEN "$work/verify.log" | head -n 8 >"$work/short.log"
                        grep -v BROKEN "$work/verify.log" | tail -n 3 | cat "$work/short.log" - | cut -c1-400 | sed 's/^/    /'
                        [ -n "${POWER_KEEP:-}" ] && mkdir -p "$POWER_KEEP" && python3 "$power_here/cut.py" make "$work/log.raw" "$work/first.raw" "$point" "$((seed * 1000 + n))" "$POWER_KEEP/$1-$n.raw" >/dev/null && cp "$work/hostd.log" "$POWER_KEEP/$1-$n.log"
                fi
        done
}

machine_install || { echo "FAIL: make install"; exit 1; }
power_roots "$work/roots" || { echo "FAIL: the templates' roots cannot be made"; exit 1; }
for fs in ${POWER_FS:-xfs}; do
        begin=$SECONDS
        record "$fs" || { failed=$((failed + 1)); echo "FAIL $fs: the work itself failed"; tail -n 5 "$work/hostd.log"; grep git "$work/hostd.log"; continue; }
        echo "# $fs: recorded in $((SECONDS - begin)) s: $(python3 "$power_here/cut.py" show "$work/log.raw")"
        check_cuts "$fs"
        echo "# $fs: $((SECONDS - begin)) s"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
