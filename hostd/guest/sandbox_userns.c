// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, user namespace: made by this process as the agent's user, so that the agent owns it and nobody less, and mapped by a child that is still
// root of the instance, because only who has those ids may hand them on. newuidmap would do the same, later.
#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/io.h"
#include "guest/files_internal.h"
#include "guest/sandbox.h"

// `own` is the agent's number outside and 1000 inside, where a directory of the agent's is to be worked in; all others follow one another outside. Without
// one nobody inside is the agent, and what the agent owns elsewhere is as any other's.
static int userns_map(const SandboxSpec *spec, pid_t pid, const char *file, uint32_t own, uint32_t first) {
        char path[48];

        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        if (!spec->workspace)
                return io_write_filef(AT_FDCWD, path, "0 %u %u\n", first, SANDBOX_IDS - 1);
        return io_write_filef(AT_FDCWD, path, "0 %u 1000\n1000 %u 1\n1001 %u %u\n", first, own, first + 1000, SANDBOX_IDS - 1001);
}

static void userns_mapper(const SandboxSpec *spec, pid_t pid, int gate) __attribute__((noreturn));
static void userns_mapper(const SandboxSpec *spec, pid_t pid, int gate) {
        char byte;
        int r;

        if (read(gate, &byte, 1) != 1)
                _exit(EPIPE);
        r = userns_map(spec, pid, "gid_map", spec->agent.gid, spec->subgid);
        if (r >= 0)
                r = userns_map(spec, pid, "uid_map", spec->agent.uid, spec->subuid);
        _exit(r < 0 ? -r & 0xff : 0);
}

static int userns_become_agent(const User *agent) {
        if (setgroups(0, NULL) < 0 || setresgid(agent->gid, agent->gid, agent->gid) < 0 || setresuid(agent->uid, agent->uid, agent->uid) < 0)
                return -errno;
        // Else the files of this process below /proc are root's of the host, and nobody here could map it. What the helper had in
        // its memory was wiped (helper_forget()), and the channel that it holds is the sandbox's.
        return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? -errno : 0;
}

// As the agent, and in the namespace where it will be mounted.
static int userns_workspace(const SandboxSpec *spec, int *ret) {
        struct stat st;
        int fd;

        if (!spec->workspace)
                return 0;
        fd = files_open(AT_FDCWD, spec->workspace, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS); // an earlier sandbox may have left a link in it
        if (fd < 0)
                return fd;
        *ret = fd;
        if (fstat(fd, &st) < 0)
                return -errno;
        return st.st_uid == spec->agent.uid ? 0 : -EPERM; // of the agent's own, and not what it may only read
}

int sandbox_userns(const SandboxSpec *spec, int *ret_workspace, GuestStage *ret_stage) {
        int gate[2], status, r;
        pid_t pid = getpid(), mapper;

        *ret_stage = GUEST_STAGE_SETUP;
        if (pipe2(gate, O_CLOEXEC) < 0)
                return -errno;
        mapper = fork();
        if (mapper == 0) {
                (void) close(gate[1]);
                userns_mapper(spec, pid, gate[0]);
        }
        (void) close(gate[0]);
        if (mapper < 0)
                return -errno;
        r = userns_become_agent(&spec->agent);
        if (r >= 0)
                r = unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? -errno : 0;
        if (r >= 0 && write(gate[1], "", 1) != 1)
                r = -errno;
        (void) close(gate[1]);
        if (waitpid(mapper, &status, 0) < 0)
                return -errno;
        if (r >= 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
                r = WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
        if (r < 0)
                return r;
        r = userns_workspace(spec, ret_workspace);
        if (r < 0) {
                *ret_stage = GUEST_STAGE_CWD;
                return r;
        }
        return setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 ? -errno : 0;
}
