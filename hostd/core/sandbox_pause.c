// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, pausing: as an instance is paused (core/instance_pause.c), by one group: whoever asks is answered when the kernel says that all of it
// stands still, or goes on.
#include <sys/epoll.h>
#include <unistd.h>

#include "core/manager.h"
#include "core/sandbox.h"

#define PAUSE_TIMEOUT (2 * USEC_PER_SEC)

typedef struct SandboxPausing {
        bool paused, changed;
        InstanceDone done;
        void *userdata;
        sd_event_source *events, *deadline;
} SandboxPausing;

static SandboxPausing *pausing_free(SandboxPausing *pausing) {
        if (!pausing)
                return NULL;
        sd_event_source_disable_unref(pausing->events);
        sd_event_source_disable_unref(pausing->deadline);
        free(pausing);
        return NULL;
}

void sandbox_pause_done(Sandbox *s) {
        s->pausing = pausing_free(s->pausing);
}

static void pausing_end(Sandbox *s, int r, Error *err) {
        SandboxPausing pausing = *s->pausing;

        s->pausing = pausing_free(s->pausing);
        if (r < 0 && s->box && sandbox_is_alive(s)) // half frozen is the worst of all states
                (void) cgroup_sandbox_freeze(s->box, false);
        if (sandbox_is_alive(s)) {
                s->state = r >= 0 && pausing.paused ? SANDBOX_PAUSED : SANDBOX_RUNNING;
                _cleanup_free_ char *place = sandbox_place(s);
                if (place)
                        sandbox_touch(s->manager, place);
                (void) sandbox_save(s, NULL);
        }
        if (r >= 0 && pausing.changed)
                sandbox_event(s, pausing.paused ? "sandbox-paused" : "sandbox-resumed", json_object());
        pausing.done(pausing.userdata, r, err);
}

void sandbox_pause_forget(Sandbox *s, const char *why) {
        _cleanup_error_ Error err = ERROR_NULL;
        SandboxPausing pausing;

        if (!s->pausing)
                return;
        pausing = *s->pausing;
        s->pausing = pausing_free(s->pausing);
        pausing.done(pausing.userdata, error_set(&err, ERR_CANCELLED, "%s", why), &err);
}

static int pausing_look(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Sandbox *s = userdata;
        char text[512];

        (void) !pread(fd, text, sizeof(text), 0); // arms the poll again
        if (cgroup_sandbox_froze(s->box, s->pausing->paused))
                pausing_end(s, 0, &(Error) {0});
        return 0;
}

static int pausing_timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;
        _cleanup_error_ Error err = ERROR_NULL;

        pausing_end(s, error_set(&err, ERR_TIMEOUT, "sandbox %s: a process sits in the kernel and does not let go", s->id), &err);
        return 0;
}

static int pausing_watch(Sandbox *s) {
        sd_event *event = s->manager->event;
        int fd = cgroup_sandbox_events_fd(s->box), r;

        if (fd < 0)
                return fd;
        r = sd_event_add_io(event, &s->pausing->events, fd, EPOLLPRI, pausing_look, s);
        if (r < 0) {
                (void) close_fd(fd);
                return r;
        }
        (void) sd_event_source_set_io_fd_own(s->pausing->events, true);
        return sd_event_add_time_relative(event, &s->pausing->deadline, CLOCK_MONOTONIC, PAUSE_TIMEOUT, 0, pausing_timed_out, s);
}

int sandbox_pause(Sandbox *s, bool paused, InstanceDone done, void *userdata, Error *err) {
        const Instance *instance = instance_list_find(&s->manager->instances, s->instance);
        int r;

        if ((s->state != SANDBOX_RUNNING && s->state != SANDBOX_PAUSED) || s->restoring)
                return error_set(err, ERR_BUSY, "sandbox %s is %s: only a running one can be paused and resumed", s->id, sandbox_state_to_string(s->state));
        if (instance && instance->paused)
                return error_set(err, ERR_BUSY, "%s is paused, and all of its sandboxes stand still with it", s->instance);
        sandbox_pause_forget(s, paused ? "it was paused once more" : "it was resumed meanwhile");
        s->pausing = calloc(1, sizeof(SandboxPausing));
        if (!s->pausing)
                return error_set_errno(err, ENOMEM, "pausing sandbox %s", s->id);
        *s->pausing = (SandboxPausing) {.paused = paused, .changed = paused != (s->state == SANDBOX_PAUSED), .done = done, .userdata = userdata};
        r = cgroup_sandbox_freeze(s->box, paused);
        if (r >= 0)
                r = pausing_watch(s);
        if (r < 0) {
                s->pausing = pausing_free(s->pausing);
                (void) cgroup_sandbox_freeze(s->box, false);
                s->state = SANDBOX_RUNNING;
                return error_set_errno(err, r, "%s sandbox %s", paused ? "pausing" : "resuming", s->id);
        }
        if (paused)
                s->state = SANDBOX_PAUSED; // what would wait for a process that may be stopped is refused from here on
        if (cgroup_sandbox_froze(s->box, paused))
                pausing_end(s, 0, &(Error) {0});
        return 0;
}
