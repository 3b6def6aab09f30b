// SPDX-License-Identifier: GPL-2.0-or-later
// Dial: see dial.h.
#include "proxy/dial.h"

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

typedef struct Attempt {
        Dial *dial;
        int fd;
        sd_event_source *io;
        size_t address;
} Attempt;

struct Dial {
        sd_event *event;
        DialDone done;
        void *userdata;
        ProxyAddress addresses[DIAL_ADDRESSES_MAX];
        size_t n, next; // addresses; the next to try
        Attempt attempts[DIAL_ADDRESSES_MAX];
        size_t running;
        sd_event_source *timer;
        usec_t deadline;
        int error; // the first one tells most
};

socklen_t proxy_sockaddr(const ProxyAddress *address, struct sockaddr_storage *ret) {
        struct sockaddr_in *v4 = (struct sockaddr_in *) ret;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) ret;

        memset(ret, 0, sizeof(*ret));
        if (address->family == 4) {
                v4->sin_family = AF_INET;
                v4->sin_port = htons(address->port);
                memcpy(&v4->sin_addr, address->address, sizeof(v4->sin_addr));
                return sizeof(*v4);
        }
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(address->port);
        memcpy(&v6->sin6_addr, address->address, sizeof(v6->sin6_addr));
        return sizeof(*v6);
}

ProxyAddress proxy_address(const struct sockaddr_storage *from) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *) from;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *) from;
        ProxyAddress address = {0};

        if (from->ss_family == AF_INET) {
                address.family = 4;
                address.port = ntohs(v4->sin_port);
                memcpy(address.address, &v4->sin_addr, sizeof(v4->sin_addr));
        } else if (from->ss_family == AF_INET6) {
                address.family = 6;
                address.port = ntohs(v6->sin6_port);
                memcpy(address.address, &v6->sin6_addr, sizeof(v6->sin6_addr));
        }
        return address;
}

static void attempt_end(Attempt *attempt) {
        if (attempt->fd < 0)
                return;
        attempt->io = sd_event_source_disable_unref(attempt->io);
        attempt->fd = close_fd(attempt->fd);
        attempt->dial->running--;
}

static void dial_failed(Dial *dial, int error) {
        dial->error = dial->error ?: error;
}

static void dial_finish(Dial *dial, int fd, size_t address) {
        for (size_t i = 0; i < DIAL_ADDRESSES_MAX; i++)
                attempt_end(&dial->attempts[i]);
        dial->timer = sd_event_source_disable_unref(dial->timer);
        dial->done(fd, &dial->addresses[address], dial->userdata);
}

static int attempt_io(sd_event_source *source, int fd, uint32_t events, void *userdata);

static int attempt_begin(Dial *dial, size_t address) {
        Attempt *attempt = &dial->attempts[address];
        struct sockaddr_storage to;
        socklen_t size = proxy_sockaddr(&dial->addresses[address], &to);
        int r;

        attempt->fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (attempt->fd < 0)
                return -errno;
        dial->running++;
        r = connect(attempt->fd, (struct sockaddr *) &to, size) < 0 && errno != EINPROGRESS ? -errno : 0;
        if (r >= 0)
                r = sd_event_add_io(dial->event, &attempt->io, attempt->fd, EPOLLOUT, attempt_io, attempt);
        if (r < 0)
                attempt_end(attempt);
        return r;
}

// Begins attempts until one is on its way, and asks to be called again.
static void dial_continue(Dial *dial) {
        usec_t now = clock_monotonic();
        bool begun = false;

        while (dial->next < dial->n && !begun) {
                int r = attempt_begin(dial, dial->next++);
                if (r < 0)
                        dial_failed(dial, r);
                else
                        begun = true;
        }
        (void) sd_event_source_set_time(dial->timer, dial->running == 0 ? 0 : dial->next < dial->n ? MIN2(now + DIAL_NEXT, dial->deadline) : dial->deadline);
        (void) sd_event_source_set_enabled(dial->timer, SD_EVENT_ONESHOT);
}

static int dial_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Dial *dial = userdata;

        if (dial->running == 0 && dial->next >= dial->n)
                dial_finish(dial, dial->error ?: -ETIMEDOUT, 0);
        else if (clock_monotonic() >= dial->deadline)
                dial_finish(dial, -ETIMEDOUT, 0);
        else
                dial_continue(dial);
        return 0;
}

static int attempt_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Attempt *attempt = userdata;
        Dial *dial = attempt->dial;
        int error = 0;
        socklen_t size = sizeof(error);

        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
                error = errno;
        if (error == 0) {
                attempt->io = sd_event_source_disable_unref(attempt->io);
                dial->running--;
                dial_finish(dial, TAKE_FD(attempt->fd), attempt->address);
                return 0;
        }
        dial_failed(dial, -error);
        attempt_end(attempt);
        dial_continue(dial);
        return 0;
}

int dial_new(sd_event *event, const ProxyAddress *addresses, size_t n_addresses, DialDone done, void *userdata, Dial **ret) {
        _cleanup_(dial_freep) Dial *dial = calloc(1, sizeof(Dial));
        int r;

        if (!dial)
                return -ENOMEM;
        dial->event = event;
        dial->done = done;
        dial->userdata = userdata;
        dial->n = MIN2(n_addresses, (size_t) DIAL_ADDRESSES_MAX);
        dial->deadline = clock_monotonic() + DIAL_TIMEOUT;
        for (size_t i = 0; i < DIAL_ADDRESSES_MAX; i++)
                dial->attempts[i] = (Attempt) {.dial = dial, .fd = -EBADF, .address = i};
        memcpy(dial->addresses, addresses, dial->n * sizeof(*addresses));
        r = sd_event_add_time(event, &dial->timer, CLOCK_MONOTONIC, 0, 10 * USEC_PER_MSEC, dial_timer, dial);
        if (r < 0)
                return r;
        dial_continue(dial); // tells nobody: what ends at once is told by the timer
        *ret = TAKE_PTR(dial);
        return 0;
}

Dial *dial_free(Dial *dial) {
        if (!dial)
                return NULL;
        for (size_t i = 0; i < DIAL_ADDRESSES_MAX; i++)
                attempt_end(&dial->attempts[i]);
        sd_event_source_disable_unref(dial->timer);
        free(dial);
        return NULL;
}
