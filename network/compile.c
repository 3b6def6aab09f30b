// SPDX-License-Identifier: GPL-2.0-or-later
// Compile: turns the texts of policies into numbers once, and decides there what a broad rule may not open.
//
// Every address and port that the kernel will see is made again from these numbers; no text of a person goes further.
#include "network/compile.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

// Special-purpose registries of IANA, plus what clouds put behind link-local addresses. Private ranges, metadata services and
// carrier NAT would otherwise be one "0.0.0.0/0" away.
static const char *const denied4[] = {
        "0.0.0.0/8",     "10.0.0.0/8",     "100.64.0.0/10", "127.0.0.0/8",     "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24",  "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",  "198.51.100.0/24",
        "203.0.113.0/24", "224.0.0.0/3",   NULL, // multicast and reserved
};
static const char *const denied6[] = {
        "::/96",     "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64",  "2001::/23", "2001:db8::/32",
        "2002::/16", "3fff::/20",     "5f00::/16",    "fc00::/7",       "fe80::/10", "fec0::/10", "ff00::/8",
        NULL,
};

const char *const *denied_ranges(int family) {
        return family == AF_INET ? denied4 : denied6;
}

static bool bits_equal(const unsigned char *a, const unsigned char *b, unsigned bits) {
        unsigned whole = bits / 8, rest = bits % 8;

        if (memcmp(a, b, whole) != 0)
                return false;
        return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

bool cidr_contains(const Cidr *outer, const Cidr *inner) {
        return outer->family == inner->family && outer->prefix <= inner->prefix &&
               bits_equal(outer->bytes, inner->bytes, outer->prefix);
}

static bool cidr_host_bits(const Cidr *cidr) {
        unsigned total = cidr->family == AF_INET ? 32 : 128;

        for (unsigned i = cidr->prefix; i < total; i++)
                if (cidr->bytes[i / 8] & (0x80 >> i % 8))
                        return true;
        return false;
}

// -EINVAL: no CIDR; -EDOM: bits are set behind the prefix.
int cidr_parse(const char *text, Cidr *ret) {
        char address[INET6_ADDRSTRLEN];
        const char *slash = strchr(text, '/');
        size_t n = slash ? (size_t) (slash - text) : strlen(text);
        Cidr cidr = {.family = memchr(text, ':', n) ? AF_INET6 : AF_INET};
        unsigned max = cidr.family == AF_INET ? 32 : 128;

        if (n >= sizeof(address))
                return -EINVAL;
        memcpy(address, text, n);
        address[n] = 0;
        if (inet_pton(cidr.family, address, cidr.bytes) != 1)
                return -EINVAL;
        cidr.prefix = max;
        if (slash) {
                char *end;
                unsigned long prefix = strtoul(slash + 1, &end, 10);
                if (slash[1] < '0' || slash[1] > '9' || *end || prefix > max)
                        return -EINVAL;
                cidr.prefix = (unsigned) prefix;
        }
        if (cidr_host_bits(&cidr))
                return -EDOM;
        *ret = cidr;
        return 0;
}

char *cidr_format(const Cidr *cidr, char *buf, size_t size) {
        char address[INET6_ADDRSTRLEN] = "";

        (void) inet_ntop(cidr->family, cidr->bytes, address, sizeof(address)); // cannot fail: family and size are ours
        (void) snprintf(buf, size, "%s/%u", address, cidr->prefix);
        return buf;
}

static int port_compare(const void *a, const void *b) {
        const PortRange *x = a, *y = b;

        return (int) x->first - (int) y->first;
}

// Sorted and joined, because nft refuses intervals that overlap in one anonymous set.
static int ports_parse(const char *text, PortRange **ret, size_t *ret_n) {
        _cleanup_free_ PortRange *list = calloc(COMPILED_PORTS_MAX, sizeof(PortRange));
        size_t n = 0, kept = 0;

        if (!list)
                return -ENOMEM;
        for (const char *p = text;; p++) {
                char *end;
                unsigned long first = strtoul(p, &end, 10), last = first;
                if (*end == '-')
                        last = strtoul(end + 1, &end, 10);
                if (first < 1 || last < first || last > UINT16_MAX || n == COMPILED_PORTS_MAX)
                        return -EINVAL;
                list[n++] = (PortRange) {(uint16_t) first, (uint16_t) last};
                if (*end == 0)
                        break;
                if (*end != ',')
                        return -EINVAL;
                p = end;
        }
        qsort(list, n, sizeof(PortRange), port_compare);
        for (size_t i = 1; i < n; i++)
                if (list[i].first <= (unsigned) list[kept].last + 1)
                        list[kept].last = MAX2(list[kept].last, list[i].last);
                else
                        list[++kept] = list[i];
        *ret_n = kept + 1;
        *ret = TAKE_PTR(list);
        return 0;
}

// Port 25 counts as named only when it stands alone: "25", not "1-1024".
static bool ports_name_smtp(const char *text) {
        for (const char *p = text; p; p = strchr(p, ',')) {
                char *end;
                p += *p == ',';
                if (strtoul(p, &end, 10) == SMTP_PORT && (*end == ',' || *end == 0))
                        return true;
        }
        return false;
}

static bool covers_smtp(const CompiledRule *rule) {
        if (rule->protocol != POLICY_ANY && rule->protocol != POLICY_TCP)
                return false;
        for (size_t i = 0; i < rule->n_ports; i++)
                if (rule->ports[i].first <= SMTP_PORT && rule->ports[i].last >= SMTP_PORT)
                        return true;
        return rule->n_ports == 0;
}

// Inside a denied range: named on purpose. Overlapping one from outside: broad. Prefixes nest or are disjoint, nothing else.
static bool overlaps_denied(const Cidr *to) {
        bool broad = false;

        for (const char *const *p = denied_ranges(to->family); *p; p++) {
                Cidr denied;
                if (cidr_parse(*p, &denied) < 0 || cidr_contains(&denied, to))
                        return false;
                broad = broad || cidr_contains(to, &denied);
        }
        return broad;
}

static int compile_rule(const PolicyRule *rule, CompiledRule *c) {
        int r = cidr_parse(rule->to, &c->to);

        if (r < 0)
                return r;
        c->action = rule->action;
        c->protocol = rule->protocol;
        if (rule->ports && (r = ports_parse(rule->ports, &c->ports, &c->n_ports)) < 0)
                return r;
        if (c->action == POLICY_ALLOW) {
                c->spare_denied = overlaps_denied(&c->to);
                c->spare_smtp = covers_smtp(c) && !(rule->ports && ports_name_smtp(rule->ports));
        }
        return 0;
}

// Chained over the denials in front: an added denial gives every later allow a new identity, so that its flows are judged anew.
static int compile_digest(CompiledRule *c, char chain[DIGEST_TEXT_MAX]) {
        _cleanup_free_ char *text = NULL;
        char full[DIGEST_TEXT_MAX], cidr[CIDR_TEXT_MAX];
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return -ENOMEM;
        fprintf(f, "%s %d %d %s %d%d", chain, c->action, c->protocol, cidr_format(&c->to, cidr, sizeof(cidr)), c->spare_denied,
                c->spare_smtp);
        for (size_t i = 0; i < c->n_ports; i++)
                fprintf(f, " %u-%u", c->ports[i].first, c->ports[i].last);
        if (fclose(f) != 0)
                return -ENOMEM;
        digest_bytes(text, size, full);
        memcpy(c->digest, full, COMPILED_DIGEST);
        if (c->action == POLICY_DENY)
                memcpy(chain, full, sizeof(full));
        return 0;
}

int compiled_new(Policy *const *policies, size_t n, Compiled **ret, Error *err) {
        _cleanup_(compiled_freep) Compiled *compiled = calloc(1, sizeof(Compiled));
        char chain[DIGEST_TEXT_MAX] = "";
        size_t total = 0;

        for (size_t i = 0; i < n; i++)
                total += policies[i]->n_rules;
        if (!compiled || !(compiled->rules = calloc(total ?: 1, sizeof(CompiledRule))))
                return error_set_errno(err, ENOMEM, "compiling policies");
        for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < policies[i]->n_rules; k++) {
                        CompiledRule *c = &compiled->rules[compiled->n];
                        c->index = (int) compiled->n++;
                        int r = compile_rule(&policies[i]->rules[k], c);
                        if (r >= 0)
                                r = compile_digest(c, chain);
                        if (r < 0)
                                return error_set_errno(err, r, "compiling rules[%zu] of policy %s", k, policies[i]->name);
                }
        *ret = TAKE_PTR(compiled);
        return 0;
}

Compiled *compiled_free(Compiled *compiled) {
        if (!compiled)
                return NULL;
        for (size_t i = 0; i < compiled->n; i++)
                free(compiled->rules[i].ports);
        free(compiled->rules);
        free(compiled);
        return NULL;
}

static bool denied_by_default(const Cidr *address) {
        for (const char *const *p = denied_ranges(address->family); *p; p++) {
                Cidr denied;
                if (cidr_parse(*p, &denied) == 0 && cidr_contains(&denied, address))
                        return true;
        }
        return false;
}

bool compiled_rule_matches(const CompiledRule *rule, const Cidr *address, PolicyProtocol protocol, uint16_t port) {
        bool hit = rule->n_ports == 0;

        if (!cidr_contains(&rule->to, address))
                return false;
        if (rule->protocol != POLICY_ANY && rule->protocol != protocol)
                return false;
        for (size_t i = 0; i < rule->n_ports && !hit; i++)
                hit = port >= rule->ports[i].first && port <= rule->ports[i].last;
        if (!hit || (rule->spare_smtp && protocol == POLICY_TCP && port == SMTP_PORT))
                return false;
        return !rule->spare_denied || !denied_by_default(address);
}
