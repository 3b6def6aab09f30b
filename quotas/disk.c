// SPDX-License-Identifier: GPL-2.0-or-later
// Disk: one instance's directory with its limits, whatever the file system; and the trash that removal goes through.
#include "quotas/disk.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "base/io.h"
#include "base/strv.h"
#include "quotas/disk_private.h"

#define PROBE_LIMIT (4ULL << 20)
#define PROBE_PROJECT 0x7ffffff0u // above what the registry of project ids gives out

static const struct {
        uint32_t magic;
        const char *name;
        const DiskOps *ops;
} disk_kinds[_DISK_KIND_MAX] = {
        [DISK_NONE] = {0, "other", &disk_plain_ops},
        [DISK_BTRFS] = {0x9123683E, "btrfs", &disk_btrfs_ops},
        [DISK_XFS] = {0x58465342, "xfs", &disk_project_ops},
        [DISK_EXT4] = {0xEF53, "ext4", &disk_project_ops},
};

static const DiskOps *disk_ops(const DiskHost *host) {
        return disk_kinds[host->kind].ops;
}

// Paths are made by hostd from validated names; a slip must not reach outside all the same.
static bool disk_path_is_valid(const char *path) {
        if (!path || !*path || strlen(path) > 255)
                return false;
        for (const char *p = path;; p++) {
                size_t n = strcspn(p, "/");
                if (n == 0 || strncmp(p, ".", n) == 0 || strncmp(p, "..", n) == 0)
                        return false;
                for (size_t i = 0; i < n; i++)
                        if (!isalnum((unsigned char) p[i]) && !strchr("._-", p[i]))
                                return false;
                p += n;
                if (!*p)
                        return true;
        }
}

static bool disk_name_is_valid(const char *name) {
        return disk_path_is_valid(name) && !strchr(name, '/') && name[0] != '.';
}

static int disk_open(const DiskHost *host, const char *path) {
        int fd = disk_path_is_valid(path) ? openat(host->root_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

        return fd >= 0 ? fd : disk_path_is_valid(path) ? -errno : -EINVAL;
}

static int disk_open_parent(const DiskHost *host, const char *path, const char **ret_name) {
        char parent[256];
        const char *slash = strrchr(path, '/');

        *ret_name = slash ? slash + 1 : path;
        (void) snprintf(parent, sizeof(parent), "%.*s", slash ? (int) (slash - path) : 1, slash ? path : ".");
        int fd = openat(host->root_fd, parent, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static int disk_open_trash(const DiskHost *host) {
        if (mkdirat(host->root_fd, DISK_TRASH, 0700) < 0) {
                if (errno != EEXIST)
                        return -errno;
        } else if (fsync(host->root_fd) < 0)
                return -errno;
        int fd = openat(host->root_fd, DISK_TRASH, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static int disk_check(const DiskHost *host, uint64_t bytes, uint64_t inodes, Error *err) {
        if (bytes != UINT64_MAX && !host->bytes)
                return error_set(err, ERR_DEGRADED, "disk cannot be enforced here: %s; or name \"disk\" in allow_degraded",
                                 host->reason);
        if (inodes != UINT64_MAX && !host->inodes)
                return error_set(err, ERR_DEGRADED, "inodes cannot be enforced here: %s; or name \"inodes\" in allow_degraded",
                                 host->bytes && host->kind == DISK_BTRFS ? "btrfs does not limit them" : host->reason);
        return 0;
}

static int disk_make(const DiskHost *host, const char *path, uint32_t project_id, const DiskUsage *limits) {
        const char *name;
        _cleanup_close_ int parent = disk_open_parent(host, path, &name), fd = -EBADF;
        int r;

        if (parent < 0)
                return parent;
        // ext4 without the feature takes no project id; a subvolume is worth having (it is removed at once) with quotas or without.
        bool own = host->bytes || host->inodes || host->kind == DISK_BTRFS;
        r = (own ? disk_ops(host) : &disk_plain_ops)->create(host, parent, name, project_id);
        if (r == -EEXIST || r == -ENOENT)
                return r;
        if (r == 0) {
                fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                r = fd < 0 ? -errno : 0;
        }
        if (r == 0 && (host->bytes || host->inodes))
                r = disk_ops(host)->set(host, fd, project_id, limits);
        // The name must be there after a power cut before anybody says that the instance is.
        if (r == 0 && (fsync(fd) < 0 || fsync(parent) < 0))
                r = -errno;
        if (r < 0) // it is empty, so removal is quick
                (void) disk_ops(host)->purge(host, parent, name);
        return r;
}

int disk_create(const DiskHost *host, const char *path, uint32_t project_id, uint64_t bytes, uint64_t inodes, Error *err) {
        const DiskUsage limits = {.bytes_max = bytes, .inodes_max = inodes};
        int r = disk_check(host, bytes, inodes, err);

        if (r < 0)
                return r;
        if (!disk_path_is_valid(path))
                return error_set(err, ERR_INVALID, "the path of a disk is not valid");
        r = disk_make(host, path, project_id, &limits);
        if (r == -EEXIST)
                return error_set(err, ERR_EXISTS, "%s exists already", path);
        return r < 0 ? error_set_errno(err, r, "making %s with its limits", path) : 0;
}

int disk_set(const DiskHost *host, const char *path, uint32_t project_id, uint64_t bytes, uint64_t inodes, Error *err) {
        const DiskUsage limits = {.bytes_max = bytes, .inodes_max = inodes};
        int r = disk_check(host, bytes, inodes, err);

        if (r < 0 || (!host->bytes && !host->inodes))
                return r;
        _cleanup_close_ int fd = disk_open(host, path);
        r = fd < 0 ? fd : disk_ops(host)->set(host, fd, project_id, &limits);
        return r < 0 ? error_set_errno(err, r, "setting the limits of %s", path) : 0;
}

int disk_usage(const DiskHost *host, const char *path, uint32_t project_id, DiskUsage *ret, Error *err) {
        _cleanup_close_ int fd = disk_open(host, path);
        int r = fd < 0 ? fd : host->bytes || host->inodes ? disk_ops(host)->usage(host, fd, project_id, ret)
                                                          : disk_plain_ops.usage(host, fd, project_id, ret);

        return r < 0 ? error_set_errno(err, r, "reading the usage of %s", path) : 0;
}

int disk_remove(const DiskHost *host, const char *path, const char *trash_name, Error *err) {
        const char *name;
        int r;

        if (!disk_path_is_valid(path) || !disk_name_is_valid(trash_name))
                return error_set(err, ERR_INVALID, "the path of a disk or its name in the trash is not valid");
        _cleanup_close_ int trash = disk_open_trash(host), parent = disk_open_parent(host, path, &name);
        if (trash < 0)
                return error_set_errno(err, trash, "opening %s", DISK_TRASH);
        // Both names on disk before the record goes: storage without one would be a leak for ever.
        if (renameat2(host->root_fd, path, trash, trash_name, RENAME_NOREPLACE) == 0)
                r = fsync(trash) < 0 || (parent >= 0 && fsync(parent) < 0) ? -errno : 0;
        else
                r = errno == ENOENT ? 0 : -errno;
        return r < 0 ? error_set_errno(err, r, "moving %s to the trash", path) : 0;
}

int disk_purge(const DiskHost *host, const char *trash_name, Error *err) {
        int r;

        if (!disk_name_is_valid(trash_name))
                return error_set(err, ERR_INVALID, "the name in the trash is not valid");
        _cleanup_close_ int trash = disk_open_trash(host);
        r = trash < 0 ? trash : disk_ops(host)->purge(host, trash, trash_name);
        return r < 0 ? error_set_errno(err, r, "removing %s/%s", DISK_TRASH, trash_name) : 0;
}

int disk_trash_list(const DiskHost *host, char ***ret) {
        _cleanup_strv_ char **v = NULL;
        int fd = disk_open_trash(host), r = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *e;

        if (!d) {
                r = fd < 0 ? fd : -errno;
                (void) close_fd(fd);
                return r;
        }
        while (r == 0 && (e = readdir(d)))
                if (disk_name_is_valid(e->d_name))
                        r = strv_append(&v, e->d_name);
        (void) closedir(d);
        if (r == 0)
                *ret = TAKE_PTR(v);
        return r;
}

const char *disk_host_name(const DiskHost *host) {
        return disk_kinds[host->kind].name;
}

int disk_host_reflinks(const DiskHost *host) {
        static const char block[4096] = {1};
        _cleanup_close_ int from = openat(host->root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        _cleanup_close_ int to = openat(host->root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        if (from < 0 || to < 0)
                return errno == EOPNOTSUPP ? 0 : -errno;
        if (write(from, block, sizeof(block)) != sizeof(block))
                return -ENOSPC;
        if (ioctl(to, FICLONE, from) == 0)
                return 1;
        return errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL || errno == EXDEV ? 0 : -errno;
}

int disk_host_space(const DiskHost *host, uint64_t *ret_total, uint64_t *ret_free) {
        struct statvfs fs;

        if (fstatvfs(host->root_fd, &fs) < 0)
                return -errno;
        *ret_total = (uint64_t) fs.f_blocks * fs.f_frsize;
        *ret_free = (uint64_t) fs.f_bavail * fs.f_frsize;
        return 0;
}

// Writes more than the limit into `fd`: true if it is stopped.
static bool probe_is_stopped(int fd) {
        static const char block[64 << 10];
        _cleanup_close_ int file = openat(fd, "probe", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

        for (uint64_t n = 0; file >= 0 && n < PROBE_LIMIT * 2; n += sizeof(block))
                if (write(file, block, sizeof(block)) < 0)
                        return errno == EDQUOT || errno == ENOSPC;
        return file < 0 && errno == EDQUOT;
}

// ext4 lets CAP_SYS_RESOURCE over every limit. The overlays of instances write without it, whoever mounted them, and so must a probe.
static bool probe_is_stopped_as_guest(int fd) {
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct had[_LINUX_CAPABILITY_U32S_3], less[_LINUX_CAPABILITY_U32S_3];
        bool stopped;

        if (syscall(SYS_capget, &header, had) < 0)
                return false;
        memcpy(less, had, sizeof(less));
        less[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective &= ~CAP_TO_MASK(CAP_SYS_RESOURCE);
        if (syscall(SYS_capset, &header, less) < 0)
                return false;
        stopped = probe_is_stopped(fd);
        return syscall(SYS_capset, &header, had) == 0 && stopped;
}

static int disk_probe_write(DiskHost *host, Error *err) {
        const DiskUsage limits = {.bytes_max = PROBE_LIMIT, .inodes_max = UINT64_MAX};
        static const char name[] = ".quota-probe";
        uint64_t total = 0, left = 0;
        bool stopped = false;
        int r = disk_host_space(host, &total, &left);

        if (r == 0 && left < PROBE_LIMIT * 4) { // ENOSPC would pass for EDQUOT
                (void) snprintf(host->reason, sizeof(host->reason), "the file system is too full to try its quotas");
                return 0;
        }
        (void) disk_ops(host)->purge(host, host->root_fd, name); // of a probe that was killed
        host->bytes = true; // for the calls below
        if (r == 0)
                r = disk_make(host, name, PROBE_PROJECT, &limits);
        if (r == 0) {
                _cleanup_close_ int fd = openat(host->root_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                stopped = fd >= 0 && probe_is_stopped_as_guest(fd);
                fd = close_fd(fd); // btrfs keeps a subvolume until nobody has it open
                int k = disk_ops(host)->purge(host, host->root_fd, name);
                if (k < 0)
                        return error_set_errno(err, k, "removing the probe of disk quotas");
        }
        host->bytes = stopped;
        host->inodes = stopped && disk_ops(host)->inodes;
        if (r < 0)
                (void) snprintf(host->reason, sizeof(host->reason), "a limit could not be set: %s", strerror(-r));
        else if (!stopped)
                (void) snprintf(host->reason, sizeof(host->reason), "a write over the limit was not stopped");
        return 0;
}

static DiskKind disk_kind(int root_fd) {
        struct statfs fs;

        if (fstatfs(root_fd, &fs) == 0)
                for (int i = DISK_NONE + 1; i < _DISK_KIND_MAX; i++)
                        if ((uint32_t) fs.f_type == disk_kinds[i].magic)
                                return i;
        return DISK_NONE;
}

int disk_host_probe(int root_fd, DiskHost *ret, Error *err) {
        DiskHost host = {.root_fd = root_fd, .kind = disk_kind(root_fd)};
        int r = disk_ops(&host)->is_on(&host) ? disk_probe_write(&host, err) : 0;

        if (r < 0)
                return r;
        *ret = host;
        return 0;
}

int disk_host_enable(int root_fd, Error *err) {
        DiskHost host = {.root_fd = root_fd, .kind = disk_kind(root_fd)};
        int r;

        if (disk_ops(&host)->is_on(&host))
                return 0;
        r = disk_ops(&host)->enable(root_fd);
        if (r == -EOPNOTSUPP)
                return error_set(err, ERR_DEGRADED, "disk quotas cannot be switched on from here: %s", host.reason);
        return r < 0 ? error_set_errno(err, r, "switching disk quotas on") : 0;
}
