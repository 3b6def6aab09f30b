// SPDX-License-Identifier: GPL-2.0-or-later
// SandboxLease: see sandbox_lease.h.
#include "core/sandbox_lease.h"

static usec_t lease_add(usec_t at, usec_t span) {
        usec_t sum;

        return __builtin_add_overflow(at, span, &sum) ? USEC_INFINITY : sum;
}

// How long ago `at` was; USEC_INFINITY: it is still to come.
static usec_t lease_past(usec_t at, usec_t now) {
        return at != USEC_INFINITY && at <= now ? now - at : USEC_INFINITY;
}

SandboxVerdict sandbox_lease_judge(const SandboxLease *lease, SandboxNow now) {
        usec_t deadline = lease->deadline ?: USEC_INFINITY;
        usec_t idle = lease->idle == 0 || lease->busy > 0 ? USEC_INFINITY : lease_add(lease->active, lease->idle);
        usec_t late, unused;

        if (lease->ended != 0) {
                usec_t grace = lease_add(lease->ended, lease->grace);
                // An end that is still to come is one of before the machine was started.
                bool over = grace <= now.boottime || lease->ended > now.boottime;
                return (SandboxVerdict) {over ? SANDBOX_CLOCK_GRACE : SANDBOX_CLOCK_NONE, USEC_INFINITY, grace};
        }
        late = lease_past(deadline, now.realtime);
        unused = lease_past(idle, now.boottime);
        if (late == USEC_INFINITY && unused == USEC_INFINITY)
                return (SandboxVerdict) {SANDBOX_CLOCK_NONE, deadline, idle};
        // Both, when nobody looked for a while: which was the first is the truth.
        SandboxClock due = unused == USEC_INFINITY || (late != USEC_INFINITY && late >= unused) ? SANDBOX_CLOCK_DEADLINE : SANDBOX_CLOCK_IDLE;
        return (SandboxVerdict) {due, deadline, idle};
}
