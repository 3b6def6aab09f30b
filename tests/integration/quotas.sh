#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Control groups and disk limits against the real kernel, as root. BUILD is the build directory (default: here).
# Project quotas of ext4 and xfs exist only in the system level's guests.
set -u
build=${BUILD:-${builddir:-.}}
passed=0 failed=0 skipped=0
for program in quotas_cgroup quotas_disk; do
        if [ ! -x "$build/tests/integration/$program" ]; then
                echo "FAIL: $build/tests/integration/$program is not built (make check TESTS=)"
                failed=$((failed + 1))
                continue
        fi
        output=$("$build/tests/integration/$program" 2>&1)
        echo "$output"
        last=$(tail -n1 <<<"$output")
        if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
                passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2])) skipped=$((skipped + BASH_REMATCH[3]))
        else
                echo "FAIL: $program ended early"
                failed=$((failed + 1))
        fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
