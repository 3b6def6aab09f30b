// SPDX-License-Identifier: GPL-2.0-or-later
// PolicySet: see policy_set.h.
#include "core/policy_set.h"

#include <string.h>

#include "base/strv.h"

void policy_set_done(PolicySet *set) {
        for (size_t i = 0; i < set->n; i++)
                (void) policy_free(set->list[i]);
        free(set->list);
        *set = POLICY_SET_NULL;
}

static bool any_is_open(Policy *const *policies, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (policy_is_open(policies[i]))
                        return true;
        return false;
}

static const char *template_of(Manager *m, const InstanceConfig *config) {
        const Instance *instance = instance_list_find(&m->instances, config->name);

        return instance && instance->record.template_digest[0] ? instance->record.template_digest : config->template;
}

static int refuse(const char *why, const Template *t, const char *name, Error *err) {
        return error_set_field(err, "policies", "a policy of it has a rule to @" POLICY_PACKAGES ", and the template %s%s%.12s%s %s; build or import it anew and "
                               "rebuild the instance, or write categories.d/" POLICY_PACKAGES ".conf", t ? t->manifest->name : name, t ? " (" : "",
                               t ? t->manifest->digest : "", t ? ")" : "", why);
}

// The template's word for it. It was checked when the manifest was read, and is checked again as an operator's file would be.
static int packages_of(Manager *m, const char *name, Category **ret, Error *err) {
        Template *t = template_find(m->templates, name);
        _cleanup_free_ char *text = NULL;
        int r;

        if (!t)
                return refuse("is not here any more", NULL, name, err);
        if (!t->manifest->asked)
                return refuse("has no list of where its package clients fetch from", t, name, err);
        text = strv_join(t->manifest->mirrors, "\n");
        if (!text)
                return error_set_errno(err, ENOMEM, "cannot collect policies");
        r = category_parse(POLICY_PACKAGES, "the template's mirrors", text, ret, err);
        return r < 0 ? error_wrap(err, "template %s", t->manifest->name) : 0;
}

static int bind_all(PolicySet *set, Policy *const *policies, size_t n, const PolicyUse *use, Error *err) {
        int r = 0;

        for (size_t i = 0; i < n && r >= 0; i++)
                if ((r = policy_bind(policies[i], use, &set->list[set->n], err)) >= 0)
                        set->n++;
        return r;
}

int policy_set_load(Manager *m, const Desired *desired, const InstanceConfig *config, const char *template, PolicySet *ret, Error *err) {
        _cleanup_(policy_set_done) PolicySet set = POLICY_SET_NULL;
        _cleanup_(category_freep) Category *packages = NULL;
        _cleanup_free_ Policy **policies = NULL;
        size_t n = 0;
        int r = desired_find_policies(desired, config->policies, &policies, &n, err);

        if (r >= 0 && !(set.list = calloc(n + 1, sizeof(Policy *))))
                r = error_set_errno(err, ENOMEM, "cannot collect policies");
        if (r >= 0 && any_is_open(policies, n))
                r = packages_of(m, template ?: template_of(m, config), &packages, err);
        if (r >= 0)
                r = bind_all(&set, policies, n, &(PolicyUse) {packages, config->package_registries, config->offline}, err);
        if (r < 0)
                return error_wrap(err, "instance %s", config->name);
        *ret = set;
        set = POLICY_SET_NULL;
        return 0;
}

int policy_set_check_all(Manager *m, const Desired *desired, Error *err) {
        int r = 0;

        for (size_t i = 0; i < desired->n_instances && r >= 0; i++) {
                const InstanceConfig *config = desired->instances[i];
                _cleanup_(policy_set_done) PolicySet set = POLICY_SET_NULL;
                _cleanup_free_ Policy **policies = NULL;
                size_t n = 0;
                r = desired_find_policies(desired, config->policies, &policies, &n, err);
                // All others were checked when they were read.
                if (r < 0 || !any_is_open(policies, n))
                        continue;
                r = policy_set_load(m, desired, config, NULL, &set, err);
                if (r >= 0 && (r = policies_check(set.list, set.n, err)) < 0)
                        (void) error_wrap(err, "instance %s", config->name);
        }
        return r;
}

void policy_set_changed(Manager *m, const char *digest) {
        bool any = false;

        for (Instance *i = m->instances.first; i; i = i->next) {
                if (strcmp(i->record.template_digest, digest) != 0)
                        continue;
                i->wanted_network++;
                any = true;
        }
        if (any)
                manager_replan(m);
}
