// SPDX-License-Identifier: GPL-2.0-or-later
// Guest and command links: see guest_link.h and command_link.h.
#include "core/guest_link.h"

#include <string.h>

#include "base/log.h"
#include "core/approvals.h"
#include "core/background.h"
#include "core/command_link.h"
#include "core/delivery.h"
#include "core/manager.h"
#include "core/sandbox.h"
#include "core/warm.h"

static int link_open(Instance *instance, int fd, Error *err) {
        GuestChannelConfig config = {
                .event = instance->manager->event,
                .fd = fd,
                .box = instance->box,
                .handlers = &command_guest_handlers,
                .userdata = instance->manager->commands,
        };
        int r = guest_channel_config_init(&config, instance->init, err);

        if (r < 0) {
                (void) close_fd(fd);
                return r;
        }
        return guest_channel_new(&config, &instance->guest, err);
}

void guest_link_up(Instance *instance, int fd, pid_t pid) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        guest_link_down(instance);
        instance->guest_deadline = sd_event_source_disable_unref(instance->guest_deadline);
        instance->guest_pid = pid;
        r = cgroup_box_attach(instance->box, CGROUP_GUEST, pid, &err);
        if (r >= 0)
                r = link_open(instance, TAKE_FD(fd), &err);
        (void) close_fd(fd);
        if (r < 0) {
                manager_warn(instance->manager, "guest-helper", instance->record.name, "%s", error_message(&err, r));
                instance_notify(instance, GOAL_GUEST, r, &err);
                return;
        }
        command_link_restore(instance->manager, instance->record.name, instance->guest);
        sandbox_helper_up(instance);
        manager_unwarn(instance->manager, "guest-helper", instance->record.name);
        if (!delivery_link_up(instance))
                guest_link_open(instance);
}

void guest_link_open(Instance *instance) {
        instance->guest_ready = true;
        instance->guest_deadline = sd_event_source_disable_unref(instance->guest_deadline);
        instance_notify(instance, GOAL_GUEST, 0, NULL);
}

void guest_link_down(Instance *instance) {
        Manager *m = instance->manager;

        instance->guest_ready = false;
        if (!instance->guest)
                return;
        // When hostd itself ends, the commands go on and the next hostd finds them.
        if (!m->stopping && m->commands)
                command_manager_drop_channel(m->commands, instance->guest, "the instance was stopped");
        instance->guest = guest_channel_free(instance->guest);
        delivery_link_down(instance);
}

static void channel_gone(GuestChannel *channel, void *userdata) {
        Manager *m = userdata;

        if (sandbox_channel_gone(m, channel))
                return;
        for (Instance *i = m->instances.first; i; i = i->next) {
                if (i->guest != channel)
                        continue;
                i->guest_ready = false;
                i->guest = guest_channel_free(i->guest);
                delivery_link_down(i);
                if (i->state != INSTANCE_RUNNING)
                        continue;
                manager_warn(m, "guest-helper", i->record.name, "the guest helper died; its commands were ended, it is started again");
                instance_event(i, "guest-helper-lost", NULL);
        }
}

static void channel_synced(GuestChannel *channel, void *userdata) {
        (void) sandbox_channel_synced(userdata, channel);
}

static void channel_ask(GuestChannel *channel, const GuestAsk *ask, void *userdata) {
        Manager *m = userdata;

        for (Instance *i = m->instances.first; i; i = i->next)
                if (i->guest == channel)
                        approvals_ask(m, i, ask);
}

json_t *command_record_json(const CommandRecord *record) {
        json_t *object = json_pack("{s:i, s:i, s:b, s:b, s:b, s:b, s:I, s:I, s:I}", "exit", record->exit, "signal", record->signal, "started",
                                   record->started, "oom", record->oom, "timed_out", record->timed_out, "cancelled", record->cancelled, "cpu_usec",
                                   (json_int_t) MIN2(record->cpu_usec, (uint64_t) INT64_MAX), "memory_peak",
                                   (json_int_t) MIN2(record->memory_peak_bytes, (uint64_t) INT64_MAX), "duration_usec", (json_int_t) record->duration);

        if (record->stage)
                (void) json_object_set_new(object, "stage", json_integer(record->stage));
        if (record->errnum)
                (void) json_object_set_new(object, "errno", json_integer(record->errnum));
        if (record->message)
                (void) json_object_set_new(object, "message", json_string(record->message));
        return object;
}

static char *store_key(const Command *command) {
        char *key;

        return asprintf(&key, "command.%s", command_id(command)) < 0 ? NULL : key;
}

static void command_ready(Command *command, void *userdata) {
        _cleanup_free_ char *key = store_key(command), *line = NULL;
        Manager *m = userdata;

        warm_begin(m);
        sandbox_touch(m, command_instance(command));
        if (key && command_serialize(command, &line) >= 0)
                (void) store_value_set(m->store, key, line, NULL); // without it the command only does not survive a restart
}

// The end of a command that no request records.
static void audit_end(Manager *m, const char *caller, const char *instance, json_t *detail) {
        _cleanup_error_ Error err = ERROR_NULL;
        AuditRecord audit = {.user = caller, .method = "io.hostd.Command.Exec", .target = instance, .result = "ended", .detail = detail};

        manager_note_audit(m, audit_append(m->audit, &audit, &err), &err);
        json_decref(detail);
}

// A command whose client is gone (hostd was restarted and nobody came back) has no request that would record its end.
static void command_ended(Command *command, const CommandRecord *record, void *userdata) {
        _cleanup_free_ char *key = store_key(command);
        Manager *m = userdata;

        if (key)
                (void) store_value_set(m->store, key, NULL, NULL);
        sandbox_touch(m, command_instance(command));
        if (record->oom)
                sandbox_oom(m, command_instance(command));
        if (command_is_detached(command))
                background_ended(m, command, record);
        if (!command_is_awaited(command) || (command_is_detached(command) && record->started)) // who started it has had its answer
                audit_end(m, command_caller(command), command_instance(command),
                          json_pack("{s:s, s:s, s:o}", "id", command_id(command), "client", command_is_detached(command) ? "detached" : "gone", "record",
                                    command_record_json(record)));
}

int command_link_new(Manager *m, Error *err) {
        CommandManagerConfig config = {
                .event = m->event, .channel_gone = channel_gone, .synced = channel_synced, .ask = channel_ask, .ready = command_ready, .ended = command_ended, .userdata = m};
        int r = command_manager_new(&config, &m->commands);

        return r < 0 ? error_set_errno(err, r, "cannot manage commands") : 0;
}

void command_link_free(Manager *m) {
        m->commands = command_manager_free(m->commands);
}

void command_link_restore(Manager *m, const char *place, GuestChannel *channel) {
        _cleanup_strv_ char **keys = NULL;

        if (store_value_list(m->store, "command.", &keys, NULL) < 0)
                return;
        for (char **key = keys; key && *key; key++) {
                _cleanup_free_ char *line = NULL, *name = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                Command *command;
                if (store_value_get(m->store, *key, &line, NULL) < 0 || command_line_instance(line, &name) < 0 ||
                    strcmp(name, place) != 0 || command_find(m->commands, *key + strlen("command.")))
                        continue;
                if (command_restore(m->commands, line, channel, &command, &err) < 0) {
                        log_event(LOG_WARNING, NULL, name, "command %s is lost: %s", *key, error_message(&err, -EIO));
                        (void) store_value_set(m->store, *key, NULL, NULL);
                }
        }
}

void command_link_lose(Manager *m, const char *place) {
        _cleanup_strv_ char **keys = NULL;

        if (store_value_list(m->store, "command.", &keys, NULL) < 0)
                return;
        for (char **key = keys; key && *key; key++) {
                _cleanup_free_ char *line = NULL, *name = NULL;
                const char *id = *key + strlen("command.");
                if (store_value_get(m->store, *key, &line, NULL) < 0 || command_line_instance(line, &name) < 0 || strcmp(name, place) != 0 || command_find(m->commands, id))
                        continue;
                (void) store_value_set(m->store, *key, NULL, NULL);
                audit_end(m, NULL, name, json_pack("{s:s, s:s}", "id", id, "lost", "its sandbox was not found again"));
        }
}

// A sandbox tells of its own.
static bool command_has_sandbox(Manager *m, const char *name) {
        const char *id = name ? strchr(name, '/') : NULL;
        const Sandbox *s = id ? sandbox_find(m, id + 1) : NULL;

        return s && sandbox_is_alive(s);
}

void command_link_sweep(Manager *m) {
        _cleanup_strv_ char **keys = NULL;

        if (store_value_list(m->store, "command.", &keys, NULL) < 0)
                return;
        for (char **key = keys; key && *key; key++) {
                _cleanup_free_ char *line = NULL, *name = NULL;
                const Instance *instance;
                if (store_value_get(m->store, *key, &line, NULL) < 0)
                        continue;
                instance = command_line_instance(line, &name) < 0 ? NULL : instance_list_find(&m->instances, name);
                if (command_has_sandbox(m, name))
                        continue;
                if (instance && instance_is_active(instance))
                        continue; // taken up when its helper answers
                (void) store_value_set(m->store, *key, NULL, NULL);
                audit_end(m, NULL, name, json_pack("{s:s, s:s}", "id", *key + strlen("command."), "lost", "its instance ended while hostd did not run"));
        }
}
