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
[ -x "${program%/tests/*}/hostd-haproxy" ] || skip "no hostd-haproxy beside it"
export HOSTD_BORDER_PROGRAMS=$(realpath "${program%/tests/*}")
here=$(cd "$(dirname "$0")" && pwd)
for tool in python3 openssl ip; do command -v $tool >/dev/null || skip "no $tool"; done
exec unshare -m -n --propagation private bash -c '
        # A copy: what is mounted on a file of /etc is gone when somebody outside replaces that.
        etc=$(mktemp -d) && mount -t tmpfs none "$etc" && cp -a /etc/. "$etc" && mount --move "$etc" /etc && rmdir "$etc" || exit 1
        file=$(mktemp) && { grep -v "^hostd-" /etc/passwd; echo "hostd-haproxy:x:64990:64990::/:/bin/false"; echo "hostd-proxy:x:64991:64991::/:/bin/false"; } >"$file" &&
                chmod 644 "$file" && cp "$file" /etc/passwd && rm -f "$file"
        for f in subuid subgid; do echo hostd-haproxy:2000000:1024 >/etc/$f; done
        ip link set lo up
        # A copy, which the test upgrades.
        cp /usr/sbin/haproxy /etc/haproxy.copy && mount --bind /etc/haproxy.copy /usr/sbin/haproxy || exit 1
        dir=$(mktemp -d) && mount -t tmpfs none "$dir" && cd "$dir" && mkdir certs || exit 1
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout world.key -out certs/world.pem -subj "/CN=world" -days 2 2>/dev/null
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout origin.key -out origin.csr -subj "/CN=origin" 2>/dev/null
        openssl x509 -req -in origin.csr -CA certs/world.pem -CAkey world.key -CAcreateserial -extfile <(echo "subjectAltName=DNS:stay.example.com,DNS:come.example.com") -out origin.crt -days 2 2>/dev/null
        cat origin.crt origin.key >origin.pem
        chmod 755 certs && chmod 644 certs/world.pem && mount --bind certs /etc/ssl/certs || exit 1
        python3 "$2" origin origin.pem &
        origin=$!
        setpriv --bounding-set=-fsetid "$1" "$2" # as hostd.service has it
        status=$?
        kill $origin
        cd / && umount -l "$dir" && rmdir "$dir"
        exit $status' - "$(realpath "$program")" "$here/interceptor_net.py"
