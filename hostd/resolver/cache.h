// SPDX-License-Identifier: GPL-2.0-or-later
// Cache: answers by name and type, the oldest use given up first when the room is used up. It is shared by all instances: policy is asked
// before it and addresses are looked at behind it, so that nobody gets more out of it than out of an upstream. (How fast an answer comes does
// tell that some other instance asked for a name that this one may ask for, too.)
#pragma once

#include "base/clock.h"
#include "resolver/dns.h"

typedef struct Cache Cache;

typedef struct CacheEntry {
        struct CacheEntry *next, *newer, *older; // the cache's own
        uint64_t hash;
        usec_t until;
        uint16_t type, n, size;
        uint8_t rcode, name_size;
        uint8_t bytes[]; // the name, then records as in DnsAnswer
} CacheEntry;

int cache_new(size_t max_bytes, Cache **ret);
Cache *cache_free(Cache *cache);
DEFINE_CLEANUP(Cache, cache_free)
void cache_clear(Cache *cache);
// NULL if there is none or its time is over. Good until the next call of a function without const.
const CacheEntry *cache_get(Cache *cache, const DnsName *name, uint16_t type, usec_t now);
// Replaces what is there. -ENOMEM, which harms nobody. An answer that is larger than the whole cache is not kept.
int cache_put(Cache *cache, const DnsName *name, uint16_t type, const DnsAnswer *answer, usec_t until);
size_t cache_bytes(const Cache *cache);
size_t cache_entries(const Cache *cache);
static inline const uint8_t *cache_entry_records(const CacheEntry *e) { return e->bytes + e->name_size; }

#define RESOLVER_TTL_MIN 30u
#define RESOLVER_TTL_MAX 300u
#define RESOLVER_NEGATIVE_MAX 60u
#define RESOLVER_NEGATIVE_UNKNOWN 5u // nobody said how long
// Seconds that an answer is kept for and that clients are told: 30 to 300 with records, 1 to 60 without.
uint32_t answer_lifetime(const DnsAnswer *answer);
