// SPDX-License-Identifier: GPL-2.0-or-later
// Destinations through the proxy: so many different ones a minute, and each for a minute from when it came.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "proxy/seen.h"

static void test_seen(void **state) {
        usec_t now = 1000 * USEC_PER_SEC;
        Seen seen = {0};
        char text[32];

        for (int round = 0; round < 3; round++)
                for (int i = 0; i < 40; i++) {
                        (void) snprintf(text, sizeof(text), "h%d.example.org 443", i);
                        assert_int_equal(seen_take(&seen, text, 30, now), i < 30);
                }
        assert_false(seen_take(&seen, "h1.example.org 80", 30, now)); // a port more is one more
        now += SEEN_WINDOW - 1;
        assert_true(seen_take(&seen, "h1.example.org 443", 30, now)); // does not begin its minute anew
        assert_false(seen_take(&seen, "h30.example.org 443", 30, now));
        now++;
        assert_true(seen_take(&seen, "h30.example.org 443", 30, now));
        assert_int_equal(seen.n, 1);
        // Another limit holds at once; none is none, and forgets.
        assert_true(seen_take(&seen, "h31.example.org 443", 2, now));
        assert_false(seen_take(&seen, "h32.example.org 443", 2, now));
        assert_true(seen_take(&seen, "h30.example.org 443", 1, now));
        for (int i = 0; i < 1000; i++) {
                (void) snprintf(text, sizeof(text), "%d", i);
                assert_true(seen_take(&seen, text, 0, now));
        }
        assert_int_equal(seen.n, 0);
        seen_done(&seen);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_seen)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
