// SPDX-License-Identifier: GPL-2.0-or-later
// Cache: a hash table whose entries are in a list by last use. The hash has a secret key: guests choose the names, and could choose ones
// that all fall into one bucket.
#include "resolver/cache.h"

#include <sodium/crypto_shorthash.h>
#include <string.h>
#include <sys/random.h>

#define BUCKETS 8192

struct Cache {
        CacheEntry *buckets[BUCKETS];
        CacheEntry *newest, *oldest;
        size_t bytes, max_bytes, n;
        uint8_t key[crypto_shorthash_KEYBYTES];
};

int cache_new(size_t max_bytes, Cache **ret) {
        _cleanup_(cache_freep) Cache *cache = calloc(1, sizeof(Cache));

        if (!cache)
                return -ENOMEM;
        cache->max_bytes = max_bytes;
        if (getrandom(cache->key, sizeof(cache->key), 0) != sizeof(cache->key))
                return -EIO;
        *ret = TAKE_PTR(cache);
        return 0;
}

static uint64_t cache_hash(const Cache *cache, const DnsName *name, uint16_t type) {
        uint64_t hash = 0;

        (void) crypto_shorthash((unsigned char *) &hash, name->wire, name->size, cache->key);
        return hash + type * 0x9e3779b97f4a7c15u;
}

// malloc's own share is counted, or many small entries would take twice what is allowed.
static size_t entry_bytes(const CacheEntry *e) {
        return sizeof(CacheEntry) + e->name_size + e->size + 16;
}

static void list_remove(Cache *cache, CacheEntry *e) {
        *(e->newer ? &e->newer->older : &cache->newest) = e->older;
        *(e->older ? &e->older->newer : &cache->oldest) = e->newer;
}

static void list_push(Cache *cache, CacheEntry *e) {
        e->newer = NULL;
        e->older = cache->newest;
        *(cache->newest ? &cache->newest->newer : &cache->oldest) = e;
        cache->newest = e;
}

static CacheEntry **cache_place(Cache *cache, uint64_t hash, const DnsName *name, uint16_t type) {
        CacheEntry **p = &cache->buckets[hash % BUCKETS];

        for (; *p; p = &(*p)->next)
                if ((*p)->hash == hash && (*p)->type == type && (*p)->name_size == name->size && memcmp((*p)->bytes, name->wire, name->size) == 0)
                        break;
        return p;
}

static void cache_remove(Cache *cache, CacheEntry **place) {
        CacheEntry *e = *place;

        *place = e->next;
        list_remove(cache, e);
        cache->bytes -= entry_bytes(e);
        cache->n--;
        free(e);
}

static void cache_remove_oldest(Cache *cache) {
        CacheEntry *e = cache->oldest, **p = &cache->buckets[e->hash % BUCKETS];

        while (*p != e)
                p = &(*p)->next;
        cache_remove(cache, p);
}

void cache_clear(Cache *cache) {
        while (cache->oldest)
                cache_remove_oldest(cache);
}

Cache *cache_free(Cache *cache) {
        if (cache)
                cache_clear(cache);
        free(cache);
        return NULL;
}

const CacheEntry *cache_get(Cache *cache, const DnsName *name, uint16_t type, usec_t now) {
        CacheEntry **p = cache_place(cache, cache_hash(cache, name, type), name, type);

        if (!*p)
                return NULL;
        if ((*p)->until <= now) {
                cache_remove(cache, p);
                return NULL;
        }
        if ((*p)->newer) {
                list_remove(cache, *p);
                list_push(cache, *p);
        }
        return *p;
}

int cache_put(Cache *cache, const DnsName *name, uint16_t type, const DnsAnswer *answer, usec_t until) {
        uint64_t hash = cache_hash(cache, name, type);
        CacheEntry **p = cache_place(cache, hash, name, type), *e;

        if (*p)
                cache_remove(cache, p);
        e = malloc(sizeof(CacheEntry) + name->size + answer->size);
        if (!e)
                return -ENOMEM;
        *e = (CacheEntry) {.hash = hash, .until = until, .type = type, .n = answer->n, .size = answer->size, .rcode = answer->rcode, .name_size = name->size};
        memcpy(e->bytes, name->wire, name->size);
        memcpy(e->bytes + name->size, answer->bytes, answer->size);
        if (entry_bytes(e) > cache->max_bytes) {
                free(e);
                return 0;
        }
        while (cache->bytes + entry_bytes(e) > cache->max_bytes)
                cache_remove_oldest(cache);
        e->next = cache->buckets[hash % BUCKETS];
        cache->buckets[hash % BUCKETS] = e;
        list_push(cache, e);
        cache->bytes += entry_bytes(e);
        cache->n++;
        return 0;
}

size_t cache_bytes(const Cache *cache) {
        return cache->bytes;
}

size_t cache_entries(const Cache *cache) {
        return cache->n;
}

uint32_t answer_lifetime(const DnsAnswer *answer) {
        if (answer->rcode == DNS_NOERROR && answer->n > answer->n_chain)
                return MIN2(MAX2(answer->ttl, RESOLVER_TTL_MIN), RESOLVER_TTL_MAX);
        if (answer->ttl == UINT32_MAX)
                return RESOLVER_NEGATIVE_UNKNOWN;
        return MIN2(MAX2(answer->ttl, 1u), RESOLVER_NEGATIVE_MAX);
}
