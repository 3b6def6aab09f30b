// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "quotas/limit.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

static void test_table(void **state) {
        for (int i = 0; i < _LIMIT_MAX; i++) {
                const LimitRow *row = limit_row(i);
                assert_non_null(row->key);
                assert_non_null(row->name);
                assert_non_null(row->doc);
                assert_int_equal(limit_from_key(row->key), i);
                assert_true(row->min <= row->max);
                assert_int_equal(row->where == LIMIT_WHERE_CGROUP, row->v2_file != NULL);
                assert_int_equal(row->v2_controller != NULL, row->v2_file != NULL);
                assert_int_equal(row->v1_controller != NULL, row->v1_file != NULL);
                assert_true(!row->v1_file || row->v2_file);
        }
        assert_null(limit_row(_LIMIT_MAX));
        assert_null(limit_row(_LIMIT_INVALID));
        assert_int_equal(limit_from_key("nonsense"), _LIMIT_INVALID);
        assert_int_equal(limit_from_key(NULL), _LIMIT_INVALID);
}

static void test_parse_good(void **state) {
        static const struct {
                LimitId id;
                const char *text;
                uint64_t value;
                const char *shown;
        } cases[] = {
                {LIMIT_CPU, "2.5", 2500, "2.5"},
                {LIMIT_CPU, "2", 2000, "2"},
                {LIMIT_CPU, "0.01", 10, "0.01"},
                {LIMIT_CPU, "0.125", 125, "0.125"},
                {LIMIT_CPU, "1.050", 1050, "1.05"},
                {LIMIT_CPU, "8192", 8192000, "8192"},
                {LIMIT_CPU, "max", LIMIT_UNSET, "max"},
                {LIMIT_CPU_WEIGHT, "100", 100, "100"},
                {LIMIT_MEMORY, "8GiB", 8 * GIB, "8GiB"},
                {LIMIT_MEMORY, "1536M", 1536 * MIB, "1536MiB"},
                {LIMIT_MEMORY, "max", LIMIT_UNSET, "max"},
                {LIMIT_SWAP, "0", 0, "0B"},
                {LIMIT_PIDS, "4096", 4096, "4096"},
                {LIMIT_IO_READ, "100MiB", 100 * MIB, "100MiB/s"},
                {LIMIT_IO_WRITE, "100MiB/s", 100 * MIB, "100MiB/s"},
                {LIMIT_UPLOAD, "100Mbit", 12500000, "12500000B/s"},
                {LIMIT_DOWNLOAD, "1MiB", 1048576, "1MiB/s"},
                {LIMIT_TRAFFIC, "10GiB", 10737418240, "10GiB"},
                {LIMIT_CONNECTIONS, "1000", 1000, "1000"},
                {LIMIT_UPLOAD, "1Gbit/s", 125000000, "125000000B/s"},
                {LIMIT_UPLOAD, "80kbit", 10000, "10000B/s"},
                {LIMIT_DISK, "50GB", 50000000000ULL, "48828125KiB"},
                {LIMIT_OPEN_FILES, "1048576", 1048576, "1048576"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                _cleanup_free_ char *shown = NULL;
                Limits limits, again;

                limits_init(&limits);
                limits_init(&again);
                if (limit_parse(cases[i].id, cases[i].text, &limits, &err) != 0)
                        fail_msg("%s: %s", cases[i].text, err.message);
                assert_int_equal(limits.value[cases[i].id], cases[i].value);
                shown = limit_format(cases[i].id, &limits);
                assert_string_equal(shown, cases[i].shown);
                // What is shown can be typed in again.
                assert_int_equal(limit_parse(cases[i].id, shown, &again, NULL), 0);
                assert_int_equal(again.value[cases[i].id], cases[i].value);
        }
}

static void test_parse_bad(void **state) {
        static const struct {
                LimitId id;
                const char *text, *sentence;
        } cases[] = {
                {LIMIT_CPU, "2.5555",
                 "cpu \"2.5555\" is not valid: it must be a number of CPUs such as \"2.5\", with at most three decimals, or max"},
                {LIMIT_CPU, "2.", NULL},
                {LIMIT_CPU, ".5", NULL},
                {LIMIT_CPU, "1.-5", NULL},
                {LIMIT_CPU, "-1", NULL},
                {LIMIT_CPU, " 1", NULL},
                {LIMIT_CPU, "1e3", NULL},
                {LIMIT_CPU, "", NULL},
                {LIMIT_CPU, "0", "cpu 0 is out of range: it must be between 0.01 and 8192, or max"},
                {LIMIT_CPU, "0.009", NULL},
                {LIMIT_CPU, "99999999999999999999999999", "cpu \"99999999999999999999999999\" is too large"},
                {LIMIT_CPU, "18446744073709552", NULL},
                {LIMIT_CPU, "18446744073709551.615", "cpu \"18446744073709551.615\" is too large"}, // UINT64_MAX thousandths
                {LIMIT_MEMORY, "8 GiB", "memory \"8 GiB\" is not valid: it must be a size such as \"8GiB\", or max"},
                {LIMIT_MEMORY, "8gib", NULL},
                {LIMIT_MEMORY, "1MiB", "memory 1MiB is out of range: it must be between 32MiB and 64TiB, or max"},
                {LIMIT_MEMORY, "99999999999999999999", "memory \"99999999999999999999\" is too large"},
                {LIMIT_MEMORY, "8GiB\n", "memory \"8GiB\\x0a\" is not valid: it must be a size such as \"8GiB\", or max"},
                {LIMIT_MEMORY, "Max", NULL},
                {LIMIT_PIDS, "0x10", "pids \"0x10\" is not valid: it must be a whole number, or max"},
                {LIMIT_PIDS, "+5", NULL},
                {LIMIT_PIDS, "18446744073709551615", "pids \"18446744073709551615\" is too large"},
                {LIMIT_PIDS, "18446744073709551616", NULL},
                {LIMIT_CPU_WEIGHT, "0", NULL},
                {LIMIT_CPU_WEIGHT, "10001", NULL},
                {LIMIT_IO_READ, "100Mb", NULL},
                {LIMIT_UPLOAD, "Mbit", NULL},
                {LIMIT_UPLOAD, "/s", NULL},
                {LIMIT_UPLOAD, "99999999999999999999Gbit", NULL},
                {LIMIT_CPU_PIN, "0-", "cpu_pin \"0-\" is not valid: it must be a list of CPUs such as \"0-3,7\", or max"},
                {LIMIT_CPU_PIN, "3-1", NULL},
                {LIMIT_CPU_PIN, "8192", NULL},
                {LIMIT_CPU_PIN, "", NULL},
                {LIMIT_CPU_PIN, NULL, "cpu_pin is missing"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                Limits limits;

                limits_init(&limits);
                if (cases[i].id != LIMIT_CPU_PIN)
                        limits.value[cases[i].id] = 4242;
                if (limit_parse(cases[i].id, cases[i].text, &limits, &err) != -EINVAL)
                        fail_msg("%s was accepted", cases[i].text);
                assert_int_equal(err.code, ERR_INVALID);
                assert_string_equal(err.field, limit_row(cases[i].id)->key);
                if (cases[i].sentence)
                        assert_string_equal(err.message, cases[i].sentence);
                assert_null(limits.cpu_pin);
                if (cases[i].id != LIMIT_CPU_PIN)
                        assert_int_equal(limits.value[cases[i].id], 4242);
        }
}

static void test_cpuset(void **state) {
        static const struct {
                const char *text, *canonical;
        } cases[] = {
                {"0", "0"},       {"3,1,2", "1-3"},     {"0-3,7", "0-3,7"},   {"0,1", "0-1"},
                {"7,0-3", "0-3,7"}, {"0-8191", "0-8191"}, {"0-4,2-6", "0-6"}, {"00,01", "0-1"},
        };
        Limits limits;

        limits_init(&limits);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_free_ char *shown = NULL;
                assert_int_equal(limit_parse(LIMIT_CPU_PIN, cases[i].text, &limits, NULL), 0);
                shown = limit_format(LIMIT_CPU_PIN, &limits);
                assert_string_equal(shown, cases[i].canonical);
        }
        assert_int_equal(limit_parse(LIMIT_CPU_PIN, "max", &limits, NULL), 0);
        assert_null(limits.cpu_pin);
        limits_done(&limits);
}

static void test_copy(void **state) {
        Limits a, b;

        limits_init(&a);
        limits_init(&b);
        assert_int_equal(limit_parse(LIMIT_CPU_PIN, "0-1", &a, NULL), 0);
        assert_int_equal(limit_set(LIMIT_PIDS, 100, &a, NULL), 0);
        assert_int_equal(limits_copy(&b, &a), 0);
        assert_int_equal(limits_copy(&b, &a), 0);
        assert_int_equal(b.value[LIMIT_PIDS], 100);
        assert_string_equal(b.cpu_pin, "0-1");
        limits_done(&a);
        assert_string_equal(b.cpu_pin, "0-1");
        assert_int_equal(a.value[LIMIT_PIDS], LIMIT_UNSET);
        assert_int_equal(limits_copy(&b, &a), 0);
        assert_null(b.cpu_pin);
        limits_done(&b);
        limits_done(NULL);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table),  cmocka_unit_test(test_parse_good), cmocka_unit_test(test_parse_bad),
                cmocka_unit_test(test_cpuset), cmocka_unit_test(test_copy),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
