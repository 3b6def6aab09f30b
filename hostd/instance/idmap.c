// SPDX-License-Identifier: GPL-2.0-or-later
// Idmap: see idmap.h.
#include "instance/idmap.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/io.h"

static int idmap_write(pid_t pid, uint32_t base, uint32_t count) {
        static const char *const files[] = {"uid_map", "gid_map"};
        char path[64];

        for (size_t i = 0; i < ELEMENTS(files); i++) {
                (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, files[i]);
                int r = io_write_filef(AT_FDCWD, path, "0 %u %u\n", base, count);
                if (r < 0)
                        return r;
        }
        return 0;
}

// mount_setattr() takes its map from a user namespace, so a child makes one and lives until we have hold of it.
int idmap_open(uint32_t base, uint32_t count) {
        _cleanup_close_ int ready = -EBADF, ready_child = -EBADF;
        int pair[2], fd = -EBADF, r = 0;
        char path[64], byte;
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        ready = pair[0], ready_child = pair[1];
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0) {
                (void) close(ready);
                if (unshare(CLONE_NEWUSER) < 0 || write(ready_child, "", 1) != 1)
                        _exit(1);
                _exit((int) read(ready_child, &byte, 1)); // until the parent has the namespace
        }
        ready_child = close_fd(ready_child);
        if (read(ready, &byte, 1) != 1)
                r = -EPERM;
        if (r == 0)
                r = idmap_write(pid, base, count);
        if (r == 0) {
                (void) snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) pid);
                fd = open(path, O_RDONLY | O_CLOEXEC);
                r = fd < 0 ? -errno : fd;
        }
        ready = close_fd(ready);
        (void) waitpid(pid, NULL, 0);
        return r;
}

int idmap_clone(int dir, int userns, uint64_t set, uint64_t clear) {
        struct mount_attr attr = {
                .attr_set = MOUNT_ATTR_IDMAP | set, .attr_clr = clear, .propagation = MS_PRIVATE, .userns_fd = (uint64_t) userns};
        _cleanup_close_ int tree = open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

        if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                return -errno;
        return TAKE_FD(tree);
}
