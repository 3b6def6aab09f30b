// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: lists. Walks by descriptors and follows nothing. What the names of one directory take is bounded by the number of entries
// that a list may have; a level holds one descriptor and its names.
#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "guest/tree_list.h"

#define TREE_LIST_BUFFER (64 * 1024)
#define TREE_LIST_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

typedef struct TreeWalk {
        TreeLister *lister;
        const TreeListOptions *options;
        TreeLimits limits;
        uint64_t seen; // names, over all directories
        Error *err;
} TreeWalk;

typedef struct TreeNames {
        char **names;
        size_t n, room;
} TreeNames;

static void tree_names_done(TreeNames *names) {
        for (size_t i = 0; i < names->n; i++)
                free(names->names[i]);
        free(names->names);
}

int tree_lister_new(int out_fd, TreeLister **ret) {
        TreeLister *lister = calloc(1, sizeof(*lister));

        if (!lister)
                return -ENOMEM;
        lister->out_fd = out_fd;
        lister->buf = malloc(TREE_LIST_BUFFER);
        if (!lister->buf) {
                free(lister);
                return -ENOMEM;
        }
        memcpy(lister->buf, TREE_MAGIC_INFO, TREE_MAGIC_SIZE);
        lister->used = TREE_MAGIC_SIZE;
        *ret = lister;
        return 0;
}

TreeLister *tree_lister_free(TreeLister *lister) {
        free(lister->buf);
        free(lister);
        return NULL;
}

int tree_lister_flush(TreeLister *lister) {
        int r = io_write_all(lister->out_fd, lister->buf, lister->used);

        lister->used = 0;
        return r;
}

static int tree_lister_put(TreeLister *lister, const TreeEntry *entry) {
        int r = lister->used + TREE_WIRE_MAX > TREE_LIST_BUFFER ? tree_lister_flush(lister) : 0;

        if (r >= 0)
                lister->used += tree_encode_entry(entry, true, lister->buf + lister->used);
        return r < 0 ? r : 0;
}

int tree_lister_emit(TreeLister *lister) {
        lister->entries++;
        return tree_lister_put(lister, &lister->entry);
}

int tree_lister_end(TreeLister *lister) {
        TreeEntry *end = &lister->entry;
        int r;

        *end = (TreeEntry) {.type = TREE_END, .size = lister->entries, .count = lister->unread, .change = lister->cut ? TREE_CHANGES_CUT : 0};
        r = tree_lister_put(lister, end);
        return r < 0 ? r : tree_lister_flush(lister);
}

static TreeType tree_list_type(mode_t mode) {
        return S_ISDIR(mode) ? TREE_DIR : S_ISREG(mode) ? TREE_FILE : S_ISLNK(mode) ? TREE_LINK : TREE_OTHER;
}

int tree_lister_stat(TreeLister *lister, int dirfd, const char *name, const char *path) {
        TreeEntry *entry = &lister->entry;
        struct statx st;

        if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
                return -errno;
        entry->type = tree_list_type(st.stx_mode);
        entry->mode = st.stx_mode;
        entry->uid = st.stx_uid;
        entry->gid = st.stx_gid;
        entry->links = st.stx_nlink;
        entry->size = st.stx_size;
        entry->mtime_sec = st.stx_mtime.tv_sec;
        entry->mtime_nsec = MIN2(st.stx_mtime.tv_nsec, 999999999U); // a FUSE server may say anything
        entry->btime_sec = st.stx_mask & STATX_BTIME ? st.stx_btime.tv_sec : 0;
        entry->btime_nsec = st.stx_mask & STATX_BTIME ? MIN2(st.stx_btime.tv_nsec, 999999999U) : 0;
        entry->count = 0;
        entry->change = 0;
        entry->target[0] = entry->owner[0] = entry->group[0] = 0;
        (void) snprintf(entry->path, sizeof(entry->path), "%s", path);
        if (entry->type == TREE_LINK) {
                ssize_t n = readlinkat(dirfd, name, entry->target, TREE_PATH_MAX);
                if (n <= 0)
                        return n < 0 ? -errno : -ENOENT;
                entry->target[n] = 0;
        }
        return 0;
}

static bool tree_walk_wants(const TreeWalk *walk, const char *name) {
        if (!walk->options->pattern)
                return true;
        return walk->lister->entry.type != TREE_DIR && fnmatch(walk->options->pattern, name, 0) == 0;
}

// 1: a search has as many as it may.
static int tree_walk_emit(TreeWalk *walk) {
        TreeLister *lister = walk->lister;
        int r;

        if (walk->options->max_matches > 0 && lister->entries >= walk->options->max_matches) {
                lister->cut = true;
                return 1;
        }
        if (walk->options->fill)
                walk->options->fill(&lister->entry, walk->options->userdata);
        r = tree_lister_emit(lister);
        return r < 0 ? error_set_errno(walk->err, r, "cannot write the list") : 0;
}

static int tree_walk_count(TreeWalk *walk) {
        if (++walk->seen <= walk->limits.max_entries)
                return 0;
        if (!walk->options->pattern)
                return error_set(walk->err, ERR_QUOTA, "the list has more than %llu entries", (unsigned long long) walk->limits.max_entries);
        walk->lister->cut = true;
        return 1;
}

static int tree_names_read(TreeWalk *walk, int fd, TreeNames *ret) {
        DIR *d = fdopendir(fd);
        struct dirent *e;
        int r = 0;

        if (!d) {
                (void) close_fd(fd);
                return -errno;
        }
        while (r == 0 && (errno = 0, e = readdir(d))) {
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (ret->n == ret->room) {
                        size_t room = ret->room ? ret->room * 2 : 64;
                        char **grown = reallocarray(ret->names, room, sizeof(char *));
                        if (!grown) {
                                r = -ENOMEM;
                                break;
                        }
                        ret->names = grown;
                        ret->room = room;
                }
                r = tree_walk_count(walk);
                if (r == 0 && !(ret->names[ret->n++] = strdup(e->d_name))) {
                        ret->n--;
                        r = -ENOMEM;
                }
        }
        if (r == 0 && errno)
                r = -errno;
        (void) closedir(d);
        return r < 0 ? r : 0;
}

static int tree_names_compare(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

static int tree_walk_directory(TreeWalk *walk, int fd, const char *path, unsigned level);

// What vanished, or became something else while we looked, is not there.
static int tree_walk_name(TreeWalk *walk, int fd, const char *name, const char *path, unsigned level) {
        unsigned depth = walk->options->pattern ? walk->limits.max_depth : MIN2(walk->options->depth ?: 1, walk->limits.max_depth);
        int child, r;

        if (strlen(path) > TREE_PATH_MAX || tree_lister_stat(walk->lister, fd, name, path) < 0)
                return 0;
        bool directory = walk->lister->entry.type == TREE_DIR;
        r = tree_walk_wants(walk, name) ? tree_walk_emit(walk) : 0;
        if (r != 0 || !directory)
                return r;
        if (level >= depth) {
                walk->lister->unread += walk->options->pattern ? 1 : 0;
                return 0;
        }
        child = openat(fd, name, TREE_LIST_FLAGS);
        if (child < 0) {
                walk->lister->unread += errno != ENOENT && errno != ENOTDIR && errno != ELOOP;
                return 0;
        }
        return tree_walk_directory(walk, child, path, level + 1);
}

// Takes the descriptor.
static int tree_walk_directory(TreeWalk *walk, int fd, const char *path, unsigned level) {
        _cleanup_(tree_names_done) TreeNames names = {0};
        int r, again = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        if (again < 0) {
                (void) close_fd(fd);
                return error_set_errno(walk->err, errno, "cannot read a directory");
        }
        r = tree_names_read(walk, again, &names);
        if (r < 0 && level > 1 && r != -ENOMEM && r != -EDQUOT) {
                walk->lister->unread++;
                r = 0;
        } else if (r < 0)
                (void) error_set_errno(walk->err, r, "cannot read a directory");
        else if (names.n > 0)
                qsort(names.names, names.n, sizeof(char *), tree_names_compare);
        for (size_t i = 0; i < names.n && r == 0; i++) {
                _cleanup_free_ char *child = NULL;
                if (asprintf(&child, "%s%s%s", path, *path ? "/" : "", names.names[i]) < 0) {
                        child = NULL;
                        r = error_set_errno(walk->err, ENOMEM, "cannot read a directory");
                } else
                        r = tree_walk_name(walk, fd, names.names[i], child, level);
        }
        (void) close_fd(fd);
        return r;
}

static int tree_walk_one(TreeWalk *walk, int dirfd, const char *name) {
        int r = tree_lister_stat(walk->lister, dirfd, name, walk->options->self || walk->options->pattern ? "." : name);

        if (r < 0)
                return error_set_errno(walk->err, r, "cannot read %s", name);
        return tree_walk_wants(walk, name) ? tree_walk_emit(walk) : 0;
}

int tree_list(int dirfd, const char *name, int out_fd, const TreeListOptions *options, Error *err) {
        static const TreeListOptions plain;
        _cleanup_(tree_lister_freep) TreeLister *lister = NULL;
        TreeWalk walk = {.options = options ?: &plain, .err = err};
        int fd, r = tree_lister_new(out_fd, &lister);

        if (r < 0)
                return error_set_errno(err, r, "cannot list");
        walk.lister = lister;
        walk.limits = walk.options->limits;
        tree_limits_default(&walk.limits);
        fd = walk.options->self ? -1 : openat(dirfd, name, TREE_LIST_FLAGS);
        if (fd >= 0)
                r = tree_walk_directory(&walk, fd, "", 1);
        else if (walk.options->self || errno == ENOTDIR || errno == ELOOP)
                r = tree_walk_one(&walk, dirfd, name);
        else
                r = error_set_errno(err, errno, "cannot open %s", name);
        if (r >= 0) {
                r = tree_lister_end(lister);
                if (r < 0)
                        return error_set_errno(err, r, "cannot write the list");
        }
        return r;
}
