#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The network fence against real packets, in namespaces of its own: nothing of the machine's network is touched.
# usage: network.sh [path of network_driver [SUITE]]; SUITE: a program of this directory (default network_attack.py)
here=$(cd "$(dirname "$0")" && pwd)
driver=${1:-.}
[ -d "$driver" ] && driver=$driver/tests/integration/network_driver
[ -x "$driver" ] || { echo "SKIP: no network_driver at $driver (make check builds it)"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "SKIP: needs root"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
for tool in python3 ip nft unshare; do
        command -v $tool >/dev/null || { echo "SKIP: no $tool"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
done
driver=$(realpath "$driver")
exec unshare -n -m --propagation private bash -c 'mkdir -p /run/netns && mount -t tmpfs none /run/netns && mount -t tmpfs none /etc/sysctl.d; mount --bind /dev/null /etc/sysctl.conf; mount -t sysfs none /sys; exec python3 "$@"' - "$here/${2:-network_attack.py}" "$driver"
