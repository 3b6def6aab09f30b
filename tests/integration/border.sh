#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tests/product/border.sh against a hostd in a machine of its own: names end to end without a hostd outside, in namespaces that know nothing
# of this host's network. usage: border.sh [BUILD_DIR [NAME...]]; needs root. NAME: another one of the product tests in its place.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-${BUILD:-$top/build}}" && pwd)
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- border
power_here=$top/tests/power
. "$power_here/machine.sh"
skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
work=$(mktemp -d /var/tmp/hostd-border.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
machine_install || exit 1
machine_disk 10G || skip "no loop device"
mkdir "$work/tests"
cp -a "$top"/tests/{lib,product,border} "$work/tests/"
cat >"$work/inside.sh" <<'INSIDE'
set -u
mkdir -p /run/hostd
printf 'default_template = "tiny";\nallow_degraded = [ "apparmor", "disk", "inodes", "seccomp" ];\n' >/etc/hostd/hostd.conf
export HOSTD_RESTART='setsid hostd >>/srv/work/hostd.log 2>&1 </dev/null & echo $! >/run/hostd/quickstart.pid'
bash -c "$HOSTD_RESTART"
for _ in $(seq 100); do hostctl info >/dev/null 2>&1 && break; sleep 0.1; done
if [ -n "${DELIVER_ROOT:-}" ]; then hostctl template import clients "$DELIVER_ROOT" >/dev/null || exit 1; fi
for name in $(cat /srv/work/names); do bash /srv/work/tests/product/$name.sh; done
INSIDE
echo "$*" >"$work/names"
machine_run "$work/disk.raw" bash /srv/work/inside.sh 2>&1 | tee "$work/out" | grep -v '^[0-9]* passed, [0-9]* failed'
awk '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; s += $5; n++ } END { if (n < '$#') f++; print p + 0 " passed, " f + 0 " failed, " s + 0 " skipped"; exit f > 0 }' "$work/out"
status=$?
[ $status -eq 0 ] || tail -n 20 "$work/hostd.log"
exit $status
