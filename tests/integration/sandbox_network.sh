#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The network of sandboxes as hostd makes it, in a network namespace of its own.
# usage: sandbox_network.sh [build directory]
program=$(realpath "${1:-.}")/tests/integration/sandbox_network
[ -x "$program" ] || { echo "SKIP: no $program (make check builds it)"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "SKIP: needs root"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
exec unshare -n -m --propagation private bash -c 'mount -t sysfs none /sys; exec "$@"' - "$program"
