#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# hostd-proxy between a real client and real servers, in namespaces of its own, with a hostd and a resolver that the test plays itself.
# usage: proxy.sh [BUILD_DIR [CASE...]]; the case "bench", which has to be named, prints how long a spliced stream and a direct one take.
here=$(cd "$(dirname "$0")" && pwd)
proxy=$(realpath "${1:-.}/hostd-proxy" 2>/dev/null)
[ $# = 0 ] || shift
skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ -x "$proxy" ] || skip "no hostd-proxy was built"
[ "$(id -u)" = 0 ] || skip "needs root"
for tool in python3 ip ss nft unshare curl openssl setpriv haproxy; do
        command -v $tool >/dev/null || [ -x /usr/sbin/$tool ] || skip "no $tool"
done
# hostd's own directory below /run is hidden, so nothing here can meet a hostd of this machine.
exec unshare -n -m -p --fork --kill-child --propagation private bash -c '
        mount -t proc proc /proc && mount -t tmpfs -o mode=755 none /run && mkdir -p /run/netns /run/hostd && mount -t sysfs none /sys &&
        exec python3 "$@"' - "$here/proxy_test.py" "$proxy" "$@"
