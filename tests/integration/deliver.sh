#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What instances have of hostd's, as border.sh: in a machine of its own. usage: deliver.sh [BUILD_DIR]
# DELIVER_ROOT: an archive of a Debian that becomes the template `clients` there.
top=$(cd "$(dirname "$0")/../.." && pwd)
exec "$top/tests/integration/border.sh" "${1:-${BUILD:-$top/build}}" deliver
