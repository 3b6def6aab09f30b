#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# hostd-subids: what it adds on hosts of all kinds, that hostd would take it, and that nothing of others is touched.
set -eu
srcdir=${srcdir:-.}
program=$srcdir/hostd/units/hostd-subids
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
bad() { echo "FAILED: $name: $*"; failed=1; }

# host NAME SUBUID [SUBGID]: an empty root with these files
host() {
        name=$1
        rm -rf "$work/root"
        mkdir -p "$work/root/etc" "$work/root/var/lib"
        printf 'root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n' >"$work/root/etc/passwd"
        printf 'root:x:0:\nme:x:1000:\n' >"$work/root/etc/group"
        printf '%s' "$2" >"$work/root/etc/subuid"
        printf '%s' "${3-$2}" >"$work/root/etc/subgid"
        cp "$work/root/etc/subuid" "$work/subuid"
        cp "$work/root/etc/subgid" "$work/subgid"
}
add() { sh "$program" add "$work/root" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }; }
has() { grep -qx "$1" "$work/root/etc/subuid" && grep -qx "$1" "$work/root/etc/subgid" || { bad "no $1 in both files:"; cat "$work/root/etc/subuid"; }; }
# What was there is there, and after removal nothing else.
kept() {
        for f in subuid subgid; do
                [ "$(head -c "$(wc -c <"$work/$f")" "$work/root/etc/$f")" = "$(cat "$work/$f")" ] || bad "$f of others was changed"
        done
        sh "$program" remove "$work/root"
        for f in subuid subgid; do
                [ "$(cat "$work/root/etc/$f")" = "$(cat "$work/$f")" ] || { bad "remove leaves in $f:"; diff "$work/$f" "$work/root/etc/$f" || true; }
        done
}

host empty ''
add; has root:1048576:1073741824; has hostd-build:524288:65536; has hostd-haproxy:589824:1024
cp "$work/root/etc/subuid" "$work/once"; add; cmp -s "$work/once" "$work/root/etc/subuid" || bad "a second run adds something"
kept

host users 'me:100000:65536
you:165536:65536
'
add; has root:1048576:1073741824; has hostd-build:524288:65536; kept

host "a line without its end" 'me:100000:65536'
add; has me:100000:65536; has root:1048576:1073741824; kept

host "others where ours would be" 'me:524288:65536
incus:1000000:1000000000
'
add; has hostd-build:589824:65536; has hostd-haproxy:655360:1024; has root:1001390080:1073741824; kept

host "hexadecimal and octal" 'a:0x100000:65536
b:010000000:1048576
'
add; has root:3145728:1073741824; kept

host "only in one file" '' 'lab:2097152:65536
'
add; has root:3145728:1073741824; kept

host "the operator's own pool" 'root:100000000:200000000
'
add; has root:100000000:200000000; [ "$(grep -c ^root: "$work/root/etc/subuid")" -eq 1 ] || bad "a second pool"; kept

host "a pool in one file only" 'root:100000000:200000000
' ''
add; has root:100000000:200000000; kept

host "podman as root" 'root:100000:65536
'
add; has root:1048576:1073741824; has root:100000:65536; kept

host "a user among them" ''
echo 'far:x:2000000:2000000::/:/bin/sh' >>"$work/root/etc/passwd"
add; has root:2097152:1073741824; kept

host "a crowded host" 'a:1048576:3000000000
b:3300000000:900000000
'
add; has root:3002073088:268435456; kept

host "a full host" 'a:1048576:4290000000
'
if add >/dev/null; then bad "it found room"; fi
grep -q 'no 67108864 ids are free for root' "$work/said" || bad "it does not say why: $(cat "$work/said")"

exit $failed
