// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, approvals: a yes or a no to what an instance asked for. Answered when it is in force everywhere.
#include "core/approvals.h"
#include "core/border_link.h"
#include "core/handle.h"

static void waited(void *userdata) {
        request_release(userdata);
}

// The number of the request, whose terms go into the audit record. 0 is no number.
static uint32_t number_of(Request *request) {
        unsigned long number = strtoul(request_string(request, "id"), NULL, 10);
        const Approval *a = number <= UINT32_MAX ? approvals_find(request->manager, (uint32_t) number) : NULL;

        if (!a)
                return 0;
        (void) json_object_set_new(request->detail, "name", json_string(a->instance));
        (void) json_object_set_new(request->detail, "host", json_string(a->to));
        (void) json_object_set_new(request->detail, "port", json_integer(a->port));
        return a->number;
}

static void answered(Request *request, int r, Error *err) {
        if (r < 0) {
                (void) request_fail(request, r, err);
                return;
        }
        border_link_wait(request->manager, waited, request_hold(request));
}

void handle_approvals(Request *request) {
        request_reply(request, json_pack("{s:o}", "approvals", approvals_list(request->manager, request_string(request, "name"), request_bool(request, "all"))));
}

void handle_approve(Request *request) {
        const ApproveTerms terms = {.span = (usec_t) request_int(request, "for", 0), .to = request_string(request, "to"), .by = request->peer.user};
        _cleanup_error_ Error err = ERROR_NULL;
        uint32_t number = number_of(request);
        int r = approvals_approve(request->manager, number, &terms, &err);
        const Approval *a = r >= 0 ? approvals_find(request->manager, number) : NULL;
        char until[CLOCK_TEXT_MAX];

        if (a)
                request_reply(request, json_pack("{s:s, s:s, s:s}", "name", a->instance, "to", a->to, "until", clock_format(a->until, until)));
        answered(request, r, &err);
}

void handle_deny(Request *request) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = approvals_deny(request->manager, number_of(request), request_string(request, "reason"), request->peer.user, &err);

        answered(request, r, &err);
}
