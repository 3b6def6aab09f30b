// SPDX-License-Identifier: GPL-2.0-or-later
// Rule: what one rule of a policy may say. Everything but public suffixes (policy.c), which whoever gets checked rules need not know.
#include <string.h>

#include "base/strv.h"
#include "base/valid.h"
#include "network/compile.h"

static const char *const action_table[_POLICY_ACTION_MAX] = {[POLICY_ALLOW] = "allow", [POLICY_DENY] = "deny"};
static const char *const protocol_table[_POLICY_PROTOCOL_MAX] = {
        [POLICY_ANY] = "any", [POLICY_TCP] = "tcp", [POLICY_UDP] = "udp", [POLICY_ICMP] = "icmp",
};

static const char *const git_table[_POLICY_GIT_MAX] = {[POLICY_GIT_ANY] = "any", [POLICY_GIT_READ] = "read", [POLICY_GIT_WRITE] = "write"};

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

const char *policy_git_to_string(PolicyGit git) {
        return git >= 0 && git < _POLICY_GIT_MAX ? git_table[git] : NULL;
}

PolicyGit policy_git_from_string(const char *text) {
        return table_find(git_table, _POLICY_GIT_MAX, text);
}

// An address has a colon, a slash, or nothing but digits and dots; so a mistyped one is refused as an address, not taken for a name.
PolicyTarget policy_target(const char *to) {
        if (to[0] == '@')
                return POLICY_TO_CATEGORY;
        if (to[0] == '*')
                return to[1] == 0 ? POLICY_TO_ANY_NAME : POLICY_TO_SUFFIX;
        return strpbrk(to, ":/") || strspn(to, "0123456789.") == strlen(to) ? POLICY_TO_CIDR : POLICY_TO_NAME;
}

int policy_rule_copy(const PolicyRule *rule, PolicyRule *ret) {
        PolicyRule copy = *rule;

        copy.to = strdup(rule->to);
        copy.ports = rule->ports ? strdup(rule->ports) : NULL;
        copy.methods = strv_copy(rule->methods);
        copy.paths = strv_copy(rule->paths);
        copy.comment = rule->comment ? strdup(rule->comment) : NULL;
        copy.category = rule->category ? category_share(rule->category) : NULL;
        if (!copy.to || (rule->ports && !copy.ports) || (rule->methods && !copy.methods) || (rule->paths && !copy.paths) || (rule->comment && !copy.comment)) {
                policy_rule_done(&copy);
                return -ENOMEM;
        }
        *ret = copy;
        return 0;
}

void policy_rule_done(PolicyRule *rule) {
        free(rule->to);
        free(rule->ports);
        strv_free(rule->methods);
        strv_free(rule->paths);
        free(rule->comment);
        category_free(rule->category);
        *rule = (PolicyRule) {0};
}

bool policy_rule_equal(const PolicyRule *a, const PolicyRule *b) {
        return a->action == b->action && a->protocol == b->protocol && text_equal(a->to, b->to) && text_equal(a->ports, b->ports) &&
               strv_equal(a->methods, b->methods) && strv_equal(a->paths, b->paths) && a->git == b->git && a->inspect == b->inspect && a->rate == b->rate &&
               a->budget == b->budget && a->until == b->until && text_equal(a->comment, b->comment) && category_equal(a->category, b->category);
}

bool policy_rule_inspects(const PolicyRule *rule) {
        return rule->inspect || rule->methods || rule->paths || rule->git != POLICY_GIT_ANY;
}

static bool is_about(const PolicyRule *rule, const char *category) {
        return rule->to[0] == '@' && strcmp(rule->to + 1, category) == 0;
}

bool policy_rule_is_left_out(const Policy *policy, const PolicyRule *rule) {
        static const char *const kept[] = {POLICY_PACKAGES, "llm", "git"};

        if (is_about(rule, POLICY_PREVIEW))
                return true;
        if (!policy->offline || rule->action == POLICY_DENY)
                return false;
        for (size_t i = 0; i < ELEMENTS(kept); i++)
                if (is_about(rule, kept[i]))
                        return false;
        return true;
}

typedef struct FieldName { char text[48]; } FieldName;

// "rules[INDEX].KEY". By hand, because each check has it ready and hardly any needs it: snprintf() was a third of what a rule cost.
static const char *field_name(FieldName *field, size_t index, const char *key) {
        char digits[24], *first = digits + sizeof(digits) - 1;

        *first = 0;
        do
                *--first = (char) ('0' + index % 10);
        while (index /= 10);
        (void) stpcpy(stpcpy(stpcpy(stpcpy(field->text, "rules["), first), "]."), key); // keys are ours, and short
        return field->text;
}

static int check_cidr(const char *field, const char *to, Error *err) {
        Cidr cidr;
        int r = valid_check(VALID_CIDR, field, to, err);

        if (r < 0)
                return r;
        r = cidr_parse(to, &cidr);
        if (r == -EDOM)
                return error_set_field(err, field, "%s \"%s\" has bits set behind its prefix length", field, to);
        return r < 0 ? error_set_field(err, field, "%s \"%s\" is no address range", field, to) : 0;
}

int policy_destination_check(const char *field, const char *to, Error *err) {
        int r = valid_check(VALID_DESTINATION, field, to, err);

        if (r < 0)
                return r;
        switch (policy_target(to)) {
        case POLICY_TO_CIDR:
                return check_cidr(field, to, err);
        case POLICY_TO_CATEGORY:
                return valid_is(VALID_NAME, to + 1) ? 0 : error_set_field(err, field, "%s \"%s\" is no category: behind '@' stands a name of 1 to 32 "
                                                                          "lower-case letters, digits and dashes, beginning with a letter", field, to);
        default:
                return name_pattern_check(field, to, err);
        }
}

static bool has_names(const PolicyRule *rule) {
        if (policy_target(rule->to) != POLICY_TO_CATEGORY)
                return policy_target(rule->to) != POLICY_TO_CIDR;
        for (char **entry = rule->category ? rule->category->entries : NULL; entry && *entry; entry++) {
                char to[CATEGORY_ENTRY_MAX];
                (void) category_entry_split(*entry, to);
                if (policy_target(to) != POLICY_TO_CIDR)
                        return true;
        }
        return false;
}

static bool has_port(const char *ports, uint16_t port) {
        _cleanup_free_ PortRange *list = NULL;
        bool has = false;
        size_t n = 0;

        if (!ports)
                return true;
        (void) ports_parse(ports, &list, &n);
        for (size_t i = 0; i < n; i++)
                has = has || (port >= list[i].first && port <= list[i].last);
        return has;
}

bool policy_rule_of_entry(const PolicyRule *rule, size_t i, PolicyEntry *ret) {
        uint16_t port = category_entry_split(rule->category->entries[i], ret->to);

        ret->rule = *rule;
        ret->rule.to = ret->to;
        if (port == 0)
                return true;
        (void) snprintf(ret->ports, sizeof(ret->ports), "%u", port);
        ret->rule.ports = ret->ports;
        return has_port(rule->ports, port);
}

static int check_ports(size_t index, const PolicyRule *rule, Error *err) {
        bool by_address = policy_target(rule->to) == POLICY_TO_CIDR;
        FieldName field;
        const char *name = field_name(&field, index, "ports");

        if (!rule->ports)
                return 0;
        if (rule->protocol == POLICY_ICMP || (rule->protocol == POLICY_ANY && by_address))
                return error_set_field(err, name, "%s needs protocol tcp or udp", name);
        return valid_check(VALID_PORTS, name, rule->ports, err);
}

// What an allow by name cannot mean: the kernel needs an element for each port and address, the proxy sees TCP only, and QUIC and
// encrypted DNS hide the name from both.
static int check_name_ports(size_t index, const PolicyRule *rule, Error *err) {
        FieldName field;
        const char *name = field_name(&field, index, "ports");
        PortRange *ports = NULL;
        size_t n = 0, counted = 0;
        int r;

        if (rule->protocol == POLICY_ICMP)
                return error_set_field(err, field_name(&field, index, "protocol"), "%s must be tcp or udp where rules[%zu].to is a name", field.text, index);
        if (rule->action == POLICY_DENY)
                return 0;
        if (!rule->ports)
                return rule->protocol == POLICY_UDP ? error_set_field(err, name, "%s must be said where protocol is udp and rules[%zu].to a name", name, index) : 0;
        r = ports_parse(rule->ports, &ports, &n);
        for (size_t i = 0; i < n && r >= 0; i++) {
                bool udp = rule->protocol == POLICY_UDP;
                counted += ports[i].last - ports[i].first + 1U;
                for (unsigned port = ports[i].first; port <= ports[i].last && r >= 0; port++)
                        if (port == 53 || port == 853 || (udp && port == 443))
                                r = error_set_field(err, name, "%s: %s port %u cannot be allowed by name, only by address", name, udp ? "udp" : "tcp", port);
                        else if (!udp && (port == 80 || port == 443))
                                counted--;
        }
        free(ports);
        if (r >= 0 && counted > POLICY_NAME_PORTS_MAX)
                return error_set_field(err, name, "%s has more than %d ports besides tcp 80 and 443, which is too many for a name", name, POLICY_NAME_PORTS_MAX);
        return r;
}

static int check_list(size_t index, const char *key, char *const *values, ValidKind kind, Error *err) {
        size_t max = kind == VALID_METHOD ? POLICY_METHODS_MAX : POLICY_PATHS_MAX;
        FieldName field;
        const char *name = field_name(&field, index, key);
        int r = 0;

        if (strv_length(values) > max)
                return error_set_field(err, name, "%s has more than %zu entries", name, max);
        for (; values && *values && r >= 0; values++)
                r = valid_check(kind, name, *values, err);
        return r;
}

// What only the proxy can do is for what the proxy carries: connections by name, TCP 80 and 443.
static int check_carried(size_t index, const char *key, const PolicyRule *rule, Error *err) {
        FieldName field;
        PortRange *ports = NULL;
        size_t n = 0;
        int r;

        if (policy_target(rule->to) == POLICY_TO_CIDR)
                return error_set_field(err, field_name(&field, index, key), "%s needs a name in rules[%zu].to", field.text, index);
        for (size_t i = 0; rule->category && rule->category->entries && rule->category->entries[i]; i++) {
                PolicyEntry entry;
                if (!policy_rule_of_entry(rule, i, &entry))
                        continue;
                if (policy_target(entry.to) == POLICY_TO_CIDR)
                        return error_set_field(err, field_name(&field, index, key), "%s needs names, and %s has %s", field.text, rule->to, entry.to);
                if (entry.rule.ports == entry.ports && !compiled_is_proxied(POLICY_TCP, (uint16_t) strtoul(entry.ports, NULL, 10)))
                        return error_set_field(err, field_name(&field, index, key), "%s is for tcp 80 and 443 only, and %s has %s:%s", field.text, rule->to, entry.to,
                                               entry.ports);
        }
        r = rule->ports ? ports_parse(rule->ports, &ports, &n) : 0;
        for (size_t i = 0; i < n && r >= 0; i++)
                if (ports[i].first != ports[i].last || !compiled_is_proxied(POLICY_TCP, ports[i].first))
                        r = -EINVAL;
        free(ports);
        if (r < 0 || rule->protocol == POLICY_UDP)
                return error_set_field(err, field_name(&field, index, key), "%s is for tcp 80 and 443 only", field.text);
        return 0;
}

static int check_http(size_t index, const PolicyRule *rule, Error *err) {
        int r = check_list(index, "methods", rule->methods, VALID_METHOD, err);

        if (r >= 0)
                r = check_list(index, "paths", rule->paths, VALID_URL_PATH, err);
        if (r < 0 || !policy_rule_inspects(rule))
                return r;
        return check_carried(index, rule->methods ? "methods" : rule->paths ? "paths" : rule->git != POLICY_GIT_ANY ? "git" : "inspect", rule, err);
}

static int check_shaping(size_t index, const PolicyRule *rule, Error *err) {
        FieldName field;
        const char *key = rule->rate ? "rate" : "budget";

        if (!rule->rate && !rule->budget)
                return 0;
        if (rule->action == POLICY_DENY)
                return error_set_field(err, field_name(&field, index, key), "%s has no meaning in a denial", field.text);
        return check_carried(index, key, rule, err);
}

// Ports that entries bring with them: what an allow by name cannot have is refused in whatever place it stands.
static int check_entries(size_t index, const PolicyRule *rule, Error *err) {
        int r = 0;

        for (size_t i = 0; r >= 0 && rule->category && rule->category->entries && rule->category->entries[i]; i++) {
                PolicyEntry entry;
                if (policy_rule_of_entry(rule, i, &entry) && entry.rule.ports == entry.ports && (r = check_name_ports(index, &entry.rule, err)) < 0)
                        (void) error_wrap(err, "%s has %s", rule->to, rule->category->entries[i]);
        }
        return r;
}

// About ports of the instance: what a connection from outside has no use for is refused, and so is ICMP.
static int check_preview(size_t index, const PolicyRule *rule, Error *err) {
        FieldName field;

        if (strcmp(rule->to, "@" POLICY_PREVIEW) != 0)
                return 0;
        if (rule->protocol == POLICY_ICMP)
                return error_set_field(err, field_name(&field, index, "protocol"), "%s must be any, tcp or udp where rules[%zu].to is @" POLICY_PREVIEW, field.text, index);
        if (rule->rate || rule->budget || policy_rule_inspects(rule))
                return error_set_field(err, field_name(&field, index, "to"), "%s: a rule to @" POLICY_PREVIEW " has an action, a protocol and ports, and nothing else", field.text);
        return 0;
}

int policy_rule_check(size_t index, const PolicyRule *rule, Error *err) {
        FieldName field;
        int r;

        if (!policy_action_to_string(rule->action))
                return error_set_field(err, field_name(&field, index, "action"), "rules[%zu].action must be allow or deny", index);
        if (!policy_protocol_to_string(rule->protocol))
                return error_set_field(err, field_name(&field, index, "protocol"),
                                       "rules[%zu].protocol must be any, tcp, udp or icmp", index);
        if (!policy_git_to_string(rule->git))
                return error_set_field(err, field_name(&field, index, "git"), "rules[%zu].git must be any, read or write", index);
        r = policy_destination_check(field_name(&field, index, "to"), rule->to, err);
        if (r >= 0)
                r = check_ports(index, rule, err);
        if (r >= 0 && has_names(rule))
                r = check_name_ports(index, rule, err);
        if (r >= 0)
                r = check_entries(index, rule, err);
        if (r >= 0)
                r = check_http(index, rule, err);
        if (r >= 0)
                r = check_shaping(index, rule, err);
        if (r >= 0)
                r = check_preview(index, rule, err);
        if (r >= 0 && rule->comment)
                r = valid_check(VALID_TEXT, field_name(&field, index, "comment"), rule->comment, err);
        return r;
}
