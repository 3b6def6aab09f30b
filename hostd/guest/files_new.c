// SPDX-License-Identifier: GPL-2.0-or-later
// Files: what is to take another's place. It has no name before it is whole, where the file system can do that: who is killed on the way leaves nothing.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "guest/files_internal.h"

static int files_new_path(const FilesNew *new, char ret[32]) {
        (void) snprintf(ret, 32, "/proc/self/fd/%d", new->fd);
        return faccessat(AT_FDCWD, ret, F_OK, 0);
}

int files_new_open(const Request *request, int dir, FilesNew *ret) {
        char path[32];

        *ret = (FilesNew) {.dir = dir};
        (void) snprintf(ret->temp, sizeof(ret->temp), ".hostd-%s.tmp", request->header.id);
        ret->fd = openat(dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
        if (ret->fd >= 0 && files_new_path(ret, path) == 0)
                return 0;
        (void) close_fd(ret->fd);
        ret->fd = openat(dir, ret->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (ret->fd < 0)
                return -errno;
        ret->named = true;
        return 0;
}

static int files_new_name(FilesNew *new) {
        char path[32];

        if (new->named)
                return 0;
        (void) files_new_path(new, path);
        if (linkat(AT_FDCWD, path, new->dir, new->temp, AT_SYMLINK_FOLLOW) < 0)
                return -errno;
        new->named = true;
        return 0;
}

int files_new_finish(FilesNew *new, mode_t mode, const FilesOwner *owner) {
        // The owner first: it takes set-uid and set-gid bits away.
        if (owner && fchown(new->fd, owner->uid, owner->gid) < 0)
                return -errno;
        // On the disk before it has the name: a cut of the power leaves the old one or this one, and no empty one.
        return fchmod(new->fd, mode) < 0 || fsync(new->fd) < 0 ? -errno : 0;
}

int files_new_place(FilesNew *new, const char *name) {
        int r = files_new_name(new);

        if (r >= 0 && renameat(new->dir, new->temp, new->dir, name) < 0)
                r = -errno;
        if (r >= 0)
                new->named = false; // it is another's name now
        return r;
}

void files_new_done(FilesNew *new) {
        if (new->named)
                (void) unlinkat(new->dir, new->temp, 0);
        new->named = false;
        new->fd = close_fd(new->fd);
}
