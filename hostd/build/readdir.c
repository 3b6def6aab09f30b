// SPDX-License-Identifier: GPL-2.0-or-later
// The writing half of unpack.h: a directory becomes a tar stream, so that there is one reader of trees from outside.
#include "build/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

typedef struct Packer {
        struct archive *archive;
        struct archive_entry_linkresolver *links;
        uint64_t mount;
        unsigned depth;
} Packer;

static int packer_error(const Packer *p, const char *path, Error *err) {
        // A reader that went away has a better reason than we.
        return error_set(err, archive_errno(p->archive) == EPIPE ? ERR_CANCELLED : ERR_UNAVAILABLE, "cannot pack %s: %s", path,
                         archive_error_string(p->archive) ?: "?");
}

static int packer_data(Packer *p, int fd, const char *path, int64_t size, Error *err) {
        char buf[65536];
        int64_t left = size;

        while (left > 0) {
                ssize_t n = read(fd, buf, (size_t) MIN2(left, (int64_t) sizeof(buf)));
                if (n < 0)
                        return error_set_errno(err, errno, "cannot read %s", path);
                if (n == 0)
                        return error_set(err, ERR_CONFLICT, "%s became shorter while it was read", path);
                if (archive_write_data(p->archive, buf, (size_t) n) < 0)
                        return packer_error(p, path, err);
                left -= n;
        }
        return 0;
}

static int packer_write(Packer *p, struct archive_entry *entry, int fd, const char *path, Error *err) {
        struct archive_entry *spare = NULL;
        struct stat st = *archive_entry_stat(entry);

        // Turns later names of one inode into hard links.
        archive_entry_linkify(p->links, &entry, &spare);
        if (!entry)
                return 0;
        if (archive_write_header(p->archive, entry) < ARCHIVE_WARN)
                return packer_error(p, path, err);
        if (!S_ISREG(st.st_mode) || archive_entry_hardlink(entry))
                return 0;
        return packer_data(p, fd, path, st.st_size, err);
}

static int packer_directory(Packer *p, int dir, const char *path, Error *err);

// What is mounted below is not packed. The device is no measure of that: on an overlay files have that of their layer, and a subvolume
// of btrfs has one of its own.
static int mount_of(int dir, const char *name, uint64_t *ret) {
        struct statx st;

        if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID, &st) < 0)
                return -errno;
        *ret = st.stx_mnt_id;
        return 0;
}

static int packer_entry(Packer *p, int dir, const char *name, const char *path, Error *err) {
        struct archive_entry *entry = archive_entry_new();
        _cleanup_close_ int fd = -EBADF;
        char target[4096];
        struct stat st;
        uint64_t mount = 0;
        ssize_t n;
        int r = 0;

        if (!entry)
                return error_set_errno(err, ENOMEM, "packing");
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || mount_of(dir, name, &mount) < 0)
                r = error_set_errno(err, errno, "cannot look at %s", path);
        else if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
                fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
                if (fd < 0 || fstat(fd, &st) < 0)
                        r = error_set_errno(err, errno, "cannot read %s", path);
                else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
                        r = error_set(err, ERR_CONFLICT, "%s changed while it was read", path);
        }
        if (r >= 0 && mount == p->mount) {
                archive_entry_copy_stat(entry, &st);
                archive_entry_set_pathname(entry, path);
                if (S_ISLNK(st.st_mode)) {
                        n = readlinkat(dir, name, target, sizeof(target) - 1);
                        target[n < 0 ? 0 : n] = 0;
                        archive_entry_set_symlink(entry, target);
                }
                n = S_ISREG(st.st_mode) ? fgetxattr(fd, "security.capability", target, sizeof(target)) : -1;
                if (n > 0)
                        archive_entry_xattr_add_entry(entry, "security.capability", target, (size_t) n);
                r = packer_write(p, entry, fd, path, err);
                if (r >= 0 && S_ISDIR(st.st_mode))
                        r = packer_directory(p, fd, path, err);
        }
        archive_entry_free(entry);
        return r;
}

static int packer_directory(Packer *p, int dir, const char *path, Error *err) {
        struct dirent **names = NULL;
        int n, r = 0;

        if (p->depth >= 128)
                return error_set(err, ERR_INVALID, "%s lies too deep", path);
        n = scandirat(dir, ".", &names, NULL, alphasort);
        if (n < 0)
                return error_set_errno(err, errno, "cannot list %s", path);
        p->depth++;
        for (int i = 0; i < n; i++) {
                const char *name = names[i]->d_name;
                _cleanup_free_ char *child = NULL;
                if (r >= 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
                        if (asprintf(&child, "%s/%s", path, name) < 0)
                                child = NULL, r = error_set_errno(err, ENOMEM, "packing");
                        else
                                r = packer_entry(p, dir, name, child, err);
                }
                free(names[i]);
        }
        free(names);
        p->depth--;
        return r;
}

int unpack_pack_directory(int dir, int fd, Error *err) {
        Packer p = {.archive = archive_write_new(), .links = archive_entry_linkresolver_new()};
        int r;

        if (!p.archive || !p.links)
                r = error_set_errno(err, ENOMEM, "packing");
        else if (mount_of(dir, ".", &p.mount) < 0)
                r = error_set_errno(err, errno, "cannot look at the directory");
        else {
                (void) archive_write_set_format_pax_restricted(p.archive);
                archive_entry_linkresolver_set_strategy(p.links, ARCHIVE_FORMAT_TAR_PAX_RESTRICTED);
                r = archive_write_open_fd(p.archive, fd) == ARCHIVE_OK ? packer_entry(&p, dir, ".", ".", err)
                                                                       : packer_error(&p, ".", err);
                if (r >= 0 && archive_write_close(p.archive) != ARCHIVE_OK)
                        r = packer_error(&p, ".", err);
        }
        if (p.links)
                archive_entry_linkresolver_free(p.links);
        if (p.archive)
                (void) archive_write_free(p.archive);
        return r;
}
