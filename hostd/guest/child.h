// SPDX-License-Identifier: GPL-2.0-or-later
// Child: what the helper's fork does until it is the command: says READY itself, so that the kernel attests its pid, waits until
// hostd has put it into its cgroup, then gives up everything it is not meant to have.
#pragma once

#include <sys/resource.h>

#include "guest/request.h"

typedef struct ChildSpec {
        const Request *request;
        int fds[3];
        int channel; // to hostd, for READY only
        int status;  // to the helper: one byte comes when released, ChildFailure goes back; end of file means _exit
        int binary;   // this program, for a sandbox; -EBADF: none
        struct rlimit open_files; // as it was before the helper raised its own
} ChildSpec;

typedef struct ChildFailure {
        uint32_t stage, errnum; // stage 0: no failure, but a relay's word: errnum is the wait status of its command
} ChildFailure;

bool child_has_terminal(const Request *request);

void child_run(const ChildSpec *spec) __attribute__((noreturn));
