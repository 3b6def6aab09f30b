// SPDX-License-Identifier: GPL-2.0-or-later
// Policy: the object and its checks, and the answer to "what would happen to this packet".
#include "network/policy.h"

#include <string.h>

#include "base/strv.h"
#include "network/compile.h"

int policy_new(const char *name, Policy **ret) {
        _cleanup_(policy_freep) Policy *policy = calloc(1, sizeof(Policy));

        if (!policy || !(policy->name = strdup(name)))
                return -ENOMEM;
        *ret = TAKE_PTR(policy);
        return 0;
}

Policy *policy_share(Policy *policy) {
        policy->shared++;
        return policy;
}

Policy *policy_free(Policy *policy) {
        if (!policy)
                return NULL;
        if (policy->shared > 0) {
                policy->shared--;
                return NULL;
        }
        for (size_t i = 0; i < policy->n_rules; i++)
                policy_rule_done(&policy->rules[i]);
        free(policy->rules);
        category_free(policy->spared);
        free(policy->name);
        free(policy->description);
        free(policy);
        return NULL;
}

int policy_add(Policy *policy, PolicyRule *rule, Error *err) {
        int r;

        if (policy->n_rules >= POLICY_RULES_MAX)
                return error_set_field(err, "rules", "rules has more than %d entries", POLICY_RULES_MAX);
        r = policy_rule_check(policy->n_rules, rule, err);
        if (r >= 0 && policy_target(rule->to) == POLICY_TO_SUFFIX) {
                char field[48];
                (void) snprintf(field, sizeof(field), "rules[%zu].to", policy->n_rules);
                r = name_pattern_check_suffix(field, rule->to, err);
        }
        if (r < 0)
                return r;
        if (policy->n_rules >= policy->room) {
                size_t room = MAX2(policy->n_rules * 2, (size_t) 8);
                PolicyRule *rules = reallocarray(policy->rules, room, sizeof(PolicyRule));
                if (!rules)
                        return error_set_errno(err, ENOMEM, "adding a rule");
                policy->rules = rules;
                policy->room = room;
        }
        policy->rules[policy->n_rules++] = *rule;
        *rule = (PolicyRule) {0};
        return 0;
}

bool policy_equal(const Policy *a, const Policy *b) {
        if (a == b)
                return true;
        if (!text_equal(a->name, b->name) || !text_equal(a->description, b->description) || a->n_rules != b->n_rules ||
            !category_equal(a->spared, b->spared))
                return false;
        for (size_t i = 0; i < a->n_rules; i++)
                if (!policy_rule_equal(&a->rules[i], &b->rules[i]))
                        return false;
        return true;
}

static int explain_check(const PolicyProbe *probe, Cidr *address, char name[NAME_TEXT_MAX], Error *err) {
        if (!probe->address && !probe->name)
                return error_set_field(err, "address", "address or name is missing");
        if (probe->address && (strchr(probe->address, '/') || cidr_parse(probe->address, address) < 0))
                return error_set_field(err, "address", "address must be one IPv4 or IPv6 address");
        if (probe->name && name_normalise(probe->name, strlen(probe->name), name) < 0)
                return error_set_field(err, "name", "name must be a host name");
        return 0;
}

int policy_explain(Policy *const *policies, size_t n, const PolicyProbe *probe, PolicyAnswer *ret, Error *err) {
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        char name[NAME_TEXT_MAX];
        PolicyDecision decision;
        PolicyAnswer answer;
        Cidr address;
        int r = explain_check(probe, &address, name, err);

        if (r >= 0)
                r = compiled_new(policies, n, &compiled, err);
        if (r < 0)
                return r;
        decision = policy_decide(compiled, &(PolicyQuestion) {
                                                   .name = probe->name ? name : NULL, .address = probe->address ? &address : NULL, .protocol = probe->protocol,
                                                   .port = probe->port, .method = probe->method, .path = probe->path,
                                           });
        answer = (PolicyAnswer) {.action = decision.action, .index = decision.index};
        (void) snprintf(answer.policy, sizeof(answer.policy), "%s", decision.policy ?: "");
        (void) policy_decision_text(compiled, &decision, answer.text, sizeof(answer.text));
        *ret = answer;
        return 0;
}
