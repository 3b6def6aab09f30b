#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The life of an instance's HAProxy (interceptor.c), with users that exist in this test's mount namespace only.
# usage: interceptor.sh [BUILD_DIR or path of interceptor]
program=${1:-.}
[ -d "$program" ] && program=$program/tests/integration/interceptor
skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ -x "$program" ] || skip "no interceptor at $program (make check builds it)"
[ "$(id -u)" = 0 ] || skip "needs root"
[ -x /usr/sbin/haproxy ] || skip "no haproxy"
exec unshare -m --propagation private bash -c '
        file=$(mktemp) && { grep -v "^hostd-" /etc/passwd; echo "hostd-haproxy:x:64990:64990::/:/bin/false"; echo "hostd-proxy:x:64991:64991::/:/bin/false"; } >"$file" &&
                chmod 644 "$file" && mount --bind "$file" /etc/passwd && rm -f "$file"; exec "$1"' - "$(realpath "$program")"
