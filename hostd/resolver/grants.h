// SPDX-License-Identifier: GPL-2.0-or-later
// Grants: which addresses hostd has put into an instance's sets for us, and until when they stay there. It decides whether an answer must wait
// for the kernel; the kernel's own map is the truth, so whoever may have changed that map (a new policy, a new connection of hostd) has
// this forgotten.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

#define GRANTS_MAX 8192 // of an instance: the kernel's two maps have 4096 each

typedef struct GrantKey {
        uint16_t slot;    // whose map: of a sandbox, that of its profile or of its instance
        uint16_t rule_id;
        uint8_t family; // 4 or 6
        uint8_t address[16];
        uint32_t ports; // of the rule; another name of the same address may have others
} GrantKey;

typedef struct Grant {
        GrantKey key;
        bool used;
        uint32_t until; // seconds of the monotonic clock
        uint32_t whole; // seconds that it was given
} Grant;

typedef struct Grants {
        Grant *table; // owned; open addressing
        size_t n, size;
} Grants;

void grants_done(Grants *grants);
// True while more than half of its time is left.
bool grants_fresh(const Grants *grants, const GrantKey *key, usec_t now);
// After the kernel's word. -ENOMEM or -ENOSPC: not noted, so it is asked for again.
int grants_add(Grants *grants, const GrantKey *key, uint32_t ttl_s, usec_t now);
