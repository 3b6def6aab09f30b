// SPDX-License-Identifier: GPL-2.0-or-later
// Approval: one request of an instance, what was said to it, and the rule that a yes becomes. See approvals.h.
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/valid.h"
#include "core/approvals.h"
#include "network/compile.h"
#include "network/name.h"

#define PREFIX4_MIN 8 // what is wider is a policy, not an exception from one
#define PREFIX6_MIN 16

static const char *const state_names[_APPROVAL_STATE_MAX] = {
        [APPROVAL_PENDING] = "pending", [APPROVAL_APPROVED] = "approved", [APPROVAL_DENIED] = "denied", [APPROVAL_ENDED] = "ended", [APPROVAL_LAPSED] = "lapsed",
};

const char *approval_state_to_string(ApprovalState state) {
        return state >= 0 && state < _APPROVAL_STATE_MAX ? state_names[state] : NULL;
}

ApprovalState approval_state_from_string(const char *text) {
        for (ApprovalState state = 0; text && state < _APPROVAL_STATE_MAX; state++)
                if (strcmp(state_names[state], text) == 0)
                        return state;
        return _APPROVAL_STATE_INVALID;
}

Approval *approval_free(Approval *approval) {
        if (!approval)
                return NULL;
        (void) policy_free(approval->policy);
        free(approval);
        return NULL;
}

json_t *approval_json(const Approval *a) {
        return json_pack("{s:I, s:s, s:s, s:s, s:i, s:i, s:I, s:s, s:I, s:I, s:I, s:s, s:s}", "number", (json_int_t) a->number, "instance", a->instance, "to", a->to,
                         "reason", a->reason, "port", (int) a->port, "protocol", (int) a->protocol, "uid", (json_int_t) a->uid, "state", approval_state_to_string(a->state),
                         "asked", (json_int_t) a->asked, "decided", (json_int_t) a->decided, "until", (json_int_t) a->until, "by", a->by, "answer", a->answer);
}

static bool copy(char *to, size_t size, const char *from) {
        return (size_t) snprintf(to, size, "%s", from) < size;
}

int approval_parse(const char *text, Approval **ret) {
        _cleanup_(approval_freep) Approval *a = calloc(1, sizeof(Approval));
        const char *instance, *to, *reason, *state, *by, *answer;
        json_int_t number, uid, asked, decided, until;
        int port, protocol;
        json_t *json;
        bool whole;

        if (!a)
                return -ENOMEM;
        json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        whole = json && json_unpack(json, "{s:I, s:s, s:s, s:s, s:i, s:i, s:I, s:s, s:I, s:I, s:I, s:s, s:s !}", "number", &number, "instance", &instance, "to", &to, "reason",
                                    &reason, "port", &port, "protocol", &protocol, "uid", &uid, "state", &state, "asked", &asked, "decided", &decided, "until", &until, "by",
                                    &by, "answer", &answer) == 0 &&
                number > 0 && number <= UINT32_MAX && valid_is(VALID_NAME, instance) && valid_is(VALID_DESTINATION, to) && valid_is(VALID_REASON, reason) && port > 0 &&
                port <= UINT16_MAX && (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && asked >= 0 && decided >= 0 && until >= 0 &&
                copy(a->instance, sizeof(a->instance), instance) && copy(a->to, sizeof(a->to), to) && copy(a->reason, sizeof(a->reason), reason) &&
                copy(a->by, sizeof(a->by), by) && copy(a->answer, sizeof(a->answer), answer);
        if (whole) {
                a->number = (uint32_t) number;
                a->port = (uint16_t) port;
                a->protocol = (uint8_t) protocol;
                a->uid = (uint32_t) uid;
                a->state = approval_state_from_string(state);
                a->asked = (usec_t) asked;
                a->decided = (usec_t) decided;
                a->until = (usec_t) until;
        }
        json_decref(json);
        if (!whole || a->state < 0)
                return -EINVAL;
        *ret = TAKE_PTR(a);
        return 0;
}

// Any name, a category and a wide network are a policy's to allow.
static int check_destination(const char *to, Error *err) {
        PolicyTarget target = policy_target(to);
        int r = policy_destination_check("to", to, err);
        Cidr cidr;

        if (r >= 0 && target == POLICY_TO_SUFFIX)
                r = name_pattern_check_suffix("to", to, err);
        if (r < 0)
                return r;
        if (target == POLICY_TO_ANY_NAME || target == POLICY_TO_CATEGORY)
                return error_set_field(err, "to", "ask for one host, one \"*.suffix\" or one network");
        if (target == POLICY_TO_CIDR && cidr_parse(to, &cidr) == 0 && cidr.prefix < (cidr.family == AF_INET ? PREFIX4_MIN : PREFIX6_MIN))
                return error_set_field(err, "to", "this network is too wide to be asked for");
        return 0;
}

int approval_rule(const Approval *a, Policy **ret, Error *err) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_(policy_rule_done) PolicyRule rule = {.action = POLICY_ALLOW, .protocol = a->protocol == IPPROTO_UDP ? POLICY_UDP : POLICY_TCP, .until = a->until};
        char name[33];
        int r = check_destination(a->to, err);

        if (r < 0)
                return r;
        (void) snprintf(name, sizeof(name), GRANT_PREFIX "%u", a->number);
        if (policy_new(name, &policy) < 0 || !(rule.to = strdup(a->to)) || asprintf(&rule.ports, "%u", a->port) < 0)
                return error_set_errno(err, ENOMEM, "making a rule");
        r = policy_add(policy, &rule, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(policy);
        return 0;
}

const char *approval_danger(const Approval *a, const Category *doh) {
        Cidr cidr;

        if (a->protocol == IPPROTO_TCP && a->port == SMTP_PORT)
                return "it is the port of mail servers";
        if (policy_target(a->to) == POLICY_TO_CIDR)
                return cidr_parse(a->to, &cidr) == 0 && denied_by_default(&cidr) ? "it is in a range that is denied by default" : NULL;
        for (char **entry = doh ? doh->entries : NULL; entry && *entry; entry++)
                if (policy_target(*entry) != POLICY_TO_CIDR && (strcmp(*entry, a->to) == 0 || name_pattern_matches(*entry, a->to)))
                        return "it answers questions of the DNS over HTTPS, which the instance's resolver then does not see";
        return NULL;
}
