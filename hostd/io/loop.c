// SPDX-License-Identifier: GPL-2.0-or-later
// Loop: see loop.h.
#include "io/loop.h"

#include "base/cleanup.h"

int loop_open(void) {
        int fd = epoll_create1(EPOLL_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

int loop_watch(int loop, Source *source, uint32_t events) {
        struct epoll_event event = {.events = events, .data.ptr = source};

        if (source->events == events)
                return 0;
        // Zero is what is not watched here, so an event is added to what is watched for errors alone.
        if (epoll_ctl(loop, source->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, source->fd, &event) < 0)
                return -errno;
        source->events = events;
        return 0;
}

void loop_unwatch(int loop, Source *source) {
        if (source->events)
                (void) epoll_ctl(loop, EPOLL_CTL_DEL, source->fd, NULL);
        source->events = 0;
}

int loop_turn(int loop, usec_t until) {
        struct epoll_event event;
        usec_t now = clock_monotonic();
        // At most a day at once: the number is an int of milliseconds.
        int wait = until == USEC_INFINITY ? -1 : until <= now ? 0 : (int) (MIN2(until - now, UINT64_C(86400) * USEC_PER_SEC) / USEC_PER_MSEC) + 1;
        int n = epoll_wait(loop, &event, 1, wait);
        Source *source = event.data.ptr;

        if (n == 1)
                source->ready(source, event.events);
        return n == 1;
}
