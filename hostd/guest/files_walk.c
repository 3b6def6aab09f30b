// SPDX-License-Identifier: GPL-2.0-or-later
// Files, walk: the way to what root changes. A link that somebody else put there would lead root, and what it gives away, to where only root may write:
// into a directory of programs, say. Root follows links of its own alone; everybody else may go where its own rights go.
#include <fcntl.h>
#include <linux/limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "guest/files_internal.h"

#define WALK_LINKS_MAX 40 // as the kernel's

// One component, not followed. `ret_link` gets the text of a link that may be followed, else "".
static int walk_one(int at, const char *name, int *ret, char ret_link[PATH_MAX]) {
        _cleanup_close_ int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        ssize_t n;

        *ret_link = 0;
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (S_ISLNK(st.st_mode)) {
                if (st.st_uid != 0)
                        return -ELOOP;
                n = readlinkat(fd, "", ret_link, PATH_MAX - 1);
                if (n <= 0)
                        return n < 0 ? -errno : -ENOENT;
                ret_link[n] = 0;
                return 0;
        }
        if (!S_ISDIR(st.st_mode))
                return -ENOTDIR;
        *ret = TAKE_FD(fd);
        return 0;
}

static int walk_as_root(int start, const char *path) {
        _cleanup_close_ int at = openat(start, *path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        char link[PATH_MAX], todo[2 * PATH_MAX], rest[2 * PATH_MAX], *name, *end;
        unsigned links = 0;

        if (at < 0)
                return -errno;
        if ((size_t) snprintf(todo, sizeof(todo), "%s", path) >= sizeof(todo))
                return -ENAMETOOLONG;
        for (name = todo; *(name += strspn(name, "/"));) {
                int next = -EBADF, r;
                end = name + strcspn(name, "/");
                if ((size_t) snprintf(rest, sizeof(rest), "%s", end) >= sizeof(rest))
                        return -ENAMETOOLONG;
                *end = 0;
                r = walk_one(at, name, &next, link);
                if (r < 0)
                        return r;
                if (*link) {
                        if (++links > WALK_LINKS_MAX)
                                return -ELOOP;
                        if (*link == '/' && (next = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
                                return -errno;
                }
                if (next >= 0) {
                        (void) close_fd(at);
                        at = next;
                }
                if ((size_t) snprintf(todo, sizeof(todo), "%s%s", link, rest) >= sizeof(todo))
                        return -ENAMETOOLONG;
                name = todo;
        }
        return TAKE_FD(at);
}

int files_directory(int start, const char *path) {
        int fd = files_open(start, path, O_RDONLY | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);

        return fd == -EACCES ? files_open(start, path, O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS) : fd; // searchable is enough
}

int files_walk(int start, const char *path) {
        _cleanup_close_ int at = -EBADF;

        if (geteuid() != 0)
                return files_directory(start, path);
        at = walk_as_root(start, path);
        return at < 0 ? TAKE_FD(at) : files_directory(at, ".");
}
