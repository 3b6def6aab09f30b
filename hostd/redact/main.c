// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-redact: stands between a command in an instance and who reads its output, and puts names in the place of values of secrets. hostd-instance starts
// one for each such command, as a user that is nobody on the host, and it ends with the command or with the instance; not with hostd.
//
// What it reads is the guest's. It confines itself before the first byte of that; the values it has are those of this instance's grants.
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/io.h"
#include "border/confine.h"
#include "redact/values.h"

#define PIECE 65536
#define HOLD_TIME (250 * USEC_PER_MSEC) // for the rest of what may be a value: somebody may wait for a prompt that ends like one begins

typedef struct Way {
        int in, out; // -EBADF once done with
        RedactStream stream;
        size_t written; // of what may go on
        usec_t flush_at;
        bool ended, limited; // nothing more is read; no more than `left` is
        size_t left;
} Way;

typedef struct Filter {
        int channel;
        RedactValues values;
        Way ways[REDACT_STREAMS];
} Filter;

// ---- one stream ----

static void way_close(Way *way) {
        way->in = close_fd(way->in);
        way->out = close_fd(way->out);
        way->flush_at = USEC_INFINITY;
}

static bool way_has_output(const Way *way) {
        return way->written < way->stream.n_out;
}

// What cannot be looked at is not passed on.
static void way_feed(Filter *filter, Way *way, const char *data, size_t size, bool flush) {
        if (redactor_feed(filter->values.redactor, &way->stream, data, size, flush) < 0)
                way_close(way);
        way->flush_at = way->stream.n_held > 0 ? clock_monotonic() + HOLD_TIME : USEC_INFINITY;
}

static void way_end(Filter *filter, Way *way) {
        if (way->ended)
                return;
        way->ended = true;
        way_feed(filter, way, NULL, 0, true);
        way->in = close_fd(way->in);
}

static void way_read(Filter *filter, Way *way) {
        static char piece[PIECE];
        size_t room = way->limited ? MIN2(way->left, sizeof(piece)) : sizeof(piece);
        ssize_t n = room > 0 ? read(way->in, piece, room) : 0;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n > 0) {
                way_feed(filter, way, piece, (size_t) n, false);
                way->left -= way->limited ? (size_t) n : 0;
        }
        if (n <= 0 || (way->limited && way->left == 0))
                way_end(filter, way);
}

static void way_write(Way *way) {
        while (way->out >= 0 && way_has_output(way)) {
                ssize_t n = write(way->out, way->stream.out + way->written, way->stream.n_out - way->written);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return;
                if (n < 0) { // nobody reads any more: the writer is to know
                        way_close(way);
                        return;
                }
                way->written += (size_t) n;
        }
        way->written = way->stream.n_out = 0;
        if (way->ended)
                way_close(way);
}

static void way_limit_to_present(Filter *filter, Way *way) {
        int n = 0;

        if (way->in < 0 || way->limited)
                return;
        if (ioctl(way->in, FIONREAD, &n) < 0 || n < 0)
                n = 0;
        way->limited = true;
        way->left = (size_t) n;
        if (n == 0)
                way_end(filter, way);
}

// ---- all ----

static int tell(const Filter *filter, RedactType type) {
        RedactMessage message = {.magic = REDACT_MAGIC, .type = type};

        for (size_t i = 0; type == REDACT_DONE && i < filter->values.n; i++)
                message.counts[i] = redactor_count(filter->values.redactor, filter->values.names[i]);
        return send(filter->channel, &message, sizeof(message), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void hear(Filter *filter) {
        RedactMessage message;
        ssize_t n = recv(filter->channel, &message, sizeof(message), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) { // hostd is gone, and the command goes on
                filter->channel = close_fd(filter->channel);
                return;
        }
        if (n == sizeof(message) && message.magic == REDACT_MAGIC && message.type == REDACT_DRAIN)
                for (size_t i = 0; i < REDACT_STREAMS; i++)
                        way_limit_to_present(filter, filter->ways + i);
}

static int until_next(const Filter *filter) {
        usec_t now = clock_monotonic(), next = USEC_INFINITY;

        for (size_t i = 0; i < REDACT_STREAMS; i++)
                next = MIN2(next, filter->ways[i].flush_at);
        return next == USEC_INFINITY ? -1 : next <= now ? 0 : (int) ((next - now) / USEC_PER_MSEC) + 1;
}

static void turn(Filter *filter) {
        struct pollfd fds[1 + 2 * REDACT_STREAMS] = {{.fd = filter->channel, .events = POLLIN}};

        for (size_t i = 0; i < REDACT_STREAMS; i++) {
                Way *way = filter->ways + i;
                bool full = way_has_output(way);
                fds[1 + 2 * i] = (struct pollfd) {.fd = full || way->ended ? -1 : way->in, .events = POLLIN};
                fds[2 + 2 * i] = (struct pollfd) {.fd = way->out, .events = full ? POLLOUT : 0};
        }
        if (poll(fds, ELEMENTS(fds), until_next(filter)) < 0)
                return;
        if (fds[0].revents)
                hear(filter);
        for (size_t i = 0; i < REDACT_STREAMS; i++) {
                Way *way = filter->ways + i;
                if (fds[1 + 2 * i].revents && way->in >= 0)
                        way_read(filter, way);
                if (way->flush_at <= clock_monotonic() && !way->ended)
                        way_feed(filter, way, NULL, 0, true);
                if ((fds[2 + 2 * i].revents & POLLERR) && way->out >= 0)
                        way_close(way);
                way_write(way);
        }
}

static bool is_done(const Filter *filter) {
        for (size_t i = 0; i < REDACT_STREAMS; i++)
                if (filter->ways[i].out >= 0)
                        return false;
        return true;
}

int main(void) {
        static Filter filter = {.channel = REDACT_FD_CHANNEL};
        const BorderConfine confine = {.memory_bytes = 256 << 20};
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        (void) signal(SIGPIPE, SIG_IGN);
        r = redact_values_read(REDACT_FD_VALUES, &filter.values);
        (void) close(REDACT_FD_VALUES);
        if (r >= 0)
                r = border_confine(&confine, &err);
        for (int i = 0; r >= 0 && i < REDACT_STREAMS; i++) {
                filter.ways[i] = (Way) {.in = REDACT_FD_STREAMS + 2 * i, .out = REDACT_FD_STREAMS + 2 * i + 1, .flush_at = USEC_INFINITY};
                r = io_set_nonblock(filter.ways[i].in, true);
                if (r >= 0)
                        r = io_set_nonblock(filter.ways[i].out, true);
        }
        if (r >= 0)
                r = tell(&filter, REDACT_READY);
        if (r < 0) {
                fprintf(stderr, "hostd-redact: %s\n", error_message(&err, r));
                return 1;
        }
        while (!is_done(&filter))
                turn(&filter);
        if (filter.channel >= 0)
                (void) tell(&filter, REDACT_DONE);
        for (size_t i = 0; i < REDACT_STREAMS; i++)
                redact_stream_done(&filter.ways[i].stream);
        redact_values_done(&filter.values);
        return 0;
}
