#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes ./configure from configure.ac.
set -e
cd "$(dirname "$0")"
exec autoreconf --force --install --warnings=all,no-obsolete
