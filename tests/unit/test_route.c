// SPDX-License-Identifier: GPL-2.0-or-later
// Route: who may go where, from rules and from what a client said; and what is left of rates and budgets.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "proxy/meter.h"
#include "proxy/route.h"

// ---- rules, one a line: "allow|deny TO [PORTS]", all of tcp

static Compiled *compile(const char *const *lines) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        Compiled *compiled = NULL;

        assert_int_equal(policy_new("p", &policy), 0);
        for (; *lines; lines++) {
                char action[8] = "", to[256] = "", ports[32] = "";
                PolicyRule rule = {.protocol = POLICY_TCP};
                assert_true(sscanf(*lines, "%7s %255s %31s", action, to, ports) >= 2);
                rule.action = policy_action_from_string(action);
                rule.to = strdup(to);
                rule.ports = *ports ? strdup(ports) : NULL;
                if (policy_add(policy, &rule, &err) < 0)
                        fail_msg("%s", error_message(&err, 0));
        }
        assert_int_equal(compiled_new(&policy, 1, &compiled, &err), 0);
        return compiled;
}

static Cidr address(const char *text) {
        Cidr cidr;

        assert_int_equal(cidr_parse(text, &cidr), 0);
        return cidr;
}

#define STRANGER "93.1.1.9/32"
#define PLAIN "93.2.0.5/32"

static void test_decide(void **state) {
        static const char *const rules[] = {
                "deny evil.example.org", "allow good.example.org", "allow *.wide.example.org 443,9000", "allow web.example.org 80",
                "deny *.closed.example.org 443", "allow 93.2.0.0/16 443", "allow 93.2.0.0/16 80", "allow 10.1.0.0/16 443", NULL};
        static const struct { const char *name, *wanted; uint16_t port; RouteKind kind; int index; } cases[] = {
                {"good.example.org", STRANGER, 443, ROUTE_RESOLVE, 1},
                {"good.example.org", PLAIN, 443, ROUTE_RESOLVE, 1}, // its rule is the first that matches
                {"good.example.org", STRANGER, 80, ROUTE_DENIED, -1},
                {"evil.example.org", STRANGER, 443, ROUTE_DENIED, 0},
                {"evil.example.org", PLAIN, 443, ROUTE_DENIED, 0},
                {"sub.good.example.org", STRANGER, 443, ROUTE_DENIED, -1},
                {"a.b.wide.example.org", STRANGER, 443, ROUTE_RESOLVE, 2},
                {"wide.example.org", STRANGER, 443, ROUTE_DENIED, -1},
                {"web.example.org", STRANGER, 80, ROUTE_RESOLVE, 3},
                {"whoever.example.org", PLAIN, 443, ROUTE_ADDRESS, 5},
                {"a.closed.example.org", PLAIN, 443, ROUTE_DENIED, 4},
                // who names nobody could be one that is denied, where some are
                {NULL, PLAIN, 443, ROUTE_DENIED, 0},
                {NULL, "10.1.2.3/32", 443, ROUTE_DENIED, 0},
                {NULL, STRANGER, 443, ROUTE_DENIED, -1},
                {NULL, "127.0.0.1/32", 443, ROUTE_DENIED, -1},
                // by name only
                {"a.wide.example.org", NULL, 9000, ROUTE_RESOLVE, 2},
                {"a.wide.example.org", NULL, 22, ROUTE_RESOLVE, -1}, // may be resolved; its addresses decide
                {"evil.example.org", NULL, 443, ROUTE_DENIED, 0},
                {"unknown.example.org", NULL, 443, ROUTE_DENIED, -1},
        };
        _cleanup_(compiled_freep) Compiled *compiled = compile(rules);

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Cidr wanted = cases[i].wanted ? address(cases[i].wanted) : (Cidr) {0};
                RouteQuestion question = {.name = cases[i].name, .wanted = cases[i].wanted ? &wanted : NULL, .port = cases[i].port};
                Route route = route_decide(compiled, &question);
                if (route.kind != cases[i].kind || route.decision.index != cases[i].index)
                        fail_msg("case %zu (%s): kind %d, rule %d", i, cases[i].name ?: "-", (int) route.kind, route.decision.index);
        }
}

static void test_nameless_without_denials(void **state) {
        static const char *const rules[] = {"allow good.example.org", "allow 93.2.0.0/16 443", "deny evil.example.org", NULL};
        _cleanup_(compiled_freep) Compiled *compiled = compile(rules);
        Cidr wanted = address(PLAIN);
        RouteQuestion question = {.wanted = &wanted, .port = 443};

        assert_int_equal(route_decide(compiled, &question).kind, ROUTE_ADDRESS);
        assert_false(route_decide(compiled, &question).names_denied);
}

static void test_admits(void **state) {
        static const char *const rules[] = {"deny 93.3.0.0/16", "allow good.example.org", "allow 10.1.0.0/16", "allow 0.0.0.0/0", NULL};
        static const struct { const char *name, *address; RouteKind kind; int index; bool by_name; } cases[] = {
                {"good.example.org", "93.1.1.1/32", ROUTE_RESOLVE, 1, true},
                {"good.example.org", "2a00:1::1/128", ROUTE_RESOLVE, 1, true},
                {"good.example.org", "93.3.1.1/32", ROUTE_DENIED, 0, false},   // a denial in front
                {"good.example.org", "10.2.0.1/32", ROUTE_DENIED, 1, false},   // private, and no rule names that range
                {"good.example.org", "10.1.0.1/32", ROUTE_RESOLVE, 1, true},   // one names this
                {"good.example.org", "169.254.169.254/32", ROUTE_DENIED, 1, false},
                {"good.example.org", "127.0.0.1/32", ROUTE_DENIED, 1, false},
                {"good.example.org", "::1/128", ROUTE_DENIED, 1, false},
                {"good.example.org", "::ffff:10.2.0.1/128", ROUTE_DENIED, 1, false},
                {"good.example.org", "64:ff9b::a02:1/128", ROUTE_DENIED, 1, false},
                {"any.example.org", "93.1.1.1/32", ROUTE_ADDRESS, 3, false},
                {"any.example.org", "2a00:1::1/128", ROUTE_DENIED, -1, false},
                {"any.example.org", "10.2.0.1/32", ROUTE_DENIED, -1, false},
        };
        _cleanup_(compiled_freep) Compiled *compiled = compile(rules);

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Cidr to = address(cases[i].address);
                RouteQuestion question = {.name = cases[i].name, .port = 443};
                Route route = route_admits(compiled, &question, &to);
                if (route.kind != cases[i].kind || route.decision.index != cases[i].index || route_is_by_name(&route) != cases[i].by_name)
                        fail_msg("%s at %s: kind %d, rule %d", cases[i].name, cases[i].address, (int) route.kind, route.decision.index);
        }
}

// ---- a sandbox's rules within its instance's: neither lends the other what it lacks

static void test_within_decide(void **state) {
        static const char *const inner[] = {"deny evil.example.org", "allow good.example.org", "allow 93.2.0.0/16 443", "allow *.box.example.org", NULL};
        static const char *const outer[] = {"deny bad.box.example.org", "allow good.example.org", "allow *.box.example.org", "allow web.example.org", "allow 93.2.0.0/24 443", NULL};
        static const struct { const char *name, *wanted; RouteKind kind; int index; bool by_inner; } list[] = {
                {"good.example.org", STRANGER, ROUTE_RESOLVE, 1, true},
                {"evil.example.org", PLAIN, ROUTE_DENIED, 0, true},
                {"web.example.org", STRANGER, ROUTE_DENIED, -1, true},       // the instance alone
                {"web.example.org", PLAIN, ROUTE_RESOLVE, 2, true},          // one by address, the other by name: the name's addresses are asked about
                {"bad.box.example.org", STRANGER, ROUTE_DENIED, 0, false},
                {"other.example.org", PLAIN, ROUTE_ADDRESS, 2, true},
                {"other.example.org", "93.2.1.1/32", ROUTE_DENIED, -1, false}, // the sandbox alone
                {NULL, PLAIN, ROUTE_DENIED, 0, true},
                {"a.box.example.org", NULL, ROUTE_RESOLVE, 3, true},
                {"web.example.org", NULL, ROUTE_DENIED, -1, true},
        };
        _cleanup_(compiled_freep) Compiled *compiled = compile(inner), *around = compile(outer);

        compiled_set_within(compiled, around);
        for (size_t i = 0; i < ELEMENTS(list); i++) {
                Cidr wanted = list[i].wanted ? address(list[i].wanted) : (Cidr) {0};
                RouteQuestion question = {.name = list[i].name, .wanted = list[i].wanted ? &wanted : NULL, .port = 443};
                Route route = route_decide(compiled, &question);
                if (route.kind != list[i].kind || route.decision.index != list[i].index || (route.decision.of == compiled) != list[i].by_inner)
                        fail_msg("case %zu (%s): kind %d, rule %d", i, list[i].name ?: "-", (int) route.kind, route.decision.index);
        }
}

static void test_within_nameless(void **state) {
        static const char *const inner[] = {"allow 93.2.0.0/16 443", NULL}, *const outer[] = {"deny evil.example.org", "allow 0.0.0.0/0 443", NULL};
        _cleanup_(compiled_freep) Compiled *compiled = compile(inner), *around = compile(outer);
        Cidr wanted = address(PLAIN);
        RouteQuestion question = {.wanted = &wanted, .port = 443};
        Route route;

        assert_int_equal(route_decide(compiled, &question).kind, ROUTE_ADDRESS);
        compiled_set_within(compiled, around);
        route = route_decide(compiled, &question); // it could be the one that the instance denies
        assert_int_equal(route.kind, ROUTE_DENIED);
        assert_true(route.decision.of == around && route.decision.index == 0);
}

static void test_within_admits(void **state) {
        static const char *const inner[] = {"deny 93.3.0.0/16", "allow good.example.org", "allow 10.1.0.0/16", "allow web.example.org", NULL};
        static const char *const outer[] = {"allow good.example.org", "allow 93.2.0.0/16", "allow 10.1.2.0/24", NULL};
        static const struct { const char *name, *address; RouteKind kind; } list[] = {
                {"good.example.org", "93.1.1.1/32", ROUTE_RESOLVE}, {"good.example.org", "93.3.1.1/32", ROUTE_DENIED},
                {"good.example.org", "10.1.2.1/32", ROUTE_RESOLVE}, {"good.example.org", "10.1.1.1/32", ROUTE_DENIED}, // private: both must name it
                {"web.example.org", "93.2.1.1/32", ROUTE_RESOLVE}, {"web.example.org", "93.4.1.1/32", ROUTE_DENIED}, // a name opens no address that the instance lacks
        };
        _cleanup_(compiled_freep) Compiled *compiled = compile(inner), *around = compile(outer);

        compiled_set_within(compiled, around);
        for (size_t i = 0; i < ELEMENTS(list); i++) {
                Cidr to = address(list[i].address);
                RouteQuestion question = {.name = list[i].name, .port = 443};
                Route route = route_admits(compiled, &question, &to);
                if (route.kind != list[i].kind || route_is_by_name(&route) != (list[i].kind != ROUTE_DENIED))
                        fail_msg("%s at %s: kind %d", list[i].name, list[i].address, (int) route.kind);
        }
}

// ---- meters

#define SECOND USEC_PER_SEC
#define DAY (86400 * SECOND)

static const MeterKey key = {"a", "p", "good.example.org 443"}, other_key = {"b", "p", "good.example.org 443"};

static void test_rate(void **state) {
        _cleanup_(meters_freep) Meters *meters = NULL;
        _cleanup_(meter_unrefp) Meter *meter = NULL;
        MeterTime now = {SECOND, DAY};
        uint64_t moved = 0;

        assert_int_equal(meters_new(-EBADF, &meters), 0);
        assert_int_equal(meter_ref(meters, &key, 1000000, 0, &meter), 0);
        for (; now.monotonic < 11 * SECOND; now.monotonic += MAX2(meter_delay(meter, &now), 1000)) {
                uint64_t n = MIN2(meter_allowance(meter, &now), 70000);
                meter_spend(meter, n, &now);
                moved += n;
        }
        assert_in_range(moved, 10000000, 11200000); // ten seconds, and one second's worth that was saved
        meter_spend(meter, 5000000, &now); // more than allowed: nothing for five seconds
        assert_int_equal(meter_allowance(meter, &now), 0);
        assert_in_range(meter_delay(meter, &now), 4 * SECOND, 6 * SECOND);
        assert_false(meter_is_spent(meter, &now));
}

static void test_budget(void **state) {
        char path[] = "meters-XXXXXX";
        int fd = mkostemp(path, O_CLOEXEC);
        MeterTime now = {SECOND, 20000 * DAY + 5}, tomorrow = {SECOND, 20001 * DAY};
        Meters *meters = NULL;
        Meter *meter = NULL, *same = NULL, *other = NULL;

        assert_true(fd >= 0);
        assert_int_equal(meters_new(dup(fd), &meters), 0);
        assert_int_equal(meter_ref(meters, &key, 0, 1000, &meter), 0);
        assert_int_equal(meter_ref(meters, &key, 0, 1000, &same), 0);
        assert_int_equal(meter_ref(meters, &other_key, 0, 1000, &other), 0);
        assert_ptr_equal(meter, same);
        assert_int_equal(meter_allowance(meter, &now), 1000);
        meter_spend(meter, 1500, &now);
        assert_int_equal(meter_allowance(same, &now), 0);
        assert_true(meter_is_spent(same, &now));
        assert_false(meter_is_spent(other, &now));
        (void) meter_unref(meter);
        (void) meter_unref(same);
        (void) meter_unref(other);
        (void) meters_free(meters);
        // Another process finds it, and the next day begins anew.
        assert_int_equal(meters_new(dup(fd), &meters), 0);
        assert_int_equal(meter_ref(meters, &key, 0, 2000, &meter), 0);
        assert_int_equal(meter_allowance(meter, &now), 500);
        assert_int_equal(meter_allowance(meter, &tomorrow), 2000);
        (void) meter_unref(meter);
        (void) meters_free(meters);
        // What is no such file is begun anew.
        assert_int_equal(pwrite(fd, "{\"text\": 1}", 11, 0), 11);
        assert_int_equal(meters_new(dup(fd), &meters), 0);
        assert_int_equal(meter_ref(meters, &key, 0, 2000, &meter), 0);
        assert_int_equal(meter_allowance(meter, &now), 2000);
        (void) meter_unref(meter);
        (void) meters_free(meters);
        (void) unlink(path);
        (void) close_fd(fd);
}

static void test_many_meters(void **state) {
        _cleanup_(meters_freep) Meters *meters = NULL;
        Meter *meter;
        char rule[32];

        assert_int_equal(meters_new(-EBADF, &meters), 0);
        for (unsigned i = 0; i < METERS_MAX; i++) {
                (void) snprintf(rule, sizeof(rule), "%u", i);
                assert_int_equal(meter_ref(meters, &(MeterKey) {"a", "p", rule}, 1, 0, &meter), 0);
                if (i == 7)
                        (void) meter_unref(meter);
        }
        assert_int_equal(meter_ref(meters, &key, 1, 0, &meter), 0); // in the place that nobody uses
        assert_int_equal(meter_ref(meters, &other_key, 1, 0, &meter), -ENOSPC);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_decide),
                cmocka_unit_test(test_nameless_without_denials),
                cmocka_unit_test(test_admits), cmocka_unit_test(test_within_decide), cmocka_unit_test(test_within_nameless), cmocka_unit_test(test_within_admits),
                cmocka_unit_test(test_rate),
                cmocka_unit_test(test_budget),
                cmocka_unit_test(test_many_meters),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
