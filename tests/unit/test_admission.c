// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "quotas/admission.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

// 64 GB of RAM, 2 x 512 GB of disk mirrored, as the kernel shows them.
static const Capacity server = {.memory_bytes = 62 * GIB + 800 * MIB, .memory_reserve_bytes = 4 * GIB, .disk_bytes = 440 * GIB,
                                .disk_reserve_bytes = 20 * GIB, .disk_used_other_bytes = 0, .cpus = 12};

static void test_check(void **state) {
        static const Promise six[6] = {{"b", 10 * GIB, 50 * GIB}, {"c", 10 * GIB, 50 * GIB}, {"d", 10 * GIB, 50 * GIB},
                                       {"e", 10 * GIB, 50 * GIB}, {"f", 10 * GIB, 50 * GIB}, {"g", 4 * GIB, 50 * GIB}};
        static const struct {
                size_t n;
                Promise asked;
                const char *sentence; // NULL: admitted
        } cases[] = {
                {0, {"a", 8 * GIB, 50 * GIB}, NULL},
                {6, {"a", 4 * GIB + 800 * MIB, 120 * GIB}, NULL}, // the last byte
                {6, {"a", 8 * GIB, 50 * GIB},
                 "memory: 6 instances promise 54.0GiB and \"a\" asks for 8.00GiB, but 62.8GiB less a reserve of 4.00GiB leaves "
                 "58.8GiB: 3.22GiB short"},
                {1, {"a", 49 * GIB, 50 * GIB},
                 "memory: 1 instance promises 10.0GiB and \"a\" asks for 49.0GiB, but 62.8GiB less a reserve of 4.00GiB leaves "
                 "58.8GiB: 224MiB short"},
                {6, {"a", GIB, 121 * GIB},
                 "disk: 6 instances promise 300GiB and \"a\" asks for 121GiB, but 440GiB less a reserve of 20.0GiB leaves 420GiB: "
                 "1.00GiB short"},
                {0, {"a", UINT64_MAX, GIB}, "memory: \"a\" asks for no limit, and that cannot be promised"},
                {0, {"a", GIB, UINT64_MAX}, "disk: \"a\" asks for no limit, and that cannot be promised"},
                {6, {"a", UINT64_MAX - 1, GIB}, ""},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                int r = admission_check(&server, six, cases[i].n, &cases[i].asked, &err);
                if (!cases[i].sentence) {
                        assert_int_equal(r, 0);
                        continue;
                }
                assert_int_equal(r, -EDQUOT);
                assert_int_equal(err.code, ERR_QUOTA);
                if (*cases[i].sentence)
                        assert_string_equal(err.message, cases[i].sentence);
        }
}

static void test_check_other_use(void **state) {
        Capacity capacity = server;
        const Promise asked = {"a", GIB, 400 * GIB};
        _cleanup_error_ Error err = ERROR_NULL;

        capacity.disk_used_other_bytes = 30 * GIB;
        assert_int_equal(admission_check(&capacity, NULL, 0, &asked, &err), -EDQUOT);
        assert_string_equal(err.message, "disk: 0 instances promise 0B and \"a\" asks for 400GiB, but 440GiB less a reserve of 20.0GiB "
                                         "and 30.0GiB in other use leaves 390GiB: 10.0GiB short");
}

// A promise without limit, from before a limit was asked for, blocks everything; so does a reserve above the whole.
static void test_check_extremes(void **state) {
        const Promise asked = {"a", MIB, MIB}, unlimited = {"b", UINT64_MAX, GIB};
        Capacity capacity = server;

        assert_int_equal(admission_check(&server, &unlimited, 1, &asked, NULL), -EDQUOT);
        capacity.memory_reserve_bytes = 100 * GIB;
        assert_int_equal(admission_check(&capacity, NULL, 0, &asked, NULL), -EDQUOT);
}

static void test_carve(void **state) {
        static const Capacity small = {.memory_bytes = 23 * GIB + 512 * MIB, .memory_reserve_bytes = 2 * GIB, .disk_bytes = 80 * GIB,
                                       .disk_reserve_bytes = 8 * GIB, .disk_used_other_bytes = GIB, .cpus = 2};
        static const struct {
                const Capacity *capacity;
                unsigned count;
                uint64_t memory, disk, pids;
                unsigned cpu_millis;
        } cases[] = {
                {&server, 6, 9 * GIB + 768 * MIB, 70 * GIB, 9984, 4000},
                {&server, 1, 58 * GIB + 768 * MIB, 420 * GIB, 32768, 12000},
                {&server, 12, 4 * GIB + 896 * MIB, 35 * GIB, 4992, 2000},
                {&small, 2, 10 * GIB + 768 * MIB, 35 * GIB + 512 * MIB, 11008, 1000},
                {&small, 6, 3 * GIB + 576 * MIB, 11 * GIB + 832 * MIB, 3648, 600},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                CarvePlan plan;
                Promise planned[16];
                assert_int_equal(carve_plan(cases[i].capacity, NULL, 0, cases[i].count, &plan, NULL), 0);
                assert_int_equal(plan.count, cases[i].count);
                assert_int_equal(plan.memory_bytes, cases[i].memory);
                assert_int_equal(plan.disk_bytes, cases[i].disk);
                assert_int_equal(plan.pids, cases[i].pids);
                assert_int_equal(plan.cpu_millis, cases[i].cpu_millis);
                // What is planned is admitted, one after the other.
                for (unsigned k = 0; k < plan.count; k++) {
                        planned[k] = (Promise) {"x", plan.memory_bytes, plan.disk_bytes};
                        assert_int_equal(admission_check(cases[i].capacity, planned, k, &planned[k], NULL), 0);
                }
                // And little is left over.
                CarvePlan more;
                assert_int_equal(carve_plan(cases[i].capacity, planned, plan.count, 1, &more, NULL), -EDQUOT);
        }
}

static void test_carve_bad(void **state) {
        static const Promise most = {"a", 56 * GIB, 100 * GIB};
        _cleanup_error_ Error a = ERROR_NULL, b = ERROR_NULL, c = ERROR_NULL;
        Capacity capacity = server;
        CarvePlan plan;

        assert_int_equal(carve_plan(&server, &most, 1, 6, &plan, &a), -EDQUOT);
        assert_string_equal(a.message, "memory: 2.78GiB left for 6 instances is 448MiB each, below the least of 512MiB");
        capacity.disk_bytes = 40 * GIB;
        assert_int_equal(carve_plan(&capacity, NULL, 0, 6, &plan, &b), -EDQUOT);
        assert_string_equal(b.message, "disk: 20.0GiB left for 6 instances is 3.31GiB each, below the least of 4.00GiB");
        assert_int_equal(carve_plan(&server, NULL, 0, 0, &plan, &c), -EINVAL);
        assert_string_equal(c.field, "count");
        assert_int_equal(carve_plan(&server, NULL, 0, 1001, &plan, NULL), -EINVAL);
}

static void test_guard(void **state) {
        Capacity odd = server;

        assert_true(admission_guard(&server) == 60 * GIB + 800 * MIB);
        odd.memory_reserve_bytes = 0; // the administrator's wish
        assert_true(admission_guard(&odd) == odd.memory_bytes);
        odd.memory_reserve_bytes = 100 * GIB; // more than there is: nothing is admitted, and the limit is still no nonsense
        assert_true(admission_guard(&odd) == odd.memory_bytes / 2);
}

static void test_sandbox(void **state) {
        static const struct {
                uint64_t memory, pids;
                unsigned live;
                const char *refused; // by which limit
        } cases[] = {
                {256 << 20, 512, 0, NULL},   {256 << 20, 512, 63, NULL}, {256 << 20, 512, 64, "memory"}, {LIMIT_UNSET, LIMIT_UNSET, 100000, NULL},
                {LIMIT_UNSET, 400, 99, NULL}, {LIMIT_UNSET, 400, 100, "pids"}, {3 << 20, LIMIT_UNSET, 0, "memory"},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                Error err = ERROR_NULL;
                Limits limits;
                limits_init(&limits);
                limits.value[LIMIT_MEMORY] = cases[i].memory;
                limits.value[LIMIT_PIDS] = cases[i].pids;
                int r = admission_check_sandbox(&limits, "agent1", cases[i].live, &err);
                if ((r < 0) != (cases[i].refused != NULL) || (r < 0 && (err.code != ERR_QUOTA || strncmp(err.message, cases[i].refused, strlen(cases[i].refused)) != 0 || !strstr(err.message, "agent1"))))
                        fail_msg("%zu: %s", i, err.message ? err.message : "admitted");
                error_done(&err);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sandbox), cmocka_unit_test(test_check), cmocka_unit_test(test_check_other_use), cmocka_unit_test(test_check_extremes),
                cmocka_unit_test(test_carve), cmocka_unit_test(test_carve_bad),
                cmocka_unit_test(test_guard),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
