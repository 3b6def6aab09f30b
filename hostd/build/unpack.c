// SPDX-License-Identifier: GPL-2.0-or-later
// Unpack: see unpack.h.
#include "build/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "base/io.h"
#include "base/valid.h"
#include "build/recipe.h"

#define UNPACK_PATH_MAX 4095
#define UNPACK_DEPTH_MAX 128
#define UNPACK_XATTR_MAX 64 // bytes of security.capability; the kernel's largest is 24

typedef struct Unpack {
        struct archive *archive;
        int root;
        const UnpackLimits *limits;
        UnpackProgress progress;
        uint64_t entries, bytes;
        // The parent of the last entry stays open: archives are written directory by directory.
        char *parent_path;
        int parent;
} Unpack;

static void unpack_done(Unpack *u) {
        if (u->archive)
                (void) archive_read_free(u->archive);
        free(u->parent_path);
        u->parent = close_fd(u->parent);
}

static int refuse(Error *err, const char *path, const char *why) {
        _cleanup_free_ char *shown = path ? valid_printable(path) : NULL;

        return error_set(err, ERR_INVALID, "the archive is refused: entry \"%.200s\" %s", shown ?: "?", why);
}

// Turns a name into "a/b/c" ("" is the root itself). Returns NULL and the reason.
static char *unpack_normal(const char *path, const char **reason) {
        size_t n = strlen(path), depth = 0;
        char *out = malloc(n + 1), *o = out;

        *reason = "has a path that is too long";
        if (!out || n > UNPACK_PATH_MAX)
                goto fail;
        *reason = "has an absolute path";
        if (path[0] == '/')
                goto fail;
        for (const char *p = path; *p;) {
                size_t k = strcspn(p, "/");
                *reason = "has \"..\" in its path";
                if (k == 2 && p[0] == '.' && p[1] == '.')
                        goto fail;
                *reason = "has a name that is too long, or lies too deep";
                if (k > 255 || depth > UNPACK_DEPTH_MAX)
                        goto fail;
                if (k > 0 && !(k == 1 && p[0] == '.')) {
                        if (o != out)
                                *o++ = '/';
                        memcpy(o, p, k);
                        o += k;
                        depth++;
                }
                p += k + (p[k] == '/');
        }
        *o = 0;
        return out;
fail:
        free(out);
        return NULL;
}

// A link is data, but one that climbs above the root was made for somebody who follows it outside.
static bool link_leads_out(const char *path, const char *target) {
        long depth = 0;

        if (target[0] != '/')
                for (const char *p = path; (p = strchr(p, '/')); p++)
                        depth++;
        for (const char *p = target; *p;) {
                size_t k = strcspn(p, "/");
                if (k == 2 && p[0] == '.' && p[1] == '.')
                        depth--;
                else if (k > 0 && !(k == 1 && p[0] == '.'))
                        depth++;
                if (depth < 0)
                        return true;
                p += k + (p[k] == '/');
        }
        return false;
}

static int open_beneath(int root, const char *path, int flags) {
        struct open_how how = {.flags = (uint64_t) flags | O_CLOEXEC,
                               .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS};
        int fd = (int) syscall(SYS_openat2, root, path, &how, sizeof(how));

        return fd < 0 ? -errno : fd;
}

// mkdir -p, one component at a time, through no link.
static int make_parents(int root, const char *path) {
        _cleanup_free_ char *part = strdup(path);
        _cleanup_close_ int at = fcntl(root, F_DUPFD_CLOEXEC, 3);

        if (!part || at < 0)
                return -ENOMEM;
        for (char *p = part, *next; p; p = next) {
                next = strchr(p, '/');
                if (next)
                        *next++ = 0;
                if (mkdirat(at, p, 0755) < 0 && errno != EEXIST)
                        return -errno;
                int fd = open_beneath(at, p, O_PATH | O_DIRECTORY);
                if (fd < 0)
                        return fd;
                (void) close_fd(at);
                at = fd;
        }
        return TAKE_FD(at);
}

// The directory that holds `path`; the descriptor belongs to `u`. ret_name points into `path`.
static int unpack_parent(Unpack *u, const char *path, const char **ret_name, Error *err) {
        const char *slash = strrchr(path, '/');
        _cleanup_free_ char *parent = slash ? strndup(path, (size_t) (slash - path)) : strdup("");
        int fd;

        if (!parent)
                return error_set_errno(err, ENOMEM, "unpacking");
        *ret_name = slash ? slash + 1 : path;
        if (u->parent_path && strcmp(u->parent_path, parent) == 0)
                return u->parent;
        fd = *parent ? open_beneath(u->root, parent, O_PATH | O_DIRECTORY) : fcntl(u->root, F_DUPFD_CLOEXEC, 3);
        if (fd == -ENOENT)
                fd = make_parents(u->root, parent);
        if (fd == -ELOOP || fd == -ENOTDIR || fd == -EXDEV)
                return refuse(err, path, "lies behind a link or a file");
        if (fd < 0)
                return error_set_errno(err, fd, "cannot open the directory of %s", path);
        free(u->parent_path);
        u->parent_path = TAKE_PTR(parent);
        (void) close_fd(u->parent);
        return u->parent = fd;
}

static int check_ratio(Unpack *u, const char *path, Error *err) {
        uint64_t packed = (uint64_t) archive_filter_bytes(u->archive, -1);

        if (u->bytes > u->limits->bytes)
                return refuse(err, path, "exceeds the limit on unpacked bytes");
        if (u->bytes > u->limits->ratio_above && u->bytes / u->limits->ratio > packed)
                return refuse(err, path, "unpacks to far more than was sent (a bomb?)");
        if (u->progress)
                u->progress(u->bytes, NULL);
        return 0;
}

static int unpack_data(Unpack *u, int fd, const char *path, int64_t size, Error *err) {
        uint64_t start = u->bytes;
        const void *block;
        size_t n;
        la_int64_t offset;
        int r;

        if (size < 0 || (uint64_t) size > u->limits->bytes)
                return refuse(err, path, "exceeds the limit on unpacked bytes");
        while ((r = archive_read_data_block(u->archive, &block, &n, &offset)) == ARCHIVE_OK) {
                if (offset < 0 || offset > size || n > (uint64_t) (size - offset))
                        return refuse(err, path, "has data beyond its size");
                // Holes count as well: whoever packs the image reads them.
                u->bytes = start + (uint64_t) offset + n;
                r = check_ratio(u, path, err);
                if (r < 0)
                        return r;
                for (size_t done = 0; done < n;) {
                        ssize_t k = pwrite(fd, (const char *) block + done, n - done, offset + (off_t) done);
                        if (k < 0)
                                return error_set_errno(err, errno, "cannot write %s", path);
                        done += (size_t) k;
                }
        }
        if (r != ARCHIVE_EOF)
                return error_set(err, ERR_INVALID, "the archive is damaged: %s", archive_error_string(u->archive) ?: "?");
        u->bytes = start + (uint64_t) size;
        if (ftruncate(fd, size) < 0)
                return error_set_errno(err, errno, "cannot write %s", path);
        return check_ratio(u, path, err);
}

// Only file capabilities: others (overlay's, ACLs, labels) would mean something to the host's kernel or to nobody.
static int unpack_xattrs(struct archive_entry *entry, int fd, const char *path, Error *err) {
        const char *name;
        const void *value;
        size_t size;

        (void) archive_entry_xattr_reset(entry);
        while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
                if (!name || strcmp(name, "security.capability") != 0)
                        continue;
                if (size > UNPACK_XATTR_MAX)
                        return refuse(err, path, "has capabilities that are none");
                if (fsetxattr(fd, name, value, size, 0) < 0)
                        return error_set_errno(err, errno, "cannot set the capabilities of %s", path);
        }
        return 0;
}

static int unpack_metadata(struct archive_entry *entry, int fd, const char *path, Error *err) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                    {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)}};

        // In this order: a change of owner clears set-uid bits and capabilities.
        if (fchown(fd, (uid_t) archive_entry_uid(entry), (gid_t) archive_entry_gid(entry)) < 0 ||
            fchmod(fd, archive_entry_perm(entry) & 07777) < 0)
                return error_set_errno(err, errno, "cannot set owner and mode of %s", path);
        if (archive_entry_mtime_is_set(entry) && times[1].tv_nsec >= 0 && times[1].tv_nsec < 1000000000)
                (void) futimens(fd, times); // a time beyond the file system's range is no reason to fail
        return unpack_xattrs(entry, fd, path, err);
}

static int unpack_file(Unpack *u, struct archive_entry *entry, const char *path, int parent, const char *name, Error *err) {
        _cleanup_close_ int fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r;

        if (fd < 0 && errno == EEXIST)
                return refuse(err, path, "comes twice");
        if (fd < 0)
                return error_set_errno(err, errno, "cannot make %s", path);
        r = unpack_data(u, fd, path, archive_entry_size(entry), err);
        return r < 0 ? r : unpack_metadata(entry, fd, path, err);
}

static int unpack_directory(Unpack *u, struct archive_entry *entry, const char *path, int parent, const char *name, Error *err) {
        _cleanup_close_ int fd = -EBADF;

        if (*path && mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
                return error_set_errno(err, errno, "cannot make %s", path);
        fd = *path ? openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                   : openat(u->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return refuse(err, path, "is a directory where a link or a file was");
        return unpack_metadata(entry, fd, path, err);
}

static int unpack_symlink(Unpack *u, struct archive_entry *entry, const char *path, int parent, const char *name, Error *err) {
        const char *target = archive_entry_symlink(entry);

        if (!target || !*target || strlen(target) > UNPACK_PATH_MAX)
                return refuse(err, path, "is a link to nothing");
        if (link_leads_out(path, target))
                return refuse(err, path, "is a link that leads out of the root");
        if (symlinkat(target, parent, name) < 0)
                return errno == EEXIST ? refuse(err, path, "comes twice")
                                       : error_set_errno(err, errno, "cannot make %s", path);
        if (fchownat(parent, name, (uid_t) archive_entry_uid(entry), (gid_t) archive_entry_gid(entry), AT_SYMLINK_NOFOLLOW) < 0)
                return error_set_errno(err, errno, "cannot set the owner of %s", path);
        return 0;
}

static int unpack_hardlink(Unpack *u, const char *target_name, const char *path, int parent, const char *name, Error *err) {
        const char *reason, *slash;
        _cleanup_free_ char *target = unpack_normal(target_name, &reason), *dir = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        if (!target || !*target)
                return refuse(err, path, "is a hard link that leads out of the root");
        slash = strrchr(target, '/');
        dir = slash ? strndup(target, (size_t) (slash - target)) : strdup(".");
        fd = dir ? open_beneath(u->root, dir, O_PATH | O_DIRECTORY) : -ENOMEM;
        if (fd < 0)
                return refuse(err, path, "is a hard link to what is not there, or lies behind a link");
        slash = slash ? slash + 1 : target;
        if (fstatat(fd, slash, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
                return refuse(err, path, "is a hard link to something that is no file");
        if (linkat(fd, slash, parent, name, 0) < 0)
                return errno == EEXIST ? refuse(err, path, "comes twice")
                                       : error_set_errno(err, errno, "cannot link %s", path);
        return 0;
}

static int unpack_entry(Unpack *u, struct archive_entry *entry, Error *err) {
        const char *raw = archive_entry_pathname(entry), *hardlink = archive_entry_hardlink(entry);
        const char *reason = NULL, *name = NULL;
        _cleanup_free_ char *path = raw ? unpack_normal(raw, &reason) : NULL;
        int parent;

        if (++u->entries > u->limits->entries)
                return refuse(err, raw, "is one entry too many");
        if (!path)
                return refuse(err, raw, reason ?: "has no readable name");
        if (archive_entry_uid(entry) < 0 || archive_entry_uid(entry) >= RECIPE_IMAGE_IDS || archive_entry_gid(entry) < 0 ||
            archive_entry_gid(entry) >= RECIPE_IMAGE_IDS)
                return refuse(err, raw, "belongs to an id beyond 65535");
        if (!*path && (hardlink || archive_entry_filetype(entry) != AE_IFDIR))
                return refuse(err, raw, "makes the root something else than a directory");
        parent = unpack_parent(u, path, &name, err);
        if (parent < 0)
                return parent;
        if (hardlink)
                return unpack_hardlink(u, hardlink, path, parent, name, err);
        switch (archive_entry_filetype(entry)) {
        case AE_IFREG:
                return unpack_file(u, entry, path, parent, name, err);
        case AE_IFDIR:
                return unpack_directory(u, entry, path, parent, name, err);
        case AE_IFLNK:
                return unpack_symlink(u, entry, path, parent, name, err);
        default:
                return refuse(err, raw, "is a device node, a fifo or a socket");
        }
}

int unpack_tar(int fd, int root, const UnpackLimits *limits, UnpackProgress progress, Error *err) {
        _cleanup_(unpack_done) Unpack u = {.root = root, .limits = limits, .progress = progress, .parent = -EBADF};
        struct archive_entry *entry;
        int r;

        u.archive = archive_read_new();
        if (!u.archive)
                return error_set_errno(err, ENOMEM, "unpacking");
        // Only these: each further format is a parser that nobody asked for.
        (void) archive_read_support_filter_gzip(u.archive);
        (void) archive_read_support_filter_xz(u.archive);
        (void) archive_read_support_filter_zstd(u.archive);
        (void) archive_read_support_format_tar(u.archive);
        // A compressed one that was cut within the first block fails here, too.
        if (archive_read_open_fd(u.archive, fd, 65536) != ARCHIVE_OK)
                return error_set(err, ERR_INVALID, "this is no tar archive (plain, gzip, xz or zstd), or a damaged one: %s",
                                 archive_error_string(u.archive) ?: "?");
        while ((r = archive_read_next_header(u.archive, &entry)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
                r = unpack_entry(&u, entry, err);
                if (r < 0)
                        return r;
        }
        if (r != ARCHIVE_EOF)
                return error_set(err, ERR_INVALID, "the archive is damaged: %s", archive_error_string(u.archive) ?: "?");
        if (u.entries == 0)
                return error_set(err, ERR_INVALID, "the archive is empty");
        return 0;
}
