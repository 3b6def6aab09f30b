// SPDX-License-Identifier: GPL-2.0-or-later
// Verdict: what a view says to questions and to the addresses of answers.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "resolver/verdict.h"

#define RULE(action, to, more) "{\"action\":\"" action "\",\"to\":\"" to "\",\"origin\":0,\"id\":1," more "}"
#define TCP443 "\"protocol\":\"tcp\",\"ports\":\"443\""
#define TCP22 "\"protocol\":\"tcp\",\"ports\":\"22\""
#define EVERY "\"protocol\":\"any\""

static ViewSlot *view_of(const char *rules, const char *types) {
        static View *view;
        char text[4096];
        Error err = ERROR_NULL;

        view = view_free(view);
        if (!rules)
                return NULL;
        (void) snprintf(text, sizeof(text),
                        "{\"generation\":1,\"whole\":true,\"upstreams\":[],\"gone\":[],\"slots\":[{\"slot\":1,\"ifname\":\"hv0001\",\"instance\":\"a\",\"ipv4\":\"10.99.0.1\","
                        "\"ipv6\":\"fd00::1\",\"offline\":false,\"dns\":{\"rate\":200,\"burst\":400,\"names\":3,\"types\":[%s]},\"policies\":[{\"name\":\"web\",\"first\":0,\"rules\":[%s]}]}]}",
                        types, rules);
        if (view_parse(text, strlen(text), &view, &err) < 0)
                fail_msg("%s", err.message);
        return &view->slots[0];
}

static Verdict ask(const ViewSlot *slot, Zones *zones, const char *name, uint16_t type) {
        Verdict verdict;
        DnsName wire;

        assert_int_equal(dns_name_from_text(name, &wire), 0);
        verdict_of(slot, zones, &(VerdictQuestion) {&wire, type, DNS_CLASS_IN, USEC_PER_SEC}, &verdict);
        return verdict;
}

static void test_questions(void **state) {
        static const char rules[] = RULE("deny", "evil.example.org", EVERY) "," RULE("allow", "*.example.org", TCP443) "," RULE("allow", "ssh.example.net", TCP22);
        static const struct { const char *name; uint16_t type; bool pass, answered; DnsRcode rcode; DnsEde ede; const char *text; } rows[] = {
                {"a.example.org", DNS_A, true, false, DNS_NOERROR, DNS_EDE_NONE, ""},
                {"ssh.example.net", DNS_AAAA, true, false, DNS_NOERROR, DNS_EDE_NONE, ""},
                {"evil.example.org", DNS_A, false, false, DNS_REFUSED, DNS_EDE_BLOCKED, "policy web"},
                {"evil.example.org", DNS_ANY, false, false, DNS_REFUSED, DNS_EDE_BLOCKED, "policy web"},
                {"a.evil.example.org", DNS_A, true, false, DNS_NOERROR, DNS_EDE_NONE, ""},
                {"example.org", DNS_A, false, false, DNS_REFUSED, DNS_EDE_BLOCKED, ""},
                {"example.net", DNS_A, false, false, DNS_REFUSED, DNS_EDE_BLOCKED, ""},
                {".", DNS_A, false, false, DNS_REFUSED, DNS_EDE_BLOCKED, ""},
                {"1.2.3.4", DNS_A, false, false, DNS_REFUSED, DNS_EDE_BLOCKED, ""},
                {"4.3.2.1.in-addr.arpa", DNS_PTR, false, false, DNS_REFUSED, DNS_EDE_BLOCKED, ""},
                {"a.example.org", DNS_HTTPS, false, true, DNS_NOERROR, DNS_EDE_NONE, ""},
                {"a.example.org", DNS_SVCB, false, true, DNS_NOERROR, DNS_EDE_NONE, ""},
                {"b.example.net", DNS_HTTPS, false, false, DNS_REFUSED, DNS_EDE_BLOCKED, ""},
                {"a.example.org", DNS_TXT, false, false, DNS_REFUSED, DNS_EDE_FILTERED, "TXT"},
                {"a.example.org", DNS_ANY, false, false, DNS_REFUSED, DNS_EDE_FILTERED, "ANY"},
                {"a.example.org", DNS_OPT, false, false, DNS_REFUSED, DNS_EDE_FILTERED, "TYPE41"},
                {"localhost", DNS_MX, false, true, DNS_NOERROR, DNS_EDE_NONE, ""},
                {"x.onion", DNS_A, false, true, DNS_NXDOMAIN, DNS_EDE_NONE, ""},
        };
        const ViewSlot *slot = view_of(rules, "\"CAA\"");
        Zones zones = {0};

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                Verdict v = ask(slot, &zones, rows[i].name, rows[i].type);
                assert_int_equal(v.pass, rows[i].pass);
                assert_int_equal(v.answered, rows[i].answered);
                assert_int_equal(v.rcode, rows[i].rcode);
                assert_int_equal(v.ede, rows[i].ede);
                assert_non_null(strstr(v.text, rows[i].text));
        }
        assert_true(ask(slot, &zones, "a.example.org", 257).pass); // CAA
        assert_int_equal(ask(slot, &zones, "localhost", DNS_A).size, 8);
        assert_int_equal(ask(slot, &zones, "x.localhost", DNS_AAAA).size, 20);
        zones_done(&zones);
}

static void test_any_address_means_any_name(void **state) {
        const ViewSlot *slot = view_of(RULE("deny", "evil.example.org", EVERY) "," RULE("allow", "0.0.0.0/0", EVERY), "");
        Zones zones = {0};

        assert_true(ask(slot, &zones, "whatever.example", DNS_A).pass);
        assert_false(ask(slot, &zones, "evil.example.org", DNS_A).pass);
        // Of that family: what would be cut off is not answered.
        Verdict v = ask(slot, &zones, "whatever.example", DNS_AAAA);
        assert_true(v.answered && !v.pass && v.rcode == DNS_NOERROR && v.size == 0);
        slot = view_of(RULE("allow", "0.0.0.0/0", EVERY) "," RULE("allow", "named.example.org", TCP443) "," RULE("allow", "::/0", TCP443), "");
        assert_true(ask(slot, &zones, "whatever.example", DNS_A).pass && ask(slot, &zones, "whatever.example", DNS_AAAA).pass);
        slot = view_of(RULE("allow", "::/0", TCP443) "," RULE("allow", "named.example.org", TCP443), "");
        assert_true(ask(slot, &zones, "whatever.example", DNS_A).answered && ask(slot, &zones, "named.example.org", DNS_A).pass);
        slot = view_of(RULE("allow", "20.0.0.0/8", EVERY), "");
        assert_false(ask(slot, &zones, "whatever.example", DNS_A).pass);
        slot = view_of("", "");
        assert_false(ask(slot, &zones, "whatever.example", DNS_A).pass);
        zones_done(&zones);
}

static void test_names_of_a_zone(void **state) {
        const ViewSlot *slot = view_of(RULE("allow", "a.b.example.org", TCP443) "," RULE("allow", "*.example.org", TCP443), "");
        Zones zones = {0};
        Verdict v;

        assert_true(ask(slot, &zones, "1.example.org", DNS_A).pass);
        assert_true(ask(slot, &zones, "2.example.org", DNS_A).pass);
        assert_true(ask(slot, &zones, "3.x.example.org", DNS_A).pass);
        v = ask(slot, &zones, "4.example.org", DNS_A);
        assert_int_equal(v.rcode, DNS_REFUSED);
        assert_int_equal(v.ede, DNS_EDE_FILTERED);
        assert_false(v.pass);
        assert_true(ask(slot, &zones, "1.example.org", DNS_AAAA).pass);
        assert_true(ask(slot, &zones, "a.b.example.org", DNS_A).pass); // named by a rule: not counted
        zones_done(&zones);
}

static DnsAnswer *records_of(const char *const *addresses) {
        static DnsAnswer answer;

        answer = DNS_ANSWER_NULL;
        assert_int_equal(dns_answer_add(&answer, DNS_CNAME, "\1a\0", 3), 0);
        for (; *addresses; addresses++) {
                Cidr cidr;
                assert_int_equal(cidr_parse(*addresses, &cidr), 0);
                assert_int_equal(dns_answer_add(&answer, strchr(*addresses, ':') ? DNS_AAAA : DNS_A, cidr.bytes, strchr(*addresses, ':') ? 16 : 4), 0);
        }
        return &answer;
}

static void test_addresses(void **state) {
        static const struct { const char *list[4]; bool good, good_inside; } rows[] = {
                {{"20.0.0.1", "2a00::1"}, true, true},        {{"10.1.2.3"}, false, true},           {{"10.2.2.3"}, false, false}, {{"20.0.0.1", "10.2.0.1"}, false, false},
                {{"169.254.169.254"}, false, false},          {{"::ffff:10.1.2.3"}, false, false},   {{"127.0.0.1"}, false, false}, {{"fd00::1"}, false, false},
                {{"64:ff9b::a01:203"}, false, false},         {{"100.64.0.1", "20.0.0.1"}, false, false}, {{NULL}, true, true},
        };
        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                DnsAnswer *answer = records_of(rows[i].list);
                Verdict v = {.pass = true};
                assert_int_equal(verdict_of_addresses(view_of(RULE("allow", "*", TCP443), ""), answer->bytes, answer->size, &v), rows[i].good);
                assert_int_equal(v.pass, rows[i].good);
                assert_int_equal(v.rcode, rows[i].good ? DNS_NOERROR : DNS_REFUSED);
                assert_int_equal(verdict_of_addresses(view_of(RULE("allow", "*", TCP443) "," RULE("allow", "10.1.0.0/16", EVERY), ""), answer->bytes, answer->size, &v),
                                 rows[i].good_inside);
        }
}

static void test_cut(void **state) {
        static const char *const list[] = {"20.0.0.1", "20.0.0.2", "20.0.0.3", NULL};
        DnsAnswer *answer = records_of(list);

        assert_int_equal(records_cut(answer->bytes, answer->size, 3), answer->size);
        assert_int_equal(records_cut(answer->bytes, answer->size, 2), answer->size - 8);
        assert_int_equal(records_cut(answer->bytes, answer->size, 0), 7);
}

static int teardown(void **state) {
        (void) view_of(NULL, NULL);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_questions),
                cmocka_unit_test(test_any_address_means_any_name),
                cmocka_unit_test(test_names_of_a_zone),
                cmocka_unit_test(test_addresses),
                cmocka_unit_test(test_cut),
        };
        return cmocka_run_group_tests(tests, NULL, teardown);
}
