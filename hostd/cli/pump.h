// SPDX-License-Identifier: GPL-2.0-or-later
// Pump: bytes from one descriptor to another, a turn at a time, never waiting.
//
// Descriptors that others share with us (standard input and output) are left blocking, since O_NONBLOCK would change them for the
// others too: they are used only when poll(2) says so, and written in pieces that a pipe then takes without waiting.
#pragma once

#include <poll.h>
#include <stdbool.h>

#include "base/error.h"

#define PUMP_SIZE 65536

typedef struct Pump {
        int from, to;          // -EBADF once done with
        bool own_from, own_to; // ours, and non-blocking
        size_t piece;          // of one write to a descriptor that is not ours
        bool limited;          // only `left` bytes more are read
        size_t left;
        int escape; // byte that sets `escaped` and is not passed on, or -1
        bool escaped, ended; // ended: nothing more will be read
        size_t start, used;
        char buf[PUMP_SIZE];
} Pump;

void pump_init(Pump *pump, int from, bool own_from, int to, bool own_to);
void pump_done(Pump *pump); // closes what is ours
bool pump_is_done(const Pump *pump);
void pump_poll(const Pump *pump, struct pollfd *from, struct pollfd *to);
void pump_turn(Pump *pump, const struct pollfd *from, const struct pollfd *to);
// Nothing that comes from now on is read any more, but all that is already there is.
void pump_limit_to_present(Pump *pump);
