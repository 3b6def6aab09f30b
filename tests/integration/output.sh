#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Output of commands in the background, as border.sh: in a machine of its own. usage: output.sh [BUILD_DIR]
top=$(cd "$(dirname "$0")/../.." && pwd)
exec "$top/tests/integration/border.sh" "${1:-${BUILD:-$top/build}}" output
