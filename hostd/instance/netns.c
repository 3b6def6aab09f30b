// SPDX-License-Identifier: GPL-2.0-or-later
// Netns: hostd and hostd-instance look the same way, each for itself. What was read through /proc counts only if the process still lived
// afterwards: its number cannot have been given to another one in between. The ids are the instance's alone, so that a stranger
// with a number that was given anew does not pass either.
#include "instance/netns.h"

#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"

static int open_in(int proc, const char *path, int *ret) {
        *ret = openat(proc, path, O_RDONLY | O_CLOEXEC);
        return *ret < 0 ? -errno : 0;
}

static bool same(int a, int b) {
        struct stat x, y;

        return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool map_is(int proc, const char *name, uint32_t base, uint32_t count) {
        unsigned inside, outside, n;
        _cleanup_free_ char *text = NULL;
        int end = 0;

        return io_read_file(proc, name, 4096, &text, NULL) == 0 && sscanf(text, " %u %u %u %n", &inside, &outside, &n, &end) == 3 &&
               text[end] == 0 && inside == 0 && outside == base && n == count;
}

// Whose user namespace it has to be: of exactly these ids, or made by `owner`.
typedef struct Whose {
        uint32_t id_base, id_count; // 0 ids: not asked
        uid_t owner;
} Whose;

static bool user_is(int proc, int user, const Whose *whose) {
        uid_t owner;

        if (whose->id_count > 0)
                return map_is(proc, "uid_map", whose->id_base, whose->id_count) && map_is(proc, "gid_map", whose->id_base, whose->id_count);
        return ioctl(user, NS_GET_OWNER_UID, &owner) == 0 && owner == whose->owner;
}

static int open_checked(int proc, const Whose *whose, int *ret) {
        _cleanup_close_ int net = -EBADF, user = -EBADF, own = -EBADF, owner = -EBADF;
        int r = open_in(proc, "ns/net", &net);

        if (r >= 0)
                r = open_in(AT_FDCWD, "/proc/self/ns/net", &own);
        if (r >= 0)
                r = open_in(proc, "ns/user", &user);
        if (r < 0)
                return r;
        if (same(net, own) || !user_is(proc, user, whose))
                return -EAGAIN;
        owner = ioctl(net, NS_GET_USERNS);
        if (owner < 0 || !same(owner, user))
                return -EAGAIN;
        *ret = TAKE_FD(net);
        return 0;
}

static int open_of(pid_t pid, const Whose *whose, int *ret) {
        _cleanup_close_ int pidfd = (int) syscall(SYS_pidfd_open, pid, 0), proc = -EBADF, net = -EBADF;
        struct pollfd death = {.fd = pidfd, .events = POLLIN};
        char path[32];
        int r;

        if (pidfd < 0)
                return -ESRCH;
        (void) snprintf(path, sizeof(path), "/proc/%d", (int) pid);
        proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        r = proc < 0 ? -errno : open_checked(proc, whose, &net);
        if (r >= 0 && poll(&death, 1, 0) != 0)
                r = -ESRCH;
        if (r >= 0)
                *ret = TAKE_FD(net);
        return r;
}

int netns_open(pid_t pid, uint32_t id_base, uint32_t id_count, int *ret, Error *err) {
        int r = open_of(pid, &(Whose) {.id_base = id_base, .id_count = id_count}, ret);

        if (r == -ESRCH)
                return error_set_errno(err, r, "process %d is gone", (int) pid);
        return r < 0 ? error_set_errno(err, r, "process %d has no network namespace of this instance", (int) pid) : 0;
}

int netns_open_of(pid_t pid, uid_t owner, int *ret, Error *err) {
        int r = open_of(pid, &(Whose) {.owner = owner}, ret);

        return r < 0 ? error_set_errno(err, r, "process %d has no network namespace of its own", (int) pid) : 0;
}
