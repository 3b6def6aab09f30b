// SPDX-License-Identifier: GPL-2.0-or-later
// Route: see route.h.
#include "proxy/route.h"

static PolicyDecision decide(const Compiled *compiled, const RouteQuestion *question, const char *name, const Cidr *address) {
        PolicyQuestion q = {
                .name = name,
                .address = address,
                .protocol = POLICY_TCP,
                .port = question->port,
                .method = question->method,
                .path = question->path,
        };

        return policy_decide(compiled, &q);
}

// The first rule in front of `before` that denies some name on this port; NULL: none.
static const CompiledRule *name_denial(const Compiled *compiled, const CompiledRule *before, uint16_t port) {
        for (const CompiledRule *rule = compiled->rules; rule < before; rule++)
                if (rule->kind != RULE_ADDRESS && rule->action == POLICY_DENY && compiled_rule_has_port(rule, POLICY_TCP, port))
                        return rule;
        return NULL;
}

static bool rule_is_by_name(const CompiledRule *rule) {
        return rule && rule->kind != RULE_ADDRESS;
}

// Of two lists, one of which allows a name and the other an address, both are asked again with each address of the name.
static Route route_of(const Compiled *compiled, const PolicyDecision *decision, uint16_t port) {
        const CompiledRule *rule = decision->rule;
        Route route = {.kind = ROUTE_DENIED, .decision = *decision};

        if (decision->action != POLICY_ALLOW)
                return route;
        route.kind = rule_is_by_name(rule) || rule_is_by_name(decision->outer) ? ROUTE_RESOLVE : ROUTE_ADDRESS;
        route.names_denied = name_denial(compiled, rule, port) || (decision->outer && name_denial(compiled->within, decision->outer, port));
        return route;
}

// Without a name nobody can say whether it is one that an earlier rule denies: then it is.
static Route route_nameless(const Compiled *compiled, const RouteQuestion *question) {
        PolicyDecision decision = decide(compiled, question, NULL, question->wanted);
        Route route = route_of(compiled, &decision, question->port);
        const CompiledRule *denial = route.names_denied ? name_denial(compiled, decision.rule, question->port) : NULL;
        const Compiled *of = denial ? compiled : compiled->within;

        if (!route.names_denied)
                return route;
        denial = denial ?: name_denial(of, decision.outer, question->port);
        decision = (PolicyDecision) {
                .action = POLICY_DENY,
                .rule = denial,
                .index = denial->index,
                .policy = of->policies[denial->policy].name,
                .of = of,
        };
        return (Route) {.kind = ROUTE_DENIED, .decision = decision};
}

Route route_decide(const Compiled *compiled, const RouteQuestion *question) {
        PolicyDecision decision, resolve;
        Route route;

        if (!question->name)
                return route_nameless(compiled, question);
        decision = decide(compiled, question, question->name, question->wanted);
        route = route_of(compiled, &decision, question->port);
        if (route.kind != ROUTE_DENIED || question->wanted)
                return route;
        // Known by its name only: whether a rule by address allows it, its addresses will tell.
        resolve = policy_decide(compiled, &(PolicyQuestion) {.name = question->name});
        if (resolve.action == POLICY_ALLOW)
                route.kind = ROUTE_RESOLVE;
        return route;
}

Route route_admits(const Compiled *compiled, const RouteQuestion *question, const Cidr *address) {
        PolicyDecision decision = decide(compiled, question, question->name, address);
        Route route = route_of(compiled, &decision, question->port);

        // Private and special ranges are reached by a rule that names the range, never because a name leads there.
        if (route_is_by_name(&route) && !policy_may_answer(compiled, address))
                route.kind = ROUTE_DENIED;
        return route;
}

bool route_is_by_name(const Route *route) {
        return route->kind != ROUTE_DENIED && (rule_is_by_name(route->decision.rule) || rule_is_by_name(route->decision.outer));
}

bool route_inspects(const Route *route) {
        const PolicyDecision *d = &route->decision;

        return route_is_by_name(route) && ((rule_is_by_name(d->rule) && d->rule->inspect) || (rule_is_by_name(d->outer) && d->outer->inspect));
}
