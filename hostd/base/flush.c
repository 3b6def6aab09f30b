// SPDX-License-Identifier: GPL-2.0-or-later
// Flush: see flush.h. The kernel's own interface for asynchronous I/O, of which the C library has nothing and whose library would be
// one more to load. A context is of the process that made it: a forked child must not use its parent's Flush.
#include "base/flush.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void flush_begin(Flush *flush, int fd, int told) {
        struct iocb request = {
                .aio_lio_opcode = IOCB_CMD_FDSYNC, .aio_fildes = (uint32_t) fd, .aio_flags = IOCB_FLAG_RESFD, .aio_resfd = (uint32_t) told};
        struct iocb *requests[] = {&request};

        flush->running = true;
        flush->waited = false;
        if (flush->context == 0 && syscall(SYS_io_setup, 1, &flush->context) < 0)
                flush->context = 0;
        if (flush->context != 0 && syscall(SYS_io_submit, flush->context, 1, requests) == 1)
                return;
        flush->waited = true;
        flush->result = fdatasync(fd) < 0 ? -errno : 0;
        (void) eventfd_write(told, 1);
}

int flush_end(Flush *flush, bool wait) {
        struct timespec now = {0};
        struct io_event event;
        long n;

        if (flush->waited) {
                flush->running = false;
                return flush->result;
        }
        do
                n = syscall(SYS_io_getevents, flush->context, wait ? 1 : 0, 1, &event, wait ? NULL : &now);
        while (n < 0 && errno == EINTR);
        if (n == 0)
                return FLUSH_RUNNING;
        flush->running = false;
        return n < 0 ? -errno : (int) event.res;
}

void flush_done(Flush *flush) {
        if (flush->running)
                (void) flush_end(flush, true);
        if (flush->context != 0)
                (void) syscall(SYS_io_destroy, flush->context);
        *flush = FLUSH_NULL;
}
