// SPDX-License-Identifier: GPL-2.0-or-later
// Follower: see follower.h.
#include "io/follower.h"

#include <string.h>

#include "base/io.h"

#define PIECES 8 // at once: others wait, above all the pipes of commands

struct Follower {
        Output *output;
        Follower *prev, *next;
        Source source;
        RingCursor *cursor;
        bool wait, last; // last: what is in `out` is the end
        uint64_t offset; // of what comes next
        uint64_t uid;
        size_t start, used;
        char out[sizeof(IoFrame) + RING_BLOCK];
};

static size_t n_followers;

size_t follower_count(void) {
        return n_followers;
}

Follower *follower_free(Follower *follower) {
        if (!follower)
                return NULL;
        if (follower->output) {
                *(follower->prev ? &follower->prev->next : output_followers(follower->output)) = follower->next;
                if (follower->next)
                        follower->next->prev = follower->prev;
                loop_unwatch(output_outputs(follower->output)->loop, &follower->source);
                (void) close_fd(follower->source.fd);
                n_followers--;
        }
        (void) ring_cursor_free(follower->cursor);
        free(follower);
        return NULL;
}
DEFINE_CLEANUP(Follower, follower_free)

// ---- what it gets ----

static void put_frame(Follower *follower, IoFrameKind kind, uint64_t length, const char *data) {
        const IoFrame frame = {.magic = IO_FRAME_MAGIC, .kind = kind, .offset = follower->offset, .length = length};

        memcpy(follower->out, &frame, sizeof(frame));
        if (data)
                memcpy(follower->out + sizeof(frame), data, length);
        follower->start = 0;
        follower->used = sizeof(frame) + (data ? length : 0);
        follower->offset += length;
}

static void put_last(Follower *follower, IoFrameKind kind, const RingStat *stat) {
        follower->offset = stat->written[RING_OUT] + stat->written[RING_ERR]; // who began behind it is told, too
        put_frame(follower, kind, 0, NULL);
        follower->last = true;
}

// False: it has all that there is.
static bool fill(Follower *follower) {
        RingPiece piece;
        RingStat stat;
        int r = ring_read(output_ring(follower->output), follower->cursor, &piece);

        ring_stat(output_ring(follower->output), &stat);
        if (r == 1)
                put_frame(follower, piece.lost ? IO_FRAME_LOST : piece.stream == RING_OUT ? IO_FRAME_OUT : IO_FRAME_ERR, piece.length, piece.data);
        else if (r < 0 || (!output_is_live(follower->output) && !stat.ended)) // the disk does not give it, or its writer died
                put_last(follower, IO_FRAME_CUT, &stat);
        else if (!output_is_live(follower->output))
                put_last(follower, IO_FRAME_ENDED, &stat);
        else if (!follower->wait)
                put_last(follower, IO_FRAME_NOW, &stat);
        else
                return false;
        return true;
}

// 1: all of it; 0: the pipe is full; negative: nobody reads any more.
static int flush(Follower *follower) {
        while (follower->start < follower->used) {
                ssize_t n = write(follower->source.fd, follower->out + follower->start, follower->used - follower->start);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? 0 : -errno;
                follower->start += (size_t) n;
        }
        return 1;
}

// 1: there is more, or the pipe is full; 0: it has everything; negative: it is over.
static int pump_some(Follower *follower) {
        for (size_t i = 0; i < PIECES; i++) {
                int r = flush(follower);
                if (r <= 0)
                        return r < 0 ? r : 1;
                if (follower->last)
                        return -EPIPE;
                if (!fill(follower))
                        return 0;
        }
        return 1;
}

Follower *follower_pump(Follower *follower) {
        Follower *next = follower->next;
        int r = 1;

        // One that is waited for anyway is looked at when it is ready.
        if (!(follower->source.events & EPOLLOUT))
                r = pump_some(follower);
        // EPOLLERR, which tells that nobody reads any more, comes without being asked for; EPOLLET only says that it is watched.
        if (r < 0 || loop_watch(output_outputs(follower->output)->loop, &follower->source, r == 1 ? EPOLLOUT : EPOLLET) < 0)
                (void) follower_free(follower);
        return next;
}

static void follower_ready(Source *source, uint32_t events) {
        Follower *follower = source->owner;
        Output *output = follower->output;
        int r = events & EPOLLERR ? -EPIPE : pump_some(follower);

        if (r < 0 || loop_watch(output_outputs(output)->loop, source, r == 1 ? EPOLLOUT : EPOLLET) < 0)
                (void) follower_free(follower);
        output_unused(output);
}

void follower_dismiss(Follower *follower) {
        RingStat stat;

        if (!follower->last && flush(follower) == 1) {
                ring_stat(output_ring(follower->output), &stat);
                put_last(follower, IO_FRAME_GONE, &stat);
                (void) flush(follower);
        }
        (void) follower_free(follower);
}

static bool user_has_too_many(const FollowerConfig *config) {
        size_t n = 0;

        for (Output *o = output_outputs(config->output)->first; o && config->uid != 0; o = output_next(o))
                for (const Follower *f = *output_followers(o); f; f = f->next)
                        n += f->uid == config->uid;
        return n >= IO_FOLLOWERS_USER_MAX;
}

int follower_new(const FollowerConfig *config) {
        _cleanup_(follower_freep) Follower *follower = NULL;
        Follower **first = output_followers(config->output);
        int r = io_set_nonblock(config->fd, true);

        if (r < 0)
                return r;
        if (n_followers >= IO_FOLLOWERS_MAX)
                return -EUSERS;
        if (user_has_too_many(config))
                return -EDQUOT;
        follower = calloc(1, sizeof(Follower));
        if (!follower)
                return -ENOMEM;
        follower->source = (Source) {.fd = config->fd, .ready = follower_ready, .owner = follower};
        follower->wait = config->wait;
        follower->offset = config->offset;
        follower->uid = config->uid;
        r = ring_cursor_new(config->offset, &follower->cursor);
        if (r >= 0)
                r = loop_watch(output_outputs(config->output)->loop, &follower->source, EPOLLOUT); // the first is given from the loop
        if (r < 0)
                return r;
        follower->output = config->output;
        follower->next = *first;
        if (*first)
                (*first)->prev = follower;
        *first = TAKE_PTR(follower);
        n_followers++;
        return 0;
}
