// SPDX-License-Identifier: GPL-2.0-or-later
// The clocks of a sandbox: which of them ends it, and when to look again.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "core/sandbox_lease.h"

#define NEVER USEC_INFINITY

static void test_judge(void **state) {
        static const struct {
                const char *what;
                SandboxLease lease;
                SandboxNow now;
                SandboxVerdict expected;
        } cases[] = {
                {"no clock at all", {.active = 5}, {1000, 100}, {SANDBOX_CLOCK_NONE, NEVER, NEVER}},
                {"a deadline to come", {.deadline = 2000, .active = 5}, {1000, 100}, {SANDBOX_CLOCK_NONE, 2000, NEVER}},
                {"a microsecond before it", {.deadline = 2000, .active = 5}, {1999, 100}, {SANDBOX_CLOCK_NONE, 2000, NEVER}},
                {"at it", {.deadline = 2000, .active = 5}, {2000, 100}, {SANDBOX_CLOCK_DEADLINE, 2000, NEVER}},
                {"long after it", {.deadline = 2000, .active = 5}, {999999, 100}, {SANDBOX_CLOCK_DEADLINE, 2000, NEVER}},
                {"a deadline does not wait for commands", {.deadline = 2000, .busy = 3}, {2001, 100}, {SANDBOX_CLOCK_DEADLINE, 2000, NEVER}},
                {"the wall clock was set back", {.deadline = 2000, .active = 5}, {10, 5000}, {SANDBOX_CLOCK_NONE, 2000, NEVER}},
                {"idle to come", {.idle = 50, .active = 100}, {1000, 149}, {SANDBOX_CLOCK_NONE, NEVER, 150}},
                {"idle", {.idle = 50, .active = 100}, {1000, 150}, {SANDBOX_CLOCK_IDLE, NEVER, 150}},
                {"a command runs", {.idle = 50, .active = 100, .busy = 1}, {1000, 100000}, {SANDBOX_CLOCK_NONE, NEVER, NEVER}},
                {"the wall clock is nothing to idle", {.idle = 50, .active = 100}, {NEVER - 1, 149}, {SANDBOX_CLOCK_NONE, NEVER, 150}},
                {"both, the deadline first", {.deadline = 2000, .idle = 50, .active = 100}, {2100, 160}, {SANDBOX_CLOCK_DEADLINE, 2000, 150}},
                {"both, idle first", {.deadline = 2000, .idle = 50, .active = 100}, {2005, 250}, {SANDBOX_CLOCK_IDLE, 2000, 150}},
                {"idle for ever", {.idle = NEVER - 1, .active = 100}, {1000, 1000}, {SANDBOX_CLOCK_NONE, NEVER, NEVER}},
                {"ended, kept", {.deadline = 10, .idle = 1, .grace = 600, .ended = 1000}, {5000, 1599}, {SANDBOX_CLOCK_NONE, NEVER, 1600}},
                {"ended, grace over", {.grace = 600, .ended = 1000}, {5000, 1600}, {SANDBOX_CLOCK_GRACE, NEVER, 1600}},
                {"ended, without grace", {.grace = 0, .ended = 1000}, {5000, 1000}, {SANDBOX_CLOCK_GRACE, NEVER, 1000}},
                {"ended before the machine was started", {.grace = 600, .ended = 1000}, {5000, 20}, {SANDBOX_CLOCK_GRACE, NEVER, 1600}},
                {"kept for ever", {.grace = NEVER - 1, .ended = 1000}, {5000, 2000}, {SANDBOX_CLOCK_NONE, NEVER, NEVER}},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                SandboxVerdict verdict = sandbox_lease_judge(&cases[i].lease, cases[i].now);
                if (verdict.due != cases[i].expected.due || verdict.realtime != cases[i].expected.realtime || verdict.boottime != cases[i].expected.boottime)
                        fail_msg("%s: clock %d, %llu, %llu", cases[i].what, verdict.due, (unsigned long long) verdict.realtime,
                                 (unsigned long long) verdict.boottime);
        }
}

// Whoever looks when he was told to finds that it is due; a moment earlier it was not.
static void test_look_again(void **state) {
        for (usec_t deadline = 1; deadline < 40; deadline++)
                for (usec_t idle = 1; idle < 40; idle++) {
                        SandboxLease lease = {.deadline = deadline, .idle = idle};
                        SandboxVerdict first = sandbox_lease_judge(&lease, (SandboxNow) {0, 0});
                        usec_t at = MIN2(first.realtime, first.boottime);
                        assert_int_equal(first.due, SANDBOX_CLOCK_NONE);
                        assert_int_equal(sandbox_lease_judge(&lease, (SandboxNow) {at - 1, at - 1}).due, SANDBOX_CLOCK_NONE);
                        assert_int_equal(sandbox_lease_judge(&lease, (SandboxNow) {at, at}).due, deadline <= idle ? SANDBOX_CLOCK_DEADLINE : SANDBOX_CLOCK_IDLE);
                }
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_judge), cmocka_unit_test(test_look_again)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
