// SPDX-License-Identifier: GPL-2.0-or-later
// AskServer: /run/hostd/ask.sock, where people inside ask for what they are denied, and /run/hostd/hostd-guest, the program to ask with.
//
// Whatever touches these paths is done by a child with a time limit: what is at that place is the guest's own, and may hang. The child
// looks again and again, because the guest's init mounts its own /run. One packet of a client is taken, from root and from the agent's
// user, and goes to hostd, which judges it; answers go back to who waits.
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "guest/proto.h"

#define ASK_SOCKET "/run/hostd/ask.sock"
#define ASK_PROGRAM "/run/hostd/hostd-guest"
#define ASK_CLIENTS 16
#define ASK_AGENT_UID 1000

typedef struct AskClient {
        int fd; // -EBADF: a free place
        bool asked;
        GuestAsk ask; // what it said; with a number as soon as hostd has given one
        int64_t due;  // monotonic milliseconds: when it has to have asked, or hostd is asked once more
} AskClient;

typedef struct AskServer {
        int listener, fresh; // fresh: the child is about to bind it
        int binary;          // of this program, to be copied; -EBADF: none
        pid_t child;         // 0: none
        int64_t look;        // monotonic milliseconds: the next child
        unsigned looks;
        uint64_t counter;
        AskClient clients[ASK_CLIENTS];
} AskServer;

void ask_server_init(AskServer *server, int binary);
// What to wait for: the descriptors, at most ASK_CLIENTS + 1, and milliseconds (-1: for ever).
size_t ask_server_poll(const AskServer *server, struct pollfd *fds, int *ret_timeout);
void ask_server_dispatch(AskServer *server, int channel, const struct pollfd *fds, size_t n);
void ask_server_answer(AskServer *server, const GuestAnswer *answer);
bool ask_server_reaped(AskServer *server, pid_t pid, int status); // whether it was the child

// ask_client.c: hostd-guest as a command.
int ask_main(int argc, char **argv);
