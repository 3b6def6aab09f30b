// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, configuration: settings of an instance, and the git history of all files.
#include <string.h>

#include "core/doctor.h"
#include "core/handle.h"
#include "core/job.h"
#include "core/lifecycle.h"

typedef struct Edit {
        char *path, *before, *after; // owned
} Edit;

static void edit_done(Edit *edit) {
        free(edit->path);
        free(edit->before);
        free(edit->after);
}

static int edit_open(Request *request, Edit *edit, Error *err) {
        if (asprintf(&edit->path, "instances.d/%s.conf", request_string(request, "name")) < 0) {
                edit->path = NULL;
                return error_set_errno(err, ENOMEM, "cannot edit");
        }
        int r = confdir_read(request->manager->confdir, edit->path, &edit->before, err);
        if (r < 0)
                return r;
        edit->after = strdup(edit->before);
        return edit->after ? 0 : error_set_errno(err, ENOMEM, "cannot edit");
}

static int edit_set(Edit *edit, const char *key, const char *value, Error *err) {
        char *next;
        int r = instance_text_set(edit->after, key, value, &next, err);

        if (r < 0)
                return r;
        free(edit->after);
        edit->after = next;
        return 0;
}

// A running instance is told first: what the kernel refuses never reaches the file.
static int try_live(Instance *instance, InstanceConfig *fresh, bool force, Error *err) {
        InstanceConfig *old = instance->config;
        Error ignored = ERROR_NULL;
        int r;

        if (!instance_is_live(instance))
                return 0;
        r = doctor_check_limits(instance->manager, fresh, err);
        if (r < 0)
                return r;
        instance->config = fresh;
        r = instance_apply_limits(instance, force, err);
        if (r >= 0)
                r = instance_apply_network(instance, err);
        instance->config = old;
        if (r < 0) {
                (void) instance_apply_limits(instance, true, &ignored);
                (void) instance_apply_network(instance, &ignored);
                error_done(&ignored);
        }
        return r;
}

static int edit_commit(Request *request, Edit *edit, Error *err) {
        Instance *instance = instance_list_find(&request->manager->instances, request_string(request, "name"));
        _cleanup_(instance_config_freep) InstanceConfig *fresh = NULL;
        Manager *m = request->manager;
        int r;

        r = manager_reload(m, true, NULL, err); // other files that do not parse are said now, before anything changes
        if (r < 0)
                return r;
        r = instance_config_parse(instance->record.name, edit->after, &m->desired->host, &fresh, err);
        if (r < 0)
                return r;
        for (char **policy = fresh->policies; policy && *policy; policy++)
                if (!desired_find_policy(m->desired, *policy))
                        return error_set(err, ERR_NOT_FOUND, "there is no policy \"%s\": create it with \"hostctl policy set\"", *policy);
        r = lifecycle_admit_change(m, fresh, err);
        if (r < 0)
                return r;
        r = try_live(instance, fresh, request_bool(request, "force"), err);
        if (r < 0)
                return r;
        r = manager_write(m, edit->path, edit->after, err);
        if (r < 0 && instance_is_live(instance)) { // back to what is in force
                Error ignored = ERROR_NULL;
                (void) instance_apply_limits(instance, true, &ignored);
                (void) instance_apply_network(instance, &ignored);
                error_done(&ignored);
        }
        return r;
}

// Which of the changed keys wait for the next start.
static json_t *pending_restart(const Instance *instance, const json_t *keys_of, bool is_array) {
        json_t *list = json_array();

        for (size_t row = 0; instance_is_active(instance) && row < instance_schema_size(); row++) {
                const char *key = instance_schema_key(row);
                bool named = false;
                size_t index;
                json_t *value;
                if (!is_array)
                        named = json_object_get(keys_of, key) != NULL;
                else
                        json_array_foreach((json_t *) keys_of, index, value)
                                named = named || strcmp(json_string_value(value), key) == 0;
                if (named && instance_schema_needs_restart(row))
                        (void) json_array_append_new(list, json_string(key));
        }
        return list;
}

static void change(Request *request, const char *prefix, const char *pairs_key, const char *list_key) {
        json_t *pairs = json_object_get(request->parameters, pairs_key ?: ""), *list = json_object_get(request->parameters, list_key ?: ""), *value;
        Instance *instance = request_instance(request);
        _cleanup_(edit_done) Edit edit = {0};
        _cleanup_error_ Error err = ERROR_NULL;
        const char *key;
        size_t index;
        int r;

        if (!instance)
                return;
        r = edit_open(request, &edit, &err);
        json_object_foreach(pairs, key, value) {
                _cleanup_free_ char *full = NULL;
                const char *text = json_string_value(value);
                if (r >= 0 && asprintf(&full, "%s%s", prefix, key) < 0) {
                        full = NULL;
                        r = error_set_errno(&err, ENOMEM, "cannot edit");
                }
                if (r >= 0) // an empty value takes a label away
                        r = edit_set(&edit, full, *prefix && !*text ? NULL : text, &err);
        }
        json_array_foreach(list, index, value)
                if (r >= 0)
                        r = edit_set(&edit, json_string_value(value), NULL, &err);
        if (r >= 0)
                r = edit_commit(request, &edit, &err);
        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        request_reply(request, json_pack("{s:s, s:o}", "name", instance->record.name, "after_restart",
                                         pending_restart(instance, pairs ?: list, pairs == NULL)));
        handle_commit(request);
}

void handle_set(Request *request) {
        change(request, "", "settings", NULL);
}

void handle_unset(Request *request) {
        change(request, "", NULL, "keys");
}

void handle_label(Request *request) {
        change(request, "labels.", "labels", NULL);
}

// Readers of the repository run in a job: git may take its time.
typedef struct GitInput {
        ConfDir *confdir;
        unsigned max;
        const char *rev;
} GitInput;

static void git_job(Request *request, JobWork work, JobDone done, GitInput *input) {
        JobSpec spec = {work, input, done, request};
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        input->confdir = request->manager->confdir;
        (void) request_hold(request);
        r = job_start(request->manager->event, &spec, &err);
        if (r < 0)
                done(request, r, NULL, &err);
}

// "REV DATE AUTHOR SUBJECT"; an author's name is a user name and has no blank.
static json_t *commit_of_line(char *line) {
        char *rest = line, *rev = strsep(&rest, " "), *date = strsep(&rest, " "), *author = strsep(&rest, " ");

        return json_pack("{s:s, s:s, s:s, s:s}", "rev", rev ?: "", "date", date ?: "", "author", author ?: "", "subject", rest ?: "");
}

static int log_work(void *userdata, json_t **ret, Error *err) {
        GitInput *input = userdata;
        _cleanup_free_ char *text = NULL;
        char *line, *rest;
        int r = confdir_log(input->confdir, input->max, &text, err);

        if (r < 0)
                return r;
        json_t *list = json_array();
        for (rest = text; (line = strsep(&rest, "\n"));)
                if (*line)
                        (void) json_array_append_new(list, commit_of_line(line));
        *ret = json_pack("{s:o}", "commits", list);
        return 0;
}

void handle_config_log(Request *request) {
        GitInput input = {.max = (unsigned) request_int(request, "max", 50)};

        git_job(request, log_work, request_job_done, &input);
}

static int diff_work(void *userdata, json_t **ret, Error *err) {
        GitInput *input = userdata;
        _cleanup_free_ char *text = NULL;
        int r = confdir_diff(input->confdir, input->rev, &text, err);

        if (r >= 0)
                *ret = json_pack("{s:s}", "text", text);
        return r;
}

void handle_config_diff(Request *request) {
        GitInput input = {.rev = request_string(request, "rev")};

        git_job(request, diff_work, request_job_done, &input);
}

static json_t *changes_json(char *const *changes) {
        json_t *list = json_array();

        for (; changes && *changes; changes++)
                (void) json_array_append_new(list, json_pack("{s:s}", "text", *changes));
        return json_pack("{s:o}", "changes", list);
}

static int checkout_work(void *userdata, json_t **ret, Error *err) {
        GitInput *input = userdata;

        return confdir_checkout(input->confdir, input->rev, err);
}

static void checkout_undone(void *userdata, int r, json_t *result, Error *err) {
        Request *request = userdata;

        request->manager->rolling_back = false;
        if (r < 0)
                manager_warn(request->manager, "rollback", "host", "the files could not be put back: %s", error_message(err, r));
        else if (manager_reload(request->manager, false, NULL, NULL) >= 0)
                manager_unwarn(request->manager, "rollback", "host");
        request_release(request);
}

static void rollback_checked_out(void *userdata, int r, json_t *result, Error *err) {
        Request *request = userdata;
        _cleanup_strv_ char **changes = NULL;
        _cleanup_error_ Error reload_err = ERROR_NULL;

        request->manager->rolling_back = false;
        if (request->manager->stopping) {
                request_done(request, r, err);
                return;
        }
        // An unknown revision touches nothing; any other failure may have written some of the files.
        bool touched = r >= 0 || (err->code != ERR_NOT_FOUND && err->code != ERR_INVALID);
        if (r < 0)
                error_move(&reload_err, err);
        else
                r = manager_reload(request->manager, false, &changes, &reload_err);
        if (r < 0) {
                GitInput input = {.rev = "HEAD"};
                (void) request_fail(request, r, &reload_err);
                request->manager->rolling_back = touched;
                if (touched)
                        git_job(request, checkout_work, checkout_undone, &input);
        } else {
                request_reply(request, changes_json(changes));
                handle_commit_all(request);
        }
        request_release(request);
}

// What was changed by hand is in the history now: it can be had back.
static void rollback_committed(void *userdata, int r, Error *err) {
        Request *request = userdata;
        GitInput input = {.rev = request_string(request, "rev")};

        if (r >= 0 && request->manager->rolling_back)
                r = error_set(err, ERR_BUSY, "a rollback is under way");
        if (r < 0) {
                request_done(request, r, err);
                return;
        }
        request->manager->rolling_back = true;
        git_job(request, checkout_work, rollback_checked_out, &input);
        request_release(request);
}

static int resolve_work(void *userdata, json_t **ret, Error *err) {
        GitInput *input = userdata;
        _cleanup_free_ char *full = NULL;
        int r = confdir_resolve(input->confdir, input->rev, &full, err);

        if (r >= 0)
                *ret = json_pack("{s:s}", "rev", full);
        return r;
}

// "HEAD" means what was so when it was asked for: the commit of what was changed by hand moves it.
static void rollback_resolved(void *userdata, int r, json_t *result, Error *err) {
        Request *request = userdata;
        Manager *m = request->manager;

        if (r < 0 || m->stopping) {
                request_done(request, r, err);
                return;
        }
        (void) json_object_set(request->parameters, "rev", json_object_get(result, "rev"));
        commits_add(m->commits, &(CommitAsk) {
                .author = "root <0@host>",
                .message = "files changed by hand before a rollback",
                .whole = true,
                .done = rollback_committed,
                .userdata = request,
        });
}

// Also from files that are not valid: it is a way out of them.
void handle_config_rollback(Request *request) {
        GitInput input = {.rev = request_string(request, "rev")};

        if (request->manager->rolling_back)
                request_failf(request, ERR_BUSY, "a rollback is under way");
        else
                git_job(request, resolve_work, rollback_resolved, &input);
}

void handle_apply(Request *request) {
        bool dry_run = request_bool(request, "dry_run");
        _cleanup_strv_ char **changes = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = manager_reload(request->manager, dry_run, &changes, &err);

        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        request_reply(request, changes_json(changes));
        if (!dry_run)
                handle_commit_all(request);
}
