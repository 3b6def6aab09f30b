// SPDX-License-Identifier: GPL-2.0-or-later
// Report: the three counters of an integration program and its last line.
#pragma once

#include <stdio.h>

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

static inline int report_end(void) {
        printf("%d passed, %d failed, %d skipped\n", report_passed, report_failed, report_skipped);
        return report_failed ? 1 : 0;
}
