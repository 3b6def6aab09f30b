// SPDX-License-Identifier: GPL-2.0-or-later
// Meter: see meter.h.
#include "proxy/meter.h"

#include <string.h>

#include "base/digest.h"

#define DAY (86400 * USEC_PER_SEC)
#define BURST_MIN 65536 // of a slow rate: less than a pipe's worth at once only costs time

typedef struct Entry { // as it is in the file
        char key[64]; // hex digits of a digest; zeros: free
        uint32_t day, pad;
        uint64_t spent;
} Entry;
_Static_assert(sizeof(Entry) == 80, "a layout without holes");

struct Meter {
        Meters *meters;
        unsigned users;
        uint64_t rate, budget;
        double tokens;
        usec_t filled; // when
        bool dirty;
        Entry entry;
};

struct Meters {
        int fd;
        Meter places[METERS_MAX];
};

static uint32_t day_of(usec_t realtime) {
        return (uint32_t) (realtime / DAY);
}

static bool entry_valid(const Entry *entry) {
        for (size_t i = 0; i < sizeof(entry->key); i++)
                if (!((entry->key[i] >= '0' && entry->key[i] <= '9') || (entry->key[i] >= 'a' && entry->key[i] <= 'f')))
                        return false;
        return entry->pad == 0;
}

int meters_new(int fd, Meters **ret) {
        Meters *meters = calloc(1, sizeof(Meters));

        if (!meters) {
                (void) close_fd(fd);
                return -ENOMEM;
        }
        meters->fd = fd;
        for (size_t i = 0; i < METERS_MAX; i++) {
                Meter *meter = &meters->places[i];
                meter->meters = meters;
                if (fd < 0)
                        continue;
                if (pread(fd, &meter->entry, sizeof(Entry), (off_t) (i * sizeof(Entry))) != sizeof(Entry) || !entry_valid(&meter->entry))
                        meter->entry = (Entry) {.day = 0};
        }
        *ret = meters;
        return 0;
}

void meters_save(Meters *meters) {
        for (size_t i = 0; meters->fd >= 0 && i < METERS_MAX; i++) {
                Meter *meter = &meters->places[i];
                if (!meter->dirty)
                        continue;
                // A full disk loses the count and not the service: it is tried again with the next change.
                meter->dirty = pwrite(meters->fd, &meter->entry, sizeof(Entry), (off_t) (i * sizeof(Entry))) != sizeof(Entry);
        }
}

Meters *meters_free(Meters *meters) {
        if (!meters)
                return NULL;
        meters_save(meters);
        (void) close_fd(meters->fd);
        free(meters);
        return NULL;
}

static Meter *meters_find(Meters *meters, const char *key) {
        Meter *free_place = NULL, *old = NULL;

        for (size_t i = 0; i < METERS_MAX; i++) {
                Meter *meter = &meters->places[i];
                if (memcmp(meter->entry.key, key, sizeof(meter->entry.key)) == 0)
                        return meter;
                if (meter->users > 0)
                        continue;
                if (meter->entry.key[0] == 0)
                        free_place = free_place ?: meter;
                else if (!old || meter->entry.day < old->entry.day)
                        old = meter;
        }
        // With all places used, the one goes that was not used for longest. A budget of today is forgotten last.
        return free_place ?: old;
}

int meter_ref(Meters *meters, const MeterKey *key, uint64_t rate, uint64_t budget, Meter **ret) {
        char digest[DIGEST_TEXT_MAX];
        _cleanup_free_ char *text = NULL;
        Meter *meter;

        if (asprintf(&text, "%s\n%s\n%s", key->instance, key->policy, key->rule) < 0) {
                text = NULL;
                return -ENOMEM;
        }
        meter = meters_find(meters, digest_bytes(text, strlen(text), digest));
        if (!meter)
                return -ENOSPC;
        if (memcmp(meter->entry.key, digest, sizeof(meter->entry.key)) != 0) {
                *meter = (Meter) {.meters = meters};
                memcpy(meter->entry.key, digest, sizeof(meter->entry.key));
        }
        if (meter->rate != rate)
                meter->tokens = (double) MAX2(rate, BURST_MIN);
        meter->rate = rate;
        meter->budget = budget;
        meter->users++;
        *ret = meter;
        return 0;
}

Meter *meter_unref(Meter *meter) {
        if (meter)
                meter->users--;
        return NULL;
}

static void meter_fill(Meter *meter, usec_t monotonic) {
        double burst = (double) MAX2(meter->rate, BURST_MIN);

        if (monotonic > meter->filled && meter->filled > 0)
                meter->tokens += (double) meter->rate * (double) (monotonic - meter->filled) / (double) USEC_PER_SEC;
        meter->tokens = MIN2(meter->tokens, burst);
        meter->filled = monotonic;
}

static uint64_t budget_left(Meter *meter, usec_t realtime) {
        if (meter->entry.day != day_of(realtime)) {
                meter->entry.day = day_of(realtime);
                meter->entry.spent = 0;
        }
        return meter->entry.spent < meter->budget ? meter->budget - meter->entry.spent : 0;
}

uint64_t meter_allowance(Meter *meter, const MeterTime *now) {
        uint64_t allowance = UINT64_MAX, left;

        if (meter->rate > 0) {
                meter_fill(meter, now->monotonic);
                allowance = meter->tokens > 0 ? (uint64_t) meter->tokens : 0;
        }
        if (meter->budget > 0) {
                left = budget_left(meter, now->realtime);
                allowance = MIN2(allowance, left);
        }
        return allowance;
}

void meter_spend(Meter *meter, uint64_t bytes, const MeterTime *now) {
        if (bytes == 0)
                return;
        if (meter->rate > 0)
                meter->tokens -= (double) bytes;
        if (meter->budget > 0) {
                (void) budget_left(meter, now->realtime);
                meter->entry.spent += bytes;
                meter->dirty = true;
        }
}

bool meter_is_spent(Meter *meter, const MeterTime *now) {
        return meter->budget > 0 && budget_left(meter, now->realtime) == 0;
}

usec_t meter_delay(Meter *meter, const MeterTime *now) {
        double missing;

        if (meter->rate == 0)
                return 0;
        meter_fill(meter, now->monotonic);
        // A twentieth of a second's worth, so that it is not woken for each byte.
        missing = (double) MIN2(meter->rate / 20 + 1, BURST_MIN) - meter->tokens;
        return missing > 0 ? (usec_t) (missing / (double) meter->rate * (double) USEC_PER_SEC) + 1 : 0;
}
