// SPDX-License-Identifier: GPL-2.0-or-later
// Approvals: what a guest may ask for and how often, what becomes of a yes and a no, and what a restart of hostd finds. A manager with a store
// and without a kernel; the guest's end of the channel is the test's own.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include <netinet/in.h>

#include "core/approvals.h"
#include "core/guest.h"
#include "core/manager.h"

typedef struct World {
        Manager m;
        Desired desired;
        Instance *a, *b;
        int guest; // a's end
} World;

static Instance *instance_make(World *w, const char *name, uint16_t slot) {
        StoreInstance record = {.slot = slot};

        (void) snprintf(record.name, sizeof(record.name), "%s", name);
        return instance_new(&w->m, &record, NULL);
}

static int setup(void **state) {
        World *w = calloc(1, sizeof(*w));
        int pair[2];

        w->m.desired = &w->desired;
        w->m.bus = event_bus_new();
        assert_int_equal(sd_event_new(&w->m.event), 0);
        assert_true(store_open(":memory:", &w->m.store, NULL) >= 0);
        assert_int_equal(approvals_open(&w->m, NULL), 0);
        w->a = instance_make(w, "a", 1);
        w->b = instance_make(w, "b", 2);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        static const GuestChannelHandlers none;
        GuestChannelConfig config = {.event = w->m.event, .fd = pair[0], .handlers = &none};
        assert_int_equal(guest_channel_new(&config, &w->a->guest, NULL), 0);
        w->guest = pair[1];
        GuestHeader hello;
        assert_int_equal(recv(w->guest, &hello, sizeof(hello), 0), sizeof(hello));
        *state = w;
        return 0;
}

static int teardown(void **state) {
        World *w = *state;

        w->a->guest = guest_channel_free(w->a->guest);
        (void) close(w->guest);
        w->m.approvals = approvals_free(w->m.approvals);
        while (w->m.instances.first)
                (void) instance_free(w->m.instances.first);
        event_bus_free(w->m.bus);
        store_close(w->m.store);
        sd_event_unref(w->m.event);
        free(w);
        return 0;
}

static GuestAsk ask_for(const char *to, uint16_t port, const char *reason) {
        GuestAsk ask = {.header = {.magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = GUEST_ASK, .size = sizeof(ask), .value = 1000}, .port = port, .protocol = IPPROTO_TCP};

        (void) snprintf(ask.header.id, sizeof(ask.header.id), "ask1");
        (void) snprintf(ask.to, sizeof(ask.to), "%s", to);
        (void) snprintf(ask.reason, sizeof(ask.reason), "%s", reason);
        return ask;
}

// What the guest is told next; state -1: nothing.
static GuestAnswer heard(const World *w) {
        GuestAnswer answer = {.header.value = UINT32_MAX};

        (void) !recv(w->guest, &answer, sizeof(answer), MSG_DONTWAIT);
        return answer;
}

static GuestAnswer ask(World *w, const char *to, uint16_t port) {
        GuestAsk ask = ask_for(to, port, "for a test");

        approvals_ask(&w->m, w->a, &ask);
        return heard(w);
}

static void reopen(World *w) {
        w->m.approvals = approvals_free(w->m.approvals);
        assert_int_equal(approvals_open(&w->m, NULL), 0);
}

static size_t listed(const World *w, const char *name, bool all) {
        json_t *list = approvals_list(&w->m, name, all);
        size_t n = json_array_size(list);

        json_decref(list);
        return n;
}

static bool was_told(const World *w, const char *type) {
        json_t *events = event_recent(w->m.bus, "a"), *event;
        bool found = false;
        size_t i;

        json_array_foreach(events, i, event)
                found = found || strcmp(json_string_value(json_object_get(event, "type")), type) == 0;
        json_decref(events);
        return found;
}

static void test_frames(void **state) {
        GuestAsk good = ask_for("example.org", 443, "because"), status = {.header = good.header}, bad, ret;

        assert_int_equal(guest_ask_decode(&good, sizeof(good), &ret), 0);
        assert_string_equal(ret.to, "example.org");
        status.header.flags = 7;
        assert_int_equal(guest_ask_decode(&status, sizeof(status), &ret), 0);
        assert_int_equal(guest_ask_decode(&good, sizeof(good) - 1, &ret), -EBADMSG);
        assert_int_equal(guest_ask_decode(&good, sizeof(good.header), &ret), -EBADMSG);
        for (int i = 0; i < 15; i++) {
                bad = good;
                switch (i) {
                case 0: bad.header.magic++; break;
                case 1: bad.header.version++; break;
                case 2: bad.header.type = GUEST_ANSWER; break;
                case 3: bad.header.size--; break;
                case 4: bad.header.id[0] = 0; break;
                case 5: bad.header.id[0] = 'A'; break;
                case 6: bad.port = 0; break;
                case 7: bad.protocol = IPPROTO_ICMP; break;
                case 8: bad.zero[4] = 1; break;
                case 9: bad.to[sizeof(bad.to) - 1] = 'x'; break;
                case 10: memset(bad.reason, 'x', sizeof(bad.reason)); break;
                case 11: bad.reason[0] = 0; break;
                case 12: (void) snprintf(bad.reason, sizeof(bad.reason), "a\x1b[31mred"); break;
                case 13: (void) snprintf(bad.to, sizeof(bad.to), "a b"); break;
                case 14: bad.header.flags = 7; break; // a status has nothing else
                }
                if (guest_ask_decode(&bad, sizeof(bad), &ret) != -EBADMSG)
                        fail_msg("packet %d is taken", i);
        }
}

static void test_text(void **state) {
        _cleanup_(approval_freep) Approval *read = NULL;
        Approval a = {.number = 12, .instance = "a", .to = "example.org", .reason = "why \"not\" \xc3\xa9", .port = 443, .protocol = IPPROTO_UDP, .uid = 1000,
                      .state = APPROVAL_ENDED, .asked = 1, .decided = 2, .until = 3, .by = "root", .answer = "no"};
        static const char *const bad[] = {"", "{}", "[]", "{\"number\":0}", NULL};
        json_t *json = approval_json(&a);
        _cleanup_free_ char *text = json_dumps(json, 0);

        assert_int_equal(approval_parse(text, &read), 0);
        assert_memory_equal(read, &a, sizeof(a));
        for (const char *const *p = bad; *p; p++)
                assert_int_equal(approval_parse(*p, &read), -EINVAL);
        const struct { const char *key; json_t *value; } wrong[] = {
                {"number", json_integer(0)}, {"port", json_integer(65536)}, {"protocol", json_integer(1)}, {"state", json_string("maybe")}, {"to", json_string("a b")},
                {"reason", json_string("a\nb")}, {"instance", json_string("../a")}, {"until", json_integer(-1)}, {"more", json_integer(1)},
        };
        for (size_t i = 0; i < ELEMENTS(wrong); i++) {
                json_t *copy = json_copy(json);
                json_object_set_new(copy, wrong[i].key, wrong[i].value);
                char *line = json_dumps(copy, 0);
                if (approval_parse(line, &read) != -EINVAL)
                        fail_msg("a wrong %s is taken", wrong[i].key);
                free(line);
                json_decref(copy);
        }
        json_decref(json);
        for (ApprovalState s = 0; s < _APPROVAL_STATE_MAX; s++)
                assert_int_equal(approval_state_from_string(approval_state_to_string(s)), s);
}

static void test_rules(void **state) {
        static const struct { const char *to; uint8_t protocol; uint16_t port; bool rule, danger; } cases[] = {
                {"example.org", IPPROTO_TCP, 443, true, false}, {"*.example.org", IPPROTO_TCP, 8443, true, false}, {"93.1.2.3", IPPROTO_UDP, 53, true, false},
                {"93.1.2.0/24", IPPROTO_TCP, 22, true, false},  {"2a00::/16", IPPROTO_TCP, 22, true, false},         {"10.1.2.3", IPPROTO_TCP, 22, true, true},
                {"169.254.169.254", IPPROTO_TCP, 80, true, true}, {"fd00::1", IPPROTO_TCP, 22, true, true},          {"10.0.0.0/8", IPPROTO_TCP, 22, true, true},
                {"example.org", IPPROTO_TCP, 25, true, true},   {"93.1.2.3", IPPROTO_TCP, 25, true, true},          {"93.1.2.3", IPPROTO_UDP, 25, true, false},
                {"dns.example", IPPROTO_TCP, 443, true, true},  {"a.dns.example", IPPROTO_TCP, 443, true, true},    {"*", IPPROTO_TCP, 443, false, false},
                {"@web", IPPROTO_TCP, 443, false, false},       {"0.0.0.0/0", IPPROTO_TCP, 443, false, false},      {"0.0.0.0/7", IPPROTO_TCP, 443, false, false},
                {"::/8", IPPROTO_TCP, 443, false, false},       {"*.com", IPPROTO_TCP, 443, false, false},          {"example", IPPROTO_TCP, 443, false, false},
                {"10.0.0.1/8", IPPROTO_TCP, 443, false, false}, {"1.2.3", IPPROTO_TCP, 443, false, false},          {"example.org", IPPROTO_UDP, 443, false, false},
        };
        _cleanup_(category_freep) Category *doh = NULL;

        assert_int_equal(category_parse("doh", NULL, "dns.example\n*.dns.example\n", &doh, NULL), 0);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                Approval a = {.number = 7, .port = cases[i].port, .protocol = cases[i].protocol, .until = 99};
                (void) snprintf(a.to, sizeof(a.to), "%s", cases[i].to);
                if ((approval_rule(&a, &policy, NULL) == 0) != cases[i].rule)
                        fail_msg("%s: rule", cases[i].to);
                if (cases[i].rule && (approval_danger(&a, doh) != NULL) != cases[i].danger)
                        fail_msg("%s %u: danger", cases[i].to, cases[i].port);
                if (!policy)
                        continue;
                assert_string_equal(policy->name, "grant-7");
                assert_true(policy->n_rules == 1 && policy->rules[0].until == 99 && policy->rules[0].action == POLICY_ALLOW);
        }
}

static void test_asking(void **state) {
        World *w = *state;
        GuestAnswer answer = ask(w, "example.org", 443);
        GuestAsk status = {.header = {.flags = 1}}, other = ask_for("example.org", 443, "for a test");

        assert_int_equal(answer.header.value, GUEST_ASK_PENDING);
        assert_string_equal(answer.header.id, "ask1");
        assert_int_equal(answer.number, 1);
        assert_true(was_told(w, "approval-asked"));
        assert_int_equal(listed(w, NULL, false), 1);
        assert_int_equal(listed(w, "b", false), 0);
        // Once more is the same; another port is another one; what cannot be granted is not taken.
        assert_int_equal(ask(w, "example.org", 443).number, 1);
        assert_int_equal(ask(w, "example.org", 80).number, 2);
        answer = ask(w, "*.com", 443);
        assert_true(answer.header.value == GUEST_ASK_REFUSED && answer.number == 0 && strstr(answer.text, "to \"*.com\" is too wide"));
        assert_int_equal(ask(w, "*", 443).header.value, GUEST_ASK_REFUSED);
        assert_int_equal(listed(w, NULL, true), 2);
        // A status; not another instance's.
        approvals_ask(&w->m, w->a, &status);
        assert_int_equal(heard(w).header.value, GUEST_ASK_PENDING);
        w->b->guest = w->a->guest;
        approvals_ask(&w->m, w->b, &status);
        assert_int_equal(heard(w).header.value, GUEST_ASK_REFUSED);
        approvals_ask(&w->m, w->b, &other);
        assert_int_equal(heard(w).number, 3);
        w->b->guest = NULL;
        reopen(w);
        assert_int_equal(listed(w, NULL, false), 3);
        assert_int_equal(ask(w, "example.net", 443).number, 4); // never a number again
}

static void test_bounds(void **state) {
        World *w = *state;
        unsigned pending = 0, refused = 0;

        for (unsigned i = 0; i < 200; i++) {
                char to[32];
                (void) snprintf(to, sizeof(to), "h%u.example.org", i);
                GuestAnswer answer = ask(w, to, 443);
                pending += answer.header.value == GUEST_ASK_PENDING;
                refused += answer.header.value == GUEST_ASK_REFUSED;
        }
        assert_int_equal(pending, 10); // at once; then one in six seconds
        assert_in_range(refused, 40, 64); // what comes faster than hostd listens is not even answered
        assert_int_equal(listed(w, NULL, true), 10);
        // However slowly: so many wait for an answer.
        for (unsigned i = 0; i < 10; i++) {
                reopen(w); // begins with a new pace
                char to[32];
                (void) snprintf(to, sizeof(to), "g%u.example.org", i);
                pending += ask(w, to, 443).header.value == GUEST_ASK_PENDING;
        }
        assert_int_equal(pending, APPROVALS_PENDING);
}

static void test_deciding(void **state) {
        World *w = *state;
        _cleanup_error_ Error err = ERROR_NULL;
        const ApproveTerms terms = {.span = 600 * USEC_PER_SEC, .by = "root"};
        GuestAnswer answer;
        const Approval *a;

        assert_int_equal(ask(w, "example.org", 443).number, 1);
        assert_int_equal(ask(w, "10.1.2.3", 22).number, 2);
        assert_int_equal(approvals_approve(&w->m, 9, &terms, NULL), -ENOENT);
        assert_int_equal(approvals_approve(&w->m, 1, &terms, NULL), 0);
        a = approvals_find(&w->m, 1);
        assert_true(a->state == APPROVAL_APPROVED && a->policy && a->until > clock_realtime() + 590 * USEC_PER_SEC);
        answer = heard(w);
        assert_true(answer.header.value == GUEST_ASK_APPROVED && answer.number == 1 && answer.until == a->until && answer.header.id[0] == 0);
        assert_int_equal(ask(w, "example.org", 443).header.value, GUEST_ASK_APPROVED); // who asks again is told at once
        // What is closed by default is not approved by the way.
        assert_true(approvals_approve(&w->m, 2, &terms, &err) < 0);
        assert_int_equal(err.code, ERR_DENIED);
        assert_non_null(strstr(err.message, "approve 2 --to 10.1.2.3"));
        assert_true(approvals_approve(&w->m, 2, &(ApproveTerms) {.to = "10.1.2.4", .by = "root"}, NULL) < 0);
        assert_int_equal(approvals_find(&w->m, 2)->state, APPROVAL_PENDING);
        assert_int_equal(approvals_approve(&w->m, 2, &(ApproveTerms) {.to = "10.1.2.3", .by = "root"}, NULL), 0);
        a = approvals_find(&w->m, 2);
        assert_in_range(a->until - a->decided, APPROVAL_SPAN, APPROVAL_SPAN);
        (void) heard(w);
        reopen(w); // both are in force again
        assert_true(approvals_find(&w->m, 1)->policy && approvals_find(&w->m, 2)->policy);
        assert_int_equal(approvals_deny(&w->m, 1, "not any more", "root", NULL), 0);
        answer = heard(w);
        assert_true(answer.header.value == GUEST_ASK_ENDED && strcmp(answer.text, "not any more") == 0);
        assert_null(approvals_find(&w->m, 1)->policy);
        assert_int_equal(approvals_deny(&w->m, 1, NULL, "root", NULL), -error_code_info(ERR_CONFLICT)->errnum);
        assert_int_equal(ask(w, "example.net", 443).number, 3);
        assert_int_equal(approvals_deny(&w->m, 3, NULL, "root", NULL), 0);
        assert_int_equal(heard(w).header.value, GUEST_ASK_DENIED);
        reopen(w);
        assert_true(approvals_find(&w->m, 1)->state == APPROVAL_ENDED && approvals_find(&w->m, 3)->state == APPROVAL_DENIED);
        assert_int_equal(ask(w, "example.net", 443).number, 4); // a no is no answer to the next request
        assert_int_equal(listed(w, NULL, false), 1);
        assert_int_equal(listed(w, NULL, true), 4);
        assert_int_equal(approvals_forget_instance(&w->m, "a", NULL), 0);
        reopen(w);
        assert_int_equal(listed(w, NULL, true), 0);
}

static void loop_for(World *w, usec_t span) {
        usec_t end = clock_monotonic() + span;

        while (clock_monotonic() < end)
                (void) sd_event_run(w->m.event, 20 * USEC_PER_MSEC);
}

// By itself, and at the start of a hostd that was not there at its time.
static void test_ending(void **state) {
        World *w = *state;
        const ApproveTerms terms = {.span = 300 * USEC_PER_MSEC, .by = "root"};
        GuestAnswer answer;

        assert_int_equal(ask(w, "example.org", 443).number, 1);
        assert_int_equal(approvals_approve(&w->m, 1, &terms, NULL), 0);
        (void) heard(w);
        loop_for(w, 800 * USEC_PER_MSEC);
        answer = heard(w);
        assert_true(answer.header.value == GUEST_ASK_ENDED && answer.number == 1);
        assert_true(approvals_find(&w->m, 1)->state == APPROVAL_ENDED && !approvals_find(&w->m, 1)->policy);
        assert_true(was_told(w, "approval-ended"));
        assert_int_equal(approvals_approve(&w->m, 1, &terms, NULL), 0); // an operator may think again
        (void) heard(w);
        w->m.approvals = approvals_free(w->m.approvals);
        (void) usleep(400000);
        assert_int_equal(approvals_open(&w->m, NULL), 0);
        loop_for(w, 200 * USEC_PER_MSEC);
        assert_int_equal(heard(w).header.value, GUEST_ASK_ENDED);
        assert_int_equal(approvals_find(&w->m, 1)->state, APPROVAL_ENDED);
        // One that nobody answers.
        assert_int_equal(store_value_set(w->m.store, "approval.5",
                                         "{\"number\":5,\"instance\":\"a\",\"to\":\"example.org\",\"reason\":\"x\",\"port\":443,\"protocol\":6,\"uid\":0,\"state\":\"pending\","
                                         "\"asked\":1,\"decided\":0,\"until\":0,\"by\":\"\",\"answer\":\"\"}", NULL), 0);
        assert_int_equal(store_value_set(w->m.store, "approval.6", "broken", NULL), 0);
        reopen(w);
        loop_for(w, 200 * USEC_PER_MSEC);
        assert_int_equal(approvals_find(&w->m, 5)->state, APPROVAL_LAPSED);
        assert_null(approvals_find(&w->m, 6));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_frames),
                cmocka_unit_test(test_text),
                cmocka_unit_test(test_rules),
                cmocka_unit_test_setup_teardown(test_asking, setup, teardown),
                cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
                cmocka_unit_test_setup_teardown(test_deciding, setup, teardown),
                cmocka_unit_test_setup_teardown(test_ending, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
