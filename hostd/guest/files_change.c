// SPDX-License-Identifier: GPL-2.0-or-later
// Files: mkdir, chmod, chown, move. No link is followed in the last component, and none at all below a directory that is worked through.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "guest/files.h"
#include "guest/files_internal.h"
#include "guest/user.h"

#define FILES_MKDIR_MODE 0755

int files_owner(const Request *request, FilesOwner *ret) {
        const char *owner = files_option(request, "owner"), *group = files_option(request, "group");
        FilesOwner found = {(uid_t) -1, (gid_t) -1};
        int r = 0;

        if (owner) {
                _cleanup_(user_done) User user = {0};
                r = user_load("/etc", owner, &user);
                found.uid = user.uid;
        }
        if (r >= 0 && group)
                r = user_find_group("/etc", group, &found.gid);
        if (r < 0)
                return r == -ENOENT ? -ENOKEY : r; // a name that nobody has, which is no missing file
        *ret = found;
        return 0;
}

static bool files_owner_is_given(const FilesOwner *owner) {
        return owner->uid != (uid_t) -1 || owner->gid != (gid_t) -1;
}

int files_give(int dir, const char *name, const FilesOwner *owner) {
        if (!files_owner_is_given(owner))
                return 0;
        return fchownat(dir, name, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int files_make_parents(const char *path, const FilesOwner *owner) {
        _cleanup_free_ char *copy = strdup(path);
        _cleanup_close_ int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

        if (!copy || at < 0)
                return -ENOMEM;
        for (char *name = copy + 1, *slash; (slash = strchr(name, '/')); name = slash + 1) {
                int next, r;
                *slash = 0;
                next = *name ? files_walk(at, name) : files_walk(at, ".");
                if (next == -ENOENT) {
                        bool made = mkdirat(at, name, FILES_MKDIR_MODE) == 0;
                        if (!made && errno != EEXIST)
                                return -errno;
                        r = made ? files_give(at, name, owner) : 0; // what others made meanwhile is theirs
                        if (r < 0)
                                return r;
                        next = files_open(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, RESOLVE_NO_MAGICLINKS);
                }
                if (next < 0)
                        return next;
                (void) close_fd(at);
                at = next;
        }
        return 0;
}

int files_mkdir(const Request *request, Error *err) {
        mode_t mode = request->header.mode & 07777;
        bool parents = request->header.flags & GUEST_FLAG_PARENTS;
        _cleanup_close_ int dir = -EBADF;
        struct stat st;
        FilesOwner owner;
        const char *name;
        int r = files_owner(request, &owner);

        if (r >= 0 && parents)
                r = files_make_parents(request->path, &owner);
        if (r >= 0)
                r = files_parent_to_change(request->path, &dir, &name);
        if (r < 0)
                return r;
        if (mkdirat(dir, name, FILES_MKDIR_MODE) < 0) {
                if (errno != EEXIST)
                        return -errno;
                // One that is there stays as it is.
                bool there = parents && fstatat(dir, name, &st, 0) == 0 && S_ISDIR(st.st_mode);
                return there ? 0 : -EEXIST;
        }
        // The owner first: it takes set-uid and set-gid bits away.
        r = files_give(dir, name, &owner);
        if (r >= 0 && mode != 0 && fchmodat(dir, name, mode, AT_SYMLINK_NOFOLLOW) < 0)
                r = -errno;
        return r;
}

typedef struct FilesChange {
        int (*apply)(const struct FilesChange *change, int dir, const char *name);
        mode_t mode;
        FilesOwner owner;
} FilesChange;

static int files_each(const FilesChange *change, int dir, const char *name, unsigned depth);

// Takes the descriptor. Goes on after what failed, and returns the first failure.
static int files_each_below(const FilesChange *change, int fd, unsigned depth) {
        DIR *d = fdopendir(fd);
        struct dirent *e;
        int r = 0;

        if (!d) {
                (void) close_fd(fd);
                return -errno;
        }
        while ((e = readdir(d)))
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
                        int k = files_each(change, dirfd(d), e->d_name, depth + 1);
                        if (k < 0 && k != -ENOENT && r == 0)
                                r = k;
                }
        (void) closedir(d);
        return r;
}

// What is below first, so that a directory may be closed by it. What is mounted below is not part of this tree, and is left alone.
static int files_each(const FilesChange *change, int dir, const char *name, unsigned depth) {
        struct stat st;
        int fd, k, r = 0;

        if (depth > FILES_DEPTH_MAX)
                return -ENAMETOOLONG;
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode)) {
                fd = files_open(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | (depth ? RESOLVE_NO_XDEV : 0));
                if (fd == -EXDEV)
                        return 0;
                r = fd < 0 ? fd : files_each_below(change, fd, depth);
        }
        k = depth > 0 && S_ISLNK(st.st_mode) && change->mode != (mode_t) -1 ? 0 : change->apply(change, dir, name);
        return r < 0 ? r : k;
}

static int files_change(const Request *request, const FilesChange *change) {
        _cleanup_close_ int dir = -EBADF;
        const char *name;
        int r = files_parent_to_change(request->path, &dir, &name);

        if (r < 0)
                return r;
        return request->header.flags & GUEST_FLAG_RECURSIVE ? files_each(change, dir, name, 0) : change->apply(change, dir, name);
}

// A link has no mode of its own: it is refused, never followed.
static int files_chmod_one(const FilesChange *change, int dir, const char *name) {
        struct stat st;

        if (fchmodat(dir, name, change->mode, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        if (errno == EOPNOTSUPP && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
                return -ELOOP;
        return -errno;
}

int files_chmod(const Request *request, Error *err) {
        return files_change(request, &(FilesChange) {.apply = files_chmod_one, .mode = request->header.mode & 07777});
}

static int files_chown_one(const FilesChange *change, int dir, const char *name) {
        return files_give(dir, name, &change->owner);
}

int files_chown(const Request *request, Error *err) {
        FilesChange change = {.apply = files_chown_one, .mode = (mode_t) -1};
        int r = files_owner(request, &change.owner);

        if (r < 0)
                return r;
        return files_owner_is_given(&change.owner) ? files_change(request, &change) : -EINVAL;
}

// The fault is not in what is moved.
static int files_move_target(Error *err, int r) {
        (void) error_set_field(err, FILES_TARGET, "%s", strerror(-r));
        return r;
}

static int files_move_to(const Request *request, int dir, const char *name, const char *to) {
        FilesOwner nobody = {(uid_t) -1, (gid_t) -1};
        _cleanup_close_ int to_dir = -EBADF;
        bool force = request->header.flags & GUEST_FLAG_FORCE;
        const char *to_name;
        struct stat st;
        int r = request->header.flags & GUEST_FLAG_PARENTS ? files_make_parents(to, &nobody) : 0;

        if (r >= 0)
                r = files_parent_to_change(to, &to_dir, &to_name);
        if (r < 0)
                return r;
        if (strcmp(to_name, ".") == 0)
                return -EBUSY;
        if (syscall(SYS_renameat2, dir, name, to_dir, to_name, force ? 0 : RENAME_NOREPLACE) == 0)
                return 0;
        if (errno != EINVAL || force)
                return -errno;
        // A file system that cannot refuse: asked before, which somebody may be faster than.
        if (fstatat(to_dir, to_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return -EEXIST;
        return renameat(dir, name, to_dir, to_name) < 0 ? -errno : 0;
}

int files_move(const Request *request, Error *err) {
        const char *to = files_option(request, "to"), *name;
        _cleanup_close_ int dir = -EBADF;
        struct stat st;
        int r;

        if (!to || to[0] != '/')
                return -EINVAL;
        r = files_parent_to_change(request->path, &dir, &name);
        // What is not there makes no directories, and what may not be taken away is told as such.
        if (r >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                r = -errno;
        if (r >= 0 && strcmp(name, ".") == 0)
                r = -EBUSY;
        if (r >= 0 && faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) < 0)
                r = -errno;
        if (r < 0)
                return r;
        r = files_move_to(request, dir, name, to);
        return r < 0 ? files_move_target(err, r) : 0;
}
