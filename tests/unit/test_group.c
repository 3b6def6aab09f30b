// SPDX-License-Identifier: GPL-2.0-or-later
// Groups: that each packet meets the same rule as without them, whatever the order and overlap of the rules.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "network/group.h"

static uint32_t seed = 1;

static unsigned roll(unsigned n) {
        seed = seed * 1664525 + 1013904223;
        return (seed >> 8) % n;
}

static Compiled *compile(PolicyRule *rules, size_t n) {
        Policy policy = {.name = (char *) "p", .rules = rules, .n_rules = n}, *list = &policy;
        Compiled *compiled = NULL;

        assert_int_equal(compiled_new(&list, 1, &compiled, NULL), 0);
        return compiled;
}

typedef struct Packet { Cidr address; uint8_t protocol; uint16_t port; } Packet;

static bool line_matches(const RuleLine *line, const Packet *p, bool address) {
        if (line->rule->to.family != p->address.family || (address && !cidr_contains(&line->rule->to, &p->address)))
                return false;
        if (line->protocol && (line->protocol == p->protocol) == line->protocol_not)
                return false;
        if (line->ports.first && (p->port < line->ports.first || p->port > line->ports.last))
                return false;
        return !line->port_not_smtp || p->port != SMTP_PORT;
}

static int first_line(const Compiled *compiled, const Packet *p) {
        for (size_t i = 0; i < compiled->n; i++) {
                RuleLine lines[RULE_LINES_MAX];
                size_t n = ruleset_lines(&compiled->rules[i], lines);
                for (size_t k = 0; k < n; k++)
                        if (line_matches(&lines[k], p, true))
                                return (int) i;
        }
        return -1;
}

// As the kernel does it: what the group has in common is compared, then the key is looked up.
static int map_finds(const Group *group, const Packet *p) {
        unsigned char key[16] = {0};
        RuleLine common = group->lines[0];

        if (group->port_in_key)
                common.ports = (PortRange) {0, 0};
        if (!line_matches(&common, p, false))
                return -1;
        for (unsigned i = 0; i < common.rule->to.prefix; i++)
                key[i / 8] |= p->address.bytes[i / 8] & (0x80 >> i % 8);
        for (size_t i = 0; i < group->n; i++)
                if (memcmp(group->lines[i].rule->to.bytes, key, sizeof(key)) == 0 && (!group->port_in_key || group->lines[i].ports.first == p->port))
                        return group->lines[i].rule->index;
        return -1;
}

static int first_group(const Groups *groups, const Packet *p) {
        for (size_t i = 0; i < groups->n; i++) {
                const Group *group = &groups->groups[i];
                int found = group->mapped ? map_finds(group, p) : -1;
                for (size_t k = 0; !group->mapped && found < 0 && k < group->n; k++)
                        found = line_matches(&group->lines[k], p, true) ? group->lines[k].rule->index : -1;
                if (found >= 0)
                        return found;
        }
        return -1;
}

static void random_rule(PolicyRule *rule, unsigned actions) {
        static const char *const ports[] = {"80", "443", "80", "25", "80,443", "443", "20-30", "25,80-90,443", NULL};
        char to[64];

        *rule = (PolicyRule) {.action = roll(actions) == 1 ? POLICY_DENY : POLICY_ALLOW, .protocol = roll(3) ? POLICY_TCP : (PolicyProtocol) roll(4)};
        if (roll(5) == 0)
                snprintf(to, sizeof(to), roll(9) ? "2a00::%x/128" : "2a00::/16", roll(8));
        else if (roll(12))
                snprintf(to, sizeof(to), "93.1.%u.%u/32", roll(2), roll(12));
        else
                snprintf(to, sizeof(to), roll(4) ? "93.1.%u.0/24" : roll(2) ? "93.0.0.0/8" : "0.0.0.0/0", roll(3));
        rule->to = strdup(to);
        if (rule->protocol == POLICY_TCP || rule->protocol == POLICY_UDP) {
                const char *text = ports[roll(ELEMENTS(ports))];
                rule->ports = text ? strdup(text) : NULL;
        }
}

static Packet random_packet(void) {
        static const uint8_t protocols[] = {IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_SCTP};
        static const uint16_t ports[] = {25, 80, 81, 443, 22, 9};
        Packet p = {.protocol = protocols[roll(ELEMENTS(protocols))], .port = ports[roll(ELEMENTS(ports))]};
        char text[64];

        if (roll(5) == 0)
                snprintf(text, sizeof(text), "2a00::%x", roll(10));
        else
                snprintf(text, sizeof(text), "93.%u.%u.%u", roll(2) ? 1 : roll(2), roll(4), roll(14));
        assert_int_equal(cidr_parse(text, &p.address), 0);
        return p;
}

// `actions`: 1 is allow only, 2 as many denials, 40 a few.
static void sample(unsigned actions, size_t *ret_mapped) {
        size_t n = 1 + roll(120);
        PolicyRule rules[121];
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        _cleanup_(groups_done) Groups groups = {0};

        for (size_t i = 0; i < n; i++)
                random_rule(&rules[i], actions);
        compiled = compile(rules, n);
        assert_int_equal(groups_new(compiled, &groups), 0);
        for (int i = 0; i < 300; i++) {
                Packet p = random_packet();
                int without = first_line(compiled, &p), with = first_group(&groups, &p);
                if (without != with)
                        fail_msg("rule %d decides, in groups rule %d", without, with);
        }
        for (size_t i = 0; i < groups.n; i++)
                *ret_mapped += groups.groups[i].mapped;
        for (size_t i = 0; i < n; i++)
                policy_rule_done(&rules[i]);
}

static void test_same_rule_decides(void **state) {
        size_t mapped = 0;

        for (int i = 0; i < 400; i++)
                sample((unsigned[]) {1, 2, 40}[i % 3], &mapped);
        print_message("%zu maps\n", mapped);
        assert_true(mapped > 200); // or this would be about plain rules only
}

static size_t count_groups(const char *format, unsigned n, size_t *ret_mapped) {
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        _cleanup_(groups_done) Groups groups = {0};
        PolicyRule *rules = calloc(n, sizeof(PolicyRule));

        for (unsigned i = 0; i < n; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
                assert_true(asprintf(&rules[i].to, format, i / 256 % 256, i % 256) > 0);
#pragma GCC diagnostic pop
                rules[i].protocol = i % 2 ? POLICY_TCP : POLICY_UDP;
                rules[i].ports = strdup(i % 4 < 2 ? "443" : "1000,2000");
        }
        compiled = compile(rules, n);
        assert_int_equal(groups_new(compiled, &groups), 0);
        *ret_mapped = 0;
        for (size_t i = 0; i < groups.n; i++)
                *ret_mapped += groups.groups[i].mapped;
        for (unsigned i = 0; i < n; i++)
                policy_rule_done(&rules[i]);
        free(rules);
        return groups.n;
}

// What is in turn of two kinds that cannot meet is two groups, not as many as there are rules.
static void test_few_groups(void **state) {
        size_t mapped;

        assert_int_equal(count_groups("10.9.%u.%u/32", 1000, &mapped), 2); // tcp, udp
        assert_int_equal(mapped, 2);
        assert_int_equal(count_groups("10.%u.%u.0/24", 1000, &mapped), 6); // and each of three ports
        assert_int_equal(mapped, 6);
        assert_true(count_groups("10.9.%u.%u/32", 4096, &mapped) == 2);
        (void) count_groups("10.9.%u.%u/32", 7, &mapped);
        assert_int_equal(mapped, 0); // a handful stays readable
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_rule_decides), cmocka_unit_test(test_few_groups)};

        return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
