// SPDX-License-Identifier: GPL-2.0-or-later
// Disk tree: removes what a guest wrote. The tree may be made to hurt (a hundred thousand levels, names of any bytes), so it is
// flattened instead of walked: whatever is two levels down moves up to the top, which never needs more than three descriptors.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#include "quotas/disk_private.h"

static DIR *tree_open(int dirfd, const char *name) {
        int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d)
                (void) close_fd(fd);
        return d;
}

static bool tree_is_dot(const char *name) {
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

// Immutable and append-only files need CAP_LINUX_IMMUTABLE, which no guest has; an administrator may have set them on the host.
static void tree_unlock(int fd) {
        int flags;

        if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & (FS_IMMUTABLE_FL | FS_APPEND_FL))) {
                flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
                (void) ioctl(fd, FS_IOC_SETFLAGS, &flags);
        }
}

// Empties `name` in `top`: directories in it move to `top` under a name that cannot be there.
static int tree_lift(int top, const char *name, uint64_t *serial) {
        DIR *d = tree_open(top, name);
        struct dirent *e;
        int r = 0;

        if (!d)
                return -errno;
        tree_unlock(dirfd(d));
        while (r == 0 && (e = readdir(d))) {
                char lifted[48];
                if (tree_is_dot(e->d_name) || unlinkat(dirfd(d), e->d_name, 0) == 0)
                        continue;
                if (errno != EISDIR && errno != EPERM)
                        r = -errno;
                else if (unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) < 0) {
                        // RENAME_NOREPLACE: the guest may have guessed the name.
                        do
                                (void) snprintf(lifted, sizeof(lifted), ".lifted-%llu", (unsigned long long) (*serial)++);
                        while ((r = renameat2(dirfd(d), e->d_name, top, lifted, RENAME_NOREPLACE) < 0 ? -errno : 0) == -EEXIST);
                }
        }
        (void) closedir(d);
        if (r == 0 && unlinkat(top, name, AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY)
                r = -errno;
        return r;
}

int disk_remove_tree(int dir, const char *name) {
        uint64_t serial = 0;
        bool found = true;
        int r = 0;

        if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        while (r == 0 && found) {
                DIR *d = tree_open(dir, name);
                struct dirent *e;
                if (!d)
                        return errno == ENOENT ? 0 : -errno;
                tree_unlock(dirfd(d));
                found = false;
                // Names that move up during the pass may or may not be seen by it: the next pass sees them.
                while (r == 0 && (e = readdir(d))) {
                        if (tree_is_dot(e->d_name))
                                continue;
                        found = true;
                        if (unlinkat(dirfd(d), e->d_name, 0) == 0 || errno == ENOENT)
                                continue;
                        r = errno != EISDIR && errno != EPERM ? -errno : tree_lift(dirfd(d), e->d_name, &serial);
                }
                (void) closedir(d);
        }
        if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                r = -errno;
        return r;
}
