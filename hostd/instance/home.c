// SPDX-License-Identifier: GPL-2.0-or-later
// Home: the first contents of data/home, copied from the template's /home.
//
// The copy runs in a forked child that is root of the instance's user namespace only, on two idmapped mounts: owners come out
// right by themselves, and a template that holds something nasty meets a process without rights on the host. Links are
// copied as links, devices, fifos and sockets are left out, and number, depth and size are bounded.
#include "instance/rootfs.h"

#include <dirent.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/io.h"

#define COPY_ENTRIES_MAX 20000
#define COPY_BYTES_MAX (256LL * 1024 * 1024)
#define COPY_DEPTH_MAX 32

typedef struct Copy {
        unsigned entries, depth;
        long long bytes;
} Copy;

static int copy_children(Copy *copy, int from, int to);

static int copy_file(Copy *copy, int from, int to, const char *name, const struct stat *st) {
        _cleanup_close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        _cleanup_close_ int out = -EBADF;
        off_t left = st->st_size;

        copy->bytes += st->st_size;
        if (copy->bytes > COPY_BYTES_MAX)
                return -EFBIG;
        out = in < 0 ? -errno : openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out < 0)
                return in < 0 ? out : -errno;
        while (left > 0) {
                ssize_t n = sendfile(out, in, NULL, (size_t) left);
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                left -= n;
        }
        // The rename that puts the copy in place may outlive a power cut that the files' contents do not.
        return fchown(out, st->st_uid, st->st_gid) < 0 || fchmod(out, st->st_mode & 07777) < 0 || fsync(out) < 0 ? -errno : 0;
}

static int copy_link(int from, int to, const char *name, const struct stat *st) {
        char target[PATH_MAX];
        ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

        if (n < 0)
                return -errno;
        target[n] = 0;
        if (symlinkat(target, to, name) < 0 || fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        return 0;
}

static int copy_dir(Copy *copy, int from, int to, const char *name, const struct stat *st) {
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        int r;

        if (copy->depth >= COPY_DEPTH_MAX)
                return -ELOOP;
        in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (in < 0 || mkdirat(to, name, 0700) < 0)
                return -errno;
        out = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (out < 0)
                return -errno;
        copy->depth++;
        r = copy_children(copy, in, out);
        copy->depth--;
        if (r < 0)
                return r;
        return fchown(out, st->st_uid, st->st_gid) < 0 || fchmod(out, st->st_mode & 07777) < 0 || fsync(out) < 0 ? -errno : 0;
}

static int copy_entry(Copy *copy, int from, int to, const char *name) {
        struct stat st;

        if (++copy->entries > COPY_ENTRIES_MAX)
                return -E2BIG;
        if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (S_ISREG(st.st_mode))
                return copy_file(copy, from, to, name, &st);
        if (S_ISLNK(st.st_mode))
                return copy_link(from, to, name, &st);
        if (S_ISDIR(st.st_mode))
                return copy_dir(copy, from, to, name, &st);
        return 0;
}

static int copy_children(Copy *copy, int from, int to) {
        int fd = fcntl(from, F_DUPFD_CLOEXEC, 3), r = 0;
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *entry;

        if (!dir) {
                r = -errno;
                (void) close_fd(fd);
                return r;
        }
        while (r == 0 && (errno = 0, entry = readdir(dir)))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        r = copy_entry(copy, from, to, entry->d_name);
        if (r == 0 && errno != 0)
                r = -errno;
        (void) closedir(dir);
        return r;
}

static int copy_as_mapped_root(int userns, int from, int to) {
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        Copy copy = {0};
        int r;

        if (setns(userns, CLONE_NEWUSER) < 0 || setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
                return -errno;
        // O_PATH descriptors cannot be read; "." opens the same directory on the same mount.
        in = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        out = openat(to, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (in < 0 || out < 0)
                return -errno;
        r = copy_children(&copy, in, out);
        return r < 0 ? r : fsync(out) < 0 ? -errno : 0;
}

int home_copy(int userns, int from, int to, Error *err) {
        int status;
        pid_t pid = fork();

        if (pid < 0)
                return error_set_errno(err, errno, "forking");
        if (pid == 0) {
                (void) umask(0);
                _exit(-copy_as_mapped_root(userns, from, to));
        }
        if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
                return error_set(err, ERR_INTERNAL, "the copying process died");
        if (WEXITSTATUS(status) != 0) // errno values fit an exit status
                return error_set_errno(err, WEXITSTATUS(status), "at most %d entries, %d levels and 256 MiB are copied",
                                       COPY_ENTRIES_MAX, COPY_DEPTH_MAX);
        return 0;
}
