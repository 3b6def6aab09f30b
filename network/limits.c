// SPDX-License-Identifier: GPL-2.0-or-later
// Limits: what a slot may do of what its policy allows: bytes, connections, destinations.
//
// These chains, which ruleset.c leads to and leaves alone, so that a restart of hostd changes nothing:
//   rate  everything that leaves the instance
//   back  answers on their way to it
//   pass  the end of each rule that allows; from there
//   admit a new connection is counted, here and nowhere else, so that what the policy denies uses up nothing
//   take  what a connection takes from the limits, to whatever it goes
//   local what goes to the border's proxy instead, and answer what comes from it
//   enter what comes from outside to a port that is exposed
//   dns   what goes to the resolver
//   spent where these lead when the traffic of the day is used up
// Sandboxes of an instance go through its chains besides those of their profile, where nothing is limited: what limits the instance limits the
// sum. For its rules that is the first half, so "pass" sends their connections back to where the second is asked.
// Counts live in sets and in a quota. Those are made anew only when a limit has changed: whoever is at the limit stays there.
#include "network/ruleset.h"

#define RULE(f, slot, chain, ...) (fprintf(f, "add rule inet hostd i%04x_%s ", slot, chain), fprintf(f, __VA_ARGS__), (void) fputc('\n', f))

static bool limited(uint64_t value) {
        return value != NETWORK_UNLIMITED;
}

static void refuse(FILE *f, uint16_t slot, const char *limit, const char *comment) {
        fprintf(f, " counter name i%04x_%s goto i%04x_deny", slot, limit, slot);
        if (comment)
                fprintf(f, " comment \"%s\"", comment);
        (void) fputc('\n', f);
}

static void traffic(FILE *f, uint16_t slot, const char *chain, const char *match) {
        RULE(f, slot, chain, "%squota name i%04x_budget goto i%04x_spent", match, slot, slot);
}

// A download that just stopped would look like a hang: the instance is told when it sends, so a few packets may go on towards it for it to
// answer, and what it says of the end may leave.
static void spent_chain(FILE *f, uint16_t slot) {
        RULE(f, slot, "spent", "tcp flags & rst == rst return");
        RULE(f, slot, "spent", "iifname != \"" HOST_PREFIX "*\" meta l4proto tcp limit rate 10/second burst 5 packets return");
        fprintf(f, "add rule inet hostd i%04x_spent", slot);
        refuse(f, slot, "traffic", NULL);
}

// Policing, not shaping. Redirecting a veth's ingress to an IFB would shape, but the packet that comes back from the IFB skips the
// netdev ingress hook: the gate against spoofing would be gone. The kernel's bucket for a byte rate holds one second of the rate
// plus `burst`, so after a pause up to that much goes out at once. The burst must hold one GSO packet of 64 KiB.
static void police(FILE *f, uint16_t slot, const char *chain, uint64_t bytes_per_second) {
        RULE(f, slot, chain, "limit rate over %llu bytes/second burst 131072 bytes drop", (unsigned long long) MAX2(bytes_per_second, 1));
}

static void connection_rate(FILE *f, uint16_t slot, const char *chain, uint64_t limit) {
        fprintf(f, "add rule inet hostd i%04x_%s ct state new ct mark 0 limit rate over %llu/second burst %llu packets", slot, chain,
                (unsigned long long) limit, (unsigned long long) limit * 2);
        refuse(f, slot, "connection_rate", NULL);
}

static void rate_chain(FILE *f, uint16_t slot, const NetworkLimits *limits) {
        if (limited(limits->upload))
                police(f, slot, "rate", limits->upload);
        // The host's conntrack table is shared: one scanning instance must not fill it for the others.
        if (limited(limits->connection_rate))
                connection_rate(f, slot, "rate", limits->connection_rate);
        if (limited(limits->traffic))
                traffic(f, slot, "rate", "ct state established ");
}

// The set is one element, whose count the kernel keeps true as connections end: its key is what all packets of ours have alike.
static void connections(FILE *f, uint16_t slot, const char *chain, uint64_t limit) {
        char comment[32];

        (void) snprintf(comment, sizeof(comment), "c%llx", (unsigned long long) limit);
        fprintf(f, "add rule inet hostd i%04x_%s add @i%04x_held { meta mark and 0x%x ct count over %llu }", slot, chain, slot, ROUTE_MARK, (unsigned long long) limit);
        refuse(f, slot, "connections", comment);
}

// From outside, and for each interface by itself.
static void connections_in(FILE *f, uint16_t slot, uint64_t limit) {
        fprintf(f, "add rule inet hostd i%04x_enter add @i%04x_conn { iifname ct count over %llu }", slot, slot, (unsigned long long) limit);
        refuse(f, slot, "connections", NULL);
}

// To what is in the set, or still fits in, the packet goes on: an address and a port, or an address alone where there are no ports. An element stays for a minute from when it was added: not from when it was
// used last, since what is in use all the time is no scan.
static void destinations(FILE *f, uint16_t slot, uint64_t limit) {
        char comment[32];

        (void) snprintf(comment, sizeof(comment), "d%llx", (unsigned long long) limit);
        RULE(f, slot, "admit", "meta l4proto { tcp, udp } add @i%04x_seen4 { ip daddr . th dport } accept", slot);
        RULE(f, slot, "admit", "meta l4proto { tcp, udp } add @i%04x_seen6 { ip6 daddr . th dport } accept", slot);
        RULE(f, slot, "admit", "meta l4proto != { tcp, udp } add @i%04x_ping4 { ip daddr } accept", slot);
        RULE(f, slot, "admit", "meta l4proto != { tcp, udp } add @i%04x_ping6 { ip6 daddr } accept", slot);
        fprintf(f, "add rule inet hostd i%04x_admit", slot);
        refuse(f, slot, "destinations", comment);
}

static void pass_chain(FILE *f, uint16_t slot, const LimitsText *text) {
        if (text->within) {
                RULE(f, slot, "pass", "goto i%04x_admit", text->within);
                return;
        }
        RULE(f, slot, "pass", "iifname \"" SANDBOX_PREFIX "*\" return");
        RULE(f, slot, "pass", "oifname \"" SANDBOX_PREFIX "*\" return");
        RULE(f, slot, "pass", "goto i%04x_admit", slot);
        RULE(f, slot, "admit", "ct state established accept"); // of a rule that changed: judged again, not counted again
        RULE(f, slot, "admit", "jump i%04x_take", slot);
        if (limited(text->limits.destinations))
                destinations(f, slot, text->limits.destinations);
        else
                RULE(f, slot, "admit", "accept");
}

static void take_chain(FILE *f, uint16_t slot, const NetworkLimits *limits) {
        if (limited(limits->traffic))
                traffic(f, slot, "take", "");
        if (limited(limits->connections))
                connections(f, slot, "take", limits->connections);
}

static const struct { const char *name, *type; } seen[] = {
        {"seen4", "ipv4_addr . inet_service"}, {"seen6", "ipv6_addr . inet_service"}, {"ping4", "ipv4_addr"}, {"ping6", "ipv6_addr"},
};

// What goes to the proxy is the instance's traffic like any other, on the host's side of it. Destinations are the proxy's to count, who knows
// names.
static void local_chain(FILE *f, uint16_t slot, const LimitsText *text) {
        uint16_t owner = text->within ?: slot;

        RULE(f, slot, "local", "counter name i%04x_tx", slot);
        RULE(f, slot, "local", "jump i%04x_rate", owner);
        RULE(f, slot, "local", "ct state established accept");
        RULE(f, slot, "local", "ct state new tcp flags & (fin|syn|rst|ack) != syn goto i%04x_deny", slot); // what was forgotten is not picked up in its middle
        RULE(f, slot, "local", "jump i%04x_take", owner);
        // No rule's: an id that none has. By it the connection is known as the slot's where all of these are forgotten.
        RULE(f, slot, "local", "ct mark set 0x%04x0000 accept", slot);
}

static void enter_chain(FILE *f, uint16_t slot, const NetworkLimits *limits) {
        if (limited(limits->connections))
                connections_in(f, slot, limits->connections);
        RULE(f, slot, "enter", "accept");
}

static void answer_chain(FILE *f, uint16_t slot, const LimitsText *text) {
        uint16_t owner = text->within ?: slot;

        // The firewall's own refusals pass: a reset is related to what it refuses, an ICMP error has no connection where that was a new one.
        // Neighbour discovery goes on as from the instance.
        RULE(f, slot, "answer", "icmp type destination-unreachable return");
        RULE(f, slot, "answer", "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, destination-unreachable } return");
        RULE(f, slot, "answer", "ct state != related jump i%04x_cut", slot);
        if (text->within)
                RULE(f, slot, "answer", "ct state != related jump i%04x_cut", owner);
        RULE(f, slot, "answer", "ct direction reply ct status dnat tcp sport { %d, %d } counter name i%04x_rx jump i%04x_back", REDIRECT_TLS, REDIRECT_HTTP, slot, owner);
        RULE(f, slot, "answer", "ct direction reply tcp sport %d counter name i%04x_rx jump i%04x_back", CONNECT_PORT, slot, owner);
}

// A question has a port of its own as a rule, and the kernel remembers it for half a minute: so they have a bucket and a number of their own,
// and neither takes anything from the connections that follow.
static void dns_chain(FILE *f, uint16_t slot, const LimitsText *text) {
        if (text->within) {
                RULE(f, slot, "dns", "goto i%04x_dns", text->within);
                return;
        }
        RULE(f, slot, "dns", "ct state established accept");
        if (limited(text->limits.connection_rate))
                connection_rate(f, slot, "dns", text->limits.connection_rate);
        fprintf(f, "add rule inet hostd i%04x_dns add @i%04x_asked { meta mark and 0x%x ct count over %d }", slot, slot, ROUTE_MARK, DNS_MAX);
        refuse(f, slot, "connections", NULL);
        RULE(f, slot, "dns", "accept");
}

static void add_sets(FILE *f, uint16_t slot, uint64_t size) {
        fprintf(f, "add set inet hostd i%04x_conn { type ifname; size 4; flags dynamic; }\n", slot);
        fprintf(f, "add set inet hostd i%04x_held { type mark; size 4; flags dynamic; }\n", slot);
        fprintf(f, "add set inet hostd i%04x_asked { type mark; size 4; flags dynamic; }\n", slot);
        for (size_t i = 0; i < ELEMENTS(seen); i++)
                fprintf(f, "add set inet hostd i%04x_%s { type %s; size %llu; flags dynamic,timeout; timeout 1m; }\n", slot, seen[i].name, seen[i].type,
                        (unsigned long long) size);
}

static void delete_seen(FILE *f, uint16_t slot) {
        for (size_t i = 0; i < ELEMENTS(seen); i++)
                fprintf(f, "delete set inet hostd i%04x_%s\n", slot, seen[i].name);
}

// A quota that is there keeps what it has counted and takes the new limit.
static void add_quota(FILE *f, uint16_t slot, const LimitsText *text) {
        fprintf(f, "add quota inet hostd i%04x_budget { over %llu bytes used %llu bytes }\n", slot,
                (unsigned long long) MIN2(text->limits.traffic, (uint64_t) INT64_MAX), (unsigned long long) text->traffic_used);
}

void ruleset_limits(FILE *f, uint16_t slot, const LimitsText *text) {
        static const char *const chains[] = {"rate", "back", "pass", "admit", "take", "spent", "local", "answer", "enter", "dns"};
        const NetworkLimits *limits = &text->limits;
        uint64_t size = limited(limits->destinations) ? MAX2(limits->destinations, 1) : 1;

        for (size_t i = 0; i < ELEMENTS(chains); i++)
                fprintf(f, "add chain inet hostd i%04x_%s\nflush chain inet hostd i%04x_%s\n", slot, chains[i], slot, chains[i]);
        add_sets(f, slot, size);
        if (text->destinations_anew) { // the size of a set that exists cannot be changed
                delete_seen(f, slot);
                add_sets(f, slot, size);
        }
        if (text->connections_anew) // an element keeps the limit that it was made with
                fprintf(f, "flush set inet hostd i%04x_conn\nflush set inet hostd i%04x_held\n", slot, slot);
        add_quota(f, slot, text);
        if (text->traffic_anew) {
                fprintf(f, "delete quota inet hostd i%04x_budget\n", slot);
                add_quota(f, slot, text);
        }
        spent_chain(f, slot);
        rate_chain(f, slot, limits);
        if (text->police_download && limited(limits->download))
                police(f, slot, "back", limits->download);
        if (limited(limits->traffic))
                traffic(f, slot, "back", "");
        take_chain(f, slot, limits);
        pass_chain(f, slot, text);
        local_chain(f, slot, text);
        enter_chain(f, slot, limits);
        answer_chain(f, slot, text);
        dns_chain(f, slot, text);
}

void ruleset_limits_remove(FILE *f, uint16_t slot) {
        const LimitsText none = {.limits = NETWORK_LIMITS_NONE};

        add_sets(f, slot, 1);
        add_quota(f, slot, &none);
        delete_seen(f, slot);
        fprintf(f, "delete set inet hostd i%04x_conn\ndelete set inet hostd i%04x_held\ndelete set inet hostd i%04x_asked\ndelete quota inet hostd i%04x_budget\n", slot, slot, slot, slot);
}

// Neighbour discovery with the host goes on (ruleset.c accepts it in front), so that the instance's attempts are answered and do not
// look like a broken wire. Outside, only who
// goes on with a connection is told.
void ruleset_cut(FILE *f, uint16_t slot, bool cut) {
        fprintf(f, "add chain inet hostd i%04x_cut\nflush chain inet hostd i%04x_cut\n", slot, slot);
        if (!cut)
                return;
        RULE(f, slot, "cut", "iifname != \"" HOST_PREFIX "*\" tcp flags & (syn|rst) == 0 reject with tcp reset");
        RULE(f, slot, "cut", "iifname != \"" HOST_PREFIX "*\" drop");
        RULE(f, slot, "cut", "goto i%04x_deny", slot);
}
