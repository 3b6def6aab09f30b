// SPDX-License-Identifier: GPL-2.0-or-later
// Connection, relaying: see connection.h. Streams live as long as both ends do: an end that is gone is found by TCP's own probes, so a quiet
// WebSocket may be quiet for days. No TCP_USER_TIMEOUT: it would also end a stream whose reader pauses.
#include "proxy/connection_internal.h"

#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>

#define FAIR_BYTES (2 << 20) // then it is the turn of others
#define UNSENT_BYTES (128 << 10) // that wait in the client's socket

static MeterTime time_now(void) {
        return (MeterTime) {clock_monotonic(), clock_realtime()};
}

static void keep_alive(int fd) {
        static const struct { int level, option, value; } options[] = {
                {SOL_SOCKET, SO_KEEPALIVE, 1},
                {IPPROTO_TCP, TCP_KEEPIDLE, 60},
                {IPPROTO_TCP, TCP_KEEPINTVL, 15},
                {IPPROTO_TCP, TCP_KEEPCNT, 4},
                {IPPROTO_TCP, TCP_NODELAY, 1},
        };

        for (size_t i = 0; i < ELEMENTS(options); i++) // of the interceptor's socket those of TCP fail
                (void) setsockopt(fd, options[i].level, options[i].option, &options[i].value, sizeof(int));
}

// The client is at the other end of a wire of this host, which loses nothing and is as fast as memory. A congestion control that paces (BBR,
// where the host has it) only adds a timer for each few packets, and bytes that lie in the socket before the client can take them are out of the
// processor's caches by the time that it does; they may as well wait at the server. Both refused: as the host has it.
static void suit_the_wire(int client) {
        static const char plain[] = "reno"; // each kernel has it, and each user may
        int unsent = UNSENT_BYTES;

        (void) setsockopt(client, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof(plain) - 1);
        (void) setsockopt(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

static void pump_later(Connection *c, usec_t from_now) {
        int r = from_now > 0 ? connection_set_timer(c, from_now) : sd_event_source_set_enabled(c->more, SD_EVENT_ONESHOT);

        if (r < 0)
                connection_end(c, FLOW_ERROR, 0, "out of memory");
}

// A server that keeps the connection although it was told not to, and a client that has a next request: it waits for nothing.
static bool wants_second_request(const Connection *c) {
        int unread = 0;

        return c->relay.up.gate == GATE_SHUT && ioctl(c->client, FIONREAD, &unread) == 0 && unread > 0;
}

static void pump_waits(Connection *c, size_t moved) {
        usec_t now = clock_monotonic(), limit = 0;

        if (moved > 0 || c->idle_since == 0)
                c->idle_since = now;
        // Half a connection is no stream that waits for something to happen; nobody answers for its other end.
        if (relay_is_half_closed(&c->relay))
                limit = HALF_CLOSED_TIMEOUT;
        else if (wants_second_request(c))
                limit = SECOND_REQUEST_TIMEOUT;
        if (limit > 0 && now >= c->idle_since + limit)
                connection_end(c, FLOW_ALLOW, 0, limit == HALF_CLOSED_TIMEOUT ? "one end has closed, and nothing came from the other any more"
                                                                            : "a second request on the connection");
        else if (limit > 0)
                pump_later(c, c->idle_since + limit - now);
}

static usec_t longest_delay(const Connection *c, const MeterTime *now) {
        usec_t delay = 0;

        for (size_t i = 0; i < ELEMENTS(c->meters); i++)
                if (c->meters[i])
                        delay = MAX2(delay, meter_delay(c->meters[i], now));
        return delay;
}

void connection_pump(Connection *c) {
        MeterTime now = time_now();
        uint64_t allowance = FAIR_BYTES;
        size_t moved = 0;
        int r;

        for (size_t i = 0; i < ELEMENTS(c->meters); i++) {
                if (c->meters[i] && meter_is_spent(c->meters[i], &now)) {
                        connection_end(c, FLOW_ALLOW, 0, "the rule's budget for today is used up");
                        return;
                }
                if (c->meters[i])
                        allowance = MIN2(allowance, meter_allowance(c->meters[i], &now));
        }
        if (allowance == 0) {
                pump_later(c, MAX2(longest_delay(c, &now), USEC_PER_MSEC));
                return;
        }
        r = relay_pump(&c->relay, &c->slot->proxy->pipes, (size_t) allowance, &moved);
        for (size_t i = 0; i < ELEMENTS(c->meters); i++)
                if (c->meters[i])
                        meter_spend(c->meters[i], moved, &now);
        if (r == -EMFILE || r == -ENFILE) // no pipe: others will give theirs back
                pump_later(c, USEC_PER_SEC / 10);
        else if (r < 0)
                connection_end(c, FLOW_ALLOW, 0, r == -EBADMSG ? "not a chunked body" : strerror(-r));
        else if (r == RELAY_OVER)
                connection_end(c, FLOW_ALLOW, 0, "");
        else if (r == RELAY_HAS_MORE)
                pump_later(c, longest_delay(c, &now));
        else
                pump_waits(c, moved);
}

static int server_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        connection_pump(userdata);
        return 0;
}

static int more(sd_event_source *source, void *userdata) {
        connection_pump(userdata);
        return 0;
}

// ---- the beginning

static int put_header(Connection *c) {
        ProxyAddress from = c->from;
        uint8_t header[PROXY_HEADER_MAX];

        // A client of the other family has no address here that could stand beside the server's.
        if (from.family != c->target.family)
                from = (ProxyAddress) {.family = c->target.family};
        c->header = proxy_header_write(&from, &c->target, c->host.name, c->slot->number, header);
        return c->header == 0 ? -EINVAL : relay_flow_put(&c->relay.up, header, c->header);
}

static int put_request(Connection *c) {
        char head[HTTP_HEAD_MAX + HTTP_REWRITE_MORE];
        int r = relay_flow_put(&c->relay.up, head, http_head_rewrite(&c->head, c->data, head));

        if (r < 0)
                return r;
        if (c->head.websocket) { // nothing may come behind the head before the server's answer; what does is not passed on
                c->relay.up.gate = GATE_UPGRADE;
                return 0;
        }
        c->relay.up.gate = GATE_BODY;
        c->relay.up.body = c->head.chunked ? http_body_chunked() : http_body_length(c->head.length == HTTP_NO_LENGTH ? 0 : c->head.length);
        return relay_put_body(&c->relay, c->data + c->head.size, c->size - c->head.size);
}

static int relay_prepare(Connection *c) {
        sd_event *event = c->slot->proxy->event;
        int r = 0;

        relay_begin(&c->relay, c->client, c->server);
        if (c->intercepted)
                r = put_header(c);
        if (r >= 0)
                r = c->request ? put_request(c) : relay_flow_put(&c->relay.up, c->data, c->size);
        if (r < 0)
                return r;
        free(TAKE_PTR(c->data));
        c->size = c->room = 0;
        keep_alive(c->client);
        keep_alive(c->server);
        suit_the_wire(c->client);
        r = sd_event_source_set_io_events(c->client_io, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
        if (r >= 0)
                r = sd_event_add_io(event, &c->server_io, c->server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, server_io, c);
        if (r >= 0)
                r = sd_event_add_defer(event, &c->more, more, c);
        return r < 0 ? r : sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
}

void connection_relay(Connection *c) {
        int r = relay_prepare(c);

        if (r < 0) {
                connection_end(c, FLOW_ERROR, 0, r == -EBADMSG ? "not a chunked body" : strerror(-r));
                return;
        }
        c->state = CONNECTION_RELAYING;
        connection_pump(c);
}
