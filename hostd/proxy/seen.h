// SPDX-License-Identifier: GPL-2.0-or-later
// Seen: how many different destinations an instance has had through the proxy in a minute. The firewall counts those of its own (limits.c of network) in
// the same way: one is known for a minute from when it came, however often it is used, and what has no room is refused.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

#define SEEN_WINDOW (60 * USEC_PER_SEC)

typedef struct SeenDestination { uint64_t hash; usec_t since; } SeenDestination;

typedef struct Seen {
        SeenDestination *list; // owned
        size_t n, room;
} Seen;

void seen_done(Seen *seen);
// Whether it is one of the first `max` (0: any number) different ones. No memory is no.
bool seen_take(Seen *seen, const char *destination, uint32_t max, usec_t now);
