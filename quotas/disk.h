// SPDX-License-Identifier: GPL-2.0-or-later
// Disk: an instance's directory with its disk quota: btrfs subvolume and qgroup, or a directory with a project id on xfs and ext4.
//
// The directory is made with its limit before anything is written into it. Removal is two steps: disk_remove() renames into
// .trash (fast, atomic), disk_purge() frees the space (slow, run as a job); until then the space counts as promised.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum DiskKind { DISK_NONE, DISK_BTRFS, DISK_XFS, DISK_EXT4, _DISK_KIND_MAX } DiskKind;

typedef struct DiskHost {
        int root_fd;        // /var/lib/hostd, borrowed
        DiskKind kind;      // file system type; DISK_NONE for others
        bool bytes, inodes; // what can be enforced here, seen by a probe
        char reason[160];   // why not, and the fix
} DiskHost;

// Makes a small probe directory below root_fd, writes over its limit and removes it: what it reports was seen to hold.
int disk_host_probe(int root_fd, DiskHost *ret, Error *err);
// Switches quotas on where that is possible on a mounted file system (btrfs). Blocks while what exists is counted. The probe tells
// whether it helped.
int disk_host_enable(int root_fd, Error *err);
const char *disk_host_name(const DiskHost *host); // of the file system's type: xfs, ext4, btrfs or other
// Whether files can share their blocks (seen by a try): 1, 0, or a negative errno when that cannot be told, as on a full disk.
int disk_host_reflinks(const DiskHost *host);
int disk_host_space(const DiskHost *host, uint64_t *ret_total, uint64_t *ret_free);

// path is relative to root_fd ("instances/NAME"). UINT64_MAX: no limit. project_id: unique, > 0, unused on btrfs.
// A limit that this host cannot enforce is ERR_DEGRADED; whoever is allowed to go without passes UINT64_MAX.
int disk_create(const DiskHost *host, const char *path, uint32_t project_id, uint64_t bytes, uint64_t inodes, Error *err);
int disk_set(const DiskHost *host, const char *path, uint32_t project_id, uint64_t bytes, uint64_t inodes, Error *err);
typedef struct DiskUsage { uint64_t bytes, bytes_max, inodes, inodes_max; } DiskUsage; // UINT64_MAX: unknown or no limit
int disk_usage(const DiskHost *host, const char *path, uint32_t project_id, DiskUsage *ret, Error *err);
int disk_remove(const DiskHost *host, const char *path, const char *trash_name, Error *err); // absent is success
// Blocks until the space is back (btrfs: the cleaner passed). For a forked child.
// The project id is read from the tree itself and its limits are taken back.
int disk_purge(const DiskHost *host, const char *trash_name, Error *err);
int disk_trash_list(const DiskHost *host, char ***ret);
// Removes a tree that a guest wrote, whatever its depth, with a bounded number of descriptors and no recursion. Absent is success.
int disk_remove_tree(int dirfd, const char *name);
