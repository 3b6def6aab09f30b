// SPDX-License-Identifier: GPL-2.0-or-later
// Policies: checks, tables, and what explain says about ranges that a broad rule must not open.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>

#include "base/strv.h"
#include "network/compile.h"

static int add(Policy *policy, const char *text, Error *err) {
        _cleanup_strv_ char **f = NULL;
        PolicyRule rule = {0};
        int r;

        assert_int_equal(strv_split(text, " ", &f), 0);
        rule.action = policy_action_from_string(f[0]);
        rule.to = strdup(f[1]);
        rule.protocol = policy_protocol_from_string(f[2]);
        rule.ports = strcmp(f[3], "-") == 0 ? NULL : strdup(f[3]);
        r = policy_add(policy, &rule, err);
        policy_rule_done(&rule);
        return r;
}

static void test_tables(void **state) {
        for (int i = 0; i < _POLICY_ACTION_MAX; i++)
                assert_int_equal(policy_action_from_string(policy_action_to_string(i)), i);
        for (int i = 0; i < _POLICY_PROTOCOL_MAX; i++)
                assert_int_equal(policy_protocol_from_string(policy_protocol_to_string(i)), i);
        assert_int_equal(policy_action_from_string("permit"), _POLICY_ACTION_INVALID);
        assert_int_equal(policy_protocol_from_string(NULL), _POLICY_PROTOCOL_INVALID);
        assert_null(policy_action_to_string(_POLICY_ACTION_MAX));
}

static void test_bad_rules(void **state) {
        static const struct { const char *rule, *field; } cases[] = {
                {"allow 10.0.0.1/8 tcp 80", "rules[0].to"},      {"allow 10.0.0.0/33 tcp 80", "rules[0].to"},
                {"allow example.com tcp 80", "rules[0].to"},     {"allow fd00::1/64 tcp 80", "rules[0].to"},
                {"allow 10.0.0.0/8\n any -", "rules[0].to"},     {"allow 10.0.0.0/8;accept any -", "rules[0].to"},
                {"allow 10.0.0.0/8 any 80", "rules[0].ports"},   {"allow 10.0.0.0/8 icmp 8", "rules[0].ports"},
                {"allow 10.0.0.0/8 tcp 0", "rules[0].ports"},    {"allow 10.0.0.0/8 tcp 80-", "rules[0].ports"},
                {"allow 10.0.0.0/8 tcp 90-80", "rules[0].ports"}, {"allow 10.0.0.0/8 tcp 65536", "rules[0].ports"},
                {"permit 10.0.0.0/8 tcp 80", "rules[0].action"}, {"allow 10.0.0.0/8 sctp -", "rules[0].protocol"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                assert_int_equal(policy_new("p", &policy), 0);
                assert_int_equal(add(policy, cases[i].rule, &err), -EINVAL);
                assert_string_equal(err.field, cases[i].field);
                assert_int_equal(policy->n_rules, 0);
        }
}

static void test_explain(void **state) {
        static const struct { const char *rules[4], *address; PolicyProtocol protocol; uint16_t port; PolicyAction action; int rule; } cases[] = {
                {{NULL}, "1.1.1.1", POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 any -"}, "1.1.1.1", POLICY_TCP, 80, POLICY_ALLOW, 0},
                {{"allow 0.0.0.0/0 any -"}, "2a00::1", POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 any -"}, "10.0.0.1", POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 any -"}, "169.254.169.254", POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 any -"}, "100.64.0.1", POLICY_UDP, 53, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 any -"}, "255.255.255.255", POLICY_UDP, 67, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 any -"}, "1.1.1.1", POLICY_TCP, 25, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 any -"}, "1.1.1.1", POLICY_UDP, 25, POLICY_ALLOW, 0},
                {{"allow 0.0.0.0/0 tcp 1-1024"}, "1.1.1.1", POLICY_TCP, 25, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 tcp 24-26,25"}, "1.1.1.1", POLICY_TCP, 25, POLICY_ALLOW, 0},
                {{"allow 8.0.0.0/5 any -"}, "10.0.0.1", POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow 10.0.0.0/8 any -"}, "10.0.0.1", POLICY_TCP, 80, POLICY_ALLOW, 0},
                {{"allow 169.254.169.254/32 tcp 80"}, "169.254.169.254", POLICY_TCP, 80, POLICY_ALLOW, 0},
                {{"allow ::/0 any -"}, "fd00::1", POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow ::/0 any -"}, "::ffff:10.0.0.1", POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow ::/0 any -"}, "64:ff9b::a00:1", POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow ::/0 any -"}, "2a00::1", POLICY_ICMP, 0, POLICY_ALLOW, 0},
                {{"deny 1.1.1.0/24 any -", "allow 1.0.0.0/8 tcp -"}, "1.1.1.1", POLICY_TCP, 80, POLICY_DENY, 0},
                {{"allow 1.0.0.0/8 tcp -", "deny 1.1.1.0/24 any -"}, "1.1.1.1", POLICY_TCP, 80, POLICY_ALLOW, 0},
                {{"allow 0.0.0.0/0 any -", "allow 10.1.0.0/16 tcp 80"}, "10.1.2.3", POLICY_TCP, 80, POLICY_ALLOW, 1},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                PolicyProbe probe = {cases[i].address, cases[i].protocol, cases[i].port};
                PolicyAction action;
                int rule;
                assert_int_equal(policy_new("p", &policy), 0);
                for (size_t k = 0; k < 4 && cases[i].rules[k]; k++)
                        assert_int_equal(add(policy, cases[i].rules[k], &err), 0);
                assert_int_equal(policy_explain(&policy, 1, &probe, &action, &rule, &err), 0);
                if (action != cases[i].action || rule != cases[i].rule)
                        fail_msg("case %zu: %d %d", i, action, rule);
        }
}

static void test_denied_table(void **state) {
        static const int families[] = {AF_INET, AF_INET6};

        for (size_t f = 0; f < 2; f++) {
                Cidr before = {0}, range;
                for (const char *const *p = denied_ranges(families[f]); *p; p++) {
                        assert_int_equal(cidr_parse(*p, &range), 0);
                        assert_int_equal(range.family, families[f]);
                        assert_true(range.prefix > 0);
                        if (before.family) { // sorted and disjoint: the kernel's interval set needs both
                                assert_true(memcmp(before.bytes, range.bytes, 16) < 0);
                                assert_false(cidr_contains(&before, &range));
                        }
                        before = range;
                }
        }
}

static void test_digest(void **state) {
        _cleanup_(policy_freep) Policy *a = NULL, *b = NULL;
        _cleanup_(compiled_freep) Compiled *ca = NULL, *cb = NULL;

        assert_int_equal(policy_new("a", &a), 0);
        assert_int_equal(policy_new("b", &b), 0);
        assert_int_equal(add(a, "allow 1.0.0.0/8 tcp 80,81", NULL), 0);
        assert_int_equal(add(a, "allow 2.0.0.0/8 tcp -", NULL), 0);
        assert_int_equal(add(b, "allow 1.0.0.0/8 tcp 80-81", NULL), 0);
        assert_int_equal(add(b, "deny 2.1.0.0/16 tcp -", NULL), 0);
        assert_int_equal(add(b, "allow 2.0.0.0/8 tcp -", NULL), 0);
        assert_false(policy_equal(a, b));
        assert_true(policy_equal(a, a));
        assert_int_equal(compiled_new(&a, 1, &ca, NULL), 0);
        assert_int_equal(compiled_new(&b, 1, &cb, NULL), 0);
        assert_string_equal(ca->rules[0].digest, cb->rules[0].digest);     // equal effect
        assert_string_not_equal(ca->rules[1].digest, cb->rules[2].digest); // a denial came in front
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_tables),       cmocka_unit_test(test_bad_rules), cmocka_unit_test(test_explain),
                cmocka_unit_test(test_denied_table), cmocka_unit_test(test_digest),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
