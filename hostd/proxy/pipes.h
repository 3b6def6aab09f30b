// SPDX-License-Identifier: GPL-2.0-or-later
// Pipes: what splice(2) needs between two sockets. Borrowed while bytes are in one, so that a connection that waits holds none.
#pragma once

#include <stddef.h>

#define PIPES_KEPT 64

typedef struct Pipes {
        int kept[PIPES_KEPT][2]; // empty ones
        size_t n;
} Pipes;
#define PIPES_NULL ((Pipes) {.n = 0})

int pipes_take(Pipes *pipes, int ret[2]);
// Sets both to -EBADF. Only an empty pipe is kept for the next.
void pipes_give(Pipes *pipes, int pipe[2], size_t bytes_in_it);
void pipes_done(Pipes *pipes);
