// SPDX-License-Identifier: GPL-2.0-or-later
// The ruleset: addresses by arithmetic, and the order of what protects (SEC-21: "make it work" accepts in front of the gates).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <string.h>

#include "base/clock.h"
#include "border/border.h"
#include "network/ruleset.h"

static NetworkSettings settings_new(void) {
        NetworkSettings s = {.uplink = (char *) "eth7", .ipv4_prefix = 16, .ipv6_prefix = 64};

        (void) inet_pton(AF_INET, "10.99.0.0", &s.ipv4_pool);
        (void) inet_pton(AF_INET6, "2a01:4f8:1:1::", &s.ipv6_pool);
        return s;
}

static void test_address(void **state) {
        NetworkSettings s = settings_new();
        NetworkAddress a;
        char text[64];

        network_address(&s, 0x1a2, &a);
        assert_string_equal(a.host_ifname, "hv01a2");
        assert_string_equal(inet_ntop(AF_INET, &a.ipv4, text, sizeof(text)), "10.99.1.162");
        assert_string_equal(inet_ntop(AF_INET6, &a.ipv6, text, sizeof(text)), "2a01:4f8:1:1::1a2");
        assert_memory_equal(a.mac, "\x02\0\0\0\x01\xa2", 6);
        assert_memory_equal(a.host_mac, "\x02\0\x01\0\x01\xa2", 6);
}

// Each piece must stand behind the one before it.
static void assert_order(const char *text, const char *const *pieces) {
        for (; *pieces; pieces++) {
                const char *at = strstr(text, *pieces);
                if (!at)
                        fail_msg("missing or out of order: %s", *pieces);
                text = at + strlen(*pieces);
        }
}

// What the statement writes to `f`; the caller frees.
#define TEXT_OF(statement) \
        ({ \
                char *text_of = NULL; \
                size_t size_of; \
                FILE *f = open_memstream(&text_of, &size_of); \
                assert_non_null(f); \
                statement; \
                assert_int_equal(fclose(f), 0); \
                text_of; \
        })

static void test_slot_order(void **state) {
        static const char *const out[] = {
                "i0001_out counter", "i0001_out jump i0001_cut", "i0001_out jump i0001_rate", "i0001_out ct state established ct mark @i0001_live accept",
                "i0001_out ct state related meta l4proto { icmp, ipv6-icmp } ct mark @i0001_live accept",
                "i0001_out ct direction reply goto i0001_deny", "i0001_out ct status dnat goto i0001_deny",
                "i0001_out ct state != { new, established } goto i0001_deny", "!= 0x00010000 goto i0001_deny", "!= syn goto i0001_deny",
                "i0001_out oifname \"hv*\" goto i0001_deny", "i0001_out fib daddr type { local, broadcast, multicast, anycast } goto i0001_deny",
                "i0001_out ip daddr 10.99.0.0/16 goto i0001_deny", "i0001_out ip6 daddr 2a01:4f8:1:1::/64 goto i0001_deny",
                "i0001_out jump i0001_rules\n", "i0001_out goto i0001_deny\n", NULL,
        };
        static const char *const gate[] = {
                "policy drop;", "ether type { 8021q, 8021ad } counter name i0001_spoof drop",
                "ether saddr != 02:00:00:00:00:01 counter name i0001_spoof drop", "arp saddr ip 10.99.0.1 limit", "ip saddr 10.99.0.1 accept",
                "icmpv6 type { nd-router-advert, nd-redirect } counter name i0001_spoof drop", "ip6 saddr 2a01:4f8:1:1::1 accept",
                "ip6 saddr fe80::ff:fe00:1 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255", "counter name i0001_spoof drop", NULL,
        };
        NetworkSettings s = settings_new();
        _cleanup_free_ char *text = TEXT_OF(ruleset_slot(f, &s, 1, (SlotKind) {0, true}));

        assert_order(text, out);
        assert_order(text, gate);
        assert_null(strstr(text, "add element")); // would make libnftables read foreign elements
}

// A profile's packets are judged by its instance's rules and by its own, its marks and those of a judgement that is going on are the only ones it knows,
// and what limits or stops its instance stands in front.
static void test_profile(void **state) {
        static const char *const order[] = {
                "i0800_deny ct state established ct mark and 0xffff0000 == 0x00010000 ct mark set 0x08000000", "i0800_deny counter",
                "i0800_out jump i0800_cut", "i0800_out jump i0001_cut", "i0800_out jump i0001_rate", "i0800_out ct state established ct mark @i0800_live accept",
                "i0800_out ct direction reply goto i0800_deny", "i0800_out ct state established ct mark and 0xffff0000 != { 0x08000000, 0x00010000 } goto i0800_deny",
                "i0800_out oifname \"hv*\" goto i0800_deny", "i0800_out jump i0800_judge\n", "i0800_out goto i0800_deny\n",
                "i0800_in jump i0001_cut", "i0800_in ct state established jump i0001_back", "ct mark and 0xffff0000 { 0x08000000, 0x00010000 } jump i0800_judge", "i0800_in counter drop",
                "i0800_host jump i0001_cut", "i0800_judge jump i0001_rules comment \"w0001\"", "i0800_judge ct mark != @i0001_live ct mark != @i0800_live ct mark set 0x08000000 return",
                "i0800_judge jump i0800_rules", "i0800_judge ct mark set 0x08000000", "i0800_lead jump i0800_nat", "i0800_lead jump i0001_nat", NULL,
        };
        static const char *const limits[] = {
                "i0800_pass goto i0001_admit", "i0800_local jump i0001_rate", "i0800_local jump i0001_take", "i0800_local ct mark set 0x08000000 accept",
                "i0800_answer ct state != related jump i0001_cut", "i0800_rx jump i0001_back", "i0800_dns goto i0001_dns", NULL,
        };
        LimitsText none = {.limits = NETWORK_LIMITS_NONE, .within = 1};
        NetworkSettings s = settings_new();
        _cleanup_free_ char *text = TEXT_OF(ruleset_slot(f, &s, 0x800, (SlotKind) {1, false})), *limited = TEXT_OF(ruleset_limits(f, 0x800, &none));

        assert_order(text, order);
        assert_order(limited, limits);
        assert_null(strstr(text, "netdev hostd i0800 {"));
        assert_null(strstr(text, "i0800_out jump i0001_rules")); // nothing is admitted by one of them alone
        assert_null(strstr(limited, "i0800_pass accept"));
}

static void test_base_order(void **state) {
        static const char *const spoof[] = {"spoof iifname != \"hv*\" accept", "spoof iifname . ip saddr @src4 meta mark set", "spoof counter drop",
                                            "returning iifname", "input iifname != \"hv*\" accept", "input iifname vmap @host_v", "input counter drop",
                                            "ct state invalid counter drop", "forward iifname vmap @out_v", "forward iifname \"hv*\" counter drop",
                                            "forward oifname vmap @in_v", "forward oifname \"hv*\" counter drop", "oifname \"eth7\" masquerade", NULL};
        NetworkSettings s = settings_new();
        _cleanup_free_ char *text = TEXT_OF(ruleset_base(f, &s));

        assert_order(text, spoof);
        assert_null(strstr(text, "ip6 saddr 2a01:4f8:1:1::/64 oifname")); // routed, not masqueraded
}

static void test_policy_golden(void **state) {
        static const char golden[] =
                "flush chain inet hostd i0001_rules\n"
                "flush chain inet hostd i0001_nat\n"
                "flush set inet hostd i0001_live\n"
                "add rule inet hostd i0001_rules meta nfproto ipv4 ct original ip daddr 93.1.2.0/24 goto i0001_deny\n"
                "add rule inet hostd i0001_rules meta nfproto ipv4 ct original ip daddr != @deny4 meta l4proto tcp ct original proto-dst != 25 "
                "ct mark set 0x00010001 goto i0001_pass\n"
                "add rule inet hostd i0001_rules meta nfproto ipv4 ct original ip daddr != @deny4 meta l4proto != tcp "
                "ct mark set 0x00010001 goto i0001_pass\n"
                "add rule inet hostd i0001_rules meta nfproto ipv6 ct original ip6 daddr 2a00::/16 meta l4proto tcp ct original proto-dst 80-90 "
                "ct mark set 0x00010002 goto i0001_pass\n"
                "add rule inet hostd i0001_rules meta l4proto tcp ct original proto-dst 443 goto i0001_deny\n"
                "add rule inet hostd i0001_rules meta l4proto tcp ct original proto-dst 80 goto i0001_deny\n"
                "add rule inet hostd i0001_rules ct mark 0 comment \"0004\"\n"
                "add element inet hostd i0001_live { 0x00010001 comment \"DIGEST\", 0x00010002 comment \"DIGEST\", 0x00010003 comment \"DIGEST\" }\n";
        PolicyRule rules[] = {
                {.action = POLICY_DENY, .to = (char *) "93.1.2.0/24"},
                {.action = POLICY_ALLOW, .to = (char *) "0.0.0.0/0", .comment = (char *) "\"; } flush ruleset"},
                {.action = POLICY_ALLOW, .to = (char *) "2a00::/16", .protocol = POLICY_TCP, .ports = (char *) "85-90,80-86"},
                // by name: a live mark where the resolver opens a port, none where all is the proxy's; and what is the proxy's is not forwarded
                {.action = POLICY_DENY, .to = (char *) "a.example.org"},
                {.action = POLICY_ALLOW, .to = (char *) "*.example.org"},
                {.action = POLICY_ALLOW, .to = (char *) "*.example.net", .protocol = POLICY_TCP, .ports = (char *) "443,8443"},
        };
        Policy policy = {.name = (char *) "p", .rules = rules, .n_rules = ELEMENTS(rules)}, *list = &policy;
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        _cleanup_free_ char *text = NULL;

        assert_int_equal(compiled_new(&list, 1, &compiled, NULL), 0);
        compiled->rules[1].id = 1;
        compiled->rules[2].id = 2;
        compiled->rules[5].id = 3;
        for (size_t i = 0; i < compiled->n; i++)
                memcpy(compiled->rules[i].digest, "DIGEST", sizeof("DIGEST"));
        text = TEXT_OF(assert_int_equal(ruleset_policy(f, &(PolicyText) {1, compiled, 4, {0}}), 0));
        assert_string_equal(text, golden);
        free(text);
        // The marks of a profile are judged anew when the first grant of its instance ends.
        text = TEXT_OF(assert_int_equal(ruleset_policy(f, &(PolicyText) {1, compiled, 4, .until = clock_realtime() + 100 * USEC_PER_SEC}), 0));
        assert_non_null(strstr(text, "{ 0x00010001 timeout "));
}

// With the ids 1, 2, … of the allows' places.
static char *policy_text_new(Policy *policy, NetworkBorder border, bool ids_anew) {
        _cleanup_(compiled_freep) Compiled *compiled = NULL;

        assert_int_equal(compiled_new(&policy, 1, &compiled, NULL), 0);
        for (size_t i = 0; i < compiled->n; i++)
                compiled->rules[i].id = (uint16_t) (compiled->rules[i].action == POLICY_ALLOW ? i + 1 : 0);
        return TEXT_OF(assert_int_equal(ruleset_policy(f, &(PolicyText) {1, compiled, 9, border, ids_anew}), 0));
}

// What ends does so in the kernel: the mark by its own time, and the rule admits while the mark is live. Rules without an end are as ever.
static void test_policy_until(void **state) {
        PolicyRule rules[12];
        Policy policy = {.name = (char *) "p", .rules = rules, .n_rules = ELEMENTS(rules)};
        char to[ELEMENTS(rules)][32];
        _cleanup_free_ char *text = NULL;
        const char *at;
        unsigned n = 0;

        for (unsigned i = 0; i < ELEMENTS(rules); i++) {
                (void) snprintf(to[i], sizeof(to[i]), "93.1.2.%u/32", i);
                rules[i] = (PolicyRule) {.action = POLICY_ALLOW, .to = to[i], .protocol = POLICY_TCP, .ports = (char *) "443", .until = i < 9 ? clock_realtime() + 100 * USEC_PER_SEC : 0};
        }
        rules[0].until = 1; // over, but not taken out yet
        text = policy_text_new(&policy, (NetworkBorder) {0}, false);
        for (at = text; (at = strstr(at, "ct mark @i0001_live goto i0001_pass")); at++)
                n++;
        assert_int_equal(n, 9); // in no map
        assert_non_null(strstr(text, "ct mark set 0x0001000a goto i0001_pass"));
        assert_non_null(strstr(text, "0x00010001 timeout 1ms comment"));
        assert_true((at = strstr(text, "0x00010002 timeout ")) && strtoul(at + strlen("0x00010002 timeout "), NULL, 10) > 99000);
        assert_non_null(strstr(text, "0x0001000a comment"));
}

// Eight rules that differ by address and port are one, with a map from these to their marks.
static void test_policy_map(void **state) {
        static const char map[] = "meta nfproto ipv4 meta l4proto tcp ct mark set ct original ip daddr . ct original proto-dst map { 1.2.3.0 . 80 : 0x00010001, "
                                  "1.2.3.1 . 81 : 0x00010002, ";
        PolicyRule rules[8];
        Policy policy = {.name = (char *) "p", .rules = rules, .n_rules = ELEMENTS(rules)};
        _cleanup_free_ char *text = NULL;
        char to[8][16], ports[8][8];

        for (int i = 0; i < 8; i++) {
                snprintf(to[i], sizeof(to[i]), "1.2.3.%d/32", i);
                snprintf(ports[i], sizeof(ports[i]), "%d", 80 + i);
                rules[i] = (PolicyRule) {.action = POLICY_ALLOW, .to = to[i], .protocol = POLICY_TCP, .ports = ports[i]};
        }
        text = policy_text_new(&policy, (NetworkBorder) {0}, false);
        assert_non_null(strstr(text, map));
        assert_non_null(strstr(text, ", 1.2.3.7 . 87 : 0x00010008 } goto i0001_pass\n"));
}

// What is counted is counted in front of the accept, and what was counted is thrown away only on demand.
static void test_limits(void **state) {
        static const char *const pass[] = {
                "flush chain inet hostd i0001_pass", "i0001_spent tcp flags & rst == rst return", "i0001_spent counter name i0001_traffic goto i0001_deny",
                "i0001_rate limit rate over 5 bytes/second burst 131072 bytes drop", "i0001_rate ct state new ct mark 0 limit rate over 7/second burst 14 packets counter name i0001_connection_rate goto i0001_deny",
                "i0001_rate ct state established quota name i0001_budget goto i0001_spent", "i0001_back quota name i0001_budget goto i0001_spent",
                "i0001_take quota name i0001_budget goto i0001_spent",
                "i0001_take add @i0001_held { meta mark and 0x100 ct count over 6 } counter name i0001_connections goto i0001_deny comment \"c6\"",
                "i0001_pass iifname \"hvs*\" return", "i0001_pass oifname \"hvs*\" return", "i0001_pass goto i0001_admit",
                "i0001_admit ct state established accept", "i0001_admit jump i0001_take",
                "i0001_admit meta l4proto { tcp, udp } add @i0001_seen4 { ip daddr . th dport } accept",
                "i0001_admit counter name i0001_destinations goto i0001_deny comment \"d8\"", NULL,
        };
        LimitsText limits = {.limits = {5, NETWORK_UNLIMITED, 6, 7, 8, 9}, .traffic_used = 3}, none = {.limits = NETWORK_LIMITS_NONE};
        _cleanup_free_ char *text = TEXT_OF(ruleset_limits(f, 1, &limits)), *anew = NULL, *open = TEXT_OF(ruleset_limits(f, 1, &none));

        assert_order(text, pass);
        assert_non_null(strstr(text, "over 9 bytes used 3 bytes"));
        assert_null(strstr(text, "delete"));
        assert_null(strstr(text, "flush set"));
        assert_null(strstr(text, "i0001_back limit"));
        assert_non_null(strstr(open, "i0001_admit accept\n"));
        assert_null(strstr(open, "goto i0001_spent"));
        limits.limits.download = 4;
        limits.police_download = limits.destinations_anew = limits.connections_anew = limits.traffic_anew = true;
        anew = TEXT_OF(ruleset_limits(f, 1, &limits));
        assert_non_null(strstr(anew, "i0001_back limit rate over 4 bytes/second"));
        assert_non_null(strstr(anew, "delete set inet hostd i0001_seen4\n"));
        assert_non_null(strstr(anew, "flush set inet hostd i0001_conn\n"));
        assert_non_null(strstr(anew, "delete quota inet hostd i0001_budget\n"));
}

// Rules by address in front of the first by name keep their connections from the proxy; those behind it do not.
static void test_border(void **state) {
        static const char *const order[] = {
                "i0001_rules meta nfproto ipv4 meta l4proto tcp ct mark set ct original ip daddr . meta l4proto . ct original proto-dst map @i0001_names4 ct mark @i0001_live goto i0001_pass",
                "i0001_rules meta nfproto ipv4 ct original ip daddr 1.2.3.0/24 meta l4proto tcp ct original proto-dst 443 goto i0001_deny",
                "i0001_rules meta nfproto ipv4 ct original ip daddr 1.0.0.0/8 goto i0001_deny", "i0001_rules meta l4proto tcp ct original proto-dst 443 goto i0001_deny",
                "i0001_rules meta nfproto ipv4 ct original ip daddr 2.0.0.0/8 meta l4proto tcp ct original proto-dst 443 ct mark set",
                "i0001_nat meta l4proto udp ct original proto-dst 53 redirect to :8453", "i0001_nat meta l4proto tcp ct original proto-dst 53 redirect to :8453",
                "i0001_nat meta nfproto ipv4 ct original ip daddr 1.2.3.0/24 meta l4proto tcp ct original proto-dst 443 return",
                "i0001_nat meta nfproto ipv4 ct original ip daddr 1.0.0.0/8 return", "i0001_nat meta l4proto tcp ct original proto-dst 443 redirect to :8443", NULL,
        };
        PolicyRule rules[] = {
                {.action = POLICY_DENY, .to = (char *) "1.2.3.0/24", .protocol = POLICY_TCP, .ports = (char *) "443"},
                {.action = POLICY_ALLOW, .to = (char *) "1.2.4.0/24", .protocol = POLICY_UDP, .ports = (char *) "443"},
                {.action = POLICY_DENY, .to = (char *) "1.0.0.0/8"},
                {.action = POLICY_ALLOW, .to = (char *) "db.example.org", .protocol = POLICY_TCP, .ports = (char *) "443,9000"},
                {.action = POLICY_ALLOW, .to = (char *) "2.0.0.0/8", .protocol = POLICY_TCP, .ports = (char *) "443"},
        };
        Policy policy = {.name = (char *) "p", .rules = rules, .n_rules = ELEMENTS(rules)};
        const NetworkBorder border = {.resolver = true, .proxy = true};
        _cleanup_free_ char *both = policy_text_new(&policy, border, false), *none = policy_text_new(&policy, (NetworkBorder) {0}, true), *web = NULL;

        assert_order(both, order);
        assert_null(strstr(both, "redirect to :8480"));
        assert_null(strstr(both, "i0001_nat meta nfproto ipv4 ct original ip daddr 2.0.0.0/8"));
        assert_null(strstr(both, "i0001_nat meta nfproto ipv4 ct original ip daddr 1.2.4.0/24"));
        assert_null(strstr(none, "redirect"));
        assert_null(strstr(none, "@i0001_names"));
        assert_null(strstr(both, "flush map"));
        assert_non_null(strstr(none, "flush map inet hostd i0001_names4\nflush map inet hostd i0001_names6\n")); // where ids begin anew
        assert_non_null(strstr(none, "i0001_rules meta l4proto tcp ct original proto-dst 443 goto i0001_deny")); // whether the proxy is there or not
        assert_null(strstr(none, "ct original proto-dst 80 "));
        rules[3].ports = (char *) "80,443";
        web = policy_text_new(&policy, border, false);
        assert_non_null(strstr(web, "redirect to :8480"));
        assert_non_null(strstr(web, "i0001_rules meta l4proto tcp ct original proto-dst 80 goto i0001_deny"));
        assert_null(strstr(web, "@i0001_names")); // both are the proxy's
}

// A shut door admits nobody and leaves the redirect: without it what stands behind the names would decide.
static void test_border_shut(void **state) {
        PolicyRule rules[] = {{.action = POLICY_DENY, .to = (char *) "*.evil.example"}, {.action = POLICY_ALLOW, .to = (char *) "0.0.0.0/0"}};
        Policy policy = {.name = (char *) "p", .rules = rules, .n_rules = ELEMENTS(rules)};
        const NetworkBorder open = {.resolver = true, .proxy = true}, shut = {true, true, true, true}, proxy = {.resolver = true, .proxy = true, .proxy_shut = true};
        _cleanup_free_ char *all = TEXT_OF(ruleset_border(f, 1, &open)), *some = TEXT_OF(ruleset_border(f, 1, &proxy)), *none = TEXT_OF(ruleset_border(f, 1, &shut)), *policy_text = policy_text_new(&policy, shut, false);

        assert_non_null(strstr(all, "dport 8453 goto i0001_dns"));
        assert_non_null(strstr(all, "i0001_local"));
        assert_non_null(strstr(some, "dport 8453 goto i0001_dns"));
        assert_null(strstr(some, "i0001_local"));
        assert_null(strstr(none, "add rule"));
        assert_null(strstr(none, "i0001_local"));
        assert_non_null(strstr(none, "flush chain inet hostd i0001_border"));
        assert_non_null(strstr(policy_text, "redirect to :8453"));
        assert_non_null(strstr(policy_text, "redirect to :8443"));
        assert_non_null(strstr(policy_text, "redirect to :8480"));
}

// Nothing of the helpers' passes in front of what keeps them in but answers and the resolver's upstreams.
static void test_helpers(void **state) {
        static const char *const order[] = {
                "helper ct direction reply accept", "helper meta skuid 7 ip daddr { 10.0.0.53 } meta l4proto { tcp, udp } th dport 53 accept", "helper oifname \"hv*\" goto helper_deny",
                "helper fib daddr type { local, broadcast, multicast, anycast } goto helper_deny", "helper ip daddr 10.99.0.0/16 goto helper_deny",
                "helper ip6 daddr 2a01:4f8:1:1::/64 goto helper_deny", "helper ip daddr @deny4 goto helper_deny", "helper ip6 daddr @deny6 goto helper_deny", "helper accept\n",
                "helpers meta skuid { 7, 8, 70000-71023 } goto helper\n", NULL,
        };
        NetworkHelpers helpers = {.uids = {7, 8}, .n_uids = 2, .first_uid = 70000, .last_uid = 71023, .resolver = 7, .upstreams = {{AF_INET, {10, 0, 0, 53}}}, .n_upstreams = 1};
        NetworkSettings s = settings_new();
        _cleanup_free_ char *text = TEXT_OF(ruleset_helpers(f, &s, &helpers));

        assert_order(text, order);
}

// The firewall leads to where the border's programs listen: they are told so in two places, of layers that do not know each other.
static void test_border_places(void **state) {
        assert_int_equal(REDIRECT_DNS, BORDER_DNS_PORT);
        assert_int_equal(REDIRECT_TLS, BORDER_TLS_PORT);
        assert_int_equal(REDIRECT_HTTP, BORDER_HTTP_PORT);
        assert_int_equal(CONNECT_PORT, BORDER_CONNECT_PORT);
        assert_string_equal(GATEWAY4, BORDER_ADDRESS_V4);
        assert_string_equal(GATEWAY6, BORDER_ADDRESS_V6);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_address), cmocka_unit_test(test_slot_order), cmocka_unit_test(test_profile), cmocka_unit_test(test_base_order), cmocka_unit_test(test_policy_golden), cmocka_unit_test(test_policy_map), cmocka_unit_test(test_policy_until),
                cmocka_unit_test(test_limits),
                cmocka_unit_test(test_border),
                cmocka_unit_test(test_border_shut),
                cmocka_unit_test(test_helpers),
                cmocka_unit_test(test_border_places),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
