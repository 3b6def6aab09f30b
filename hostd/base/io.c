// SPDX-License-Identifier: GPL-2.0-or-later
// Io: see io.h.
#include "base/io.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

int io_read_all(int fd, size_t max, char **ret, size_t *ret_size) {
        _cleanup_free_ char *buf = NULL;
        size_t used = 0, room = 0;

        for (;;) {
                if (room - used < 2) {
                        char *grown = realloc(buf, room = room ? room * 2 : 4096);
                        if (!grown)
                                return -ENOMEM;
                        buf = grown;
                }
                ssize_t n = read(fd, buf + used, room - used - 1);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        break;
                used += (size_t) n;
                if (used > max)
                        return -EFBIG;
        }
        buf[used] = 0;
        *ret = TAKE_PTR(buf);
        if (ret_size)
                *ret_size = used;
        return 0;
}

int io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_size) {
        _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);

        return fd < 0 ? -errno : io_read_all(fd, max, ret, ret_size);
}

int io_read_u64(int dirfd, const char *path, unsigned long long *ret) {
        _cleanup_free_ char *text = NULL;
        char *end;
        int r = io_read_file(dirfd, path, 4096, &text, NULL);

        if (r < 0)
                return r;
        if (strncmp(text, "max", 3) == 0) {
                *ret = UINT64_MAX;
                return 0;
        }
        errno = 0;
        *ret = strtoull(text, &end, 10);
        return errno ? -errno : end == text ? -EBADMSG : 0;
}

int io_write_all(int fd, const void *data, size_t size) {
        const char *p = data;

        while (size > 0) {
                ssize_t n = write(fd, p, size);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                p += n;
                size -= (size_t) n;
        }
        return 0;
}

int io_write_file(int dirfd, const char *path, const char *text) {
        _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        size_t size = strlen(text);

        if (fd < 0)
                return -errno;
        ssize_t n = write(fd, text, size);
        return n < 0 ? -errno : (size_t) n < size ? -EIO : 0;
}

int io_write_filef(int dirfd, const char *path, const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        va_list ap;
        int n;

        va_start(ap, format);
        n = vasprintf(&text, format, ap);
        va_end(ap);
        if (n < 0) {
                text = NULL;
                return -ENOMEM;
        }
        return io_write_file(dirfd, path, text);
}

static int io_write_new(int dir, const char *name, const void *data, size_t size, mode_t mode) {
        _cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        int r;

        if (fd < 0)
                return -errno;
        r = io_write_all(fd, data, size);
        if (r < 0)
                return r;
        // Explicit, so that no umask has a say.
        if (fchmod(fd, mode) < 0 || fsync(fd) < 0)
                return -errno;
        return 0;
}

int io_write_atomic(int dirfd, const char *path, const void *data, size_t size, mode_t mode) {
        _cleanup_free_ char *parent = strdup(path);
        _cleanup_free_ char *temp = NULL;
        _cleanup_close_ int dir = -EBADF;
        const char *name;
        char *slash;
        int r;

        if (!parent)
                return -ENOMEM;
        slash = strrchr(parent, '/');
        name = slash ? path + (slash - parent) + 1 : path;
        if (slash)
                slash[slash == parent] = 0;
        dir = openat(dirfd, slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return -errno;
        if (asprintf(&temp, ".%s.%d.tmp", name, getpid()) < 0) {
                temp = NULL;
                return -ENOMEM;
        }
        r = io_write_new(dir, temp, data, size, mode);
        if (r == -EEXIST && unlinkat(dir, temp, 0) == 0)
                r = io_write_new(dir, temp, data, size, mode); // left over from a process that died with our pid
        if (r == 0 && renameat(dir, temp, dir, name) < 0)
                r = -errno;
        if (r < 0) {
                (void) unlinkat(dir, temp, 0);
                return r;
        }
        return fsync(dir) < 0 ? -errno : 0;
}

// ".NAME.PID.tmp" and nothing else.
static bool is_temporary(const char *name) {
        size_t size = strlen(name);
        const char *pid;

        if (name[0] != '.' || size < 8 || strcmp(name + size - 4, ".tmp") != 0)
                return false;
        for (pid = name + size - 4; pid > name && pid[-1] >= '0' && pid[-1] <= '9'; pid--)
                ;
        return pid < name + size - 4 && pid > name + 1 && pid[-1] == '.';
}

void io_sweep_temporaries(int dirfd, const char *path) {
        int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *e;

        if (!d) {
                (void) close_fd(fd);
                return;
        }
        while ((e = readdir(d)))
                if (is_temporary(e->d_name))
                        (void) unlinkat(fd, e->d_name, 0); // what stays harms nobody
        (void) closedir(d);
}

int io_mkdir_p(int dirfd, const char *path, mode_t mode) {
        _cleanup_free_ char *copy = strdup(path);

        if (!copy)
                return -ENOMEM;
        for (char *p = copy + (*copy == '/');; p++) {
                if (*p && *p != '/')
                        continue;
                char saved = *p;
                *p = 0;
                if (*copy && mkdirat(dirfd, copy, mode) < 0 && errno != EEXIST)
                        return -errno;
                if (!saved)
                        return 0;
                *p = saved;
        }
}

// Each level costs stack, memory and a descriptor of ours, and is free for whoever makes it.
#define REMOVE_DEPTH_MAX 128

typedef struct Removal {
        dev_t device;
        unsigned depth;
} Removal;

static int remove_entry(int dir, const char *name, Removal *removal);

static int remove_children(int fd, Removal *removal) {
        DIR *d = fdopendir(fd);
        struct dirent *e;
        int r = 0;

        if (!d) {
                r = -errno;
                (void) close_fd(fd);
                return r;
        }
        while ((e = readdir(d))) {
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                int k = remove_entry(dirfd(d), e->d_name, removal);
                if (k < 0 && r == 0)
                        r = k;
        }
        (void) closedir(d);
        return r;
}

static int remove_entry(int dir, const char *name, Removal *removal) {
        struct stat st;
        int fd, r;

        if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        if (removal->depth == REMOVE_DEPTH_MAX && unlinkat(dir, name, AT_REMOVEDIR) < 0)
                return errno == ENOENT ? 0 : -ELOOP;
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        // A mount below is somebody's data, not part of this tree.
        if (fstat(fd, &st) < 0 || st.st_dev != removal->device) {
                (void) close_fd(fd);
                return -EXDEV;
        }
        removal->depth++;
        r = remove_children(fd, removal); // closes fd
        removal->depth--;
        if (unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT && r == 0)
                r = -errno;
        return r;
}

int io_remove_tree(int dirfd, const char *path) {
        struct stat st;

        if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        return remove_entry(dirfd, path, &(Removal) {.device = st.st_dev});
}

int io_set_nonblock(int fd, bool nonblock) {
        int flags = fcntl(fd, F_GETFL);

        if (flags < 0)
                return -errno;
        flags = nonblock ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
        return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int io_pipe(int size, int *ret_rd, int *ret_wr) {
        _cleanup_close_ int rd = -EBADF, wr = -EBADF;
        int p[2], r;

        if (pipe2(p, O_CLOEXEC) < 0)
                return -errno;
        rd = p[0];
        wr = p[1];
        if (size > 0)
                (void) fcntl(wr, F_SETPIPE_SZ, size);
        r = io_set_nonblock(wr, true);
        if (r < 0)
                return r;
        *ret_rd = TAKE_FD(rd);
        *ret_wr = TAKE_FD(wr);
        return 0;
}

ssize_t io_send_fds(int sock, const void *data, size_t size, const int *fds, size_t n_fds, int flags) {
        union {
                char buf[CMSG_SPACE(sizeof(int) * IO_FDS_MAX)];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {(void *) data, size};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n;

        if (n_fds > IO_FDS_MAX)
                return -E2BIG;
        if (n_fds > 0) {
                msg.msg_control = control.buf;
                msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
        }
        do
                n = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

static void take_fds(struct msghdr *msg, int *fds, size_t *n_fds, size_t room) {
        for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < n; i++) {
                        int fd;
                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                        if (*n_fds < room)
                                fds[(*n_fds)++] = fd;
                        else
                                (void) close_fd(fd);
                }
        }
}

ssize_t io_recv_fds(int sock, void *data, size_t size, int *fds, size_t *n_fds, int flags) {
        union {
                char buf[CMSG_SPACE(sizeof(int) * IO_FDS_MAX)];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {data, size};
        struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
        size_t room = *n_fds;
        ssize_t n;

        *n_fds = 0;
        do
                n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        take_fds(&msg, fds, n_fds, room);
        return n;
}
