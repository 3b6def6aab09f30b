// SPDX-License-Identifier: GPL-2.0-or-later
// Policy: an ordered list of rules that says what an instance may reach. This file: CIDR, protocol and port; names come with the border.
//
// The first rule that matches decides; no match is a denial. Three things a broad rule never opens:
//  * the ranges that are denied by default (private, link-local and metadata, carrier NAT, documentation, multicast, v4 in v6):
//    an allow reaches them only if its `to` is equal to or inside one of them ("10.1.0.0/16" does, "0.0.0.0/0" does not);
//  * TCP port 25: an allow reaches it only if its `ports` has the single entry 25 ("25,465" does, "1-1024" or no ports does not);
//  * the host's own addresses and the pools of the instances: no rule reaches them, however exact. Nothing accepts connections
//    towards an instance yet, and the host's input chain knows no policy. policy_explain() does not know these addresses.
// POLICY_ANY is every protocol, not only tcp, udp and icmp; POLICY_ICMP is ICMPv6 where `to` is IPv6.
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

#define POLICY_RULES_MAX 4096

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
        unsigned shared; // owners besides the first
} Policy;

int policy_new(const char *name, Policy **ret);
Policy *policy_free(Policy *policy);
Policy *policy_share(Policy *policy); // one more owner, who frees it too; a shared policy must not be changed any more
DEFINE_CLEANUP(Policy, policy_free)
// Takes over the strings of `rule` on success. Checks all fields; `field` in errors is "rules[N].to" and so on.
int policy_add(Policy *policy, PolicyRule *rule, Error *err);
void policy_rule_done(PolicyRule *rule);
bool policy_equal(const Policy *a, const Policy *b);
// What the enforcing code would do with one packet; *ret_rule is the index in the concatenated list, -1 for the default.
typedef struct PolicyProbe { const char *address; PolicyProtocol protocol; uint16_t port; } PolicyProbe;
int policy_explain(Policy *const *policies, size_t n, const PolicyProbe *probe, PolicyAction *ret, int *ret_rule, Error *err);
