// SPDX-License-Identifier: GPL-2.0-or-later
// Disk on ext4 and xfs: a directory with a project id that everything in it inherits, and a quota for that id. Both take the same calls
// (xfs answers the generic Q_SETQUOTA as well), by descriptor, so no mount point or device has to be found.
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "quotas/disk_private.h"

#ifndef PRJQUOTA
#define PRJQUOTA 2
#endif
#define QUOTA_BLOCK 1024 // unit of limits in struct dqblk

static int project_quotactl(int fd, int command, uint32_t id, void *argument) {
        return syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), id, argument) < 0 ? -errno : 0;
}

static bool project_is_on(DiskHost *host) {
        const char *name = host->kind == DISK_XFS ? "xfs" : "ext4";
        struct dqinfo info;
        // Not Q_GETFMT: xfs keeps its quotas to itself and answers that with ESRCH always.
        int r = project_quotactl(host->root_fd, Q_GETINFO, 0, &info);

        if (r == 0)
                return true;
        if (r == -ENOSYS || r == -EINVAL)
                (void) snprintf(host->reason, sizeof(host->reason), "this kernel has no project quotas for %s", name);
        else if (host->kind == DISK_XFS)
                (void) snprintf(host->reason, sizeof(host->reason), "project quotas are off: mount the file system with prjquota");
        else
                (void) snprintf(host->reason, sizeof(host->reason),
                                "project quotas are off: tune2fs -O project,quota -Q prjquota on the unmounted file system, "
                                "then mount it with prjquota");
        return false;
}

static int project_enable(int root_fd) {
        return -EOPNOTSUPP; // needs the file system unmounted (ext4) or mounted anew (xfs)
}

static int project_create(const DiskHost *host, int parent_fd, const char *name, uint32_t project_id) {
        struct fsxattr attr = {0};

        if (project_id == 0)
                return -EINVAL; // 0 is everything that belongs to no project
        if (mkdirat(parent_fd, name, 0711) < 0)
                return -errno;
        _cleanup_close_ int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (ioctl(fd, FS_IOC_FSGETXATTR, &attr) < 0)
                return -errno;
        attr.fsx_projid = project_id;
        attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;
        if (ioctl(fd, FS_IOC_FSSETXATTR, &attr) < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &attr) < 0)
                return -errno;
        return attr.fsx_projid == project_id && (attr.fsx_xflags & FS_XFLAG_PROJINHERIT) ? 0 : -EBADMSG;
}

static int project_set(const DiskHost *host, int fd, uint32_t project_id, const DiskUsage *limits) {
        struct dqblk quota = {.dqb_valid = QIF_LIMITS}, have = {0};
        int r;

        if (limits->bytes_max != UINT64_MAX) // never 0, which means no limit
                quota.dqb_bhardlimit = MAX2(limits->bytes_max / QUOTA_BLOCK, 1ULL);
        if (limits->inodes_max != UINT64_MAX)
                quota.dqb_ihardlimit = MAX2(limits->inodes_max, 1ULL);
        r = project_quotactl(fd, Q_SETQUOTA, project_id, &quota);
        if (r == 0)
                r = project_quotactl(fd, Q_GETQUOTA, project_id, &have);
        if (r == -ENOENT && quota.dqb_bhardlimit == 0 && quota.dqb_ihardlimit == 0)
                return 0; // xfs forgets an id with neither use nor limit
        if (r < 0)
                return r;
        return have.dqb_bhardlimit / 4 == quota.dqb_bhardlimit / 4 && have.dqb_ihardlimit == quota.dqb_ihardlimit ? 0 : -EBADMSG;
}

static int project_usage(const DiskHost *host, int fd, uint32_t project_id, DiskUsage *ret) {
        struct dqblk quota = {0};
        int r = project_quotactl(fd, Q_GETQUOTA, project_id, &quota);

        if (r < 0 && r != -ENOENT)
                return r;
        *ret = (DiskUsage) {
                .bytes = quota.dqb_curspace,
                .bytes_max = quota.dqb_bhardlimit ? quota.dqb_bhardlimit * QUOTA_BLOCK : UINT64_MAX,
                .inodes = quota.dqb_curinodes,
                .inodes_max = quota.dqb_ihardlimit ? quota.dqb_ihardlimit : UINT64_MAX,
        };
        return 0;
}

static int project_purge(const DiskHost *host, int trash_fd, const char *name) {
        static const DiskUsage none = {.bytes_max = UINT64_MAX, .inodes_max = UINT64_MAX};
        struct fsxattr attr = {0};
        _cleanup_close_ int fd = openat(trash_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int r;

        if (fd >= 0)
                (void) ioctl(fd, FS_IOC_FSGETXATTR, &attr);
        r = disk_remove_tree(trash_fd, name);
        if (r == 0 && attr.fsx_projid)
                (void) project_set(host, trash_fd, attr.fsx_projid, &none); // a limit without files harms nobody
        return r;
}

const DiskOps disk_project_ops = {
        .is_on = project_is_on,
        .enable = project_enable,
        .create = project_create,
        .set = project_set,
        .usage = project_usage,
        .purge = project_purge,
        .inodes = true,
};

// Any other file system: directories without limits, for machines whose administrator allowed that by name.

static bool plain_is_on(DiskHost *host) {
        (void) snprintf(host->reason, sizeof(host->reason),
                        "this file system has no quotas that hostd knows: use btrfs, or xfs or ext4 with prjquota");
        return false;
}

static int plain_create(const DiskHost *host, int parent_fd, const char *name, uint32_t project_id) {
        return mkdirat(parent_fd, name, 0711) < 0 ? -errno : 0;
}

static int plain_set(const DiskHost *host, int fd, uint32_t project_id, const DiskUsage *limits) {
        return 0;
}

static int plain_usage(const DiskHost *host, int fd, uint32_t project_id, DiskUsage *ret) {
        *ret = (DiskUsage) {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
        return 0;
}

static int plain_purge(const DiskHost *host, int trash_fd, const char *name) {
        return disk_remove_tree(trash_fd, name);
}

const DiskOps disk_plain_ops = {
        .is_on = plain_is_on,
        .enable = project_enable,
        .create = plain_create,
        .set = plain_set,
        .usage = plain_usage,
        .purge = plain_purge,
};
