// SPDX-License-Identifier: GPL-2.0-or-later
// Report: the three counters of an integration program and its last line.
#pragma once

#include <stdio.h>
#include <stdlib.h>

static int report_passed, report_failed, report_skipped;

#define CHECK(condition, ...)                                                \
        ({                                                                   \
                int _ok = !!(condition);                                     \
                printf(_ok ? "ok: " : "FAIL (line %d): ", __LINE__);         \
                printf(__VA_ARGS__);                                         \
                printf("\n");                                                \
                fflush(stdout);                                              \
                *(_ok ? &report_passed : &report_failed) += 1;               \
                _ok;                                                         \
        })

#define SKIP(...)                                  \
        ({                                         \
                printf("SKIP: ");                  \
                printf(__VA_ARGS__);               \
                printf("\n");                      \
                report_skipped++;                  \
        })

// What limits on time are multiplied with: how much slower than a real machine this one may be.
static inline unsigned report_slow(void) {
        const char *s = getenv("HOSTD_TEST_SLOW");

        return s ? (unsigned) strtoul(s, NULL, 10) : 1;
}

static inline int report_end(void) {
        printf("%d passed, %d failed, %d skipped\n", report_passed, report_failed, report_skipped);
        return report_failed ? 1 : 0;
}
