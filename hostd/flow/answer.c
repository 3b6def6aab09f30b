// SPDX-License-Identifier: GPL-2.0-or-later
// Answer: see answer.h.
#include "flow/answer.h"

#include <string.h>

#include "base/clock.h"
#include "base/io.h"

#define ROOM 65536

struct Answer {
        AnswerConfig config;
        sd_event_source *io, *timer;
        usec_t end; // monotonic, whatever the reader took
        char buffer[ROOM];
        size_t sent, filled; // bytes that wait: buffer[sent .. filled)
        bool ended;          // the last line is in the buffer
};

// Lines as long as there is room for the longest one. -EAGAIN: the log was read for long enough.
static int answer_fill(Answer *answer) {
        const char *line;
        size_t size;
        int r;

        while (!answer->ended && ROOM - answer->filled > FLOW_LINE_MAX + 1) {
                r = flow_query_next(answer->config.query, &line, &size);
                if (r < 0)
                        return r;
                if (r > 0) {
                        memcpy(answer->buffer + answer->filled, line, size);
                        answer->buffer[answer->filled + size] = '\n';
                        answer->filled += size + 1;
                        continue;
                }
                answer->filled += (size_t) snprintf(answer->buffer + answer->filled, FLOW_LINE_MAX, "{\"end\":true,\"torn\":%llu}\n",
                                                    (unsigned long long) flow_query_torn(answer->config.query));
                answer->ended = true;
        }
        return 0;
}

static usec_t patience(const Answer *answer) {
        usec_t now = clock_monotonic();

        return MIN2(ANSWER_PATIENCE, answer->end > now ? answer->end - now : 1);
}

// 1: all was sent; 0: later.
static int answer_go_on(Answer *answer) {
        ssize_t n;
        int r = 0;

        if (answer->sent == answer->filled) {
                answer->sent = answer->filled = 0;
                r = answer_fill(answer);
        }
        if (r < 0 && r != -EAGAIN)
                return r;
        if (answer->sent == answer->filled)
                return answer->ended;
        n = write(answer->config.fd, answer->buffer + answer->sent, answer->filled - answer->sent);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        answer->sent += (size_t) n;
        (void) sd_event_source_set_time_relative(answer->timer, patience(answer));
        return answer->ended && answer->sent == answer->filled;
}

static int answer_ready(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Answer *answer = userdata;
        int r = events & EPOLLERR ? -EPIPE : answer_go_on(answer);

        if (r != 0)
                answer->config.done(answer, MIN2(r, 0), answer->config.userdata);
        return 0;
}

static int answer_late(sd_event_source *source, uint64_t usec, void *userdata) {
        Answer *answer = userdata;

        answer->config.done(answer, -ETIMEDOUT, answer->config.userdata);
        return 0;
}

int answer_new(const AnswerConfig *config, Answer **ret) {
        _cleanup_(answer_freep) Answer *answer = calloc(1, sizeof(Answer));
        int r;

        if (!answer) {
                (void) close_fd(config->fd);
                (void) flow_query_free(config->query);
                return -ENOMEM;
        }
        answer->config = *config;
        answer->end = clock_monotonic() + (config->deadline ?: ANSWER_DEADLINE);
        r = io_set_nonblock(config->fd, true);
        if (r >= 0)
                r = sd_event_add_io(config->event, &answer->io, config->fd, EPOLLOUT, answer_ready, answer);
        if (r >= 0) // what is told by others does not wait for somebody who asks
                r = sd_event_source_set_priority(answer->io, SD_EVENT_PRIORITY_IDLE);
        if (r >= 0)
                r = sd_event_add_time_relative(config->event, &answer->timer, CLOCK_MONOTONIC, patience(answer), 1, answer_late, answer);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(answer);
        return 0;
}

Answer *answer_free(Answer *answer) {
        if (!answer)
                return NULL;
        sd_event_source_disable_unref(answer->io);
        sd_event_source_disable_unref(answer->timer);
        (void) flow_query_free(answer->config.query);
        (void) close_fd(answer->config.fd);
        free(answer);
        return NULL;
}
