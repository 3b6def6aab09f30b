// SPDX-License-Identifier: GPL-2.0-or-later
// What the file systems have to offer to disk.c. Nobody else includes it.
#pragma once

#include "base/cleanup.h"
#include "quotas/disk.h"

#define DISK_TRASH ".trash"

typedef struct DiskOps {
        const char *name;
        // Whether quotas are on at all; fills host->reason. The write probe comes after.
        bool (*is_on)(DiskHost *host);
        int (*enable)(int root_fd);
        // Makes `name` in `parent_fd` with its limit. The directory is empty or absent afterwards.
        int (*create)(const DiskHost *host, int parent_fd, const char *name, uint32_t project_id);
        int (*set)(const DiskHost *host, int fd, uint32_t project_id, const DiskUsage *limits);
        int (*usage)(const DiskHost *host, int fd, uint32_t project_id, DiskUsage *ret);
        int (*purge)(const DiskHost *host, int trash_fd, const char *name);
        bool inodes; // it can limit them
} DiskOps;

extern const DiskOps disk_btrfs_ops, disk_project_ops, disk_plain_ops;
