// SPDX-License-Identifier: GPL-2.0-or-later
// Connection: see connection.h.
#include "wire/connection.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/io.h"

static bool connection_may_read(const Connection *c) {
        return !c->dead && !c->eof && !c->current && c->out_used == c->out_sent;
}

// With a call open only the hang-up is waited for, which epoll reports always.
static void connection_watch(Connection *c) {
        uint32_t events = 0;

        if (connection_may_read(c))
                events |= EPOLLIN;
        if (c->out_used > c->out_sent)
                events |= EPOLLOUT;
        (void) sd_event_source_set_io_events(c->io, events); // same process, valid source: cannot fail
}

static void connection_turn(Connection *c) {
        (void) sd_event_source_set_enabled(c->turn, SD_EVENT_ONESHOT);
}

static void connection_kill(Connection *c) {
        c->dead = true;
        connection_turn(c);
}

static void connection_flush(Connection *c) {
        while (!c->dead && c->out_sent < c->out_used) {
                ssize_t n = send(c->fd, c->out + c->out_sent, c->out_used - c->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0)
                        connection_kill(c);
                else
                        c->out_sent += (size_t) n;
        }
        if (c->out_sent == c->out_used) {
                free(TAKE_PTR(c->out));
                c->out_used = c->out_sent = 0;
        }
}

static int connection_queue(Connection *c, const char *text, size_t size) {
        size_t waiting = c->out_used - c->out_sent;
        char *grown;

        if (waiting + size > WIRE_BACKLOG_MAX)
                return -ENOBUFS;
        if (c->out_sent > 0) {
                memmove(c->out, c->out + c->out_sent, waiting);
                c->out_used = waiting;
                c->out_sent = 0;
        }
        grown = realloc(c->out, waiting + size);
        if (!grown)
                return -ENOMEM;
        c->out = grown;
        memcpy(c->out + waiting, text, size);
        c->out_used += size;
        return 0;
}

void connection_send(Connection *c, const json_t *message) {
        _cleanup_free_ char *text = NULL;
        size_t size;

        if (c->dead)
                return;
        if (frame_format(message, &text, &size) < 0 || connection_queue(c, text, size) < 0) {
                connection_kill(c);
                return;
        }
        connection_flush(c);
        connection_watch(c);
}

void connection_call_done(Connection *c) {
        c->current = NULL;
        connection_watch(c);
        connection_turn(c); // the next frame may be here already
}

static void connection_refuse(Connection *c, const char *parameter) {
        json_t *reply = json_pack("{s:s, s:{s:s}}", "error", "org.varlink.service.InvalidParameter", "parameters", "parameter",
                                  parameter);

        // The stream cannot be trusted after what is no message: say so and close.
        if (reply)
                connection_send(c, reply);
        json_decref(reply);
        connection_kill(c);
}

// What is wrong with a message that is an object, or NULL.
static const char *message_fault(const json_t *message) {
        static const char *const flags[] = {"more", "oneway", "upgrade"};
        const json_t *method = json_object_get(message, "method"), *parameters = json_object_get(message, "parameters");

        if (!json_is_string(method) || json_string_length(method) > 255)
                return "method";
        if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
                return "parameters";
        for (size_t i = 0; i < ELEMENTS(flags); i++) {
                const json_t *flag = json_object_get(message, flags[i]);
                if (flag && !json_is_boolean(flag))
                        return flags[i];
        }
        return json_is_true(json_object_get(message, "upgrade")) ? "upgrade" : NULL; // no method of ours does that
}

static void connection_dispatch(Connection *c, Frame *frame) {
        json_t *message = NULL;
        const char *fault;

        if (frame_parse(frame->text, frame->size, &message, NULL) < 0) {
                connection_refuse(c, "message");
                return;
        }
        fault = message_fault(message);
        if (fault) {
                json_decref(message);
                connection_refuse(c, fault);
                return;
        }
        c->current = call_new(c, message, frame);
        json_decref(message);
        if (!c->current) {
                connection_kill(c);
                return;
        }
        if (!service_dispatch(c->server, c->current))
                c->server->handler(c->current, c->server->userdata);
}

static void connection_read(Connection *c) {
        ssize_t n = frame_reader_receive(&c->reader, c->fd, MSG_DONTWAIT);

        if (n == 0)
                c->eof = true;
        else if (n == -EMSGSIZE)
                connection_refuse(c, "message");
        else if (n < 0 && n != -EAGAIN)
                connection_kill(c);
}

// One frame a turn, so that no client keeps the loop for itself.
static int connection_on_turn(sd_event_source *source, void *userdata) {
        Connection *c = userdata;
        _cleanup_frame_ Frame frame = FRAME_NULL;
        int r = 0;

        if (!c->dead && !c->current && c->out_used == c->out_sent) {
                r = frame_reader_next(&c->reader, &frame);
                if (r < 0)
                        c->dead = true;
                else if (r > 0)
                        connection_dispatch(c, &frame);
                else if (c->eof)
                        c->dead = true; // everything is answered and nothing can come
        }
        if (c->dead) {
                connection_free(c);
                return 0;
        }
        connection_watch(c);
        return 0;
}

static int connection_on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Connection *c = userdata;

        if (revents & EPOLLOUT)
                connection_flush(c);
        if (revents & EPOLLIN && connection_may_read(c))
                connection_read(c);
        else if (revents & (EPOLLHUP | EPOLLERR) && !connection_may_read(c))
                c->dead = true;
        connection_watch(c);
        connection_turn(c);
        return 0;
}

int connection_new(Server *server, int fd, const Peer *peer, Connection **ret) {
        Connection *c = calloc(1, sizeof(*c));
        int r;

        if (!c) {
                (void) close_fd(fd);
                return -ENOMEM;
        }
        c->server = server;
        c->fd = fd;
        c->peer = *peer;
        c->reader = FRAME_READER_INIT(peer->access == ACCESS_NONE ? WIRE_STRANGER_FRAME_MAX : WIRE_FRAME_MAX);
        c->next = server->connections;
        if (c->next)
                c->next->previous = c;
        server->connections = c;
        r = sd_event_add_io(server->event, &c->io, fd, EPOLLIN, connection_on_io, c);
        if (r >= 0)
                r = sd_event_add_defer(server->event, &c->turn, connection_on_turn, c);
        if (r >= 0)
                r = sd_event_source_set_enabled(c->turn, SD_EVENT_OFF);
        if (r < 0) {
                connection_free(c);
                return r;
        }
        *ret = c;
        return 0;
}

Connection *connection_free(Connection *c) {
        if (!c)
                return NULL;
        if (c->current)
                call_disconnect(c->current);
        if (c->previous)
                c->previous->next = c->next;
        else
                c->server->connections = c->next;
        if (c->next)
                c->next->previous = c->previous;
        sd_event_source_disable_unref(c->io);
        sd_event_source_disable_unref(c->turn);
        (void) shutdown(c->fd, SHUT_RDWR); // a helper process that was forked meanwhile has the descriptor, too
        (void) close_fd(c->fd);
        frame_reader_done(&c->reader);
        free(c->out);
        free(c);
        return NULL;
}
