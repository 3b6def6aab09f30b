#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Requests, approvals and grants, and an instance's limits of the DNS, as border.sh: in a machine of their own. usage: ask.sh [BUILD_DIR]
top=$(cd "$(dirname "$0")/../.." && pwd)
exec "$top/tests/integration/border.sh" "${1:-${BUILD:-$top/build}}" ask dns
