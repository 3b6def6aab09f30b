// SPDX-License-Identifier: GPL-2.0-or-later
// Lookup: a name and a type, from the cache or from the upstreams; whoever asks for what is being asked already waits for the same answer.
#pragma once

#include "resolver/cache.h"
#include "resolver/upstream.h"

#define LOOKUPS_MAX 1024 // at a time; each takes a kilobyte and a descriptor. When all are taken, who has most of them gives one to who has fewer

typedef struct Lookups Lookups;
typedef struct Lookup Lookup;

typedef struct Result {
        int error; // negative errno: no upstream had an answer. The rest is then empty
        uint8_t rcode;
        uint16_t n;
        const uint8_t *records; // as in DnsAnswer
        size_t size;
        uint32_t ttl; // as clients are to be told
} Result;

// Embedded in whatever waits. `done` is called once, not before lookups_start() has returned, and with a result that is good during the call.
typedef struct Waiter {
        struct Waiter *next, *previous;
        Lookup *lookup; // NULL: does not wait
        void (*done)(struct Waiter *waiter, const Result *result);
} Waiter;

int lookups_new(Upstreams *upstreams, Cache *cache, Lookups **ret);
Lookups *lookups_free(Lookups *lookups); // nobody waits any more
DEFINE_CLEANUP(Lookups, lookups_free)
// From the cache; false if it must be asked for. Good until the next call.
bool lookups_cached(Lookups *lookups, const DnsName *name, uint16_t type, Result *ret);
// `slot`: whose it is; a lookup that others wait for, too, is counted as of who began it. -EBUSY: LOOKUPS_MAX are on their way, and nobody has more
// of them than this slot has. A waiter that has to give way gets -EBUSY as its result.
int lookups_start(Lookups *lookups, uint16_t slot, const DnsQuery *query, Waiter *waiter);
void waiter_cancel(Waiter *waiter); // a lookup that nobody waits for any more ends, or guests could have any number of them
