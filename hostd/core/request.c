// SPDX-License-Identifier: GPL-2.0-or-later
// Request: see request.h.
#include "core/request.h"

#include <stdarg.h>
#include <string.h>

#include "base/log.h"
#include "core/handle.h"
#include "core/redaction.h"
#include "core/trim.h"

static void request_free(Request *request) {
        if (request->recorded)
                audit_forget(request->manager->audit, request);
        *(request->previous ? &request->previous->next : &request->manager->requests) = request->next;
        if (request->next)
                request->next->previous = request->previous;
        json_decref(request->parameters);
        json_decref(request->detail);
        json_decref(request->reply);
        free(request->target);
        (void) redaction_free(request->redaction);
        for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
                (void) close_fd(request->fds[i]);
        error_done(&request->err);
        free(request);
}

// What the audit keeps of checked parameters: everything but values that may be secrets. What is not changed is shared: a policy has thousands of strings.
static json_t *request_describe(json_t *parameters) {
        static const char *const texts[] = {"old", "new"}; // of file replace
        json_t *copy = json_copy(parameters), *env = copy ? json_copy(json_object_get(copy, "env")) : NULL, *value;
        const char *key;

        json_object_foreach(env, key, value)
                (void) json_object_set_new_nocheck(env, key, json_string("…"));
        if (env)
                (void) json_object_set_new_nocheck(copy, "env", env);
        else if (copy)
                (void) json_object_del(copy, "env"); // none, or no memory for one without values
        for (size_t i = 0; i < ELEMENTS(texts); i++)
                if (json_object_get(copy, texts[i]))
                        (void) json_object_set_new_nocheck(copy, texts[i], json_string("…"));
        return copy;
}

static AuditRecord request_record(const Request *request, const char *result, json_t *detail) {
        return (AuditRecord) {
                .uid = request->peer.uid,
                .user = request->peer.user,
                .pid = request->peer.pid,
                .method = request->method->name,
                .target = request->target,
                .result = result,
                .detail = detail,
        };
}

int request_audit(Request *request, const char *result, json_t *detail, Error *err) {
        AuditRecord record = request_record(request, result, detail);
        int r = audit_append(request->manager->audit, &record, err);

        manager_note_audit(request->manager, r, err);
        return r;
}

static void request_recorded(void *userdata, int r, Error *err) {
        Request *request = userdata;

        manager_note_audit(request->manager, r, err);
        request->recorded(request, r, err);
        request->recorded = NULL;
        request_release(request);
}

int request_audit_later(Request *request, void (*recorded)(Request *request, int r, Error *err), Error *err) {
        AuditRecord record = request_record(request, "started", request->detail);
        int r = audit_append_later(request->manager->audit, &record, request_recorded, request, err);

        if (r < 0) {
                manager_note_audit(request->manager, r, err);
                return r;
        }
        request->recorded = recorded;
        (void) request_hold(request);
        return 0;
}

// Of a refused call only the name of its target and the sentence are kept: its parameters are unchecked.
static int request_audit_end(Request *request, Error *err) {
        const char *result = request->r < 0 ? error_code_info(request->err.code)->name : "ok";

        if (!request->detail)
                request->detail = json_object();
        if (request->r < 0)
                (void) json_object_set_new(request->detail, "error", json_string(error_message(&request->err, request->r)));
        return request_audit(request, result, request->detail, err);
}

static void request_finish(Request *request) {
        Error audit_err = ERROR_NULL;

        if (request->method->flags & METHOD_MUTATES) {
                int r = request_audit_end(request, &audit_err);
                if (r < 0 && request->r >= 0) {
                        error_wrap(&audit_err, "the change was made but the audit log cannot be written");
                        request->r = r;
                        error_move(&request->err, &audit_err);
                }
        }
        error_done(&audit_err);
        if (request->call) {
                call_set_closed(request->call, NULL, NULL);
                if (request->r < 0)
                        call_error(request->call, &request->err, request->r);
                else
                        call_reply(request->call, TAKE_PTR(request->reply));
        }
        trim_soon(request->manager);
        request_free(request);
}

Request *request_hold(Request *request) {
        request->holds++;
        return request;
}

void request_release(Request *request) {
        if (--request->holds == 0)
                request_finish(request);
}

int request_fail(Request *request, int r, Error *err) {
        if (request->r >= 0) {
                request->r = r;
                if (err && err->code != ERR_NONE)
                        error_move(&request->err, err);
                else
                        (void) error_set_errno(&request->err, r, "%s failed", request->method->words);
        } else if (err)
                error_done(err);
        return r;
}

void request_failf(Request *request, ErrorCode code, const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        Error err = ERROR_NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&text, format, ap) < 0)
                text = NULL;
        va_end(ap);
        (void) request_fail(request, error_set(&err, code, "%s", text ?: "out of memory"), &err);
}

void request_reply(Request *request, json_t *reply) {
        if (!request->reply) {
                request->reply = reply;
                return;
        }
        (void) json_object_update(request->reply, reply);
        json_decref(reply);
}

void request_done(void *userdata, int r, Error *err) {
        Request *request = userdata;

        if (r < 0)
                (void) request_fail(request, r, err);
        request_release(request);
}

void request_job_done(void *userdata, int r, json_t *result, Error *err) {
        if (r >= 0)
                request_reply(userdata, json_incref(result));
        request_done(userdata, r, err);
}

const char *request_string(const Request *request, const char *key) {
        return json_string_value(json_object_get(request->parameters, key));
}

bool request_bool(const Request *request, const char *key) {
        return json_is_true(json_object_get(request->parameters, key));
}

int64_t request_int(const Request *request, const char *key, int64_t otherwise) {
        json_t *value = json_object_get(request->parameters, key);

        return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

Instance *request_instance(Request *request) {
        const char *name = request_string(request, "name");
        Instance *instance = instance_list_find(&request->manager->instances, name);

        if (!instance)
                request_failf(request, ERR_NOT_FOUND, "there is no instance \"%s\"", name ?: "");
        return instance;
}

static void request_closed(Call *call, void *userdata) {
        Request *request = userdata;

        request->call = NULL;
        if (request->closed)
                request->closed(request);
}

// What writes below /etc/hostd must not meet a rollback that does so in a job.
static bool changes_files(MethodId id) {
        static const MethodId ids[] = {
                METHOD_INSTANCE_CREATE, METHOD_INSTANCE_LAUNCH, METHOD_INSTANCE_DELETE, METHOD_INSTANCE_SET,    METHOD_INSTANCE_UNSET, METHOD_INSTANCE_LABEL,
                METHOD_CONFIG_ROLLBACK, METHOD_CONFIG_APPLY,    METHOD_POLICY_SET,      METHOD_POLICY_DELETE, METHOD_HOST_CARVE,
        };

        for (size_t i = 0; i < ELEMENTS(ids); i++)
                if (ids[i] == id)
                        return true;
        return false;
}

static int request_check(Request *request, Error *err) {
        if (request->peer.access < request->method->access)
                return error_set(err, ERR_DENIED, "%s may not call %s: it needs %s access and this user has %s", request->peer.user,
                                 request->method->words, access_to_string(request->method->access),
                                 access_to_string(request->peer.access));
        // Such a call lives as long as its caller waits, and here nobody does.
        if ((request->method->flags & METHOD_MORE) && call_is_oneway(request->call))
                return error_set(err, ERR_INVALID, "%s cannot be called without waiting for its answers", request->method->name);
        if ((request->method->flags & (METHOD_MORE | METHOD_ONCE)) == METHOD_MORE && !call_wants_more(request->call))
                return error_set(err, ERR_INVALID, "%s answers in several parts: call it with \"more\"", request->method->name);
        if (request->manager->stopping && (request->method->flags & METHOD_MUTATES))
                return error_set(err, ERR_UNAVAILABLE, "hostd is shutting down");
        if (request->manager->rolling_back && changes_files(request->id))
                return error_set(err, ERR_BUSY, "a rollback of the configuration is under way; try again");
        int stray = request->method->n_fds == 0 ? call_take_fd(request->call, 0) : -EBADF;
        if (stray >= 0) {
                (void) close(stray);
                return error_set(err, ERR_INVALID, "%s takes no descriptors", request->method->name);
        }
        int r = method_check(request->method, request->parameters, err);
        // Once the log has failed, nothing more is changed until a record of the intent can be written.
        if (r >= 0 && (request->method->flags & METHOD_MUTATES) && request->manager->audit_failed)
                if ((r = request_audit(request, "started", NULL, err)) < 0)
                        (void) error_wrap(err, "nothing was changed, because it cannot be recorded");
        return r;
}

static const char *request_target_of(const json_t *parameters) {
        static const char *const keys[] = {"name", "policy", "template", "recipe", "id", "rev", "secret"};

        for (size_t i = 0; i < ELEMENTS(keys); i++) {
                const char *value = json_string_value(json_object_get(parameters, keys[i]));
                if (value)
                        return value;
        }
        return NULL;
}

void request_dispatch(Call *call, void *userdata) {
        MethodId id = method_from_name(call_method(call));
        _cleanup_error_ Error err = ERROR_NULL;
        Request *request;
        const char *target;
        int r;

        if (id < 0) {
                call_error(call, &err, error_set(&err, ERR_NOT_FOUND, "there is no method \"%s\"", call_method(call)));
                return;
        }
        if (!(request = calloc(1, sizeof(Request)))) {
                call_error(call, &err, error_set_errno(&err, ENOMEM, "cannot take the call"));
                return;
        }
        request->manager = userdata;
        request->next = request->manager->requests;
        if (request->next)
                request->next->previous = request;
        request->manager->requests = request;
        request->call = call;
        request->id = id;
        request->method = method_get(id);
        request->peer = *call_peer(call);
        request->parameters = json_incref(call_parameters(call));
        request->holds = 1;
        for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
                request->fds[i] = -EBADF;
        call_set_closed(call, request_closed, request);
        target = request_target_of(request->parameters);
        request->target = target ? strdup(target) : NULL;
        r = request_check(request, &err);
        if (target && !request->target)
                r = error_set_errno(&err, ENOMEM, "cannot take the call");
        if (r < 0) {
                (void) request_fail(request, r, &err);
        } else {
                request->detail = request_describe(request->parameters);
                request_handlers[id](request);
                // A handler that failed half-way has written something all the same.
                if (confdir_has_changes(request->manager->confdir))
                        handle_commit(request);
        }
        request_release(request);
}

void requests_detach(Manager *m) {
        Request *request = m->requests;

        while (request) {
                if (!request->call) {
                        request = request->next;
                        continue;
                }
                request->call = NULL;
                if (request->closed)
                        request->closed(request); // may free this one and others
                request = m->requests;
        }
}

void requests_forget(Manager *m) {
        while (m->requests) {
                Request *request = m->requests;
                _cleanup_error_ Error err = ERROR_NULL;
                if ((request->method->flags & METHOD_MUTATES) && !request->command) {
                        (void) request_fail(request, error_set(&err, ERR_CANCELLED, "hostd is shutting down"), &err);
                        (void) request_audit_end(request, NULL);
                }
                request_free(request);
        }
}
