// SPDX-License-Identifier: GPL-2.0-or-later
// Bind: what a policy is for one instance. It is one object for all instances, each template has a list of its own for "@packages", and one instance
// may be offline; so the policies of such an instance are copies in which those rules have the template's list, and that say that it is offline.
#include <string.h>

#include "base/strv.h"
#include "network/name.h"
#include "network/policy.h"

static bool rule_is_about_packages(const PolicyRule *rule) {
        return strcmp(rule->to, "@" POLICY_PACKAGES) == 0;
}

static bool is_about_packages(const Policy *policy) {
        for (size_t i = 0; i < policy->n_rules; i++)
                if (rule_is_about_packages(&policy->rules[i]))
                        return true;
        return false;
}

static bool rule_is_open(const PolicyRule *rule) {
        return !rule->category && rule_is_about_packages(rule);
}

bool policy_is_open(const Policy *policy) {
        for (size_t i = 0; i < policy->n_rules; i++)
                if (rule_is_open(&policy->rules[i]))
                        return true;
        return false;
}

static bool is_spared(const Category *spared, const char *entry) {
        char name[CATEGORY_ENTRY_MAX];

        (void) category_entry_split(entry, name);
        for (char **p = spared ? spared->entries : NULL; p && *p; p++)
                if (policy_target(*p) != POLICY_TO_CIDR && name_pattern_matches(*p, name))
                        return true;
        return false;
}

static bool is_approved(char *const *registries, const char *entry) {
        char name[CATEGORY_ENTRY_MAX];

        (void) category_entry_split(entry, name);
        return !registries || strv_contains(registries, name);
}

// What is left of a list for "@packages". A template's word opens no server of DNS over HTTPS: nobody here named that one; an operator's file may.
static int narrow(Category *packages, const Category *spared, char *const *registries, Category **ret) {
        _cleanup_(category_freep) Category *left = NULL;
        bool all = true;
        int r = 0;

        for (char **p = packages->entries; p && *p; p++)
                all = all && !is_spared(spared, *p) && is_approved(registries, *p);
        if (all) {
                *ret = category_share(packages);
                return 0;
        }
        left = calloc(1, sizeof(Category));
        if (!left || !(left->name = strdup(packages->name)))
                return -ENOMEM;
        for (char **p = packages->entries; r >= 0 && *p; p++)
                if (!is_spared(spared, *p) && is_approved(registries, *p))
                        r = strv_append(&left->entries, *p);
        if (r >= 0)
                *ret = TAKE_PTR(left);
        return r;
}

static int bind_rule(const PolicyRule *rule, const PolicyUse *use, Policy *copy, Error *err) {
        PolicyRule bound;
        Category *list = NULL;
        int r = policy_rule_copy(rule, &bound);

        if (r < 0)
                return error_set_errno(err, r, "cannot bind a policy");
        if (rule_is_about_packages(rule)) {
                r = narrow(rule->category ?: use->packages, rule->category ? NULL : copy->spared, use->registries, &list);
                if (r < 0) {
                        policy_rule_done(&bound);
                        return error_set_errno(err, r, "cannot bind a policy");
                }
                (void) category_free(bound.category);
                bound.category = list;
                r = policy_rule_check(copy->n_rules, &bound, err); // what depends on the entries
        }
        if (r < 0)
                policy_rule_done(&bound);
        else
                copy->rules[copy->n_rules++] = bound;
        return r;
}

static int copy_begin(const Policy *policy, Policy **ret) {
        _cleanup_(policy_freep) Policy *copy = NULL;
        int r = policy_new(policy->name, &copy);

        if (r < 0)
                return r;
        copy->description = policy->description ? strdup(policy->description) : NULL;
        copy->rules = calloc(policy->n_rules + 1, sizeof(PolicyRule));
        if (!copy->rules || (policy->description && !copy->description))
                return -ENOMEM;
        copy->spared = policy->spared ? category_share(policy->spared) : NULL;
        copy->offline = policy->offline;
        *ret = TAKE_PTR(copy);
        return 0;
}

int policy_bind(Policy *policy, const PolicyUse *use, Policy **ret, Error *err) {
        _cleanup_(policy_freep) Policy *copy = NULL;
        bool open = policy_is_open(policy);
        int r;

        if (!open && !use->offline && !(use->registries && is_about_packages(policy))) {
                *ret = policy_share(policy);
                return 0;
        }
        if (open && !use->packages)
                return error_set_field(err, "policies", "policy %s has a rule to @" POLICY_PACKAGES ", which is a list that each template has for itself", policy->name);
        r = copy_begin(policy, &copy);
        if (r < 0)
                return error_set_errno(err, r, "cannot bind policy %s", policy->name);
        copy->offline = use->offline;
        for (size_t i = 0; i < policy->n_rules && r >= 0; i++)
                r = bind_rule(&policy->rules[i], use, copy, err);
        if (r < 0)
                return error_wrap(err, "policy %s", policy->name);
        *ret = TAKE_PTR(copy);
        return 0;
}
