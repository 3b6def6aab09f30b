// SPDX-License-Identifier: GPL-2.0-or-later
// Policy: the object and its checks, and the answer to "what would happen to this packet".
#include "network/policy.h"

#include <string.h>

#include "base/valid.h"
#include "network/compile.h"

static const char *const action_table[_POLICY_ACTION_MAX] = {[POLICY_ALLOW] = "allow", [POLICY_DENY] = "deny"};
static const char *const protocol_table[_POLICY_PROTOCOL_MAX] = {
        [POLICY_ANY] = "any", [POLICY_TCP] = "tcp", [POLICY_UDP] = "udp", [POLICY_ICMP] = "icmp",
};

static int table_find(const char *const *table, int max, const char *text) {
        for (int i = 0; text && i < max; i++)
                if (strcmp(table[i], text) == 0)
                        return i;
        return -EINVAL;
}

const char *policy_action_to_string(PolicyAction action) {
        return action >= 0 && action < _POLICY_ACTION_MAX ? action_table[action] : NULL;
}

PolicyAction policy_action_from_string(const char *text) {
        return table_find(action_table, _POLICY_ACTION_MAX, text);
}

const char *policy_protocol_to_string(PolicyProtocol protocol) {
        return protocol >= 0 && protocol < _POLICY_PROTOCOL_MAX ? protocol_table[protocol] : NULL;
}

PolicyProtocol policy_protocol_from_string(const char *text) {
        return table_find(protocol_table, _POLICY_PROTOCOL_MAX, text);
}

int policy_new(const char *name, Policy **ret) {
        _cleanup_(policy_freep) Policy *policy = calloc(1, sizeof(Policy));

        if (!policy || !(policy->name = strdup(name)))
                return -ENOMEM;
        *ret = TAKE_PTR(policy);
        return 0;
}

void policy_rule_done(PolicyRule *rule) {
        free(rule->to);
        free(rule->ports);
        free(rule->comment);
        *rule = (PolicyRule) {0};
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
        free(policy->name);
        free(policy->description);
        free(policy);
        return NULL;
}

typedef struct FieldName { char text[48]; } FieldName;

static const char *field_name(FieldName *field, size_t index, const char *key) {
        (void) snprintf(field->text, sizeof(field->text), "rules[%zu].%s", index, key);
        return field->text;
}

static int check_to(size_t index, const PolicyRule *rule, Error *err) {
        FieldName field;
        const char *name = field_name(&field, index, "to");
        Cidr cidr;
        int r = valid_check(VALID_CIDR, name, rule->to, err);

        if (r < 0)
                return r;
        r = cidr_parse(rule->to, &cidr);
        if (r == -EDOM)
                return error_set_field(err, name, "%s \"%s\" has bits set behind its prefix length", name, rule->to);
        return r < 0 ? error_set_field(err, name, "%s \"%s\" is no address range", name, rule->to) : 0;
}

static int check_ports(size_t index, const PolicyRule *rule, Error *err) {
        FieldName field;
        const char *name = field_name(&field, index, "ports");

        if (!rule->ports)
                return 0;
        if (rule->protocol != POLICY_TCP && rule->protocol != POLICY_UDP)
                return error_set_field(err, name, "%s needs protocol tcp or udp", name);
        return valid_check(VALID_PORTS, name, rule->ports, err);
}

static int policy_check(size_t index, const PolicyRule *rule, Error *err) {
        FieldName field;
        int r;

        if (!policy_action_to_string(rule->action))
                return error_set_field(err, field_name(&field, index, "action"), "rules[%zu].action must be allow or deny", index);
        if (!policy_protocol_to_string(rule->protocol))
                return error_set_field(err, field_name(&field, index, "protocol"),
                                       "rules[%zu].protocol must be any, tcp, udp or icmp", index);
        r = check_to(index, rule, err);
        if (r >= 0)
                r = check_ports(index, rule, err);
        if (r >= 0 && rule->comment)
                r = valid_check(VALID_TEXT, field_name(&field, index, "comment"), rule->comment, err);
        return r;
}

int policy_add(Policy *policy, PolicyRule *rule, Error *err) {
        PolicyRule *rules;
        int r;

        if (policy->n_rules >= POLICY_RULES_MAX)
                return error_set_field(err, "rules", "rules has more than %d entries", POLICY_RULES_MAX);
        r = policy_check(policy->n_rules, rule, err);
        if (r < 0)
                return r;
        rules = reallocarray(policy->rules, policy->n_rules + 1, sizeof(PolicyRule));
        if (!rules)
                return error_set_errno(err, ENOMEM, "adding a rule");
        policy->rules = rules;
        rules[policy->n_rules++] = *rule;
        *rule = (PolicyRule) {0};
        return 0;
}

static bool text_equal(const char *a, const char *b) {
        return a == b || (a && b && strcmp(a, b) == 0);
}

static bool rule_equal(const PolicyRule *a, const PolicyRule *b) {
        return a->action == b->action && a->protocol == b->protocol && text_equal(a->to, b->to) &&
               text_equal(a->ports, b->ports) && text_equal(a->comment, b->comment);
}

bool policy_equal(const Policy *a, const Policy *b) {
        if (a == b)
                return true;
        if (!text_equal(a->name, b->name) || !text_equal(a->description, b->description) || a->n_rules != b->n_rules)
                return false;
        for (size_t i = 0; i < a->n_rules; i++)
                if (!rule_equal(&a->rules[i], &b->rules[i]))
                        return false;
        return true;
}

int policy_explain(Policy *const *policies, size_t n, const PolicyProbe *probe, PolicyAction *ret, int *ret_rule, Error *err) {
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        Cidr address;
        int r;

        if (!probe->address || strchr(probe->address, '/') || cidr_parse(probe->address, &address) < 0)
                return error_set_field(err, "address", "address must be one IPv4 or IPv6 address");
        r = compiled_new(policies, n, &compiled, err);
        if (r < 0)
                return r;
        *ret = POLICY_DENY;
        *ret_rule = -1;
        for (size_t i = 0; i < compiled->n; i++)
                if (compiled_rule_matches(&compiled->rules[i], &address, probe->protocol, probe->port)) {
                        *ret = compiled->rules[i].action;
                        *ret_rule = compiled->rules[i].index;
                        break;
                }
        return 0;
}
