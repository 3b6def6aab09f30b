// SPDX-License-Identifier: GPL-2.0-or-later
// Ruleset: the whole firewall of hostd as text, written from numbers only.
//
// Three things carry the security here, and each depends on order:
//  * netdev chain per veth first (exact MAC, exact addresses), then the inet chain `spoof`, which alone sets the routing mark;
//  * the admitting rule writes (slot << 16 | id) into the conntrack mark, and established traffic passes only while that mark is
//    in the slot's live set. A mark that is of this slot but not live is judged again by the present rules, in both directions,
//    which is why rules match the original tuple ("ct original") and not the packet: an unaffected flow loses no packet, a
//    revoked one is cut by its next packet from either side;
//  * an admitted new connection goes through the slot's chain "pass" (limits.c), and is accepted there or nowhere;
//  * RELATED is never judged by the rules: an ICMP error carries its parent's conntrack entry, and an icmp rule would otherwise
//    give a revoked TCP flow a live mark again.
// No "add element" is written: for that, libnftables reads the elements of every interval set of the host, foreign ones included.
// Elements are put there by transact.c; a map without its element leads to the drop behind it.
// Everything that is not a veth of ours passes untouched: the chains accept by default and drop by interface.
#include "network/ruleset.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/clock.h"
#include "network/group.h"

#define RULE(f, chain, ...) (fprintf(f, "add rule inet hostd %s ", chain), fprintf(f, __VA_ARGS__), (void) fputc('\n', f))

void chain_new(FILE *f, const char *chain) {
        fprintf(f, "add chain inet hostd %s\nflush chain inet hostd %s\n", chain, chain);
}

void chain_refuse(FILE *f, const char *chain, uint16_t slot) {
        RULE(f, chain, "limit rate 20/second burst 20 packets log prefix \"hostd:%04x:deny \" group %d", slot, LOG_GROUP);
        // An ICMP error is a soft error for a connecting TCP, which would retry for a minute.
        RULE(f, chain, "meta l4proto tcp reject with tcp reset");
        RULE(f, chain, "reject with icmpx admin-prohibited");
}

void chain_keep_out(FILE *f, const char *chain, const Pools *pools, const char *refused) {
        RULE(f, chain, "oifname \"" HOST_PREFIX "*\" goto %s", refused);
        RULE(f, chain, "fib daddr type { local, broadcast, multicast, anycast } goto %s", refused);
        RULE(f, chain, "ip daddr %s goto %s", pools->four, refused);
        RULE(f, chain, "ip6 daddr %s goto %s", pools->six, refused);
}

static void base_chain(FILE *f, const char *chain, const char *hook) {
        fprintf(f, "add chain inet hostd %s { %s; policy accept; }\nflush chain inet hostd %s\n", chain, hook, chain);
}

Pools pools_format(const NetworkSettings *settings) {
        Cidr four = {.family = AF_INET, .prefix = settings->ipv4_prefix};
        Cidr six = {.family = AF_INET6, .prefix = settings->ipv6_prefix};
        Pools pools;

        memcpy(four.bytes, &settings->ipv4_pool, sizeof(settings->ipv4_pool));
        memcpy(six.bytes, &settings->ipv6_pool, sizeof(settings->ipv6_pool));
        cidr_format(&four, pools.four, sizeof(pools.four));
        cidr_format(&six, pools.six, sizeof(pools.six));
        return pools;
}

static void base_spoof(FILE *f) {
        base_chain(f, "spoof", "type filter hook prerouting priority -300");
        RULE(f, "spoof", "iifname != \"" HOST_PREFIX "*\" accept");
        RULE(f, "spoof", "iifname . ip saddr @src4 meta mark set meta mark or 0x%x accept", ROUTE_MARK);
        RULE(f, "spoof", "iifname . ip6 saddr @src6 meta mark set meta mark or 0x%x accept", ROUTE_MARK);
        RULE(f, "spoof", "iifname \"" SANDBOX_PREFIX "*\" counter drop"); // whose wire needs no neighbour discovery
        // Neighbour discovery ends on the host: it gets no mark and so cannot be forwarded.
        RULE(f, "spoof", "ip6 saddr { ::, fe80::/10 } icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 accept");
        RULE(f, "spoof", "counter drop");
}

// Behind the NAT of replies (-100): only then is it known that a packet goes to an instance.
static void base_return(FILE *f, const Pools *pools) {
        base_chain(f, "returning", "type filter hook prerouting priority -90");
        RULE(f, "returning", "iifname \"" HOST_PREFIX "*\" accept");
        RULE(f, "returning", "ip daddr %s meta mark set meta mark or 0x%x", pools->four, ROUTE_MARK);
        RULE(f, "returning", "ip6 daddr %s meta mark set meta mark or 0x%x", pools->six, ROUTE_MARK);
}

static void base_filter(FILE *f) {
        base_chain(f, "input", "type filter hook input priority 0");
        RULE(f, "input", "iifname != \"" HOST_PREFIX "*\" accept");
        RULE(f, "input", "iifname vmap @host_v");
        RULE(f, "input", "iifname vmap @host_p");
        RULE(f, "input", "counter drop");
        base_chain(f, "forward", "type filter hook forward priority 0");
        RULE(f, "forward", "iifname \"" HOST_PREFIX "*\" ct state invalid counter drop");
        RULE(f, "forward", "oifname \"" HOST_PREFIX "*\" ct state invalid counter drop");
        RULE(f, "forward", "iifname vmap @out_v");
        RULE(f, "forward", "iifname vmap @out_p");
        RULE(f, "forward", "iifname \"" HOST_PREFIX "*\" counter drop");
        RULE(f, "forward", "oifname vmap @in_v");
        RULE(f, "forward", "oifname vmap @in_p");
        RULE(f, "forward", "oifname \"" HOST_PREFIX "*\" counter drop");
}

static void base_nat(FILE *f, const NetworkSettings *settings, const Pools *pools) {
        char out[64] = "oifname != \"" HOST_PREFIX "*\"";

        if (settings->uplink)
                (void) snprintf(out, sizeof(out), "oifname \"%s\"", settings->uplink); // VALID_IFNAME, checked in network_new()
        base_chain(f, "nat", "type nat hook postrouting priority 100");
        RULE(f, "nat", "ip saddr %s %s masquerade", pools->four, out);
        if (settings->ipv6_nat)
                RULE(f, "nat", "ip6 saddr %s %s masquerade", pools->six, out);
}

void ruleset_base(FILE *f, const NetworkSettings *settings) {
        Pools pools = pools_format(settings);

        fprintf(f, "add table inet hostd\nadd table netdev hostd\n");
        fprintf(f, "add set inet hostd deny4 { type ipv4_addr; flags interval; }\n"
                   "add set inet hostd deny6 { type ipv6_addr; flags interval; }\n");
        fprintf(f, "add set inet hostd src4 { type ifname . ipv4_addr; }\nadd set inet hostd src6 { type ifname . ipv6_addr; }\n");
        fprintf(f, "add map inet hostd out_v { type ifname : verdict; }\nadd map inet hostd in_v { type ifname : verdict; }\n"
                   "add map inet hostd host_v { type ifname : verdict; }\n");
        // Of profiles, by how the names of their sandboxes' interfaces begin: to add a sandbox is to add its addresses to src4 and src6. An
        // element of these maps would have the kernel look at every chain that any of them leads to, for each sandbox anew.
        fprintf(f, "add map inet hostd out_p { type ifname : verdict; flags interval; }\nadd map inet hostd in_p { type ifname : verdict; flags interval; }\n"
                   "add map inet hostd host_p { type ifname : verdict; flags interval; }\n");
        base_spoof(f);
        base_return(f, &pools);
        base_filter(f);
        base_nat(f, settings, &pools);
        ruleset_border_base(f);
}

typedef struct SlotText { // everything of one slot that is printed, ready
        uint16_t slot, within; // within: of a profile, the slot of its instance; else 0
        NetworkAddress address;
        char stem[8], four[INET_ADDRSTRLEN], six[INET6_ADDRSTRLEN], local[INET6_ADDRSTRLEN], mac[18];
        char out[16], in[16], host[16], deny[16], judge[16], rules[16], back[16];
} SlotText;

static SlotText slot_text(const NetworkSettings *settings, uint16_t slot, uint16_t within) {
        SlotText t = {.slot = slot, .within = within};
        const unsigned char *m = t.address.mac;
        struct in6_addr local = {.s6_addr = {0xfe, 0x80}};

        network_address(settings, slot, &t.address);
        (void) inet_ntop(AF_INET, &t.address.ipv4, t.four, sizeof(t.four));
        (void) inet_ntop(AF_INET6, &t.address.ipv6, t.six, sizeof(t.six));
        (void) snprintf(t.mac, sizeof(t.mac), "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
        // EUI-64: the link-local address that the kernel gives a device with this MAC.
        memcpy(&local.s6_addr[8], (unsigned char[]) {m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}, 8);
        (void) inet_ntop(AF_INET6, &local, t.local, sizeof(t.local));
        (void) snprintf(t.stem, sizeof(t.stem), "i%04x", slot);
        (void) snprintf(t.out, sizeof(t.out), "%s_out", t.stem);
        (void) snprintf(t.in, sizeof(t.in), "%s_in", t.stem);
        (void) snprintf(t.host, sizeof(t.host), "%s_host", t.stem);
        (void) snprintf(t.deny, sizeof(t.deny), "%s_deny", t.stem);
        (void) snprintf(t.rules, sizeof(t.rules), "%s_rules", t.stem);
        (void) snprintf(t.judge, sizeof(t.judge), "%s_judge", t.stem);
        (void) snprintf(t.back, sizeof(t.back), "%s_back", t.stem);
        return t;
}

// All chains of a slot in `inet hostd`, whoever fills them.
static const char *const slot_chains[] = {"lead", "nat", "out", "in", "host", "judge", "rules", "rate", "back", "pass", "admit", "take", "spent", "cut", "border", "local", "answer", "enter", "dns", "deny"};
static const char *const counter_names[] = {"tx", "rx", "denied", "connections", "connection_rate", "destinations", "traffic"};

static void slot_objects(FILE *f, const SlotText *t) {
        fprintf(f, "add set inet hostd %s_live { type mark; flags timeout; }\n", t->stem);
        for (size_t i = 0; i < ELEMENTS(counter_names); i++)
                fprintf(f, "add counter inet hostd %s_%s\n", t->stem, counter_names[i]);
        fprintf(f, "add counter netdev hostd %s_spoof\n", t->stem);
        for (size_t i = 0; i < ELEMENTS(slot_chains); i++)
                fprintf(f, "add chain inet hostd %s_%s\n", t->stem, slot_chains[i]);
        ruleset_border_slot(f, t->slot);
}

static void slot_deny(FILE *f, const SlotText *t) {
        chain_new(f, t->deny);
        if (t->within) // its instance's rules had allowed it, and left their mark
                RULE(f, t->deny, "ct state established ct mark and 0xffff0000 == 0x%04x0000 ct mark set 0x%04x0000", t->within, t->slot);
        RULE(f, t->deny, "counter name %s_denied", t->stem);
        chain_refuse(f, t->deny, t->slot);
}

// Established, of a rule that is in force, or of a connection from outside whose exposure has not ended.
static void established_accept(FILE *f, const char *chain, const SlotText *t) {
        static const char *const sets[] = {"live", "exposed"};

        for (size_t i = 0; i < ELEMENTS(sets); i++) {
                RULE(f, chain, "ct state established ct mark @%s_%s accept", t->stem, sets[i]);
                RULE(f, chain, "ct state related meta l4proto { icmp, ipv6-icmp } ct mark @%s_%s accept", t->stem, sets[i]);
        }
}

// What holds for a profile's instance holds for the sum of it and its sandboxes.
static void both(FILE *f, const char *chain, const SlotText *t, const char *what) {
        RULE(f, chain, "jump %s_%s", t->stem, what);
        if (t->within)
                RULE(f, chain, "jump i%04x_%s", t->within, what);
}

// Of a profile's connection that is being judged elsewhere at this very moment, its instance's too.
static const char *own_marks(const SlotText *t, char buf[static 32]) {
        (void) snprintf(buf, 32, t->within ? "{ 0x%04x0000, 0x%04x0000 }" : "0x%04x0000", t->slot, t->within);
        return buf;
}

// Of a profile: its instance's rules first, which leave a live mark of theirs or have denied, then its own, which leave the mark that stays. A
// mark that is live already was written by another processor, which is through with the same two. What follows a refusal by neither is
// the caller's, who finds a mark that no rule has.
static void slot_judge(FILE *f, const SlotText *t) {
        chain_new(f, t->judge);
        if (!t->within)
                return;
        RULE(f, t->judge, "jump i%04x_rules comment \"w%04x\"", t->within, t->within);
        RULE(f, t->judge, "ct mark != @i%04x_live ct mark != @%s_live ct mark set 0x%04x0000 return", t->within, t->stem, t->slot);
        RULE(f, t->judge, "jump %s", t->rules);
        RULE(f, t->judge, "ct mark set 0x%04x0000", t->slot);
}

// A connection is led to the border if either list needs a name for it.
static void slot_lead(FILE *f, const SlotText *t) {
        char lead[16];

        (void) snprintf(lead, sizeof(lead), "%s_lead", t->stem);
        chain_new(f, lead);
        if (t->within)
                both(f, lead, t, "nat");
}

static void slot_out(FILE *f, const NetworkSettings *settings, const SlotText *t) {
        Pools pools = pools_format(settings);
        char marks[32];

        chain_new(f, t->out);
        RULE(f, t->out, "counter name %s_tx", t->stem);
        both(f, t->out, t, "cut");
        both(f, t->out, t, "rate");
        established_accept(f, t->out, t);
        // Of a connection from outside only what is exposed passes; the rules know the host's address as its destination.
        RULE(f, t->out, "ct direction reply goto %s", t->deny);
        // Somebody else led it elsewhere, such as to a container by a port of the host's: the rules judge the address that was asked for, not
        // where it goes. Ours are not here: what is redirected ends on the host, and what is exposed begins outside.
        RULE(f, t->out, "ct status dnat goto %s", t->deny);
        RULE(f, t->out, "ct state != { new, established } goto %s", t->deny);
        RULE(f, t->out, "ct state established ct mark and 0xffff0000 != %s goto %s", own_marks(t, marks), t->deny);
        // A connection that the kernel does not know is not picked up in its middle: it was never judged.
        RULE(f, t->out, "ct state new meta l4proto tcp tcp flags & (fin|syn|rst|ack) != syn goto %s", t->deny);
        chain_keep_out(f, t->out, &pools, t->deny);
        RULE(f, t->out, "jump %s", t->within ? t->judge : t->rules);
        RULE(f, t->out, "goto %s", t->deny);
}

static void slot_in(FILE *f, const SlotText *t) {
        char marks[32];

        chain_new(f, t->in);
        RULE(f, t->in, "counter name %s_rx", t->stem);
        both(f, t->in, t, "cut");
        // Only of what the instance began: a stranger who sends packets must not use up its traffic.
        RULE(f, t->in, "ct state established jump %s", t->back);
        if (t->within)
                RULE(f, t->in, "ct state established jump i%04x_back", t->within);
        established_accept(f, t->in, t);
        for (int four = 4; four <= 6; four += 2)
                RULE(f, t->in, "ct state new ct status dnat meta nfproto ipv%d meta l4proto { tcp, udp } ct mark set meta l4proto . ct original proto-dst . "
                               "%s saddr map @%s_expose%d ct mark @%s_exposed goto %s_enter",
                     four, four == 4 ? "ip" : "ip6", t->stem, four, t->stem, t->stem);
        RULE(f, t->in, "ct state established ct direction reply ct mark and 0xffff0000 %s%s jump %s", t->within ? "" : "== ", own_marks(t, marks), t->within ? t->judge : t->rules);
        // Admitted once, not any more: tell the other end as well.
        RULE(f, t->in, "ct state established ct mark and 0xffff0000 == 0x%04x0000 meta l4proto tcp reject with tcp reset", t->slot);
        RULE(f, t->in, "counter drop");
}

static void slot_host(FILE *f, const SlotText *t) {
        chain_new(f, t->host);
        RULE(f, t->host, "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept");
        both(f, t->host, t, "cut");
        RULE(f, t->host, "icmp type echo-request limit rate 5/second accept");
        RULE(f, t->host, "icmpv6 type echo-request limit rate 5/second accept");
        // Answers to what the host itself began (previews, health checks).
        RULE(f, t->host, "ct state established ct direction reply accept");
        RULE(f, t->host, "ct state related ct direction reply meta l4proto { icmp, ipv6-icmp } accept");
        RULE(f, t->host, "jump %s_border", t->stem);
        RULE(f, t->host, "fib daddr type { broadcast, multicast } drop");
        RULE(f, t->host, "goto %s", t->deny);
}

// The device's own gate. Ranges of frames that are noise of an honest guest (MLD, router solicitations) are dropped without
// being counted as an attempt to spoof.
static void slot_netdev(FILE *f, const SlotText *t) {
        char rule[64], spoof[64];

        (void) snprintf(rule, sizeof(rule), "add rule netdev hostd %s", t->stem);
        (void) snprintf(spoof, sizeof(spoof), "counter name %s_spoof drop", t->stem);
        // Without its hook the chain may have outlived an earlier device of this name: a new one is hooked for certain.
        fprintf(f, "add chain netdev hostd %s\ndelete chain netdev hostd %s\n", t->stem, t->stem);
        fprintf(f, "add chain netdev hostd %s { type filter hook ingress device \"%s\" priority -500; policy drop; }\n", t->stem,
                t->address.host_ifname);
        fprintf(f, "%s ether type { 8021q, 8021ad } %s\n", rule, spoof);
        fprintf(f, "%s ether saddr != %s %s\n", rule, t->mac, spoof);
        fprintf(f, "%s arp htype 1 arp ptype ip arp hlen 6 arp plen 4 arp operation { request, reply } arp saddr ether %s arp saddr ip %s limit rate 20/second accept\n",
                rule, t->mac, t->four);
        fprintf(f, "%s ip saddr %s accept\n", rule, t->four);
        fprintf(f, "%s icmpv6 type { nd-router-advert, nd-redirect } %s\n", rule, spoof);
        fprintf(f, "%s ip6 saddr %s accept\n", rule, t->six);
        fprintf(f, "%s ip6 saddr %s icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 limit rate 20/second accept\n",
                rule, t->local);
        fprintf(f, "%s ip6 saddr :: icmpv6 type nd-neighbor-solicit ip6 hoplimit 255 limit rate 5/second accept\n", rule);
        fprintf(f, "%s ip6 saddr { ::, %s } drop\n", rule, t->local);
        fprintf(f, "%s %s\n", rule, spoof);
}

void ruleset_slot(FILE *f, const NetworkSettings *settings, uint16_t slot, SlotKind kind) {
        SlotText t = slot_text(settings, slot, kind.within);

        slot_objects(f, &t);
        slot_deny(f, &t);
        slot_out(f, settings, &t);
        slot_in(f, &t);
        slot_host(f, &t);
        slot_judge(f, &t);
        slot_lead(f, &t);
        if (kind.device)
                slot_netdev(f, &t);
}

void ruleset_gate(FILE *f, const NetworkSettings *settings, uint16_t slot) {
        SlotText t = slot_text(settings, slot, 0);

        slot_netdev(f, &t);
}

void ruleset_slot_remove(FILE *f, const NetworkSettings *settings, uint16_t slot) {
        SlotText t = slot_text(settings, slot, 0);

        // nft of Debian 12 has no "destroy": what may be absent is added first.
        slot_objects(f, &t);
        for (size_t i = 0; i < ELEMENTS(slot_chains); i++)
                fprintf(f, "flush chain inet hostd %s_%s\n", t.stem, slot_chains[i]);
        for (size_t i = 0; i < ELEMENTS(slot_chains); i++)
                fprintf(f, "delete chain inet hostd %s_%s\n", t.stem, slot_chains[i]);
        fprintf(f, "delete set inet hostd %s_live\n", t.stem);
        ruleset_border_remove(f, slot);
        ruleset_limits_remove(f, slot);
        for (size_t i = 0; i < ELEMENTS(counter_names); i++)
                fprintf(f, "delete counter inet hostd %s_%s\n", t.stem, counter_names[i]);
        fprintf(f, "add chain netdev hostd %s\ndelete chain netdev hostd %s\n", t.stem, t.stem);
        fprintf(f, "delete counter netdev hostd %s_spoof\n", t.stem);
}

// One line for each range of ports; what lines have in common is group.c's business.
size_t ruleset_lines(const CompiledRule *rule, RuleLine *ret) {
        const uint8_t protocols[_POLICY_PROTOCOL_MAX] = {
                [POLICY_TCP] = IPPROTO_TCP, [POLICY_UDP] = IPPROTO_UDP,
                [POLICY_ICMP] = rule->to.family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6,
        };
        RuleLine line = {.rule = rule, .protocol = protocols[rule->protocol]};
        size_t n = 0;

        if (rule->kind != RULE_ADDRESS) // by name: not a matter of the packet
                return 0;
        if (rule->spare_smtp && rule->n_ports == 0) {
                ret[n++] = (RuleLine) {.rule = rule, .protocol = IPPROTO_TCP, .port_not_smtp = true};
                if (rule->protocol == POLICY_TCP)
                        return n;
                line.protocol = IPPROTO_TCP; // the other half of "any"
                line.protocol_not = true;
        }
        if (rule->n_ports == 0)
                ret[n++] = line;
        for (size_t i = 0; i < rule->n_ports; i++) {
                line.ports = rule->ports[i];
                line.port_not_smtp = rule->spare_smtp && line.ports.first <= SMTP_PORT && line.ports.last >= SMTP_PORT;
                ret[n++] = line;
        }
        return n;
}

static const char *protocol_name(uint8_t protocol) {
        return protocol == IPPROTO_TCP ? "tcp" : protocol == IPPROTO_UDP ? "udp" : protocol == IPPROTO_ICMP ? "icmp" : "ipv6-icmp";
}

// Where lines are written to, and where what they deny goes: NULL is back to where the chain was called.
typedef struct Writer {
        FILE *f;
        uint16_t slot;
        const char *chain, *denied;
} Writer;

// `key`: the address, and the port if it is in the key, are looked up behind this and not compared here.
static void policy_match(const Writer *w, const RuleLine *line, const Group *key) {
        const CompiledRule *rule = line->rule;
        bool four = rule->to.family == AF_INET;
        const char *ip = four ? "ip" : "ip6";
        char cidr[CIDR_TEXT_MAX];
        FILE *f = w->f;

        fprintf(f, "add rule inet hostd i%04x_%s meta nfproto ipv%d", w->slot, w->chain, four ? 4 : 6);
        if (rule->to.prefix > 0 && !key)
                fprintf(f, " ct original %s daddr %s", ip, cidr_format(&rule->to, cidr, sizeof(cidr)));
        if (rule->spare_denied)
                fprintf(f, " ct original %s daddr != @deny%d", ip, four ? 4 : 6);
        if (line->protocol)
                fprintf(f, " meta l4proto %s%s", line->protocol_not ? "!= " : "", protocol_name(line->protocol));
        if (line->ports.first && !(key && key->port_in_key)) {
                fprintf(f, " ct original proto-dst %u", line->ports.first);
                if (line->ports.last != line->ports.first)
                        fprintf(f, "-%u", line->ports.last);
        }
        if (line->port_not_smtp)
                fprintf(f, " ct original proto-dst != %d", SMTP_PORT);
}

static void policy_denied(const Writer *w) {
        if (w->denied)
                fprintf(w->f, " goto i%04x_%s\n", w->slot, w->denied);
        else
                fputs(" return\n", w->f);
}

// A grant admits while its mark is live: the kernel ends that by itself.
static void policy_verdict(const Writer *w, const CompiledRule *rule) {
        if (rule->action == POLICY_ALLOW) {
                fprintf(w->f, " ct mark set 0x%04x%04x", w->slot, rule->id);
                if (rule->until)
                        fprintf(w->f, " ct mark @i%04x_live", w->slot);
                fprintf(w->f, " goto i%04x_pass\n", w->slot);
        } else
                policy_denied(w);
}

static void policy_key(FILE *f, const Group *group) {
        const Cidr *to = &group->lines[0].rule->to;
        bool four = to->family == AF_INET;
        char address[INET6_ADDRSTRLEN];
        unsigned char bits[16] = {0};

        fprintf(f, "ct original %s daddr", four ? "ip" : "ip6");
        for (unsigned i = 0; i < to->prefix; i++)
                bits[i / 8] |= (unsigned char) (0x80 >> i % 8);
        if (to->prefix < (four ? 32 : 128))
                fprintf(f, " & %s", inet_ntop(to->family, bits, address, sizeof(address)));
        if (group->port_in_key)
                fputs(" . ct original proto-dst", f);
}

static void policy_map(const Writer *w, const Group *group) {
        bool allow = group->lines[0].rule->action == POLICY_ALLOW;
        FILE *f = w->f;

        policy_match(w, &group->lines[0], group);
        fputs(allow ? " ct mark set " : " ", f);
        policy_key(f, group);
        fputs(allow ? " map { " : " { ", f);
        for (size_t i = 0; i < group->n; i++) {
                const RuleLine *line = &group->lines[i];
                char address[INET6_ADDRSTRLEN];
                fprintf(f, "%s%s", i ? ", " : "", inet_ntop(line->rule->to.family, line->rule->to.bytes, address, sizeof(address)));
                if (group->port_in_key)
                        fprintf(f, " . %u", line->ports.first);
                if (allow)
                        fprintf(f, " : 0x%04x%04x", w->slot, line->rule->id);
        }
        fputs(" }", f);
        if (allow)
                fprintf(f, " goto i%04x_pass\n", w->slot);
        else
                policy_denied(w);
}

static void policy_group(const Writer *w, const Group *group) {
        if (group->mapped) {
                policy_map(w, group);
                return;
        }
        for (size_t i = 0; i < group->n; i++) {
                policy_match(w, &group->lines[i], NULL);
                policy_verdict(w, group->lines[i].rule);
        }
}

static int policy_groups(const Writer *w, const Compiled *compiled) {
        _cleanup_(groups_done) Groups groups = {0};
        int r = groups_new(compiled, &groups);

        for (size_t i = 0; i < groups.n && r >= 0; i++)
                policy_group(w, &groups.groups[i]);
        return r;
}

static void policy_redirects(const Writer *w, const Redirect *list, size_t n) {
        for (size_t i = 0; i < n; i++)
                fprintf(w->f, "add rule inet hostd i%04x_nat meta l4proto %s ct original proto-dst %u redirect to :%u\n", w->slot,
                        protocol_name(list[i].protocol), list[i].from, list[i].to);
}

// The chain of the nat hook: a new connection is sent to the border unless a rule by address in front of those by name decides.
static int policy_nat(FILE *f, const PolicyText *text) {
        const Writer w = {f, text->slot, "nat", NULL};
        Redirect list[REDIRECTS_MAX];
        Compiled front = {0};
        size_t n = redirects_dns(text, list);
        int r = redirects_in_front(text, &front);

        if (r < 0)
                return r;
        policy_redirects(&w, list, n);
        n = redirects_names(text, list);
        if (n > 0)
                r = policy_groups(&w, &front);
        policy_redirects(&w, list, n);
        free(front.rules);
        return r;
}

// Addresses that the resolver found. An element of a rule that is gone must not admit what it once did: its mark is not live.
static void policy_names(FILE *f, uint16_t slot) {
        for (unsigned i = 0; i < 4; i++)
                fprintf(f, "add rule inet hostd i%04x_rules meta nfproto ipv%d meta l4proto %s ct mark set ct original %s daddr . meta l4proto . "
                           "ct original proto-dst map @i%04x_names%d ct mark @i%04x_live goto i%04x_pass\n",
                        slot, i < 2 ? 4 : 6, i % 2 ? "udp" : "tcp", i < 2 ? "ip" : "ip6", slot, i < 2 ? 4 : 6, slot, slot);
}

static int policy_rules(const Writer *w, const Compiled *compiled) {
        Redirect proxied[REDIRECTS_MAX];
        size_t n = redirects_of_policy(compiled, proxied);
        Compiled front, behind;
        int r;

        redirects_split(compiled, &front, &behind);
        r = policy_groups(w, &front);
        for (size_t i = 0; i < n; i++)
                fprintf(w->f, "add rule inet hostd i%04x_rules meta l4proto %s ct original proto-dst %u goto i%04x_deny\n", w->slot,
                        protocol_name(proxied[i].protocol), proxied[i].from, w->slot);
        return r < 0 ? r : policy_groups(w, &behind);
}

uint64_t ruleset_left_ms(uint64_t until) {
        usec_t now = clock_realtime();

        return until > now ? (until - now) / USEC_PER_MSEC + 1 : 1;
}

uint64_t ruleset_live_until(const PolicyText *text, const CompiledRule *rule) {
        return rule->until && text->until ? MIN2(rule->until, text->until) : rule->until ?: text->until;
}

int ruleset_policy(FILE *f, const PolicyText *text) {
        const Writer w = {f, text->slot, "rules", "deny"};
        const Compiled *compiled = text->compiled;
        const char *separator = "";
        uint16_t slot = text->slot;
        int r;

        fprintf(f, "flush chain inet hostd i%04x_rules\nflush chain inet hostd i%04x_nat\nflush set inet hostd i%04x_live\n", slot, slot, slot);
        if (text->ids_anew)
                fprintf(f, "flush map inet hostd i%04x_names4\nflush map inet hostd i%04x_names6\n", slot, slot);
        if (redirects_has_names_map(text))
                policy_names(f, slot);
        r = policy_rules(&w, compiled);
        if (r >= 0)
                r = policy_nat(f, text);
        if (r < 0)
                return r;
        // Matches nothing that matters and decides nothing: it is where the kernel keeps the next id for the next hostd.
        fprintf(f, "add rule inet hostd i%04x_rules ct mark 0 comment \"%04x\"\n", slot, text->next_id);
        for (size_t i = 0; i < compiled->n; i++)
                if (compiled_rule_is_marked(&compiled->rules[i])) {
                        if (!*separator)
                                fprintf(f, "add element inet hostd i%04x_live { ", slot);
                        fprintf(f, "%s0x%04x%04x", separator, slot, compiled->rules[i].id);
                        if (ruleset_live_until(text, &compiled->rules[i]))
                                fprintf(f, " timeout %llums", (unsigned long long) ruleset_left_ms(ruleset_live_until(text, &compiled->rules[i])));
                        fprintf(f, " comment \"%s\"", compiled->rules[i].digest);
                        separator = ", ";
                }
        if (*separator)
                fprintf(f, " }\n");
        return 0;
}

void ruleset_remove(FILE *f) {
        fprintf(f, "add table inet hostd\ndelete table inet hostd\nadd table netdev hostd\ndelete table netdev hostd\n");
}
