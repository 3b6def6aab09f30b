// SPDX-License-Identifier: GPL-2.0-or-later
// Connection: see connection.h. Here: its beginning, what the client says first, refusals and the end.
#include "proxy/connection_internal.h"

#include <linux/netfilter_ipv4.h>
#include <netinet/tcp.h>
#include <string.h>

#include "border/border.h"

#define SO_ORIGINAL_DST_V6 80 // IP6T_SO_ORIGINAL_DST; its header does not go together with those of libc
#define READ_FIRST 2048
#define READ_MAX (CLIENTHELLO_MAX + 512) // one byte more than parsers allow must fit
#define SLOT_FAIR 64                     // that a slot may always have
#define TEXT_MAX 4096 // of a refusal

static bool same_tunnel(const Connection *c) {
        return c->kind == FLOW_CONNECT && c->head.form == HTTP_FORM_AUTHORITY;
}

bool connection_is_http(const Connection *c) {
        return c->kind != FLOW_TLS && !c->in_tunnel;
}

// ---- the record

static void connection_record(const Connection *c, FlowVerdict verdict, uint8_t flags, const char *reason) {
        const ProxyAddress *address = c->target.family ? &c->target : &c->wanted;
        FlowRecord record;

        flow_record_init(&record, c->kind, verdict);
        record.slot = c->slot->number;
        record.family = address->family;
        memcpy(record.address, address->address, sizeof(record.address));
        record.protocol = IPPROTO_TCP;
        record.port = c->port;
        record.rule = c->rule;
        record.flags = (uint8_t) (flags | (c->intercepted ? FLOW_FLAG_INTERCEPTED : 0));
        record.realtime_usec = c->realtime;
        record.duration_usec = clock_monotonic() - c->begun;
        record.tx = c->relay.up.bytes - MIN2(c->relay.up.bytes, (uint64_t) c->header);
        record.rx = c->relay.down.bytes;
        flow_record_set_name(&record, c->host.name, strlen(c->host.name));
        flow_record_set_policy(&record, c->policy);
        // Many clients send one that means nothing, only so that those that mean something are not rare.
        flow_record_set_reason(&record, "%s", !*reason && c->hello.ech ? "with an encrypted ClientHello" : reason);
        flow_sender_send(c->slot->proxy->records, &record);
}

// ---- the end

static void connection_free(Connection *c) {
        Slot *slot = c->slot;

        connection_stop_asking(c);
        (void) dial_free(c->dial);
        relay_done(&c->relay, &slot->proxy->pipes);
        sd_event_source_disable_unref(c->client_io);
        sd_event_source_disable_unref(c->server_io);
        sd_event_source_disable_unref(c->timer);
        sd_event_source_disable_unref(c->more);
        (void) close_fd(c->client);
        (void) close_fd(c->server);
        for (size_t i = 0; i < ELEMENTS(c->meters); i++)
                (void) meter_unref(c->meters[i]);
        free(c->data);
        free(c->path);
        *(c->previous ? &c->previous->next : &slot->connections) = c->next;
        if (c->next)
                c->next->previous = c->previous;
        slot->n_connections--;
        slot->proxy->n_connections--;
        free(c);
}

// What was cut must not look like what has ended.
static void reset_on_close(int fd) {
        struct linger now = {.l_onoff = 1};

        if (fd >= 0)
                (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

void connection_end(Connection *c, FlowVerdict verdict, uint8_t flags, const char *reason) {
        if (*reason) {
                reset_on_close(c->client);
                reset_on_close(c->server);
        }
        connection_record(c, verdict, flags, reason);
        connection_free(c);
}

int connection_set_timer(Connection *c, usec_t from_now) {
        int r = sd_event_source_set_time(c->timer, clock_monotonic() + from_now);

        return r < 0 ? r : sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

// ---- refusals

static const char *status_text(unsigned status) {
        switch (status) {
        case 400:
                return "Bad Request";
        case 403:
                return "Forbidden";
        case 408:
                return "Request Timeout";
        case 502:
                return "Bad Gateway";
        case 503:
                return "Service Unavailable";
        default:
                return "Gateway Timeout";
        }
}

static size_t refusal_http(const Connection *c, const Refusal *refusal, char text[TEXT_MAX]) {
        char body[TEXT_MAX / 2], hint[TEXT_MAX / 4] = "";
        int n;

        if (refusal->status == 403 && *c->host.name)
                (void) snprintf(hint, sizeof(hint), "To ask for it: " BORDER_ASK " %s:%u --reason WHY\nWhoever runs this host can allow it by a rule of a policy: allow %s tcp %u\n",
                                c->host.name, c->port, c->host.name, c->port);
        (void) snprintf(body, sizeof(body), "hostd: %s%s%s\n%s", c->host.name, *c->host.name ? ": " : "", refusal->reason, hint);
        n = snprintf(text, TEXT_MAX, "HTTP/1.1 %u %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s",
                     refusal->status, status_text(refusal->status), strlen(body), body);
        return (size_t) MIN2(n, TEXT_MAX - 1);
}

static size_t refusal_tls(const Refusal *refusal, char text[TEXT_MAX]) {
        const char alert[] = {0x15, 3, 3, 0, 2, 2, (char) refusal->alert};

        memcpy(text, alert, sizeof(alert));
        return sizeof(alert);
}

static void connection_drain(Connection *c) {
        char data[4096];
        ssize_t n;

        for (int i = 0; i < 64; i++) { // a bound for each event
                n = recv(c->client, data, sizeof(data), MSG_DONTWAIT);
                if (n < 0 && errno == EAGAIN)
                        return;
                if (n <= 0) {
                        connection_free(c);
                        return;
                }
        }
}

void connection_refuse(Connection *c, const Refusal *refusal) {
        char text[TEXT_MAX];
        size_t n;

        connection_stop_asking(c);
        c->server_io = sd_event_source_disable_unref(c->server_io);
        c->server = close_fd(c->server);
        if (!connection_is_http(c) && refusal->alert == 0) {
                reset_on_close(c->client);
                connection_record(c, refusal->verdict, 0, refusal->reason);
                connection_free(c);
                return;
        }
        n = connection_is_http(c) ? refusal_http(c, refusal, text) : refusal_tls(refusal, text);
        connection_record(c, refusal->verdict, 0, refusal->reason);
        c->state = CONNECTION_LINGERING;
        // Nothing was written to this socket before but a short answer to CONNECT: it has room.
        if (send(c->client, text, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 || shutdown(c->client, SHUT_WR) < 0 ||
            sd_event_source_set_io_events(c->client_io, EPOLLIN) < 0 || connection_set_timer(c, LINGER_TIMEOUT) < 0) {
                connection_free(c);
                return;
        }
        connection_drain(c);
}

// ---- what the client says first

static void connection_malformed(Connection *c, HttpResult result) {
        connection_refuse(c, &(Refusal) {FLOW_DENY, result == HTTP_MORE ? 408 : 400, 0, http_result_text(result)});
}

static void connection_heard_request(Connection *c, HttpResult result) {
        if (result != HTTP_OK) {
                c->said = http_result_text(result);
                c->head.host = HOST_NULL;
                if (c->kind == FLOW_HTTP)
                        connection_route(c); // a rule by address may allow it all the same
                else
                        connection_malformed(c, result);
                return;
        }
        if ((c->kind == FLOW_HTTP && c->head.form == HTTP_FORM_AUTHORITY) || (c->kind == FLOW_CONNECT && c->head.form != HTTP_FORM_AUTHORITY &&
            c->head.form != HTTP_FORM_ABSOLUTE)) {
                const char *reason = c->kind == FLOW_HTTP ? "CONNECT on the port of plain HTTP" : "not a request to a proxy";
                connection_refuse(c, &(Refusal) {FLOW_DENY, 400, 0, reason});
                return;
        }
        c->host = c->head.host;
        if (c->kind == FLOW_CONNECT) {
                c->port = c->head.port ?: 80;
                if (c->host.kind == HOST_ADDRESS) {
                        c->wanted.family = c->host.family;
                        memcpy(c->wanted.address, c->host.address, sizeof(c->wanted.address));
                        c->wanted.port = c->port;
                }
        }
        c->request = !same_tunnel(c);
        if (c->request && c->head.path_size > 0) {
                c->path = strndup(c->data + c->head.path, c->head.path_size);
                if (!c->path) { // not decided by another path than the server will see
                        connection_refuse(c, &(Refusal) {FLOW_ERROR, 503, 0, "out of memory"});
                        return;
                }
        }
        connection_route(c);
}

static void connection_heard_hello(Connection *c, HelloResult result) {
        if (!c->in_tunnel) {
                c->said = result == HELLO_NAMED ? NULL : hello_result_text(result);
                c->host = c->hello.host;
                connection_route(c);
                return;
        }
        if (result != HELLO_NAMED)
                connection_refuse(c, &(Refusal) {FLOW_DENY, 0, result == HELLO_NOT_TLS ? 0 : ALERT_UNRECOGNIZED_NAME, hello_result_text(result)});
        else if (!host_equal(&c->hello.host, &c->host))
                connection_refuse(c, &(Refusal) {FLOW_DENY, 0, ALERT_UNRECOGNIZED_NAME, "the server name is not the one of CONNECT"});
        else
                connection_relay(c);
}

// Nothing comes any more: what there is must do.
static void connection_heard_all(Connection *c) {
        if (c->kind == FLOW_TLS || c->in_tunnel)
                connection_heard_hello(c, HELLO_MORE);
        else
                connection_heard_request(c, HTTP_MORE);
}

static void connection_look(Connection *c) {
        bool tls = c->kind == FLOW_TLS || c->in_tunnel;
        HelloResult hello = HELLO_MORE;
        HttpResult http = HTTP_MORE;

        if (tls)
                hello = clienthello_parse(&c->hello, (const uint8_t *) c->data, c->size);
        else
                http = http_head_parse(&c->head, c->data, c->size);
        if (tls && hello != HELLO_MORE)
                connection_heard_hello(c, hello);
        else if (!tls && http != HTTP_MORE)
                connection_heard_request(c, http);
        else if (c->size >= READ_MAX)
                connection_heard_all(c); // the parsers say TOO_LONG before; this is what keeps it bounded if they do not
}

static int connection_grow(Connection *c) {
        size_t room = c->room ? MIN2(c->room * 2, (size_t) READ_MAX) : READ_FIRST;
        char *grown;

        if (c->size < c->room)
                return 0;
        grown = realloc(c->data, room);
        if (!grown)
                return -ENOMEM;
        c->data = grown;
        c->room = room;
        return 0;
}

static void connection_read(Connection *c) {
        ssize_t n;

        if (connection_grow(c) < 0) {
                connection_end(c, FLOW_ERROR, 0, "out of memory");
                return;
        }
        n = recv(c->client, c->data + c->size, c->room - c->size, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                connection_end(c, FLOW_ERROR, 0, "the client went before it said whom it wants");
                return;
        }
        c->size += (size_t) n;
        connection_look(c);
}

void connection_read_tunnel(Connection *c) {
        c->in_tunnel = true;
        c->state = CONNECTION_READING;
        if (sd_event_source_set_io_events(c->client_io, EPOLLIN) < 0 || connection_set_timer(c, READ_TIMEOUT) < 0)
                connection_end(c, FLOW_ERROR, 0, "out of memory");
        else if (c->size > 0)
                connection_look(c);
}

static int connection_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Connection *c = userdata;

        switch (c->state) {
        case CONNECTION_READING:
                connection_read(c);
                break;
        case CONNECTION_LINGERING:
                connection_drain(c);
                break;
        case CONNECTION_RELAYING:
                // What is not read any more would not show the error.
                if ((events & EPOLLERR) && c->relay.up.gate != GATE_OPEN)
                        connection_end(c, FLOW_ALLOW, 0, "the client went");
                else
                        connection_pump(c);
                break;
        default: // only EPOLLHUP and EPOLLERR are waited for
                connection_end(c, FLOW_ERROR, 0, "the client went");
        }
        return 0;
}

static int connection_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Connection *c = userdata;

        switch (c->state) {
        case CONNECTION_READING:
                connection_heard_all(c);
                break;
        case CONNECTION_RESOLVING:
                connection_resolve_timeout(c);
                break;
        case CONNECTION_RELAYING:
                connection_pump(c);
                break;
        case CONNECTION_LINGERING:
                connection_free(c);
                break;
        default: // dial.c has its own
                break;
        }
        return 0;
}

// ---- the beginning

static int original_destination(int fd, ProxyAddress *ret) {
        struct sockaddr_storage to, local;
        socklen_t size = sizeof(to), local_size = sizeof(local);

        if (getsockname(fd, (struct sockaddr *) &local, &local_size) < 0)
                return -errno;
        if (local.ss_family == AF_INET ? getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &to, &size) < 0
                                       : getsockopt(fd, IPPROTO_IPV6, SO_ORIGINAL_DST_V6, &to, &size) < 0)
                return -errno;
        *ret = proxy_address(&to);
        return 0;
}

static const char *bound_reached(const Slot *slot) {
        const Proxy *proxy = slot->proxy;

        if (slot->n_connections > PROXY_SLOT_CONNECTIONS)
                return "too many connections of this instance";
        if (proxy->n_connections > proxy->connections_max)
                return "too many connections on this host";
        // The last quarter is for those that have few.
        if (slot->n_connections > SLOT_FAIR && proxy->n_connections > proxy->connections_max / 4 * 3)
                return "too many connections on this host, and many of them of this instance";
        return NULL;
}

static int connection_begin(Connection *c) {
        sd_event *event = c->slot->proxy->event;
        int yes = 1, r;

        (void) setsockopt(c->client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        r = sd_event_add_io(event, &c->client_io, c->client, EPOLLIN, connection_io, c);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &c->timer, CLOCK_MONOTONIC, READ_TIMEOUT, USEC_PER_SEC / 20, connection_timer, c);
        return r;
}

void connection_accept(Slot *slot, FlowKind kind, int client, const struct sockaddr_storage *from) {
        Connection *c = calloc(1, sizeof(Connection));
        const char *reason;
        int r = 0;

        if (!c) {
                (void) close_fd(client);
                return;
        }
        *c = (Connection) {.slot = slot, .kind = kind, .client = client, .server = -EBADF, .from = proxy_address(from), .relay = RELAY_NULL,
                           .head = HTTP_HEAD_NULL, .next = slot->connections, .begun = clock_monotonic(), .realtime = (int64_t) clock_realtime()};
        if (c->next)
                c->next->previous = c;
        slot->connections = c;
        slot->n_connections++;
        slot->proxy->n_connections++;
        if (kind != FLOW_CONNECT)
                r = original_destination(client, &c->wanted);
        reason = r < 0 ? "not by a redirect of this host" : bound_reached(slot);
        c->port = c->wanted.port;
        if (reason)
                connection_end(c, FLOW_DENY, 0, reason);
        else if (connection_begin(c) < 0)
                connection_end(c, FLOW_ERROR, 0, "out of memory");
}

// ---- all of a slot

void connections_cut(Slot *slot, const char *reason) {
        for (Connection *c = slot->connections, *next; c; c = next) {
                next = c->next;
                if (c->state == CONNECTION_LINGERING)
                        connection_free(c); // its record is written
                else
                        connection_end(c, c->state == CONNECTION_RELAYING ? FLOW_ALLOW : FLOW_DENY, FLOW_FLAG_CUT, reason);
        }
}

void connections_review(Slot *slot) {
        for (Connection *c = slot->connections, *next; c; c = next) {
                char reason[512];
                next = c->next;
                if (c->state == CONNECTION_LINGERING || (c->state == CONNECTION_READING && !c->in_tunnel))
                        continue;
                if (!connection_still_allowed(c, reason, sizeof(reason)))
                        connection_end(c, c->state == CONNECTION_RELAYING ? FLOW_ALLOW : FLOW_DENY, FLOW_FLAG_CUT, reason);
        }
}
