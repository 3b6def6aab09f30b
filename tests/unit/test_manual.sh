#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What is generated from the method table is what is committed: docs/api.md, the commands of hostctl(1), and the completion parses.
# `tests/unit/test_manual.sh --update` in the build directory, with srcdir set, writes the files anew.
set -eu
srcdir=${srcdir:-.}
hostctl=${HOSTCTL:-./hostctl}
api=$srcdir/docs/api.md man=$srcdir/docs/man/hostctl.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$hostctl" manual >"$work/api.md"
{
        sed '/^\.\\" begin commands/q' "$man"
        echo '.Bl -tag -width Ds'
        "$hostctl" manual --mdoc
        echo '.El'
        sed -n '/^\.\\" end commands/,$p' "$man"
} >"$work/hostctl.1"
if [ "${1:-}" = --update ]; then
        cp "$work/api.md" "$api"
        cp "$work/hostctl.1" "$man"
fi
"$hostctl" completion >"$work/completion"
failed=0
diff -u "$api" "$work/api.md" || failed=1
diff -u "$man" "$work/hostctl.1" || failed=1
if command -v bash >/dev/null; then
        bash -n "$work/completion" || failed=1
fi
if command -v mandoc >/dev/null; then
        mandoc -T lint -W error "$man" || failed=1
fi
[ $failed = 0 ] || echo "run tests/unit/test_manual.sh --update and commit the result"
exit $failed
