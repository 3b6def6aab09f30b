#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tests/product/output.sh against a hostd in a machine of its own, in namespaces that know nothing of a hostd outside.
# usage: output.sh [BUILD_DIR]; needs root.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-${BUILD:-$top/build}}" && pwd)
power_here=$top/tests/power
. "$power_here/machine.sh"
skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
work=$(mktemp -d /var/tmp/hostd-output.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
machine_install || exit 1
machine_disk 4G || skip "no loop device"
mkdir "$work/tests"
cp -a "$top"/tests/{lib,product} "$work/tests/"
cat >"$work/inside.sh" <<'INSIDE'
set -u
mkdir -p /run/hostd
printf 'default_template = "tiny";\nallow_degraded = [ "apparmor", "disk", "inodes", "seccomp" ];\n' >/etc/hostd/hostd.conf
export HOSTD_RESTART='setsid hostd >>/srv/work/hostd.log 2>&1 </dev/null & echo $! >/run/hostd/quickstart.pid'
bash -c "$HOSTD_RESTART"
for _ in $(seq 100); do hostctl info >/dev/null 2>&1 && break; sleep 0.1; done
bash /srv/work/tests/product/output.sh
INSIDE
machine_run "$work/disk.raw" bash /srv/work/inside.sh
status=$?
[ $status -eq 0 ] || tail -n 20 "$work/hostd.log"
exit $status
