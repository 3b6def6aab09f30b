// SPDX-License-Identifier: GPL-2.0-or-later
// Halt: the signal depends on what init shows in /proc, and blind attempts take turns.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/io.h"
#include "instance/supervisor.h"

static const struct {
        const char *status;
        unsigned attempt;
        int expected;
} cases[] = {
        {"Name:\tsystemd\nSigBlk:\t7fe3c0fe28014a03\nSigCgt:\t0\n", 0, HALT_SIGNAL_SYSTEMD}, // as systemd 252 shows it
        {"Name:\tx\nSigBlk:\t0000001000000000\nSigCgt:\t0\n", 5, HALT_SIGNAL_SYSTEMD},
        {"Name:\tx\nSigBlk:\t0\nSigCgt:\t0000001000000000\n", 0, HALT_SIGNAL_SYSTEMD},
        {"Name:\tsystemd\nSigBlk:\t0000000000000000\nSigCgt:\t0000000000000000\n", 0, SIGUSR2},
        {"Name:\tinit\nSigBlk:\t0\nSigCgt:\t80000\n", 1, SIGPWR},
        {"Name:\tinit\nSigBlk:\t0\nSigCgt:\t80000\n", 2, SIGUSR2},
        {"Name:\tSigBlk:\t0000001000000000\nSigBlk:\t0\n", 0, SIGUSR2}, // a name that looks like a field
        {"", 0, SIGUSR2},
};

static void test_signals(void **state) {
        char dir[] = "/tmp/test_halt.XXXXXX", path[64];

        assert_non_null(mkdtemp(dir));
        (void) snprintf(path, sizeof(path), "%s/7", dir);
        assert_int_equal(mkdir(path, 0700), 0);
        (void) snprintf(path, sizeof(path), "%s/7/status", dir);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                assert_int_equal(io_write_atomic(AT_FDCWD, path, cases[i].status, strlen(cases[i].status), 0600), 0);
                assert_int_equal(halt_signal(dir, 7, cases[i].attempt), cases[i].expected);
        }
        assert_int_equal(halt_signal(dir, 8, 0), 0);
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_signals)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
