// SPDX-License-Identifier: GPL-2.0-or-later
// Pipes: see pipes.h.
#include "proxy/pipes.h"

#include <fcntl.h>

#include "base/cleanup.h"

// The kernel gives a user without rights 64 MiB of pipes in all; those beyond stay small and are slower.
#define PIPE_BYTES (512 << 10)

int pipes_take(Pipes *pipes, int ret[2]) {
        if (pipes->n > 0) {
                pipes->n--;
                ret[0] = pipes->kept[pipes->n][0];
                ret[1] = pipes->kept[pipes->n][1];
                return 0;
        }
        if (pipe2(ret, O_CLOEXEC | O_NONBLOCK) < 0) {
                ret[0] = ret[1] = -EBADF;
                return -errno;
        }
        (void) fcntl(ret[1], F_SETPIPE_SZ, PIPE_BYTES);
        return 0;
}

void pipes_give(Pipes *pipes, int pipe[2], size_t bytes_in_it) {
        if (pipe[0] >= 0 && bytes_in_it == 0 && pipes->n < PIPES_KEPT) {
                pipes->kept[pipes->n][0] = TAKE_FD(pipe[0]);
                pipes->kept[pipes->n][1] = TAKE_FD(pipe[1]);
                pipes->n++;
                return;
        }
        pipe[0] = close_fd(pipe[0]);
        pipe[1] = close_fd(pipe[1]);
}

void pipes_done(Pipes *pipes) {
        while (pipes->n > 0) {
                pipes->n--;
                (void) close_fd(pipes->kept[pipes->n][0]);
                (void) close_fd(pipes->kept[pipes->n][1]);
        }
}
