// SPDX-License-Identifier: GPL-2.0-or-later
// TcpClient: a connection of an instance. Questions may follow one another without waiting (RFC 7766); answers go out as they come.
//
// A connection ends when it says nothing whole for IDLE, when what it does not read is more than TCP_OUT_MAX, or when a message is
// longer than a question can be. It reads no further while too many of its questions wait.
#include "resolver/resolver.h"

#include <string.h>
#include <sys/socket.h>

#include "resolver/dns_wire.h"

#define IDLE (10 * USEC_PER_SEC)
#define WAITING_MAX 8

struct TcpClient {
        Slot *slot;
        TcpClient *next, *previous;
        int fd;
        sd_event_source *io, *timer;
        uint8_t in[2 + DNS_QUERY_MAX];
        size_t in_size;
        uint8_t *out; // owned; what the client did not read yet
        size_t out_size;
        unsigned waiting; // questions that were not answered
        bool ended;       // it will ask nothing more
        bool broken;      // shut down: the loop will say so
};

TcpClient *tcp_client_free(TcpClient *client) {
        Slot *slot;

        if (!client)
                return NULL;
        slot = client->slot;
        pending_free_of(slot, client);
        *(client->previous ? &client->previous->next : &slot->clients) = client->next;
        if (client->next)
                client->next->previous = client->previous;
        slot->n_clients--;
        slot->resolver->n_tcp--;
        slot->resolver->tcp_out -= client->out_size;
        sd_event_source_disable_unref(client->io);
        sd_event_source_disable_unref(client->timer);
        (void) close_fd(client->fd);
        free(client->out);
        free(client);
        return NULL;
}

// Whoever is in the middle of an answer for this client goes on to use it; so it ends from the loop, which sees the hang-up.
static void client_break(TcpClient *client) {
        client->broken = true;
        (void) shutdown(client->fd, SHUT_RDWR);
}

static bool client_has_message(const TcpClient *client) {
        return client->in_size >= 2 && client->in_size - 2 >= get16(client->in);
}

static bool client_may_ask(const TcpClient *client) {
        return !client->slot->flooded && client->waiting < WAITING_MAX && client->out_size == 0;
}

TcpClient *tcp_client_next(TcpClient *client) {
        return client->next;
}

void tcp_client_update(TcpClient *client) {
        bool room = client_may_ask(client);
        // A message that was read already and may be answered now: the socket, which can be written to, brings us back for it.
        bool more = client->out_size > 0 || (room && client_has_message(client));

        if (client->ended && client->waiting == 0 && !more && !client->slot->flooded)
                client_break(client);
        if (sd_event_source_set_io_events(client->io, (room && !client->ended ? EPOLLIN : 0) | (more ? EPOLLOUT : 0)) < 0)
                client_break(client);
}

static int client_flush(TcpClient *client) {
        ssize_t n = client->out_size > 0 ? send(client->fd, client->out, client->out_size, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

        if (n < 0)
                return errno == EAGAIN ? 0 : -errno;
        client->slot->resolver->tcp_out -= (size_t) n;
        client->out_size -= (size_t) n;
        if (client->out_size > 0)
                memmove(client->out, client->out + n, client->out_size);
        else {
                free(client->out);
                client->out = NULL;
        }
        return 0;
}

static int client_queue(TcpClient *client, const uint8_t *data, size_t size) {
        size_t *all = &client->slot->resolver->tcp_out;
        uint8_t *larger;

        if (client->out_size + size + 2 > TCP_OUT_MAX || *all + size + 2 > TCP_OUT_ALL)
                return -ENOBUFS;
        larger = realloc(client->out, client->out_size + size + 2);
        if (!larger)
                return -ENOMEM;
        client->out = larger;
        put16(larger + client->out_size, (uint16_t) size);
        memcpy(larger + client->out_size + 2, data, size);
        client->out_size += size + 2;
        *all += size + 2;
        return 0;
}

void tcp_client_answer(TcpClient *client, const uint8_t *data, size_t size) {
        client->waiting--;
        if (client->broken)
                return;
        if (client_queue(client, data, size) < 0 || client_flush(client) < 0)
                client_break(client);
        tcp_client_update(client);
}

static void client_message(TcpClient *client, const uint8_t *data, size_t size) {
        Origin origin = {.kind = ORIGIN_TCP, .tcp = client};
        static DnsQuery query;
        int r = dns_query_read(data, size, &query);

        if (r < 0) {
                client_break(client);
                return;
        }
        client->waiting++;
        if (r == 0)
                question_ask(client->slot, &origin, &query);
        else
                question_malformed(client->slot, &origin, &query, r);
}

// As many whole messages as may wait. A next one that is there already is taken when an answer made room.
static void client_messages(TcpClient *client) {
        size_t at = 0;

        while (!client->broken && client_may_ask(client) && client->in_size - at >= 2) {
                size_t size = get16(client->in + at);
                if (size < DNS_HEADER_SIZE || size > DNS_QUERY_MAX) {
                        client_break(client);
                        return;
                }
                if (client->in_size - at - 2 < size)
                        break;
                client_message(client, client->in + at + 2, size);
                at += 2 + size;
                (void) sd_event_source_set_time_relative(client->timer, IDLE);
        }
        client->in_size -= at;
        memmove(client->in, client->in + at, client->in_size);
}

static int client_read(TcpClient *client) {
        ssize_t n;

        if (client->in_size == sizeof(client->in))
                return 0;
        n = recv(client->fd, client->in + client->in_size, sizeof(client->in) - client->in_size, MSG_DONTWAIT);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        client->ended = n == 0;
        client->in_size += (size_t) n;
        return 0;
}

static int client_on_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        TcpClient *client = userdata;

        if (client->broken || events & (EPOLLERR | EPOLLHUP) || client_flush(client) < 0 || (events & EPOLLIN && client_read(client) < 0)) {
                tcp_client_free(client);
                return 0;
        }
        client_messages(client);
        tcp_client_update(client);
        return 0;
}

static int client_on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        TcpClient *client = userdata;

        // What waits for us is not the client's fault, and ends by itself.
        if (client->waiting > 0 && client->out_size == 0) {
                (void) sd_event_source_set_time_relative(client->timer, IDLE);
                (void) sd_event_source_set_enabled(client->timer, SD_EVENT_ONESHOT);
        } else
                tcp_client_free(client);
        return 0;
}

int tcp_client_new(Slot *slot, int fd) {
        _cleanup_close_ int own = fd;
        TcpClient *client;
        int r;

        if (slot->n_clients >= TCP_CLIENTS_MAX || slot->resolver->n_tcp >= TCP_CLIENTS_ALL)
                return -EBUSY;
        client = calloc(1, sizeof(TcpClient));
        if (!client)
                return -ENOMEM;
        client->slot = slot;
        client->fd = TAKE_FD(own);
        client->next = slot->clients;
        if (client->next)
                client->next->previous = client;
        slot->clients = client;
        slot->n_clients++;
        slot->resolver->n_tcp++;
        r = sd_event_add_io(slot->resolver->event, &client->io, client->fd, EPOLLIN, client_on_io, client);
        if (r >= 0)
                r = sd_event_add_time_relative(slot->resolver->event, &client->timer, CLOCK_MONOTONIC, IDLE, USEC_PER_SEC / 10, client_on_timer, client);
        if (r < 0)
                tcp_client_free(client);
        return r < 0 ? r : 0;
}
