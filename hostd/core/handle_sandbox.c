// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, sandboxes: from a checked request to the verbs of sandbox.h. Commands in them are in handle_command.c.
#include <string.h>

#include "core/handle.h"
#include "core/sandbox.h"

#define PROBE_DEFAULT (30 * USEC_PER_SEC)

static Sandbox *request_sandbox(Request *request) {
        const char *id = request_string(request, "id");
        Sandbox *s = sandbox_find(request->manager, id);

        if (!s)
                request_failf(request, ERR_NOT_FOUND, "there is no sandbox \"%s\"", id);
        return s;
}

// What has one value only until there are others: whoever asks for another is told, and does not get less than asked for.
static int only_value(const Request *request, const char *key, const char *value, Error *err) {
        const char *asked = request_string(request, key);

        if (!asked || strcmp(asked, value) == 0)
                return 0;
        return error_set_field(err, key, "%s \"%s\" is not there in this version; only \"%s\" is", key, asked, value);
}

static int settings_of(const Request *request, const Instance *instance, SandboxSettings *ret, Error *err) {
        const char *runtime = request_string(request, "runtime") ?: "bwrap", *network = request_string(request, "network");
        int r = sandbox_runtime_check(runtime, err);
        Limits limits;

        if (r >= 0)
                r = sandbox_wire_check(request->manager, network, err);
        if (r >= 0)
                r = only_value(request, "write", "tmpfs", err);
        if (r >= 0 && request_string(request, "template"))
                r = error_set_field(err, "template", "a sandbox with a template of its own is not there in this version: its root is its instance's, read-only");
        if (r >= 0)
                r = instance->config ? sandbox_limits_of(request->parameters, &instance->config->limits, &limits, err) : error_set(err, ERR_UNAVAILABLE, "%s has no configuration any more", request->target);
        if (r < 0)
                return r;
        *ret = (SandboxSettings) {
                .runtime = runtime,
                .workspace = request_string(request, "workspace"),
                .key = request_string(request, "key"),
                .caller = request->peer.user,
                .labels = json_object_get(request->parameters, "labels"),
                .root = request_bool(request, "root"),
                .limits = limits,
                .run_time = (usec_t) request_int(request, "run_time", 0),
                .deadline = (usec_t) request_int(request, "deadline", 0),
                .idle = (usec_t) request_int(request, "idle", 0),
                .grace = (usec_t) request_int(request, "grace", SANDBOX_GRACE),
                .network = network,
                .entry = request_string(request, "entry"),
                .probe = request_string(request, "probe_command"),
                .probe_port = (unsigned) request_int(request, "probe_port", 0),
                .probe_time = (usec_t) request_int(request, "probe_timeout", PROBE_DEFAULT),
        };
        return 0;
}

static void create_reply(Request *request, const Sandbox *s, bool existed) {
        request_reply(request, json_pack("{s:s, s:s, s:s, s:b}", "id", s->id, "instance", s->instance, "state", sandbox_state_to_string(s->state), "existed", existed));
}

// It runs, or never will. Who asked by a key that is taken waits for the same.
static void create_done(void *userdata, int r, Error *err) {
        Request *request = userdata;
        const char *id = json_string_value(json_object_get(request->detail, "id"));
        Sandbox *s = id ? sandbox_find(request->manager, id) : NULL;

        if (r >= 0 && s)
                create_reply(request, s, json_is_true(json_object_get(request->detail, "existed")));
        if (r >= 0 && s && !request->call && !s->key && !request->manager->stopping)
                sandbox_delete(s, NULL, NULL); // nobody will ever know of it
        request_done(request, r, err);
}

static void create_joined(Request *request, Sandbox *s) {
        (void) json_object_set_new(request->detail, "id", json_string(s->id));
        (void) json_object_set_new(request->detail, "existed", json_true());
        if (s->state == SANDBOX_CREATING) {
                sandbox_wait(s, create_done, request);
                return;
        }
        create_reply(request, s, true);
        request_release(request);
}

static void create_recorded(Request *request, int r, Error *err) {
        const char *id = json_string_value(json_object_get(request->detail, "id"));
        Sandbox *s = id ? sandbox_find(request->manager, id) : NULL;

        if (r >= 0)
                return;
        (void) request_fail(request, r, err);
        if (s)
                sandbox_delete(s, NULL, NULL); // nothing runs that is not on record
}

static void create_now(Request *request, Instance *instance, const SandboxSettings *settings) {
        _cleanup_error_ Error err = ERROR_NULL;
        Sandbox *s;
        int r = sandbox_create(instance, settings, create_done, request, &s, &err);

        if (r < 0) {
                request_done(request, r, &err);
                return;
        }
        // On its way to the disk while the helper works.
        (void) json_object_set_new(request->detail, "id", json_string(s->id));
        r = request_audit_later(request, create_recorded, &err);
        if (r < 0) {
                (void) request_fail(request, r, &err);
                sandbox_delete(s, NULL, NULL);
        }
}

static void create_ready(void *userdata, int r, Error *wait_err) {
        Request *request = userdata;
        Instance *instance = instance_list_find(&request->manager->instances, request->target);
        _cleanup_error_ Error err = ERROR_NULL;
        SandboxSettings settings;
        Sandbox *s;

        if (r < 0) {
                request_done(request, r, wait_err);
                return;
        }
        r = instance && request->call ? settings_of(request, instance, &settings, &err)
                                      : error_set(&err, ERR_CANCELLED, instance ? "the client went away" : "the instance went away");
        if (r < 0) {
                request_done(request, r, &err);
                return;
        }
        s = settings.key ? sandbox_find_key(request->manager, request->target, settings.key) : NULL;
        if (s)
                create_joined(request, s);
        else
                create_now(request, instance, &settings);
}

void handle_sandbox_create(Request *request) {
        Instance *instance = request_instance(request);
        _cleanup_error_ Error err = ERROR_NULL;
        SandboxSettings settings;
        int r = instance ? settings_of(request, instance, &settings, &err) : 0;

        if (r < 0)
                (void) request_fail(request, r, &err);
        else if (instance)
                request_await_guest(request, instance, create_ready);
}

void handle_sandbox_list(Request *request) {
        const char *name = request_string(request, "name");
        json_t *list;

        if (name && !request_instance(request))
                return;
        list = json_array();
        for (Sandbox *s = request->manager->sandboxes; s; s = s->next)
                if (!name || strcmp(name, s->instance) == 0)
                        (void) json_array_append_new(list, sandbox_describe(s));
        request_reply(request, json_pack("{s:o}", "sandboxes", list));
}

void handle_sandbox_show(Request *request) {
        Sandbox *s = request_sandbox(request);

        if (s)
                request_reply(request, sandbox_describe(s));
}

void handle_sandbox_why(Request *request) {
        Sandbox *s = request_sandbox(request);
        json_t *reply;

        if (!s)
                return;
        reply = json_pack("{s:s, s:s, s:s}", "id", s->id, "state", sandbox_state_to_string(s->state), "cause", sandbox_cause_to_string(s->cause));
        if (s->message)
                (void) json_object_set_new(reply, "message", json_string(s->message));
        if (s->memory_peak <= INT64_MAX)
                (void) json_object_set_new(reply, "memory_peak", json_integer((json_int_t) s->memory_peak));
        if (s->limits.value[LIMIT_MEMORY] <= INT64_MAX)
                (void) json_object_set_new(reply, "memory", json_integer((json_int_t) s->limits.value[LIMIT_MEMORY]));
        if (s->ended) {
                char when[CLOCK_TEXT_MAX];
                (void) json_object_set_new(reply, "ended", json_string(clock_format(s->ended, when)));
        }
        request_reply(request, reply);
}

void handle_sandbox_delete(Request *request) {
        Sandbox *s = request_sandbox(request);

        if (s)
                sandbox_delete(s, request_done, request_hold(request));
}

void handle_sandbox_renew(Request *request) {
        Sandbox *s = request_sandbox(request);
        _cleanup_error_ Error err = ERROR_NULL;
        char when[CLOCK_TEXT_MAX];
        int r;

        if (!s)
                return;
        r = sandbox_renew(s, (usec_t) request_int(request, "deadline", 0), &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
        else
                request_reply(request, json_pack("{s:s, s:s}", "id", s->id, "deadline", clock_format(s->lease.deadline, when)));
}

static void pause_to(Request *request, bool paused) {
        Sandbox *s = request_sandbox(request);
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!s)
                return;
        r = sandbox_pause(s, paused, request_done, request_hold(request), &err);
        if (r < 0)
                request_done(request, r, &err);
}

void handle_sandbox_pause(Request *request) {
        pause_to(request, true);
}

void handle_sandbox_resume(Request *request) {
        pause_to(request, false);
}
