// SPDX-License-Identifier: GPL-2.0-or-later
// Policy: an ordered list of rules that says what an instance may reach. This file: CIDR, protocol and port; names come with the border.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum PolicyAction { POLICY_ALLOW, POLICY_DENY, _POLICY_ACTION_MAX, _POLICY_ACTION_INVALID = -EINVAL } PolicyAction;
typedef enum PolicyProtocol { POLICY_ANY, POLICY_TCP, POLICY_UDP, POLICY_ICMP, _POLICY_PROTOCOL_MAX, _POLICY_PROTOCOL_INVALID = -EINVAL } PolicyProtocol;

const char *policy_action_to_string(PolicyAction action);
PolicyAction policy_action_from_string(const char *text);
const char *policy_protocol_to_string(PolicyProtocol protocol);
PolicyProtocol policy_protocol_from_string(const char *text);

typedef struct PolicyRule {
        PolicyAction action;
        char *to;    // owned, VALID_CIDR; host bits must be zero
        PolicyProtocol protocol;
        char *ports; // owned, VALID_PORTS, or NULL for any; only with tcp and udp
        char *comment; // owned, VALID_TEXT, or NULL; never reaches nft
} PolicyRule;

typedef struct Policy {
        char *name; // owned, VALID_NAME
        char *description;
        PolicyRule *rules;
        size_t n_rules;
} Policy;

int policy_new(const char *name, Policy **ret);
Policy *policy_free(Policy *policy);
DEFINE_CLEANUP(Policy, policy_free)
// Takes over the strings of `rule` on success. Checks all fields; `field` in errors is "rules[N].to" and so on.
int policy_add(Policy *policy, PolicyRule *rule, Error *err);
void policy_rule_done(PolicyRule *rule);
bool policy_equal(const Policy *a, const Policy *b);
// What the enforcing code would do with one packet; *ret_rule is the index in the concatenated list, -1 for the default.
typedef struct PolicyProbe { const char *address; PolicyProtocol protocol; uint16_t port; } PolicyProbe;
int policy_explain(Policy *const *policies, size_t n, const PolicyProbe *probe, PolicyAction *ret, int *ret_rule, Error *err);
