// SPDX-License-Identifier: GPL-2.0-or-later
// Border: what the firewall does for the resolver and the proxy: it leads instances to them, counts what they carry, and keeps them from
// places where nobody asked them to be.
//
// A redirected connection is decided by the program that it is led to, so it must not depend on that program being there: a slot is led to
// it only while its owner says that the border stands, and a port without a listener is a reset, never a way around.
#include "network/ruleset.h"

#include <arpa/inet.h>
#include <string.h>

#define RULE(f, chain, ...) (fprintf(f, "add rule inet hostd %s ", chain), fprintf(f, __VA_ARGS__), (void) fputc('\n', f))

enum { DNS = 53, HTTPS = 443, HTTP = 80 };

static bool names_have_port(const Compiled *compiled, uint16_t port) {
        for (size_t i = 0; i < compiled->n_names; i++)
                if (compiled_rule_has_port(&compiled->rules[compiled->names[i].rule], POLICY_TCP, port))
                        return true;
        return false;
}

size_t redirects_dns(const PolicyText *text, Redirect ret[REDIRECTS_MAX]) {
        if (!text->border.resolver)
                return 0;
        ret[0] = (Redirect) {IPPROTO_UDP, DNS, REDIRECT_DNS};
        ret[1] = (Redirect) {IPPROTO_TCP, DNS, REDIRECT_DNS};
        return 2;
}

size_t redirects_of_policy(const Compiled *compiled, Redirect ret[REDIRECTS_MAX]) {
        size_t n = 0;

        if (names_have_port(compiled, HTTPS))
                ret[n++] = (Redirect) {IPPROTO_TCP, HTTPS, REDIRECT_TLS};
        if (names_have_port(compiled, HTTP))
                ret[n++] = (Redirect) {IPPROTO_TCP, HTTP, REDIRECT_HTTP};
        return n;
}

size_t redirects_names(const PolicyText *text, Redirect ret[REDIRECTS_MAX]) {
        return text->border.proxy ? redirects_of_policy(text->compiled, ret) : 0;
}

// Borrowed, and cut in two where the first rule by name stands: rules are not grouped across it.
void redirects_split(const Compiled *compiled, Compiled *ret_front, Compiled *ret_behind) {
        size_t n = compiled_first_name(compiled);

        *ret_front = (Compiled) {.rules = compiled->rules, .n = n};
        *ret_behind = (Compiled) {.rules = compiled->rules + n, .n = compiled->n - n};
}

int redirects_in_front(const PolicyText *text, Compiled *ret) {
        size_t n = compiled_first_name(text->compiled);

        *ret = (Compiled) {.rules = calloc(n ?: 1, sizeof(CompiledRule))};
        if (!ret->rules)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                const CompiledRule *rule = &text->compiled->rules[i];
                if (!compiled_rule_has_port(rule, POLICY_TCP, HTTPS) && !compiled_rule_has_port(rule, POLICY_TCP, HTTP))
                        continue;
                ret->rules[ret->n] = *rule;
                ret->rules[ret->n++].action = POLICY_DENY; // either way: not the proxy's
        }
        return 0;
}

bool redirects_has_names_map(const PolicyText *text) {
        const Compiled *compiled = text->compiled;

        for (size_t i = 0; i < compiled->n_names && text->border.resolver; i++) {
                const CompiledRule *rule = &compiled->rules[compiled->names[i].rule];
                for (size_t k = 0; k < rule->n_ports && rule->action == POLICY_ALLOW; k++)
                        if (!compiled_is_proxied(rule->protocol, rule->ports[k].first) || rule->ports[k].first != rule->ports[k].last)
                                return true;
        }
        return false;
}

void ruleset_border_base(FILE *f) {
        fprintf(f, "add map inet hostd nat_v { type ifname : verdict; }\nadd map inet hostd answer_v { type ifname : verdict; }\n");
        fprintf(f, "add map inet hostd nat_p { type ifname : verdict; flags interval; }\nadd map inet hostd answer_p { type ifname : verdict; flags interval; }\n");
        for (int four = 4; four <= 6; four += 2)
                fprintf(f, "add map inet hostd expose%d { type inet_proto . inet_service : ipv%d_addr . inet_service; flags timeout; }\n", four, four);
        fprintf(f, "add chain inet hostd helpers\n");
        fprintf(f, "add counter inet hostd helpers_denied\n");
        fprintf(f, "add chain inet hostd redirects { type nat hook prerouting priority -100; policy accept; }\nflush chain inet hostd redirects\n");
        RULE(f, "redirects", "iifname vmap @nat_v");
        RULE(f, "redirects", "iifname vmap @nat_p");
        RULE(f, "redirects", "iifname \"" HOST_PREFIX "*\" accept"); // what is exposed is so to the world, not to other instances
        for (int four = 4; four <= 6; four += 2)
                RULE(f, "redirects", "meta nfproto ipv%d fib daddr type local meta l4proto { tcp, udp } dnat %s to meta l4proto . th dport map @expose%d", four,
                     four == 4 ? "ip" : "ip6", four);
        fprintf(f, "add chain inet hostd output { type filter hook output priority 0; policy accept; }\nflush chain inet hostd output\n");
        RULE(f, "output", "oifname vmap @answer_v");
        RULE(f, "output", "oifname vmap @answer_p");
        RULE(f, "output", "jump helpers");
}

void ruleset_border_slot(FILE *f, uint16_t slot) {
        for (int four = 4; four <= 6; four += 2)
                fprintf(f, "add map inet hostd i%04x_names%d { type ipv%d_addr . inet_proto . inet_service : mark; flags timeout; size %d; }\n", slot,
                        four, four, NAMES_MAX);
        fprintf(f, "add set inet hostd i%04x_exposed { type mark; flags timeout; }\n", slot);
        for (int four = 4; four <= 6; four += 2)
                fprintf(f, "add map inet hostd i%04x_expose%d { type inet_proto . inet_service . ipv%d_addr : mark; flags interval,timeout; }\n", slot, four,
                        four);
}

void ruleset_border_remove(FILE *f, uint16_t slot) {
        fprintf(f, "delete map inet hostd i%04x_names4\ndelete map inet hostd i%04x_names6\n", slot, slot);
        fprintf(f, "delete map inet hostd i%04x_expose4\ndelete map inet hostd i%04x_expose6\ndelete set inet hostd i%04x_exposed\n", slot, slot, slot);
}

// What was redirected is known by its translation, so that nobody speaks to these ports who was not sent there. A shut door leaves the
// redirect: without that, rules by address behind the names would decide in their place.
void ruleset_border(FILE *f, uint16_t slot, const NetworkBorder *border) {
        char chain[16];

        (void) snprintf(chain, sizeof(chain), "i%04x_border", slot);
        chain_new(f, chain);
        if (border->resolver && !border->resolver_shut)
                RULE(f, chain, "ct status dnat meta l4proto { tcp, udp } th dport %d goto i%04x_dns", REDIRECT_DNS, slot);
        if (!border->proxy || border->proxy_shut)
                return;
        RULE(f, chain, "ct status dnat tcp dport { %d, %d } goto i%04x_local", REDIRECT_TLS, REDIRECT_HTTP, slot);
        RULE(f, chain, "ip daddr " GATEWAY4 " tcp dport %d goto i%04x_local", CONNECT_PORT, slot);
        RULE(f, chain, "ip6 daddr " GATEWAY6 " tcp dport %d goto i%04x_local", CONNECT_PORT, slot);
}

static void upstreams(FILE *f, const NetworkHelpers *helpers, int family) {
        const char *separator = "";
        char text[INET6_ADDRSTRLEN];

        for (size_t i = 0; i < helpers->n_upstreams; i++) {
                if (helpers->upstreams[i].family != family)
                        continue;
                if (!*separator)
                        fprintf(f, "add rule inet hostd helper meta skuid %u %s daddr { ", helpers->resolver, family == AF_INET ? "ip" : "ip6");
                fprintf(f, "%s%s", separator, inet_ntop(family, helpers->upstreams[i].address, text, sizeof(text)));
                separator = ", ";
        }
        if (*separator)
                fprintf(f, " } meta l4proto { tcp, udp } th dport %d accept\n", DNS);
}

// By the user who opened the socket. What the kernel sends for a socket that is gone has no user, but nothing begins with such a packet.
// A packet without connection tracking has no direction either, and is not taken for an answer.
void ruleset_helpers(FILE *f, const NetworkSettings *settings, const NetworkHelpers *helpers) {
        Pools pools = pools_format(settings);

        chain_new(f, "helpers");
        chain_new(f, "helper");
        chain_new(f, "helper_deny");
        fprintf(f, "add counter inet hostd helpers_denied\n");
        if (helpers->n_uids == 0 && helpers->first_uid == 0)
                return;
        RULE(f, "helper_deny", "counter name helpers_denied");
        chain_refuse(f, "helper_deny", 0);
        RULE(f, "helper", "ct direction reply accept");
        if (helpers->resolver) {
                upstreams(f, helpers, AF_INET);
                upstreams(f, helpers, AF_INET6);
        }
        chain_keep_out(f, "helper", &pools, "helper_deny");
        RULE(f, "helper", "ip daddr @deny4 goto helper_deny");
        RULE(f, "helper", "ip6 daddr @deny6 goto helper_deny");
        RULE(f, "helper", "accept");
        fprintf(f, "add rule inet hostd helpers meta skuid { ");
        for (size_t i = 0; i < helpers->n_uids; i++)
                fprintf(f, "%s%u", i ? ", " : "", helpers->uids[i]);
        if (helpers->first_uid)
                fprintf(f, "%s%u-%u", helpers->n_uids ? ", " : "", helpers->first_uid, helpers->last_uid);
        fprintf(f, " } goto helper\n");
}
