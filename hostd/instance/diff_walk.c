// SPDX-License-Identifier: GPL-2.0-or-later
// Diff, the walk: by descriptors, one component at a time, through no link and out of no mount. Nothing but directories is ever
// opened. A guest that changes its tree meanwhile can make the list stale, never lead the walk elsewhere.
//
// A file in upper was opened for writing or had its attributes changed; it is reported even if its content is what it was, since
// times and sizes are the guest's to forge. A directory is there as soon as something below it changed, so it is reported only when
// its own mode or owner differ.
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "guest/tree.h"
#include "instance/diff.h"

#define CHANGES_MAX 1000000

typedef struct Walker {
        const DiffWalk *walk;
        uint64_t n;
        bool cut;
        TreeEntry entry; // its path is where the walk is
        size_t path_size;
        Error *err;
} Walker;

static int walk_children(Walker *w, int upper_fd, int lower_fd, unsigned depth);

static int open_dir(int dirfd, const char *name, uint64_t flags) {
        struct open_how how = {
                .flags = flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
        };
        int fd = (int) syscall(SYS_openat2, dirfd, name, &how, sizeof(how));

        return fd < 0 ? -errno : fd;
}

// Asks the keeper: 1 yes, 0 no.
static int is_opaque(Walker *w, int fd) {
        char answer;
        ssize_t n = io_send_fds(w->walk->keeper, "o", 1, &fd, 1, 0);

        if (n == 1)
                n = read(w->walk->keeper, &answer, 1); // no handler is installed that could interrupt it
        return n == 1 ? answer == 'y' : error_set(w->err, ERR_INTERNAL, "the keeper of hostd-diff is gone");
}

static TreeType type_of(mode_t mode) {
        return S_ISDIR(mode) ? TREE_DIR : S_ISREG(mode) ? TREE_FILE : S_ISLNK(mode) ? TREE_LINK : TREE_OTHER;
}

// 1: the list is full.
static int emit(Walker *w, char change, const struct stat *st) {
        TreeEntry *e = &w->entry;
        int r;

        if (w->n >= CHANGES_MAX) {
                w->cut = true;
                return 1;
        }
        w->n++;
        e->change = change;
        e->type = type_of(st->st_mode);
        e->mode = st->st_mode;
        e->uid = st->st_uid;
        e->gid = st->st_gid;
        e->mtime_sec = st->st_mtim.tv_sec;
        e->mtime_nsec = (uint32_t) st->st_mtim.tv_nsec;
        e->size = S_ISREG(st->st_mode) ? (uint64_t) st->st_size : 0;
        if (e->type == TREE_LINK && e->target[0] == 0)
                e->type = TREE_OTHER; // a link whose target nobody asked for: a deleted one, or one that cannot be read
        r = tree_write_entry(w->walk->out_fd, e);
        e->target[0] = 0;
        return r < 0 ? error_set_errno(w->err, r, "cannot write the list of changes") : 0;
}

static int emit_unread(Walker *w, const struct stat *st) {
        static const struct stat unknown = {.st_mode = S_IFDIR};

        return emit(w, '?', st ?: &unknown);
}

static bool same_owner(const struct stat *a, const struct stat *b) {
        return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

// A name in upper, and the same one in the template.
typedef struct Node {
        int dirfd, lower_dirfd;
        const char *name;
        struct stat st, lower_st;
        const struct stat *lower; // NULL: not there
} Node;

static int walk_dir(Walker *w, const Node *node, unsigned depth) {
        _cleanup_close_ int fd = -EBADF, lower_fd = -EBADF;
        const struct stat *st = &node->st, *lower = node->lower;
        int opaque, r = 0;

        fd = depth >= TREE_CHANGES_DEPTH_MAX ? -ELOOP : open_dir(node->dirfd, node->name, O_RDONLY);
        if (fd < 0)
                return fd == -ENOENT ? 0 : emit_unread(w, st);
        if (lower && S_ISDIR(lower->st_mode)) {
                lower_fd = open_dir(node->lower_dirfd, node->name, O_PATH);
                if (lower_fd < 0)
                        return error_set_errno(w->err, lower_fd, "cannot read the template");
        }
        // One that stands alone hides nothing, whatever it is marked as.
        opaque = lower_fd >= 0 || w->walk->lower < 0 ? is_opaque(w, fd) : 0;
        if (opaque < 0)
                return opaque;
        if (opaque)
                r = emit(w, 'O', st);
        else if (!lower)
                r = emit(w, 'A', st);
        else if (!same_owner(st, lower))
                r = emit(w, 'M', st);
        return r != 0 ? r : walk_children(w, TAKE_FD(fd), lower_fd, depth + 1);
}

static int walk_node(Walker *w, int dirfd, const char *name, int lower_dirfd, unsigned depth) {
        Node node = {.dirfd = dirfd, .lower_dirfd = lower_dirfd, .name = name};
        ssize_t n;

        if (fstatat(dirfd, name, &node.st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : emit_unread(w, NULL);
        if (lower_dirfd >= 0 && fstatat(lower_dirfd, name, &node.lower_st, AT_SYMLINK_NOFOLLOW) == 0)
                node.lower = &node.lower_st;
        if (S_ISCHR(node.st.st_mode) && node.st.st_rdev == 0) // a whiteout; one over nothing is left over and hides nothing
                return node.lower ? emit(w, 'D', node.lower) : w->walk->lower < 0 ? emit(w, 'D', &node.st) : 0;
        if (S_ISDIR(node.st.st_mode))
                return walk_dir(w, &node, depth);
        if (S_ISLNK(node.st.st_mode)) {
                n = readlinkat(dirfd, name, w->entry.target, TREE_PATH_MAX);
                w->entry.target[n > 0 ? n : 0] = 0;
        }
        return emit(w, node.lower ? 'M' : 'A', &node.st);
}

// Takes upper_fd over.
static int walk_children(Walker *w, int upper_fd, int lower_fd, unsigned depth) {
        DIR *d = fdopendir(upper_fd);
        size_t at = w->path_size;
        struct dirent *e;
        int r = 0;

        if (!d) {
                (void) close_fd(upper_fd);
                return error_set_errno(w->err, ENOMEM, "cannot read a directory");
        }
        while (r == 0 && (errno = 0, e = readdir(d))) {
                size_t n = strlen(e->d_name), slash = at > 0;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (at + slash + n > TREE_PATH_MAX) {
                        r = emit_unread(w, NULL); // of the directory that holds it
                        continue;
                }
                memcpy(w->entry.path + at, "/", slash);
                memcpy(w->entry.path + at + slash, e->d_name, n + 1);
                w->path_size = at + slash + n;
                r = walk_node(w, dirfd(d), e->d_name, lower_fd, depth);
                w->path_size = at;
                w->entry.path[at] = 0;
        }
        if (r == 0 && errno != 0)
                r = at > 0 ? emit_unread(w, NULL) : error_set_errno(w->err, errno, "cannot read the upper directory");
        (void) closedir(d);
        return r;
}

static int walk_root(Walker *w) {
        int fd = open_dir(w->walk->upper, ".", O_RDONLY), r = 0;
        struct stat st, lower;

        if (fd < 0 || fstat(fd, &st) < 0) {
                r = error_set_errno(w->err, fd < 0 ? fd : errno, "cannot read the upper directory");
                (void) close_fd(fd);
                return r;
        }
        memcpy(w->entry.path, ".", 2);
        if (w->walk->lower >= 0 && fstat(w->walk->lower, &lower) == 0 && !same_owner(&st, &lower))
                r = emit(w, 'M', &st);
        w->entry.path[0] = 0;
        if (r != 0) {
                (void) close_fd(fd);
                return r;
        }
        return walk_children(w, fd, w->walk->lower, 1);
}

int diff_walk(const DiffWalk *walk, Error *err) {
        _cleanup_free_ Walker *w = calloc(1, sizeof(*w));
        int r;

        if (!w)
                return error_set_errno(err, ENOMEM, "cannot walk");
        w->walk = walk;
        w->err = err;
        r = io_write_all(walk->out_fd, TREE_MAGIC, TREE_MAGIC_SIZE);
        if (r < 0)
                return error_set_errno(err, r, "cannot write the list of changes");
        r = walk_root(w);
        if (r < 0)
                return r;
        w->entry = (TreeEntry) {.type = TREE_END, .size = w->n, .change = w->cut ? TREE_CHANGES_CUT : 0};
        r = tree_write_entry(walk->out_fd, &w->entry);
        return r < 0 ? error_set_errno(err, r, "cannot write the list of changes") : 0;
}
