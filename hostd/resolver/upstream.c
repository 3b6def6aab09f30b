// SPDX-License-Identifier: GPL-2.0-or-later
// Upstream: attempts one after the other until one answers. An upstream that does not answer, or with an error, is left alone for a time
// that doubles each time, and asked all the same when there is no better one.
#include "resolver/upstream.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/strv.h"
#include "resolver/dns_wire.h"

static const usec_t timeouts[] = {800 * USEC_PER_MSEC, 1500 * USEC_PER_MSEC, 2000 * USEC_PER_MSEC}; // of an attempt in each round
#define DEADLINE (4500 * USEC_PER_MSEC) // stub resolvers give up after five seconds
#define BACKOFF_FIRST USEC_PER_SEC
#define BACKOFF_MAX (60 * USEC_PER_SEC)
#define FORGERIES_MAX 16 // datagrams that are no answer, before TCP is asked instead
#define TCP_ANSWER_MAX 16384

typedef union Address {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
} Address;

typedef struct Upstream {
        char *text; // owned
        Address address;
        unsigned failures;
        usec_t down_until;
} Upstream;

struct Upstreams {
        sd_event *event;
        Upstream list[UPSTREAMS_MAX];
        size_t n;
        unsigned generation; // of the list: an index of an older one means nothing
        uint8_t buffer[TCP_ANSWER_MAX];
        DnsAnswer answer; // what is being read, one at a time: four kilobytes that no waiting Ask needs
};

struct Ask {
        Upstreams *upstreams;
        DnsName name;
        DnsAsked asked;
        const DnsAnswer *so_far;
        AskDone done;
        void *userdata;
        usec_t deadline;
        unsigned round, tried, generation, forgeries;
        size_t at; // the upstream that is being asked
        bool tcp, answered_badly;
        int fd;
        sd_event_source *io, *timer;
        uint8_t *tcp_in; // owned
        size_t tcp_size, tcp_sent;
};

int upstreams_new(sd_event *event, Upstreams **ret) {
        Upstreams *u = calloc(1, sizeof(Upstreams));

        if (!u)
                return -ENOMEM;
        u->event = sd_event_ref(event);
        *ret = u;
        return 0;
}

Upstreams *upstreams_free(Upstreams *upstreams) {
        if (!upstreams)
                return NULL;
        for (size_t i = 0; i < upstreams->n; i++)
                free(upstreams->list[i].text);
        sd_event_unref(upstreams->event);
        free(upstreams);
        return NULL;
}

static bool address_parse(const char *text, Address *ret) {
        *ret = (Address) {.in6 = {0}};
        if (inet_pton(AF_INET, text, &ret->in.sin_addr) == 1)
                ret->in.sin_family = AF_INET;
        else if (inet_pton(AF_INET6, text, &ret->in6.sin6_addr) == 1)
                ret->in6.sin6_family = AF_INET6;
        else
                return false;
        ret->in.sin_port = htons(53); // at the same place in both
        return true;
}

void upstreams_set(Upstreams *u, char *const *addresses) {
        Upstream old[UPSTREAMS_MAX];
        size_t n_old = u->n;

        memcpy(old, u->list, sizeof(old));
        u->n = 0;
        u->generation++;
        for (; addresses && *addresses && u->n < UPSTREAMS_MAX; addresses++) {
                Upstream *to = &u->list[u->n];
                *to = (Upstream) {0};
                if (!address_parse(*addresses, &to->address))
                        continue;
                for (size_t i = 0; i < n_old; i++)
                        if (old[i].text && strcmp(old[i].text, *addresses) == 0) {
                                *to = old[i];
                                old[i].text = NULL;
                        }
                if (!to->text)
                        to->text = strdup(*addresses);
                u->n += to->text != NULL;
        }
        for (size_t i = 0; i < n_old; i++)
                free(old[i].text);
}

// Random bytes from a small store, since the kernel is asked for some with each question.
static void random_bytes(void *to, size_t size) {
        static uint8_t store[256];
        static size_t left;

        if (left < size) {
                // Without randomness there is no protection against forged answers: better no resolver.
                if (getrandom(store, sizeof(store), 0) != sizeof(store))
                        abort();
                left = sizeof(store);
        }
        left -= size;
        memcpy(to, store + left, size);
        memset(store + left, 0, size);
}

static void randomise_case(DnsName *name) {
        uint8_t bits[32];

        random_bytes(bits, sizeof(bits));
        for (size_t at = 0; name->wire[at] > 0; at += name->wire[at] + 1u)
                for (size_t i = at + 1; i <= at + name->wire[at]; i++)
                        if (name->wire[i] >= 'a' && name->wire[i] <= 'z' && bits[i / 8] >> i % 8 & 1)
                                name->wire[i] &= (uint8_t) ~0x20;
}

static void ask_close(Ask *ask) {
        ask->io = sd_event_source_disable_unref(ask->io);
        ask->timer = sd_event_source_disable_unref(ask->timer);
        ask->fd = close_fd(ask->fd);
        free(ask->tcp_in);
        ask->tcp_in = NULL;
        ask->tcp_size = ask->tcp_sent = 0;
}

Ask *ask_free(Ask *ask) {
        if (ask)
                ask_close(ask);
        free(ask);
        return NULL;
}

static void ask_end(Ask *ask, int result) {
        const DnsAnswer *answer = result == 0 ? &ask->upstreams->answer : NULL;
        AskDone done = ask->done;
        void *userdata = ask->userdata;

        ask_free(ask);
        done(userdata, result, answer);
}

// An upstream of an older list may be another by now, or none.
static Upstream *ask_upstream(const Ask *ask) {
        return ask->generation == ask->upstreams->generation ? &ask->upstreams->list[ask->at] : NULL;
}

static void upstream_failed(Upstream *u) {
        if (!u)
                return;
        u->down_until = clock_monotonic() + MIN2(BACKOFF_FIRST << MIN2(u->failures, 6u), BACKOFF_MAX);
        u->failures++;
}

// The first that was not tried in this round and is not down; or else the one that is down for the shortest time.
static int ask_choose(Ask *ask) {
        const Upstreams *u = ask->upstreams;
        usec_t now = clock_monotonic();
        int best = -1;

        if (ask->generation != u->generation) {
                ask->generation = u->generation;
                ask->tried = 0;
        }
        for (size_t i = 0; i < u->n; i++) {
                if (ask->tried & 1u << i)
                        continue;
                if (u->list[i].down_until <= now)
                        return (int) i;
                if (best < 0 || u->list[i].down_until < u->list[best].down_until)
                        best = (int) i;
        }
        return best;
}

static int ask_start(Ask *ask);

static void ask_next(Ask *ask) {
        int r;

        ask_close(ask);
        if (clock_monotonic() < ask->deadline) {
                do {
                        r = ask_start(ask);
                } while (r == -EAGAIN);
                if (r == 0)
                        return;
        }
        ask_end(ask, ask->answered_badly ? -EREMOTEIO : -ETIMEDOUT);
}

static int ask_on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Ask *ask = userdata;

        upstream_failed(ask_upstream(ask));
        ask_next(ask);
        return 0;
}

static void ask_failed(Ask *ask) {
        upstream_failed(ask_upstream(ask));
        ask_next(ask);
}

static int ask_connect(Ask *ask);

static void ask_by_tcp(Ask *ask) {
        ask_close(ask);
        ask->tcp = true;
        if (!ask_upstream(ask) || ask_connect(ask) < 0)
                ask_failed(ask);
}

// 0: not the answer, wait on. 1: the Ask is gone or has gone on.
static int ask_receive(Ask *ask, const uint8_t *data, size_t size) {
        DnsAnswer *answer = &ask->upstreams->answer;
        Upstream *u = ask_upstream(ask);
        int r;

        if (ask->so_far)
                *answer = *ask->so_far;
        else { // not all of it is to be set to zero for each message
                answer->n = answer->n_chain = answer->size = 0;
                answer->ttl = UINT32_MAX;
        }
        r = dns_answer_read(data, size, &ask->asked, answer);

        if (r == -ENOMSG && !ask->tcp) {
                if (++ask->forgeries < FORGERIES_MAX)
                        return 0;
                ask_by_tcp(ask);
                return 1;
        }
        if (r == 0 && answer->truncated && !ask->tcp) {
                ask_by_tcp(ask);
                return 1;
        }
        if (r < 0 || answer->truncated || (answer->rcode != DNS_NOERROR && answer->rcode != DNS_NXDOMAIN)) {
                // It lives: another may know more, but this one needs no rest for a name that it cannot resolve.
                ask->answered_badly = true;
                ask_next(ask);
                return 1;
        }
        if (u)
                u->failures = 0, u->down_until = 0;
        ask_end(ask, 0);
        return 1;
}

static int ask_on_udp(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Ask *ask = userdata;

        for (unsigned i = 0; i < FORGERIES_MAX; i++) {
                ssize_t n = recv(fd, ask->upstreams->buffer, sizeof(ask->upstreams->buffer), 0);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return 0;
                if (n < 0) { // refused, unreachable
                        ask_failed(ask);
                        return 0;
                }
                if (ask_receive(ask, ask->upstreams->buffer, (size_t) n))
                        return 0;
        }
        return 0;
}

static int tcp_send(Ask *ask) {
        uint8_t message[2 + 512];
        ssize_t size = dns_asked_write(&ask->asked, message + 2, sizeof(message) - 2), n;

        if (size < 0)
                return (int) size;
        put16(message, (uint16_t) size);
        n = send(ask->fd, message + ask->tcp_sent, (size_t) size + 2 - ask->tcp_sent, MSG_NOSIGNAL);
        if (n < 0)
                return errno == EAGAIN ? 0 : -errno;
        ask->tcp_sent += (size_t) n;
        if (ask->tcp_sent < (size_t) size + 2)
                return 0;
        ask->tcp_in = malloc(2 + TCP_ANSWER_MAX);
        return ask->tcp_in ? sd_event_source_set_io_events(ask->io, EPOLLIN) : -ENOMEM;
}

static int tcp_read(Ask *ask) {
        ssize_t n = recv(ask->fd, ask->tcp_in + ask->tcp_size, 2 + TCP_ANSWER_MAX - ask->tcp_size, 0);
        size_t size;

        if (n < 0)
                return errno == EAGAIN ? 0 : -errno;
        if (n == 0)
                return -ECONNRESET;
        ask->tcp_size += (size_t) n;
        size = ask->tcp_size < 2 ? 0 : get16(ask->tcp_in);
        if (size > TCP_ANSWER_MAX)
                return -E2BIG;
        if (ask->tcp_size < 2 || ask->tcp_size < 2 + size)
                return 0;
        (void) ask_receive(ask, ask->tcp_in + 2, size);
        return 0;
}

static int ask_on_tcp(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Ask *ask = userdata;

        if ((ask->tcp_in ? tcp_read(ask) : tcp_send(ask)) < 0)
                ask_failed(ask);
        return 0;
}

static int ask_connect(Ask *ask) {
        const Upstream *u = &ask->upstreams->list[ask->at];
        uint8_t message[512];
        ssize_t size;
        int r;

        random_bytes(&ask->asked.id, sizeof(ask->asked.id));
        ask->asked.name = ask->name;
        if (ask->round == 0) // some do not give the case back
                randomise_case(&ask->asked.name);
        ask->fd = socket(u->address.any.sa_family, (ask->tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (ask->fd < 0)
                return -errno;
        if (connect(ask->fd, &u->address.any, u->address.any.sa_family == AF_INET ? sizeof(u->address.in) : sizeof(u->address.in6)) < 0 && errno != EINPROGRESS)
                return -errno;
        if (!ask->tcp) {
                size = dns_asked_write(&ask->asked, message, sizeof(message));
                if (size < 0 || send(ask->fd, message, (size_t) size, 0) < 0)
                        return size < 0 ? (int) size : -errno;
        }
        r = sd_event_add_io(ask->upstreams->event, &ask->io, ask->fd, ask->tcp ? EPOLLOUT : EPOLLIN, ask->tcp ? ask_on_tcp : ask_on_udp, ask);
        if (r < 0)
                return r;
        return sd_event_add_time_relative(ask->upstreams->event, &ask->timer, CLOCK_MONOTONIC, timeouts[ask->round], 10 * USEC_PER_MSEC, ask_on_timer, ask);
}

// One attempt. -EAGAIN: this upstream cannot be asked, another may; -ENOENT: none is left.
static int ask_start(Ask *ask) {
        int at = ask_choose(ask);

        if (at < 0) {
                ask->round++;
                ask->tried = 0;
                if (ask->round < ELEMENTS(timeouts))
                        at = ask_choose(ask);
        }
        if (at < 0)
                return -ENOENT;
        ask->at = (size_t) at;
        ask->tried |= 1u << at;
        ask->tcp = false;
        ask->forgeries = 0;
        if (ask_connect(ask) == 0)
                return 0;
        ask_close(ask);
        upstream_failed(ask_upstream(ask));
        return -EAGAIN;
}

int ask_new(Upstreams *upstreams, const AskSpec *spec, Ask **ret) {
        Ask *ask = calloc(1, sizeof(Ask));
        int r;

        if (!ask)
                return -ENOMEM;
        ask->upstreams = upstreams;
        ask->fd = -EBADF;
        ask->name = *spec->name;
        ask->asked.type = spec->type;
        ask->so_far = spec->so_far;
        ask->done = spec->done;
        ask->userdata = spec->userdata;
        ask->generation = upstreams->generation;
        ask->deadline = clock_monotonic() + DEADLINE;
        do {
                r = ask_start(ask);
        } while (r == -EAGAIN);
        if (r < 0) {
                ask_free(ask);
                return r;
        }
        *ret = ask;
        return 0;
}
