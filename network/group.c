// SPDX-License-Identifier: GPL-2.0-or-later
// Group: see group.h. The look back is bounded twice, by groups and by comparisons, so that no policy takes more than linear time; a
// line that finds no group within these bounds begins one of its own, which is never wrong.
#include "network/group.h"

#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"

#define GROUP_MIN 8           // below that plain rules are as quick, and easier to read
#define GROUP_LOOK_BACK 64    // groups
#define GROUP_COMPARISONS 64  // for each line, on average
#define NONE UINT32_MAX

typedef struct Draft { uint32_t first, last, n; } Draft; // a group in the making: lines chained by Grouping.next

typedef struct Grouping {
        RuleLine *lines;
        uint32_t *next, *of; // of each line: the next one of its group, its group
        Draft *drafts;
        uint32_t n_lines, n_drafts;
        uint64_t comparisons;
} Grouping;

static void grouping_done(Grouping *g) {
        free(g->lines);
        free(g->next);
        free(g->of);
        free(g->drafts);
}

// Listings of nft 1.0 leave the port out of a set with two fields, and denials are few: theirs have the address alone.
static bool port_in_key(const RuleLine *line) {
        unsigned full = line->rule->to.family == AF_INET ? 32 : 128;

        return line->rule->action == POLICY_ALLOW && line->rule->to.prefix == full && line->ports.first && line->ports.first == line->ports.last;
}

// Everything but what the key has.
static bool same_shape(const RuleLine *a, const RuleLine *b) {
        return a->rule->action == b->rule->action && a->rule->to.family == b->rule->to.family && a->rule->to.prefix == b->rule->to.prefix &&
               !a->rule->until && a->rule->spare_denied == b->rule->spare_denied && a->protocol == b->protocol && a->protocol_not == b->protocol_not &&
               a->port_not_smtp == b->port_not_smtp && port_in_key(a) == port_in_key(b) &&
               (port_in_key(a) || (a->ports.first == b->ports.first && a->ports.last == b->ports.last));
}

static bool protocols_meet(const RuleLine *a, const RuleLine *b) {
        if (!a->protocol || !b->protocol)
                return true;
        return a->protocol_not == b->protocol_not ? a->protocol_not || a->protocol == b->protocol : a->protocol != b->protocol;
}

static bool ports_meet(const RuleLine *a, const RuleLine *b) {
        return !a->ports.first || !b->ports.first || (a->ports.last >= b->ports.first && b->ports.last >= a->ports.first);
}

static bool lines_meet(const RuleLine *a, const RuleLine *b) {
        if (a->rule->to.family != b->rule->to.family || !protocols_meet(a, b) || !ports_meet(a, b))
                return false;
        return cidr_contains(&a->rule->to, &b->rule->to) || cidr_contains(&b->rule->to, &a->rule->to);
}

// Whether a packet may match both the line and one of the group; "yes" also when it would take too long to know.
static bool meets_group(Grouping *g, const RuleLine *line, const Draft *draft) {
        const RuleLine *first = &g->lines[draft->first];

        // The whole group has these in common.
        if (first->rule->to.family != line->rule->to.family || !protocols_meet(first, line) || (!port_in_key(first) && !ports_meet(first, line)))
                return false;
        for (uint32_t i = draft->first; i != NONE; i = g->next[i]) {
                if (g->comparisons == 0 || lines_meet(&g->lines[i], line))
                        return true;
                g->comparisons--;
        }
        return false;
}

static uint32_t find_group(Grouping *g, const RuleLine *line) {
        if (line->rule->to.prefix == 0 || line->rule->until)
                return NONE; // no key, or more to check than the group
        for (uint32_t k = g->n_drafts; k > 0 && g->n_drafts - k < GROUP_LOOK_BACK; k--) {
                Draft *draft = &g->drafts[k - 1];
                if (same_shape(&g->lines[draft->first], line))
                        return k - 1;
                if (meets_group(g, line, draft))
                        return NONE;
        }
        return NONE;
}

static void add_line(Grouping *g, uint32_t i) {
        uint32_t k = find_group(g, &g->lines[i]);

        g->next[i] = NONE;
        if (k == NONE) {
                k = g->n_drafts++;
                g->drafts[k] = (Draft) {.first = i};
        } else
                g->next[g->drafts[k].last] = i;
        g->drafts[k].last = i;
        g->drafts[k].n++;
        g->of[i] = k;
}

static int read_lines(Grouping *g, const Compiled *compiled) {
        RuleLine some[RULE_LINES_MAX];
        size_t n = 0, used = 0;

        for (size_t i = 0; i < compiled->n; i++)
                n += ruleset_lines(&compiled->rules[i], some);
        g->lines = calloc(n ?: 1, sizeof(RuleLine));
        g->next = calloc(n ?: 1, sizeof(uint32_t));
        g->of = calloc(n ?: 1, sizeof(uint32_t));
        g->drafts = calloc(n ?: 1, sizeof(Draft));
        if (!g->lines || !g->next || !g->of || !g->drafts)
                return -ENOMEM;
        for (size_t i = 0; i < compiled->n; i++) {
                size_t k = ruleset_lines(&compiled->rules[i], some);
                memcpy(&g->lines[used], some, k * sizeof(RuleLine));
                used += k;
        }
        g->n_lines = (uint32_t) n;
        g->comparisons = (uint64_t) n * GROUP_COMPARISONS;
        return 0;
}

static int compare_keys(const RuleLine *a, const RuleLine *b) {
        int c = memcmp(a->rule->to.bytes, b->rule->to.bytes, sizeof(a->rule->to.bytes));

        return c ?: port_in_key(a) ? (int) a->ports.first - (int) b->ports.first : 0;
}

static int compare_lines(const void *x, const void *y) {
        const RuleLine *a = x, *b = y;

        return compare_keys(a, b) ?: a->rule->index - b->rule->index;
}

// Of lines with one key the first one decides, and the others match nothing that is left.
static size_t sort_keys(RuleLine *lines, size_t n) {
        size_t kept = 0;

        qsort(lines, n, sizeof(RuleLine), compare_lines);
        for (size_t i = 1; i < n; i++)
                if (compare_keys(&lines[kept], &lines[i]) != 0)
                        lines[++kept] = lines[i];
        return kept + 1;
}

static void write_groups(const Grouping *g, Groups *groups) {
        RuleLine *at = groups->lines;

        for (uint32_t k = 0; k < g->n_drafts; k++) {
                const Draft *draft = &g->drafts[k];
                RuleLine *begin = at;
                for (uint32_t i = draft->first; i != NONE; i = g->next[i])
                        *at++ = g->lines[i];
                groups->groups[k] = (Group) {.lines = begin, .n = draft->n, .mapped = draft->n >= GROUP_MIN, .port_in_key = port_in_key(begin)};
                if (groups->groups[k].mapped)
                        groups->groups[k].n = sort_keys(begin, draft->n);
        }
        groups->n = g->n_drafts;
}

int groups_new(const Compiled *compiled, Groups *ret) {
        _cleanup_(grouping_done) Grouping grouping = {0};
        Groups groups = {0};
        int r = read_lines(&grouping, compiled);

        if (r < 0)
                return r;
        for (uint32_t i = 0; i < grouping.n_lines; i++)
                add_line(&grouping, i);
        groups.groups = calloc(grouping.n_drafts ?: 1, sizeof(Group));
        groups.lines = calloc(grouping.n_lines ?: 1, sizeof(RuleLine));
        if (!groups.groups || !groups.lines) {
                groups_done(&groups);
                return -ENOMEM;
        }
        write_groups(&grouping, &groups);
        *ret = groups;
        return 0;
}

void groups_done(Groups *groups) {
        free(groups->groups);
        free(groups->lines);
        *groups = (Groups) {0};
}
