// SPDX-License-Identifier: GPL-2.0-or-later
// Redaction: see redaction.h.
#include "core/redaction.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/io.h"
#include "core/secrets.h"
#include "redact/proto.h"

#define READY_TIMEOUT (5 * USEC_PER_SEC)

struct Redaction {
        sd_event_source *io, *timer;
        int channel;
        int *fds;        // of the caller, until it is ready
        int pipes[2];    // into it, until they are the caller's
        char names[REDACT_VALUES_MAX][33];
        size_t n;
        bool gone, has_last;
        RedactMessage last; // DONE, that came before anybody asked
        RedactionReady ready;
        RedactionDone done;
        void *userdata;
};

static bool is_granted(const Secrets *s, const char *instance, size_t i) {
        if (strcmp(s->bindings[i]->instance, instance) != 0)
                return false;
        for (size_t k = 0; k < i; k++) // once each
                if (strcmp(s->bindings[k]->instance, instance) == 0 && strcmp(s->bindings[k]->secret, s->bindings[i]->secret) == 0)
                        return false;
        return true;
}

bool redaction_is_wanted(const Instance *instance) {
        const Secrets *s = instance->manager->secrets;

        for (size_t i = 0; s && i < s->n_all; i++)
                if (strcmp(s->bindings[i]->instance, instance->record.name) == 0)
                        return true;
        return false;
}

// ---- values into a pipe ----

static int put_value(int fd, const char *name, const Value *value) {
        RedactFrame frame = {.magic = REDACT_MAGIC, .size = value ? (uint32_t) value->size : 0};
        int r;

        memcpy(frame.name, name, strlen(name));
        r = io_write_all(fd, &frame, sizeof(frame));
        return r < 0 || !value ? r : io_write_all(fd, value->data, value->size);
}

typedef char Names[REDACT_VALUES_MAX][33];

static int put_values(const Instance *instance, int fd, Names names, size_t *n, Error *err) {
        const Secrets *s = instance->manager->secrets;

        for (size_t i = 0; s && i < s->n_all; i++) {
                _cleanup_(value_freep) Value *value = NULL;
                int r;
                if (!is_granted(s, instance->record.name, i))
                        continue;
                if (*n == REDACT_VALUES_MAX - 1)
                        return error_set(err, ERR_QUOTA, "%s has grants of more than %d secrets, which are all that can be looked for in output", instance->record.name, REDACT_VALUES_MAX - 1);
                r = secret_value(&s->vault, s->bindings[i]->secret, &value, err);
                if (r >= 0)
                        r = put_value(fd, s->bindings[i]->secret, value);
                if (r < 0)
                        return error_set_errno(err, r, "cannot hand a value on");
                memcpy(names[(*n)++], s->bindings[i]->secret, sizeof(names[0]));
        }
        int r = put_value(fd, "", NULL);
        return r < 0 ? error_set_errno(err, r, "cannot hand the end on") : 0;
}

static int filled_pipe(const Instance *instance, Names names, size_t *n, Error *err) {
        _cleanup_close_ int rd = -EBADF, wr = -EBADF;
        int r = io_pipe(REDACT_VALUES_MAX * (SEAL_VALUE_MAX + 4096), &rd, &wr);

        if (r < 0)
                return error_set_errno(err, r, "cannot make a pipe");
        r = put_values(instance, wr, names, n, err);
        return r < 0 ? r : TAKE_FD(rd);
}

// ---- the process ----

Redaction *redaction_free(Redaction *redaction) {
        if (!redaction)
                return NULL;
        redaction->io = sd_event_source_disable_unref(redaction->io);
        redaction->timer = sd_event_source_disable_unref(redaction->timer);
        redaction->channel = close_fd(redaction->channel);
        for (size_t i = 0; i < 2; i++)
                redaction->pipes[i] = close_fd(redaction->pipes[i]);
        free(redaction);
        return NULL;
}
DEFINE_CLEANUP(Redaction, redaction_free)

static void call_ready(Redaction *redaction, int r, Error *err) {
        RedactionReady ready = redaction->ready;

        redaction->ready = NULL;
        redaction->timer = sd_event_source_disable_unref(redaction->timer);
        for (size_t i = 0; r >= 0 && i < 2; i++) {
                (void) close_fd(redaction->fds[i]);
                redaction->fds[i] = TAKE_FD(redaction->pipes[i]);
        }
        redaction->fds = NULL;
        if (ready)
                ready(redaction->userdata, r, err); // may free it
}

static void call_done(Redaction *redaction, const RedactMessage *message) {
        RedactionDone done = redaction->done;
        json_t *counts = message ? json_object() : NULL;

        redaction->done = NULL;
        for (size_t i = 0; message && i < redaction->n; i++)
                if (message->counts[i] > 0)
                        (void) json_object_set_new(counts, redaction->names[i], json_integer((json_int_t) MIN2(message->counts[i], (uint64_t) INT64_MAX)));
        if (done)
                done(redaction->userdata, counts); // may free it
        json_decref(counts);
}

static int not_there(Error *err) {
        return error_set(err, ERR_UNAVAILABLE, "hostd-redact did not start: values of secrets in the output of commands are not replaced");
}

static int late(sd_event_source *source, uint64_t usec, void *userdata) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = not_there(&err);

        call_ready(userdata, r, &err);
        return 0;
}

static void ended(Redaction *redaction, const RedactMessage *message) {
        _cleanup_error_ Error err = ERROR_NULL;

        redaction->gone = true;
        redaction->io = sd_event_source_disable_unref(redaction->io);
        if (redaction->ready)
                call_ready(redaction, not_there(&err), &err);
        else
                call_done(redaction, message);
}

// It has read what a guest wrote: what it says is of one size, and counts are all that is taken from it.
static int channel_ready(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Redaction *redaction = userdata;
        RedactMessage message;
        ssize_t n = recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);

        // It ended with our DRAIN unread, which comes before what it had said: its DONE is still there.
        if (n < 0 && errno == ECONNRESET)
                n = recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n != sizeof(message) || message.magic != REDACT_MAGIC)
                ended(redaction, NULL);
        else if (message.type == REDACT_READY && redaction->ready)
                call_ready(redaction, 0, NULL);
        else if (message.type == REDACT_DONE && redaction->done)
                ended(redaction, &message);
        else if (message.type == REDACT_DONE) { // before it was asked: kept until somebody does
                redaction->gone = true;
                (void) sd_event_source_set_enabled(redaction->io, SD_EVENT_OFF);
                memcpy(&redaction->last, &message, sizeof(message));
                redaction->has_last = true;
        }
        return 0;
}

static int hand_over(Redaction *redaction, Instance *instance, int channel, const int readers[2], Error *err) {
        _cleanup_close_ int values = filled_pipe(instance, redaction->names, &redaction->n, err);
        const int fds[REDACT_FDS] = {channel, values, readers[0], redaction->fds[0], readers[1], redaction->fds[1]};

        return values < 0 ? values : instance_control_send(instance, CONTROL_REDACT, fds, REDACT_FDS, err);
}

static int connect_streams(Redaction *redaction, Instance *instance, int channel, Error *err) {
        int readers[2] = {-EBADF, -EBADF}, r = 0;

        for (size_t i = 0; i < 2 && r == 0; i++) {
                int p[2];
                if (pipe2(p, O_CLOEXEC) < 0) {
                        r = error_set_errno(err, errno, "cannot make a pipe");
                        break;
                }
                readers[i] = p[0];
                redaction->pipes[i] = p[1];
        }
        if (r == 0)
                r = hand_over(redaction, instance, channel, readers, err);
        for (size_t i = 0; i < 2; i++)
                (void) close_fd(readers[i]);
        return r;
}

int redaction_start(Instance *instance, int fds[2], RedactionReady ready, void *userdata, Redaction **ret, Error *err) {
        _cleanup_(redaction_freep) Redaction *redaction = calloc(1, sizeof(Redaction));
        _cleanup_close_ int other = -EBADF;
        sd_event *event = instance->manager->event;
        int pair[2], r;

        if (!redaction)
                return error_set_errno(err, ENOMEM, "cannot look for values of secrets");
        redaction->channel = redaction->pipes[0] = redaction->pipes[1] = -EBADF;
        redaction->fds = fds;
        redaction->ready = ready;
        redaction->userdata = userdata;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return error_set_errno(err, errno, "cannot make a socket");
        redaction->channel = pair[0];
        other = pair[1];
        r = connect_streams(redaction, instance, other, err);
        if (r < 0)
                return r;
        r = sd_event_add_io(event, &redaction->io, redaction->channel, EPOLLIN, channel_ready, redaction);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &redaction->timer, CLOCK_MONOTONIC, READY_TIMEOUT, 0, late, redaction);
        if (r < 0)
                return error_set_errno(err, r, "cannot watch hostd-redact");
        *ret = TAKE_PTR(redaction);
        return 0;
}

void redaction_drain(Redaction *redaction, RedactionDone done, void *userdata) {
        const RedactMessage message = {.magic = REDACT_MAGIC, .type = REDACT_DRAIN};

        redaction->done = done;
        redaction->userdata = userdata;
        if (redaction->gone)
                call_done(redaction, redaction->has_last ? &redaction->last : NULL);
        else if (send(redaction->channel, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
                call_done(redaction, NULL); // its end would be told, and so would DONE that lies there
}

int redaction_values(const Instance *instance, Error *err) {
        Names names;
        size_t n = 0;

        return redaction_is_wanted(instance) ? filled_pipe(instance, names, &n, err) : -ENOENT;
}

int redaction_of(const Instance *instance, Redactor **ret, Error *err) {
        const Secrets *s = instance->manager->secrets;
        Value *values[REDACT_VALUES_MAX];
        RedactValue list[REDACT_VALUES_MAX];
        size_t n = 0;
        int r = 0;

        *ret = NULL;
        for (size_t i = 0; s && r >= 0 && i < s->n_all && n < REDACT_VALUES_MAX; i++)
                if (is_granted(s, instance->record.name, i)) {
                        r = secret_value(&s->vault, s->bindings[i]->secret, &values[n], err);
                        if (r >= 0) {
                                list[n] = (RedactValue) {s->bindings[i]->secret, values[n]->data, values[n]->size};
                                n++;
                        }
                }
        if (r >= 0 && n > 0)
                r = redactor_new(list, n, ret);
        for (size_t i = 0; i < n; i++)
                (void) value_free(values[i]);
        return r < 0 ? error_set_errno(err, r, "cannot look for values of secrets") : 0;
}
