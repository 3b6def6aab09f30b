// SPDX-License-Identifier: GPL-2.0-or-later
// Relay: see relay.h.
#include "proxy/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"

#define COPY_BYTES 16384        // where bytes must be looked at
#define SPLICE_BYTES (1 << 20)  // at once; a pipe holds less
#define STATUS_101 "HTTP/1.1 101"

void relay_begin(Relay *relay, int client, int server) {
        relay->up.from = relay->down.to = client;
        relay->up.to = relay->down.from = server;
}

int relay_flow_put(RelayFlow *flow, const void *data, size_t size) {
        size_t waiting = flow->pending_size - flow->pending_sent;
        char *grown;

        if (size == 0)
                return 0;
        grown = malloc(waiting + size);
        if (!grown)
                return -ENOMEM;
        if (waiting > 0)
                memcpy(grown, flow->pending + flow->pending_sent, waiting);
        memcpy(grown + waiting, data, size);
        free(flow->pending);
        flow->pending = grown;
        flow->pending_size = waiting + size;
        flow->pending_sent = 0;
        return 0;
}

int relay_put_body(Relay *relay, const char *data, size_t size) {
        ssize_t n = http_body_feed(&relay->up.body, data, size);

        return n < 0 ? (int) n : relay_flow_put(&relay->up, data, (size_t) n);
}

// ---- one direction

// 1: all of it went; 0: the socket is full.
static int flow_send_pending(RelayFlow *flow, size_t *moved) {
        while (flow->pending_sent < flow->pending_size) {
                ssize_t n = send(flow->to, flow->pending + flow->pending_sent, flow->pending_size - flow->pending_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? 0 : -errno;
                flow->pending_sent += (size_t) n;
                flow->bytes += (size_t) n;
                *moved += (size_t) n;
        }
        free(TAKE_PTR(flow->pending));
        flow->pending_size = flow->pending_sent = 0;
        return 1;
}

static int flow_empty_pipe(RelayFlow *flow, size_t *moved) {
        while (flow->in_pipe > 0) {
                ssize_t n = splice(flow->pipe[0], NULL, flow->to, NULL, flow->in_pipe, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? 0 : -errno;
                flow->in_pipe -= (size_t) n;
                flow->bytes += (size_t) n;
                *moved += (size_t) n;
        }
        return 1;
}

// 1: something came, or the end; 0: nothing is there.
static int flow_read_body(RelayFlow *flow) {
        char data[COPY_BYTES];
        ssize_t n = recv(flow->from, data, sizeof(data), MSG_DONTWAIT), taken;
        int r;

        if (n < 0)
                return errno == EAGAIN ? 0 : errno == EINTR ? 1 : -errno;
        if (n == 0) {
                flow->ended = true;
                return 1;
        }
        taken = http_body_feed(&flow->body, data, (size_t) n);
        if (taken < 0)
                return (int) taken;
        r = relay_flow_put(flow, data, (size_t) taken);
        return r < 0 ? r : 1;
}

static int flow_splice_in(RelayFlow *flow, Pipes *pipes, size_t max) {
        ssize_t n;
        int r;

        if (flow->pipe[0] < 0) {
                r = pipes_take(pipes, flow->pipe);
                if (r < 0)
                        return r;
        }
        n = splice(flow->from, NULL, flow->pipe[1], NULL, max, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0)
                return errno == EAGAIN ? 0 : errno == EINTR ? 1 : -errno;
        flow->in_pipe = (size_t) n;
        flow->ended = n == 0;
        return 1;
}

// A body of a known length goes through a pipe, but not a byte more than that.
static int flow_splice_body(RelayFlow *flow, Pipes *pipes, size_t max) {
        int r = flow_splice_in(flow, pipes, (size_t) MIN2(flow->body.left, (uint64_t) max));

        flow->body.left -= flow->in_pipe;
        if (flow->body.left == 0)
                flow->body.state = BODY_DONE;
        return r;
}

static int flow_read(RelayFlow *flow, Pipes *pipes, size_t max) {
        if (flow->gate == GATE_BODY && flow->body.state == BODY_DONE)
                flow->gate = GATE_SHUT;
        switch (flow->gate) {
        case GATE_OPEN:
                return flow_splice_in(flow, pipes, max);
        case GATE_BODY:
                return flow->body.state == BODY_LENGTH ? flow_splice_body(flow, pipes, max) : flow_read_body(flow);
        default:
                return 0;
        }
}

static int flow_pump(RelayFlow *flow, Pipes *pipes, size_t allowance, size_t *ret_moved) {
        size_t moved = 0;
        int r;

        for (;;) {
                r = flow_send_pending(flow, &moved);
                if (r > 0)
                        r = flow_empty_pipe(flow, &moved);
                if (r > 0 && flow->shut)
                        r = RELAY_WAITS;
                if (r <= 0)
                        break;
                if (flow->ended) {
                        flow->shut = true;
                        r = shutdown(flow->to, SHUT_WR) < 0 && errno != ENOTCONN ? -errno : 0;
                        break;
                }
                if (moved >= allowance) {
                        r = RELAY_HAS_MORE;
                        break;
                }
                r = flow_read(flow, pipes, MIN2(allowance - moved, (size_t) SPLICE_BYTES));
                if (r <= 0)
                        break;
        }
        if (flow->in_pipe == 0 && flow->pipe[0] >= 0)
                pipes_give(pipes, flow->pipe, 0);
        *ret_moved += moved;
        return r;
}

// ---- both

// Until the server has agreed to another protocol what the client sends could be the next request.
static void relay_watch_upgrade(Relay *relay) {
        char status[sizeof(STATUS_101) - 1];
        ssize_t n;

        if (relay->up.gate != GATE_UPGRADE)
                return;
        n = recv(relay->down.from, status, sizeof(status), MSG_PEEK | MSG_DONTWAIT);
        if (n == sizeof(status))
                relay->up.gate = memcmp(status, STATUS_101, sizeof(status)) == 0 ? GATE_OPEN : GATE_SHUT;
        else if (n == 0)
                relay->up.gate = GATE_SHUT;
}

int relay_pump(Relay *relay, Pipes *pipes, size_t allowance, size_t *ret_moved) {
        bool wait;
        int up, down = 0;

        *ret_moved = 0;
        relay_watch_upgrade(relay);
        wait = relay->up.gate == GATE_UPGRADE; // less than a status line of the answer is there: it stays where it is
        up = flow_pump(&relay->up, pipes, allowance, ret_moved);
        if (up >= 0 && !wait)
                down = flow_pump(&relay->down, pipes, allowance, ret_moved);
        if (up < 0 || down < 0)
                return MIN2(up, down);
        // One request: its answer is all there is.
        if (relay->down.shut && (relay->up.shut || relay->up.gate != GATE_OPEN))
                return RELAY_OVER;
        return up == RELAY_HAS_MORE || down == RELAY_HAS_MORE ? RELAY_HAS_MORE : RELAY_WAITS;
}

bool relay_is_half_closed(const Relay *relay) {
        return relay->up.shut || relay->down.shut;
}

static void flow_done(RelayFlow *flow, Pipes *pipes) {
        free(TAKE_PTR(flow->pending));
        pipes_give(pipes, flow->pipe, flow->in_pipe);
        flow->in_pipe = 0;
}

void relay_done(Relay *relay, Pipes *pipes) {
        flow_done(&relay->up, pipes);
        flow_done(&relay->down, pipes);
}
