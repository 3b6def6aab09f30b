// SPDX-License-Identifier: GPL-2.0-or-later
// Loop: epoll, one event at a time, so that what handles one may free whatever it likes.
#pragma once

#include <stdint.h>
#include <sys/epoll.h>

#include "base/clock.h"

typedef struct Source {
        int fd; // the owner's; -EBADF: not watched
        uint32_t events;
        void (*ready)(struct Source *source, uint32_t events);
        void *owner;
} Source;

int loop_open(void); // the descriptor that the others take
int loop_watch(int loop, Source *source, uint32_t events); // also to change them
void loop_unwatch(int loop, Source *source); // before its descriptor is closed: others may hold the same pipe
// Waits until `until`, or for one event, and handles it. Returns 1 if there was one.
int loop_turn(int loop, usec_t until);
