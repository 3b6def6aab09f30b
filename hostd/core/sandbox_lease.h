// SPDX-License-Identifier: GPL-2.0-or-later
// SandboxLease: the three clocks of a sandbox, as a pure function of what is known and of the time.
//
//   deadline  a moment of the wall clock, which people and programs agreed on: it moves with the wall clock when that is set
//   idle      since no command runs in it and none began or ended
//   grace     from its end: how long what is known of it is kept
//
// Idle and grace are counted by a clock that nobody sets and that goes on while the machine sleeps (CLOCK_BOOTTIME): none of the three
// depends on which hostd was there when it began.
#pragma once

#include <stdbool.h>

#include "base/clock.h"

typedef enum SandboxClock { SANDBOX_CLOCK_NONE, SANDBOX_CLOCK_DEADLINE, SANDBOX_CLOCK_IDLE, SANDBOX_CLOCK_GRACE, _SANDBOX_CLOCK_MAX } SandboxClock;

typedef struct SandboxLease {
        usec_t deadline;    // realtime; 0: none
        usec_t idle, grace; // spans; idle 0: for ever
        unsigned busy;      // commands that run
        usec_t active;      // boottime: when it was made, or when a command last began or ended
        usec_t ended;       // boottime; 0: it lives
} SandboxLease;

typedef struct SandboxNow { usec_t realtime, boottime; } SandboxNow;

typedef struct SandboxVerdict {
        SandboxClock due;          // the clock that has run out, the one that did so first; NONE: all is well
        usec_t realtime, boottime; // otherwise: when to look again, by either clock; USEC_INFINITY: not because of that one
} SandboxVerdict;

SandboxVerdict sandbox_lease_judge(const SandboxLease *lease, SandboxNow now);
