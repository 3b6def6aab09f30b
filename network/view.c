// SPDX-License-Identifier: GPL-2.0-or-later
// View: see view.h.
#include "network/view.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <string.h>

#include "base/strv.h"
#include "base/valid.h"
#include "network/number.h"

void view_slot_done(ViewSlot *slot) {
        free(slot->instance);
        free(slot->sandbox);
        strv_free(slot->dns.types);
        compiled_free(slot->compiled);
        *slot = (ViewSlot) {0};
}

View *view_free(View *view) {
        if (!view)
                return NULL;
        for (size_t i = 0; i < view->n_slots; i++)
                view_slot_done(&view->slots[i]);
        free(view->slots);
        free(view->kept);
        free(view->gone);
        strv_free(view->upstreams);
        free(view);
        return NULL;
}

static bool view_lists(const uint16_t *slots, size_t n, uint16_t slot) {
        for (size_t i = 0; i < n; i++)
                if (slots[i] == slot)
                        return true;
        return false;
}

bool view_ends(const View *view, uint16_t slot) {
        if (view_lists(view->gone, view->n_gone, slot))
                return true;
        for (size_t i = 0; i < view->n_slots; i++)
                if (view->slots[i].slot == slot)
                        return false;
        return view->whole && !view_lists(view->kept, view->n_kept, slot);
}

// ---- writing: by hand, because building a tree of a thousand rules first takes ten times as long

// Every string here was checked when it came in, and none may have a byte that JSON must escape: one that has is a fault of ours.
typedef struct Writer { FILE *f; bool bad; } Writer;

static void write_string(Writer *w, const char *key, const char *value) {
        for (const char *p = value; *p; p++)
                if ((unsigned char) *p < ' ' || (unsigned char) *p >= 0x7f || *p == '"' || *p == '\\')
                        w->bad = true;
        fprintf(w->f, key ? "\"%s\":" : "%s", key ?: "");
        fprintf(w->f, "\"%s\"", value);
}

static void write_list(Writer *w, const char *key, char *const *values) {
        fprintf(w->f, "\"%s\":[", key);
        for (size_t i = 0; values && values[i]; i++) {
                fputs(i ? "," : "", w->f);
                write_string(w, NULL, values[i]);
        }
        fputc(']', w->f);
}

static void write_number(Writer *w, const char *key, uint64_t value) {
        fprintf(w->f, "\"%s\":%llu", key, (unsigned long long) value);
}

static void write_numbers(Writer *w, const char *key, const uint16_t *values, size_t n) {
        fprintf(w->f, "\"%s\":[", key);
        for (size_t i = 0; i < n; i++)
                fprintf(w->f, "%s%u", i ? "," : "", values[i]);
        fputc(']', w->f);
}

// Only what is not the default.
static void write_rule(Writer *w, const CompiledRule *rule) {
        _cleanup_free_ char *ports = compiled_rule_ports(rule);
        char to[NAME_TEXT_MAX + 2];

        w->bad = w->bad || !ports;
        fprintf(w->f, "{\"action\":\"%s\",\"protocol\":\"%s\",\"origin\":%d,\"id\":%u,", policy_action_to_string(rule->action), policy_protocol_to_string(rule->protocol),
                rule->index, rule->id);
        write_string(w, "to", compiled_rule_to(rule, to));
        if (ports && *ports)
                fprintf(w->f, ",\"ports\":\"%s\"", ports);
        if (rule->methods) {
                fputc(',', w->f);
                write_list(w, "methods", rule->methods);
        }
        if (rule->paths) {
                fputc(',', w->f);
                write_list(w, "paths", rule->paths);
        }
        if (rule->git != POLICY_GIT_ANY)
                fprintf(w->f, ",\"git\":\"%s\"", policy_git_to_string(rule->git));
        if (rule->inspect)
                fputs(",\"inspect\":true", w->f);
        if (rule->rate)
                fprintf(w->f, ",\"rate\":%llu", (unsigned long long) rule->rate);
        if (rule->budget)
                fprintf(w->f, ",\"budget\":%llu", (unsigned long long) rule->budget);
        if (rule->until)
                fprintf(w->f, ",\"until\":%llu", (unsigned long long) rule->until);
        fputc('}', w->f);
}

static void write_policies(Writer *w, const Compiled *compiled) {
        size_t at = 0;

        fputs("\"policies\":[", w->f);
        for (size_t k = 0; k < compiled->n_policies; k++) {
                size_t first = at;
                fputs(k ? ",{" : "{", w->f);
                write_string(w, "name", compiled->policies[k].name);
                fprintf(w->f, ",\"first\":%d,\"rules\":[", compiled->policies[k].first);
                for (; at < compiled->n && compiled->rules[at].policy == k; at++) {
                        if (at > first)
                                fputc(',', w->f);
                        write_rule(w, &compiled->rules[at]);
                }
                fputs("]}", w->f);
        }
        fputc(']', w->f);
}

static void write_rules(Writer *w, const Compiled *compiled) {
        if (compiled->spared && compiled->spared->entries) {
                write_list(w, "spared", compiled->spared->entries);
                fputc(',', w->f);
        }
        if (compiled->offline)
                fputs("\"named_only\":true,", w->f);
        write_policies(w, compiled);
}

static void write_wire(Writer *w, const ViewSlot *slot) {
        fprintf(w->f, "\"offline\":%s,", slot->offline ? "true" : "false");
        write_string(w, "ifname", slot->ifname);
        fputc(',', w->f);
        write_string(w, "instance", slot->instance);
        fputc(',', w->f);
        write_string(w, "ipv4", slot->ipv4);
        fputc(',', w->f);
        write_string(w, "ipv6", slot->ipv6);
        fputs(",\"dns\":{", w->f);
        write_number(w, "rate", slot->dns.rate);
        fputc(',', w->f);
        write_number(w, "burst", slot->dns.burst);
        fputc(',', w->f);
        write_number(w, "names", slot->dns.names);
        fputc(',', w->f);
        write_list(w, "types", slot->dns.types);
        fputc('}', w->f);
        if (slot->destinations > 0) {
                fputc(',', w->f);
                write_number(w, "destinations", slot->destinations);
        }
}

static void write_slot(Writer *w, const ViewSlot *slot) {
        fprintf(w->f, "{\"slot\":%u,", slot->slot);
        if (slot->within) {
                fprintf(w->f, "\"within\":%u,", slot->within);
                write_string(w, "instance", slot->instance);
                fputc(',', w->f);
                write_rules(w, slot->compiled);
        } else if (slot->profile) {
                fprintf(w->f, "\"profile\":%u,", slot->profile);
                write_string(w, "sandbox", slot->sandbox);
                fputc(',', w->f);
                write_wire(w, slot);
        } else {
                write_wire(w, slot);
                fputc(',', w->f);
                write_rules(w, slot->compiled);
        }
        fputc('}', w->f);
}

int view_format(const View *view, char **ret, size_t *ret_size) {
        char *text = NULL;
        size_t size = 0;
        Writer w = {open_memstream(&text, &size), false};

        if (!w.f)
                return -ENOMEM;
        fprintf(w.f, "{\"generation\":%llu,\"whole\":%s,", (unsigned long long) view->generation, view->whole ? "true" : "false");
        write_list(&w, "upstreams", view->upstreams);
        fputs(",\"slots\":[", w.f);
        for (size_t i = 0; i < view->n_slots; i++) {
                fputs(i ? "," : "", w.f);
                write_slot(&w, &view->slots[i]);
        }
        fputs("],", w.f);
        if (view->n_kept > 0) {
                write_numbers(&w, "kept", view->kept, view->n_kept);
                fputc(',', w.f);
        }
        write_numbers(&w, "gone", view->gone, view->n_gone);
        fputc('}', w.f);
        if (fclose(w.f) != 0 || w.bad) {
                free(text);
                return w.bad ? -EINVAL : -ENOMEM;
        }
        if (ret_size)
                *ret_size = size;
        *ret = text;
        return 0;
}

// ---- reading

static int refuse(Error *err, const char *what) {
        return error_set_field(err, "view", "view: %s", what);
}

static int unpack_failed(const json_error_t *why, Error *err) {
        return error_set_field(err, "view", "view: %s", why->text);
}

static bool in_range(json_int_t value, json_int_t max) {
        return value >= 0 && value <= max;
}

// A list of strings, at most `max`; NULL for none.
static int read_list(const json_t *list, size_t max, char ***ret, Error *err) {
        _cleanup_strv_ char **values = NULL;
        const json_t *value;
        size_t i;

        if (!list)
                return 0;
        if (!json_is_array(list) || json_array_size(list) > max)
                return refuse(err, "a list is none, or too long");
        json_array_foreach(list, i, value) {
                const char *text = json_string_value(value);
                if (!text || strlen(text) != json_string_length(value))
                        return refuse(err, "a list has something else than strings");
                if (strv_append(&values, text) < 0)
                        return error_set_errno(err, ENOMEM, "reading a view");
        }
        *ret = TAKE_PTR(values);
        return 0;
}

// Members of an object, counted: what is not counted was not known. json_unpack_ex() would do it in twice the time.
typedef struct Members { const json_t *object; size_t known; bool bad; } Members;

static const json_t *member(Members *m, const char *key) {
        const json_t *value = json_object_get(m->object, key);

        m->known += value != NULL;
        return value;
}

static const char *member_string(Members *m, const char *key, bool required) {
        const json_t *value = member(m, key);
        const char *text = json_string_value(value);

        m->bad = m->bad || (value ? !text : required);
        return text;
}

static json_int_t member_number(Members *m, const char *key, json_int_t max, bool required) {
        const json_t *value = member(m, key);

        m->bad = m->bad || (value ? !json_is_integer(value) || !in_range(json_integer_value(value), max) : required);
        return json_integer_value(value);
}

static bool member_bool(Members *m, const char *key) {
        const json_t *value = member(m, key);

        m->bad = m->bad || (value && !json_is_boolean(value));
        return json_is_true(value);
}

static int rule_of(const json_t *json, PolicyRule *rule, Error *err) {
        Members m = {json, 0, false};
        const char *action = member_string(&m, "action", true), *to = member_string(&m, "to", true), *protocol = member_string(&m, "protocol", true);
        const char *ports = member_string(&m, "ports", false), *git = member_string(&m, "git", false);
        int r;

        rule->inspect = member_bool(&m, "inspect");
        rule->rate = (uint64_t) member_number(&m, "rate", INT64_MAX, false);
        rule->budget = (uint64_t) member_number(&m, "budget", INT64_MAX, false);
        rule->until = (uint64_t) member_number(&m, "until", INT64_MAX, false);
        r = read_list(member(&m, "methods"), POLICY_METHODS_MAX, &rule->methods, err);
        if (r >= 0)
                r = read_list(member(&m, "paths"), POLICY_PATHS_MAX, &rule->paths, err);
        if (r < 0)
                return r;
        if (m.bad || json_object_size(json) != m.known + 2) // origin and id
                return refuse(err, "a rule is not valid");
        rule->action = policy_action_from_string(action);
        rule->protocol = policy_protocol_from_string(protocol);
        rule->git = git ? policy_git_from_string(git) : POLICY_GIT_ANY;
        rule->to = strdup(to);
        rule->ports = ports ? strdup(ports) : NULL;
        return rule->to && (!ports || rule->ports) ? 0 : error_set_errno(err, ENOMEM, "reading a view");
}

static int read_rule(Compiled *compiled, const json_t *json, Error *err) {
        _cleanup_(policy_rule_done) PolicyRule rule = {0};
        Members m = {json, 0, false};
        json_int_t origin = member_number(&m, "origin", COMPILED_INDEX_MAX, true), id = member_number(&m, "id", UINT16_MAX, true);
        CompiledRule *compiled_rule;
        int r;

        if (m.bad)
                return refuse(err, "a rule's number is not valid");
        r = rule_of(json, &rule, err);
        if (r >= 0)
                r = policy_rule_check((size_t) origin, &rule, err);
        if (r < 0)
                return r;
        if (policy_target(rule.to) == POLICY_TO_CATEGORY)
                return refuse(err, "a category is not expanded");
        r = compiled_add(compiled, &rule, (int) origin, &compiled_rule);
        if (r < 0)
                return error_set_errno(err, r, "reading a view");
        compiled_rule->id = (uint16_t) id;
        return 0;
}

static int read_policy(Compiled *compiled, json_t *json, Error *err) {
        const char *name;
        json_int_t first;
        json_t *rules, *rule;
        json_error_t why;
        size_t i;
        int r;

        if (json_unpack_ex(json, &why, 0, "{s:s, s:I, s:o !}", "name", &name, "first", &first, "rules", &rules) < 0)
                return unpack_failed(&why, err);
        if (!valid_is(VALID_NAME, name) || !in_range(first, COMPILED_INDEX_MAX) || !json_is_array(rules))
                return refuse(err, "a policy is not valid");
        r = compiled_add_policy(compiled, name, (int) first);
        if (r < 0)
                return error_set_errno(err, r, "reading a view");
        json_array_foreach(rules, i, rule)
                if ((r = read_rule(compiled, rule, err)) < 0)
                        return r;
        return 0;
}

// Names that "*" does not reach: the category's entries, checked as those of rules are.
static int read_spared(const json_t *list, Category **ret, Error *err) {
        _cleanup_(category_freep) Category *spared = calloc(1, sizeof(Category));
        int r;

        if (!spared || !(spared->name = strdup(POLICY_SPARED)))
                return error_set_errno(err, ENOMEM, "reading a view");
        r = read_list(list, CATEGORY_ENTRIES_MAX, &spared->entries, err);
        for (char **entry = spared->entries; r >= 0 && entry && *entry; entry++) {
                r = policy_destination_check("spared", *entry, err);
                if (r >= 0 && policy_target(*entry) == POLICY_TO_CATEGORY)
                        r = refuse(err, "a category is not expanded");
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(spared);
        return 0;
}

static int read_policies(const json_t *list, Compiled **ret, Error *err) {
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        json_t *policy;
        size_t i;
        int r;

        if (!json_is_array(list) || json_array_size(list) > VIEW_POLICIES_MAX)
                return refuse(err, "policies are no list, or too many");
        r = compiled_begin(json_array_size(list), &compiled);
        if (r < 0)
                return error_set_errno(err, r, "reading a view");
        json_array_foreach(list, i, policy)
                if ((r = read_policy(compiled, policy, err)) < 0)
                        return r;
        r = compiled_seal(compiled);
        if (r < 0)
                return error_set_errno(err, r, "reading a view");
        *ret = TAKE_PTR(compiled);
        return 0;
}

static int read_dns(json_t *json, ViewDns *dns, Error *err) {
        json_int_t rate, burst, names;
        const json_t *types;
        json_error_t why;
        int r;

        if (json_unpack_ex(json, &why, 0, "{s:I, s:I, s:I, s:o !}", "rate", &rate, "burst", &burst, "names", &names, "types", &types) < 0)
                return unpack_failed(&why, err);
        if (!in_range(rate, UINT32_MAX) || !in_range(burst, UINT32_MAX) || !in_range(names, UINT32_MAX))
                return refuse(err, "a number of dns is out of range");
        dns->rate = (uint32_t) rate;
        dns->burst = (uint32_t) burst;
        dns->names = (uint32_t) names;
        r = read_list(types, VIEW_TYPES_MAX, &dns->types, err);
        for (char **type = dns->types; r >= 0 && type && *type; type++)
                if (strlen(*type) > 16 || strspn(*type, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != strlen(*type))
                        r = refuse(err, "a type of dns is not valid");
        return r;
}

static bool read_address(int family, const char *text, char *ret, size_t size) {
        unsigned char bytes[16];

        if (inet_pton(family, text, bytes) != 1)
                return false;
        return inet_ntop(family, bytes, ret, (socklen_t) size);
}

// What of an instance and of a profile are rules, and of an instance and of a sandbox a wire.
typedef struct SlotParts {
        json_int_t slot, within, profile, destinations;
        const char *ifname, *instance, *ipv4, *ipv6, *sandbox;
        json_t *dns, *policies, *spared;
        int offline, named_only;
} SlotParts;

static int read_rules(const SlotParts *parts, ViewSlot *slot, Error *err) {
        int r = read_policies(parts->policies, &slot->compiled, err);

        if (r >= 0)
                slot->compiled->offline = parts->named_only;
        return r < 0 || !parts->spared ? r : read_spared(parts->spared, &slot->compiled->spared, err);
}

static int read_wire(const SlotParts *parts, ViewSlot *slot, Error *err) {
        if (!in_range(parts->destinations, UINT32_MAX) || !valid_is(VALID_IFNAME, parts->ifname) || !read_address(AF_INET, parts->ipv4, slot->ipv4, sizeof(slot->ipv4)) ||
            !read_address(AF_INET6, parts->ipv6, slot->ipv6, sizeof(slot->ipv6)))
                return refuse(err, "a slot is not valid");
        slot->destinations = (uint32_t) parts->destinations;
        slot->offline = parts->offline;
        (void) snprintf(slot->ifname, sizeof(slot->ifname), "%s", parts->ifname);
        return read_dns(parts->dns, &slot->dns, err);
}

static int unpack_slot(json_t *json, SlotParts *p, Error *err) {
        json_error_t why;
        int r;

        if (json_object_get(json, "within"))
                r = json_unpack_ex(json, &why, 0, "{s:I, s:I, s:s, s:o, s?o, s?b !}", "slot", &p->slot, "within", &p->within, "instance", &p->instance, "policies", &p->policies,
                                   "spared", &p->spared, "named_only", &p->named_only);
        else if (json_object_get(json, "profile"))
                r = json_unpack_ex(json, &why, 0, "{s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:b, s:o, s?I !}", "slot", &p->slot, "profile", &p->profile, "sandbox", &p->sandbox, "ifname", &p->ifname,
                                   "instance", &p->instance, "ipv4", &p->ipv4, "ipv6", &p->ipv6, "offline", &p->offline, "dns", &p->dns, "destinations", &p->destinations);
        else
                r = json_unpack_ex(json, &why, 0, "{s:I, s:s, s:s, s:s, s:s, s:b, s:o, s:o, s?o, s?b, s?I !}", "slot", &p->slot, "ifname", &p->ifname, "instance", &p->instance, "ipv4", &p->ipv4,
                                   "ipv6", &p->ipv6, "offline", &p->offline, "dns", &p->dns, "policies", &p->policies, "spared", &p->spared, "named_only", &p->named_only, "destinations",
                                   &p->destinations);
        return r < 0 ? unpack_failed(&why, err) : 0;
}

// By its kind: see network_sandbox.h for which numbers are whose.
static bool numbers_are_right(const SlotParts *p) {
        if (p->slot < 1 || p->slot > UINT16_MAX || !in_range(p->within, NETWORK_PROFILE_FIRST - 1) || !in_range(p->profile, UINT16_MAX))
                return false;
        if (p->profile)
                return network_is_sandbox((uint16_t) p->slot) && network_is_profile((uint16_t) p->profile) && valid_is(VALID_NAME, p->sandbox);
        return network_is_profile((uint16_t) p->slot) == (p->within > 0) && !network_is_sandbox((uint16_t) p->slot);
}

static int read_slot(json_t *json, ViewSlot *slot, Error *err) {
        SlotParts parts = {0};
        int r = unpack_slot(json, &parts, err);

        if (r < 0)
                return r;
        if (!numbers_are_right(&parts) || !valid_is(VALID_NAME, parts.instance))
                return refuse(err, "a slot is not valid");
        slot->slot = (uint16_t) parts.slot;
        slot->within = (uint16_t) parts.within;
        slot->profile = (uint16_t) parts.profile;
        slot->instance = strdup(parts.instance);
        slot->sandbox = parts.sandbox ? strdup(parts.sandbox) : NULL;
        if (!slot->instance || (parts.sandbox && !slot->sandbox))
                return error_set_errno(err, ENOMEM, "reading a view");
        if (!slot->within)
                r = read_wire(&parts, slot, err);
        return r < 0 || slot->profile ? r : read_rules(&parts, slot, err);
}

static int read_slots(json_t *list, View *view, Error *err) {
        json_t *slot;
        size_t i;
        int r;

        if (!json_is_array(list) || json_array_size(list) > VIEW_SLOTS_MAX)
                return refuse(err, "slots are no list, or too many");
        view->slots = calloc(json_array_size(list) + 1, sizeof(ViewSlot));
        if (!view->slots)
                return error_set_errno(err, ENOMEM, "reading a view");
        json_array_foreach(list, i, slot) {
                r = read_slot(slot, &view->slots[view->n_slots++], err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int read_numbers(const json_t *list, uint16_t **ret, size_t *ret_n, Error *err) {
        const json_t *number;
        size_t i;

        if (!json_is_array(list) || json_array_size(list) > UINT16_MAX)
                return refuse(err, "kept or gone is no list, or too long");
        *ret = calloc(json_array_size(list) + 1, sizeof(uint16_t)); // the view's at once
        if (!*ret)
                return error_set_errno(err, ENOMEM, "reading a view");
        json_array_foreach(list, i, number) {
                if (!json_is_integer(number) || !in_range(json_integer_value(number), UINT16_MAX))
                        return refuse(err, "a slot that is kept or gone is no number");
                (*ret)[(*ret_n)++] = (uint16_t) json_integer_value(number);
        }
        return 0;
}

static int read_upstreams(const json_t *list, View *view, Error *err) {
        int r = read_list(list, VIEW_UPSTREAMS_MAX, &view->upstreams, err);

        for (char **p = view->upstreams; r >= 0 && p && *p; p++) {
                char text[INET6_ADDRSTRLEN];
                if (!read_address(strchr(*p, ':') ? AF_INET6 : AF_INET, *p, text, sizeof(text)))
                        r = refuse(err, "an upstream is no address");
        }
        return r;
}

int view_parse(const char *text, size_t size, View **ret, Error *err) {
        _cleanup_(json_decrefp) json_t *json = NULL;
        _cleanup_(view_freep) View *view = calloc(1, sizeof(View));
        json_t *upstreams, *slots, *gone, *kept = NULL;
        json_int_t generation;
        json_error_t why;
        int whole, r;

        if (!view)
                return error_set_errno(err, ENOMEM, "reading a view");
        if (size > VIEW_TEXT_MAX)
                return refuse(err, "it is too long");
        json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
        if (!json || json_unpack_ex(json, &why, 0, "{s:I, s:b, s:o, s:o, s:o, s?o !}", "generation", &generation, "whole", &whole, "upstreams", &upstreams, "slots", &slots,
                                    "gone", &gone, "kept", &kept) < 0)
                return unpack_failed(&why, err);
        if (generation < 0)
                return refuse(err, "its generation is negative");
        view->generation = (uint64_t) generation;
        view->whole = whole;
        r = read_upstreams(upstreams, view, err);
        if (r >= 0)
                r = read_slots(slots, view, err);
        if (r >= 0)
                r = read_numbers(gone, &view->gone, &view->n_gone, err);
        if (r >= 0 && kept)
                r = read_numbers(kept, &view->kept, &view->n_kept, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(view);
        return 0;
}
