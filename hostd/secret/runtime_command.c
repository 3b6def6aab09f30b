// SPDX-License-Identifier: GPL-2.0-or-later
// RuntimeCommand: see runtime_command.h.
#include "secret/runtime_command.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define TIMEOUT (2 * USEC_PER_SEC)

struct RuntimeCommand {
        struct RuntimeCommand *next, **list;
        RuntimeAnswered done;
        void *userdata;
        sd_event_source *io, *deadline;
        int fd;
        size_t answered;
        char answer[RUNTIME_ANSWER_MAX];
};

static RuntimeCommand *runtime_command_free(RuntimeCommand *c) {
        if (!c)
                return NULL;
        for (RuntimeCommand **p = c->list; p && *p; p = &(*p)->next)
                if (*p == c) {
                        *p = c->next;
                        break;
                }
        (void) sd_event_source_disable_unref(c->io);
        (void) sd_event_source_disable_unref(c->deadline);
        (void) close_fd(c->fd);
        free(c);
        return NULL;
}
DEFINE_CLEANUP(RuntimeCommand, runtime_command_free)

void runtime_commands_free(RuntimeCommand **list) {
        while (*list)
                (void) runtime_command_free(*list);
}

// `done` may free whatever has the list: the command is off it by then.
static int finish(RuntimeCommand *c, int r) {
        _cleanup_free_ char *answer = r < 0 ? NULL : strdup(c->answer);
        RuntimeAnswered done = c->done;
        void *userdata = c->userdata;

        (void) runtime_command_free(c);
        done(userdata, r < 0 || answer ? r : -ENOMEM, answer ?: "");
        return 0;
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata) {
        return finish(userdata, -ETIMEDOUT);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        RuntimeCommand *c = userdata;
        ssize_t n = recv(fd, c->answer + c->answered, sizeof(c->answer) - 1 - c->answered, MSG_DONTWAIT);

        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : finish(c, -errno);
        if (n == 0)
                return finish(c, c->answered + 1 < sizeof(c->answer) ? 0 : -EMSGSIZE); // HAProxy hangs up behind its answer
        c->answered += (size_t) n;
        return 0;
}

int runtime_command(sd_event *event, const RuntimeCommandSpec *spec, RuntimeCommand **list, Error *err) {
        _cleanup_(runtime_command_freep) RuntimeCommand *c = calloc(1, sizeof(RuntimeCommand));
        char line[2048];
        int r, n = snprintf(line, sizeof(line), "%s\n", spec->text);

        if (!c || n >= (int) sizeof(line))
                return error_set_errno(err, c ? EMSGSIZE : ENOMEM, "cannot tell HAProxy");
        c->done = spec->done;
        c->userdata = spec->userdata;
        c->fd = r = runtime_dial(spec->socket, spec->uid, NULL, err);
        if (r < 0)
                return r;
        // It fits into the socket's buffer, whoever reads there.
        if (send(c->fd, line, (size_t) n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
                return error_set(err, ERR_UNAVAILABLE, "HAProxy does not take a command");
        r = sd_event_add_io(event, &c->io, c->fd, EPOLLIN, on_io, c);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &c->deadline, CLOCK_MONOTONIC, TIMEOUT, 1, on_deadline, c);
        if (r < 0)
                return error_set_errno(err, r, "cannot wait for HAProxy");
        c->list = list;
        c->next = *list;
        *list = TAKE_PTR(c);
        return 0;
}
