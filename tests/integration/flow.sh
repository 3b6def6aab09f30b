#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# hostd-flow against a real kernel, in namespaces of its own: real packets, real connections, its rights, what is lost, a full disk, kill -9.
# Usage: tests/integration/flow.sh [BUILD_DIR], as root.
set -eu

build=$(cd "${1:-.}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)

skip() {
        echo "SKIP: $1"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
}
[ "$(id -u)" = 0 ] || skip "needs root"
for tool in ip nft conntrack unshare setpriv python3; do
        command -v $tool >/dev/null || skip "needs $tool"
done
unshare -nm true 2>/dev/null || skip "network and mount namespaces cannot be made here"
[ -x "$build/hostd-flow" ] || { echo "no hostd-flow in $build"; exit 1; }

# The namespaces and all processes in them end with this one.
exec unshare -nmpf --kill-child --mount-proc python3 "$here/flow.py" "$build/hostd-flow"
