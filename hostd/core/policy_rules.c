// SPDX-License-Identifier: GPL-2.0-or-later
// PolicyRules: see policy_rules.h. The compiled list is the one that hostd-proxy walks, so that both mean the same rules in the same order.
#include "core/policy_rules.h"

#include <string.h>

#include "core/approvals.h"
#include "core/policy_set.h"
#include "network/compile.h"

#define RULES_MAX 4096 // of one instance's HAProxy

struct PolicyRules {
        Compiled *compiled;
        HaproxyRule *list; // borrows from compiled
        size_t n;
};

PolicyRules *policy_rules_free(PolicyRules *rules) {
        if (!rules)
                return NULL;
        (void) compiled_free(rules->compiled);
        free(rules->list);
        free(rules);
        return NULL;
}
DEFINE_CLEANUP(PolicyRules, policy_rules_free)

const HaproxyRule *policy_rules_list(const PolicyRules *rules, size_t *ret_n) {
        *ret_n = rules ? rules->n : 0;
        return rules ? rules->list : NULL;
}

static bool names(const CompiledRule *rule, const char *host) {
        switch (rule->kind) {
        case RULE_NAME:
                return strcmp(rule->name, host) == 0;
        case RULE_SUFFIX:
                return name_is_below(host, rule->name);
        case RULE_ANY_NAME:
                return true;
        case RULE_ADDRESS:
                break;
        }
        return false; // hostd-proxy's, which knows the address
}

static int add(PolicyRules *rules, const CompiledRule *rule, const char *host, Error *err) {
        static const HaproxyGit gits[_POLICY_GIT_MAX] = {[POLICY_GIT_ANY] = HAPROXY_GIT_ANY, [POLICY_GIT_READ] = HAPROXY_GIT_READ, [POLICY_GIT_WRITE] = HAPROXY_GIT_WRITE};
        HaproxyRule *grown;

        if (rules->n == RULES_MAX)
                return error_set(err, ERR_QUOTA, "its policies have more than %d rules about hosts of its grants", RULES_MAX);
        grown = reallocarray(rules->list, rules->n + 1, sizeof(HaproxyRule));
        if (!grown)
                return error_set_errno(err, ENOMEM, "cannot collect the rules");
        rules->list = grown;
        rules->list[rules->n++] = (HaproxyRule) {host, rule->action == POLICY_ALLOW, rule->methods, rule->paths, gits[rule->git]};
        return 0;
}

// What comes after a rule that every request meets is never reached.
static int add_host(PolicyRules *rules, const Binding *grant, Error *err) {
        for (size_t i = 0; i < rules->compiled->n; i++) {
                const CompiledRule *rule = &rules->compiled->rules[i];
                if (!names(rule, grant->host) || !compiled_rule_has_port(rule, POLICY_TCP, grant->port))
                        continue;
                int r = add(rules, rule, grant->host, err);
                if (r < 0 || !compiled_rule_is_of_requests(rule))
                        return r;
        }
        return 0;
}

static int compile(const Instance *instance, Compiled **ret, Error *err) {
        _cleanup_(policy_set_done) PolicySet policies = POLICY_SET_NULL;
        int r = instance_policies(instance, &policies, err);

        return r < 0 ? r : compiled_new(policies.list, policies.n, ret, err);
}

int policy_rules_new(const Instance *instance, const Binding *const *grants, size_t n, PolicyRules **ret, Error *err) {
        _cleanup_(policy_rules_freep) PolicyRules *rules = calloc(1, sizeof(PolicyRules));
        int r = rules ? compile(instance, &rules->compiled, err) : error_set_errno(err, ENOMEM, "cannot collect the rules");

        for (size_t i = 0; i < n && r >= 0; i++)
                if (haproxy_is_first_of_host(grants, i))
                        r = add_host(rules, grants[i], err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(rules);
        return 0;
}
