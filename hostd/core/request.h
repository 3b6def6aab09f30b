// SPDX-License-Identifier: GPL-2.0-or-later
// Request: one method call on its way: checked, executed, audited, answered, in this order.
//
// A handler runs with one hold on the request. Work that goes on later takes another hold and releases it when it ends. When the
// last hold is gone the audit record is written and synced, and then the answer goes out: the first error that was noted, or
// the reply. The caller may be gone by then; the work and its record do not depend on that.
#pragma once

#include "api/method.h"
#include "core/manager.h"

typedef struct Request {
        struct Request *next, *previous; // of manager->requests
        Manager *manager;
        Call *call; // NULL once the caller went away
        const Method *method;
        MethodId id;
        Peer peer;
        json_t *parameters; // owned
        char *target;       // for the audit record
        json_t *detail;     // for the audit record
        json_t *reply;
        Error err;
        int r;
        unsigned holds;
        struct Command *command; // for methods that enter an instance
        struct Building *building;
        struct DiffRun *diff;
        struct Redaction *redaction;
        int verb;
        bool in_sandbox; // target is a sandbox's id
        bool kept; // hostd-io has the output of the command that it starts
        int fds[WIRE_FDS_MAX]; // taken from the call, owned
        void (*closed)(struct Request *request); // the caller went away before the answer
        void (*recorded)(struct Request *request, int r, Error *err); // of request_audit_later()
} Request;

typedef void (*RequestHandler)(Request *request);

void request_dispatch(Call *call, void *manager); // the server's handler
// When hostd ends: the calls are gone (also those that had no way to say so); then, last, what still waits for something that
// will not come is recorded as cancelled and forgotten. Commands run on and are the next hostd's to record.
void requests_detach(Manager *manager);
void requests_forget(Manager *manager);
Request *request_hold(Request *request);
void request_release(Request *request);
// Notes the first failure; moves `err` in. Returns r.
int request_fail(Request *request, int r, Error *err);
void request_failf(Request *request, ErrorCode code, const char *format, ...) _printf_(3, 4);
void request_reply(Request *request, json_t *reply); // steals; merges into what is there
// An intermediate audit record ("started"), on disk when this returns 0.
int request_audit(Request *request, const char *result, json_t *detail, Error *err);
// "started" with what the request has as its detail, without waiting: `recorded` is called from the loop when it is on disk, or when
// that failed. Holds the request until then. One at a time.
int request_audit_later(Request *request, void (*recorded)(Request *request, int r, Error *err), Error *err);

const char *request_string(const Request *request, const char *key); // NULL if absent
bool request_bool(const Request *request, const char *key);
// All of the method's descriptors (in request->fds) are pipes or ptys; notes the error otherwise.
bool request_fds_allowed(Request *request);
int64_t request_int(const Request *request, const char *key, int64_t otherwise);
// Finds the instance named by parameter "name" or notes not-found and returns NULL.
Instance *request_instance(Request *request);
// For continuations that only carry success or failure: releases the request.
void request_done(void *userdata, int r, Error *err);
// The same for a job (core/job.h) whose result is the reply.
void request_job_done(void *userdata, int r, json_t *result, Error *err);

extern const RequestHandler request_handlers[_METHOD_MAX];
