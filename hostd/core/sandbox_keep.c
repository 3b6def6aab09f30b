// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, keeping: what outlives hostd. hostd-instance has a copy of each channel and hands them to each new hostd; the store has the rest. A line without
// a channel, a channel without a line and a group without either are ended.
#include <string.h>

#include "base/log.h"
#include "base/strv.h"
#include "core/command_link.h"
#include "core/manager.h"
#include "core/sandbox.h"

#define FOUND_LIMIT (30 * USEC_PER_SEC)

void sandbox_keep(Sandbox *s) {
        Instance *instance = instance_list_find(&s->manager->instances, s->instance);
        _cleanup_error_ Error err = ERROR_NULL;

        if (!instance || instance_control_send_named(instance, CONTROL_SANDBOX, s->id, guest_channel_fd(s->channel), &err) < 0)
                manager_warn(s->manager, "sandbox-kept", s->instance, "sandbox %s would not survive a restart of hostd: %s", s->id, error_message(&err, -ENOENT));
}

void sandbox_unkeep(Instance *instance, const char *id) {
        (void) instance_control_send_named(instance, CONTROL_SANDBOX_GONE, id, -EBADF, NULL); // without hostd-instance there is no copy
}

// What stands still answers when it goes on.
static int sandbox_not_found(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;
        const Instance *instance = instance_list_find(&s->manager->instances, s->instance);

        if (s->box && ((instance && instance->paused) || cgroup_sandbox_froze(s->box, true))) {
                (void) sd_event_source_set_time_relative(source, FOUND_LIMIT);
                (void) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
                return 0;
        }
        sandbox_end(userdata, SANDBOX_CAUSE_LOST, "it did not answer after a restart of hostd");
        return 0;
}

int sandbox_load(Manager *m, Error *err) {
        _cleanup_strv_ char **keys = NULL;
        int r = store_value_list(m->store, "sandbox.", &keys, err);

        for (char **key = keys; r >= 0 && key && *key; key++) {
                _cleanup_free_ char *line = NULL;
                Sandbox *s;
                if (store_value_get(m->store, *key, &line, NULL) < 0)
                        continue;
                if (sandbox_parse(line, &s) < 0 || strcmp(*key + strlen("sandbox."), s->id) != 0) {
                        log_event(LOG_WARNING, NULL, NULL, "the store's line %s is none of a sandbox and is dropped", *key);
                        (void) store_value_set(m->store, *key, NULL, NULL);
                        continue;
                }
                s->manager = m;
                s->next = m->sandboxes;
                m->sandboxes = s;
                s->has_group = true; // as far as anybody knows
                s->restoring = sandbox_is_alive(s);
        }
        return r < 0 ? r : 0;
}

void sandbox_sweep(Manager *m) {
        for (Sandbox *s = m->sandboxes, *next; s; s = next) {
                const Instance *instance = instance_list_find(&m->instances, s->instance);
                bool runs = instance && instance_is_active(instance);

                next = s->next;
                if (!runs && sandbox_is_alive(s))
                        sandbox_end(s, SANDBOX_CAUSE_INSTANCE, "its instance ended while hostd did not run");
                else if (s->state == SANDBOX_CREATING) // half made, and nobody waits for it any more
                        sandbox_end(s, SANDBOX_CAUSE_LOST, "hostd was restarted while it was made");
                else if (s->restoring && !s->channel)
                        (void) sd_event_add_time_relative(m->event, &s->limit, CLOCK_MONOTONIC, FOUND_LIMIT, 0, sandbox_not_found, s);
                if (!instance || !instance->box)
                        s->has_group = false;
                if (sandbox_is_alive(s))
                        sandbox_wire_adopt(s);
                if (s->state == SANDBOX_ENDED && s->cause == SANDBOX_CAUSE_DELETED)
                        sandbox_delete(s, NULL, NULL);
                else
                        sandbox_arm(s);
        }
}

// That was all: what has not come is lost, and what nobody knows is removed.
static void sandbox_kept_all(Instance *instance) {
        Manager *m = instance->manager;
        _cleanup_strv_ char **groups = NULL;

        for (Sandbox *s = m->sandboxes, *next; s; s = next) {
                next = s->next;
                if (strcmp(s->instance, instance->record.name) == 0 && s->restoring && !s->channel)
                        sandbox_end(s, SANDBOX_CAUSE_LOST, "a restart of hostd did not find it again");
        }
        if (!instance->box || cgroup_sandbox_list(instance->box, &groups) < 0)
                return;
        for (char **id = groups; id && *id; id++)
                if (!sandbox_find(m, *id)) {
                        log_event(LOG_WARNING, NULL, instance->record.name, "sandbox %s is nobody's and is removed", *id);
                        (void) cgroup_sandbox_kill(instance->box, *id);
                        (void) cgroup_sandbox_remove(instance->box, *id); // what does not die at once goes with the box
                }
}

static int sandbox_take(Sandbox *s, Instance *instance, int fd, Error *err) {
        GuestChannelConfig config = {.event = s->manager->event, .fd = fd, .handlers = &command_guest_handlers, .userdata = s->manager->commands};
        _cleanup_free_ char *place = sandbox_place(s);
        int r = place ? cgroup_sandbox_open(instance->box, s->id, &s->box, err) : error_set_errno(err, ENOMEM, "taking up sandbox %s", s->id);

        if (r < 0) {
                (void) close_fd(fd);
                return r;
        }
        config.box = s->box;
        r = guest_channel_new(&config, &s->channel, err);
        if (r < 0)
                return r;
        // One that stands still does not answer before it goes on.
        s->restoring = s->state != SANDBOX_PAUSED;
        command_link_restore(s->manager, place, s->channel);
        sandbox_hold(s);
        if (!s->restoring)
                s->limit = sd_event_source_disable_unref(s->limit);
        sandbox_arm(s);
        return 0;
}

void sandbox_kept(Instance *instance, const char *id, int fd) {
        Sandbox *s = *id ? sandbox_find(instance->manager, id) : NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!*id) {
                (void) close_fd(fd);
                sandbox_kept_all(instance);
                return;
        }
        if (!s || !s->restoring || s->channel || s->state == SANDBOX_CREATING || strcmp(s->instance, instance->record.name) != 0 || !instance->box) {
                bool live = s && s->channel;
                (void) close_fd(fd);
                if (!live)
                        sandbox_unkeep(instance, id);
                return;
        }
        r = sandbox_take(s, instance, fd, &err);
        if (r < 0)
                sandbox_end(s, SANDBOX_CAUSE_LOST, error_message(&err, r));
}

void sandbox_free_all(Manager *m) {
        while (m->sandboxes)
                (void) sandbox_free(m->sandboxes);
}
