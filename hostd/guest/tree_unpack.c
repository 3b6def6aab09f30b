// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: the unpacking side. Every directory is reached from the root's descriptor by openat2 without links and without leaving it;
// every file is written under a temporary name that we create exclusively and renamed over its place, so nothing that exists
// is ever written into.
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "guest/tree.h"

typedef struct TreeDir {
        char *path;
        uint32_t mode;
        struct timespec times[2];
} TreeDir;

typedef struct TreeUnpacker {
        const TreeOptions *options;
        int dirfd, root;
        int parent; // of the last entry, so that siblings cost no second walk
        char *parent_path;
        TreeDir *dirs; // modes and times are set at the end: a directory may be read-only
        size_t n_dirs, room_dirs;
        uid_t old_uid; // of what the last entry replaces
        gid_t old_gid;
        TreeReader reader;
        Error *err;
} TreeUnpacker;

static void tree_unpacker_done(TreeUnpacker *u) {
        for (size_t i = 0; i < u->n_dirs; i++)
                free(u->dirs[i].path);
        free(u->dirs);
        free(u->parent_path);
        u->root = close_fd(u->root);
        u->parent = close_fd(u->parent);
        tree_reader_done(&u->reader);
}

static int tree_open_beneath(int root, const char *path) {
        struct open_how how = {
                .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        int fd;

        do // EAGAIN: a rename happened meanwhile and the kernel could not be sure
                fd = (int) syscall(SYS_openat2, root, path, &how, sizeof(how));
        while (fd < 0 && errno == EAGAIN);
        return fd < 0 ? -errno : fd;
}

// The directory that holds `path`, and the name in it. The root itself lives in dirfd.
static int tree_unpack_parent(TreeUnpacker *u, const char *path, const char **ret_name) {
        _cleanup_free_ char *dir = NULL;
        const char *slash = strrchr(path, '/');
        int fd;

        if (u->root < 0 || strcmp(path, ".") == 0) {
                *ret_name = u->options->name;
                return u->dirfd;
        }
        *ret_name = slash ? slash + 1 : path;
        if (!slash)
                return u->root;
        dir = strndup(path, (size_t) (slash - path));
        if (!dir)
                return error_set_errno(u->err, ENOMEM, "cannot unpack %s", path);
        if (u->parent_path && strcmp(u->parent_path, dir) == 0)
                return u->parent;
        fd = tree_open_beneath(u->root, dir);
        if (fd < 0)
                return error_set_errno(u->err, fd, "cannot enter %s", dir);
        u->parent = close_fd(u->parent);
        u->parent = fd;
        free(u->parent_path);
        u->parent_path = TAKE_PTR(dir);
        return fd;
}

static int tree_unpack_mode(const TreeUnpacker *u, uint32_t mode) {
        return (int) (mode & (u->options->drop_special ? 0777u : 07777u));
}

static void tree_unpack_times(const TreeEntry *entry, struct timespec times[2]) {
        times[0] = (struct timespec) {.tv_nsec = UTIME_OMIT};
        times[1] = (struct timespec) {.tv_sec = (time_t) entry->mtime_sec, .tv_nsec = entry->mtime_nsec};
}

static int tree_unpack_remember(TreeUnpacker *u, const TreeEntry *entry) {
        if (u->n_dirs == u->room_dirs) {
                size_t room = u->room_dirs ? u->room_dirs * 2 : 64;
                TreeDir *grown = reallocarray(u->dirs, room, sizeof(TreeDir));
                if (!grown)
                        return error_set_errno(u->err, ENOMEM, "cannot unpack %s", entry->path);
                u->dirs = grown;
                u->room_dirs = room;
        }
        TreeDir *d = &u->dirs[u->n_dirs];
        *d = (TreeDir) {.path = strdup(entry->path), .mode = entry->mode};
        if (!d->path)
                return error_set_errno(u->err, ENOMEM, "cannot unpack %s", entry->path);
        tree_unpack_times(entry, d->times);
        u->n_dirs++;
        return 0;
}

static int tree_unpack_dir(TreeUnpacker *u, const TreeEntry *entry, int dir, const char *name) {
        bool made = mkdirat(dir, name, 0700) == 0;
        int fd;

        if (!made && errno != EEXIST)
                return error_set_errno(u->err, errno, "cannot make %s", entry->path);
        fd = tree_open_beneath(dir, name);
        if (fd < 0)
                return error_set_errno(u->err, fd == -ELOOP ? ENOTDIR : fd, "cannot unpack into %s", entry->path);
        if (u->root < 0)
                u->root = fd;
        else
                (void) close_fd(fd);
        // What was there before keeps its mode and times: only its content is merged.
        return made ? tree_unpack_remember(u, entry) : 0;
}

// A link or a directory in the place of a file is somebody else's decision: refused, never replaced.
// 1: something that may be replaced is there.
static int tree_unpack_place(TreeUnpacker *u, const TreeEntry *entry, int dir, const char *name) {
        struct stat st;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : error_set_errno(u->err, errno, "cannot unpack %s", entry->path);
        u->old_uid = st.st_uid;
        u->old_gid = st.st_gid;
        if (S_ISREG(st.st_mode) || (entry->type == TREE_LINK && S_ISLNK(st.st_mode)))
                return 1;
        return error_set(u->err, ERR_EXISTS, "cannot unpack %s: a %s is in its place", entry->path,
                         S_ISLNK(st.st_mode) ? "link" : S_ISDIR(st.st_mode) ? "directory" : "special file");
}

static void tree_temp_name(char *buf, size_t size) {
        static unsigned counter;

        (void) snprintf(buf, size, ".hostd-%d-%u.tmp", (int) getpid(), counter++);
}

static int tree_unpack_data(TreeUnpacker *u, const TreeEntry *entry, int fd) {
        const uint8_t *data;
        ssize_t n;
        int r;

        while ((n = tree_reader_data(&u->reader, &data, u->err)) > 0) {
                r = io_write_all(fd, data, (size_t) n);
                if (r < 0)
                        return error_set_errno(u->err, r, "cannot write %s", entry->path);
        }
        return (int) n;
}

static int tree_unpack_file(TreeUnpacker *u, const TreeEntry *entry, int dir, const char *name) {
        _cleanup_close_ int fd = -EBADF;
        struct timespec times[2];
        char temp[64];
        int r = tree_unpack_place(u, entry, dir, name);
        bool keep = r > 0 && u->options->keep_owner;

        if (r < 0)
                return r;
        tree_temp_name(temp, sizeof(temp));
        fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return error_set_errno(u->err, errno, "cannot make %s", entry->path);
        r = tree_unpack_data(u, entry, fd);
        if (r == 0) {
                tree_unpack_times(entry, times);
                // The owner first: it takes set-uid and set-gid bits away.
                if ((keep && fchown(fd, u->old_uid, u->old_gid) < 0) || fchmod(fd, (mode_t) tree_unpack_mode(u, entry->mode)) < 0 || futimens(fd, times) < 0 ||
                    renameat(dir, temp, dir, name) < 0)
                        r = error_set_errno(u->err, errno, "cannot finish %s", entry->path);
        }
        if (r < 0)
                (void) unlinkat(dir, temp, 0);
        return r;
}

static int tree_unpack_link(TreeUnpacker *u, const TreeEntry *entry, int dir, const char *name) {
        char temp[64];
        int r = tree_unpack_place(u, entry, dir, name);

        if (r < 0)
                return r;
        tree_temp_name(temp, sizeof(temp));
        if (symlinkat(entry->target, dir, temp) < 0)
                return error_set_errno(u->err, errno, "cannot make the link %s", entry->path);
        if (renameat(dir, temp, dir, name) < 0) {
                r = error_set_errno(u->err, errno, "cannot make the link %s", entry->path);
                (void) unlinkat(dir, temp, 0);
        }
        return r;
}

static int (*const tree_unpack_table[_TREE_TYPE_MAX])(TreeUnpacker *, const TreeEntry *, int, const char *) = {
        [TREE_DIR] = tree_unpack_dir,
        [TREE_FILE] = tree_unpack_file,
        [TREE_LINK] = tree_unpack_link,
};

static int tree_unpack_finish(TreeUnpacker *u) {
        // Backwards, so that children come before a parent that may become unreadable.
        for (size_t i = u->n_dirs; i-- > 0;) {
                TreeDir *d = &u->dirs[i];
                _cleanup_close_ int fd = tree_open_beneath(u->root, d->path);
                if (fd < 0 || fchmod(fd, (mode_t) tree_unpack_mode(u, d->mode)) < 0 || futimens(fd, d->times) < 0)
                        return error_set_errno(u->err, fd < 0 ? -fd : errno, "cannot finish %s", d->path);
        }
        return 0;
}

int tree_unpack_stream(int in_fd, int fd, Error *err) {
        static const TreeOptions options = {.limits.max_bytes = UINT64_MAX};
        _cleanup_(tree_unpacker_done) TreeUnpacker u = {
                .options = &options, .dirfd = -EBADF, .root = -EBADF, .parent = -EBADF, .reader = {.fd = -EBADF}, .err = err};
        _cleanup_free_ TreeEntry *entry = malloc(sizeof(*entry));
        int r;

        if (!entry || tree_reader_init(&u.reader, in_fd, &options.limits) < 0)
                return error_set_errno(err, ENOMEM, "cannot receive");
        r = tree_reader_next(&u.reader, entry, err);
        if (r > 0 && entry->type == TREE_FILE)
                r = tree_unpack_data(&u, entry, fd);
        else if (r >= 0)
                r = error_set_errno(err, EBADMSG, "the tree stream is not that of one file");
        if (r == 0)
                r = tree_reader_next(&u.reader, entry, err);
        return r > 0 ? error_set_errno(err, EBADMSG, "the tree stream is not that of one file") : r;
}

int tree_unpack(int dirfd, int in_fd, const TreeOptions *options, Error *err) {
        _cleanup_(tree_unpacker_done) TreeUnpacker u = {
                .options = options, .dirfd = dirfd, .root = -EBADF, .parent = -EBADF, .reader = {.fd = -EBADF}, .err = err};
        _cleanup_free_ TreeEntry *entry = malloc(sizeof(*entry));
        bool first = true;
        int r;

        if (strcmp(options->name, ".") != 0 && (!tree_path_valid(options->name, strlen(options->name), false) || strchr(options->name, '/')))
                return error_set_field(err, "path", "\"%s\" is not one name", options->name);
        if (!entry || tree_reader_init(&u.reader, in_fd, &options->limits) < 0)
                return error_set_errno(err, ENOMEM, "cannot unpack");
        while ((r = tree_reader_next(&u.reader, entry, err)) > 0) {
                const char *name;
                int dir;
                if (!first && u.root < 0)
                        return error_set(err, ERR_INVALID, "the tree stream is refused: its root is no directory but more follows");
                dir = tree_unpack_parent(&u, entry->path, &name);
                if (dir < 0)
                        return dir;
                r = tree_unpack_table[entry->type](&u, entry, dir, name);
                if (r < 0)
                        return r;
                first = false;
        }
        return r < 0 ? r : tree_unpack_finish(&u);
}
