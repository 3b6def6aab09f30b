# SPDX-License-Identifier: GPL-2.0-or-later
# Disk and inode limits against every way to get around them, by root and by the agent, on xfs.
# LIMIT: 2000
. tests/system/lib.sh
quota_attacks
hostctl leaks
