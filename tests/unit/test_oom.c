// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "quotas/oom.h"

#define KILLED "3,900,1234,-;Memory cgroup out of memory: Killed process "

static void test_parse(void **state) {
        static const struct {
                const char *record;
                pid_t pid; // 0: not a kill
                const char *comm;
        } cases[] = {
                {KILLED "42 (python3) total-vm:266240kB, anon-rss:64kB\n", 42, "python3"},
                {KILLED "42 (python3) total-vm:266240kB\n SUBSYSTEM=x\n", 42, "python3"},
                {KILLED "7 (a) total-vm) total-vm:1kB\n", 7, "a) total-vm"},
                {KILLED "7 (\\x1b[31mred) total-vm:1kB\n", 7, "\\x1b[31mred"},
                {KILLED "7 (\033[31mred) total-vm:1kB\n", 7, "\\x1b[31mred"},
                {KILLED "7 () total-vm:1kB\n", 7, ""},
                {"11,900,1234,-;Memory cgroup out of memory: Killed process 42 (x) total-vm:1kB\n", 0, NULL}, // not the kernel's
                {"x,900,1234,-;Memory cgroup out of memory: Killed process 42 (x) total-vm:1kB\n", 0, NULL},
                {"3,900,1234,-;Out of memory: Killed process 42 (x) total-vm:1kB\n", 0, NULL}, // the whole host's
                {"3,900,1234,-; Memory cgroup out of memory: Killed process 42 (x) total-vm:1kB\n", 0, NULL},
                {KILLED "0 (x) total-vm:1kB\n", 0, NULL},
                {KILLED "-1 (x) total-vm:1kB\n", 0, NULL},
                {KILLED "99999999999999999999 (x) total-vm:1kB\n", 0, NULL},
                {KILLED "42 (x\n", 0, NULL},
                {KILLED "42", 0, NULL},
                {"3,900,1234,-;", 0, NULL},
                {"", 0, NULL},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                OomVictim victim = {0};
                int r = oom_parse(cases[i].record, strlen(cases[i].record), &victim);
                assert_int_equal(r, cases[i].pid ? 0 : -ENOMSG);
                assert_int_equal(victim.pid, cases[i].pid);
                if (cases[i].pid)
                        assert_string_equal(victim.comm, cases[i].comm);
        }
}

static void test_cgroup(void **state) {
        static const char line[] = "6,899,1234,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
                                   "oom_memcg=/hostd/i1-g1/box,task_memcg=/hostd/i1-g1/box/payload,task=a,task_memcg=/x,pid=42,uid=0\n";
        OomVictim victim = {0};

        assert_int_equal(oom_parse(line, sizeof(line) - 1, &victim), -ENOMSG);
        assert_string_equal(victim.cgroup, "/hostd/i1-g1/box/payload");
        assert_int_equal(oom_parse(KILLED "42 (a) total-vm:1kB", sizeof(KILLED "42 (a) total-vm:1kB") - 1, &victim), 0);
        assert_string_equal(victim.cgroup, "/hostd/i1-g1/box/payload");
        assert_int_equal(victim.pid, 42);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse), cmocka_unit_test(test_cgroup)};
        return cmocka_run_group_tests(tests, NULL, NULL);
}
