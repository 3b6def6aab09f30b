// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox: what the helper's fork does that is to become a sandbox. A runtime is a row of the table in sandbox.c and a file of its own.
//
// It is in the sandbox's control group already, and hostd has let it go. Descriptor 0 is the channel of the sandbox's own helper, 1 and 2 are for
// what the runtime has to say. It ends as the runtime's first program, whose process 1 inside is hostd-guest with that channel.
#pragma once

#include "guest/request.h"
#include "guest/user.h"

#define SANDBOX_CHANNEL_FD 3 // of process 1
#define SANDBOX_BINARY_FD 4
#define SANDBOX_STATUS_FD 9 // to the helper, closed by the runtime's exec
#define SANDBOX_ARGUMENT "--sandbox"
#define SANDBOX_IDS 65536u

typedef struct SandboxSpec {
        const char *id;
        const char *workspace; // a directory of the agent's; NULL: a new one, which goes with the sandbox
        bool root;             // its user is root of its own user namespace, with all capabilities there but CAP_SYS_ADMIN
        uint64_t bytes;           // of all that it may write; 0: only its memory limit says
        User agent;            // who it belongs to
        uint32_t subuid, subgid; // the first of SANDBOX_IDS - 1 ids, for all users but the agent
} SandboxSpec;

// Does not return but for a failure: negative errno, and at which stage.
int sandbox_run(const Request *request, GuestStage *ret_stage);

// sandbox_bwrap.c
int sandbox_bwrap(const SandboxSpec *spec, GuestStage *ret_stage);
// sandbox_userns.c: this process becomes root of a user namespace that belongs to the agent: with a workspace its user is 1000 there, and everybody else
// is one of the agent's subordinate ids. Also in a mount namespace of its own; `ret_workspace` is open there.
int sandbox_userns(const SandboxSpec *spec, int *ret_workspace, GuestStage *ret_stage);
// sandbox_filter.c: a system call filter, as bytes in a pipe, nearly the same for root of its own user namespace.
#define SANDBOX_FILTER_MAX 256 // instructions
int sandbox_filter(bool root, int *ret_fd);
