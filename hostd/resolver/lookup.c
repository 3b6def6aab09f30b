// SPDX-License-Identifier: GPL-2.0-or-later
// Lookup: follows a chain of aliases where an upstream gave only its beginning, and keeps what came of it.
#include "resolver/lookup.h"

#include <string.h>

#define ASKS_MAX 8            // of one lookup
#define FAILURE_S 2u          // that a failure is remembered, or everybody who tries again would wait as long as the first

struct Lookup {
        Lookups *lookups;
        Lookup *next;
        DnsName name;
        uint16_t type, slot; // slot: of who began it
        unsigned asks;
        Ask *ask;
        Waiter *waiters;
        DnsAnswer *chain; // owned: what an upstream gave of a chain whose end must be asked for
};

struct Lookups {
        Upstreams *upstreams; // borrowed, as is the cache
        Cache *cache;
        Lookup *list;
        size_t n;
        uint16_t of_slot[UINT16_MAX + 1]; // how many of them: LOOKUPS_MAX at most
};

int lookups_new(Upstreams *upstreams, Cache *cache, Lookups **ret) {
        Lookups *l = calloc(1, sizeof(Lookups));

        if (!l)
                return -ENOMEM;
        *l = (Lookups) {.upstreams = upstreams, .cache = cache};
        *ret = l;
        return 0;
}

static void lookup_free(Lookup *lookup) {
        Lookup **p = &lookup->lookups->list;

        for (; *p && *p != lookup; p = &(*p)->next)
                ;
        if (*p) {
                *p = lookup->next;
                lookup->lookups->n--;
                lookup->lookups->of_slot[lookup->slot]--;
        }
        ask_free(lookup->ask);
        free(lookup->chain);
        free(lookup);
}

Lookups *lookups_free(Lookups *lookups) {
        if (!lookups)
                return NULL;
        while (lookups->list)
                lookup_free(lookups->list);
        free(lookups);
        return NULL;
}

bool lookups_cached(Lookups *lookups, const DnsName *name, uint16_t type, Result *ret) {
        usec_t now = clock_monotonic();
        const CacheEntry *e = cache_get(lookups->cache, name, type, now);
        uint32_t left;

        if (!e)
                return false;
        left = (uint32_t) ((e->until - now) / USEC_PER_SEC) + 1;
        *ret = (Result) {
                .error = e->rcode == DNS_SERVFAIL ? -EREMOTEIO : 0,
                .rcode = e->rcode, .n = e->n, .records = cache_entry_records(e), .size = e->size,
                .ttl = e->n > 0 ? MAX2(left, RESOLVER_TTL_MIN) : left,
        };
        return true;
}

static void waiter_remove(Waiter *waiter) {
        *(waiter->previous ? &waiter->previous->next : &waiter->lookup->waiters) = waiter->next;
        if (waiter->next)
                waiter->next->previous = waiter->previous;
        waiter->lookup = NULL;
}

void waiter_cancel(Waiter *waiter) {
        Lookup *lookup = waiter->lookup;

        if (!lookup)
                return;
        waiter_remove(waiter);
        // Without an Ask it is about to end, and frees itself.
        if (!lookup->waiters && lookup->ask)
                lookup_free(lookup);
}

static void waiter_add(Lookup *lookup, Waiter *waiter) {
        waiter->lookup = lookup;
        waiter->previous = NULL;
        waiter->next = lookup->waiters;
        if (waiter->next)
                waiter->next->previous = waiter;
        lookup->waiters = waiter;
}

static void lookup_end(Lookup *lookup, int error, const DnsAnswer *answer) {
        static const DnsAnswer failure = {.rcode = DNS_SERVFAIL};
        uint32_t lifetime = answer ? answer_lifetime(answer) : FAILURE_S;
        Result result = {.error = error};

        if (answer)
                result = (Result) {.rcode = answer->rcode, .n = answer->n, .records = answer->bytes, .size = answer->size, .ttl = lifetime};
        (void) cache_put(lookup->lookups->cache, &lookup->name, lookup->type, answer ?: &failure, clock_monotonic() + lifetime * USEC_PER_SEC);
        while (lookup->waiters) {
                Waiter *waiter = lookup->waiters;
                waiter_remove(waiter);
                waiter->done(waiter, &result);
        }
        lookup_free(lookup);
}

static int lookup_ask(Lookup *lookup);

// An alias whose target the upstream did not look up. Where nothing was added since the last time, nothing will be.
static bool answer_goes_on(const Lookup *lookup, const DnsAnswer *answer) {
        return !answer->complete && answer->n_chain > 0 && answer->n_chain >= lookup->asks && lookup->asks < ASKS_MAX;
}

static void lookup_on_answer(void *userdata, int result, const DnsAnswer *answer) {
        Lookup *lookup = userdata;

        lookup->ask = NULL;
        if (answer && answer_goes_on(lookup, answer)) {
                if (!lookup->chain)
                        lookup->chain = malloc(sizeof(DnsAnswer));
                result = lookup->chain ? 0 : -ENOMEM;
                if (result == 0) {
                        *lookup->chain = *answer;
                        result = lookup_ask(lookup);
                        if (result == 0)
                                return;
                }
                answer = NULL;
        }
        lookup_end(lookup, result, answer);
}

static int lookup_ask(Lookup *lookup) {
        AskSpec spec = {
                .name = lookup->chain ? &lookup->chain->target : &lookup->name, .type = lookup->type, .so_far = lookup->chain, .done = lookup_on_answer, .userdata = lookup,
        };

        lookup->asks++;
        return ask_new(lookup->lookups->upstreams, &spec, &lookup->ask);
}

// Nothing is known of the name: it is not remembered as a failure.
static void lookup_give_way(Lookup *lookup) {
        const Result result = {.error = -EBUSY};

        lookup->ask = ask_free(lookup->ask);
        while (lookup->waiters) {
                Waiter *waiter = lookup->waiters;
                waiter_remove(waiter);
                waiter->done(waiter, &result);
        }
        lookup_free(lookup);
}

// Of the slot that has most, the one that began last: else slots that ask for what is never answered would together leave nothing to all others.
static bool lookups_make_room(Lookups *lookups, uint16_t slot) {
        Lookup *last = NULL;

        for (Lookup *l = lookups->list; l; l = l->next)
                if (!last || lookups->of_slot[l->slot] > lookups->of_slot[last->slot])
                        last = l;
        if (!last || lookups->of_slot[last->slot] <= lookups->of_slot[slot] + 1)
                return false;
        lookup_give_way(last);
        return true;
}

int lookups_start(Lookups *lookups, uint16_t slot, const DnsQuery *query, Waiter *waiter) {
        Lookup *lookup;
        int r;

        for (lookup = lookups->list; lookup; lookup = lookup->next)
                if (lookup->type == query->type && dns_name_equal(&lookup->name, &query->name)) {
                        waiter_add(lookup, waiter);
                        return 0;
                }
        if (lookups->n >= LOOKUPS_MAX && !lookups_make_room(lookups, slot))
                return -EBUSY;
        lookup = calloc(1, sizeof(Lookup));
        if (!lookup)
                return -ENOMEM;
        lookup->lookups = lookups;
        lookup->name = query->name;
        lookup->type = query->type;
        lookup->slot = slot;
        lookup->next = lookups->list;
        lookups->list = lookup;
        lookups->n++;
        lookups->of_slot[slot]++;
        r = lookup_ask(lookup);
        if (r < 0) {
                lookup_free(lookup);
                return r;
        }
        waiter_add(lookup, waiter);
        return 0;
}
