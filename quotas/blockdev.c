// SPDX-License-Identifier: GPL-2.0-or-later
// Blockdev: see blockdev.h.
#include "quotas/blockdev.h"

#include <linux/btrfs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "base/io.h"

#define BTRFS_MAGIC 0x9123683E

// btrfs shows an anonymous st_dev; its devices are asked for by number.
static int blockdev_of_btrfs(int fd, dev_t *ret, size_t max) {
        struct btrfs_ioctl_fs_info_args info = {0};
        size_t n = 0;

        if (ioctl(fd, BTRFS_IOC_FS_INFO, &info) < 0)
                return -errno;
        for (uint64_t id = 1; id <= info.max_id && n < max; id++) {
                struct btrfs_ioctl_dev_info_args dev = {.devid = id};
                char path[sizeof(dev.path) + 1];
                struct stat st;
                if (ioctl(fd, BTRFS_IOC_DEV_INFO, &dev) < 0)
                        continue; // a hole in the numbering
                memcpy(path, dev.path, sizeof(dev.path));
                path[sizeof(dev.path)] = 0;
                if (stat(path, &st) == 0 && S_ISBLK(st.st_mode))
                        ret[n++] = st.st_rdev;
        }
        return n ? (int) n : -ENODEV;
}

int blockdev_of(int dirfd, dev_t *ret, size_t max) {
        struct statfs fs;
        struct stat st;

        if (fstatfs(dirfd, &fs) < 0 || fstat(dirfd, &st) < 0)
                return -errno;
        if (fs.f_type == BTRFS_MAGIC)
                return blockdev_of_btrfs(dirfd, ret, max);
        if (major(st.st_dev) == 0)
                return -ENODEV;
        ret[0] = st.st_dev;
        return 1;
}

int blockdev_whole(int sysfs_fd, dev_t device, dev_t *ret) {
        _cleanup_free_ char *text = NULL;
        char path[96];
        unsigned a, b;
        int r;

        (void) snprintf(path, sizeof(path), "dev/block/%u:%u/partition", major(device), minor(device));
        if (faccessat(sysfs_fd, path, F_OK, 0) < 0) {
                *ret = device;
                return 0;
        }
        // The link leads to …/sda/sda1; ".." of that is the disk.
        (void) snprintf(path, sizeof(path), "dev/block/%u:%u/../dev", major(device), minor(device));
        r = io_read_file(sysfs_fd, path, 64, &text, NULL);
        if (r < 0)
                return r;
        if (sscanf(text, "%u:%u", &a, &b) != 2)
                return -EBADMSG;
        *ret = makedev(a, b);
        return 0;
}

int blockdev_scheduler(int sysfs_fd, dev_t device, char buf[static 32]) {
        _cleanup_free_ char *text = NULL;
        char path[96], *from, *to;
        int r;

        (void) snprintf(path, sizeof(path), "dev/block/%u:%u/queue/scheduler", major(device), minor(device));
        r = io_read_file(sysfs_fd, path, 256, &text, NULL);
        if (r < 0)
                return r;
        from = strchr(text, '[');
        to = from ? strchr(from, ']') : NULL;
        if (!to || to - from > 31)
                return -ENODATA;
        *to = 0;
        (void) snprintf(buf, 32, "%s", from + 1);
        return 0;
}
