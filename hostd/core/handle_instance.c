// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, instances: create, start, stop, delete and what lies between.
#include <string.h>

#include "base/log.h"
#include "core/border_link.h"
#include "core/handle.h"
#include "core/job.h"
#include "core/lifecycle.h"
#include "core/policy_set.h"
#include "core/warm.h"

void new_instance_done(NewInstance *instance) {
        free(instance->text);
        (void) instance_config_free(instance->config);
        *instance = (NewInstance) {0};
}

static int text_put(char **text, const char *key, const char *value, Error *err) {
        char *next;
        int r = instance_text_set(*text, key, value, &next, err);

        if (r < 0)
                return r;
        free(*text);
        *text = next;
        return 0;
}

static int text_put_pairs(char **text, const char *prefix, const json_t *pairs, Error *err) {
        const char *key;
        json_t *value;

        json_object_foreach((json_t *) pairs, key, value) {
                _cleanup_free_ char *full = NULL;
                int r;
                if (asprintf(&full, "%s%s", prefix, key) < 0) {
                        full = NULL;
                        return error_set_errno(err, ENOMEM, "cannot write the settings");
                }
                r = text_put(text, full, json_string_value(value), err);
                if (r < 0)
                        return r;
        }
        return 0;
}

int new_instance_make(Manager *m, const char *name, const json_t *parameters, NewInstance *ret, Error *err) {
        static const char *const plain[] = {"template", "preset", "description"};
        _cleanup_(new_instance_done) NewInstance made = {0};
        int r;

        for (size_t i = 0; i < ELEMENTS(plain); i++) {
                const char *value = json_string_value(json_object_get(parameters, plain[i]));
                if (value && (r = text_put(&made.text, plain[i], value, err)) < 0)
                        return r;
        }
        if ((r = text_put_pairs(&made.text, "", json_object_get(parameters, "settings"), err)) < 0 ||
            (r = text_put_pairs(&made.text, "labels.", json_object_get(parameters, "labels"), err)) < 0)
                return r;
        if (!made.text)
                return error_set_field(err, "template", "template is missing");
        r = instance_config_parse(name, made.text, &m->desired->host, &made.config, err);
        if (r < 0)
                return r;
        for (char **policy = made.config->policies; policy && *policy; policy++)
                if (!desired_find_policy(m->desired, *policy))
                        return error_set(err, ERR_NOT_FOUND, "there is no policy \"%s\": create it with \"hostctl policy set\"", *policy);
        *ret = made;
        made = (NewInstance) {0};
        return 0;
}

int new_instance_create(Manager *m, const char *name, const json_t *parameters, Instance **ret, Error *err) {
        _cleanup_(new_instance_done) NewInstance made = {0};
        CreateOptions options = {.name = name};
        Instance *instance;
        int r;

        // What is on disk must be whole before something is added to it.
        r = manager_reload(m, true, NULL, err);
        if (r < 0)
                return r;
        r = new_instance_make(m, name, parameters, &made, err);
        if (r < 0)
                return r;
        options.template = made.config->template;
        options.text = made.text;
        options.config = made.config;
        r = lifecycle_create(m, &options, &instance, err);
        if (r < 0)
                return r;
        r = manager_reload(m, false, NULL, err); // hands the object its configuration from the set
        if (r < 0) {
                lifecycle_undo_create(instance);
                (void) manager_reload(m, false, NULL, NULL); // without the file the set is as it was
                return r;
        }
        *ret = instance;
        return 0;
}

static void border_waited(void *userdata) {
        request_release(userdata);
}

// What was changed is answered when it is in force everywhere and has its commit.
static void commit_with(Request *request, bool whole) {
        _cleanup_free_ char *author = NULL, *message = NULL;

        if (asprintf(&author, "%s <%u@host>", request->peer.user, request->peer.uid) < 0)
                author = NULL;
        if (asprintf(&message, "%s%s%s", request->method->words, request->target ? " " : "", request->target ?: "") < 0)
                message = NULL;
        border_link_wait(request->manager, border_waited, request_hold(request));
        commits_add(request->manager->commits, &(CommitAsk) {
                .author = author ?: "root <0@host>",
                .message = message ?: request->method->words,
                .whole = whole,
                .done = request_done,
                .userdata = request_hold(request),
        });
}

void handle_commit(Request *request) {
        commit_with(request, false);
}

void handle_commit_all(Request *request) {
        commit_with(request, true);
}

static json_t *instance_brief(const Instance *instance) {
        return json_pack("{s:s, s:s}", "name", instance->record.name, "state", instance_state_to_string(instance->state));
}

void handle_create(Request *request) {
        _cleanup_error_ Error err = ERROR_NULL;
        Instance *instance;
        int r = new_instance_create(request->manager, request_string(request, "name"), request->parameters, &instance, &err);

        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        request_reply(request, instance_brief(instance));
        handle_commit(request);
}

// The instance stays when its start fails, as the sentence says: it can be looked at, corrected and started.
static void launch_started(void *userdata, int r, Error *err) {
        Request *request = userdata;

        if (r < 0) {
                (void) error_wrap(err, "%s was created but does not run", request->target);
                (void) request_fail(request, r, err);
        } else
                request_reply(request, json_pack("{s:s, s:s}", "name", request->target, "state", "running"));
        request_release(request);
}

void handle_launch(Request *request) {
        _cleanup_error_ Error err = ERROR_NULL;
        Instance *instance;
        int r;

        warm_hold(request->manager); // the start takes it over
        r = new_instance_create(request->manager, request_string(request, "name"), request->parameters, &instance, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
        else {
                handle_commit(request);
                (void) request_hold(request);
                r = instance_start(instance, launch_started, request, &err);
                if (r < 0)
                        launch_started(request, r, &err);
        }
        warm_release(request->manager);
}

static void stop_then(Request *request, bool again, InstanceDone done) {
        Instance *instance = request_instance(request);
        StopOptions options = {
                .force = request_bool(request, "force"),
                .again = again,
                .timeout = (usec_t) request_int(request, "timeout", 0),
        };
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        r = instance_stop(instance, &options, done, request_hold(request), &err);
        if (r < 0)
                request_done(request, r, &err);
}

void handle_stop(Request *request) {
        stop_then(request, false, request_done);
}

// The answer comes when it runs again, so the second half is a start that joins the one which the exit began.
static void restart_stopped(void *userdata, int r, Error *err) {
        Request *request = userdata;
        Instance *instance = instance_list_find(&request->manager->instances, request->target);
        _cleanup_error_ Error start_err = ERROR_NULL;

        if (r < 0 || !instance) {
                if (r >= 0)
                        r = error_set(&start_err, ERR_NOT_FOUND, "%s was deleted meanwhile", request->target);
                request_done(request, r, start_err.code != ERR_NONE ? &start_err : err);
                return;
        }
        r = instance_start(instance, request_done, request, &start_err);
        if (r < 0)
                request_done(request, r, &start_err);
}

void handle_start(Request *request) {
        Instance *instance = request_instance(request);
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        instance->attempts = 0; // a person asks: the back-off starts anew
        instance->reported = false;
        instance_failure_over(instance);
        // After a crash too there is something to clear away first, and nobody who asked for that could know when it is done.
        if (instance->state == INSTANCE_STOPPING && !instance->deleting && !instance->rebuilding) {
                instance_wait(instance, GOAL_STOPPED, restart_stopped, request_hold(request));
                return;
        }
        r = instance_start(instance, request_done, request_hold(request), &err);
        if (r < 0)
                request_done(request, r, &err);
}

void handle_restart(Request *request) {
        stop_then(request, true, restart_stopped);
}

static void pause_with(Request *request, bool paused) {
        Instance *instance = request_instance(request);
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        r = instance_pause(instance, paused, request_done, request_hold(request), &err);
        if (r < 0)
                request_done(request, r, &err);
}

void handle_pause(Request *request) {
        pause_with(request, true);
}

void handle_resume(Request *request) {
        pause_with(request, false);
}

void handle_delete(Request *request) {
        Instance *instance = request_instance(request);
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        if (instance_is_active(instance) && !request_bool(request, "force")) {
                request_failf(request, ERR_BUSY, "%s is %s: stop it first or use --force", instance->record.name,
                              instance_state_to_string(instance->state));
                return;
        }
        r = lifecycle_delete(instance, request_done, request_hold(request), &err);
        if (r < 0)
                request_done(request, r, &err);
        else
                handle_commit(request);
}

// Rebuild: stop, a new root in a job (the old one may be large), then the new template. `rebuilding` keeps other verbs away
// meanwhile; a deletion waits for its end.
typedef struct RebuildInput {
        const Instance *instance;
        const char *digest;
} RebuildInput;

static int rebuild_work(void *userdata, json_t **ret, Error *err) {
        const RebuildInput *input = userdata;

        return instance_disk_rebuild(input->instance, input->digest, err);
}

static int rebuild_record(Request *request, Instance *instance, Error *err) {
        const char *digest = json_string_value(json_object_get(request->detail, "digest"));
        int r;

        snprintf(instance->record.template_digest, sizeof(instance->record.template_digest), "%s", digest ?: "");
        r = store_instance_update(request->manager->store, &instance->record, err);
        if (r >= 0)
                instance_event(instance, "instance-rebuilt", json_pack("{s:s}", "digest", instance->record.template_digest));
        return r;
}

static void rebuild_done(void *userdata, int r, json_t *result, Error *err) {
        Request *request = userdata;
        Instance *instance = instance_list_find(&request->manager->instances, request->target); // cannot go while it is rebuilt
        _cleanup_error_ Error later = ERROR_NULL;

        instance->rebuilding = false;
        if (r < 0)
                (void) request_fail(request, r, err);
        else if ((r = rebuild_record(request, instance, &later)) < 0)
                (void) request_fail(request, r, &later);
        if (instance->deleting) {
                instance_notify(instance, GOAL_STOPPED, 0, NULL); // frees it
                request_release(request);
                return;
        }
        if (json_is_true(json_object_get(request->detail, "was_running")) && !request->manager->stopping) {
                int k = instance_start(instance, request_done, request, &later); // also after a failure: the old root is in place
                if (k >= 0)
                        return;
                (void) request_fail(request, k, &later);
        }
        request_release(request);
}

static int rebuild_begin(Request *request, Instance *instance, Error *err) {
        RebuildInput input = {.instance = instance};
        JobSpec spec = {rebuild_work, &input, rebuild_done, request};
        const Template *template;
        int r;

        // Other verbs may have come in between.
        if (!instance)
                return error_set(err, ERR_NOT_FOUND, "%s was deleted meanwhile", request->target);
        if (!instance->config || instance->deleting || instance->rebuilding || instance_is_active(instance))
                return error_set(err, ERR_CONFLICT, "%s was changed by somebody else meanwhile", request->target);
        template = template_find(request->manager->templates, request_string(request, "template") ?: instance->config->template);
        if (!template)
                return error_set(err, ERR_NOT_FOUND, "the template was deleted meanwhile");
        (void) json_object_set_new(request->detail, "digest", json_string(template->manifest->digest));
        input.digest = template->manifest->digest;
        r = job_start(request->manager->event, &spec, err);
        if (r >= 0)
                instance->rebuilding = true;
        return r;
}

static void rebuild_stopped(void *userdata, int r, Error *stop_err) {
        Request *request = userdata;
        _cleanup_error_ Error err = ERROR_NULL;

        if (r < 0) {
                request_done(request, r, stop_err);
                return;
        }
        r = rebuild_begin(request, instance_list_find(&request->manager->instances, request->target), &err);
        if (r < 0)
                request_done(request, r, &err);
}

void handle_rebuild(Request *request) {
        Instance *instance = request_instance(request);
        _cleanup_(policy_set_done) PolicySet policies = POLICY_SET_NULL;
        StopOptions options = {.force = request_bool(request, "force")};
        const char *template;
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        if (!instance->config || instance->deleting || instance->rebuilding) {
                request_failf(request, ERR_BUSY, "%s has no configuration or is being changed", instance->record.name);
                return;
        }
        template = request_string(request, "template") ?: instance->config->template;
        if (!template_find(request->manager->templates, template)) {
                request_failf(request, ERR_NOT_FOUND, "there is no template \"%s\"", template);
                return;
        }
        if (instance_is_active(instance) && !options.force) {
                request_failf(request, ERR_BUSY, "%s is %s: stop it first or use --force", instance->record.name,
                              instance_state_to_string(instance->state));
                return;
        }
        r = policy_set_load(request->manager, request->manager->desired, instance->config, template, &policies, &err);
        if (r < 0) { // the new root's template has no list of its own for "@packages"
                (void) request_fail(request, r, &err);
                return;
        }
        (void) json_object_set_new(request->detail, "was_running", json_boolean(instance_is_active(instance)));
        r = instance_stop(instance, &options, rebuild_stopped, request_hold(request), &err);
        if (r < 0)
                request_done(request, r, &err);
}
