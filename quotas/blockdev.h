// SPDX-License-Identifier: GPL-2.0-or-later
// Blockdev: which whole block devices a directory lives on. io.max knows whole devices only.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

// Fills at most `max` devices; returns how many. btrfs on several devices gives all of them. -ENODEV where there is none (tmpfs).
int blockdev_of(int dirfd, dev_t *ret, size_t max);
// A partition's disk (md and dm are whole devices themselves). `sysfs_fd` is /sys or a test's.
int blockdev_whole(int sysfs_fd, dev_t device, dev_t *ret);
// The active scheduler ("mq-deadline"); buf holds 32 bytes.
int blockdev_scheduler(int sysfs_fd, dev_t device, char buf[static 32]);
