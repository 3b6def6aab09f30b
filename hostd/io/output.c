// SPDX-License-Identifier: GPL-2.0-or-later
// Output: see output.h.
#include "io/output.h"

#include <string.h>
#include <sys/ioctl.h>

#include "base/io.h"
#include "io/follower.h"

#define PIECE 65536
#define HOLD_TIME (250 * USEC_PER_MSEC) // for the rest of what may be a value, as hostd-redact

typedef struct Stream {
        Source source; // fd is -EBADF once it ended
        Output *output;
        RedactStream redact;
        usec_t flush_at;
        bool limited; // no more than `left` is read
        size_t left;
} Stream;

struct Output {
        Outputs *outputs;
        Output *prev, *next;
        char id[IO_ID_MAX];
        Ring *ring;
        bool live;
        Stream streams[_RING_STREAM_MAX];
        RedactValues values;
        Follower *followers;
};

// ---- bytes ----

static RingStream which(const Stream *stream) {
        return (RingStream) (stream - stream->output->streams);
}

static void feed(Stream *stream, const char *data, size_t size, bool flush) {
        Output *output = stream->output;
        RedactStream *redact = &stream->redact;

        if (!output->values.redactor) {
                ring_append(output->ring, which(stream), data, size);
                return;
        }
        if (redactor_feed(output->values.redactor, redact, data, size, flush) < 0)
                ring_drop(output->ring, which(stream), size); // what cannot be looked at is not kept
        ring_append(output->ring, which(stream), redact->out, redact->n_out);
        redact->n_out = 0;
        stream->flush_at = redact->n_held > 0 ? clock_monotonic() + HOLD_TIME : USEC_INFINITY;
}

static void pump(Output *output) {
        for (Follower *f = output->followers; f;)
                f = follower_pump(f);
}

static void stream_close(Stream *stream) {
        if (stream->source.fd < 0)
                return;
        loop_unwatch(stream->output->outputs->loop, &stream->source);
        stream->source.fd = close_fd(stream->source.fd);
        stream->flush_at = USEC_INFINITY;
}

// May free the output.
static void stream_end(Stream *stream) {
        Output *output = stream->output;

        if (stream->source.fd < 0)
                return;
        feed(stream, NULL, 0, true);
        stream_close(stream);
        if (output->streams[RING_OUT].source.fd >= 0 || output->streams[RING_ERR].source.fd >= 0) {
                pump(output);
                return;
        }
        output->live = false;
        ring_end(output->ring);
        output->outputs->ended(output, output->outputs->userdata);
        pump(output);
        output_unused(output);
}

static void stream_ready(Source *source, uint32_t events) {
        static char piece[PIECE];
        Stream *stream = source->owner;
        size_t room = stream->limited ? MIN2(stream->left, sizeof(piece)) : sizeof(piece);
        ssize_t n = read(source->fd, piece, room);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n > 0) {
                feed(stream, piece, (size_t) n, false);
                stream->left -= stream->limited ? (size_t) n : 0;
                pump(stream->output);
        }
        if (n <= 0 || (stream->limited && stream->left == 0))
                stream_end(stream);
}

void output_limit_to_present(Output *output) {
        bool was_last;

        for (size_t i = 0; i < _RING_STREAM_MAX; i++) {
                Stream *stream = output->streams + i;
                int n = 0;
                if (stream->source.fd < 0 || stream->limited)
                        continue;
                if (ioctl(stream->source.fd, FIONREAD, &n) < 0 || n < 0)
                        n = 0;
                stream->limited = true;
                stream->left = (size_t) n;
                was_last = n == 0 && output->streams[!i].source.fd < 0;
                if (n == 0)
                        stream_end(stream);
                if (was_last)
                        return; // it may be gone
        }
}

usec_t outputs_flush(Outputs *outputs) {
        usec_t now = clock_monotonic(), next = USEC_INFINITY;

        for (Output *o = outputs->first; o; o = o->next)
                for (size_t i = 0; i < _RING_STREAM_MAX; i++) {
                        Stream *stream = o->streams + i;
                        if (stream->flush_at <= now) {
                                feed(stream, NULL, 0, true);
                                stream->flush_at = USEC_INFINITY;
                                pump(o);
                        }
                        next = MIN2(next, stream->flush_at);
                }
        return next;
}

// ---- life ----

static void link_in(Output *output, Outputs *outputs) {
        output->outputs = outputs;
        output->next = outputs->first;
        if (outputs->first)
                outputs->first->prev = output;
        outputs->first = output;
        outputs->n++;
}

static void link_out(Output *output) {
        Outputs *outputs = output->outputs;

        if (!outputs)
                return;
        *(output->prev ? &output->prev->next : &outputs->first) = output->next;
        if (output->next)
                output->next->prev = output->prev;
        outputs->n--;
}

Output *output_free(Output *output) {
        if (!output)
                return NULL;
        while (output->followers)
                (void) follower_free(output->followers);
        for (size_t i = 0; i < _RING_STREAM_MAX; i++) {
                if (output->outputs)
                        stream_close(output->streams + i);
                redact_stream_done(&output->streams[i].redact);
        }
        link_out(output);
        redact_values_done(&output->values);
        (void) ring_free(output->ring);
        free(output);
        return NULL;
}
DEFINE_CLEANUP(Output, output_free)

void output_unused(Output *output) {
        if (!output->live && !output->followers)
                (void) output_free(output);
}

static int open_stream(Output *output, OutputConfig *config, size_t i) {
        Stream *stream = output->streams + i;
        int r = io_set_nonblock(config->streams[i], true);

        stream->source = (Source) {.fd = config->streams[i], .ready = stream_ready, .owner = stream};
        config->streams[i] = -EBADF;
        return r < 0 ? r : loop_watch(output->outputs->loop, &stream->source, EPOLLIN);
}

int output_new(Outputs *outputs, OutputConfig *config, Output **ret) {
        _cleanup_(output_freep) Output *output = calloc(1, sizeof(Output));
        bool live = config->streams[RING_OUT] >= 0;
        int r = 0;

        if (!output)
                return -ENOMEM;
        for (size_t i = 0; i < _RING_STREAM_MAX; i++)
                output->streams[i] = (Stream) {.source = {.fd = -EBADF}, .output = output, .flush_at = USEC_INFINITY};
        (void) snprintf(output->id, sizeof(output->id), "%s", config->id);
        if (config->values >= 0)
                r = redact_values_read(config->values, &output->values);
        if (r >= 0)
                r = live ? ring_create(config->file, config->size, &output->ring) : ring_open(config->file, &output->ring);
        if (r < 0)
                return r;
        (void) TAKE_FD(config->file);
        link_in(output, outputs);
        for (size_t i = 0; live && r >= 0 && i < _RING_STREAM_MAX; i++)
                r = open_stream(output, config, i);
        if (r < 0)
                return r;
        output->live = live;
        *ret = TAKE_PTR(output);
        return 0;
}

Output *output_find(const Outputs *outputs, const char *id) {
        for (Output *o = outputs->first; o; o = o->next)
                if (strcmp(o->id, id) == 0)
                        return o;
        return NULL;
}

void output_stat(const Output *output, IoMessage *ret) {
        RingStat stat;

        ring_stat(output->ring, &stat);
        memcpy(ret->written, stat.written, sizeof(ret->written));
        memcpy(ret->kept, stat.kept, sizeof(ret->kept));
        ret->flags = (output->live ? IO_FLAG_LIVE : 0) | (stat.ended ? IO_FLAG_ENDED : 0);
        ret->redacted = output->values.redactor ? redactor_count(output->values.redactor, NULL) : 0;
}

const char *output_id(const Output *output) {
        return output->id;
}

bool output_is_live(const Output *output) {
        return output->live;
}

Outputs *output_outputs(const Output *output) {
        return output->outputs;
}

Output *output_next(const Output *output) {
        return output->next;
}

Ring *output_ring(const Output *output) {
        return output->ring;
}

Follower **output_followers(Output *output) {
        return &output->followers;
}
