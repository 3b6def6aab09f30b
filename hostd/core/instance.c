// SPDX-License-Identifier: GPL-2.0-or-later
// Instance: the object, its list, and who waits for what.
#include "core/instance.h"

#include <string.h>

#include "base/log.h"
#include "core/launcher.h"
#include "core/manager.h"
#include "core/plan.h"
#include "core/secrets.h"
#include "core/warm.h"

static const char *const instance_state_names[_INSTANCE_STATE_MAX] = {
        [INSTANCE_STOPPED] = "stopped", [INSTANCE_STARTING] = "starting", [INSTANCE_RUNNING] = "running",
        [INSTANCE_STOPPING] = "stopping", [INSTANCE_FAILED] = "failed",
};

const char *instance_state_to_string(InstanceState state) {
        return state >= 0 && state < _INSTANCE_STATE_MAX ? instance_state_names[state] : "unknown";
}

Instance *instance_list_find(const InstanceList *list, const char *name) {
        for (Instance *i = list->first; i && name; i = i->next)
                if (strcmp(i->record.name, name) == 0)
                        return i;
        return NULL;
}

Instance *instance_list_by_slot(const InstanceList *list, uint16_t slot) {
        for (Instance *i = list->first; i; i = i->next)
                if (i->record.slot == slot)
                        return i;
        return NULL;
}

Instance *instance_new(Manager *manager, const StoreInstance *record, InstanceConfig *config) {
        Instance *instance = calloc(1, sizeof(Instance)), **p;

        if (!instance)
                return NULL;
        instance->manager = manager;
        instance->record = *record;
        instance->config = config;
        instance->pidfd = instance->control = instance->kmsg = -EBADF;
        instance->wanted_network = instance->wanted_limits = 1;
        instance->since = clock_monotonic();
        // Sorted by name, so that every list comes out the same.
        for (p = &manager->instances.first; *p && strcmp((*p)->record.name, record->name) < 0; p = &(*p)->next)
                ;
        instance->next = *p;
        *p = instance;
        manager->instances.n++;
        return instance;
}

Instance *instance_free(Instance *instance) {
        Error err = ERROR_NULL;

        if (!instance)
                return NULL;
        for (Instance **p = &instance->manager->instances.first; *p; p = &(*p)->next) {
                if (*p != instance)
                        continue;
                *p = instance->next;
                instance->manager->instances.n--;
                break;
        }
        if (instance->waiters) {
                (void) error_set(&err, ERR_CANCELLED, "hostd is shutting down");
                for (InstanceGoal goal = GOAL_RUNNING; goal < _INSTANCE_GOAL_MAX; goal++)
                        instance_notify(instance, goal, -ECANCELED, &err);
                error_done(&err);
        }
        launcher_forget(instance);
        instance_pause_forget(instance, "hostd is shutting down");
        instance_warm(instance, false);
        instance_control_close(instance);
        sd_event_source_disable_unref(instance->exit_source);
        sd_event_source_disable_unref(instance->oom_source);
        sd_event_source_disable_unref(instance->empty_source);
        sd_event_source_disable_unref(instance->deadline);
        sd_event_source_disable_unref(instance->enter_timer);
        sd_event_source_disable_unref(instance->connect_timer);
        sd_event_source_disable_unref(instance->guest_deadline);
        (void) close_fd(instance->pidfd);
        (void) close_fd(instance->kmsg);
        (void) cgroup_box_free(instance->box);
        free(instance->failure);
        free(instance);
        return NULL;
}

bool instance_is_active(const Instance *instance) {
        return instance->state == INSTANCE_STARTING || instance->state == INSTANCE_RUNNING || instance->state == INSTANCE_STOPPING;
}

bool instance_is_live(const Instance *instance) {
        return instance->state == INSTANCE_STARTING || instance->state == INSTANCE_RUNNING;
}

void instance_wait(Instance *instance, InstanceGoal goal, InstanceDone done, void *userdata) {
        InstanceWaiter *w = done ? calloc(1, sizeof(InstanceWaiter)) : NULL, **p;
        Error err = ERROR_NULL;

        if (!w) {
                if (done)
                        done(userdata, error_set_errno(&err, ENOMEM, "cannot wait for the instance"), &err);
                error_done(&err);
                return;
        }
        *w = (InstanceWaiter) {.goal = goal, .done = done, .userdata = userdata};
        for (p = &instance->waiters; *p; p = &(*p)->next)
                ;
        *p = w;
}

// A waiter may add waiters or start verbs; those added meanwhile wait for the next time.
void instance_notify(Instance *instance, InstanceGoal goal, int r, const Error *err) {
        InstanceWaiter *due = NULL, **tail = &due, **p = &instance->waiters;

        while (*p) {
                InstanceWaiter *w = *p;
                if (w->goal != goal) {
                        p = &w->next;
                        continue;
                }
                *p = w->next;
                w->next = NULL;
                *tail = w;
                tail = &w->next;
        }
        while (due) {
                InstanceWaiter *w = due;
                Error copy = ERROR_NULL;
                due = w->next;
                if (r < 0)
                        (void) error_set(&copy, err && err->code ? err->code : error_code_from_errno(r), "%s", error_message(err, r));
                w->done(w->userdata, r, &copy);
                error_done(&copy);
                free(w);
        }
}

void instance_set_state(Instance *instance, InstanceState state) {
        if (instance->state == state)
                return;
        instance->state = state;
        instance->since = clock_monotonic();
        secrets_plan(instance->manager);
        instance_event(instance, "instance-state", json_pack("{s:s}", "state", instance_state_to_string(state)));
}

void instance_event(Instance *instance, const char *type, json_t *detail) {
        event_publish(instance->manager->bus, type, instance->record.name, detail);
}

static void note_failure(Instance *instance, const char *kind, const char *why) {
        char *copy = strdup(why); // `why` may be instance->failure itself

        free(instance->failure);
        instance->failure = copy;
        plan_note_crash(&instance->attempts, &instance->window, clock_monotonic());
        instance->state = INSTANCE_STOPPED; // the change below is an event also for a second failure
        instance_set_state(instance, INSTANCE_FAILED);
        manager_warn(instance->manager, kind, instance->record.name, "%s", copy ?: "");
}

// What a missing protection or a full host refuses is no fault of the instance: the operator has to change something else.
void instance_start_failed(Instance *instance, const Error *err) {
        bool refused = err->code == ERR_DEGRADED || err->code == ERR_QUOTA;

        note_failure(instance, refused ? "start-refused" : "instance-failed", error_message(err, -EIO));
}

void instance_failed(Instance *instance, const char *why) {
        note_failure(instance, "instance-failed", why);
}

void instance_failure_over(Instance *instance) {
        manager_unwarn(instance->manager, "instance-failed", instance->record.name);
        manager_unwarn(instance->manager, "start-refused", instance->record.name);
}

void instance_warm(Instance *instance, bool warm) {
        if (instance->warm == warm)
                return;
        instance->warm = warm;
        if (warm)
                warm_hold(instance->manager);
        else
                warm_release(instance->manager);
}

char *instance_run_dir(const Instance *instance) {
        char *path;

        return asprintf(&path, "%s/instances/i%04x", instance->manager->paths.run, instance->record.slot) < 0 ? NULL : path;
}

char *instance_name_link(const Instance *instance) {
        char *path;

        return asprintf(&path, "%s/by-name/%s", instance->manager->paths.run, instance->record.name) < 0 ? NULL : path;
}

char *instance_disk_path(const Instance *instance) {
        char *path;

        return asprintf(&path, "instances/%s", instance->record.name) < 0 ? NULL : path;
}

// Under systemd the unit names the group. Elsewhere the start generation is part of the name: what an earlier start left on a v1
// hierarchy must not be met again.
char *instance_cgroup_prefix(const Instance *instance) {
        char *prefix;
        int n;

        if (instance->manager->systemd)
                n = asprintf(&prefix, "hostd.slice/hostd-instance@%s.service", instance->record.name);
        else
                n = asprintf(&prefix, "hostd/i%04x-g%u", instance->record.slot, instance->record.generation);
        return n < 0 ? NULL : prefix;
}
