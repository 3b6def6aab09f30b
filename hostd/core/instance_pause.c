// SPDX-License-Identifier: GPL-2.0-or-later
// Instance, pausing: the kernel is told, and says by an event when the last process has stopped. That may take as long as one sits in the
// kernel and does not let go; meanwhile others are answered. Half frozen is the worst of all states, so after the deadline everything
// runs again.
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "core/secrets.h"

#define PAUSE_TIMEOUT (2 * USEC_PER_SEC)

typedef struct Pausing {
        bool paused, changed; // what is to become of it, and whether it was not so already
        sd_event_source *events[CGROUP_FREEZE_GROUPS], *deadline;
} Pausing;

static Pausing *pausing_free(Pausing *pausing) {
        if (!pausing)
                return NULL;
        for (size_t i = 0; i < ELEMENTS(pausing->events); i++)
                sd_event_source_disable_unref(pausing->events[i]);
        sd_event_source_disable_unref(pausing->deadline);
        free(pausing);
        return NULL;
}

static void pausing_end(Instance *instance, int r, const Error *err) {
        bool paused = instance->pausing->paused, changed = instance->pausing->changed;

        instance->pausing = pausing_free(instance->pausing);
        if (r < 0) {
                (void) cgroup_box_freeze(instance->box, false, NULL);
                instance->paused = false;
        } else {
                instance->paused = paused;
                if (changed)
                        instance_event(instance, paused ? "instance-paused" : "instance-resumed", NULL);
        }
        secrets_plan(instance->manager); // what waited for it to be resumed
        instance_notify(instance, GOAL_PAUSED, r, err);
}

void instance_pause_forget(Instance *instance, const char *why) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (!instance->pausing)
                return;
        instance->pausing = pausing_free(instance->pausing);
        instance_notify(instance, GOAL_PAUSED, error_set(&err, ERR_CANCELLED, "%s", why), &err);
}

static int pausing_look(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Instance *instance = userdata;
        char text[512];

        (void) !pread(fd, text, sizeof(text), 0); // arms the poll again
        if (cgroup_box_froze(instance->box, instance->pausing->paused))
                pausing_end(instance, 0, NULL);
        return 0;
}

static int pausing_timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        Instance *instance = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = error_set(&err, ERR_TIMEOUT, "%s took too long: a process sits in the kernel and does not let go",
                          instance->pausing->paused ? "freezing" : "thawing");

        pausing_end(instance, r, &err);
        return 0;
}

static int pausing_begin(Instance *instance, bool paused) {
        sd_event *event = instance->manager->event;
        Pausing *pausing = calloc(1, sizeof(Pausing));
        int fds[CGROUP_FREEZE_GROUPS], r;

        if (!pausing)
                return -ENOMEM;
        instance->pausing = pausing;
        pausing->paused = paused;
        pausing->changed = instance->paused != paused;
        r = cgroup_box_freeze_fds(instance->box, fds);
        if (r < 0)
                return r;
        for (size_t i = 0; i < CGROUP_FREEZE_GROUPS; i++) {
                if (fds[i] < 0)
                        continue;
                int k = sd_event_add_io(event, &pausing->events[i], fds[i], EPOLLPRI, pausing_look, instance);
                if (k < 0)
                        (void) close_fd(fds[i]);
                else
                        (void) sd_event_source_set_io_fd_own(pausing->events[i], true);
                r = MIN2(r, k);
        }
        return r < 0 ? r : sd_event_add_time_relative(event, &pausing->deadline, CLOCK_MONOTONIC, PAUSE_TIMEOUT, 0, pausing_timed_out, instance);
}

int instance_pause(Instance *instance, bool paused, InstanceDone done, void *userdata, Error *err) {
        int r;

        if (instance->state != INSTANCE_RUNNING || !instance->box)
                return error_set(err, ERR_BUSY, "%s is %s: only a running instance can be paused and resumed", instance->record.name,
                                 instance_state_to_string(instance->state));
        if (instance->pausing && instance->pausing->paused != paused)
                instance_pause_forget(instance, paused ? "it was paused meanwhile" : "it was resumed meanwhile");
        if (!instance->pausing) {
                r = cgroup_box_freeze(instance->box, paused, err);
                if (r < 0)
                        return r;
                r = pausing_begin(instance, paused);
                if (r < 0) {
                        instance->pausing = pausing_free(instance->pausing);
                        (void) cgroup_box_freeze(instance->box, false, NULL);
                        instance->paused = false;
                        return error_set_errno(err, r, "cannot watch the processes of %s", instance->record.name);
                }
                instance->paused = true; // what would wait for a process that may be stopped is refused from here on
        }
        instance_wait(instance, GOAL_PAUSED, done, userdata);
        if (cgroup_box_froze(instance->box, paused))
                pausing_end(instance, 0, NULL);
        return 0;
}

// For what comes next it is enough that they are on their way.
void instance_thaw(Instance *instance) {
        instance_pause_forget(instance, "it was stopped meanwhile");
        if (!instance->paused || !instance->box)
                return;
        (void) cgroup_box_freeze(instance->box, false, NULL);
        instance->paused = false;
        instance_event(instance, "instance-resumed", NULL);
}
