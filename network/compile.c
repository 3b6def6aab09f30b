// SPDX-License-Identifier: GPL-2.0-or-later
// Compile: turns the texts of policies into numbers once, and decides there what a broad rule may not open.
//
// Every address and port that the kernel will see is made again from these numbers; no text of a person goes further.
#include "network/compile.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/strv.h"

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
int ports_parse(const char *text, PortRange **ret, size_t *ret_n) {
        PortRange list[COMPILED_PORTS_MAX], *copy;
        size_t n = 0, kept = 0;

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
        copy = malloc((kept + 1) * sizeof(PortRange));
        if (!copy)
                return -ENOMEM;
        memcpy(copy, list, (kept + 1) * sizeof(PortRange));
        *ret_n = kept + 1;
        *ret = copy;
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

bool compiled_is_proxied(PolicyProtocol protocol, uint16_t port) {
        return protocol == POLICY_TCP && (port == 80 || port == 443);
}

// What a rule by name says without saying it; see policy.h.
static int compile_name(const PolicyRule *rule, CompiledRule *c) {
        PolicyTarget target = policy_target(rule->to);

        c->kind = target == POLICY_TO_NAME ? RULE_NAME : target == POLICY_TO_SUFFIX ? RULE_SUFFIX : RULE_ANY_NAME;
        if (c->kind != RULE_ANY_NAME && !(c->name = strdup(rule->to + (c->kind == RULE_SUFFIX ? 2 : 0))))
                return -ENOMEM;
        if (c->protocol == POLICY_ANY && (c->action == POLICY_ALLOW || rule->ports))
                c->protocol = POLICY_TCP;
        if (c->action == POLICY_ALLOW && !rule->ports) {
                c->ports = calloc(1, sizeof(PortRange));
                if (!c->ports)
                        return -ENOMEM;
                c->ports[c->n_ports++] = (PortRange) {443, 443};
        }
        return 0;
}

static int compile_http(const PolicyRule *rule, CompiledRule *c) {
        c->inspect = policy_rule_inspects(rule);
        c->git = rule->git;
        c->rate = rule->rate;
        c->budget = rule->budget;
        c->until = rule->until;
        c->methods = strv_copy(rule->methods);
        c->paths = strv_copy(rule->paths);
        return (rule->methods && !c->methods) || (rule->paths && !c->paths) ? -ENOMEM : 0;
}

static int compile_rule(const PolicyRule *rule, CompiledRule *c) {
        int r = 0;

        c->action = rule->action;
        c->protocol = rule->protocol;
        if (rule->ports && (r = ports_parse(rule->ports, &c->ports, &c->n_ports)) < 0)
                return r;
        if (policy_target(rule->to) == POLICY_TO_CIDR) {
                r = cidr_parse(rule->to, &c->to);
                if (c->protocol == POLICY_ANY && rule->ports) // out of a category
                        c->protocol = POLICY_TCP;
        } else
                r = compile_name(rule, c);
        if (r >= 0)
                r = compile_http(rule, c);
        if (r >= 0 && c->action == POLICY_ALLOW) {
                c->spare_denied = c->kind == RULE_ADDRESS && overlaps_denied(&c->to);
                c->spare_smtp = covers_smtp(c) && !(rule->ports && ports_name_smtp(rule->ports));
        }
        return r;
}

static void digest_list(FILE *f, const char *key, char *const *list) {
        for (; list && *list; list++)
                fprintf(f, " %s%s", key, *list);
}

typedef struct Front { // what stands in front of a rule, as far as it changes the rule's effect
        char denials[DIGEST_TEXT_MAX];
        bool https, http; // some name has the port: what goes there is the proxy's
} Front;

// Chained over the denials in front: an added denial gives every later allow a new identity, so that its flows are judged anew. So does
// the first name in front of an allow by address that has a port of the proxy's.
static int digest_rule(const CompiledRule *c, const Front *front, char ret[DIGEST_TEXT_MAX]) {
        _cleanup_free_ char *text = NULL;
        char to[NAME_TEXT_MAX + 2];
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return -ENOMEM;
        fprintf(f, "%s %d %d %s %d%d", front->denials, c->action, c->protocol, compiled_rule_to(c, to), c->spare_denied, c->spare_smtp);
        for (size_t i = 0; i < c->n_ports; i++)
                fprintf(f, " %u-%u", c->ports[i].first, c->ports[i].last);
        // Behind what every rule has: the digest of a rule without these is as it always was.
        digest_list(f, "method=", c->methods);
        digest_list(f, "path=", c->paths);
        if (c->git != POLICY_GIT_ANY)
                fprintf(f, " git=%s", policy_git_to_string(c->git));
        if (c->inspect)
                fputs(" inspect", f);
        if (c->rate || c->budget)
                fprintf(f, " rate=%llu budget=%llu", (unsigned long long) c->rate, (unsigned long long) c->budget);
        if (c->until) // two grants of one thing are two, or the first end would be that of both
                fprintf(f, " until=%llu", (unsigned long long) c->until);
        if (c->kind == RULE_ADDRESS && front->https && compiled_rule_has_port(c, POLICY_TCP, 443))
                fputs(" not 443", f);
        if (c->kind == RULE_ADDRESS && front->http && compiled_rule_has_port(c, POLICY_TCP, 80))
                fputs(" not 80", f);
        if (fclose(f) != 0)
                return -ENOMEM;
        digest_bytes(text, size, ret);
        return 0;
}

// Who has no mark needs no identity: a thousand names for the proxy cost nothing here.
static int compile_digest(CompiledRule *c, Front *front) {
        char full[DIGEST_TEXT_MAX] = "";
        int r = c->action == POLICY_DENY || compiled_rule_is_marked(c) ? digest_rule(c, front, full) : 0;

        if (r < 0)
                return r;
        memcpy(c->digest, full, COMPILED_DIGEST);
        if (c->action == POLICY_DENY)
                memcpy(front->denials, full, sizeof(full));
        front->https = front->https || (c->kind != RULE_ADDRESS && compiled_rule_has_port(c, POLICY_TCP, 443));
        front->http = front->http || (c->kind != RULE_ADDRESS && compiled_rule_has_port(c, POLICY_TCP, 80));
        return 0;
}

// Two policies that are each within the bounds may not be together. `seen` has room for one port more than there may be.
static bool count_rule_ports(const PolicyRule *rule, uint32_t *seen, size_t *n) {
        _cleanup_free_ PortRange *ports = NULL;
        size_t n_ports = 0;

        if (rule->action == POLICY_DENY || policy_target(rule->to) == POLICY_TO_CIDR || !rule->ports || strcmp(rule->ports, "443") == 0 || ports_parse(rule->ports, &ports, &n_ports) < 0)
                return true;
        for (size_t i = 0; i < n_ports; i++)
                for (uint32_t port = ports[i].first; port <= ports[i].last; port++) {
                        uint32_t key = (rule->protocol == POLICY_UDP) << 16 | port;
                        size_t k = 0;
                        if (rule->protocol != POLICY_UDP && compiled_is_proxied(POLICY_TCP, (uint16_t) port))
                                continue;
                        while (k < *n && seen[k] != key)
                                k++;
                        if (k == POLICY_NAME_PORTS_MAX)
                                return false;
                        if (k == *n)
                                seen[(*n)++] = key;
                }
        return true;
}

static bool count_ports(const PolicyRule *rule, uint32_t *seen, size_t *n) {
        bool fits = count_rule_ports(rule, seen, n);

        for (size_t i = 0; fits && rule->category && rule->category->entries && rule->category->entries[i]; i++) {
                PolicyEntry entry;
                if (policy_rule_of_entry(rule, i, &entry) && entry.rule.ports == entry.ports)
                        fits = count_rule_ports(&entry.rule, seen, n);
        }
        return fits;
}

int policies_check(Policy *const *policies, size_t n, Error *err) {
        uint32_t seen[POLICY_NAME_PORTS_MAX];
        size_t n_seen = 0, rules = 0;

        for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < policies[i]->n_rules; k++) {
                        const PolicyRule *rule = &policies[i]->rules[k];
                        if (policy_rule_is_left_out(policies[i], rule))
                                continue;
                        rules += rule->category ? strv_length(rule->category->entries) : 1;
                        if (!count_ports(rule, seen, &n_seen))
                                return error_set_field(err, "policies", "policies: rules with names use more than %d ports besides tcp 80 and 443",
                                                       POLICY_NAME_PORTS_MAX);
                }
        if (rules > COMPILED_RULES_MAX)
                return error_set_field(err, "policies", "policies: %zu rules, categories expanded, are more than %d", rules, COMPILED_RULES_MAX);
        return 0;
}

int compiled_begin(size_t n_policies, Compiled **ret) {
        _cleanup_(compiled_freep) Compiled *compiled = calloc(1, sizeof(Compiled));

        if (!compiled || !(compiled->policies = calloc(n_policies ?: 1, sizeof(CompiledPolicy))))
                return -ENOMEM;
        *ret = TAKE_PTR(compiled);
        return 0;
}

int compiled_add_policy(Compiled *compiled, const char *name, int first) {
        CompiledPolicy policy = {strdup(name), first};

        if (!policy.name)
                return -ENOMEM;
        compiled->policies[compiled->n_policies++] = policy;
        return 0;
}

// Grows by doubling: a power of two that is full has no room.
int compiled_add(Compiled *compiled, const PolicyRule *rule, int index, CompiledRule **ret) {
        CompiledRule *c;
        int r;

        if (compiled->n >= COMPILED_RULES_MAX)
                return -E2BIG;
        if ((compiled->n & (compiled->n - 1)) == 0) {
                CompiledRule *grown = reallocarray(compiled->rules, compiled->n ? compiled->n * 2 : 1, sizeof(CompiledRule));
                if (!grown)
                        return -ENOMEM;
                compiled->rules = grown;
        }
        c = &compiled->rules[compiled->n++];
        *c = (CompiledRule) {.index = index, .policy = (uint16_t) (compiled->n_policies - 1)};
        r = compile_rule(rule, c);
        if (ret)
                *ret = c;
        return r;
}

static int add_one(Compiled *compiled, const PolicyRule *rule, int index, Front *front) {
        CompiledRule *c;
        int r = compiled_add(compiled, rule, index, &c);

        return r < 0 ? r : compile_digest(c, front);
}

// A category's entries one after the other, or the rule itself.
static int add_expanded(Compiled *compiled, const PolicyRule *rule, int index, Front *front) {
        int r = 0;

        if (policy_target(rule->to) != POLICY_TO_CATEGORY)
                return add_one(compiled, rule, index, front);
        if (!rule->category)
                return -ENOENT;
        for (size_t i = 0; r >= 0 && rule->category->entries && rule->category->entries[i]; i++) {
                PolicyEntry entry;
                if (policy_rule_of_entry(rule, i, &entry))
                        r = add_one(compiled, &entry.rule, index, front);
        }
        return r;
}

int compiled_new(Policy *const *policies, size_t n, Compiled **ret, Error *err) {
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        Front front = {0};
        int r = policies_check(policies, n, err), index = 0;

        if (r < 0)
                return r;
        r = compiled_begin(n, &compiled);
        for (size_t i = 0; i < n && r >= 0; i++) {
                r = compiled_add_policy(compiled, policies[i]->name, index);
                if (policies[i]->spared && !compiled->spared) // one set, one category of that name
                        compiled->spared = category_share(policies[i]->spared);
                compiled->offline = compiled->offline || policies[i]->offline;
                for (size_t k = 0; k < policies[i]->n_rules && r >= 0; k++, index++) {
                        if (policy_rule_is_left_out(policies[i], &policies[i]->rules[k]))
                                continue;
                        r = add_expanded(compiled, &policies[i]->rules[k], index, &front);
                        if (r < 0)
                                return error_set_errno(err, r, "compiling rules[%zu] of policy %s", k, policies[i]->name);
                }
        }
        if (r >= 0)
                r = compiled_seal(compiled);
        if (r < 0)
                return error_set_errno(err, r, "compiling policies");
        *ret = TAKE_PTR(compiled);
        return 0;
}

Compiled *compiled_share(Compiled *compiled) {
        compiled->shared++;
        return compiled;
}

void compiled_set_within(Compiled *compiled, Compiled *within) {
        Compiled *before = compiled->within;

        compiled->within = within ? compiled_share(within) : NULL;
        compiled_free(before);
}

Compiled *compiled_free(Compiled *compiled) {
        if (!compiled)
                return NULL;
        if (compiled->shared > 0) {
                compiled->shared--;
                return NULL;
        }
        for (size_t i = 0; i < compiled->n; i++) {
                free(compiled->rules[i].ports);
                free(compiled->rules[i].name);
                strv_free(compiled->rules[i].methods);
                strv_free(compiled->rules[i].paths);
        }
        for (size_t i = 0; i < compiled->n_policies; i++)
                free(compiled->policies[i].name);
        category_free(compiled->spared);
        compiled_free(compiled->within);
        free(compiled->rules);
        free(compiled->policies);
        free(compiled->names);
        free(compiled->addresses);
        free(compiled);
        return NULL;
}

char *compiled_rule_to(const CompiledRule *rule, char buf[NAME_TEXT_MAX + 2]) {
        if (rule->kind == RULE_ADDRESS)
                return cidr_format(&rule->to, buf, NAME_TEXT_MAX + 2);
        (void) snprintf(buf, NAME_TEXT_MAX + 2, "%s%s", rule->kind == RULE_NAME ? "" : rule->kind == RULE_SUFFIX ? "*." : "*", rule->name ?: "");
        return buf;
}

unsigned compiled_rule_number(const Compiled *compiled, const CompiledRule *rule) {
        return (unsigned) (rule->index - compiled->policies[rule->policy].first + 1);
}

// 25 stands alone once more where it was named: "24-26,25".
char *compiled_rule_ports(const CompiledRule *rule) {
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return NULL;
        for (size_t i = 0; i < rule->n_ports; i++) {
                fprintf(f, "%s%u", i ? "," : "", rule->ports[i].first);
                if (rule->ports[i].last != rule->ports[i].first)
                        fprintf(f, "-%u", rule->ports[i].last);
        }
        if (rule->n_ports > 0 && rule->action == POLICY_ALLOW && covers_smtp(rule) && !rule->spare_smtp)
                fprintf(f, ",%d", SMTP_PORT);
        if (fclose(f) == 0)
                return text;
        free(text);
        return NULL;
}

bool denied_by_default(const Cidr *address) {
        for (const char *const *p = denied_ranges(address->family); *p; p++) {
                Cidr denied;
                if (cidr_parse(*p, &denied) == 0 && cidr_contains(&denied, address))
                        return true;
        }
        return false;
}

Cidr cidr_of_address(int family, const void *bytes) {
        Cidr cidr = {.family = family, .prefix = family == AF_INET ? 32 : 128};

        memcpy(cidr.bytes, bytes, family == AF_INET ? 4 : 16);
        return cidr;
}

bool compiled_rule_has_port(const CompiledRule *rule, PolicyProtocol protocol, uint16_t port) {
        bool hit = rule->n_ports == 0;

        if (rule->protocol != POLICY_ANY && rule->protocol != protocol)
                return false;
        for (size_t i = 0; i < rule->n_ports && !hit; i++)
                hit = port >= rule->ports[i].first && port <= rule->ports[i].last;
        return hit && !(rule->spare_smtp && protocol == POLICY_TCP && port == SMTP_PORT);
}

bool compiled_rule_is_marked(const CompiledRule *rule) {
        bool proxied = rule->kind != RULE_ADDRESS && rule->n_ports > 0;

        for (size_t i = 0; i < rule->n_ports && proxied; i++)
                for (unsigned port = rule->ports[i].first; port <= rule->ports[i].last && proxied; port++)
                        proxied = compiled_is_proxied(rule->protocol, (uint16_t) port);
        return rule->action == POLICY_ALLOW && !proxied;
}

bool compiled_rule_is_of_requests(const CompiledRule *rule) {
        return rule->methods || rule->paths || rule->git != POLICY_GIT_ANY;
}

bool compiled_rule_port(const CompiledRule *rule, unsigned i, uint16_t *ret) {
        for (size_t k = 0; k < rule->n_ports; k++) {
                unsigned n = rule->ports[k].last - rule->ports[k].first + 1U;
                if (i < n) {
                        *ret = (uint16_t) (rule->ports[k].first + i);
                        return true;
                }
                i -= n;
        }
        return false;
}

bool compiled_rule_is_over(const CompiledRule *rule) {
        return rule->until && rule->until <= clock_realtime();
}

uint64_t compiled_next_end(const Compiled *compiled, uint64_t now) {
        uint64_t next = UINT64_MAX;

        for (size_t i = 0; i < compiled->n; i++)
                if (compiled->rules[i].until > now)
                        next = MIN2(next, compiled->rules[i].until);
        return compiled->within ? MIN2(next, compiled_next_end(compiled->within, now)) : next;
}

bool compiled_rule_matches(const CompiledRule *rule, const Cidr *address, PolicyProtocol protocol, uint16_t port) {
        if (rule->kind != RULE_ADDRESS || !cidr_contains(&rule->to, address) || !compiled_rule_has_port(rule, protocol, port))
                return false;
        return !rule->spare_denied || !denied_by_default(address);
}
