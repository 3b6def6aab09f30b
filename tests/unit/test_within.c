// SPDX-License-Identifier: GPL-2.0-or-later
// Within: a sandbox's list inside its instance's. Whatever is asked, nothing is allowed that either of the two denies, and nothing denied
// that both allow.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/strv.h"
#include "network/compile.h"
#include "network/network_sandbox.h"

static void add(Policy *policy, const PolicyRule *from) {
        PolicyRule rule = *from;
        _cleanup_error_ Error err = ERROR_NULL;

        rule.to = strdup(from->to);
        rule.ports = from->ports ? strdup(from->ports) : NULL;
        rule.methods = strv_copy(from->methods);
        rule.paths = strv_copy(from->paths);
        if (policy_add(policy, &rule, &err) < 0)
                fail_msg("%s: %s", from->to, error_message(&err, 0));
}

static Compiled *compile(const char *name, const PolicyRule *rules, size_t n) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        Compiled *compiled = NULL;

        assert_int_equal(policy_new(name, &policy), 0);
        for (size_t i = 0; i < n; i++)
                add(policy, &rules[i]);
        if (compiled_new(&policy, 1, &compiled, &err) < 0)
                fail_msg("%s", error_message(&err, 0));
        return compiled;
}

static char *get_only[] = {"GET", NULL};
static char *api_only[] = {"/api", NULL};

// ---- table

static const PolicyRule inner_rules[] = {
        {.action = POLICY_DENY, .to = "evil.example.org"},
        {.action = POLICY_ALLOW, .to = "*.example.org", .protocol = POLICY_TCP, .ports = "22,443"},
        {.action = POLICY_ALLOW, .to = "93.1.0.0/16", .protocol = POLICY_TCP, .ports = "1-1000"},
        {.action = POLICY_ALLOW, .to = "10.1.0.0/16"},
        {.action = POLICY_ALLOW, .to = "api.example.net", .ports = "80", .methods = get_only},
};
static const PolicyRule outer_rules[] = {
        {.action = POLICY_DENY, .to = "93.1.7.0/24"},
        {.action = POLICY_DENY, .to = "bad.example.org"},
        {.action = POLICY_ALLOW, .to = "*.example.org"},
        {.action = POLICY_ALLOW, .to = "93.1.0.0/16", .protocol = POLICY_TCP, .ports = "500-2000"},
        {.action = POLICY_ALLOW, .to = "10.0.0.0/8", .protocol = POLICY_UDP},
        {.action = POLICY_ALLOW, .to = "api.example.net", .ports = "80", .paths = api_only},
};

typedef struct Case {
        const char *name, *address;
        PolicyProtocol protocol;
        uint16_t port;
        const char *method, *path, *text;
} Case;

static const Case cases[] = {
        {"www.example.org", NULL, POLICY_TCP, 443, NULL, NULL, "allowed by rule 2 of policy box: *.example.org tcp 22,443"},
        {"www.example.org", NULL, POLICY_TCP, 22, NULL, NULL, "denied: no rule of its instance allows it"},
        {"evil.example.org", NULL, POLICY_TCP, 443, NULL, NULL, "denied by rule 1 of policy box: evil.example.org any"},
        {"bad.example.org", NULL, POLICY_TCP, 443, NULL, NULL, "denied by rule 2 of policy own of its instance: bad.example.org any"},
        {"www.example.com", NULL, POLICY_TCP, 443, NULL, NULL, "denied: no rule allows it"},
        {NULL, "93.1.2.3", POLICY_TCP, 600, NULL, NULL, "allowed by rule 3 of policy box: 93.1.0.0/16 tcp 1-1000"},
        {NULL, "93.1.2.3", POLICY_TCP, 400, NULL, NULL, "denied: no rule of its instance allows it"},
        {NULL, "93.1.2.3", POLICY_TCP, 1500, NULL, NULL, "denied: no rule allows it"},
        {NULL, "93.1.7.3", POLICY_TCP, 600, NULL, NULL, "denied by rule 1 of policy own of its instance: 93.1.7.0/24 any"},
        {NULL, "10.1.2.3", POLICY_UDP, 53, NULL, NULL, "allowed by rule 4 of policy box: 10.1.0.0/16 any"},
        {NULL, "10.1.2.3", POLICY_TCP, 53, NULL, NULL, "denied: no rule of its instance allows it"},
        {"api.example.net", NULL, POLICY_TCP, 80, "GET", "/api/x", "allowed by rule 5 of policy box: api.example.net tcp 80"},
        {"api.example.net", NULL, POLICY_TCP, 80, "POST", "/api/x", "denied: no rule allows it"},
        {"api.example.net", NULL, POLICY_TCP, 80, "GET", "/other", "denied: no rule of its instance allows it"},
        // may it be resolved?
        {"www.example.org", NULL, POLICY_ANY, 0, NULL, NULL, "allowed by rule 2 of policy box: *.example.org tcp 22,443"},
        {"evil.example.org", NULL, POLICY_ANY, 0, NULL, NULL, "denied by rule 1 of policy box: evil.example.org any"},
        {"bad.example.org", NULL, POLICY_ANY, 0, NULL, NULL, "denied by rule 2 of policy own of its instance: bad.example.org any"},
};

static void test_table(void **state) {
        _cleanup_(compiled_freep) Compiled *inner = compile("box", inner_rules, ELEMENTS(inner_rules)), *outer = compile("own", outer_rules, ELEMENTS(outer_rules));
        char text[256];

        compiled_set_within(inner, outer);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Cidr address;
                PolicyQuestion question = {.name = cases[i].name, .protocol = cases[i].protocol, .port = cases[i].port, .method = cases[i].method, .path = cases[i].path};
                PolicyDecision decision;
                if (cases[i].address) {
                        assert_int_equal(cidr_parse(cases[i].address, &address), 0);
                        question.address = &address;
                }
                decision = policy_decide(inner, &question);
                assert_string_equal(policy_decision_text(inner, &decision, text, sizeof(text)), cases[i].text);
                assert_int_equal(decision.action == POLICY_ALLOW, strncmp(text, "allowed", 7) == 0);
                assert_true(decision.of == (strstr(text, "its instance") ? outer : inner));
                assert_int_equal(decision.action == POLICY_ALLOW, decision.outer != NULL);
        }
}

// Without one around there is no difference, and one that goes takes its bound with it; what is around lives as long as its last owner.
static void test_set(void **state) {
        _cleanup_(compiled_freep) Compiled *inner = compile("box", inner_rules, ELEMENTS(inner_rules));
        Compiled *outer = compile("own", outer_rules, ELEMENTS(outer_rules)), *none = compile("none", NULL, 0);
        PolicyQuestion question = {.name = "bad.example.org", .protocol = POLICY_TCP, .port = 443};

        assert_int_equal(policy_decide(inner, &question).action, POLICY_ALLOW);
        compiled_set_within(inner, outer);
        compiled_free(outer);
        assert_int_equal(policy_decide(inner, &question).action, POLICY_DENY);
        question.name = "www.example.org";
        assert_int_equal(policy_decide(inner, &question).action, POLICY_ALLOW);
        compiled_set_within(inner, none);
        compiled_free(none);
        assert_int_equal(policy_decide(inner, &question).action, POLICY_DENY);
        compiled_set_within(inner, NULL);
        assert_int_equal(policy_decide(inner, &question).action, POLICY_ALLOW);
}

// A private address in an answer must be named by both.
static void test_may_answer(void **state) {
        static const PolicyRule narrow[] = {{.action = POLICY_ALLOW, .to = "10.1.2.0/24"}};
        _cleanup_(compiled_freep) Compiled *inner = compile("box", inner_rules, ELEMENTS(inner_rules)), *outer = compile("own", narrow, 1);
        static const struct { const char *address; bool may; } answers[] = {{"93.1.1.1", true}, {"10.1.2.3", true}, {"10.1.3.3", false}, {"10.2.0.1", false}, {"192.168.0.1", false}};

        compiled_set_within(inner, outer);
        for (size_t i = 0; i < ELEMENTS(answers); i++) {
                Cidr address;
                assert_int_equal(cidr_parse(answers[i].address, &address), 0);
                assert_int_equal(policy_may_answer(inner, &address), answers[i].may);
        }
}

// The end of a grant to the instance is one of what its sandboxes may, too.
static void test_next_end(void **state) {
        static const PolicyRule grant[] = {{.action = POLICY_ALLOW, .to = "93.1.0.0/16", .until = 5000}};
        _cleanup_(compiled_freep) Compiled *inner = compile("box", inner_rules, ELEMENTS(inner_rules)), *outer = compile("own", grant, 1);

        assert_true(compiled_next_end(inner, 1000) == UINT64_MAX);
        compiled_set_within(inner, outer);
        assert_int_equal(compiled_next_end(inner, 1000), 5000);
        assert_true(compiled_next_end(inner, 5000) == UINT64_MAX);
}

// ---- property: random lists and questions from a small world, so that they meet often

static uint32_t seed;

static unsigned dice(unsigned sides) {
        seed = seed * 1664525 + 1013904223;
        return (seed >> 8) % sides;
}

static const char *const names[] = {"a.example.org", "b.example.org", "c.b.example.org", "example.org", "a.example.net", "b.example.net"};
static const char *const targets[] = {"a.example.org", "b.example.org", "*.example.org", "*.b.example.org", "a.example.net", "*", "0.0.0.0/0", "93.0.0.0/8", "93.1.0.0/16", "93.1.1.0/24",
                                      "93.1.1.1/32", "10.0.0.0/8", "10.1.0.0/16", "::/0", "2a00:1::/32", "fd00::/8"};
static const char *const addresses[] = {"93.1.1.1", "93.1.1.2", "93.1.2.1", "93.2.0.1", "10.1.0.1", "10.2.0.1", "8.8.8.8", "2a00:1::1", "2a00:2::1", "fd00::1"};
static const char *const port_lists[] = {NULL, "443", "80", "22", "25", "1-1024", "22,443"};
static const uint16_t ports[] = {22, 25, 80, 443, 444, 2000};

static PolicyRule random_rule(void) {
        PolicyRule rule = {.action = dice(3) ? POLICY_ALLOW : POLICY_DENY, .to = (char *) targets[dice(ELEMENTS(targets))], .ports = (char *) port_lists[dice(ELEMENTS(port_lists))]};
        bool name = policy_target(rule.to) != POLICY_TO_CIDR;

        rule.protocol = rule.ports ? (dice(3) ? POLICY_TCP : POLICY_UDP) : name ? POLICY_ANY : (PolicyProtocol) dice(_POLICY_PROTOCOL_MAX);
        if (name && rule.ports && rule.protocol == POLICY_TCP && (strcmp(rule.ports, "443") == 0 || strcmp(rule.ports, "80") == 0)) {
                rule.methods = dice(2) ? get_only : NULL;
                rule.paths = dice(2) ? api_only : NULL;
        }
        if (name && rule.ports && (strchr(rule.ports, '-') || rule.protocol == POLICY_UDP)) // more than a name may open
                rule.ports = (char *) "22";
        return rule;
}

static Compiled *random_list(const char *name) {
        PolicyRule rules[8];
        size_t n = dice(ELEMENTS(rules) + 1);

        for (size_t i = 0; i < n; i++)
                rules[i] = random_rule();
        return compile(name, rules, n);
}

static void test_property(void **state) {
        unsigned n_allowed = 0, n_denied = 0, n_inner = 0, n_outer = 0;

        for (seed = 1; n_allowed + n_denied < 200000;) {
                _cleanup_(compiled_freep) Compiled *inner = random_list("box"), *alone = compiled_share(inner), *outer = random_list("own");
                for (unsigned i = 0; i < 50; i++) {
                        Cidr address;
                        PolicyQuestion q = {.name = dice(2) ? names[dice(ELEMENTS(names))] : NULL, .protocol = (PolicyProtocol) dice(_POLICY_PROTOCOL_MAX), .port = ports[dice(ELEMENTS(ports))],
                                            .method = dice(2) ? "GET" : NULL, .path = dice(2) ? "/api/v1" : dice(2) ? "/%61pi" : NULL};
                        PolicyDecision a, b, both;
                        if (dice(2) || !q.name) {
                                assert_int_equal(cidr_parse(addresses[dice(ELEMENTS(addresses))], &address), 0);
                                q.address = &address;
                        }
                        if (q.name && !dice(4))
                                q = (PolicyQuestion) {.name = q.name};
                        compiled_set_within(alone, NULL);
                        a = policy_decide(alone, &q);
                        b = policy_decide(outer, &q);
                        compiled_set_within(inner, outer);
                        both = policy_decide(inner, &q);
                        assert_int_equal(both.action == POLICY_ALLOW, a.action == POLICY_ALLOW && b.action == POLICY_ALLOW);
                        if (both.action == POLICY_ALLOW)
                                assert_true(both.rule == a.rule && both.outer == b.rule && both.of == inner);
                        else
                                assert_true(both.rule == (a.action == POLICY_DENY ? a.rule : b.rule));
                        n_inner += a.action == POLICY_DENY && b.action == POLICY_ALLOW;
                        n_outer += a.action == POLICY_ALLOW && b.action == POLICY_DENY;
                        n_allowed += both.action == POLICY_ALLOW;
                        n_denied += both.action == POLICY_DENY;
                }
        }
        assert_true(n_allowed > 5000 && n_inner > 5000 && n_outer > 5000); // the world is one in which something can be wrong
}

// ---- numbers and addresses

static void test_address(void **state) {
        NetworkSettings settings = {.ipv4_prefix = 16, .ipv6_prefix = 64};
        NetworkAddress slot, sandbox, last;
        char text[INET6_ADDRSTRLEN];

        (void) inet_pton(AF_INET, "10.209.0.0", &settings.ipv4_pool);
        (void) inet_pton(AF_INET6, "fd68:6f73:7464::", &settings.ipv6_pool);
        network_address(&settings, 1, &slot);
        network_sandbox_address(&settings, NETWORK_SANDBOX_FIRST + 1, NETWORK_PROFILE_FIRST, &sandbox);
        network_sandbox_address(&settings, NETWORK_SANDBOX_LAST, NETWORK_PROFILE_LAST, &last);
        assert_string_equal(slot.host_ifname, "hv0001");
        assert_string_equal(sandbox.host_ifname, "hvs0800x1001");
        assert_string_equal(last.host_ifname, "hvs0fffx1fff");
        assert_string_equal(inet_ntop(AF_INET, &sandbox.ipv4, text, sizeof(text)), "10.209.16.1");
        assert_string_equal(inet_ntop(AF_INET6, &sandbox.ipv6, text, sizeof(text)), "fd68:6f73:7464::1001");
        assert_memory_not_equal(slot.mac, sandbox.mac, sizeof(slot.mac));
        assert_true(network_is_sandbox(NETWORK_SANDBOX_LAST) && !network_is_sandbox(NETWORK_PROFILE_LAST) && !network_is_sandbox(1));
        assert_true(network_is_profile(NETWORK_PROFILE_FIRST) && !network_is_profile(NETWORK_SANDBOX_FIRST) && !network_is_profile(1));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table), cmocka_unit_test(test_set), cmocka_unit_test(test_may_answer), cmocka_unit_test(test_next_end),
                cmocka_unit_test(test_property), cmocka_unit_test(test_address),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
