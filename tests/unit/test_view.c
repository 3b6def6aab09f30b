// SPDX-License-Identifier: GPL-2.0-or-later
// Views: what is written is read back alike, and what was not written by hostd is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/strv.h"
#include "network/view_lists.h"

static void add(Policy *policy, const char *action, const char *to, PolicyProtocol protocol, const char *ports) {
        PolicyRule rule = {.action = policy_action_from_string(action), .to = strdup(to), .protocol = protocol, .ports = ports ? strdup(ports) : NULL};
        _cleanup_error_ Error err = ERROR_NULL;

        if (policy_add(policy, &rule, &err) < 0)
                fail_msg("%s", error_message(&err, 0));
}

static Compiled *example(void) {
        _cleanup_(policy_freep) Policy *a = NULL, *b = NULL;
        Compiled *compiled = NULL;

        assert_int_equal(policy_new("first", &a), 0);
        assert_int_equal(policy_new("second", &b), 0);
        add(a, "deny", "10.1.0.0/16", POLICY_TCP, "80,90-99");
        add(a, "allow", "0.0.0.0/0", POLICY_ANY, NULL);
        add(a, "allow", "::/0", POLICY_TCP, "24-26,25");
        add(a, "allow", "0.0.0.0/0", POLICY_TCP, "1-1024");
        add(b, "deny", "evil.example.org", POLICY_ANY, NULL);
        add(b, "deny", "*.evil.example.org", POLICY_TCP, NULL);
        add(b, "allow", "*", POLICY_ANY, NULL);
        add(b, "allow", "mail.example.org", POLICY_TCP, "25,465");
        add(b, "allow", "time.example.org", POLICY_UDP, "123");
        PolicyRule http = {.action = POLICY_ALLOW, .to = strdup("*.example.org"), .rate = 1000000, .budget = UINT64_C(5) << 40, .until = UINT64_C(2000000000123456)};
        assert_int_equal(strv_split("GET HEAD", " ", &http.methods), 0);
        assert_int_equal(strv_split("/a /b'&", " ", &http.paths), 0);
        assert_int_equal(policy_add(b, &http, NULL), 0);
        assert_int_equal(category_parse(POLICY_SPARED, NULL, "dns.example\n*.dns.example\n10.0.0.1\n", &b->spared, NULL), 0);
        assert_int_equal(compiled_new((Policy *[]) {a, b}, 2, &compiled, NULL), 0);
        for (size_t i = 0; i < compiled->n; i++)
                compiled->rules[i].id = (uint16_t) (compiled->rules[i].action == POLICY_ALLOW ? 17 + i : 0);
        return compiled;
}

static void assert_same_rule(const CompiledRule *a, const CompiledRule *b) {
        assert_int_equal(a->action, b->action);
        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->protocol, b->protocol);
        assert_memory_equal(&a->to, &b->to, sizeof(a->to));
        assert_int_equal(!a->name, !b->name);
        if (a->name)
                assert_string_equal(a->name, b->name);
        assert_int_equal(a->n_ports, b->n_ports);
        for (size_t i = 0; i < a->n_ports; i++)
                assert_true(a->ports[i].first == b->ports[i].first && a->ports[i].last == b->ports[i].last);
        assert_int_equal(a->spare_denied, b->spare_denied);
        assert_int_equal(a->spare_smtp, b->spare_smtp);
        assert_int_equal(a->inspect, b->inspect);
        assert_true(strv_equal(a->methods, b->methods) && strv_equal(a->paths, b->paths));
        assert_true(a->rate == b->rate && a->budget == b->budget && a->until == b->until);
        assert_true(a->index == b->index && a->policy == b->policy && a->id == b->id);
}

static void test_round_trip(void **state) {
        _cleanup_(compiled_freep) Compiled *compiled = example();
        char *types[] = {(char *) "TXT", (char *) "SRV", NULL}, *upstreams[] = {(char *) "192.0.2.1", (char *) "2001:db8::1", NULL};
        ViewSlot slots[] = {
                {.slot = 1, .ifname = "hv0001", .instance = (char *) "a", .ipv4 = "10.209.0.1", .ipv6 = "fd00::1", .dns = {200, 400, 100, types}, .compiled = compiled},
                {.slot = 0x7ff, .ifname = "hv07ff", .instance = (char *) "b", .ipv4 = "10.209.7.255", .ipv6 = "fd00::7ff", .offline = true, .destinations = 65536, .compiled = compiled},
        };
        uint16_t gone[] = {3, 65535};
        compiled->offline = true;
        View view = {.generation = 7, .whole = true, .upstreams = upstreams, .slots = slots, .n_slots = 2, .gone = gone, .n_gone = 2};
        _cleanup_(view_freep) View *read = NULL;
        _cleanup_free_ char *text = NULL, *again = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        size_t size;

        assert_int_equal(view_format(&view, &text, &size), 0);
        assert_int_equal(size, strlen(text));
        if (view_parse(text, size, &read, &err) < 0)
                fail_msg("%s", error_message(&err, 0));
        assert_true(read->generation == 7 && read->whole && strv_equal(read->upstreams, upstreams));
        assert_true(read->n_slots == 2 && read->n_gone == 2 && read->gone[1] == 65535);
        assert_string_equal(read->slots[0].instance, "a");
        assert_string_equal(read->slots[1].ifname, "hv07ff");
        assert_string_equal(read->slots[1].ipv6, "fd00::7ff");
        assert_true(read->slots[1].offline && !read->slots[0].offline);
        assert_true(read->slots[1].destinations == 65536 && read->slots[0].destinations == 0);
        assert_true(read->slots[0].dns.rate == 200 && read->slots[0].dns.burst == 400 && read->slots[0].dns.names == 100);
        assert_true(strv_equal(read->slots[0].dns.types, types));
        assert_int_equal(read->slots[1].compiled->n, compiled->n);
        for (size_t i = 0; i < compiled->n; i++)
                assert_same_rule(&compiled->rules[i], &read->slots[1].compiled->rules[i]);
        assert_true(category_equal(compiled->spared, read->slots[0].compiled->spared));
        assert_true(read->slots[0].compiled->offline);
        // the sentence is the same on both sides
        PolicyQuestion question = {.name = "x.evil.example.org", .protocol = POLICY_TCP, .port = 443};
        PolicyDecision d = policy_decide(read->slots[0].compiled, &question);
        char sentence[256];
        assert_string_equal(policy_decision_text(read->slots[0].compiled, &d, sentence, sizeof(sentence)), "denied by rule 2 of policy second: *.evil.example.org tcp");
        assert_int_equal(view_format(read, &again, NULL), 0);
        assert_string_equal(text, again);
}

static Compiled *allow(const char *to) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        Compiled *compiled = NULL;

        assert_int_equal(policy_new("p", &policy), 0);
        add(policy, "allow", to, POLICY_TCP, "443");
        assert_int_equal(compiled_new(&policy, 1, &compiled, NULL), 0);
        return compiled;
}

static View *reread(const ViewSlot *slots, size_t n, bool whole, uint16_t gone) {
        View view = {.generation = 1, .whole = whole, .slots = (ViewSlot *) slots, .n_slots = n, .gone = &gone, .n_gone = gone > 0}, *read = NULL;
        _cleanup_free_ char *text = NULL, *again = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        size_t size;

        assert_int_equal(view_format(&view, &text, &size), 0);
        if (view_parse(text, size, &read, &err) < 0)
                fail_msg("%s", error_message(&err, 0));
        assert_int_equal(view_format(read, &again, NULL), 0);
        assert_string_equal(text, again);
        return read;
}

static bool reaches(const ViewSlot *slot, const char *name) {
        PolicyQuestion question = {.name = name, .protocol = POLICY_TCP, .port = 443};

        return policy_decide(slot->compiled, &question).action == POLICY_ALLOW;
}

// A sandbox has its profile's list within its instance's, whichever of the three was told last. What is missing denies.
static void test_sandbox(void **state) {
        _cleanup_(compiled_freep) Compiled *wide = allow("*.example.org"), *narrow = allow("a.example.org"), *both = allow("*");
        ViewSlot instance = {.slot = 1, .ifname = "hv0001", .instance = (char *) "a", .ipv4 = "10.209.0.1", .ipv6 = "fd00::1", .compiled = wide};
        ViewSlot profile = {.slot = 0x800, .within = 1, .instance = (char *) "a", .compiled = both};
        ViewSlot sandbox = {.slot = 0x1001, .profile = 0x800, .ifname = "hvs0800x1001", .instance = (char *) "a", .sandbox = (char *) "sb1", .ipv4 = "10.209.16.1", .ipv6 = "fd00::1001",
                            .dns = {200, 400, 100, NULL}, .destinations = 7};
        _cleanup_(view_lists_done) ViewLists lists = {0};
        View *view = reread((ViewSlot[]) {instance, profile, sandbox}, 3, true, 0);
        ViewSlot kept;

        assert_int_equal(view_lists_apply(&lists, view), 0);
        kept = view->slots[2];
        view->slots[2] = (ViewSlot) {0}; // as a reader takes it over
        view_free(view);
        assert_true(kept.slot == 0x1001 && kept.around == 1 && kept.profile == 0x800 && kept.destinations == 7 && kept.dns.burst == 400);
        assert_string_equal(kept.sandbox, "sb1");
        assert_string_equal(kept.ifname, "hvs0800x1001");
        assert_true(reaches(&kept, "a.example.org") && reaches(&kept, "b.example.org") && !reaches(&kept, "a.example.net"));
        // the instance's rules change, and nothing is said of the sandbox
        instance.compiled = narrow;
        view = reread(&instance, 1, false, 0);
        assert_int_equal(view_lists_apply(&lists, view), 0);
        view_free(view);
        assert_true(reaches(&kept, "a.example.org") && !reaches(&kept, "b.example.org"));
        // the instance goes first
        view = reread(NULL, 0, false, 1);
        assert_int_equal(view_lists_apply(&lists, view), 0);
        view_free(view);
        assert_false(reaches(&kept, "a.example.org"));
        view_slot_done(&kept);
        // a sandbox whose profile was in no text
        view = reread(&sandbox, 1, true, 0);
        assert_int_equal(view_lists_apply(&lists, view), 0);
        assert_true(view->slots[0].around == 0 && !reaches(&view->slots[0], "a.example.org"));
        view_free(view);
        // a profile of a slot that is a profile, or not there, bounds nothing
        profile.within = 5;
        view = reread((ViewSlot[]) {profile, sandbox}, 2, true, 0);
        assert_int_equal(view_lists_apply(&lists, view), 0);
        assert_false(reaches(&view->slots[1], "a.example.org"));
        view_free(view);
}

#define VIEW(slot) "{\"generation\":1,\"whole\":true,\"upstreams\":[],\"slots\":[" slot "],\"gone\":[]}"
#define WIRE "\"ifname\":\"hvs0800x1001\",\"instance\":\"a\",\"ipv4\":\"10.0.0.1\",\"ipv6\":\"fd00::1\",\"offline\":false,\"dns\":{\"rate\":1,\"burst\":1,\"names\":1,\"types\":[]}"
#define SLOT(rules) "{\"generation\":1,\"whole\":true,\"upstreams\":[],\"slots\":[{\"slot\":1,\"ifname\":\"hv0001\",\"instance\":\"a\",\"ipv4\":\"10.0.0.1\"," \
                    "\"ipv6\":\"fd00::1\",\"offline\":false,\"dns\":{\"rate\":1,\"burst\":1,\"names\":1,\"types\":[]}," \
                    "\"policies\":[{\"name\":\"p\",\"first\":0,\"rules\":[" rules "]}]}],\"gone\":[]}"
#define RULE(more) SLOT("{\"action\":\"allow\",\"origin\":0,\"id\":1," more "}")

static void test_refused(void **state) {
        static const struct { const char *text; bool good; } cases[] = {
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\""), true},
                {RULE("\"to\":\"1.2.3.4\",\"protocol\":\"any\""), true},
                {SLOT(""), true},
                {"", false},
                {"{}", false},
                {"[]", false},
                {SLOT("") "x", false},
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\",\"secret\":\"x\""), false}, // unknown: perhaps a restriction
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\",\"to\":\"*\""), false},
                {RULE("\"to\":\"Example.org\",\"protocol\":\"tcp\""), false},
                {RULE("\"to\":\"@web\",\"protocol\":\"tcp\""), false},
                {RULE("\"to\":\"example.org\",\"protocol\":\"sctp\""), false},
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\",\"ports\":\"0\""), false},
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\",\"ports\":443"), false},
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\",\"methods\":[\"get\"]"), false},
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\",\"paths\":[\"/a/../b\"]"), false},
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\",\"inspect\":1"), false},
                {RULE("\"to\":\"example.org\",\"protocol\":\"tcp\",\"rate\":-1"), false},
                {RULE("\"to\":\"1.2.3.4\",\"protocol\":\"tcp\",\"inspect\":true"), false},
                {RULE("\"to\":\"1.2.3.4/8\",\"protocol\":\"tcp\""), false},
                {SLOT("{\"action\":\"allow\",\"origin\":-1,\"id\":1,\"to\":\"1.2.3.4\",\"protocol\":\"any\"}"), false},
                {SLOT("{\"action\":\"allow\",\"origin\":0,\"id\":65536,\"to\":\"1.2.3.4\",\"protocol\":\"any\"}"), false},
                {SLOT("{\"action\":\"allow\",\"id\":1,\"to\":\"1.2.3.4\",\"protocol\":\"any\"}"), false},
                {SLOT("null"), false},
                {"{\"generation\":1,\"whole\":true,\"upstreams\":[\"example.org\"],\"slots\":[],\"gone\":[]}", false},
                {"{\"generation\":1,\"whole\":true,\"upstreams\":[],\"slots\":[],\"gone\":[65536]}", false},
                {"{\"generation\":1,\"whole\":true,\"upstreams\":[],\"slots\":[{}],\"gone\":[]}", false},
                {VIEW("{\"slot\":2048,\"within\":1,\"instance\":\"a\",\"policies\":[]}"), true},
                {VIEW("{\"slot\":2048,\"within\":2049,\"instance\":\"a\",\"policies\":[]}"), false},
                {VIEW("{\"slot\":2048,\"within\":0,\"instance\":\"a\",\"policies\":[]}"), false},
                {VIEW("{\"slot\":7,\"within\":1,\"instance\":\"a\",\"policies\":[]}"), false},
                {VIEW("{\"slot\":2048,\"within\":1,\"instance\":\"a\",\"policies\":[],\"ifname\":\"hv0001\"}"), false},
                {VIEW("{\"slot\":4097,\"profile\":2048,\"sandbox\":\"sb\"," WIRE "}"), true},
                {VIEW("{\"slot\":4097,\"profile\":1,\"sandbox\":\"sb\"," WIRE "}"), false},
                {VIEW("{\"slot\":4097,\"profile\":0,\"sandbox\":\"sb\"," WIRE "}"), false},
                {VIEW("{\"slot\":7,\"profile\":2048,\"sandbox\":\"sb\"," WIRE "}"), false},
                {VIEW("{\"slot\":4097,\"profile\":2048,\"sandbox\":\"s b\"," WIRE "}"), false},
                {VIEW("{\"slot\":4097,\"profile\":2048,\"sandbox\":\"sb\",\"policies\":[]," WIRE "}"), false},
                {VIEW("{\"slot\":4097,\"policies\":[]," WIRE "}"), false}, // a list of its own: then nothing would bound it
                {"{\"generation\":1,\"whole\":1,\"upstreams\":[],\"slots\":[],\"gone\":[]}", false},
                {"{\"generation\":-1,\"whole\":true,\"upstreams\":[],\"slots\":[],\"gone\":[]}", false},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(view_freep) View *view = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                int r = view_parse(cases[i].text, strlen(cases[i].text), &view, &err);
                if ((r >= 0) != cases[i].good)
                        fail_msg("%zu %s: %s", i, cases[i].text, error_message(&err, r));
                if (r < 0)
                        assert_string_not_equal(err.message, "");
        }
}

// Each part has some slots, all together have each that fits once, and the last says which these are.
static void test_parts(void **state) {
        _cleanup_(compiled_freep) Compiled *compiled = example(), *large = NULL;
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_strv_ char **one = NULL, **parts = NULL, **changed = NULL;
        _cleanup_(view_freep) View *last = NULL;
        enum { SLOTS = 11, LARGE = 6 };
        ViewSlot slots[SLOTS];
        bool too_large[SLOTS];
        unsigned seen[SLOTS + 1] = {0};
        size_t size, n, max;
        _cleanup_free_ char *text = NULL;

        assert_int_equal(policy_new("large", &policy), 0);
        for (unsigned i = 0; i < 200; i++) {
                char to[64];
                (void) snprintf(to, sizeof(to), "n%u.example.org", i);
                add(policy, "allow", to, POLICY_TCP, NULL);
        }
        assert_int_equal(compiled_new(&policy, 1, &large, NULL), 0);
        for (unsigned i = 0; i < SLOTS; i++)
                slots[i] = (ViewSlot) {.slot = (uint16_t) (i + 1), .ifname = "hv0001", .instance = (char *) "a", .ipv4 = "10.209.0.1", .ipv6 = "fd00::1",
                                       .compiled = i == LARGE ? large : compiled};
        View view = {.generation = 5, .whole = true, .slots = slots, .n_slots = LARGE};
        assert_int_equal(view_format(&view, &text, &size), 0);
        max = size / 2;
        assert_int_equal(view_format_parts(&view, size, &one, too_large), 0);
        assert_int_equal(strv_length(one), 1);
        assert_string_equal(one[0], text);
        view.n_slots = SLOTS;
        assert_int_equal(view_format_parts(&view, max, &parts, too_large), 0);
        n = strv_length(parts);
        assert_in_range(n, 4, SLOTS + 1);
        for (size_t i = 0; i < n; i++) {
                _cleanup_(view_freep) View *part = NULL;
                assert_in_range(strlen(parts[i]), 1, max);
                assert_int_equal(view_parse(parts[i], strlen(parts[i]), &part, NULL), 0);
                assert_int_equal(part->generation, 5);
                assert_true(part->whole == (i == n - 1));
                assert_true(part->n_slots > 0 || i == n - 1);
                for (size_t k = 0; k < part->n_slots; k++)
                        seen[part->slots[k].slot]++;
                if (i == n - 1)
                        last = TAKE_PTR(part);
        }
        for (unsigned i = 0; i < SLOTS; i++) {
                assert_true(too_large[i] == (i == LARGE));
                assert_int_equal(seen[i + 1], i != LARGE);
                assert_true(view_ends(last, (uint16_t) (i + 1)) == (i == LARGE));
        }
        assert_true(view_ends(last, SLOTS + 1)); // of nobody any more
        // What changed: the rest stays, the large one goes.
        view.whole = false;
        assert_int_equal(view_format_parts(&view, max, &changed, too_large), 0);
        last = view_free(last);
        assert_int_equal(view_parse(changed[strv_length(changed) - 1], strlen(changed[strv_length(changed) - 1]), &last, NULL), 0);
        assert_true(view_ends(last, LARGE + 1) && !view_ends(last, 1) && !view_ends(last, SLOTS + 1));
}

// Says what a large policy costs; what it decides is checked.
static void test_large(void **state) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        _cleanup_(view_freep) View *read = NULL;
        _cleanup_free_ char *text = NULL;
        usec_t t[5], best = USEC_INFINITY;
        size_t size, hits = 0;

        assert_int_equal(policy_new("large", &policy), 0);
        for (unsigned i = 0; i < 1100; i++) {
                char to[64];
                if (i < 1000)
                        snprintf(to, sizeof(to), "%sn%u.example.org", i % 4 ? "" : "*.", i);
                else
                        snprintf(to, sizeof(to), "93.1.%u.0/24", i - 1000);
                add(policy, i % 50 ? "allow" : "deny", to, POLICY_TCP, i % 3 ? NULL : "443,8443");
        }
        for (unsigned round = 0; round < 5; round++) {
                t[0] = clock_monotonic();
                compiled = compiled_free(compiled);
                assert_int_equal(compiled_new(&policy, 1, &compiled, NULL), 0);
                best = MIN2(best, clock_monotonic() - t[0]);
        }
        ViewSlot slot = {.slot = 1, .ifname = "hv0001", .instance = (char *) "a", .ipv4 = "10.209.0.1", .ipv6 = "fd00::1", .compiled = compiled};
        View view = {.slots = &slot, .n_slots = 1};
        t[1] = clock_monotonic();
        assert_int_equal(view_format(&view, &text, &size), 0);
        t[2] = clock_monotonic();
        assert_int_equal(view_parse(text, size, &read, NULL), 0);
        t[3] = clock_monotonic();
        for (unsigned i = 0; i < 100000; i++) {
                char name[64];
                snprintf(name, sizeof(name), "a.n%u.example.org", i % 1000);
                PolicyQuestion question = {.name = name, .protocol = POLICY_TCP, .port = 443};
                hits += policy_decide(compiled, &question).index >= 0;
        }
        t[4] = clock_monotonic();
        print_message("1000 names, 100 networks: compiled in %llu us, view of %zu bytes written in %llu us, read in %llu us; a decision takes %llu ns\n",
                      (unsigned long long) best, size, (unsigned long long) (t[2] - t[1]), (unsigned long long) (t[3] - t[2]), (unsigned long long) (t[4] - t[3]) / 100);
        assert_int_equal(hits, 25000);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_sandbox), cmocka_unit_test(test_refused), cmocka_unit_test(test_parts), cmocka_unit_test(test_large)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
