// SPDX-License-Identifier: GPL-2.0-or-later
// Meter: what the connections of one rule of one instance may move: bytes a second (a token bucket) and bytes a day. Both directions count.
//
// A meter is known by its instance and by what its rule says, so that other rules may come and go in front of it. What was used of a
// day's budget is kept in a file, where there is one: it is written every METERS_SAVE and at the end, so a kill forgets at most that.
#pragma once

#include <stdbool.h>

#include "base/clock.h"

#define METERS_MAX 4096
#define METERS_SAVE (10 * USEC_PER_SEC)

typedef struct Meters Meters;
typedef struct Meter Meter;

// `fd`: the file, read and write, taken over; -EBADF: none. A file that is not one of ours is begun anew.
int meters_new(int fd, Meters **ret);
Meters *meters_free(Meters *meters); // writes
DEFINE_CLEANUP(Meters, meters_free)
void meters_save(Meters *meters); // what changed

typedef struct MeterKey {
        const char *instance, *policy, *rule; // rule: its text
} MeterKey;
// One more user of the meter, with these bounds (0: none) from now on. -ENOSPC: there are too many.
int meter_ref(Meters *meters, const MeterKey *key, uint64_t rate, uint64_t budget, Meter **ret);
Meter *meter_unref(Meter *meter);
DEFINE_CLEANUP(Meter, meter_unref)

// Times are the caller's, so that tests need not wait: monotonic for the rate, real (UTC days) for the budget.
typedef struct MeterTime { usec_t monotonic, realtime; } MeterTime;
uint64_t meter_allowance(Meter *meter, const MeterTime *now); // UINT64_MAX: no bound
void meter_spend(Meter *meter, uint64_t bytes, const MeterTime *now);
bool meter_is_spent(Meter *meter, const MeterTime *now); // the day's budget
usec_t meter_delay(Meter *meter, const MeterTime *now);  // until the rate allows more
