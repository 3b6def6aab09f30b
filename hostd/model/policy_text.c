// SPDX-License-Identifier: GPL-2.0-or-later
// Policy text: policies.d/NAME.conf. What a rule may say is checked by policy_add(); here is only how it is written.
#include <string.h>

#include "model/schema.h"

// In the order of the enums, NULL-terminated, as rows want their choices.
static const char *const actions[] = {[POLICY_ALLOW] = "allow", [POLICY_DENY] = "deny", NULL};
static const char *const protocols[] = {
        [POLICY_ANY] = "any", [POLICY_TCP] = "tcp", [POLICY_UDP] = "udp", [POLICY_ICMP] = "icmp", NULL};
static const char *const gits[] = {[POLICY_GIT_ANY] = "any", [POLICY_GIT_READ] = "read", [POLICY_GIT_WRITE] = "write", NULL};

static const SchemaRow policy_rows[] = {
        {"description", SCHEMA_STRING, offsetof(Policy, description), VALID_TEXT, .doc = "what the policy is for"},
};

static const SchemaRow policy_rule_rows[] = {
        {"action", SCHEMA_CHOICE, offsetof(PolicyRule, action), .choices = actions, .doc = "allow or deny"},
        {"to", SCHEMA_STRING, offsetof(PolicyRule, to), VALID_DESTINATION, .doc = "address, network, name, *.suffix, * or @category"},
        {"protocol", SCHEMA_CHOICE, offsetof(PolicyRule, protocol), .choices = protocols, .fallback = "any",
         .doc = "any, tcp, udp or icmp"},
        {"ports", SCHEMA_STRING, offsetof(PolicyRule, ports), VALID_PORTS, .doc = "ports, with tcp and udp"},
        {"methods", SCHEMA_LIST, offsetof(PolicyRule, methods), VALID_METHOD, .doc = "HTTP methods, where to is a name"},
        {"paths", SCHEMA_LIST, offsetof(PolicyRule, paths), VALID_URL_PATH, .doc = "beginnings of HTTP paths, where to is a name"},
        {"git", SCHEMA_CHOICE, offsetof(PolicyRule, git), .choices = gits, .fallback = "any", .doc = "git's requests over HTTP, where to is a name: read, or write, which is both; any for every request"},
        {"inspect", SCHEMA_BOOL, offsetof(PolicyRule, inspect), .fallback = "false", .doc = "take TLS apart, where to is a name"},
        {"rate", SCHEMA_SIZE, offsetof(PolicyRule, rate), .min = 0, .max = INT64_C(1) << 40, .fallback = "0B", .doc = "bytes a second; 0B for no limit"},
        {"budget", SCHEMA_SIZE, offsetof(PolicyRule, budget), .min = 0, .max = INT64_C(1) << 50, .fallback = "0B", .doc = "bytes a day; 0B for no limit"},
        {"comment", SCHEMA_STRING, offsetof(PolicyRule, comment), VALID_TEXT, .doc = "why the rule is there"},
};

const Schema policy_schema = {policy_rows, ELEMENTS(policy_rows)};
const Schema policy_rule_schema = {policy_rule_rows, ELEMENTS(policy_rule_rows)};

static int missing(const ConfigText *text, const config_setting_t *setting, size_t i, const char *key, Error *err) {
        char field[48];

        snprintf(field, sizeof(field), "rules[%zu].%s", i, key);
        return config_text_locate(text, setting, error_set_field(err, field, "%s is missing", field), err);
}

static int not_groups(const ConfigText *text, const config_setting_t *setting, Error *err) {
        int r = error_set_field(err, "rules", "rules must be a list of groups, ( { action = \"allow\"; to = \"192.0.2.1\"; } )");

        return config_text_locate(text, setting, r, err);
}

static Category *category_get(const ParseContext *context, const char *name) {
        for (size_t i = 0; i < context->n_categories; i++)
                if (strcmp(context->categories[i]->name, name) == 0)
                        return category_share(context->categories[i]);
        return NULL;
}

// "@name": what stands in its file now. Without a set around it nothing is known of categories.
static int find_category(const ParseContext *context, size_t index, PolicyRule *rule, Error *err) {
        char field[48];

        if (rule->to[0] != '@' || !context->check_policies || strcmp(rule->to + 1, POLICY_PREVIEW) == 0)
                return 0;
        rule->category = category_get(context, rule->to + 1);
        if (rule->category || strcmp(rule->to + 1, POLICY_PACKAGES) == 0) // without a file: each template's own
                return 0;
        snprintf(field, sizeof(field), "rules[%zu].to", index);
        return error_set_field(err, field, "%s names the category \"%s\", and there is no categories.d/%s.conf", field, rule->to + 1, rule->to + 1);
}

// One group of the list. Fields are named by where the rule stands, as policy_add() names them.
static int add_rule(const ParseContext *context, const SchemaInput *input, const PolicyRule *plain, Policy *policy, Error *err) {
        _cleanup_(policy_rule_done) PolicyRule rule = *plain;
        const config_setting_t *setting = input->group;
        const ConfigText *text = input->text;
        uint64_t seen;
        int r;

        if (!config_setting_is_group(setting))
                return not_groups(text, setting, err);
        r = schema_parse(&policy_rule_schema, input, &rule, &seen, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < 2; i++) // action and to; a rule without them would mean more than was meant
                if (!(seen & UINT64_C(1) << i))
                        return missing(text, setting, policy->n_rules, policy_rule_rows[i].key, err);
        r = find_category(context, policy->n_rules, &rule, err);
        if (r >= 0)
                r = policy_add(policy, &rule, err);
        if (r < 0)
                return config_text_locate(text, setting, r, err);
        rule = (PolicyRule) {0}; // its strings belong to the policy now
        return 0;
}

static int add_rules(const ParseContext *context, const ConfigText *text, const config_setting_t *rules, Policy *policy, Error *err) {
        PolicyRule plain = {0}; // no key that owns anything has a fallback: each rule begins as a copy
        int r;

        if (!rules)
                return 0; // everything is denied
        // An empty array cannot be told from an empty list by its meaning.
        if (!config_setting_is_list(rules) && !(config_setting_is_array(rules) && config_setting_length(rules) == 0))
                return not_groups(text, rules, err);
        r = schema_apply_fallbacks(&policy_rule_schema, &plain, err);
        for (unsigned i = 0; r >= 0 && i < (unsigned) config_setting_length(rules); i++)
                r = add_rule(context, &(SchemaInput) {text, config_setting_get_elem(rules, i), NULL, "rules", i}, &plain, policy, err);
        return r;
}

int policy_parse_in(const ParseContext *context, const char *name, const char *text, Policy **ret, Error *err) {
        _cleanup_config_text_ ConfigText parsed = CONFIG_TEXT_NULL;
        _cleanup_(policy_freep) Policy *policy = NULL;
        int r;

        r = valid_check(VALID_NAME, "name", name, err);
        if (r >= 0)
                r = config_text_parse(&parsed, context->file, text, err);
        if (r < 0)
                return r;
        r = policy_new(name, &policy);
        if (r < 0)
                return error_set_errno(err, r, "cannot read policy %s", name);
        SchemaInput input = {&parsed, config_root_setting(&parsed.config), "rules", NULL, 0};
        r = schema_parse(&policy_schema, &input, policy, NULL, err);
        if (r >= 0)
                r = add_rules(context, &parsed, config_setting_get_member(input.group, "rules"), policy, err);
        if (r < 0)
                return r;
        if (context->check_policies)
                policy->spared = category_get(context, POLICY_SPARED);
        *ret = TAKE_PTR(policy);
        return 0;
}

int policy_parse(const char *name, const char *text, Policy **ret, Error *err) {
        _cleanup_free_ char *file = NULL;

        if (!valid_is(VALID_NAME, name))
                return valid_check(VALID_NAME, "name", name, err);
        if (asprintf(&file, "policies.d/%s.conf", name) < 0) {
                file = NULL;
                return error_set_errno(err, ENOMEM, "cannot read policy %s", name);
        }
        return policy_parse_in(&(ParseContext) {.file = file}, name, text, ret, err);
}

// Writes what differs from an absent key, in the order of the rows: the same policy is always the same text, so that histories show
// changes only.
static int write_rows(FILE *f, const Schema *schema, const void *object, const void *plain, const char *between) {
        for (size_t i = 0; i < schema->n; i++) {
                const SchemaRow *row = &schema->rows[i];
                _cleanup_strv_ char **values = NULL;
                _cleanup_free_ char *text = NULL;
                if (schema_value_is_fallback(row, object, plain))
                        continue;
                if (schema_value_format(row, object, &values) < 0)
                        return -ENOMEM;
                if (!values || !values[0][0])
                        continue;
                text = schema_file_value(row, values);
                if (!text)
                        return -ENOMEM;
                fputs(row->key, f);
                fputs(" = ", f);
                fputs(text, f);
                fputc(';', f);
                fputs(between, f);
        }
        return 0;
}

char *policy_format(const Policy *policy) {
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        const Policy nothing = {0}; // no key of a policy has a fallback
        PolicyRule plain = {0};
        int r = schema_apply_fallbacks(&policy_rule_schema, &plain, NULL);

        if (!f)
                return NULL;
        if (r >= 0)
                r = write_rows(f, &policy_schema, policy, &nothing, "\n");
        fputs("rules = (", f);
        for (size_t i = 0; r >= 0 && i < policy->n_rules; i++) {
                fputs(i ? ",\n        { " : "\n        { ", f);
                r = write_rows(f, &policy_rule_schema, &policy->rules[i], &plain, " ");
                fputc('}', f);
        }
        fputs(policy->n_rules ? "\n);\n" : ");\n", f);
        if (fclose(f) != 0 || r < 0) {
                free(text);
                return NULL;
        }
        return text;
}
