// SPDX-License-Identifier: GPL-2.0-or-later
// Files: see files.h.
#include "guest/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "guest/deliver.h"
#include "guest/files_internal.h"
#include "guest/listen.h"
#include "guest/packages_check.h"
#include "guest/tree.h"

#define FILES_BUFFER (256 * 1024)

int files_open(int dir, const char *path, uint64_t flags, uint64_t resolve) {
        struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
        int fd;

        do
                fd = (int) syscall(SYS_openat2, dir, path, &how, sizeof(how));
        while (fd < 0 && errno == EAGAIN && (resolve & RESOLVE_BENEATH));
        return fd < 0 ? -errno : fd;
}

const char *files_option(const Request *request, const char *key) {
        size_t n = strlen(key);

        for (char **word = request->argv; *word; word++)
                if (strncmp(*word, key, n) == 0 && (*word)[n] == '=')
                        return *word + n + 1;
        return NULL;
}

int files_number(const Request *request, const char *key, uint64_t *ret) {
        const char *text = files_option(request, key);
        unsigned long long n;
        char *end;

        if (!text)
                return 0;
        errno = 0;
        n = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno || n > INT64_MAX)
                return -EINVAL;
        *ret = n;
        return 1;
}

static int files_enter(const char *path, int (*enter)(int start, const char *path), int *ret_dir, const char **ret_name) {
        _cleanup_free_ char *copy = strdup(path);
        size_t n = strlen(path);
        char *slash;
        int fd;

        if (!copy)
                return -ENOMEM;
        if (n > 1 && path[n - 1] == '/')
                return -EINVAL;
        slash = strrchr(copy, '/');
        *ret_name = path + (slash - copy) + 1;
        slash[slash == copy] = 0;
        if (strcmp(*ret_name, "..") == 0)
                return -EINVAL;
        if (!**ret_name)
                *ret_name = ".";
        fd = enter(AT_FDCWD, copy);
        if (fd < 0)
                return fd;
        *ret_dir = fd;
        return 0;
}

int files_parent(const char *path, int *ret_dir, const char **ret_name) {
        return files_enter(path, files_directory, ret_dir, ret_name);
}

int files_parent_to_change(const char *path, int *ret_dir, const char **ret_name) {
        return files_enter(path, files_walk, ret_dir, ret_name);
}

// At most `left` bytes. A file that shrinks meanwhile ends earlier, one that grows is read until its end.
static int files_pump(int from, int to, uint64_t left) {
        _cleanup_free_ char *buf = malloc(FILES_BUFFER);

        if (!buf)
                return -ENOMEM;
        for (;;) {
                ssize_t n = read(from, buf, MIN2(left, (uint64_t) FILES_BUFFER));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : 0;
                int r = io_write_all(to, buf, (size_t) n);
                if (r < 0)
                        return r;
                left -= (uint64_t) n;
        }
}

static int files_read(const Request *request, Error *err) {
        _cleanup_close_ int fd = -EBADF, dir = -EBADF;
        uint64_t offset = 0, length = UINT64_MAX;
        const char *name;
        struct stat st;
        int r;

        if (files_number(request, "offset", &offset) < 0 || files_number(request, "length", &length) < 0)
                return -EINVAL;
        if (request->header.flags & GUEST_FLAG_RECURSIVE) {
                if (offset > 0 || length != UINT64_MAX)
                        return -EINVAL;
                fd = files_open(AT_FDCWD, request->path, O_RDONLY | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
                if (fd >= 0)
                        return tree_pack(fd, ".", STDOUT_FILENO, NULL, err);
                r = fd == -ENOTDIR ? files_parent(request->path, &dir, &name) : fd;
                return r < 0 ? r : tree_pack(dir, name, STDOUT_FILENO, NULL, err);
        }
        fd = files_open(AT_FDCWD, request->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, RESOLVE_NO_MAGICLINKS);
        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return S_ISDIR(st.st_mode) ? -EISDIR : -EOPNOTSUPP;
        if (offset > 0 && lseek(fd, (off_t) offset, SEEK_SET) < 0)
                return -errno;
        return files_pump(fd, STDOUT_FILENO, length);
}

bool files_may_give(void) {
        return geteuid() == 0;
}

static int files_write_new(const Request *request, int dir, const char *name, mode_t mode, const FilesOwner *owner, Error *err) {
        _cleanup_(files_new_done) FilesNew new = FILES_NEW_NULL;
        int r = files_new_open(request, dir, &new);

        if (r >= 0)
                r = tree_unpack_stream(STDIN_FILENO, new.fd, err);
        if (r >= 0)
                r = files_new_finish(&new, mode, owner);
        return r < 0 ? r : files_new_place(&new, name);
}

static int files_write_tree(const Request *request, int dir, const char *name, Error *err) {
        // An existing directory, also by a link, is merged into.
        int into = files_walk(AT_FDCWD, request->path);
        TreeOptions options = {.name = into >= 0 ? "." : name, .keep_owner = files_may_give()};
        int r = tree_unpack(into >= 0 ? into : dir, STDIN_FILENO, &options, err);

        (void) close_fd(into);
        return r;
}

static int files_write(const Request *request, Error *err) {
        _cleanup_close_ int dir = -EBADF;
        mode_t mode = request->header.mode & 07777;
        FilesOwner owner;
        const char *name;
        struct stat st;
        int r = files_owner(request, &owner);

        if (r >= 0 && request->header.flags & GUEST_FLAG_PARENTS)
                r = files_make_parents(request->path, &owner);
        if (r >= 0)
                r = files_parent_to_change(request->path, &dir, &name);
        if (r < 0)
                return r;
        if (request->header.flags & GUEST_FLAG_RECURSIVE)
                return files_write_tree(request, dir, name, err);
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
                if (!S_ISREG(st.st_mode))
                        return S_ISDIR(st.st_mode) ? -EISDIR : S_ISLNK(st.st_mode) ? -ELOOP : -EOPNOTSUPP;
                if (mode == 0)
                        mode = st.st_mode & 0777;
                if (files_may_give()) // the file stays whose it was
                        owner = (FilesOwner) {owner.uid == (uid_t) -1 ? st.st_uid : owner.uid, owner.gid == (gid_t) -1 ? st.st_gid : owner.gid};
        } else if (errno != ENOENT)
                return -errno;
        return files_write_new(request, dir, name, mode ?: 0644, &owner, err);
}

static int files_remove_tree(int dir, const char *name, unsigned depth) {
        _cleanup_close_ int fd = -EBADF;
        struct dirent *e;
        DIR *d;
        int r = 0;

        if (unlinkat(dir, name, 0) == 0)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        if (depth > FILES_DEPTH_MAX)
                return -ENAMETOOLONG;
        // What is mounted below is not part of this tree: EXDEV, also for a bind mount of the same file system.
        fd = files_open(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS);
        if (fd < 0)
                return fd;
        d = fdopendir(fd);
        if (!d)
                return -errno;
        while ((e = readdir(d)))
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
                        int k = files_remove_tree(fd, e->d_name, depth + 1);
                        if (k < 0 && k != -ENOENT && r == 0)
                                r = k;
                }
        (void) closedir(d);
        fd = -EBADF;
        return r < 0 ? r : unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int files_remove(const Request *request, Error *err) {
        _cleanup_close_ int dir = -EBADF;
        const char *name;
        int r = files_parent_to_change(request->path, &dir, &name);

        if (r < 0)
                return r;
        if (strcmp(name, ".") == 0)
                return -EBUSY;
        if (request->header.flags & GUEST_FLAG_RECURSIVE)
                return files_remove_tree(dir, name, 0);
        if (unlinkat(dir, name, 0) == 0)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        return unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int (*const files_table[_GUEST_VERB_MAX])(const Request *request, Error *err) = {
        [GUEST_WRITE] = files_write,
        [GUEST_READ] = files_read,
        [GUEST_LIST] = files_list,
        [GUEST_REMOVE] = files_remove,
        [GUEST_STAT] = files_stat,
        [GUEST_SEARCH] = files_search,
        [GUEST_REPLACE] = files_replace,
        [GUEST_MOVE] = files_move,
        [GUEST_MKDIR] = files_mkdir,
        [GUEST_CHMOD] = files_chmod,
        [GUEST_CHOWN] = files_chown,
        [GUEST_WATCH] = files_watch,
        [GUEST_DELIVER] = deliver_run,
        [GUEST_ADOPT] = deliver_adopt,
        [GUEST_PACKAGES] = packages_run,
        [GUEST_LISTENS] = listen_run,
};

int files_run(const Request *request, Error *err) {
        int r;

        // The data path is written as blocking code; whoever made the pipes may have thought otherwise.
        (void) io_set_nonblock(STDIN_FILENO, false);
        (void) io_set_nonblock(STDOUT_FILENO, false);
        r = files_table[request->header.value](request, err);
        return r < 0 ? r : 0;
}
