// SPDX-License-Identifier: GPL-2.0-or-later
// Confine: only the profile that was asked for, in enforce mode, and only with a filter.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "instance/confine.h"

#define FILTERED "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"

static const struct {
        const char *status, *label, *profile;
        bool good;
} cases[] = {
        {FILTERED, "hostd-instance (enforce)\n", "hostd-instance", true},
        {FILTERED, "hostd-instance (enforce)", "hostd-instance", true},
        {FILTERED, NULL, NULL, true}, // a kernel without AppArmor
        {FILTERED, NULL, "hostd-instance", false},
        {FILTERED, "unconfined\n", "hostd-instance", false},
        {FILTERED, "", "hostd-instance", false},
        {FILTERED, "hostd-instance (complain)\n", "hostd-instance", false},
        {FILTERED, "hostd-instance (kill)\n", "hostd-instance", false},
        {FILTERED, "hostd-instance (unconfined)\n", "hostd-instance", false},
        {FILTERED, "hostd-instance", "hostd-instance", false},
        {FILTERED, "hostd-instance2 (enforce)\n", "hostd-instance", false},
        {FILTERED, "hostd-instance//child (enforce)\n", "hostd-instance", false},
        {FILTERED, "hostd-instance//&:box:unconfined (mixed)\n", "hostd-instance", false},
        {FILTERED, "unconfined//&hostd-instance (enforce)\n", "hostd-instance", false},
        {FILTERED, "hostd-instance (enforce) x\n", "hostd-instance", false},
        {"Name:\tx\nSeccomp:\t0\n", "hostd-instance (enforce)\n", "hostd-instance", false},
        {"Name:\tSeccomp:\t2\nSeccomp:\t0\n", NULL, NULL, false}, // a name that looks like a field
        {"Name:\tx\nSeccomp:\t1\n", NULL, NULL, false},
        {"", NULL, NULL, false},
};

static void test_verify(void **state) {
        char dir[] = "/tmp/test_confine.XXXXXX", path[64], label[64];

        assert_non_null(mkdtemp(dir));
        (void) snprintf(path, sizeof(path), "%s/7", dir);
        assert_int_equal(mkdir(path, 0700), 0);
        (void) snprintf(path, sizeof(path), "%s/7/attr", dir);
        assert_int_equal(mkdir(path, 0700), 0);
        (void) snprintf(path, sizeof(path), "%s/7/status", dir);
        (void) snprintf(label, sizeof(label), "%s/7/attr/current", dir);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                (void) unlink(label);
                assert_int_equal(io_write_atomic(AT_FDCWD, path, cases[i].status, strlen(cases[i].status), 0600), 0);
                if (cases[i].label)
                        assert_int_equal(io_write_atomic(AT_FDCWD, label, cases[i].label, strlen(cases[i].label), 0600), 0);
                int r = confine_verify(dir, 7, cases[i].profile, "init", &err);
                if (cases[i].good != (r == 0))
                        fail_msg("case %zu: %d", i, r);
                assert_true(r == 0 || strstr(error_message(&err, r), "init"));
        }
        _cleanup_error_ Error err = ERROR_NULL;
        assert_true(confine_verify(dir, 8, NULL, "init", &err) < 0);
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
}

// The label comes a moment after the exec that was seen.
static void test_await(void **state) {
        char dir[] = "/tmp/test_confine.XXXXXX", path[64], label[64];
        _cleanup_error_ Error err = ERROR_NULL;

        assert_non_null(mkdtemp(dir));
        (void) snprintf(path, sizeof(path), "%s/7", dir);
        assert_int_equal(mkdir(path, 0700), 0);
        (void) snprintf(path, sizeof(path), "%s/7/attr", dir);
        assert_int_equal(mkdir(path, 0700), 0);
        (void) snprintf(path, sizeof(path), "%s/7/status", dir);
        (void) snprintf(label, sizeof(label), "%s/7/attr/current", dir);
        assert_int_equal(io_write_atomic(AT_FDCWD, path, FILTERED, strlen(FILTERED), 0600), 0);
        assert_int_equal(io_write_atomic(AT_FDCWD, label, "unconfined\n", 11, 0600), 0);
        assert_true(confine_await(dir, 7, "hostd-instance", "init", &err) < 0);
        pid_t pid = fork();
        if (pid == 0) {
                (void) usleep(50000);
                _exit(io_write_atomic(AT_FDCWD, label, "hostd-instance (enforce)\n", 25, 0600) < 0);
        }
        assert_int_equal(confine_await(dir, 7, "hostd-instance", "init", NULL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_verify), cmocka_unit_test(test_await)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
