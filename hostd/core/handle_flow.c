// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers of flows and why: hostd-flow writes what is asked for straight into the caller's pipe, and hostd sees none of it. An instance need
// not be there any more: its evidence outlives it.
#include <string.h>
#include <sys/stat.h>

#include "core/border_link.h"
#include "core/handle.h"

#define FLOWS_DEFAULT 1000 // the newest lines
#define WHY_LINES 20000    // that are put into groups
#define WHY_SINCE (86400 * USEC_PER_SEC)
#define ASKED_MAX 3        // lists at the same time for one user: hostd-flow answers few at once, and all users wait for each other

static void flow_answered(void *userdata, int r) {
        Request *request = userdata;
        const char *name = request_string(request, "name");
        _cleanup_error_ Error err = ERROR_NULL;

        if (r == -ENOENT && instance_list_find(&request->manager->instances, name))
                r = error_set(&err, ERR_NOT_FOUND, "nothing was recorded of %s yet", name);
        else if (r == -ENOENT)
                r = error_set(&err, ERR_NOT_FOUND, "there is no instance %s, and nothing was ever recorded of one", name);
        else if (r == -EPIPE)
                r = error_set(&err, ERR_CANCELLED, "the caller went away");
        else if (r < 0)
                r = error_set_errno(&err, r, "hostd-flow could not answer");
        request_done(request, r, &err);
}

static void query_init(BorderQuery *query, const Request *request, usec_t since, int64_t limit) {
        usec_t now = clock_realtime();

        *query = (BorderQuery) {.kind = BORDER_QUERY_ANY, .limit = (uint64_t) limit};
        if (since > 0 && since < now)
                query->since_usec = (int64_t) (now - since);
        (void) snprintf(query->instance, sizeof(query->instance), "%s", request_string(request, "name")); // VALID_NAME is shorter
}

static bool asks_too_much(const Request *request) {
        unsigned n = 0;

        for (const Request *other = request->manager->requests; other && request->peer.uid != 0; other = other->next)
                n += other != request && other->peer.uid == request->peer.uid && (other->id == METHOD_INSTANCE_FLOWS || other->id == METHOD_INSTANCE_WHY);
        return n >= ASKED_MAX;
}

static void flow_ask(Request *request, const BorderQuery *query) {
        _cleanup_error_ Error err = ERROR_NULL;
        struct stat st;
        int r;

        request->fds[0] = call_take_fd(request->call, 0);
        if (fstat(request->fds[0], &st) < 0 || !S_ISFIFO(st.st_mode)) {
                r = error_set(&err, ERR_INVALID, "%s needs one descriptor, a pipe that the list is written to", request->method->words);
                (void) request_fail(request, r, &err);
                return;
        }
        if (asks_too_much(request)) {
                request_failf(request, ERR_BUSY, "%s has %d such lists under way already", request->peer.user, ASKED_MAX);
                return;
        }
        (void) request_hold(request);
        r = border_link_query(request->manager, query, request->fds[0], flow_answered, request);
        request->fds[0] = close_fd(request->fds[0]); // or the list would not end
        if (r == -ENOTCONN)
                r = error_set(&err, ERR_UNAVAILABLE, "hostd-flow does not run: hostctl doctor says why");
        else if (r < 0)
                r = error_set_errno(&err, r, "hostd-flow cannot be asked");
        if (r < 0)
                request_done(request, r, &err);
}

void handle_flows(Request *request) {
        const char *kind = request_string(request, "kind");
        BorderQuery query;

        query_init(&query, request, (usec_t) request_int(request, "since", 0), request_int(request, "limit", FLOWS_DEFAULT));
        query.denied = request_bool(request, "denied");
        if (kind)
                query.kind = (uint8_t) flow_kind_from_string(kind); // one of the row's choices
        flow_ask(request, &query);
}

void handle_why(Request *request) {
        BorderQuery query;

        query_init(&query, request, (usec_t) request_int(request, "since", WHY_SINCE), WHY_LINES);
        query.denied = 1;
        flow_ask(request, &query);
}
