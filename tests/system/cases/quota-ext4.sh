# SPDX-License-Identifier: GPL-2.0-or-later
# Disk and inode limits against every way to get around them, by root and by the agent, on ext4.
# LIMIT: 2000
# FROM: boot
. tests/system/lib.sh
ext4_up
quota_attacks
hostctl leaks
