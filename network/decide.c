// SPDX-License-Identifier: GPL-2.0-or-later
// Decide: which rule of a compiled list a question meets. The one answer for hostd, resolver, proxy and explanation.
//
// Rules by name are found in a sorted index, by the name itself and by each name above it; those by address are walked. Both come as
// runs of ascending places, and the walk always takes the lowest place that is left: the first rule that matches decides, as if the
// whole list had been read.
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/strv.h"
#include "network/compile.h"

static int entry_compare(const void *a, const void *b) {
        const NameEntry *x = a, *y = b;
        int c = strcmp(x->name, y->name);

        if (c != 0)
                return c;
        if (x->suffix != y->suffix)
                return x->suffix - y->suffix;
        return x->rule < y->rule ? -1 : x->rule > y->rule;
}

int compiled_seal(Compiled *compiled) {
        compiled->names = calloc(compiled->n ?: 1, sizeof(NameEntry));
        compiled->addresses = calloc(compiled->n ?: 1, sizeof(uint32_t));
        if (!compiled->names || !compiled->addresses)
                return -ENOMEM;
        for (size_t i = 0; i < compiled->n; i++) {
                const CompiledRule *rule = &compiled->rules[i];
                if (rule->kind == RULE_ADDRESS)
                        compiled->addresses[compiled->n_addresses++] = (uint32_t) i;
                else
                        compiled->names[compiled->n_names++] = (NameEntry) {rule->name ?: "", (uint32_t) i, rule->kind != RULE_NAME};
        }
        if (compiled->n_names > 0)
                qsort(compiled->names, compiled->n_names, sizeof(NameEntry), entry_compare);
        return 0;
}

size_t compiled_first_name(const Compiled *compiled) {
        size_t i = 0;

        while (i < compiled->n && compiled->rules[i].kind == RULE_ADDRESS)
                i++;
        return i;
}

typedef struct Run { const NameEntry *at, *end; } Run;

typedef struct Walk {
        const Compiled *compiled;
        Run runs[NAME_LABELS_MAX + 2]; // those that have something left
        size_t n;
        const uint32_t *address, *address_end; // what is left of Compiled.addresses
} Walk;

static void walk_add(Walk *walk, const char *name, bool suffix) {
        const NameEntry *names = walk->compiled->names, key = {name, 0, suffix};
        size_t low = 0, high = walk->compiled->n_names, end;

        while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (entry_compare(&names[middle], &key) < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        for (end = low; end < walk->compiled->n_names && names[end].suffix == suffix && strcmp(names[end].name, name) == 0;)
                end++;
        if (end > low && walk->n < ELEMENTS(walk->runs))
                walk->runs[walk->n++] = (Run) {names + low, names + end};
}

static void walk_begin(Walk *walk, const Compiled *compiled, const char *name, bool addresses) {
        walk->compiled = compiled;
        walk->n = 0;
        walk->address = compiled->addresses;
        walk->address_end = compiled->addresses + (addresses ? compiled->n_addresses : 0);
        if (!name || compiled->n_names == 0)
                return;
        walk_add(walk, name, false);
        while ((name = name_parent(name)))
                walk_add(walk, name, true);
        walk_add(walk, "", true);
}

static const CompiledRule *walk_any(Walk *walk) {
        const Compiled *compiled = walk->compiled;
        uint32_t best = walk->address < walk->address_end ? *walk->address : UINT32_MAX;
        size_t from = SIZE_MAX;

        for (size_t i = 0; i < walk->n; i++)
                if (walk->runs[i].at->rule < best) {
                        best = walk->runs[i].at->rule;
                        from = i;
                }
        if (best == UINT32_MAX)
                return NULL;
        if (from == SIZE_MAX)
                walk->address++;
        else if (++walk->runs[from].at == walk->runs[from].end)
                walk->runs[from] = walk->runs[--walk->n];
        return &compiled->rules[best];
}

// Grants that are over are not there, also when hostd is not there to take them out.
static const CompiledRule *walk_next(Walk *walk) {
        const CompiledRule *rule = walk_any(walk);

        while (rule && compiled_rule_is_over(rule))
                rule = walk_any(walk);
        return rule;
}

// ---- HTTP

// Whether a server may understand another path than the one that is read here.
static bool path_is_plain(const char *path) {
        if (path[0] != '/')
                return false;
        for (const char *p = path; *p && *p != '?' && *p != '#'; p++) {
                if (*p == '%' || *p == '\\' || *p == ';' || (unsigned char) *p <= ' ' || (unsigned char) *p >= 0x7f)
                        return false;
                if (*p == '/' && (p[1] == '/' || p[1] == '.'))
                        return false;
        }
        return true;
}

// "/api" is the beginning of "/api", "/api/x" and "/api?x", not of "/apis"; "/api/" of "/api/x" alone.
static bool path_begins(const char *path, const char *prefix) {
        size_t n = strlen(prefix);

        if (strncmp(path, prefix, n) != 0)
                return false;
        return prefix[n - 1] == '/' || path[n] == 0 || path[n] == '/' || path[n] == '?' || path[n] == '#';
}

// The end of a path without its query; `query` gets what is behind the '?', NULL for none.
static bool path_ends(const char *path, const char *end, const char **query) {
        size_t n = strcspn(path, "?#"), k = strlen(end);

        *query = path[n] == '?' ? path + n + 1 : NULL;
        return n >= k && strncmp(path + n - k, end, k) == 0;
}

// git over HTTP, the "smart" protocol in its versions 0 to 2, is two requests for each of two services; everything else of a forge (pages, its API,
// archives, large files) is none. What is not said exactly as git says it meets no allow, and a denial of either.
static bool git_is(const PolicyQuestion *question, const char *service, const char *other, bool deny) {
        char end[32], exact[32];
        const char *query, *method = question->method;

        (void) snprintf(end, sizeof(end), "/git-%s-pack", service);
        if (path_ends(question->path, end, &query))
                return deny || ((!method || strcmp(method, "POST") == 0) && !query);
        if (!path_ends(question->path, "/info/refs", &query))
                return false;
        (void) snprintf(exact, sizeof(exact), "service=git-%s-pack", deny ? other : service);
        return deny ? !query || strcmp(query, exact) != 0 : (!method || strcmp(method, "GET") == 0) && query && strcmp(query, exact) == 0;
}

static bool git_matches(const CompiledRule *rule, const PolicyQuestion *question) {
        bool deny = rule->action == POLICY_DENY;

        if (rule->git == POLICY_GIT_ANY || !question->path)
                return true;
        if (!path_is_plain(question->path))
                return deny;
        if (rule->git == POLICY_GIT_READ)
                return git_is(question, "upload", "receive", deny);
        return git_is(question, "receive", "upload", deny) || (!deny && git_is(question, "upload", "receive", false));
}

// A path that can be read in two ways meets no allow and every denial.
static bool http_matches(const CompiledRule *rule, const PolicyQuestion *question) {
        bool any = !rule->paths || !question->path;

        if (!git_matches(rule, question))
                return false;

        if (rule->methods && question->method && !strv_contains(rule->methods, question->method))
                return false;
        if (!any && !path_is_plain(question->path))
                return rule->action == POLICY_DENY;
        for (char **prefix = rule->paths; !any && *prefix; prefix++)
                any = path_begins(question->path, *prefix);
        return any;
}

// ---- the answer

static bool name_is_spared(const Compiled *compiled, const char *name) {
        char **entry = compiled->spared ? compiled->spared->entries : NULL;

        while (entry && *entry && (policy_target(*entry) == POLICY_TO_CIDR || !name_pattern_matches(*entry, name)))
                entry++;
        return entry && *entry;
}

// Notes it where "*" would have been the answer.
static bool rule_is_too_broad(const Compiled *compiled, const CompiledRule *rule, const char *name, bool *spared) {
        bool broad = rule->action == POLICY_ALLOW && (rule->kind == RULE_ANY_NAME || (rule->kind == RULE_ADDRESS && rule->to.prefix == 0)) &&
                     name_is_spared(compiled, name);

        *spared = *spared || broad;
        return broad;
}

static bool rule_matches(const CompiledRule *rule, const PolicyQuestion *question) {
        if (rule->kind == RULE_ADDRESS)
                return compiled_rule_matches(rule, question->address, question->protocol, question->port);
        return compiled_rule_has_port(rule, question->protocol, question->port) && http_matches(rule, question);
}

static PolicyDecision decision_of(const Compiled *compiled, const CompiledRule *rule) {
        return (PolicyDecision) {
                .action = rule ? rule->action : POLICY_DENY,
                .rule = rule,
                .index = rule ? rule->index : -1,
                .policy = rule ? compiled->policies[rule->policy].name : NULL,
                .of = compiled,
        };
}

#define DENIALS_MAX 16 // that are remembered; one more only lets a name be resolved that then cannot be reached

// Whether one of the denials has all of the range.
static bool range_is_denied(const CompiledRule *const *denials, size_t n, PolicyProtocol protocol, const PortRange *range) {
        for (size_t i = 0; i < n; i++) {
                const CompiledRule *d = denials[i];
                if (d->protocol != POLICY_ANY && d->protocol != protocol)
                        continue;
                if (d->n_ports == 0)
                        return true;
                for (size_t k = 0; k < d->n_ports; k++)
                        if (d->ports[k].first <= range->first && d->ports[k].last >= range->last)
                                return true;
        }
        return false;
}

static bool is_left(const CompiledRule *rule, const CompiledRule *const *denials, size_t n) {
        for (size_t i = 0; i < rule->n_ports; i++)
                if (!range_is_denied(denials, n, rule->protocol, &rule->ports[i]))
                        return true;
        return false;
}

// May the name be resolved?
static PolicyDecision decide_name(const Compiled *compiled, const char *name, int family) {
        const CompiledRule *denials[DENIALS_MAX] = {NULL}, *rule, *denied = NULL;
        bool spared = false;
        size_t n = 0;
        Walk walk;

        walk_begin(&walk, compiled, name, true);
        while ((rule = walk_next(&walk))) {
                if (rule_is_too_broad(compiled, rule, name, &spared))
                        continue;
                if (rule->kind == RULE_ADDRESS) {
                        if (rule->action == POLICY_ALLOW && rule->to.prefix == 0 && (family == 0 || rule->to.family == family))
                                return decision_of(compiled, rule);
                } else if (rule->action == POLICY_ALLOW) {
                        if (is_left(rule, denials, n))
                                return decision_of(compiled, rule);
                        denied = denied ?: denials[0];
                } else if (!compiled_rule_is_of_requests(rule)) { // else it is not of the whole name
                        if (rule->protocol == POLICY_ANY && rule->n_ports == 0)
                                return decision_of(compiled, rule);
                        if (n < DENIALS_MAX)
                                denials[n++] = rule;
                }
        }
        PolicyDecision decision = decision_of(compiled, denied);
        decision.spared = spared && !denied;
        return decision;
}

static PolicyDecision decide_alone(const Compiled *compiled, const PolicyQuestion *question) {
        const CompiledRule *rule;
        PolicyDecision decision;
        bool spared = false;
        Walk walk;

        if (question->name && !question->address && question->protocol == POLICY_ANY && question->port == 0)
                return decide_name(compiled, question->name, question->family);
        walk_begin(&walk, compiled, question->name, question->address);
        while ((rule = walk_next(&walk)))
                if (rule_matches(rule, question) && (rule->kind != RULE_ANY_NAME || !rule_is_too_broad(compiled, rule, question->name, &spared)))
                        break;
        decision = decision_of(compiled, rule);
        decision.spared = spared && !rule;
        return decision;
}

PolicyDecision policy_decide(const Compiled *compiled, const PolicyQuestion *question) {
        PolicyDecision decision = decide_alone(compiled, question), outer;

        if (decision.action != POLICY_ALLOW || !compiled->within)
                return decision;
        outer = decide_alone(compiled->within, question);
        if (outer.action != POLICY_ALLOW)
                return outer;
        decision.outer = outer.rule;
        return decision;
}

// "allowed by grant 12 until 2026-01-31T12:34:56Z"
static void grant_text(const PolicyDecision *decision, char *buf, size_t size) {
        const char *number = strncmp(decision->policy, GRANT_PREFIX, strlen(GRANT_PREFIX)) == 0 ? decision->policy + strlen(GRANT_PREFIX) : decision->policy;
        char until[CLOCK_TEXT_MAX];

        (void) snprintf(buf, size, "allowed by grant %s until %.19sZ", number, clock_format(decision->rule->until, until));
}

char *policy_decision_text(const Compiled *asked, const PolicyDecision *decision, char *buf, size_t size) {
        const Compiled *compiled = decision->of ?: asked;
        const CompiledRule *rule = decision->rule;
        _cleanup_free_ char *ports = rule ? compiled_rule_ports(rule) : NULL;
        const char *whose = compiled != asked ? " of its instance" : "";
        char to[NAME_TEXT_MAX + 2], by[128];

        if (!rule && decision->spared)
                (void) snprintf(buf, size, "denied: it is in the category %s, and no rule%s names it", compiled->spared->name, whose);
        else if (!rule)
                (void) snprintf(buf, size, "denied: no rule%s allows it%s", whose, compiled->offline ? " while the instance is offline" : "");
        if (!rule)
                return buf;
        if (rule->until)
                grant_text(decision, by, sizeof(by));
        else
                (void) snprintf(by, sizeof(by), "%s by rule %u of policy %s%s", rule->action == POLICY_ALLOW ? "allowed" : "denied",
                                compiled_rule_number(compiled, rule), decision->policy, whose);
        (void) snprintf(buf, size, "%s: %s %s%s%s", by, compiled_rule_to(rule, to), policy_protocol_to_string(rule->protocol), ports && *ports ? " " : "", ports ?: "");
        return buf;
}

// The kernel knows addresses only: a port that a denial of this name has in front must not be opened at them. Here no denial is forgotten.
static bool port_is_denied_in_front(const Compiled *compiled, const char *name, const CompiledRule *rule, uint16_t port) {
        const CompiledRule *front;
        Walk walk;

        walk_begin(&walk, compiled, name, false);
        while ((front = walk_next(&walk)) && front != rule)
                if (front->action == POLICY_DENY && compiled_rule_has_port(front, rule->protocol, port))
                        return true;
        return false;
}

static uint32_t insert_ports(const Compiled *compiled, const char *name, const CompiledRule *rule) {
        uint32_t ports = 0;
        uint16_t port;

        for (unsigned i = 0; i < INSERT_PORTS_MAX && compiled_rule_port(rule, i, &port); i++)
                if (!compiled_is_proxied(rule->protocol, port) && !port_is_denied_in_front(compiled, name, rule, port))
                        ports |= UINT32_C(1) << i;
        return ports;
}

size_t policy_inserts(const Compiled *compiled, const char *name, PolicyInsert *ret, size_t max) {
        const CompiledRule *rule;
        bool spared = false;
        size_t n = 0;
        Walk walk;

        walk_begin(&walk, compiled, name, false);
        while ((rule = walk_next(&walk))) {
                uint32_t ports;
                if (rule->action == POLICY_DENY) {
                        if (rule->protocol == POLICY_ANY && rule->n_ports == 0)
                                break;
                        continue;
                }
                ports = rule_is_too_broad(compiled, rule, name, &spared) ? 0 : insert_ports(compiled, name, rule);
                if (ports == 0)
                        continue;
                if (n < max)
                        ret[n] = (PolicyInsert) {rule, ports};
                n++;
        }
        return n;
}

static bool names_range(const Compiled *compiled, const Cidr *address) {
        for (size_t i = 0; i < compiled->n_addresses; i++) {
                const CompiledRule *rule = &compiled->rules[compiled->addresses[i]];
                if (rule->action == POLICY_ALLOW && !rule->spare_denied && cidr_contains(&rule->to, address) && !compiled_rule_is_over(rule))
                        return true;
        }
        return false;
}

bool policy_may_answer(const Compiled *compiled, const Cidr *address) {
        if (!denied_by_default(address))
                return true;
        return names_range(compiled, address) && (!compiled->within || names_range(compiled->within, address));
}
