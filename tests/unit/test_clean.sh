#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `quickstart --clean` names what it removes: nothing of what is installed stays. Runs in the build directory.
set -u
srcdir=${srcdir:-.}
[ -f "$srcdir/quickstart" ] || { echo "SKIP: this tree has no quickstart"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Where quickstart installs, whatever this build is for.
make -s install DESTDIR="$work" prefix=/usr/local sysconfdir=/etc localstatedir=/var >/dev/null 2>&1 || { echo "FAILED: it cannot be installed"; exit 1; }
installed=$(find "$work" ! -type d | wc -l)
eval "$(grep -E '^(prefix|border_units)=' "$srcdir/quickstart"; sed -n '/^remove_files() {/,/^}/p' "$srcdir/quickstart")"
remove_files "$work"
left=$(find "$work" ! -type d)
if [ "$installed" -lt 30 ] || [ -n "$left" ]; then
        echo "FAILED: of $installed files there are left:"
        echo "$left"
        exit 1
fi
echo "$installed files: all are removed"
