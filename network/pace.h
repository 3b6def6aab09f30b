// SPDX-License-Identifier: GPL-2.0-or-later
// Pace: the download rate of a slot, by a queue at the host's end of its wire. Everything that goes to the instance passes it, answers of
// the host's own programs as well.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct PaceOutcome {
        bool no_rate; // the kernel has no tbf: nothing is limited
        bool no_fair; // no fq_codel: within the rate the queue is first in, first out
} PaceOutcome;
// UINT64_MAX takes the limit away. Already so is success.
int pace_set(const char *ifname, uint64_t bytes_per_second, PaceOutcome *ret);
