// SPDX-License-Identifier: GPL-2.0-or-later
// Reconcile: see reconcile.h.
#include "core/reconcile.h"

#include <sys/sysinfo.h>

#include "base/log.h"
#include "core/plan.h"

static PlanState plan_state_of(const Instance *instance) {
        static const PlanState states[_INSTANCE_STATE_MAX] = {
                [INSTANCE_STOPPED] = PLAN_STATE_STOPPED,   [INSTANCE_STARTING] = PLAN_STATE_STARTING, [INSTANCE_RUNNING] = PLAN_STATE_RUNNING,
                [INSTANCE_STOPPING] = PLAN_STATE_STOPPING, [INSTANCE_FAILED] = PLAN_STATE_CRASHED,
        };

        if (instance->state == INSTANCE_RUNNING && instance->paused)
                return PLAN_STATE_FROZEN;
        if (instance->state == INSTANCE_STOPPED && instance->record.started == 0)
                return PLAN_STATE_CREATED;
        return states[instance->state];
}

// What is being deleted or rebuilt belongs to that operation alone.
static void observe(Manager *m, PlanInput *input, PlanDesired *desired, PlanObserved *observed) {
        for (Instance *i = m->instances.first; i; i = i->next) {
                if (i->deleting || i->rebuilding)
                        continue;
                observed[input->n_observed++] = (PlanObserved) {
                        .name = i->record.name, .slot = i->record.slot, .state = plan_state_of(i), .adopted = i->exit_source != NULL,
                        .reported = i->reported, .cgroup = i->box != NULL, .veth = i->box != NULL, .policy_revision = i->applied_network,
                        .limits_revision = i->applied_limits, .since = i->since, .attempts = i->attempts, .window = i->window,
                };
                if (i->config)
                        desired[input->n_desired++] = (PlanDesired) {
                                .name = i->record.name, .wanted = i->record.wanted, .boot = i->config->boot, .order = i->config->boot_order,
                                .policy_revision = i->wanted_network, .limits_revision = i->wanted_limits,
                        };
        }
}

static void act_start(Instance *instance, const PlanAction *action) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (instance_start(instance, NULL, NULL, &err) >= 0)
                return;
        instance_start_failed(instance, &err);
}

static void act_stop(Instance *instance, const PlanAction *action) {
        StopOptions options = {0};

        (void) instance_stop(instance, &options, NULL, NULL, NULL);
}

static void act_clean(Instance *instance, const PlanAction *action) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (instance_clean(instance, &err) < 0)
                manager_warn(instance->manager, "clean", instance->record.name, "%s", error_message(&err, -EIO));
}

static void act_network(Instance *instance, const PlanAction *action) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (instance_apply_network(instance, &err) < 0)
                manager_warn(instance->manager, "apply", instance->record.name, "%s", error_message(&err, -EIO));
        else
                manager_unwarn(instance->manager, "apply", instance->record.name);
}

static void act_limits(Instance *instance, const PlanAction *action) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (instance_apply_limits(instance, false, &err) < 0)
                manager_warn(instance->manager, "apply", instance->record.name, "%s", error_message(&err, -EIO));
        else
                manager_unwarn(instance->manager, "apply", instance->record.name);
}

static void act_report(Instance *instance, const PlanAction *action) {
        instance->reported = true;
        manager_warn(instance->manager, "instance-failed", instance->record.name, action->kind == PLAN_REPORT_CRASHING
                             ? "it failed %u times in a row and rests; \"hostctl start\" tries again at once"
                             : "something runs under this name that is not known (%u)",
                     instance->attempts);
}

static int look_again(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = userdata;

        m->look_again = sd_event_source_disable_unref(m->look_again);
        manager_replan(m);
        return 0;
}

static void act_wait(Manager *m, usec_t when) {
        m->look_again = sd_event_source_disable_unref(m->look_again);
        (void) sd_event_add_time(m->event, &m->look_again, CLOCK_MONOTONIC, when, 0, look_again, m);
}

static void (*const acts[_PLAN_KIND_MAX])(Instance *instance, const PlanAction *action) = {
        [PLAN_REPORT_UNKNOWN] = act_report, [PLAN_REPORT_CRASHING] = act_report, [PLAN_CLEAN] = act_clean,  [PLAN_APPLY_NETWORK] = act_network,
        [PLAN_APPLY_POLICY] = act_network,  [PLAN_APPLY_LIMITS] = act_limits,    [PLAN_STOP] = act_stop,    [PLAN_START] = act_start,
};

static void carry_out(Manager *m, const Plan *plan) {
        for (size_t i = 0; i < plan->n; i++) {
                const PlanAction *action = &plan->actions[i];
                Instance *instance = action->name ? instance_list_find(&m->instances, action->name) : NULL;
                log_debug("plan: %s %s", plan_kind_to_string(action->kind), action->name ?: "");
                if (action->kind == PLAN_WAIT)
                        act_wait(m, action->when);
                else if (instance && acts[action->kind])
                        acts[action->kind](instance, action);
        }
}

// At the boot of the host the boot modes say what is wanted; from then on the last verb does.
static void remember_wants(Manager *m, const PlanInput *input) {
        for (size_t i = 0; i < input->n_desired; i++) {
                Instance *instance = instance_list_find(&m->instances, input->desired[i].name);
                instance->record.wanted = plan_wants(&input->desired[i], true);
                (void) store_instance_update(m->store, &instance->record, NULL);
        }
}

void reconcile_run(Manager *m) {
        _cleanup_free_ PlanDesired *desired = calloc(m->instances.n + 1, sizeof(PlanDesired));
        _cleanup_free_ PlanObserved *observed = calloc(m->instances.n + 1, sizeof(PlanObserved));
        PlanInput input = {
                .desired = desired,
                .observed = observed,
                .booting = m->booting,
                .max_starts = 2 * (unsigned) get_nprocs(),
                .now = clock_monotonic(),
        };
        Plan plan;

        if (!desired || !observed)
                return;
        observe(m, &input, desired, observed);
        if (m->booting)
                remember_wants(m, &input);
        if (plan_make(&input, &plan) < 0)
                return; // the tick tries again
        m->booting = false;
        carry_out(m, &plan);
        plan_done(&plan);
}
