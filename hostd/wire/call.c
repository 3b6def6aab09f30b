// SPDX-License-Identifier: GPL-2.0-or-later
// Call: one method call, from its frame to its answer. The public half is in server.h.
#include <string.h>

#include "base/valid.h"
#include "wire/connection.h"

Call *call_new(Connection *connection, json_t *message, Frame *frame) {
        json_t *parameters = json_object_get(message, "parameters");
        Call *call = calloc(1, sizeof(*call));

        if (!call)
                return NULL;
        call->server = connection->server;
        call->connection = connection;
        call->peer = connection->peer;
        call->method = strdup(json_string_value(json_object_get(message, "method")));
        call->parameters = json_is_object(parameters) ? json_incref(parameters) : json_object();
        call->more = json_is_true(json_object_get(message, "more"));
        call->oneway = json_is_true(json_object_get(message, "oneway"));
        for (size_t i = 0; i < WIRE_FDS_MAX; i++)
                call->fds[i] = i < frame->n_fds ? frame->fds[i] : -EBADF;
        frame->n_fds = 0; // taken over
        call->next = call->server->calls;
        if (call->next)
                call->next->previous = call;
        call->server->calls = call;
        if (!call->method || !call->parameters)
                return call_free(call);
        return call;
}

Call *call_free(Call *call) {
        if (!call)
                return NULL;
        if (call->previous)
                call->previous->next = call->next;
        else
                call->server->calls = call->next;
        if (call->next)
                call->next->previous = call->previous;
        for (size_t i = 0; i < WIRE_FDS_MAX; i++)
                (void) close_fd(call->fds[i]);
        json_decref(call->parameters);
        free(call->method);
        free(call);
        return NULL;
}

void call_disconnect(Call *call) {
        call->connection = NULL;
        if (call->oneway || !call->closed)
                return;
        call->closed(call, call->closed_userdata);
        call_free(call);
}

const char *call_method(const Call *call) {
        return call->method;
}

json_t *call_parameters(const Call *call) {
        return call->parameters;
}

const Peer *call_peer(const Call *call) {
        return &call->peer;
}

bool call_wants_more(const Call *call) {
        return call->more;
}

bool call_is_oneway(const Call *call) {
        return call->oneway;
}

int call_take_fd(Call *call, unsigned index) {
        if (index >= WIRE_FDS_MAX || call->fds[index] < 0)
                return -EBADF;
        return TAKE_FD(call->fds[index]);
}

void call_set_closed(Call *call, void (*closed)(Call *call, void *userdata), void *userdata) {
        call->closed = closed;
        call->closed_userdata = userdata;
}

// Sends one answer; steals `parameters`.
static void call_send(Call *call, const char *error, json_t *parameters, bool continues) {
        json_t *message = json_object();

        if (!parameters)
                parameters = json_object();
        if (message && parameters && call->connection && !call->oneway) {
                if (error)
                        (void) json_object_set_new(message, "error", json_string(error));
                if (continues)
                        (void) json_object_set_new(message, "continues", json_true());
                if (json_object_set(message, "parameters", parameters) == 0)
                        connection_send(call->connection, message);
        }
        json_decref(parameters);
        json_decref(message);
}

static void call_finish(Call *call) {
        Connection *connection = call->connection;

        call_free(call);
        if (connection)
                connection_call_done(connection);
}

void call_reply(Call *call, json_t *parameters) {
        call_send(call, NULL, parameters, false);
        call_finish(call);
}

void call_reply_continues(Call *call, json_t *parameters) {
        if (call->more)
                call_send(call, NULL, parameters, true);
        else
                json_decref(parameters);
}

void call_error_name(Call *call, const char *name, json_t *parameters) {
        call_send(call, name, parameters, false);
        call_finish(call);
}

void call_error(Call *call, const Error *err, int r) {
        ErrorCode code = err && err->code != ERR_NONE ? err->code : error_code_from_errno(r);
        _cleanup_free_ char *name = NULL;
        json_t *parameters;

        if (asprintf(&name, "io.hostd.%s", error_code_info(code)->name) < 0)
                name = NULL;
        parameters = json_pack("{s:s}", "message", error_message(err, r));
        if (!parameters) { // the sentence was no UTF-8
                _cleanup_free_ char *shown = valid_printable(error_message(err, r));
                parameters = json_pack("{s:s}", "message", shown ?: "");
        }
        if (parameters && err && err->field)
                (void) json_object_set_new(parameters, "field", json_string(err->field));
        call_error_name(call, name ?: "io.hostd.Internal", parameters);
}
