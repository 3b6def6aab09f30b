// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: the writing side. Walks by descriptors, follows nothing, and opens only what lstat called a directory or a regular file
// (and looks again after opening: a racer may have put a fifo there, hence O_NONBLOCK).
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "guest/tree.h"

typedef struct TreePacker {
        int out_fd;
        TreeLimits limits;
        uint64_t bytes, entries;
        int skipped;
        bool may_wait; // for what it reads
        uint8_t *buf; // 4 bytes of length, then a chunk
        TreeEntry entry;
        Error *err;
} TreePacker;

static int tree_pack_node(TreePacker *p, int dirfd, const char *name, const char *path, unsigned depth);

static void tree_pack_stat(TreeEntry *entry, const struct stat *st, const char *path) {
        entry->mode = st->st_mode & 07777;
        entry->uid = st->st_uid;
        entry->gid = st->st_gid;
        entry->mtime_sec = st->st_mtim.tv_sec;
        entry->mtime_nsec = (uint32_t) st->st_mtim.tv_nsec;
        entry->size = S_ISREG(st->st_mode) ? (uint64_t) st->st_size : 0;
        entry->type = S_ISDIR(st->st_mode)   ? TREE_DIR
                      : S_ISREG(st->st_mode) ? TREE_FILE
                      : S_ISLNK(st->st_mode) ? TREE_LINK
                                             : TREE_OTHER;
        (void) snprintf(entry->path, sizeof(entry->path), "%s", path);
        entry->target[0] = 0;
}

static int tree_pack_emit(TreePacker *p) {
        int r;

        if (++p->entries > p->limits.max_entries)
                return error_set(p->err, ERR_QUOTA, "the tree has more than %llu entries",
                                 (unsigned long long) p->limits.max_entries);
        r = tree_write_entry(p->out_fd, &p->entry);
        return r < 0 ? error_set_errno(p->err, r, "cannot write the tree stream") : 0;
}

static int tree_pack_data(TreePacker *p, int fd, const char *path) {
        for (;;) {
                uint32_t size;
                ssize_t n;
                int r;
                if (p->may_wait && !tree_stream_is_read(fd, p->out_fd))
                        return error_set_errno(p->err, EPIPE, "cannot write the tree stream");
                n = read(fd, p->buf + 4, TREE_CHUNK_MAX);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return error_set_errno(p->err, errno, "cannot read %s", path);
                p->bytes += (uint64_t) n;
                if (p->bytes > p->limits.max_bytes)
                        return error_set(p->err, ERR_QUOTA, "the tree has more than %llu bytes",
                                         (unsigned long long) p->limits.max_bytes);
                size = htole32((uint32_t) n);
                memcpy(p->buf, &size, sizeof(size));
                r = io_write_all(p->out_fd, p->buf, sizeof(size) + (size_t) n);
                if (r < 0)
                        return error_set_errno(p->err, r, "cannot write the tree stream");
                if (n == 0)
                        return 0;
        }
}

static int tree_pack_children(TreePacker *p, int fd, const char *path, unsigned depth) {
        DIR *d = fdopendir(fd);
        struct dirent *e;
        int r = 0;

        if (!d) {
                (void) close_fd(fd);
                return error_set_errno(p->err, errno, "cannot read %s", path);
        }
        while (r >= 0 && (errno = 0, e = readdir(d))) {
                _cleanup_free_ char *child = NULL;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (asprintf(&child, "%s%s%s", strcmp(path, ".") == 0 ? "" : path, strcmp(path, ".") == 0 ? "" : "/",
                             e->d_name) < 0) {
                        child = NULL;
                        r = error_set_errno(p->err, ENOMEM, "cannot read %s", path);
                } else
                        r = tree_pack_node(p, dirfd(d), e->d_name, child, depth + 1);
        }
        (void) closedir(d);
        return r;
}

static int tree_pack_link(TreePacker *p, int dirfd, const char *name) {
        ssize_t n = readlinkat(dirfd, name, p->entry.target, TREE_PATH_MAX);

        if (n <= 0 || n >= TREE_PATH_MAX) {
                p->skipped++; // gone or changed meanwhile
                return 0;
        }
        p->entry.target[n] = 0;
        return tree_pack_emit(p);
}

static int tree_pack_node(TreePacker *p, int dirfd, const char *name, const char *path, unsigned depth) {
        _cleanup_close_ int fd = -EBADF;
        bool root = strcmp(path, ".") == 0;
        struct stat st;
        int r;

        if (depth > p->limits.max_depth || strlen(path) > TREE_PATH_MAX)
                return error_set(p->err, ERR_QUOTA, "the tree is nested more than %u deep or has too long a path", p->limits.max_depth);
        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno == ENOENT && !root)
                        return 0; // removed while we walked
                return error_set_errno(p->err, errno, "cannot read %s", root ? name : path);
        }
        tree_pack_stat(&p->entry, &st, path);
        if (p->entry.type == TREE_LINK && !root)
                return tree_pack_link(p, dirfd, name);
        if (p->entry.type != TREE_DIR && p->entry.type != TREE_FILE) {
                if (root)
                        return error_set_field(p->err, "path", "\"%s\" is neither a regular file nor a directory", name);
                p->skipped++;
                return 0;
        }
        fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 && !root && (errno == ENOENT || errno == ELOOP || errno == ENXIO)) {
                p->skipped++;
                return 0;
        }
        if (fd < 0 || fstat(fd, &st) < 0)
                return error_set_errno(p->err, errno, "cannot open %s", root ? name : path);
        tree_pack_stat(&p->entry, &st, path);
        if (p->entry.type != TREE_DIR && p->entry.type != TREE_FILE) {
                p->skipped++;
                return root ? error_set_field(p->err, "path", "\"%s\" is no regular file", name) : 0;
        }
        r = tree_pack_emit(p);
        if (r < 0)
                return r;
        return p->entry.type == TREE_DIR ? tree_pack_children(p, TAKE_FD(fd), path, depth) : tree_pack_data(p, fd, path);
}

static int tree_pack_init(TreePacker *p) {
        tree_limits_default(&p->limits);
        p->buf = malloc(TREE_CHUNK_MAX + 4);
        if (!p->buf)
                return error_set_errno(p->err, ENOMEM, "cannot pack");
        int r = io_write_all(p->out_fd, TREE_MAGIC, TREE_MAGIC_SIZE);
        return r < 0 ? error_set_errno(p->err, r, "cannot write the tree stream") : 0;
}

static int tree_pack_end(TreePacker *p) {
        p->entry = (TreeEntry) {.type = TREE_END, .size = p->entries};
        int r = tree_write_entry(p->out_fd, &p->entry);
        return r < 0 ? error_set_errno(p->err, r, "cannot write the tree stream") : p->skipped;
}

static TreePacker *tree_packer_new(int out_fd, const TreeLimits *limits, Error *err) {
        TreePacker *p = calloc(1, sizeof(*p));

        if (!p) {
                (void) error_set_errno(err, ENOMEM, "cannot pack");
                return NULL;
        }
        p->out_fd = out_fd;
        p->err = err;
        if (limits)
                p->limits = *limits;
        return p;
}

static TreePacker *tree_packer_free(TreePacker *p) {
        free(p->buf);
        free(p);
        return NULL;
}
DEFINE_CLEANUP(TreePacker, tree_packer_free)

int tree_pack(int dirfd, const char *name, int out_fd, const TreeLimits *limits, Error *err) {
        _cleanup_(tree_packer_freep) TreePacker *p = tree_packer_new(out_fd, limits, err);
        int r = p ? tree_pack_init(p) : -ENOMEM;

        if (r >= 0)
                r = tree_pack_node(p, dirfd, name, ".", 1);
        return r < 0 ? r : tree_pack_end(p);
}

int tree_pack_stream(int in_fd, const char *name, int out_fd, Error *err) {
        _cleanup_(tree_packer_freep) TreePacker *p = tree_packer_new(out_fd, &(TreeLimits) {.max_bytes = UINT64_MAX}, err);
        int r = p ? tree_pack_init(p) : -ENOMEM;

        if (r < 0)
                return r;
        p->may_wait = true;
        p->entry = (TreeEntry) {.type = TREE_FILE, .path = "."};
        r = tree_pack_emit(p);
        if (r >= 0)
                r = tree_pack_data(p, in_fd, name);
        return r < 0 ? r : tree_pack_end(p);
}
