#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# The helper in namespaces, driven as hostd drives it. BUILDDIR: where it was built (default: the current directory).
cd "${BUILDDIR:-.}" || exit 1
exec timeout $((150 * ${HOSTD_TEST_SLOW:-1})) ./tests/integration/guest ./hostd-guest
