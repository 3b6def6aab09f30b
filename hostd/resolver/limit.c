// SPDX-License-Identifier: GPL-2.0-or-later
// Limit: exact counts rather than estimates, since a person who meets a limit must find the number in the configuration.
#include "resolver/limit.h"

#include <sodium/crypto_shorthash.h>
#include <sys/random.h>

static usec_t rate_interval(const Rate *rate) {
        return MAX2(USEC_PER_SEC / rate->rate, 1u);
}

void rate_change(Rate *rate, uint32_t per_second, uint32_t burst, usec_t now) {
        usec_t missing = rate->rate > 0 && rate->full_at > now ? (rate->full_at - now) / rate_interval(rate) : 0;

        *rate = (Rate) {.rate = per_second, .burst = burst};
        if (per_second > 0)
                rate->full_at = now + MIN2(missing, burst) * rate_interval(rate);
}

bool rate_take(Rate *rate, usec_t now) {
        usec_t interval, full;

        if (rate->rate == 0 || rate->burst == 0)
                return false;
        interval = rate_interval(rate);
        full = MAX2(rate->full_at, now) + interval;
        if (full - now > interval * rate->burst)
                return false;
        rate->full_at = full;
        return true;
}

void zones_done(Zones *zones) {
        for (size_t i = 0; i < zones->n; i++)
                free(zones->zones[i].names);
        free(zones->zones);
        *zones = (Zones) {0};
}

// Secret, so that nobody can look for names that count as one.
static const uint8_t *hash_key(void) {
        static uint8_t key[crypto_shorthash_KEYBYTES];
        static bool made;

        if (!made && getrandom(key, sizeof(key), 0) == sizeof(key))
                made = true;
        return key;
}

static uint64_t hash_wire(const uint8_t *wire, size_t size) {
        uint64_t hash = 0;

        (void) crypto_shorthash((unsigned char *) &hash, wire, size, hash_key());
        return hash;
}

static size_t zone_offset(const DnsName *name) {
        size_t last = 0, before = 0;

        for (size_t at = 0; at < name->size && name->wire[at] > 0; at += name->wire[at] + 1u) {
                before = last;
                last = at;
        }
        return before;
}

// The zone's own minute, one whose minute is over, or a new one.
static Zone *zones_find(Zones *zones, uint64_t hash, usec_t now) {
        Zone *stale = NULL;

        for (size_t i = 0; i < zones->n; i++) {
                Zone *z = &zones->zones[i];
                bool over = now - z->start >= ZONES_WINDOW;
                if (z->hash == hash && !over)
                        return z;
                if (over)
                        stale = z;
        }
        if (!stale) {
                if (zones->n == ZONES_MAX)
                        return NULL;
                if (zones->n == zones->room) {
                        size_t room = zones->room ? zones->room * 2 : 8;
                        Zone *larger = reallocarray(zones->zones, room, sizeof(Zone));
                        if (!larger)
                                return NULL;
                        zones->zones = larger;
                        zones->room = room;
                }
                stale = &zones->zones[zones->n++];
                *stale = (Zone) {0};
        }
        stale->hash = hash;
        stale->start = now;
        stale->n = 0;
        return stale;
}

bool zones_take(Zones *zones, const DnsName *name, uint32_t max, usec_t now) {
        size_t offset = zone_offset(name);
        uint32_t hash = (uint32_t) hash_wire(name->wire, name->size);
        Zone *zone = zones_find(zones, hash_wire(name->wire + offset, name->size - offset), now);

        if (!zone)
                return false;
        for (uint32_t i = 0; i < zone->n; i++)
                if (zone->names[i] == hash)
                        return true;
        if (zone->n >= max)
                return false;
        if (zone->n == zone->room) {
                uint32_t room = zone->room ? zone->room * 2 : 4;
                uint32_t *larger = reallocarray(zone->names, room, sizeof(uint32_t));
                if (!larger)
                        return false;
                zone->names = larger;
                zone->room = room;
        }
        zone->names[zone->n++] = hash;
        return true;
}
