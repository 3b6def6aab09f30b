// SPDX-License-Identifier: GPL-2.0-or-later
// Flush: fdatasync(2) that the caller does not wait for. A worker of the kernel's does it and an eventfd tells when it is over; where
// the kernel offers none, it is done at once and told in the same way.
#pragma once

#include <linux/aio_abi.h>
#include <stdbool.h>

#define FLUSH_RUNNING 1

typedef struct Flush {
        aio_context_t context; // 0: not asked for yet
        bool running;          // begun, and flush_end() has not told its result
        bool waited;           // it was done at once: `result` says how it ended
        int result;
} Flush;
#define FLUSH_NULL ((Flush) {0})

void flush_done(Flush *flush); // waits for what is running
// One at a time. `told` is an eventfd, which is written once it is over.
void flush_begin(Flush *flush, int fd, int told);
// The result of the fdatasync(2), once; FLUSH_RUNNING when it is not over and is not to be waited for.
int flush_end(Flush *flush, bool wait);
