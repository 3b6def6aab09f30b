// SPDX-License-Identifier: GPL-2.0-or-later
// Limit: how often an instance may ask, and how many names of one zone. A zone is what the last two labels of a name say: whoever tunnels
// through questions needs ever new names below a domain that is his, and cannot have it counted as many by putting labels in
// between. Names below "co.uk" and the like share one count, which errs on the safe side.
#pragma once

#include <stdbool.h>

#include "base/clock.h"
#include "resolver/dns.h"

// A bucket of `burst` tokens that gets `rate` new ones a second.
typedef struct Rate {
        uint32_t rate, burst;
        usec_t full_at; // when the bucket will be full again
} Rate;

bool rate_take(Rate *rate, usec_t now);
void rate_change(Rate *rate, uint32_t per_second, uint32_t burst, usec_t now); // what is missing from the bucket stays missing

#define ZONES_MAX 512 // that have their minute at the same time; a name of one more is refused
#define ZONES_WINDOW (60 * USEC_PER_SEC)

typedef struct Zone {
        uint64_t hash;
        usec_t start; // of its minute
        uint32_t n, room;
        uint32_t *names; // owned; hashes
} Zone;

typedef struct Zones {
        Zone *zones; // owned
        size_t n, room;
} Zones;

void zones_done(Zones *zones);
// Whether `name` is one of the first `max` different ones of its zone in this minute. No memory is no.
bool zones_take(Zones *zones, const DnsName *name, uint32_t max, usec_t now);
