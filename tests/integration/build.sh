#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds of templates behind the border: mmdebstrap for real, by a hostd in a machine of its own (tests/power/machine.sh) whose Internet is one
# network namespace with a name server, a mirror with Debian's own packages and a stranger. What a build reaches and what not, and that nothing of
# its network is left, however it ends. The machine's apt configuration is its own, so nothing here touches this host's.
# usage: build.sh [BUILD_DIR]; needs root, and packages (by this host's apt, kept for a day).
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-${BUILD:-$top/build}}" && pwd)
power_here=$top/tests/power
. "$power_here/machine.sh"
. "$top/tests/lib/repository.sh"
skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
for p in mmdebstrap mkfs.erofs newuidmap dnsmasq nsenter curl jq; do command -v $p >/dev/null || skip "$p is not installed"; done
cache=${HOSTD_BUILD_CACHE:-/var/cache/hostd-build}
mkdir -p "$cache"
(exec 9>"$cache/lock" && flock 9 && repository_make "$cache" >"$cache/repository.log" 2>&1 && echo "$repository_dir" >"$cache/repository.here") || skip "packages are unreachable: $(tail -n 1 "$cache/repository.log")"
work=$(mktemp -d /var/tmp/hostd-build.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
machine_install || exit 1
machine_disk 3G || skip "no loop device"
mkdir "$work/tests" "$work/repository"
cp -a "$top/tests/lib" "$top/tests/border/build_inside.sh" "$work/tests/"
cp -al "$(cat "$cache/repository.here")/." "$work/repository/" 2>/dev/null || cp -a "$(cat "$cache/repository.here")/." "$work/repository/"
machine_run "$work/disk.raw" bash /srv/work/tests/build_inside.sh
status=$?
[ $status -eq 0 ] || tail -n 30 "$work/hostd.log"
exit $status
