// SPDX-License-Identifier: GPL-2.0-or-later
// ResolveClient: the proxy's end of the resolver's socket. See resolve.h.
//
// What waits lies in a table; a cookie is a place in it and how often that place was used, so an answer that comes too late meets nobody.
// All have the same time, so those that wait form a list in the order of their ends, and one timer is enough.
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "border/resolve.h"

#define PLACE_BITS 12
#define PLACES (1u << PLACE_BITS)
#define NOBODY UINT32_MAX

_Static_assert(PLACES == RESOLVE_WAITING_MAX, "a place for each");

typedef struct Waiting {
        uint64_t uses;
        ResolveDone done; // NULL: a free place
        void *userdata;
        usec_t deadline;
        uint32_t next, previous; // of those that wait, or (next) of the free places
} Waiting;

struct ResolveClient {
        sd_event *event;
        struct sockaddr_un address;
        int fd;
        sd_event_source *io, *timer;
        uint32_t first, last, free;
        Waiting places[PLACES];
};

static uint64_t place_cookie(const ResolveClient *client, uint32_t place) {
        return client->places[place].uses << PLACE_BITS | place;
}

static uint32_t place_find(const ResolveClient *client, uint64_t cookie) {
        uint32_t place = (uint32_t) (cookie & (PLACES - 1));

        return client->places[place].done && place_cookie(client, place) == cookie ? place : NOBODY;
}

static void place_release(ResolveClient *client, uint32_t place) {
        Waiting *w = client->places + place;

        *(w->previous == NOBODY ? &client->first : &client->places[w->previous].next) = w->next;
        *(w->next == NOBODY ? &client->last : &client->places[w->next].previous) = w->previous;
        w->done = NULL;
        w->next = client->free;
        client->free = place;
}

static uint32_t place_take(ResolveClient *client, ResolveDone done, void *userdata) {
        uint32_t place = client->free;
        Waiting *w;

        if (place == NOBODY)
                return NOBODY;
        w = client->places + place;
        client->free = w->next;
        *w = (Waiting) {.uses = w->uses + 1, .done = done, .userdata = userdata, .next = NOBODY, .previous = client->last};
        w->deadline = clock_monotonic() + RESOLVE_TIMEOUT;
        *(client->last == NOBODY ? &client->first : &client->places[client->last].next) = place;
        client->last = place;
        return place;
}

// Released first: `done` may ask again.
static void place_end(ResolveClient *client, uint32_t place, const ResolveAnswer *answer) {
        Waiting w = client->places[place];

        place_release(client, place);
        w.done(answer, w.userdata);
}

// Only those that wait now: what `done` asks anew goes over the next connection.
static void client_lost(ResolveClient *client) {
        uint32_t last = client->last;
        uint64_t until = last == NOBODY ? 0 : place_cookie(client, last), cookie;

        client->io = sd_event_source_disable_unref(client->io);
        client->fd = close_fd(client->fd);
        while (client->first != NOBODY) {
                ResolveAnswer answer = {.error = -ECONNRESET};
                cookie = answer.cookie = place_cookie(client, client->first);
                place_end(client, client->first, &answer);
                if (cookie == until)
                        break;
        }
}

static int client_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        ResolveClient *client = userdata;
        ResolveAnswer answer;
        ssize_t n = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_TRUNC);
        uint32_t place;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n <= 0 || !resolve_answer_valid(&answer, (size_t) n)) {
                client_lost(client);
                return 0;
        }
        place = place_find(client, answer.cookie);
        if (place != NOBODY)
                place_end(client, place, &answer);
        return 0;
}

static int client_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        ResolveClient *client = userdata;
        usec_t now = clock_monotonic();

        while (client->first != NOBODY && client->places[client->first].deadline <= now) {
                ResolveAnswer answer = {.cookie = place_cookie(client, client->first), .error = -ETIMEDOUT};
                place_end(client, client->first, &answer);
        }
        if (client->first == NOBODY)
                return sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) sd_event_source_set_time(source, client->places[client->first].deadline);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int client_connect(ResolveClient *client) {
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int r;

        if (fd < 0)
                return -errno;
        // Without a wait: a full queue of connections is -EAGAIN.
        if (connect(fd, (const struct sockaddr *) &client->address, sizeof(client->address)) < 0)
                return errno == EAGAIN ? -ECONNREFUSED : -errno;
        r = sd_event_add_io(client->event, &client->io, fd, EPOLLIN, client_io, client);
        if (r < 0)
                return r;
        client->fd = TAKE_FD(fd);
        return 0;
}

static int client_arm(ResolveClient *client, uint32_t place) {
        int enabled, r;

        if (!client->timer)
                return sd_event_add_time(client->event, &client->timer, CLOCK_MONOTONIC, client->places[place].deadline, 0, client_timer, client);
        r = sd_event_source_get_enabled(client->timer, &enabled);
        if (r < 0 || enabled != SD_EVENT_OFF)
                return r; // set for somebody older
        r = sd_event_source_set_time(client->timer, client->places[place].deadline);
        return r < 0 ? r : sd_event_source_set_enabled(client->timer, SD_EVENT_ONESHOT);
}

int resolve_client_ask(ResolveClient *client, const ResolveQuestion *question, ResolveDone done, void *userdata, uint64_t *ret_cookie) {
        ResolveQuestion q = *question;
        uint32_t place;
        int r;

        if (client->fd < 0 && (r = client_connect(client)) < 0)
                return r;
        place = place_take(client, done, userdata);
        if (place == NOBODY)
                return -EBUSY;
        q.cookie = place_cookie(client, place);
        if (!resolve_question_valid(&q, sizeof(q)))
                r = -EINVAL;
        else if (send(client->fd, &q, sizeof(q), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                r = errno == EAGAIN ? -EBUSY : errno == EPIPE ? -ECONNREFUSED : -errno;
        else
                r = client_arm(client, place);
        if (r < 0) {
                place_release(client, place);
                return r;
        }
        *ret_cookie = q.cookie;
        return 0;
}

void resolve_client_cancel(ResolveClient *client, uint64_t cookie) {
        uint32_t place = place_find(client, cookie);

        if (place != NOBODY)
                place_release(client, place);
}

int resolve_client_new(sd_event *event, const char *path, ResolveClient **ret) {
        ResolveClient *client;

        if (strlen(path) >= sizeof(client->address.sun_path))
                return -ENAMETOOLONG;
        client = calloc(1, sizeof(ResolveClient));
        if (!client)
                return -ENOMEM;
        client->event = event;
        client->fd = -EBADF;
        client->address.sun_family = AF_UNIX;
        memcpy(client->address.sun_path, path, strlen(path) + 1);
        client->first = client->last = NOBODY;
        for (uint32_t i = 0; i < PLACES; i++)
                client->places[i].next = i + 1 < PLACES ? i + 1 : NOBODY;
        *ret = client;
        return 0;
}

ResolveClient *resolve_client_free(ResolveClient *client) {
        if (!client)
                return NULL;
        sd_event_source_disable_unref(client->io);
        sd_event_source_disable_unref(client->timer);
        (void) close_fd(client->fd);
        free(client);
        return NULL;
}
