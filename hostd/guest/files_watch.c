// SPDX-License-Identifier: GPL-2.0-or-later
// Files: what happens to a file or below a directory, told as a list (guest/tree_list.h) that goes on until nobody reads it or what was watched is
// gone. The list's first bytes come when all is being watched. A reader that is too slow, and more directories than are watched, are told by '!'.
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "guest/tree_list.h"

#define FILES_WATCH_MAX 8192 // directories
#define FILES_WATCH_DEPTH 64
#define FILES_WATCH_LOOK_MSEC 1000
#define FILES_WATCH_MASK \
        (IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW | IN_EXCL_UNLINK)

typedef struct FilesWatch {
        int inotify;
        bool recursive, single, gone; // single: a file, in the directory that we are in
        int self;     // the watch of what was asked for
        char **paths; // by watch, below the directory that we are in; owned
        size_t room, count;
        TreeLister *lister;
} FilesWatch;

static void files_watch_done(FilesWatch *w) {
        for (size_t i = 0; i < w->room; i++)
                free(w->paths[i]);
        free(w->paths);
        if (w->lister)
                tree_lister_free(w->lister);
        (void) close_fd(w->inotify);
}

static int files_watch_say(FilesWatch *w, const char *path, char letter) {
        const char *told = w->single ? "." : path;

        if (strlen(path) > TREE_PATH_MAX)
                return 0;
        // What is gone already, or not ours to look at, is told without what it was.
        if (tree_lister_stat(w->lister, AT_FDCWD, path, told) < 0) {
                w->lister->entry = (TreeEntry) {.type = TREE_OTHER};
                (void) snprintf(w->lister->entry.path, sizeof(w->lister->entry.path), "%s", told);
        }
        w->lister->entry.change = letter;
        return tree_lister_emit(w->lister);
}

static int files_watch_remember(FilesWatch *w, int wd, const char *path) {
        if ((size_t) wd >= w->room) {
                size_t room = (size_t) wd + 64;
                char **grown = reallocarray(w->paths, room, sizeof(char *));
                if (!grown)
                        return -ENOMEM;
                memset(grown + w->room, 0, (room - w->room) * sizeof(char *));
                w->paths = grown;
                w->room = room;
        }
        w->count += !w->paths[wd];
        free(w->paths[wd]);
        w->paths[wd] = strdup(path);
        return w->paths[wd] ? 0 : -ENOMEM;
}

static int files_watch_add(FilesWatch *w, const char *path, bool tell, unsigned depth);

// `tell`: it came while we watched, and so did all in it that is there by now.
static int files_watch_below(FilesWatch *w, const char *path, bool tell, unsigned depth) {
        int fd = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), r = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *e;
        struct stat st;

        while (d && r >= 0 && (e = readdir(d))) {
                _cleanup_free_ char *child = NULL;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                if (asprintf(&child, "%s%s%s", strcmp(path, ".") == 0 ? "" : path, strcmp(path, ".") == 0 ? "" : "/", e->d_name) < 0) {
                        child = NULL;
                        r = -ENOMEM;
                        break;
                }
                if (tell)
                        r = files_watch_say(w, child, 'C');
                if (r >= 0 && S_ISDIR(st.st_mode))
                        r = files_watch_add(w, child, tell, depth + 1);
        }
        if (d)
                (void) closedir(d);
        return r;
}

static int files_watch_add(FilesWatch *w, const char *path, bool tell, unsigned depth) {
        int wd, r;

        if (depth > FILES_WATCH_DEPTH || w->count >= FILES_WATCH_MAX)
                return files_watch_say(w, path, '!');
        wd = inotify_add_watch(w->inotify, path, FILES_WATCH_MASK | IN_ONLYDIR);
        if (wd < 0) // vanished, closed to the user, or the user has no more watches
                return errno == ENOSPC || errno == EACCES ? files_watch_say(w, path, '!') : 0;
        r = files_watch_remember(w, wd, path);
        return r < 0 ? r : files_watch_below(w, path, tell, depth);
}

// A directory that went elsewhere is watched no more, and neither is what is in it.
static void files_watch_forget(FilesWatch *w, const char *path) {
        size_t n = strlen(path);

        for (size_t i = 0; i < w->room; i++)
                if (w->paths[i] && strncmp(w->paths[i], path, n) == 0 && (w->paths[i][n] == 0 || w->paths[i][n] == '/'))
                        (void) inotify_rm_watch(w->inotify, (int) i);
}

static const struct {
        uint32_t mask;
        char letter;
} files_watch_letters[] = {
        {IN_CREATE, 'C'}, {IN_MODIFY, 'W'}, {IN_ATTRIB, 'A'}, {IN_DELETE, 'D'}, {IN_MOVED_FROM, 'F'}, {IN_MOVED_TO, 'T'},
};

static int files_watch_named(FilesWatch *w, const struct inotify_event *e, const char *path) {
        bool directory = w->recursive && e->mask & IN_ISDIR;
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(files_watch_letters) && r >= 0; i++)
                if (e->mask & files_watch_letters[i].mask)
                        r = files_watch_say(w, path, files_watch_letters[i].letter);
        if (directory && e->mask & IN_MOVED_FROM)
                files_watch_forget(w, path);
        if (r >= 0 && directory && e->mask & (IN_CREATE | IN_MOVED_TO))
                r = files_watch_add(w, path, true, 1);
        return r;
}

static int files_watch_event(FilesWatch *w, const struct inotify_event *e) {
        const char *base = e->wd >= 0 && (size_t) e->wd < w->room ? w->paths[e->wd] : NULL;
        _cleanup_free_ char *path = NULL;

        if (e->mask & IN_Q_OVERFLOW)
                return files_watch_say(w, ".", '!');
        if (!base)
                return 0;
        if (e->mask & IN_IGNORED) {
                free(w->paths[e->wd]);
                w->paths[e->wd] = NULL;
                w->count--;
                return 0;
        }
        if (e->wd == w->self && e->mask & (IN_DELETE_SELF | IN_MOVE_SELF)) {
                w->gone = true;
                return files_watch_say(w, base, 'G');
        }
        if (e->len == 0 && e->wd != w->self) // a directory's own change, which its parent tells, too
                return 0;
        if (asprintf(&path, "%s%s%s", strcmp(base, ".") == 0 && e->len > 0 ? "" : base, strcmp(base, ".") != 0 && e->len > 0 ? "/" : "", e->len > 0 ? e->name : "") < 0) {
                path = NULL;
                return -ENOMEM;
        }
        return files_watch_named(w, e, path);
}

static int files_watch_read(FilesWatch *w) {
        char buf[65536] __attribute__((aligned(__alignof__(struct inotify_event))));
        ssize_t n = read(w->inotify, buf, sizeof(buf));
        int r = 0;

        if (n < 0)
                return errno == EINTR || errno == EAGAIN ? 0 : -errno;
        for (ssize_t at = 0; at < n && r >= 0 && !w->gone;) {
                const struct inotify_event *e = (const struct inotify_event *) (buf + at);
                r = files_watch_event(w, e);
                at += (ssize_t) (sizeof(*e) + e->len);
        }
        return r < 0 ? r : tree_lister_flush(w->lister);
}

// The kernel tells that a directory is removed when nobody has it open any more, and we are in it.
static int files_watch_look(FilesWatch *w) {
        char buf[TREE_PATH_MAX + 1];
        int r;

        if (w->gone || getcwd(buf, sizeof(buf)) || errno != ENOENT)
                return 0;
        w->gone = true;
        w->lister->entry = (TreeEntry) {.type = TREE_OTHER, .path = ".", .change = 'G'};
        r = tree_lister_emit(w->lister);
        return r < 0 ? r : tree_lister_flush(w->lister);
}

static int files_watch_loop(FilesWatch *w) {
        int r = tree_lister_flush(w->lister);

        while (r >= 0 && !w->gone) {
                // Whoever read goes away without a word: its pipe's end says so.
                struct pollfd fds[] = {{.fd = w->inotify, .events = POLLIN}, {.fd = STDOUT_FILENO}};
                int n = poll(fds, ELEMENTS(fds), FILES_WATCH_LOOK_MSEC);
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n > 0 && fds[1].revents)
                        return 0;
                r = n > 0 && fds[0].revents ? files_watch_read(w) : 0;
                if (r >= 0)
                        r = files_watch_look(w);
        }
        return r < 0 ? r : tree_lister_end(w->lister);
}

// To be in the directory: paths of watches are resolved from there, and none needs /proc.
static int files_watch_begin(FilesWatch *w, const Request *request) {
        _cleanup_close_ int fd = files_open(AT_FDCWD, request->path, O_RDONLY | O_DIRECTORY, RESOLVE_NO_MAGICLINKS), dir = -EBADF;
        const char *name = ".";
        int r = 0;

        if (fd == -ENOTDIR)
                r = files_parent(request->path, &dir, &name);
        else if (fd < 0)
                return fd;
        w->single = fd < 0;
        if (r < 0 || fchdir(w->single ? dir : fd) < 0)
                return r < 0 ? r : -errno;
        w->self = inotify_add_watch(w->inotify, name, FILES_WATCH_MASK);
        if (w->self < 0)
                return -errno;
        r = files_watch_remember(w, w->self, name);
        return r >= 0 && w->recursive && !w->single ? files_watch_below(w, ".", false, 1) : r;
}

int files_watch(const Request *request, Error *err) {
        _cleanup_(files_watch_done) FilesWatch w = {.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), .recursive = request->header.flags & GUEST_FLAG_RECURSIVE};
        int r;

        if (w.inotify < 0)
                return -errno;
        r = tree_lister_new(STDOUT_FILENO, &w.lister);
        if (r >= 0)
                r = files_watch_begin(&w, request);
        return r < 0 ? r : files_watch_loop(&w);
}
