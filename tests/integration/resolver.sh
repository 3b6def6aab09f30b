#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# hostd-resolver without hostd: guests, name servers and attackers in namespaces of its own. Nothing of the machine's network is touched.
# usage: resolver.sh [BUILD_DIR or path of hostd-resolver]
here=$(cd "$(dirname "$0")" && pwd)
program=${1:-.}
[ -d "$program" ] && program=$program/hostd-resolver
[ -x "$program" ] || { echo "SKIP: no hostd-resolver at $program (make builds it)"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "SKIP: needs root"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
for tool in python3 ip unshare setpriv; do
        command -v $tool >/dev/null || { echo "SKIP: no $tool"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
done
program=$(realpath "$program")
exec unshare -n -m -p -f --kill-child --propagation private bash -c '
mount -t proc proc /proc && mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 none /run && mkdir /run/netns /run/hostd || exit 1
exec python3 "$@"' - "$here/resolver_test.py" "$program"
