// SPDX-License-Identifier: GPL-2.0-or-later
// Pump: see pump.h.
#include "cli/pump.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/io.h"

// More than the buffers of a pty hold. What is on its way through them is not in FIONREAD, but a read waits for it.
#define PUMP_PTY_PRESENT (128 * 1024)
#define PUMP_PIPE_PIECE 4096 // PIPE_BUF: what POLLOUT promises

void pump_init(Pump *pump, int from, bool own_from, int to, bool own_to) {
        struct stat st;

        pump->from = from;
        pump->to = to;
        pump->own_from = own_from;
        pump->own_to = own_to;
        pump->escape = -1;
        pump->limited = pump->escaped = pump->ended = false;
        pump->start = pump->used = 0;
        pump->piece = fstat(to, &st) == 0 && S_ISREG(st.st_mode) ? PUMP_SIZE : PUMP_PIPE_PIECE;
        if (own_from)
                (void) io_set_nonblock(from, true); // ours and valid
        if (own_to)
                (void) io_set_nonblock(to, true);
}

static void pump_end_from(Pump *pump) {
        if (pump->own_from)
                (void) close_fd(pump->from);
        pump->from = -EBADF;
        pump->ended = true;
}

void pump_done(Pump *pump) {
        pump_end_from(pump);
        if (pump->own_to)
                (void) close_fd(pump->to);
        pump->to = -EBADF;
        pump->start = pump->used = 0;
}

bool pump_is_done(const Pump *pump) {
        return pump->to < 0;
}

void pump_poll(const Pump *pump, struct pollfd *from, struct pollfd *to) {
        bool full = pump->used > pump->start;

        *from = (struct pollfd) {.fd = full || pump->ended ? -1 : pump->from, .events = POLLIN};
        *to = (struct pollfd) {.fd = full ? pump->to : -1, .events = POLLOUT};
}

static void pump_find_escape(Pump *pump) {
        char *c = pump->escape < 0 ? NULL : memchr(pump->buf, pump->escape, pump->used);

        if (!c)
                return;
        pump->used = (size_t) (c - pump->buf);
        pump->escaped = true;
}

static void pump_read(Pump *pump) {
        size_t room = pump->limited ? MIN2(pump->left, (size_t) PUMP_SIZE) : PUMP_SIZE;
        ssize_t n = room > 0 ? read(pump->from, pump->buf, room) : 0;

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
                if (pump->limited && errno == EAGAIN)
                        pump_end_from(pump);
                return;
        }
        if (n <= 0) { // EIO: the last process closed its side of a pty
                pump_end_from(pump);
                return;
        }
        pump->start = 0;
        pump->used = (size_t) n;
        if (pump->limited) {
                pump->left -= (size_t) n;
                if (pump->left == 0)
                        pump_end_from(pump);
        }
        pump_find_escape(pump);
}

static void pump_write(Pump *pump) {
        while (pump->start < pump->used) {
                size_t waiting = pump->used - pump->start;
                ssize_t n = write(pump->to, pump->buf + pump->start, pump->own_to ? waiting : MIN2(waiting, pump->piece));
                if (n < 0) {
                        if (errno != EAGAIN && errno != EINTR)
                                pump_done(pump); // nobody reads any more: let the writer know by closing its pipe
                        return;
                }
                pump->start += (size_t) n;
                if (!pump->own_to)
                        return; // the next piece after the next poll
        }
}

void pump_turn(Pump *pump, const struct pollfd *from, const struct pollfd *to) {
        if (pump_is_done(pump))
                return;
        if (from->fd >= 0 && from->revents)
                pump_read(pump);
        // What was just read goes on at once if it may: to our own end without asking.
        if (pump->used > pump->start && ((to->fd >= 0 && to->revents) || pump->own_to))
                pump_write(pump);
        // Of what was present there may be no more to come that poll could tell of.
        if (pump->limited && !pump->ended && pump->start == pump->used)
                pump_read(pump);
        if (pump->ended && pump->start == pump->used)
                pump_done(pump);
}

void pump_limit_to_present(Pump *pump) {
        int n = 0;

        if (pump_is_done(pump) || pump->ended || pump->limited)
                return;
        if (isatty(pump->from))
                n = PUMP_PTY_PRESENT;
        else if (ioctl(pump->from, FIONREAD, &n) < 0)
                n = 0;
        pump->limited = true;
        pump->left = n > 0 ? (size_t) n : 0;
        if (n <= 0)
                pump_end_from(pump);
        else if (pump->start == pump->used)
                pump_read(pump);
        if (pump->ended && pump->start == pump->used)
                pump_done(pump);
}
