// SPDX-License-Identifier: GPL-2.0-or-later
// Process: starts a program with exactly the descriptors, environment and credentials that are named. No shell, ever.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

typedef struct ProcessSpec {
        char *const *argv;    // argv[0] is an absolute path
        char *const *env;     // NULL: a minimal one (PATH, LANG=C.UTF-8, HOME=/)
        int stdin_fd;         // -EBADF: /dev/null
        int stdout_fd;        // -EBADF: /dev/null
        int stderr_fd;        // -EBADF: inherited
        const int *extra_fds; // become 3, 4, … in the child
        size_t n_extra_fds;
        bool die_with_parent; // PR_SET_PDEATHSIG SIGKILL
        bool new_session;     // setsid
        uid_t uid;            // 0: unchanged; otherwise uid and gid with no other groups
        gid_t gid;
        uint64_t bounding; // capabilities that set-uid programs can have below, one bit each; 0: unchanged
        uint64_t ambient;  // capabilities that the program has although it is not root's, one bit each; with uid
        const char *cwd; // NULL: "/"
} ProcessSpec;

#define PROCESS_SPEC_NULL ((ProcessSpec) {.stdin_fd = -EBADF, .stdout_fd = -EBADF, .stderr_fd = -EBADF})

// The child has default signal dispositions, an empty mask, umask 0022, and no descriptor that is not named here.
int process_spawn(const ProcessSpec *spec, pid_t *ret_pid, int *ret_pidfd, Error *err);
// Runs to the end; `ret_output` (may be NULL) gets at most 1 MiB of stdout. Returns the exit status, or -errno;
// a death by signal is -EIO. Blocks: for one-shot programs and start-up only, never in the event loop.
int process_run(char *const *argv, char **ret_output, Error *err);
