// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, policies and network: what may be reached, and what happened.
#include <arpa/inet.h>
#include <string.h>

#include "core/approvals.h"
#include "core/handle.h"
#include "core/policy_set.h"
#include "network/name.h"

static json_t *used_by(Manager *m, const char *policy) {
        json_t *list = json_array();

        for (Instance *i = m->instances.first; i; i = i->next)
                if (i->config && strv_contains(i->config->policies, policy))
                        (void) json_array_append_new(list, json_string(i->record.name));
        return list;
}

static json_t *strings_json(char *const *values) {
        json_t *list = values ? json_array() : NULL;

        for (; list && *values; values++)
                (void) json_array_append_new(list, json_string(*values));
        return list;
}

static json_t *rule_json(const PolicyRule *rule) {
        char until[CLOCK_TEXT_MAX];
        json_t *json = json_pack("{s:s, s:s, s:s, s:s?, s:o?, s:o?, s:s?}", "action", policy_action_to_string(rule->action), "to", rule->to, "protocol",
                                 policy_protocol_to_string(rule->protocol), "ports", rule->ports, "methods", strings_json(rule->methods), "paths",
                                 strings_json(rule->paths), "comment", rule->comment);

        if (rule->git != POLICY_GIT_ANY)
                (void) json_object_set_new(json, "git", json_string(policy_git_to_string(rule->git)));
        if (rule->inspect)
                (void) json_object_set_new(json, "inspect", json_true());
        if (rule->rate)
                (void) json_object_set_new(json, "rate", json_integer((json_int_t) rule->rate));
        if (rule->budget)
                (void) json_object_set_new(json, "budget", json_integer((json_int_t) rule->budget));
        if (rule->until)
                (void) json_object_set_new(json, "until", json_string(clock_format(rule->until, until)));
        return json;
}

void handle_policy_list(Request *request) {
        const Desired *desired = request->manager->desired;
        json_t *list = json_array();

        for (size_t i = 0; i < desired->n_policies; i++) {
                const Policy *p = desired->policies[i];
                (void) json_array_append_new(list, json_pack("{s:s, s:i, s:o, s:s?}", "policy", p->name, "rules", (int) p->n_rules, "used_by",
                                                             used_by(request->manager, p->name), "description", p->description));
        }
        request_reply(request, json_pack("{s:o}", "policies", list));
}

static Policy *find_policy(Request *request) {
        const char *name = request_string(request, "policy");
        Policy *policy = desired_find_policy(request->manager->desired, name);

        if (!policy)
                request_failf(request, ERR_NOT_FOUND, "there is no policy \"%s\"", name);
        return policy;
}

void handle_policy_show(Request *request) {
        Policy *policy = find_policy(request);
        json_t *rules = json_array();

        for (size_t i = 0; policy && i < policy->n_rules; i++)
                (void) json_array_append_new(rules, rule_json(&policy->rules[i]));
        if (policy)
                request_reply(request, json_pack("{s:s, s:s?, s:o, s:o}", "policy", policy->name, "description", policy->description, "used_by",
                                                 used_by(request->manager, policy->name), "rules", rules));
        else
                json_decref(rules);
}

#define RULE_WORDS 4 // allow|deny DESTINATION [PROTOCOL [PORTS]]

// Where words begin and how long they are; one more than there may be says that there are too many.
static size_t words_find(const char *text, const char *words[RULE_WORDS], size_t lengths[RULE_WORDS]) {
        size_t n = 0;

        for (text += strspn(text, " "); *text; text += strspn(text, " "), n++) {
                size_t length = strcspn(text, " ");
                if (n == RULE_WORDS)
                        return n + 1;
                words[n] = text;
                lengths[n] = length;
                text += length;
        }
        return n;
}

typedef struct Word { char text[16]; } Word; // longer ones are none of the choices

static const char *word_of(const char *at, size_t length, Word *word) {
        (void) snprintf(word->text, sizeof(word->text), "%.*s", length < sizeof(word->text) ? (int) length : 0, at);
        return word->text;
}

static int rule_refuse(size_t index, const char *text, Error *err) {
        char field[32];

        (void) snprintf(field, sizeof(field), "rules[%zu]", index);
        return error_set_field(err, field, "%s \"%s\" is not valid: it must be \"allow|deny CIDR|HOST|*.SUFFIX|*|@CATEGORY [tcp|udp|icmp [PORTS]]\"", field, text);
}

static int rule_refuse_word(size_t index, const char *what, const char *word, size_t length, Error *err) {
        char field[32];

        (void) snprintf(field, sizeof(field), "rules[%zu]", index);
        return error_set_field(err, field, "%s: %s \"%.*s\" is not %s", field, what, (int) length, word,
                               strcmp(what, "action") == 0 ? "allow or deny" : "any, tcp, udp or icmp");
}

static int rule_parse(size_t index, const char *text, PolicyRule *ret, Error *err) {
        const char *words[RULE_WORDS];
        size_t lengths[RULE_WORDS], n = words_find(text, words, lengths);
        Word word;

        if (n < 2 || n > RULE_WORDS)
                return rule_refuse(index, text, err);
        ret->action = policy_action_from_string(word_of(words[0], lengths[0], &word));
        if (ret->action < 0)
                return rule_refuse_word(index, "action", words[0], lengths[0], err);
        ret->protocol = n > 2 ? policy_protocol_from_string(word_of(words[2], lengths[2], &word)) : POLICY_ANY;
        if (ret->protocol < 0)
                return rule_refuse_word(index, "protocol", words[2], lengths[2], err);
        ret->to = strndup(words[1], lengths[1]);
        ret->ports = n > 3 ? strndup(words[3], lengths[3]) : NULL;
        return ret->to && (n < 4 || ret->ports) ? 0 : error_set_errno(err, ENOMEM, "cannot read the rules");
}

static int policy_of_request(Request *request, Policy **ret, Error *err) {
        const char *description = request_string(request, "description");
        _cleanup_(policy_freep) Policy *policy = NULL;
        json_t *value;
        size_t index;
        int r = policy_new(request_string(request, "policy"), &policy);

        if (r < 0)
                return error_set_errno(err, r, "cannot make the policy");
        if (description && !(policy->description = strdup(description)))
                return error_set_errno(err, ENOMEM, "cannot make the policy");
        json_array_foreach(json_object_get(request->parameters, "rules"), index, value) {
                PolicyRule rule = {0};
                r = rule_parse(index, json_string_value(value), &rule, err);
                if (r >= 0)
                        r = policy_add(policy, &rule, err);
                if (r < 0) {
                        policy_rule_done(&rule);
                        return r;
                }
        }
        *ret = TAKE_PTR(policy);
        return 0;
}

static int write_policy(Request *request, const char *text, Error *err) {
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "policies.d/%s.conf", request_string(request, "policy")) < 0) {
                path = NULL;
                return error_set_errno(err, ENOMEM, "cannot write the policy");
        }
        return manager_write(request->manager, path, text, err);
}

void handle_policy_set(Request *request) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_free_ char *text = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = policy_of_request(request, &policy, &err);

        if (r >= 0 && !(text = policy_format(policy)))
                r = error_set_errno(&err, ENOMEM, "cannot write the policy");
        if (r >= 0)
                r = write_policy(request, text, &err);
        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        request_reply(request, json_pack("{s:s, s:i, s:o}", "policy", policy->name, "rules", (int) policy->n_rules, "used_by",
                                         used_by(request->manager, policy->name)));
        handle_commit(request);
}

void handle_policy_delete(Request *request) {
        Policy *policy = find_policy(request);
        json_t *users = policy ? used_by(request->manager, policy->name) : NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!policy)
                return;
        if (json_array_size(users) > 0) {
                request_failf(request, ERR_BUSY, "policy \"%s\" is used by %s and %zu others", policy->name,
                              json_string_value(json_array_get(users, 0)), json_array_size(users) - 1);
                json_decref(users);
                return;
        }
        json_decref(users);
        r = write_policy(request, NULL, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
        else
                handle_commit(request);
}

// Which policy and rule an index in the concatenated list means.
static json_t *where_is_rule(Policy **policies, size_t n, int index) {
        for (size_t i = 0; i < n; i++) {
                if ((size_t) index < policies[i]->n_rules)
                        return json_pack("{s:s, s:i, s:o}", "policy", policies[i]->name, "index", index, "rule", rule_json(&policies[i]->rules[index]));
                index -= (int) policies[i]->n_rules;
        }
        return json_null();
}

// The policies of an instance, in order, or one policy. The instance goes before: what it lives under is what matters.
static int policies_of(Request *request, const char *name, PolicySet *ret, Error *err) {
        const Desired *desired = request->manager->desired;
        const InstanceConfig *config = desired_find_instance(desired, name);
        Policy *policy = desired_find_policy(desired, name);
        int r;

        if (!config && !policy)
                return error_set(err, ERR_NOT_FOUND, "there is no instance and no policy \"%s\"", name);
        if (config) {
                const Instance *instance = instance_list_find(&request->manager->instances, name);
                if (instance && instance->config) // with its grants
                        r = instance_policies(instance, ret, err);
                else
                        r = policy_set_load(request->manager, desired, config, NULL, ret, err);
                return r < 0 ? r : 1;
        }
        if (policy_is_open(policy))
                return error_set_field(err, "name", "policy %s has a rule to @" POLICY_PACKAGES ", which is a list that each template has for itself: name an instance", name);
        if (!(ret->list = calloc(1, sizeof(Policy *))))
                return error_set_errno(err, ENOMEM, "cannot collect policies");
        ret->list[ret->n++] = policy_share(policy);
        return 0;
}

static int probe_of(Request *request, char host[NAME_TEXT_MAX], PolicyProbe *ret, Error *err) {
        const char *text = request_string(request, "host");
        PolicyProbe probe = {.protocol = policy_protocol_from_string(request_string(request, "protocol") ?: "tcp"), .method = request_string(request, "method"),
                             .path = request_string(request, "path")};

        if (name_split_port(text, host, &probe.port) < 0)
                return error_set_field(err, "host", "host \"%s\" is not valid: it must be a name or an address, with or without a port from 1 to 65535", text);
        if (probe.port == 0 && probe.protocol != POLICY_ICMP)
                probe.port = 443;
        if (policy_target(host) == POLICY_TO_CIDR)
                probe.address = host;
        else
                probe.name = host;
        *ret = probe;
        return 0;
}

void handle_policy_explain(Request *request) {
        const char *name = request_string(request, "name");
        _cleanup_(policy_set_done) PolicySet policies = POLICY_SET_NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        char host[NAME_TEXT_MAX];
        PolicyAnswer answer;
        PolicyProbe probe;
        int r = probe_of(request, host, &probe, &err), instance = 0;

        if (r >= 0)
                r = instance = policies_of(request, name, &policies, &err);
        if (r >= 0)
                r = policy_explain(policies.list, policies.n, &probe, &answer, &err);
        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        request_reply(request, json_pack("{s:s, s:s, s:s, s:o}", "of", instance ? "instance" : "policy", "action", policy_action_to_string(answer.action), "text",
                                         answer.text, "by", answer.index >= 0 ? where_is_rule(policies.list, policies.n, answer.index) : json_string("default")));
}

static json_t *counters_json(const NetworkCounters *c) {
        return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "tx_packets", (json_int_t) c->tx_packets, "tx_bytes", (json_int_t) c->tx_bytes,
                         "rx_packets", (json_int_t) c->rx_packets, "rx_bytes", (json_int_t) c->rx_bytes, "denied_packets", (json_int_t) c->denied_packets,
                         "denied_bytes", (json_int_t) c->denied_bytes, "spoofed_packets", (json_int_t) c->spoofed_packets, "refused_connections",
                         (json_int_t) c->connections, "refused_connection_rate", (json_int_t) c->connection_rate, "refused_destinations",
                         (json_int_t) c->destinations, "refused_traffic", (json_int_t) c->traffic);
}

void handle_network_show(Request *request) {
        Instance *instance = request_instance(request);
        char v4[INET_ADDRSTRLEN], v6[INET6_ADDRSTRLEN];
        _cleanup_free_ char *rules = NULL;
        NetworkCounters counters = {0};
        NetworkAddress a;
        json_t *reply;

        if (!instance)
                return;
        network_address(&request->manager->desired->host.network, instance->record.slot, &a);
        reply = json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", instance->record.name, "state", instance_state_to_string(instance->state), "interface",
                          a.host_ifname, "ipv4", inet_ntop(AF_INET, &a.ipv4, v4, sizeof(v4)), "ipv6", inet_ntop(AF_INET6, &a.ipv6, v6, sizeof(v6)));
        (void) json_object_set_new(reply, "cut", json_boolean(instance_network_is_cut(instance)));
        if (instance_is_active(instance) && network_counters(request->manager->network, instance->record.slot, &counters, NULL) >= 0)
                (void) json_object_set_new(reply, "counters", counters_json(&counters));
        if (instance_is_active(instance) && network_dump(request->manager->network, instance->record.slot, &rules, NULL) >= 0)
                (void) json_object_set_new(reply, "rules", json_string(rules));
        if (instance->config) {
                _cleanup_free_ char *policies = strv_join(instance->config->policies, ",");
                (void) json_object_set_new(reply, "policies", json_string(policies ?: ""));
        }
        request_reply(request, reply);
}
