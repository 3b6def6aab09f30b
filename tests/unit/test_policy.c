// SPDX-License-Identifier: GPL-2.0-or-later
// Policies: checks, tables, and what explain says about ranges that a broad rule must not open.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
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
                {"allow example tcp 80", "rules[0].to"},     {"allow fd00::1/64 tcp 80", "rules[0].to"},
                {"allow 10.0.0.0/8\n any -", "rules[0].to"},     {"allow 10.0.0.0/8;accept any -", "rules[0].to"},
                {"allow 10.0.0.0/8 any 80", "rules[0].ports"},   {"allow 10.0.0.0/8 icmp 8", "rules[0].ports"},
                {"allow 10.0.0.0/8 tcp 0", "rules[0].ports"},    {"allow 10.0.0.0/8 tcp 80-", "rules[0].ports"},
                {"allow 10.0.0.0/8 tcp 90-80", "rules[0].ports"}, {"allow 10.0.0.0/8 tcp 65536", "rules[0].ports"},
                {"allow Example.org tcp 80", "rules[0].to"},     {"allow example.org. tcp 80", "rules[0].to"},
                {"allow *example.org tcp 80", "rules[0].to"},    {"allow *.com tcp 80", "rules[0].to"},
                {"allow *.co.uk tcp 80", "rules[0].to"},         {"deny *.com tcp 80", "rules[0].to"},
                {"allow a.*.example.org tcp 80", "rules[0].to"}, {"allow 1.2.3 tcp 80", "rules[0].to"},
                {"allow @ tcp 80", "rules[0].to"},               {"allow @We tcp 80", "rules[0].to"},
                {"allow example.org icmp -", "rules[0].protocol"}, {"allow example.org udp -", "rules[0].ports"},
                {"allow example.org udp 443", "rules[0].ports"}, {"allow example.org any 853", "rules[0].ports"},
                {"allow example.org tcp 50-60", "rules[0].ports"}, {"allow example.org tcp 1000-1016", "rules[0].ports"},
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
                PolicyProbe probe = {.address = cases[i].address, .protocol = cases[i].protocol, .port = cases[i].port};
                PolicyAnswer answer;
                assert_int_equal(policy_new("p", &policy), 0);
                for (size_t k = 0; k < 4 && cases[i].rules[k]; k++)
                        assert_int_equal(add(policy, cases[i].rules[k], &err), 0);
                assert_int_equal(policy_explain(&policy, 1, &probe, &answer, &err), 0);
                if (answer.action != cases[i].action || answer.index != cases[i].rule)
                        fail_msg("case %zu: %d %d", i, answer.action, answer.index);
        }
}

// By name: "NAME ADDRESS PROTOCOL PORT" with - for what is not known.
static void test_explain_names(void **state) {
        static const struct { const char *rules[4], *name, *address; PolicyProtocol protocol; uint16_t port; PolicyAction action; int rule; } cases[] = {
                {{"allow example.org any -"}, "example.org", NULL, POLICY_TCP, 443, POLICY_ALLOW, 0},
                {{"allow example.org any -"}, "EXAMPLE.org", NULL, POLICY_TCP, 443, POLICY_ALLOW, 0},
                {{"allow example.org any -"}, "example.org", NULL, POLICY_TCP, 80, POLICY_DENY, -1},
                {{"allow example.org any -"}, "example.org", NULL, POLICY_UDP, 443, POLICY_DENY, -1},
                {{"allow example.org any -"}, "a.example.org", NULL, POLICY_TCP, 443, POLICY_DENY, -1},
                {{"allow example.org any -"}, NULL, "1.1.1.1", POLICY_TCP, 443, POLICY_DENY, -1},
                {{"allow example.org any 80,8443"}, "example.org", NULL, POLICY_TCP, 8443, POLICY_ALLOW, 0},
                {{"allow example.org any 80,8443"}, "example.org", NULL, POLICY_TCP, 443, POLICY_DENY, -1},
                {{"allow *.example.org any -"}, "a.b.example.org", NULL, POLICY_TCP, 443, POLICY_ALLOW, 0},
                {{"allow *.example.org any -"}, "example.org", NULL, POLICY_TCP, 443, POLICY_DENY, -1},
                {{"allow *.example.org any -"}, "bad" "example.org", NULL, POLICY_TCP, 443, POLICY_DENY, -1},
                {{"allow * any -"}, "anything.example", NULL, POLICY_TCP, 443, POLICY_ALLOW, 0},
                {{"deny a.example.org any -", "allow *.example.org any -"}, "a.example.org", NULL, POLICY_TCP, 443, POLICY_DENY, 0},
                {{"allow *.example.org any -", "deny a.example.org any -"}, "a.example.org", NULL, POLICY_TCP, 443, POLICY_ALLOW, 0},
                {{"deny *.b.example.org any -", "allow * any -", "allow c.b.example.org any -"}, "c.b.example.org", NULL, POLICY_TCP, 443, POLICY_DENY, 0},
                // both address and name are known: the first rule of either kind
                {{"allow 1.0.0.0/8 tcp 443", "deny example.org any -"}, "example.org", "1.1.1.1", POLICY_TCP, 443, POLICY_ALLOW, 0},
                {{"deny example.org any -", "allow 1.0.0.0/8 tcp 443"}, "example.org", "1.1.1.1", POLICY_TCP, 443, POLICY_DENY, 0},
                {{"deny 1.0.0.0/8 any -", "allow example.org any -"}, "example.org", "1.1.1.1", POLICY_TCP, 443, POLICY_DENY, 0},
                {{"allow 1.0.0.0/8 tcp 443", "allow * any -"}, "example.org", "2.2.2.2", POLICY_TCP, 443, POLICY_ALLOW, 1},
                // may it be resolved?
                {{"allow example.org any 8443"}, "example.org", NULL, POLICY_ANY, 0, POLICY_ALLOW, 0},
                {{"allow example.org any 8443"}, "example.net", NULL, POLICY_ANY, 0, POLICY_DENY, -1},
                {{"allow 1.0.0.0/8 any -"}, "example.net", NULL, POLICY_ANY, 0, POLICY_DENY, -1},
                {{"allow 0.0.0.0/0 any -"}, "example.net", NULL, POLICY_ANY, 0, POLICY_ALLOW, 0},
                {{"deny example.org any -", "allow ::/0 any -"}, "example.org", NULL, POLICY_ANY, 0, POLICY_DENY, 0},
                {{"deny example.org tcp 80", "allow * any 80,443"}, "example.org", NULL, POLICY_ANY, 0, POLICY_ALLOW, 1},
                {{"deny example.org tcp 1-1024", "allow * any 80,443"}, "example.org", NULL, POLICY_ANY, 0, POLICY_DENY, 0},
                {{"deny 0.0.0.0/0 any -", "allow example.org any -"}, "example.org", NULL, POLICY_ANY, 0, POLICY_ALLOW, 1},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                PolicyProbe probe = {.name = cases[i].name, .address = cases[i].address, .protocol = cases[i].protocol, .port = cases[i].port};
                PolicyAnswer answer;
                assert_int_equal(policy_new("p", &policy), 0);
                for (size_t k = 0; k < 4 && cases[i].rules[k]; k++)
                        if (add(policy, cases[i].rules[k], &err) < 0)
                                fail_msg("case %zu: %s", i, error_message(&err, 0));
                assert_int_equal(policy_explain(&policy, 1, &probe, &answer, &err), 0);
                if (answer.action != cases[i].action || answer.index != cases[i].rule)
                        fail_msg("case %zu: %s (%d)", i, answer.text, answer.index);
        }
}

static void add_http(Policy *policy, const char *text, const char *methods, const char *paths) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_strv_ char **f = NULL;
        PolicyRule rule = {0};

        assert_int_equal(strv_split(text, " ", &f), 0);
        rule.action = policy_action_from_string(f[0]);
        rule.to = strdup(f[1]);
        assert_int_equal(strv_split(methods, ",", &rule.methods), 0);
        assert_int_equal(strv_split(paths, ",", &rule.paths), 0);
        if (policy_add(policy, &rule, &err) < 0)
                fail_msg("%s: %s", text, error_message(&err, 0));
}

// A method or path that is not known yet matches: whoever takes the connection apart asks again.
static void test_http(void **state) {
        static const struct { const char *method, *path; int rule; } cases[] = {
                {NULL, NULL, 0},          {"DELETE", "/x", 0},         {"GET", "/api", 1},       {"GET", "/api/v1", 1},    {"GET", "/api?x=1", 1},
                {"GET", "/apis", -1},     {"POST", "/api", -1},        {"GET", "/raw/x", 1},     {"GET", "/raw", -1},      {"GET", "/api/../x", -1},
                {"GET", "/api/%2e%2e/x", -1}, {"GET", "/api//x", -1},  {"GET", "/api/./x", -1},  {"GET", "/api\\x", -1},  {"GET", "api", -1},
                {"GET", "/api?a=../b%20", 1}, {"PUT", "/api", 2},      {"PUT", "/%61pi", 2},     {"PUT", "/other", -1},
        };
        _cleanup_(policy_freep) Policy *policy = NULL;

        assert_int_equal(policy_new("p", &policy), 0);
        add_http(policy, "deny example.org", "DELETE", "");
        add_http(policy, "allow example.org", "GET,HEAD", "/api,/raw/");
        add_http(policy, "deny example.org", "PUT", "/api");
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                PolicyProbe probe = {.name = "example.org", .protocol = POLICY_TCP, .port = 443, .method = cases[i].method, .path = cases[i].path};
                PolicyAnswer answer;
                assert_int_equal(policy_explain(&policy, 1, &probe, &answer, NULL), 0);
                if (answer.index != cases[i].rule)
                        fail_msg("case %zu: %s", i, answer.text);
        }
}

// git's requests and no other; what is not said as git says it meets no allow and each denial.
static void test_git(void **state) {
        static const struct { const char *method, *path; bool read, write, no_read, no_write; } cases[] = {
                // allow read, allow write, deny read, deny write: whether the rule matches
                {"GET", "/o/r.git/info/refs?service=git-upload-pack", true, true, true, false},
                {"GET", "/o/r.git/info/refs?service=git-receive-pack", false, true, false, true},
                {"POST", "/o/r.git/git-upload-pack", true, true, true, false},
                {"POST", "/o/r.git/git-receive-pack", false, true, false, true},
                {"GET", "/info/refs?service=git-upload-pack", true, true, true, false},
                {"GET", "/o/r.git/info/refs", false, false, true, true},
                {"GET", "/o/r.git/info/refs?service=git-upload-pack&x", false, false, true, true},
                {"GET", "/o/r.git/info/refs?x&service=git-receive-pack", false, false, true, true},
                {"GET", "/o/r.git/info/refs?service=git-receive%2Dpack", false, false, true, true},
                {"POST", "/o/r.git/info/refs?service=git-upload-pack", false, false, true, false},
                {"GET", "/o/r.git/git-upload-pack", false, false, true, false},
                {"PUT", "/o/r.git/git-receive-pack", false, false, false, true},
                {"POST", "/o/r.git/git-upload-pack?x", false, false, true, false},
                {"POST", "/o/r.git/git-upload-pack/", false, false, false, false},
                {"POST", "/o/r.git/xgit-receive-pack", false, false, false, false},
                {"POST", "/o/r.git/git-receive-pack;x", false, false, true, true},
                {"POST", "/o/r.git/git-receive%2dpack", false, false, true, true},
                {"POST", "/o/../r.git/git-upload-pack", false, false, true, true},
                {"GET", "/o/r.git/HEAD", false, false, false, false},
                {"POST", "/o/r.git/info/lfs/objects/batch", false, false, false, false},
                {"GET", "/", false, false, false, false},
                {NULL, NULL, true, true, true, true},
                {NULL, "/o/r.git/git-upload-pack", true, true, true, false},
        };
        static const struct { PolicyAction action; PolicyGit git; } rules[] = {
                {POLICY_ALLOW, POLICY_GIT_READ}, {POLICY_ALLOW, POLICY_GIT_WRITE}, {POLICY_DENY, POLICY_GIT_READ}, {POLICY_DENY, POLICY_GIT_WRITE}};

        for (size_t k = 0; k < ELEMENTS(rules); k++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                assert_int_equal(policy_new("p", &policy), 0);
                assert_int_equal(add(policy, "allow git.example.org any -", NULL), 0);
                policy->rules[0].action = rules[k].action;
                policy->rules[0].git = rules[k].git;
                assert_true(policy_rule_inspects(&policy->rules[0]));
                for (size_t i = 0; i < ELEMENTS(cases); i++) {
                        const bool wanted[] = {cases[i].read, cases[i].write, cases[i].no_read, cases[i].no_write};
                        PolicyProbe probe = {.name = "git.example.org", .protocol = POLICY_TCP, .port = 443, .method = cases[i].method, .path = cases[i].path};
                        PolicyAnswer answer;
                        assert_int_equal(policy_explain(&policy, 1, &probe, &answer, NULL), 0);
                        if ((answer.index == 0) != wanted[k])
                                fail_msg("rule %zu, %s %s: %s", k, cases[i].method ?: "-", cases[i].path ?: "-", answer.text);
                }
        }
}

// A denial of pushes leaves the name, and git is nothing for addresses and other ports.
static void test_git_rules(void **state) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        PolicyProbe probe = {.name = "git.example.org", .protocol = POLICY_ANY};
        PolicyRule address = {.to = (char *) "192.0.2.1", .git = POLICY_GIT_READ}, ssh = {.to = (char *) "git.example.org", .ports = (char *) "22", .git = POLICY_GIT_READ};
        PolicyAnswer answer;

        assert_int_equal(policy_new("p", &policy), 0);
        assert_int_equal(add(policy, "deny git.example.org any -", NULL), 0);
        assert_int_equal(add(policy, "allow git.example.org any -", NULL), 0);
        policy->rules[0].git = POLICY_GIT_WRITE;
        assert_int_equal(policy_explain(&policy, 1, &probe, &answer, NULL), 0);
        assert_int_equal(answer.index, 1);
        assert_true(policy_rule_check(0, &address, &err) < 0);
        assert_string_equal(err.message, "rules[0].git needs a name in rules[0].to");
        assert_true(policy_rule_check(0, &ssh, NULL) < 0);
        for (int i = 0; i < _POLICY_GIT_MAX; i++)
                assert_int_equal(policy_git_from_string(policy_git_to_string(i)), i);
}

static void test_text(void **state) {
        _cleanup_(policy_freep) Policy *a = NULL, *b = NULL;
        PolicyProbe probe = {.name = "x.example.org", .protocol = POLICY_TCP, .port = 8443};
        PolicyAnswer answer;

        assert_int_equal(policy_new("first", &a), 0);
        assert_int_equal(policy_new("second", &b), 0);
        assert_int_equal(add(a, "allow 1.0.0.0/8 tcp 80", NULL), 0);
        assert_int_equal(add(b, "deny example.org any -", NULL), 0);
        assert_int_equal(add(b, "allow *.example.org any 443,8443-8444", NULL), 0);
        assert_int_equal(policy_explain((Policy *[]) {a, b}, 2, &probe, &answer, NULL), 0);
        assert_string_equal(answer.text, "allowed by rule 2 of policy second: *.example.org tcp 443,8443-8444");
        assert_string_equal(answer.policy, "second");
        assert_int_equal(answer.index, 2);
        probe.name = "example.org";
        assert_int_equal(policy_explain((Policy *[]) {a, b}, 2, &probe, &answer, NULL), 0);
        assert_string_equal(answer.text, "denied by rule 1 of policy second: example.org any");
        probe.name = "example.net";
        assert_int_equal(policy_explain((Policy *[]) {a, b}, 2, &probe, &answer, NULL), 0);
        assert_string_equal(answer.text, "denied: no rule allows it");
        probe.name = "bad..name";
        assert_int_equal(policy_explain(&a, 1, &probe, &answer, NULL), -EINVAL);
}

// A grant: in front of everything, until its time.
static void test_until(void **state) {
        _cleanup_(policy_freep) Policy *grant = NULL, *own = NULL, *other = NULL;
        _cleanup_(compiled_freep) Compiled *compiled = NULL, *later = NULL;
        PolicyProbe probe = {.name = "www.example.org", .protocol = POLICY_TCP, .port = 443};
        PolicyQuestion resolve = {.name = "www.example.org", .protocol = POLICY_ANY};
        Cidr private = {0};
        PolicyAnswer answer;
        PolicyInsert insert;

        assert_int_equal(policy_new(GRANT_PREFIX "7", &grant), 0);
        assert_int_equal(policy_new("own", &own), 0);
        assert_int_equal(policy_new(GRANT_PREFIX "8", &other), 0);
        assert_int_equal(add(grant, "allow www.example.org tcp 443,8443", NULL), 0);
        assert_int_equal(add(grant, "allow 10.1.2.3/32 tcp 22", NULL), 0);
        assert_int_equal(add(other, "allow www.example.org tcp 443,8443", NULL), 0);
        assert_int_equal(add(own, "deny www.example.org any -", NULL), 0);
        Policy *list[] = {grant, own};
        const struct { uint64_t until; bool open; } cases[] = {{clock_realtime() + 60 * USEC_PER_SEC, true}, {clock_realtime(), false}, {1, false}};
        assert_int_equal(cidr_parse("10.1.2.3", &private), 0);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(compiled_freep) Compiled *c = NULL;
                char text[CLOCK_TEXT_MAX], wanted[128];
                grant->rules[0].until = grant->rules[1].until = cases[i].until;
                (void) snprintf(wanted, sizeof(wanted), "allowed by grant 7 until %.19sZ: www.example.org tcp 443,8443", clock_format(cases[i].until, text));
                assert_int_equal(policy_explain(list, 2, &probe, &answer, NULL), 0);
                assert_string_equal(answer.text, cases[i].open ? wanted : "denied by rule 1 of policy own: www.example.org any");
                assert_int_equal(compiled_new(list, 2, &c, NULL), 0);
                assert_int_equal(policy_decide(c, &resolve).action == POLICY_ALLOW, cases[i].open);
                assert_int_equal(policy_inserts(c, "www.example.org", &insert, 1), cases[i].open);
                assert_int_equal(policy_may_answer(c, &private), cases[i].open);
                assert_true(compiled_next_end(c, clock_realtime()) == (cases[i].open ? cases[i].until : UINT64_MAX));
        }
        // Granted twice, with another end: another rule, or the first end would be that of both.
        grant->rules[0].until = 100 * USEC_PER_SEC;
        other->rules[0].until = 200 * USEC_PER_SEC;
        assert_int_equal(compiled_new(&grant, 1, &compiled, NULL), 0);
        assert_int_equal(compiled_new(&other, 1, &later, NULL), 0);
        assert_string_not_equal(compiled->rules[0].digest, later->rules[0].digest);
        assert_false(policy_rule_equal(&grant->rules[0], &other->rules[0]));
}

// Walking the whole list is what the index must agree with.
static bool linear_match(const CompiledRule *rule, const PolicyQuestion *q) {
        if (rule->kind == RULE_ADDRESS)
                return q->address && compiled_rule_matches(rule, q->address, q->protocol, q->port);
        if (!compiled_rule_has_port(rule, q->protocol, q->port))
                return false;
        return rule->kind == RULE_ANY_NAME || (rule->kind == RULE_NAME ? strcmp(rule->name, q->name) == 0 : name_is_below(q->name, rule->name));
}

static void test_index(void **state) {
        static const char *const labels[] = {"a", "b", "c", "ab"};
        unsigned seed = 7;

        for (unsigned round = 0; round < 200; round++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                _cleanup_(compiled_freep) Compiled *compiled = NULL;
                assert_int_equal(policy_new("p", &policy), 0);
                for (unsigned i = 0; i < 40; i++) {
                        char text[80];
                        seed = seed * 1103515245 + 12345;
                        unsigned x = seed >> 8;
                        if (x % 7 == 0)
                                snprintf(text, sizeof(text), "%s %u.0.0.0/8 tcp -", x & 256 ? "allow" : "deny", 1 + x / 512 % 3);
                        else
                                snprintf(text, sizeof(text), "%s %s%s%s%s.example.org tcp %d", x & 256 ? "allow" : "deny", x & 512 ? "*." : "", x & 1024 ? labels[x / 2048 % 4] : "",
                                         x & 1024 ? "." : "", labels[x / 8192 % 4], x & 32768 ? 443 : 80);
                        assert_int_equal(add(policy, text, NULL), 0);
                }
                assert_int_equal(compiled_new(&policy, 1, &compiled, NULL), 0);
                for (unsigned i = 0; i < 100; i++) {
                        char name[64], address[16];
                        seed = seed * 1103515245 + 12345;
                        unsigned x = seed >> 8;
                        Cidr cidr;
                        snprintf(address, sizeof(address), "%u.1.1.1", 1 + x % 4);
                        assert_int_equal(cidr_parse(address, &cidr), 0);
                        snprintf(name, sizeof(name), "%s.%s.%s.example.org", labels[x / 4 % 4], labels[x / 16 % 4], labels[x / 64 % 4]);
                        PolicyQuestion q = {.name = name + (x & 256 ? 0 : strcspn(name, ".") + 1), .address = x & 512 ? &cidr : NULL, .protocol = POLICY_TCP, .port = x & 1024 ? 443 : 80};
                        PolicyDecision d = policy_decide(compiled, &q);
                        size_t k = 0;
                        while (k < compiled->n && !linear_match(&compiled->rules[k], &q))
                                k++;
                        assert_ptr_equal(d.rule, k < compiled->n ? &compiled->rules[k] : NULL);
                }
        }
}

static void test_category(void **state) {
        _cleanup_(category_freep) Category *category = NULL, *other = NULL;
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        PolicyProbe probe = {.name = "b.example.org", .protocol = POLICY_TCP, .port = 443};
        PolicyAnswer answer;

        assert_int_equal(category_parse("web", NULL, "# head\n a.example.org # one\n\n*.example.org\r\n10.0.0.0/8", &category, NULL), 0);
        assert_int_equal(strv_length(category->entries), 3);
        assert_int_equal(policy_new("p", &policy), 0);
        assert_int_equal(add(policy, "deny c.example.org any -", NULL), 0);
        assert_int_equal(add(policy, "allow @web any -", NULL), 0);
        assert_int_equal(add(policy, "allow d.example.net any -", NULL), 0);
        assert_true(compiled_new(&policy, 1, &compiled, &err) < 0); // never looked up: refused, not empty
        policy->rules[1].category = category_share(category);
        assert_int_equal(compiled_new(&policy, 1, &compiled, NULL), 0);
        assert_int_equal(compiled->n, 5);
        assert_int_equal(compiled->rules[3].index, 1);
        assert_int_equal(compiled->rules[4].index, 2);
        assert_int_equal(compiled_first_name(compiled), 0);
        assert_int_equal(policy_explain(&policy, 1, &probe, &answer, NULL), 0);
        assert_int_equal(answer.index, 1);
        probe = (PolicyProbe) {.address = "10.1.1.1", .protocol = POLICY_UDP, .port = 1};
        assert_int_equal(policy_explain(&policy, 1, &probe, &answer, NULL), 0);
        assert_int_equal(answer.index, 1);
        assert_int_equal(category_parse("web", NULL, "a.example.org\n*.example.org\n10.0.0.0/8\n", &other, NULL), 0);
        assert_true(category_equal(category, other));
}

// What would answer in the place of our resolver is not opened by "*".
static void test_spared(void **state) {
        static const struct { const char *rules[2], *name; PolicyProtocol protocol; uint16_t port; int rule; } cases[] = {
                {{"allow * any -"}, "dns.example", POLICY_TCP, 443, -1},
                {{"allow * any -"}, "dns.example", POLICY_ANY, 0, -1},
                {{"allow * any -"}, "a.doh.example.org", POLICY_TCP, 443, -1},
                {{"allow * any -"}, "doh.example.org", POLICY_TCP, 443, 0},
                {{"allow 0.0.0.0/0 any -"}, "dns.example", POLICY_ANY, 0, -1},
                {{"allow 0.0.0.0/0 any -"}, "www.example", POLICY_ANY, 0, 0},
                {{"allow * any -", "allow dns.example any -"}, "dns.example", POLICY_TCP, 443, 1},
                {{"allow * any -", "allow dns.example any -"}, "dns.example", POLICY_ANY, 0, 1},
                {{"allow * any -", "allow *.doh.example.org any -"}, "a.doh.example.org", POLICY_TCP, 443, 1},
                {{"deny * any -"}, "dns.example", POLICY_TCP, 443, 0},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                PolicyProbe probe = {.name = cases[i].name, .protocol = cases[i].protocol, .port = cases[i].port};
                PolicyAnswer answer;
                assert_int_equal(policy_new("p", &policy), 0);
                assert_int_equal(category_parse(POLICY_SPARED, NULL, "10.0.0.1\ndns.example\n*.doh.example.org\n", &policy->spared, NULL), 0);
                for (size_t k = 0; k < 2 && cases[i].rules[k]; k++)
                        assert_int_equal(add(policy, cases[i].rules[k], NULL), 0);
                assert_int_equal(policy_explain(&policy, 1, &probe, &answer, NULL), 0);
                if (answer.index != cases[i].rule)
                        fail_msg("case %zu: %s", i, answer.text);
                if (answer.index < 0)
                        assert_string_equal(answer.text, "denied: it is in the category doh, and no rule names it");
        }
}

static Policy *policy_with(const char *rule, const char *category, const char *entries) {
        _cleanup_error_ Error err = ERROR_NULL;
        Policy *policy;

        assert_int_equal(policy_new("p", &policy), 0);
        assert_int_equal(add(policy, rule, NULL), 0);
        assert_int_equal(category_parse(category, NULL, entries, &policy->rules[0].category, &err), 0);
        return policy;
}

// An entry with a port is that port of the name, and of a rule's ports no other.
static void test_entry_ports(void **state) {
        static const char entries[] = "a.example.org:80\na.example.org\nb.example.org:8443\n*.c.example.org:3128\n10.0.0.0/8\n";
        static const struct { const char *rule, *name; uint16_t port; bool allowed; } cases[] = {
                {"allow @m any -", "a.example.org", 80, true},         {"allow @m any -", "a.example.org", 443, true},
                {"allow @m any -", "a.example.org", 8443, false},      {"allow @m any -", "b.example.org", 8443, true},
                {"allow @m any -", "b.example.org", 443, false},       {"allow @m any -", "x.c.example.org", 3128, true},
                {"allow @m any -", "c.example.org", 3128, false},      {"allow @m tcp 443", "a.example.org", 443, true},
                {"allow @m tcp 443", "a.example.org", 80, false},      {"allow @m tcp 443", "b.example.org", 8443, false},
                {"allow @m tcp 8440-8450", "b.example.org", 8443, true}, {"allow @m tcp 443", "b.example.org", 443, false},
        };
        char to[CATEGORY_ENTRY_MAX];

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = policy_with(cases[i].rule, "m", entries);
                PolicyProbe probe = {.name = cases[i].name, .protocol = POLICY_TCP, .port = cases[i].port};
                PolicyAnswer answer;
                assert_int_equal(policy_rule_check(0, &policy->rules[0], NULL), 0);
                assert_int_equal(policy_explain(&policy, 1, &probe, &answer, NULL), 0);
                if ((answer.action == POLICY_ALLOW) != cases[i].allowed)
                        fail_msg("case %zu: %s", i, answer.text);
        }
        assert_int_equal(category_entry_split("2001:db8::1", to), 0);
        assert_string_equal(to, "2001:db8::1");
        assert_int_equal(category_entry_split("a.example.org:65536", to), 0);
        assert_int_equal(category_entry_split("a.example.org:080", to), 0);
        assert_int_equal(category_entry_split("a.example.org:80x", to), 0);
        assert_int_equal(category_entry_split("a.example.org:65535", to), 65535);
        assert_string_equal(to, "a.example.org");
}

// What an entry's port cannot be, where its rule has more to say.
static void test_bad_entry_ports(void **state) {
        static const struct { const char *entries, *wanted; } cases[] = {
                {"a.example.org:53\n", "@m has a.example.org:53: rules[0].ports: tcp port 53 cannot be allowed by name, only by address"},
                {"a.example.org:8443\n", "rules[0].inspect is for tcp 80 and 443 only, and @m has a.example.org:8443"},
        };
        _cleanup_(policy_freep) Policy *many = policy_with("allow @m any -", "m", "a.example.org:1\na.example.org:2\na.example.org:3\na.example.org:4\n"
                                                           "a.example.org:5\na.example.org:6\na.example.org:7\na.example.org:8\na.example.org:9\n"
                                                           "a.example.org:10\na.example.org:11\na.example.org:12\na.example.org:13\na.example.org:14\n"
                                                           "a.example.org:15\nb.example.org:16\nb.example.org:17\n");

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = policy_with("allow @m any -", "m", cases[i].entries);
                _cleanup_error_ Error err = ERROR_NULL;
                policy->rules[0].inspect = true;
                assert_true(policy_rule_check(0, &policy->rules[0], &err) < 0);
                assert_string_equal(err.message, cases[i].wanted);
        }
        assert_true(policies_check(&many, 1, NULL) < 0);
}

// "@packages" is a list of each template's; a policy is never changed by what one instance makes of it.
static void test_bind(void **state) {
        _cleanup_(category_freep) Category *one = NULL, *two = NULL;
        _cleanup_(policy_freep) Policy *policy = NULL, *plain = NULL, *first = NULL, *second = NULL, *same = NULL, *none = NULL;
        _cleanup_error_ Error err = ERROR_NULL, refused = ERROR_NULL;
        PolicyProbe probe = {.name = "m.example.org", .protocol = POLICY_TCP, .port = 80};
        PolicyAnswer answer;

        assert_int_equal(category_parse(POLICY_PACKAGES, NULL, "m.example.org:80\ndns.example:443\n", &one, NULL), 0);
        assert_int_equal(category_parse(POLICY_PACKAGES, NULL, "n.example.org:8443\n", &two, NULL), 0);
        assert_int_equal(policy_new("p", &policy), 0);
        assert_int_equal(category_parse(POLICY_SPARED, NULL, "dns.example\n", &policy->spared, NULL), 0);
        assert_int_equal(add(policy, "deny c.example.org any -", NULL), 0);
        assert_int_equal(add(policy, "allow @packages any -", NULL), 0);
        assert_true(policy_is_open(policy));
        assert_true(policy_bind(policy, &(PolicyUse) {.offline = false}, &none, &err) < 0);
        assert_string_equal(err.message, "policy p has a rule to @packages, which is a list that each template has for itself");
        assert_int_equal(policy_bind(policy, &(PolicyUse) {.packages = one}, &first, NULL), 0);
        assert_int_equal(policy_bind(policy, &(PolicyUse) {.packages = two}, &second, NULL), 0);
        assert_true(policy_is_open(policy) && !policy_is_open(first) && !policy_equal(first, second));
        assert_int_equal(policy_explain(&first, 1, &probe, &answer, NULL), 0);
        assert_string_equal(answer.text, "allowed by rule 2 of policy p: m.example.org tcp 80");
        assert_int_equal(policy_explain(&second, 1, &probe, &answer, NULL), 0);
        assert_int_equal(answer.action, POLICY_DENY);
        probe.name = "dns.example", probe.port = 443; // a template opens no server of DNS over HTTPS
        assert_int_equal(policy_explain(&first, 1, &probe, &answer, NULL), 0);
        assert_int_equal(answer.action, POLICY_DENY);
        policy->rules[1].inspect = true; // where the entries are known it is seen that this cannot be
        assert_true(policy_bind(policy, &(PolicyUse) {.packages = two}, &none, &refused) < 0);
        assert_string_equal(refused.message, "policy p: rules[1].inspect is for tcp 80 and 443 only, and @packages has n.example.org:8443");
        plain = policy_with("allow @packages any -", POLICY_PACKAGES, "file.example.org\n"); // the operator's file
        assert_false(policy_is_open(plain));
        assert_int_equal(policy_bind(plain, &(PolicyUse) {.offline = false}, &same, NULL), 0);
        assert_ptr_equal(same, plain);
}

// Approved registries take from the list, whoever wrote it, and add nothing.
static void test_registries(void **state) {
        static const struct { const char *name; uint16_t port; bool allowed; } cases[] = {
                {"a.example.org", 80, true}, {"a.example.org", 443, true}, {"b.example.org", 443, false}, {"c.example.org", 443, false}};
        char *registries[] = {(char *) "a.example.org", (char *) "c.example.org", NULL}, *none[] = {(char *) "z.example.org", NULL};
        static const char list[] = "a.example.org:80\na.example.org:443\nb.example.org:443\n";
        _cleanup_(category_freep) Category *packages = NULL;

        assert_int_equal(category_parse(POLICY_PACKAGES, NULL, list, &packages, NULL), 0);
        for (int file = 0; file < 2; file++) {
                _cleanup_(policy_freep) Policy *policy = NULL, *bound = NULL, *empty = NULL;
                PolicyAnswer answer;
                if (file)
                        policy = policy_with("allow @packages any -", POLICY_PACKAGES, list);
                else {
                        assert_int_equal(policy_new("p", &policy), 0);
                        assert_int_equal(add(policy, "allow @packages any -", NULL), 0);
                }
                assert_int_equal(policy_bind(policy, &(PolicyUse) {.packages = packages, .registries = registries}, &bound, NULL), 0);
                assert_int_equal(policy_bind(policy, &(PolicyUse) {.packages = packages, .registries = none}, &empty, NULL), 0);
                for (size_t i = 0; i < ELEMENTS(cases); i++) {
                        PolicyProbe probe = {.name = cases[i].name, .protocol = POLICY_TCP, .port = cases[i].port};
                        assert_int_equal(policy_explain(&bound, 1, &probe, &answer, NULL), 0);
                        if ((answer.action == POLICY_ALLOW) != cases[i].allowed)
                                fail_msg("case %zu of %d: %s", i, file, answer.text);
                        assert_int_equal(policy_explain(&empty, 1, &probe, &answer, NULL), 0);
                        assert_int_equal(answer.action, POLICY_DENY);
                }
        }
}

static void add_category(Policy *policy, const char *rule, const char *entries) {
        assert_int_equal(add(policy, rule, NULL), 0);
        PolicyRule *last = &policy->rules[policy->n_rules - 1];
        assert_int_equal(category_parse(last->to + 1, NULL, entries, &last->category, NULL), 0);
}

// Offline: mirrors, models and git by their categories, and whatever is denied; indices are those of the policy all the same.
static void test_offline(void **state) {
        static const struct { const char *name, *address; uint16_t port; int online, offline; } cases[] = {
                {"m.example.org", NULL, 443, 2, 2},     {"llm.example.org", NULL, 443, 3, 3},  {"g.example.org", NULL, 443, 4, 4},
                {"bad.example.org", NULL, 443, 0, 0},   {"site.example.org", NULL, 443, 5, -1}, {"w.example.net", NULL, 443, 6, -1},
                {NULL, "198.51.100.7", 443, 1, -1},     {NULL, "1.2.3.4", 443, 7, -1},          {"x.example.com", NULL, 443, 8, -1},
                {"m.example.org", NULL, 0, 2, 2},       {"site.example.org", NULL, 0, 5, -1},
        };
        _cleanup_(policy_freep) Policy *policy = NULL, *offline = NULL, *online = NULL;
        PolicyAnswer answer;

        assert_int_equal(policy_new("p", &policy), 0);
        add_category(policy, "deny @llm any -", "bad.example.org\n");
        assert_int_equal(add(policy, "allow 198.51.100.0/24 any -", NULL), 0);
        add_category(policy, "allow @packages any -", "m.example.org:443\n");
        add_category(policy, "allow @llm any -", "llm.example.org\nbad.example.org\n");
        add_category(policy, "allow @git any -", "g.example.org\n");
        assert_int_equal(add(policy, "allow site.example.org any -", NULL), 0);
        add_category(policy, "allow @web any -", "*.example.net\n");
        assert_int_equal(add(policy, "allow 0.0.0.0/0 tcp 443", NULL), 0);
        assert_int_equal(add(policy, "allow * any -", NULL), 0);
        assert_int_equal(policy_bind(policy, &(PolicyUse) {.offline = false}, &online, NULL), 0);
        assert_ptr_equal(online, policy);
        assert_int_equal(policy_bind(policy, &(PolicyUse) {.offline = true}, &offline, NULL), 0);
        assert_false(policy->offline);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                PolicyProbe probe = {.name = cases[i].name, .address = cases[i].address, .protocol = cases[i].port ? POLICY_TCP : POLICY_ANY, .port = cases[i].port};
                assert_int_equal(policy_explain(&online, 1, &probe, &answer, NULL), 0);
                if (answer.index != cases[i].online)
                        fail_msg("online, case %zu: %s", i, answer.text);
                assert_int_equal(policy_explain(&offline, 1, &probe, &answer, NULL), 0);
                if (answer.index != cases[i].offline)
                        fail_msg("offline, case %zu: %s", i, answer.text);
                if (answer.index < 0)
                        assert_string_equal(answer.text, "denied: no rule allows it while the instance is offline");
        }
}

// Rules about what comes in say nothing of what goes out.
static void test_preview(void **state) {
        static const struct { const char *rules[3]; PolicyProtocol protocol; uint16_t port; bool allowed; } cases[] = {
                {{"allow * any -"}, POLICY_TCP, 8080, true},
                {{"allow @preview tcp 8000-8099"}, POLICY_TCP, 8080, true},
                {{"allow @preview tcp 8000-8099"}, POLICY_TCP, 8100, false},
                {{"allow @preview tcp 8000-8099"}, POLICY_UDP, 8080, false},
                {{"allow @preview any -"}, POLICY_UDP, 1, true},
                {{"deny @preview tcp 22", "allow @preview tcp -"}, POLICY_TCP, 22, false},
                {{"deny @preview tcp 22", "allow @preview tcp -"}, POLICY_TCP, 23, true},
                {{"deny @preview any -"}, POLICY_TCP, 80, false},
        };
        _cleanup_(policy_freep) Policy *bad = NULL;

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                _cleanup_(compiled_freep) Compiled *compiled = NULL;
                size_t out = 0;
                assert_int_equal(policy_new("p", &policy), 0);
                for (size_t k = 0; k < 3 && cases[i].rules[k]; k++) {
                        assert_int_equal(add(policy, cases[i].rules[k], NULL), 0);
                        out += strstr(cases[i].rules[k], "@preview") == NULL;
                }
                if (policy_may_expose(&policy, 1, cases[i].protocol, cases[i].port) != cases[i].allowed)
                        fail_msg("case %zu", i);
                assert_int_equal(compiled_new(&policy, 1, &compiled, NULL), 0);
                assert_int_equal(compiled->n, out);
        }
        assert_int_equal(policy_new("p", &bad), 0);
        assert_true(add(bad, "allow @preview icmp -", NULL) < 0);
        assert_int_equal(add(bad, "allow @preview tcp 80", NULL), 0);
        bad->rules[0].inspect = true;
        assert_true(policy_rule_check(0, &bad->rules[0], NULL) < 0);
}

static void test_bad_categories(void **state) {
        static const struct { const char *text, *wanted; } cases[] = {
                {"a.example.org b.example.org", "f:1: there is more than one word"}, {"\n@web", "f:2: entry \"@web\": a category cannot hold"},
                {"example", "f:1: entry \"example\" is no host name"},            {"10.0.0.1/8", "f:1: entry \"10.0.0.1/8\" has bits set"},
                {"*.co.uk", "f:1: entry \"*.co.uk\" is too wide"},
                {"a.example.org\na.example.org", "f: entry \"a.example.org\" is there twice"}, {"a.example.org;", "f:1: entry \"a.example.org;\" is not valid"},
                {"10.0.0.1:80", "f:1: entry \"10.0.0.1:80\": only a name has a port"}, {"*.co.uk:80", "f:1: entry \"*.co.uk\" is too wide"},
                {"a.example.org:80\na.example.org:80", "f: entry \"a.example.org:80\" is there twice"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                Category *category = NULL;
                assert_int_equal(category_parse("c", "f", cases[i].text, &category, &err), -EINVAL);
                if (strncmp(err.message, cases[i].wanted, strlen(cases[i].wanted)) != 0)
                        fail_msg("%s", err.message);
        }
}

// What a denial by name takes of an allow's ports is not opened at the name's addresses; of other names it is.
static void test_inserts_denied(void **state) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        PolicyInsert rules[4];

        assert_int_equal(policy_new("p", &policy), 0);
        assert_int_equal(add(policy, "deny evil.example.org tcp 22", NULL), 0);
        assert_int_equal(add(policy, "deny evil.example.org udp 53-123", NULL), 0);
        for (unsigned i = 1; i <= 20; i++) { // more than the decision about the name itself remembers
                char text[64];
                (void) snprintf(text, sizeof(text), "deny many.example.org tcp %u", 2000 + i);
                assert_int_equal(add(policy, text, NULL), 0);
        }
        assert_int_equal(add(policy, "allow *.example.org tcp 22,443,2020-2021", NULL), 0);
        assert_int_equal(add(policy, "allow *.example.org udp 123", NULL), 0);
        assert_int_equal(add(policy, "deny late.example.org tcp 22", NULL), 0); // behind: too late
        assert_int_equal(compiled_new(&policy, 1, &compiled, NULL), 0);
        assert_int_equal(policy_inserts(compiled, "evil.example.org", rules, 4), 1);
        assert_ptr_equal(rules[0].rule, &compiled->rules[22]);
        assert_int_equal(rules[0].ports, 1 << 2 | 1 << 3); // in the rule's order: 22, 443, 2020, 2021
        assert_int_equal(policy_inserts(compiled, "many.example.org", rules, 4), 2);
        assert_int_equal(rules[0].ports, 1 << 0 | 1 << 3);
        assert_int_equal(policy_inserts(compiled, "late.example.org", rules, 4), 2);
        assert_int_equal(rules[0].ports, 1 << 0 | 1 << 2 | 1 << 3);
        assert_int_equal(rules[1].ports, 1);
        assert_int_equal(policy_inserts(compiled, "evil.example.org", rules, 0), 1);
}

static void test_inserts(void **state) {
        _cleanup_(policy_freep) Policy *policy = NULL, *more = NULL;
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        PolicyInsert rules[4];
        Cidr address;

        assert_int_equal(policy_new("p", &policy), 0);
        assert_int_equal(add(policy, "allow example.org any 80,443", NULL), 0);
        assert_int_equal(add(policy, "allow example.org any 443,5432", NULL), 0);
        assert_int_equal(add(policy, "allow *.org any 123-124", NULL), -EINVAL);
        assert_int_equal(add(policy, "allow *.example.org udp 123", NULL), 0);
        assert_int_equal(add(policy, "allow 10.1.0.0/16 any -", NULL), 0);
        assert_int_equal(add(policy, "allow 0.0.0.0/0 any -", NULL), 0);
        assert_int_equal(compiled_new(&policy, 1, &compiled, NULL), 0);
        assert_int_equal(policy_inserts(compiled, "example.org", rules, 4), 1);
        assert_ptr_equal(rules[0].rule, &compiled->rules[1]);
        assert_int_equal(rules[0].ports, 2); // 443 is the proxy's
        assert_int_equal(policy_inserts(compiled, "a.example.org", rules, 4), 1);
        assert_int_equal(cidr_parse("10.1.2.3", &address), 0);
        assert_true(policy_may_answer(compiled, &address)); // named on purpose
        assert_int_equal(cidr_parse("10.2.2.3", &address), 0);
        assert_false(policy_may_answer(compiled, &address));
        assert_int_equal(cidr_parse("9.9.9.9", &address), 0);
        assert_true(policy_may_answer(compiled, &address));
        // two policies that are too much together
        assert_int_equal(policy_new("q", &more), 0);
        assert_int_equal(add(more, "allow example.net any 2001-2014,5432", NULL), 0);
        assert_int_equal(policies_check((Policy *[]) {policy, more}, 2, NULL), 0);
        assert_int_equal(add(more, "allow example.net any 2015", NULL), 0);
        assert_int_equal(policies_check((Policy *[]) {policy, more}, 2, &err), -EINVAL);
        assert_string_equal(err.field, "policies");
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
        assert_string_equal(ca->rules[0].digest, "63612f611e6781b1"); // as hostd always wrote it: flows outlive an upgrade
}

// Marks are for what the kernel itself lets pass; names for the proxy have none, and no digest.
static void test_marked(void **state) {
        static const struct { const char *rule; bool marked; } cases[] = {
                {"allow 1.0.0.0/8 tcp 443", true},          {"allow www.example.org any -", false},      {"allow www.example.org tcp 80,443", false},
                {"allow www.example.org tcp 443,8443", true}, {"allow *.example.org tcp 443-444", true},   {"allow * tcp 443", false},
                {"allow www.example.org udp 4433", true},   {"deny www.example.org any -", false},       {"deny 1.0.0.0/8 any -", false},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                _cleanup_(compiled_freep) Compiled *c = NULL;
                assert_int_equal(policy_new("p", &policy), 0);
                assert_int_equal(add(policy, cases[i].rule, NULL), 0);
                assert_int_equal(compiled_new(&policy, 1, &c, NULL), 0);
                if (compiled_rule_is_marked(&c->rules[0]) != cases[i].marked)
                        fail_msg("%s", cases[i].rule);
                assert_int_equal(strlen(c->rules[0].digest), cases[i].marked || c->rules[0].action == POLICY_DENY ? COMPILED_DIGEST : 0);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_tables),       cmocka_unit_test(test_bad_rules), cmocka_unit_test(test_explain),
                cmocka_unit_test(test_denied_table), cmocka_unit_test(test_digest), cmocka_unit_test(test_marked),
                cmocka_unit_test(test_explain_names), cmocka_unit_test(test_http), cmocka_unit_test(test_git), cmocka_unit_test(test_git_rules),    cmocka_unit_test(test_text), cmocka_unit_test(test_until),
                cmocka_unit_test(test_index),        cmocka_unit_test(test_category),  cmocka_unit_test(test_bad_categories), cmocka_unit_test(test_entry_ports), cmocka_unit_test(test_bad_entry_ports), cmocka_unit_test(test_bind), cmocka_unit_test(test_registries), cmocka_unit_test(test_offline), cmocka_unit_test(test_preview), cmocka_unit_test(test_spared),
                cmocka_unit_test(test_inserts), cmocka_unit_test(test_inserts_denied),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
