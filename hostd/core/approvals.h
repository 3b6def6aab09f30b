// SPDX-License-Identifier: GPL-2.0-or-later
// Approvals: what instances have asked for, what was said to it, and the grants that came of it.
//
// A grant is a policy with one rule that ends (PolicyRule.until), in front of the instance's own policies. The kernel, the resolver and the proxy
// end it by themselves; hostd takes it out, tells and records it. Each approval is a value of the store, "approval.NUMBER".
#pragma once

#include "core/instance.h"
#include "core/policy_set.h"
#include "guest/proto.h"

#define APPROVALS_PENDING 16                        // of an instance
#define APPROVALS_GRANTS 32                         // of an instance, in force at a time
#define APPROVALS_KEPT 256                          // decided ones, in all
#define APPROVAL_LAPSES (24 * 3600 * USEC_PER_SEC)  // without an answer
#define APPROVAL_SPAN (3600 * USEC_PER_SEC)         // of a grant for which no other time was said

typedef enum ApprovalState {
        APPROVAL_PENDING,
        APPROVAL_APPROVED, // and in force
        APPROVAL_DENIED,
        APPROVAL_ENDED,    // was in force; taken back or by itself
        APPROVAL_LAPSED,
        _APPROVAL_STATE_MAX,
        _APPROVAL_STATE_INVALID = -EINVAL,
} ApprovalState;
const char *approval_state_to_string(ApprovalState state);
ApprovalState approval_state_from_string(const char *text);

typedef struct Approval {
        uint32_t number;
        char instance[33];
        char to[GUEST_TO_TEXT], reason[GUEST_REASON_TEXT]; // checked by guest_ask_decode(), again when read
        uint16_t port;
        uint8_t protocol; // IPPROTO_*
        uint32_t uid;     // of who asked, as the guest says
        ApprovalState state;
        usec_t asked, decided, until; // wall clock; 0: not
        char by[64], answer[GUEST_REASON_TEXT]; // who decided, and what was said with it
        Policy *policy; // owned; of a grant in force
} Approval;
Approval *approval_free(Approval *approval);
DEFINE_CLEANUP(Approval, approval_free)
// Pure: the value of the store. -EINVAL for what this program did not write.
json_t *approval_json(const Approval *approval);
int approval_parse(const char *text, Approval **ret);
// The rule of a grant. ERR_INVALID names what cannot be granted at all: any name, a category, a wide network.
int approval_rule(const Approval *approval, Policy **ret, Error *err);
// NULL, or why it is closed under any policy that does not name it: then whoever approves has to name it, too.
const char *approval_danger(const Approval *approval, const Category *doh);

typedef struct Approvals Approvals;
int approvals_open(Manager *manager, Error *err); // before the first policy is set
Approvals *approvals_free(Approvals *approvals);
DEFINE_CLEANUP(Approvals, approvals_free)
void approvals_ask(Manager *manager, Instance *instance, const GuestAsk *ask); // answers by the instance's channel
// `to`: the destination once more, from whoever means one that is closed by default; else NULL.
typedef struct ApproveTerms {
        usec_t span; // 0: APPROVAL_SPAN
        const char *to, *by;
} ApproveTerms;
int approvals_approve(Manager *manager, uint32_t number, const ApproveTerms *terms, Error *err);
int approvals_deny(Manager *manager, uint32_t number, const char *reason, const char *by, Error *err); // also ends a grant
const Approval *approvals_find(const Manager *manager, uint32_t number); // NULL: there is none
json_t *approvals_list(const Manager *manager, const char *name, bool all); // `name` NULL: of all instances
int approvals_forget_instance(Manager *manager, const char *name, Error *err); // before its name is another's

// The instance's grants and its policies, in order: what it lives under, and what is compiled. Ended with policy_set_done().
int instance_policies(const Instance *instance, PolicySet *ret, Error *err);
