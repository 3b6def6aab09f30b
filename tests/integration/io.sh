#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# hostd-io against a real kernel: commands that write, who reads them, a disk that is full, kill -9; files on a tmpfs of the test's own.
# Usage: tests/integration/io.sh [BUILD_DIR], as root. IO_VALGRIND=1: hostd-io under valgrind.
set -eu

build=$(cd "${1:-.}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)

skip() {
        echo "SKIP: $1"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
}
[ "$(id -u)" = 0 ] || skip "needs root"
for tool in unshare setpriv python3 mount; do
        command -v $tool >/dev/null || skip "needs $tool"
done
unshare -m true 2>/dev/null || skip "mount namespaces cannot be made here"
[ -x "$build/hostd-io" ] || { echo "no hostd-io in $build"; exit 1; }

# The namespaces and all processes in them end with this one.
exec unshare -mpf --kill-child --mount-proc bash -c 'mount -t tmpfs -o mode=755 none /run && exec python3 "$@"' - "$here/io.py" "$build/hostd-io"
