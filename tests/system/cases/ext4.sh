# SPDX-License-Identifier: GPL-2.0-or-later
# Disk and inode limits where /var/lib/hostd is ext4 with project quotas.
# LIMIT: 600
# FROM: boot
. tests/system/lib.sh
ext4_up
hostctl doctor -f csv -c protection,state | tr -d '\r' | grep -x 'disk,enforced'
hostctl doctor -f csv -c protection,state | tr -d '\r' | grep -x 'inodes,enforced'
hostctl create agent a -s memory=512MiB -s pids=256 -s disk=300MiB -s inodes=10000
hostctl create agent b -s memory=512MiB -s pids=256 -s disk=300MiB -s inodes=10000
hostctl start a
hostctl start b
disk
refused hostctl exec a -- dd if=/dev/zero of=/var/tmp/full bs=1M count=400 # nor is root of the guest above the limit
hostctl exec a -- rm -f /var/tmp/full
inodes
hostctl set a disk=400MiB
[ "$(hostctl exec a -- df -m --output=size / | tail -n 1 | tr -d ' ')" -ge 390 ]
hostctl delete --force a
hostctl leaks
