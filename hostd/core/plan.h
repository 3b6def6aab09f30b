// SPDX-License-Identifier: GPL-2.0-or-later
// Plan: reconcile as a pure function. What is wanted, what is there and the time go in; an ordered list of actions comes out.
// No clock, no kernel, no logging in here: the applier walks the list and has no opinions.
//
// Rules
//   - What runs and is not known (no configuration, a second thing under one name, a state nobody can name) is adopted and
//     reported once, and never stopped, cleaned or changed.
//   - What runs and is wanted is never stopped. A change that needs a restart is therefore no input here: it waits for the
//     operator's restart.
//   - What runs gets its network, policy and limits brought to the wanted revision, also when it is about to be stopped.
//   - What is down and wanted is started, at most max_starts being under way; after a crash only when the back-off is over:
//     1 s, 2, 4 … 60 s, and at most PLAN_CRASH_MAX tries in PLAN_CRASH_WINDOW, after which it is reported and rests until the
//     window is over.
//   - Kernel objects of what is down are cleaned before anything is started under that name.
//   - While `booting`, the boot mode decides what is wanted and nothing is stopped.
//   - ABSENT (configured, but without storage) gets no start: creating comes before planning.
// Order: adopt, report, clean, network, policy, limits, stops (highest boot order first), starts (lowest first), one wait.
// Each action is idempotent, and planning on the result of a carried-out plan gives an empty one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "model/desired.h"

#define PLAN_BACKOFF_MAX (60 * USEC_PER_SEC)
#define PLAN_CRASH_MAX 10
#define PLAN_CRASH_WINDOW (600 * USEC_PER_SEC)
#define PLAN_LOOK (5 * USEC_PER_SEC) // next look at something under way; its end is an event that comes earlier

typedef enum PlanState {
        PLAN_STATE_ABSENT,  // no storage
        PLAN_STATE_CREATED, // never started
        PLAN_STATE_STARTING,
        PLAN_STATE_RUNNING,
        PLAN_STATE_STOPPING,
        PLAN_STATE_STOPPED, // asked for, by us or from inside
        PLAN_STATE_FROZEN,
        PLAN_STATE_CRASHED, // down, and nobody asked
        PLAN_STATE_UNKNOWN, // something is there, and it does not answer as one of ours
        _PLAN_STATE_MAX,
        _PLAN_STATE_INVALID = -EINVAL,
} PlanState;
const char *plan_state_to_string(PlanState state);

typedef struct PlanDesired {
        const char *name;
        bool wanted; // running; while booting: the last state before the host went down
        BootMode boot;
        int64_t order;
        uint64_t policy_revision, limits_revision;
} PlanDesired;

typedef struct PlanObserved {
        const char *name;
        uint16_t slot;
        PlanState state;
        bool adopted;  // this hostd watches it: control socket or exit
        bool reported; // as unknown or as crashing; the observer clears it when the reason is gone
        bool cgroup, veth; // kernel objects are there
        uint64_t policy_revision, limits_revision; // applied; 0: none or not known
        usec_t since;    // monotonic, of the state
        unsigned attempts; // starts that ended in a crash, see plan_note_crash()
        usec_t window;     // when the first of them was counted
} PlanObserved;

typedef struct PlanInput {
        const PlanDesired *desired; // names are unique
        size_t n_desired;
        const PlanObserved *observed; // several may have one name; (name, slot) is unique
        size_t n_observed;
        bool booting; // first plan after the host came up
        unsigned max_starts; // under way at once; the daemon gives 2 x CPUs
        usec_t now; // monotonic
} PlanInput;

typedef enum PlanKind {
        PLAN_ADOPT,
        PLAN_REPORT_UNKNOWN,
        PLAN_REPORT_CRASHING, // rests after too many crashes: a warning
        PLAN_CLEAN,
        PLAN_APPLY_NETWORK,
        PLAN_APPLY_POLICY,
        PLAN_APPLY_LIMITS,
        PLAN_STOP,
        PLAN_START,
        PLAN_WAIT, // last and without a name: plan again at `when`
        _PLAN_KIND_MAX,
        _PLAN_KIND_INVALID = -EINVAL,
} PlanKind;
const char *plan_kind_to_string(PlanKind kind);

typedef struct PlanAction {
        PlanKind kind;
        const char *name; // borrowed from the input
        uint16_t slot;
        int64_t order;
        usec_t when; // PLAN_WAIT
} PlanAction;

typedef struct Plan {
        PlanAction *actions; // owned
        size_t n;
} Plan;

int plan_make(const PlanInput *input, Plan *ret); // 0 or -ENOMEM
void plan_done(Plan *plan);

// Whether it should run; the daemon stores the answer of the booting plan as the new `wanted`.
bool plan_wants(const PlanDesired *desired, bool booting);
// Counts a crash; a window that is over begins anew, so a long healthy run forgets what was before it.
void plan_note_crash(unsigned *attempts, usec_t *window, usec_t now);
// When an instance that crashed may be started again.
usec_t plan_restart_due(const PlanObserved *observed);
