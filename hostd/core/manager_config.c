// SPDX-License-Identifier: GPL-2.0-or-later
// Manager, configuration: loading, swapping in, applying differences, committing.
#include <string.h>

#include "base/log.h"
#include "base/strv.h"
#include "core/border_link.h"
#include "core/delivery.h"
#include "core/lifecycle.h"
#include "core/manager.h"
#include "core/policy_set.h"
#include "core/sandbox_network.h"

static bool policies_changed(const Desired *old, const Desired *new, char *const *names) {
        for (char *const *name = names; name && *name; name++) {
                Policy *a = desired_find_policy(old, *name), *b = desired_find_policy(new, *name);
                if (!a || !b || !policy_equal(a, b))
                        return true;
        }
        return false;
}

// Sandboxes have policies of their own.
static bool sandboxes_changed(const Desired *old, const Instance *instance) {
        const Manager *m = instance->manager;

        for (const SandboxProfile *p = sandbox_profile_next(m, NULL); p; p = sandbox_profile_next(m, p))
                if (sandbox_profile_instance(p) == instance && policies_changed(old, m->desired, sandbox_profile_policies(p)))
                        return true;
        return false;
}

static bool network_limits_changed(const InstanceConfig *a, const InstanceConfig *b) {
        for (LimitId id = 0; id < _LIMIT_MAX; id++)
                if (limit_row(id)->where == LIMIT_WHERE_NETWORK && a->limits.value[id] != b->limits.value[id])
                        return true;
        return false;
}

static bool dns_changed(const InstanceConfig *a, const InstanceConfig *b) {
        return a->dns_rate != b->dns_rate || a->dns_burst != b->dns_burst || a->dns_names != b->dns_names || !strv_equal(a->dns_types, b->dns_types);
}

// What a running instance must be told. Failures become warnings: the configuration is in force, the kernel is behind.
static void apply_one(Manager *m, Instance *instance, const Desired *old) {
        const InstanceConfig *before = desired_find_instance(old, instance->record.name);
        _cleanup_error_ Error err = ERROR_NULL;
        int r = 0;

        if (!instance_is_live(instance) || !instance->config)
                return;
        if (!before) { // its file is back, or valid again
                instance->wanted_network++;
                instance->wanted_limits++;
        } else if (!strv_equal(before->policies, instance->config->policies) || before->offline != instance->config->offline ||
            !strv_equal(before->package_registries, instance->config->package_registries) || policies_changed(old, m->desired, instance->config->policies) ||
            sandboxes_changed(old, instance) || network_limits_changed(before, instance->config) || dns_changed(before, instance->config))
                instance->wanted_network++;
        if (before && instance_config_diff(before, instance->config))
                instance->wanted_limits++;
        if (m->secrets && (!before || before->package_lock_only != instance->config->package_lock_only || before->package_no_scripts != instance->config->package_no_scripts))
                delivery_plan(m->secrets, instance->record.name);
        if (instance->wanted_network != instance->applied_network)
                r = instance_apply_network(instance, &err);
        if (r >= 0 && instance->wanted_limits != instance->applied_limits)
                r = instance_apply_limits(instance, false, &err);
        if (r < 0)
                manager_warn(m, "apply", instance->record.name, "%s", error_message(&err, r));
        else
                manager_unwarn(m, "apply", instance->record.name);
}

// Addresses and the uplink belong to what is set up at the start of hostd: the ones in force stay until then.
static void keep_network(Manager *m, Desired *fresh) {
        NetworkSettings *old = &m->desired->host.network, *new = &fresh->host.network, kept = *old;
        bool changed = !text_equal(m->desired->host.uplink, fresh->host.uplink) || old->ipv4_prefix != new->ipv4_prefix ||
                       old->ipv6_prefix != new->ipv6_prefix || old->ipv6_nat != new->ipv6_nat || old->ipv4_pool.s_addr != new->ipv4_pool.s_addr ||
                       memcmp(&old->ipv6_pool, &new->ipv6_pool, sizeof(old->ipv6_pool)) != 0;

        *old = *new;
        *new = kept;
        if (changed)
                manager_warn(m, "restart", "host", "the changed network settings of hostd.conf need a restart of hostd");
}

static void stop_orphan(Instance *instance) {
        _cleanup_error_ Error err = ERROR_NULL;
        StopOptions options = {0};

        manager_warn(instance->manager, "orphan", instance->record.name, "instances.d/%s.conf is gone: stopped, data kept until \"hostctl delete %s\"",
                     instance->record.name, instance->record.name);
        if (instance_stop(instance, &options, NULL, NULL, &err) < 0) // frozen, and cannot be thawed
                log_event(LOG_WARNING, NULL, instance->record.name, "%s", error_message(&err, -EIO));
}

static void swap_in(Manager *m, Desired *fresh) {
        Desired *old = m->desired;

        keep_network(m, fresh);
        m->desired = fresh;
        m->revision++;
        if (m->server)
                server_set_connections_max(m->server, (unsigned) fresh->host.connections_per_uid);
        for (Instance *i = m->instances.first; i; i = i->next) {
                bool orphan = !i->config;
                i->config = desired_find_instance(fresh, i->record.name);
                if (i->config && orphan)
                        manager_unwarn(m, "orphan", i->record.name);
                if (!i->config && instance_is_active(i) && !i->deleting)
                        stop_orphan(i);
        }
        for (Instance *i = m->instances.first; i; i = i->next)
                apply_one(m, i, old);
        (void) desired_free(old);
}

static int load_checked(Manager *m, const DesiredEdit *edit, Desired **ret, Error *err) {
        _cleanup_(desired_freep) Desired *fresh = NULL;
        int r = desired_reload(confdir_fd(m->confdir), m->desired, edit, &fresh, err);

        if (r >= 0)
                r = lifecycle_check_set(m, fresh, err);
        if (r >= 0)
                r = policy_set_check_all(m, fresh, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(fresh);
        return 0;
}

static void put_in_force(Manager *m, Desired *fresh) {
        free(TAKE_PTR(m->config_error));
        m->broken = strv_free(m->broken);
        manager_unwarn_kind(m, "configuration");
        swap_in(m, fresh);
        border_link_tick(m);
        manager_guard(m);
        lifecycle_create_missing(m);
        manager_replan(m);
}

static void note_refusal(Manager *m, const char *why) {
        free(m->config_error);
        m->config_error = strdup(why);
        manager_warn(m, "configuration", "host", "configuration refused, the old one stays in force: %s", why);
}

static char *earlier_text(void *userdata, const char *path, unsigned n) {
        static const unsigned looked_at_max = 50; // so many bad commits in a row are nobody's mistake

        return n < looked_at_max ? confdir_earlier(userdata, path, n) : NULL;
}

// An instance's file is that instance's warning; of the others one sentence is shown.
static void note_problem(Manager *m, const DesiredProblem *problem) {
        static const char folder[] = "instances.d/";
        _cleanup_free_ char *name = NULL, *why = NULL;
        size_t size = strlen(problem->path);

        if (strncmp(problem->path, folder, strlen(folder)) == 0 && confdir_path_is_ours(problem->path))
                name = strndup(problem->path + strlen(folder), size - strlen(folder) - strlen(".conf"));
        if (asprintf(&why, "%s: %s", problem->reason, problem->replaced ? "the last valid text in history is in force" : "it is left out until it is valid") < 0)
                why = NULL;
        manager_warn(m, "configuration", name ?: "host", "%s", why ?: problem->reason);
        if (!m->config_error)
                m->config_error = TAKE_PTR(why);
}

int manager_load(Manager *m, Error *err) {
        _cleanup_(desired_rescue_done) DesiredRescue rescue = {.earlier = earlier_text, .userdata = m->confdir};
        int r = desired_load_rescue(confdir_fd(m->confdir), &rescue, &m->desired, err);

        if (r < 0)
                return error_wrap(err, "the configuration is not valid, and history has no earlier text that is");
        if (rescue.n_problems == 0)
                manager_unwarn_kind(m, "configuration"); // of what was in the files before
        for (size_t i = 0; i < rescue.n_problems; i++) {
                if (strv_append(&m->broken, rescue.problems[i].path) < 0)
                        return error_set_errno(err, ENOMEM, "cannot start");
                note_problem(m, &rescue.problems[i]);
        }
        return 0;
}

bool manager_is_unmanaged(const Manager *m, const char *name) {
        char path[64];

        (void) snprintf(path, sizeof(path), "instances.d/%s.conf", name);
        return !desired_find_instance(m->desired, name) && strv_contains(m->broken, path);
}

int manager_reload(Manager *m, bool dry_run, char ***ret_changes, Error *err) {
        _cleanup_(desired_freep) Desired *fresh = NULL;
        _cleanup_strv_ char **changes = NULL;
        _cleanup_error_ Error why = ERROR_NULL;
        int r = load_checked(m, NULL, &fresh, &why);

        if (r >= 0 && ret_changes && (r = desired_diff(m->desired, fresh, &changes)) < 0)
                r = error_set_errno(&why, r, "cannot compare configurations");
        if (r < 0) {
                if (!dry_run)
                        note_refusal(m, error_message(&why, r));
                error_move(err, &why);
                return r;
        }
        if (!dry_run)
                put_in_force(m, TAKE_PTR(fresh));
        if (ret_changes)
                *ret_changes = TAKE_PTR(changes);
        return 0;
}

static int write_file(Manager *m, const char *path, const char *text, Error *err) {
        return text ? confdir_write(m->confdir, path, text, err) : confdir_remove(m->confdir, path, err);
}

// The kernel has a policy before the disk has it: nobody has been told of it yet, a crash of hostd or of the host leaves the file, and
// the file is what the next start goes by. So what takes milliseconds, the disk, is not on the way of a policy's effect.
static int write_policy(Manager *m, const char *path, const char *text, Desired *fresh, Error *err) {
        int r;

        put_in_force(m, fresh);
        r = write_file(m, path, text, err);
        if (r < 0)
                (void) manager_reload(m, false, NULL, NULL); // back to what the file says; a failure of that is a warning
        return r;
}

int manager_write(Manager *m, const char *path, const char *text, Error *err) {
        _cleanup_(desired_freep) Desired *fresh = NULL;
        DesiredEdit edit = {path, text};
        // Nothing is written that would be refused.
        int r = load_checked(m, &edit, &fresh, err);

        if (r < 0)
                return r;
        if (strncmp(path, "policies.d/", 11) == 0)
                return write_policy(m, path, text, TAKE_PTR(fresh), err);
        r = write_file(m, path, text, err);
        if (r >= 0)
                put_in_force(m, TAKE_PTR(fresh));
        return r;
}
