#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The border as it runs: hostd with its resolver, proxy, flow and HAProxy, two instances, an Internet with origins and an attacker, all in a
# machine of its own. Real clients, root inside an instance who wants out, and policies that change under load; see egress.py.
# usage: egress.sh [BUILD_DIR|installed [clients|swaps|attempts[=WHICH]|bench-intercept|bench-rotate]...]; needs root.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-${BUILD:-$top/build}}
[ "$build" = installed ] || build=$(cd "$build" && pwd)
[ $# = 0 ] || shift
power_here=$top/tests/power
. "$power_here/machine.sh"
skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
PATH=$PATH:/usr/sbin:/sbin
for tool in python3 ip nft curl openssl setpriv nsenter busybox mkfs.ext4; do command -v $tool >/dev/null || skip "no $tool"; done
work=$(mktemp -d /var/tmp/hostd-egress.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
if [ "$build" = installed ]; then mkdir "$work/install"; else machine_install || exit 1; fi
machine_disk 2G || skip "no loop device"
mkdir "$work/tests"
cp -a "$top"/tests/{lib,product,integration} "$work/tests/"
machine_run "$work/disk.raw" python3 /srv/work/tests/integration/egress.py /srv/work "$@"
status=$?
[ $status -eq 0 ] || tail -n 20 "$work/hostd.log"
exit $status
