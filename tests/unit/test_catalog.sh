#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# The journal's catalog: each message id of the source has exactly one entry with a subject and an explanation, and no entry is left
# over; the commands that entries show exist; systemd's own reader takes the file. Runs in the build directory.
set -eu
srcdir=${srcdir:-.}
catalog=$srcdir/hostd/units/hostd.catalog
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
bad() { echo "FAILED: $*"; failed=1; }

sed -n 's/^#define \(LOG_ID_[A-Z_]*\) "\([0-9a-f]*\)"$/\2 \1/p' "$srcdir/hostd/base/log.h" | sort >"$work/ids"
[ "$(wc -l <"$work/ids")" -ge 10 ] || bad "the ids are not found in log.h any more"
grep -c 'define LOG_ID_' "$srcdir/hostd/base/log.h" | grep -qx "$(wc -l <"$work/ids")" || bad "an id in log.h is no number of 128 bits in lower case"
cut -d' ' -f1 "$work/ids" >"$work/code"
sed -n 's/^-- //p' "$catalog" | sort >"$work/entries"
if ! diff "$work/code" "$work/entries" >"$work/said"; then bad "ids of the source (<) and of the catalog (>) differ:"; cat "$work/said"; fi
while read -r id name; do
        [ "${#id}" -eq 32 ] || bad "$name has no 32 digits"
        grep -rqw "$name" "$srcdir/hostd" "$srcdir/network" "$srcdir/quotas" --include='*.c' || bad "$name is used nowhere"
done <"$work/ids"

# A row for a kind that nobody warns of explains nothing.
sed -n 's/^        {"\([a-z-]*\)", LOG_.*/\1/p' "$srcdir/hostd/core/manager_warning.c" >"$work/kinds"
[ "$(wc -l <"$work/kinds")" -ge 5 ] || bad "the rows of manager_warning.c are not found"
while read -r kind; do
        grep -rqE "(manager_warn|note_failure)\(.*\"$kind\"" "$srcdir/hostd/core" --include='*.c' || bad "nobody warns of $kind"
done <"$work/kinds"

# An entry: headers, an empty line, a text.
awk '
        /^-- / { if (id) check(); id = $2; subject = by = text = 0; body = 0; next }
        /^#/ { next }
        /^$/ { if (id) body = 1; next }
        !body && /^Subject: ./ { subject++ }
        !body && /^Defined-By: hostd$/ { by++ }
        body { text++ }
        length($0) > 100 && !/^#/ { print "line " NR " is too long for a terminal" }
        END { check() }
        function check() { if (subject != 1 || by != 1 || text < 1) print "entry " id " lacks a subject, an origin or a text" }' "$catalog" >"$work/said"
if [ -s "$work/said" ]; then bad "$(cat "$work/said")"; fi

# Shown commands get as far as the socket.
grep -o 'hostctl [a-z][^;":,.]*' "$catalog" | sed 's/@HOSTD_INSTANCE@/a/g; s/REVISION/abcd/; s/SIZE/1GiB/; s/=N$/=1/; s/ *$//' | sort -u >"$work/commands"
while read -r command; do
        # shellcheck disable=SC2086
        ./hostctl --socket /nonexistent ${command#hostctl } >"$work/said" 2>&1 </dev/null || true
        grep -q 'cannot connect' "$work/said" || bad "$command: $(head -1 "$work/said")"
done <"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 8 ] || bad "the commands of the catalog are not found"

make -s install-dist_catalogDATA DESTDIR="$work/root" >/dev/null
installed=$(find "$work/root" -path '*/systemd/catalog/hostd.catalog')
[ -n "$installed" ] || bad "the catalog is not installed"
if command -v journalctl >/dev/null; then
        # Below /usr/lib, whatever the prefix of this build is.
        mkdir -p "$work/sys/usr/lib/systemd/catalog" "$work/sys/var/lib/systemd/catalog"
        cp "$installed" "$work/sys/usr/lib/systemd/catalog/"
        journalctl --root="$work/sys" --update-catalog >"$work/said" 2>&1 || { bad "journalctl refuses the catalog:"; cat "$work/said"; }
        [ ! -s "$work/said" ] || { bad "journalctl has something to say of the catalog:"; cat "$work/said"; }
        journalctl --root="$work/sys" --list-catalog | awk '{ print $1 }' | sort >"$work/listed"
        diff "$work/code" "$work/listed" >"$work/said" || { bad "journalctl reads other entries:"; cat "$work/said"; }
fi
exit $failed
