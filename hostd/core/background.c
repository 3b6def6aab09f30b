// SPDX-License-Identifier: GPL-2.0-or-later
// Background: see background.h; with the handlers of what is kept.
#include "core/background.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "core/command_link.h"
#include "core/guest_link.h"
#include "core/handle.h"
#include "core/redaction.h"
#include "core/sandbox.h"

static IoPlace place_of(const Instance *instance) {
        return (IoPlace) {.manager = instance->manager, .instance = instance->record.name, .slot = instance->record.slot};
}

// Of a place as commands know it, INSTANCE or INSTANCE/SANDBOX. False: the instance is gone, and with it all output.
static bool place_named(Manager *m, const char *name, IoPlace *ret, const char **ret_owner) {
        const char *slash = strchr(name, '/');
        _cleanup_free_ char *instance_name = slash ? strndup(name, (size_t) (slash - name)) : strdup(name);
        const Instance *instance = instance_name ? instance_list_find(&m->instances, instance_name) : NULL;

        if (instance)
                *ret = place_of(instance);
        *ret_owner = slash ? slash + 1 : "";
        return instance;
}

// The sandbox may be gone meanwhile.
static bool place_of_request(const Request *request, IoPlace *ret, const char **ret_owner) {
        const char *of_sandbox = json_string_value(json_object_get(request->detail, "instance"));
        bool found = place_named(request->manager, request->in_sandbox ? of_sandbox ?: "" : request->target, ret, ret_owner);

        if (request->in_sandbox)
                *ret_owner = request->target;
        return found;
}

static const char *id_of(const Request *request) {
        return json_string_value(json_object_get(request->detail, "id"));
}

// ---- the row of a command ----

static json_t *row_get(Manager *m, const char *id) {
        _cleanup_free_ char *key = NULL, *text = NULL;

        if (asprintf(&key, "output.%s", id) < 0) {
                key = NULL;
                return NULL;
        }
        return store_value_get(m->store, key, &text, NULL) >= 0 ? json_loads(text, 0, NULL) : NULL;
}

// A failure leaves output of which less is known.
static void row_set(Manager *m, const char *id, json_t *row) {
        _cleanup_free_ char *key = NULL, *text = row ? json_dumps(row, JSON_COMPACT) : NULL;

        if (asprintf(&key, "output.%s", id) < 0)
                key = NULL;
        else if (text || !row)
                (void) store_value_set(m->store, key, text, NULL);
        json_decref(row);
}

static json_t *row_new(const Command *command) {
        char when[CLOCK_TEXT_MAX];

        return json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", command_instance(command), "user", command_user(command), "command", command_text(command), "caller",
                         command_caller(command), "started", clock_format(command_started_at(command), when));
}

// ---- the start ----

// Its output goes to a disk: without somebody who takes values out of it, it does not begin.
static int values_of(const Instance *instance, Error *err) {
        int fd = redaction_values(instance, err);

        return fd == -ENOENT ? -EBADF : fd;
}

static int make_pipes(Request *request, int readers[2]) {
        int input[2];

        if (pipe2(input, O_CLOEXEC) < 0)
                return -errno;
        request->fds[0] = input[0];
        (void) close_fd(input[1]); // at its end
        for (int i = 0; i < 2; i++) {
                int p[2];
                if (pipe2(p, O_CLOEXEC) < 0)
                        return -errno;
                readers[i] = p[0];
                request->fds[1 + i] = p[1];
        }
        return 0;
}

int background_keep(Request *request, Instance *instance, IoDone kept, Error *err) {
        const IoPlace place = place_of(instance);
        _cleanup_close_ int values = values_of(instance, err);
        int readers[2] = {-EBADF, -EBADF}, r = values < 0 && values != -EBADF ? values : make_pipes(request, readers);

        if (r >= 0) {
                const IoKeep keep = {.owner = request->in_sandbox ? request->target : "", .id = id_of(request), .size = (uint64_t) request_int(request, "keep", 0), .out = readers[0], .errors = readers[1], .values = values};
                r = io_link_keep(&place, &keep, kept, request, err);
        }
        for (size_t i = 0; i < 2; i++)
                (void) close_fd(readers[i]);
        return r < 0 ? error_set_errno(err, r, "cannot keep its output") : 0;
}

void background_forget(Request *request) {
        const char *owner;
        IoPlace place;

        if (place_of_request(request, &place, &owner))
                io_link_forget(&place, owner, id_of(request));
        row_set(request->manager, id_of(request), NULL);
}

void background_started(Command *command, void *userdata) {
        Request *request = userdata;

        request->command = NULL;
        command_leave(command);
        row_set(request->manager, command_id(command), row_new(command));
        request_reply(request, json_pack("{s:s}", "id", command_id(command)));
        request_release(request);
}

void background_done(Command *command, const CommandRecord *record, void *userdata) {
        Request *request = userdata;

        (void) json_object_set_new(request->detail, "record", command_record_json(record));
        request->command = NULL;
        background_forget(request);
        request_failf(request, ERR_UNAVAILABLE, "%s", record->message ?: "the command did not start");
        request_release(request);
}

// ---- the end ----

// That of a sandbox which is being deleted goes at once, and who follows it is told so.
static bool goes_with_sandbox(Manager *m, const char *owner) {
        const Sandbox *s = sandbox_find(m, owner);

        return *owner && (!s || s->forget);
}

static void row_end(Manager *m, const Command *command, const CommandRecord *record) {
        json_t *row = row_new(command);
        char when[CLOCK_TEXT_MAX];

        (void) json_object_set_new(row, "ended", json_string(clock_format(clock_realtime(), when)));
        (void) json_object_set_new(row, "record", command_record_json(record));
        row_set(m, command_id(command), row);
}

void background_ended(Manager *m, Command *command, const CommandRecord *record) {
        const char *owner;
        IoPlace place;
        bool found = place_named(m, command_instance(command), &place, &owner), gone = goes_with_sandbox(m, owner);

        if (found)
                (gone ? io_link_forget : io_link_end)(&place, owner, command_id(command));
        if (gone)
                row_set(m, command_id(command), NULL);
        else if (record->started)
                row_end(m, command, record);
        if (record->started)
                event_publish(m->bus, "command-ended", command_instance(command),
                              json_pack("{s:s, s:i, s:b, s:b}", "id", command_id(command), "exit", record->exit, "oom", record->oom, "timed_out", record->timed_out));
}

bool background_reply(Request *request) {
        json_t *row = row_get(request->manager, request_string(request, "id")), *record = json_object_get(row, "record");

        if (record)
                request_reply(request, json_incref(record));
        json_decref(row);
        return record;
}

static void rows_remove(Manager *m, const char *name) {
        _cleanup_strv_ char **keys = NULL;

        if (store_value_list(m->store, "output.", &keys, NULL) < 0)
                return;
        for (char **key = keys; key && *key; key++) {
                json_t *row = row_get(m, *key + strlen("output."));
                const char *place = json_string_value(json_object_get(row, "name"));
                if (place && place_is_of(place, name))
                        (void) store_value_set(m->store, *key, NULL, NULL);
                json_decref(row);
        }
}

void background_remove(Instance *instance) {
        const IoPlace place = place_of(instance);

        io_link_remove(&place);
        rows_remove(instance->manager, instance->record.name);
}

void background_remove_sandbox(Manager *m, const char *instance_name, const char *id) {
        const Instance *instance = instance_list_find(&m->instances, instance_name);

        if (instance) {
                const IoPlace place = place_of(instance);
                if (io_link_forget_owner(&place, id) == 0)
                        return; // nor is there a row
        }
        rows_remove(m, id);
}

void background_evicted(Manager *m, const char *name) {
        const char *dot = strrchr(name, '.');

        row_set(m, dot ? dot + 1 : name, NULL);
}

// ---- what is kept ----

void handle_logs(Request *request) {
        IoFollow follow = {.id = request_string(request, "id"), .uid = request->peer.uid, .offset = (uint64_t) request_int(request, "offset", 0), .wait = request_bool(request, "follow")};
        _cleanup_error_ Error err = ERROR_NULL;
        Sandbox *s = NULL;
        Instance *instance = request_place(request, &s);
        IoPlace place;
        struct stat st;
        int r;

        if (!instance)
                return;
        place = place_of(instance);
        follow.owner = s ? s->id : "";
        request->fds[0] = call_take_fd(request->call, 0);
        if (fstat(request->fds[0], &st) < 0 || !S_ISFIFO(st.st_mode)) {
                request_failf(request, ERR_INVALID, "%s needs one descriptor, a pipe that the output is written to", request->method->words);
                return;
        }
        follow.fd = request->fds[0];
        r = io_link_follow(&place, &follow, request_done, request_hold(request), &err);
        request->fds[0] = close_fd(request->fds[0]); // or the output would not end
        if (r < 0)
                request_done(request, r, &err);
}

static const char *state_of(const Request *request, const char *id, const json_t *row) {
        return json_object_get(row, "record") ? "ended" : command_find(request->manager->commands, id) ? "running" : "lost";
}

void handle_command_kept(Request *request) {
        const char *name = request_string(request, "name");
        _cleanup_strv_ char **keys = NULL;
        Sandbox *s;
        json_t *list;

        if (name && !request_place(request, &s))
                return;
        list = json_array();
        (void) store_value_list(request->manager->store, "output.", &keys, NULL); // none is an empty list
        for (char **key = keys; key && *key; key++) {
                const char *id = *key + strlen("output.");
                json_t *row = row_get(request->manager, id), *record;
                if (!row || (name && !place_is_of(json_string_value(json_object_get(row, "name")) ?: "", name))) {
                        json_decref(row);
                        continue;
                }
                record = json_object_get(row, "record");
                (void) json_object_set_new(row, "id", json_string(id));
                (void) json_object_set_new(row, "state", json_string(state_of(request, id, row)));
                if (record) {
                        (void) json_object_set(row, "exit", json_object_get(record, "exit"));
                        if (json_object_get(record, "message"))
                                (void) json_object_set(row, "message", json_object_get(record, "message"));
                        (void) json_object_del(row, "record");
                }
                (void) json_array_append_new(list, row);
        }
        request_reply(request, json_pack("{s:o}", "commands", list));
}
