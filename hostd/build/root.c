// SPDX-License-Identifier: GPL-2.0-or-later
// Root: see root.h. Access to the tree, its check and its cleaning.
#include "build/root.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"

// 2025-01-01: a constant, because the time of the build is in the manifest.
#define ROOT_EPOCH ((time_t) 1735689600)

int root_open(int root, const char *path, int flags) {
        struct open_how how = {.flags = (uint64_t) flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
        int fd;

        if (flags & O_CREAT)
                how.mode = 0600;
        do // EAGAIN: a rename or mount anywhere on the host happened meanwhile and the kernel could not be sure of a ".."
                fd = (int) syscall(SYS_openat2, root, path, &how, sizeof(how));
        while (fd < 0 && errno == EAGAIN);
        return fd < 0 ? -errno : fd;
}

// Opens the parent of `path`, making what is missing; ret_name points into `path`.
static int root_parent(int root, const char *path, bool make, const char **ret_name) {
        const char *slash = strrchr(path, '/');
        _cleanup_free_ char *parent = slash && slash != path ? strndup(path, (size_t) (slash - path)) : strdup("/");
        int fd;

        if (!parent)
                return -ENOMEM;
        *ret_name = slash ? slash + 1 : path;
        fd = root_open(root, parent, O_RDONLY | O_DIRECTORY);
        if (fd != -ENOENT || !make)
                return fd;
        // Each missing component by itself, so that a link on the way means the same as later.
        for (char *p = parent + 1;; p++) {
                char saved = *p;
                if (saved && saved != '/')
                        continue;
                *p = 0;
                const char *name = NULL;
                _cleanup_close_ int above = root_parent(root, parent, false, &name);
                if (above >= 0 && mkdirat(above, name, 0755) < 0 && errno != EEXIST)
                        return -errno;
                *p = saved;
                if (!saved)
                        break;
        }
        return root_open(root, parent, O_RDONLY | O_DIRECTORY);
}

static int root_fail(Error *err, int r, const char *what, const char *path) {
        return error_set_errno(err, r, "cannot %s %s in the image", what, path);
}

int root_write(int root, const char *path, const char *text, mode_t mode, Error *err) {
        const char *name = NULL;
        _cleanup_close_ int parent = root_parent(root, path, true, &name), fd = -EBADF;

        if (parent < 0)
                return root_fail(err, parent, "write", path);
        // The old one goes, so that no link or shared inode is written through.
        if (unlinkat(parent, name, 0) < 0 && errno != ENOENT)
                return root_fail(err, errno, "replace", path);
        fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return root_fail(err, errno, "write", path);
        int r = io_write_all(fd, text, strlen(text));
        if (r >= 0 && fchmod(fd, mode) < 0)
                r = -errno;
        return r < 0 ? root_fail(err, r, "write", path) : 0;
}

int root_append(int root, const char *path, const char *text, Error *err) {
        _cleanup_close_ int fd = root_open(root, path, O_WRONLY | O_APPEND | O_CREAT);
        int r = fd < 0 ? fd : io_write_all(fd, text, strlen(text));

        return r < 0 ? root_fail(err, r, "append to", path) : 0;
}

int root_read(int root, const char *path, size_t max, char **ret, Error *err) {
        _cleanup_close_ int fd = root_open(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        _cleanup_free_ char *text = NULL;
        struct stat st;
        size_t used = 0;

        if (fd < 0 || fstat(fd, &st) < 0)
                return root_fail(err, fd < 0 ? fd : -errno, "read", path);
        if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size > max)
                return error_set(err, ERR_INVALID, "%s in the image is no regular file of at most %zu bytes", path, max);
        text = malloc((size_t) st.st_size + 1);
        if (!text)
                return root_fail(err, ENOMEM, "read", path);
        while (used < (size_t) st.st_size) {
                ssize_t n = read(fd, text + used, (size_t) st.st_size - used);
                if (n < 0)
                        return root_fail(err, errno, "read", path);
                if (n == 0)
                        break;
                used += (size_t) n;
        }
        text[used] = 0;
        *ret = TAKE_PTR(text);
        return 0;
}

static int remove_content(int dir, const char *path, Error *err) {
        struct dirent **names = NULL;
        int n = scandirat(dir, ".", &names, NULL, NULL), r = 0;

        for (int i = 0; i < n; i++) {
                const char *name = names[i]->d_name;
                if (r >= 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
                        r = io_remove_tree(dir, name);
                free(names[i]);
        }
        free(names);
        return r < 0 ? root_fail(err, r, "empty", path) : 0;
}

int root_remove(int root, const char *path, Error *err) {
        _cleanup_free_ char *copy = strdup(path);
        size_t n = strlen(path);
        bool content = n > 2 && strcmp(path + n - 2, "/*") == 0;
        const char *name = NULL;
        int r;

        if (!copy)
                return root_fail(err, ENOMEM, "remove", path);
        if (content) {
                copy[n - 2] = 0;
                _cleanup_close_ int dir = root_open(root, copy, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
                return dir == -ENOENT || dir == -ELOOP || dir == -ENOTDIR ? 0
                       : dir < 0                                          ? root_fail(err, dir, "empty", copy)
                                                                          : remove_content(dir, copy, err);
        }
        _cleanup_close_ int parent = root_parent(root, copy, false, &name);
        if (parent == -ENOENT || parent == -ENOTDIR)
                return 0;
        r = parent < 0 ? parent : io_remove_tree(parent, name);
        return r < 0 ? root_fail(err, r, "remove", path) : 0;
}

int root_symlink(int root, const char *target, const char *path, Error *err) {
        const char *name = NULL;
        _cleanup_close_ int parent = root_parent(root, path, true, &name);

        if (parent < 0)
                return root_fail(err, parent, "link", path);
        if (unlinkat(parent, name, 0) < 0 && errno != ENOENT)
                return root_fail(err, errno, "replace", path);
        return symlinkat(target, parent, name) < 0 ? root_fail(err, errno, "link", path) : 0;
}

int root_mkdir(int root, const char *path, mode_t mode, Error *err) {
        const char *name = NULL;
        _cleanup_close_ int parent = root_parent(root, path, true, &name), fd = -EBADF;

        if (parent < 0 || (mkdirat(parent, name, mode) < 0 && errno != EEXIST))
                return root_fail(err, parent < 0 ? parent : -errno, "make", path);
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fchmod(fd, mode) < 0)
                return root_fail(err, errno, "make", path);
        return 0;
}

int root_chown(int root, const char *path, uid_t uid, gid_t gid, Error *err) {
        const char *name = NULL;
        _cleanup_close_ int parent = root_parent(root, path, false, &name);

        if (parent < 0 || fchownat(parent, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
                return root_fail(err, parent < 0 ? parent : -errno, "change the owner of", path);
        return 0;
}

int root_check(int root, Error *err) {
        static const struct {
                const char *name;
                mode_t mode;
        } rows[] = {{"etc", 0755}, {"dev", 0755}, {"proc", 0555}, {"sys", 0555}, {"run", 0755}, {"tmp", 01777}, {"var", 0755}};
        _cleanup_close_ int init = -EBADF;
        struct stat st;

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                if (fstatat(root, rows[i].name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        if (errno != ENOENT || mkdirat(root, rows[i].name, rows[i].mode) < 0 ||
                            fchmodat(root, rows[i].name, rows[i].mode, 0) < 0)
                                return root_fail(err, errno, "make", rows[i].name);
                } else if (!S_ISDIR(st.st_mode))
                        return error_set(err, ERR_INVALID, "the image is refused: its /%s is no directory%s", rows[i].name,
                                         S_ISLNK(st.st_mode) ? " but a link" : "");
        }
        init = root_open(root, "/sbin/init", O_PATH);
        if (init < 0 || fstat(init, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
                return error_set(err, ERR_INVALID, "the image is refused: it has no executable /sbin/init");
        return 0;
}

static int remove_matching(int root, const char *dir, const char *prefix, Error *err) {
        _cleanup_close_ int fd = root_open(root, dir, O_RDONLY | O_DIRECTORY);
        struct dirent **names = NULL;
        int n = fd < 0 ? 0 : scandirat(fd, ".", &names, NULL, NULL), r = 0;

        for (int i = 0; i < n; i++) {
                if (r >= 0 && strncmp(names[i]->d_name, prefix, strlen(prefix)) == 0)
                        r = io_remove_tree(fd, names[i]->d_name);
                free(names[i]);
        }
        free(names);
        return r < 0 ? root_fail(err, r, "clean", dir) : 0;
}

// Removes files and links; directories stay, because services expect theirs (owner and mode are a package's).
static int remove_files(int dir, unsigned depth) {
        struct dirent **names = NULL;
        int n = scandirat(dir, ".", &names, NULL, NULL), r = 0;

        for (int i = 0; i < n; i++) {
                const char *name = names[i]->d_name;
                if (r >= 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
                        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                        if (fd >= 0)
                                r = depth > 64 ? -ELOOP : remove_files(fd, depth + 1);
                        else if (unlinkat(dir, name, 0) < 0)
                                r = -errno;
                }
                free(names[i]);
        }
        free(names);
        return r;
}

int root_clean(int root, Error *err) {
        static const char *const gone[] = {
                "/dev/*", "/proc/*", "/sys/*", "/run/*", "/tmp/*", "/var/tmp/*", "/var/lib/apt/lists/*", "/var/cache/apt/*",
                "/var/lib/dbus/machine-id", "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret",
                "/var/lib/systemd/timers", "/var/lib/systemd/catalog/database", "/var/cache/ldconfig/aux-cache",
                "/var/cache/debconf/config.dat-old", "/var/cache/debconf/templates.dat-old", "/var/lib/dpkg/status-old",
                "/var/lib/dpkg/available-old", "/var/lib/dpkg/diversions-old", "/var/lib/dpkg/statoverride-old",
                "/etc/hostname", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-",
                "/etc/subgid-", "/etc/.pwd.lock", "/root/.bash_history",
        };
        _cleanup_close_ int log = root_open(root, "/var/log", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        struct stat st;
        int r = log < 0 ? 0 : remove_files(log, 0);

        if (r < 0)
                return root_fail(err, r, "empty", "/var/log");
        for (size_t i = 0; i < ELEMENTS(gone); i++) {
                r = root_remove(root, gone[i], err);
                if (r < 0)
                        return r;
        }
        r = remove_matching(root, "/etc/ssh", "ssh_host_", err);
        // Empty, not absent: systemd then makes a new one at each first start without asking first-boot questions.
        if (r >= 0 && fstatat(root, "etc/machine-id", &st, AT_SYMLINK_NOFOLLOW) == 0)
                r = root_write(root, "/etc/machine-id", "", 0444, err);
        return r;
}

static int clamp_directory(int dir, time_t start, unsigned depth) {
        const struct timespec times[2] = {{.tv_sec = ROOT_EPOCH}, {.tv_sec = ROOT_EPOCH}};
        struct dirent **names = NULL;
        struct stat st;
        int n = scandirat(dir, ".", &names, NULL, NULL), r = n < 0 ? -errno : 0;

        for (int i = 0; i < n; i++) {
                const char *name = names[i]->d_name;
                bool dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
                if (r >= 0 && !dots && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        r = -errno;
                if (r >= 0 && !dots && S_ISDIR(st.st_mode)) {
                        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                        r = fd < 0 ? -errno : depth > 256 ? -ELOOP : clamp_directory(fd, start, depth + 1);
                }
                if (r >= 0 && !dots && st.st_mtime >= start && utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
                        r = -errno;
                free(names[i]);
        }
        free(names);
        return r;
}

int root_clamp_times(int root, time_t start, Error *err) {
        const struct timespec times[2] = {{.tv_sec = ROOT_EPOCH}, {.tv_sec = ROOT_EPOCH}};
        int r = clamp_directory(root, start, 0);

        if (r >= 0 && futimens(root, times) < 0)
                r = -errno;
        return r < 0 ? root_fail(err, r, "set times", "/") : 0;
}
