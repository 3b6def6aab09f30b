// SPDX-License-Identifier: GPL-2.0-or-later
// What has to go so that the output of one more command has room.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "io/budget.h"
#include "io/ring.h"

#define K UINT64_C(1024)
#define FILES 6

static void test_rooms(void **state) {
        static const Budget budget = {.owner_max = 1000 * K, .total_max = 2000 * K, .files_max = 5};
        static const struct {
                const char *what, *owner, *evicted; // a letter for each file: x, or - where it stays
                uint64_t want, room;
                BudgetFile files[FILES];
        } cases[] = {
                {"nothing is there", "", "", 500 * K, 500 * K, {{0}}},
                {"more than an owner may have", "", "", 3000 * K, 1000 * K, {{0}}},
                {"it fits", "", "--", 500 * K, 500 * K, {{"", 200 * K, 1, false, false}, {"", 300 * K, 2, true, false}}},
                {"the oldest goes", "", "-x-", 500 * K, 500 * K, {{"", 300 * K, 2, false, false}, {"", 300 * K, 1, false, false}, {"", 100 * K, 3, false, false}}},
                {"and no more than needed", "", "xx-", 700 * K, 700 * K, {{"", 300 * K, 1, false, false}, {"", 300 * K, 2, false, false}, {"", 300 * K, 3, false, false}}},
                {"what runs stays", "", "-x", 500 * K, 500 * K, {{"", 400 * K, 1, true, false}, {"", 300 * K, 2, false, false}}},
                {"and leaves less", "", "--", 500 * K, 200 * K, {{"", 400 * K, 1, true, false}, {"", 400 * K, 2, true, false}}},
                {"or too little", "", "--", 500 * K, 0, {{"", 500 * K, 1, true, false}, {"", 480 * K, 2, true, false}}},
                {"or nothing", "", "-", 500 * K, 0, {{"", 1200 * K, 1, true, false}}},
                {"an owner's own goes first", "a", "-x", 600 * K, 600 * K, {{"b", 700 * K, 1, false, false}, {"a", 700 * K, 2, false, false}}},
                {"another one's for the whole", "a", "x---", 600 * K, 600 * K,
                 {{"b", 700 * K, 1, false, false}, {"a", 100 * K, 2, false, false}, {"b", 200 * K, 3, false, false}, {"c", 700 * K, 4, false, false}}},
                {"the whole is full of what runs", "a", "---", 600 * K, 100 * K, {{"b", 1000 * K, 1, true, false}, {"c", 900 * K, 1, true, false}, {"d", 0, 1, true, false}}},
                {"too many", "", "x----", 100 * K, 100 * K,
                 {{"", 1 * K, 1, false, false}, {"", 1 * K, 2, false, false}, {"", 1 * K, 3, false, false}, {"", 1 * K, 4, false, false}, {"", 1 * K, 5, false, false}}},
                {"too many that run", "", "-----", 100 * K, 0,
                 {{"", 1 * K, 1, true, false}, {"", 1 * K, 2, true, false}, {"", 1 * K, 3, true, false}, {"", 1 * K, 4, true, false}, {"b", 1 * K, 5, true, false}}},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                BudgetFile files[FILES];
                size_t n = 0;
                for (; cases[i].evicted[n]; n++)
                        files[n] = cases[i].files[n];
                uint64_t room = budget_room(&budget, files, n, cases[i].owner, cases[i].want);
                if (room != cases[i].room)
                        fail_msg("%s: %llu", cases[i].what, (unsigned long long) room);
                for (size_t k = 0; k < n; k++)
                        if (files[k].evict != (cases[i].evicted[k] == 'x'))
                                fail_msg("%s: file %zu", cases[i].what, k);
        }
        assert_true(RING_SIZE_MIN < 100 * K);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_rooms)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
