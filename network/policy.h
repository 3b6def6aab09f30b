// SPDX-License-Identifier: GPL-2.0-or-later
// Policy: an ordered list of rules that says what an instance may reach, by address or by name.
//
// The first rule that matches decides; no match is a denial. A rule whose `to` is a CIDR matches by destination address, one whose `to`
// is a name, "*.suffix" or "*" by the name that SNI, Host or a DNS question has; "@category" stands for one rule per entry.
// Four things a broad rule never opens:
//  * the ranges that are denied by default (private, link-local and metadata, carrier NAT, documentation, multicast, v4 in v6):
//    an allow reaches them only if its `to` is equal to or inside one of them ("10.1.0.0/16" does, "0.0.0.0/0" does not);
//  * TCP port 25: an allow reaches it only if its `ports` has the single entry 25 ("25,465" does, "1-1024" or no ports does not);
//  * names in the category "doh", if there is one (servers of DNS over HTTPS, which would answer what our resolver refuses): an allow of "*"
//    does not reach them, and one of 0.0.0.0/0 or ::/0 does not let them be resolved; any other rule by name does;
//  * the host's own addresses and the pools of the instances: no rule reaches them, however exact. No rule accepts connections
//    towards an instance (hostctl expose does), and the host's input chain knows no policy. policy_explain() does not know these addresses.
// POLICY_ANY is every protocol, not only tcp, udp and icmp; POLICY_ICMP is ICMPv6 where `to` is IPv6. An allow by name is tcp and port 443
// unless it says otherwise; a denial by name without protocol and ports is of the name altogether.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "network/category.h"

typedef enum PolicyAction { POLICY_ALLOW, POLICY_DENY, _POLICY_ACTION_MAX, _POLICY_ACTION_INVALID = -EINVAL } PolicyAction;
typedef enum PolicyProtocol { POLICY_ANY, POLICY_TCP, POLICY_UDP, POLICY_ICMP, _POLICY_PROTOCOL_MAX, _POLICY_PROTOCOL_INVALID = -EINVAL } PolicyProtocol;

// Which of git's requests over HTTP a rule is about. An allow of "write" is both; a denial is of just what it says.
typedef enum PolicyGit { POLICY_GIT_ANY, POLICY_GIT_READ, POLICY_GIT_WRITE, _POLICY_GIT_MAX, _POLICY_GIT_INVALID = -EINVAL } PolicyGit; // ANY: every request, git's or not

const char *policy_action_to_string(PolicyAction action);
PolicyAction policy_action_from_string(const char *text);
const char *policy_protocol_to_string(PolicyProtocol protocol);
PolicyProtocol policy_protocol_from_string(const char *text);
const char *policy_git_to_string(PolicyGit git);
PolicyGit policy_git_from_string(const char *text);

typedef enum PolicyTarget { POLICY_TO_CIDR, POLICY_TO_NAME, POLICY_TO_SUFFIX, POLICY_TO_ANY_NAME, POLICY_TO_CATEGORY } PolicyTarget;
PolicyTarget policy_target(const char *to); // by its bytes; what it is meant to be, valid or not

#define POLICY_RULES_MAX 4096
#define POLICY_METHODS_MAX 16
#define POLICY_PATHS_MAX 32
#define POLICY_NAME_PORTS_MAX 16 // of allows by name, TCP 80 and 443 not counted: one element of the kernel each, per address

typedef struct PolicyRule {
        PolicyAction action;
        char *to;    // owned, VALID_DESTINATION; of a CIDR, host bits must be zero
        PolicyProtocol protocol;
        char *ports; // owned, VALID_PORTS, or NULL for any (of an allow by name: 443); only with tcp and udp, which a name need not say
        char **methods, **paths; // owned, VALID_METHOD and VALID_URL_PATH, or NULL for any; names on TCP 80 and 443 only
        PolicyGit git;           // a name on TCP 80 and 443, too
        bool inspect;            // take the TLS of these connections apart; methods, paths and git imply it
        uint64_t rate;           // bytes a second, 0: none
        uint64_t budget;         // bytes a day, 0: none
        uint64_t until;          // of a grant: microseconds of the wall clock, from which on it matches nothing; 0: no end
        char *comment;           // owned, VALID_TEXT, or NULL; never reaches nft
        Category *category;      // owned share: what "@…" stands for, NULL until it was looked up
} PolicyRule;

typedef struct Policy {
        char *name; // owned, VALID_NAME
        char *description;
        PolicyRule *rules;
        size_t n_rules, room; // `room`: what policy_add() made, 0 where somebody else did
        Category *spared; // owned share: what "*" does not reach, NULL for none
        bool offline;     // of an instance that is: its allows are those of three categories
        unsigned shared; // owners besides the first
} Policy;
#define POLICY_SPARED "doh" // the category's name

int policy_new(const char *name, Policy **ret);
Policy *policy_free(Policy *policy);
Policy *policy_share(Policy *policy); // one more owner, who frees it too; a shared policy must not be changed any more
DEFINE_CLEANUP(Policy, policy_free)
// Takes over what `rule` owns on success. Checks all fields; `field` in errors is "rules[N].to" and so on.
int policy_add(Policy *policy, PolicyRule *rule, Error *err);
bool policy_equal(const Policy *a, const Policy *b); // what their categories stand for included
// bind.c: policies as they are for one instance. "@packages" is another list for each template: a rule that says so has no category until it is
// bound to one, unless the operator has a file of that name. An instance that is offline keeps, of its policies' allows, those of @packages, @llm
// and @git; denials stay.
#define POLICY_PACKAGES "packages"
bool policy_is_open(const Policy *policy);
typedef struct PolicyUse {
        Category *packages; // borrowed; NULL: the template has no list
        char *const *registries; // hosts of it that are approved; NULL: all
        bool offline;
} PolicyUse;
// A share of the policy itself where nothing is to be changed. ERR_INVALID for an open rule without `packages`.
int policy_bind(Policy *policy, const PolicyUse *use, Policy **ret, Error *err);
bool policy_rule_is_left_out(const Policy *policy, const PolicyRule *rule); // rule.c: stands for nothing: offline, or about what comes in
// preview.c: rules about "@preview" are about ports of the instance that the operator exposes. The first that matches decides; where there is
// none of them at all everything may be exposed, else what none allows may not.
#define POLICY_PREVIEW "preview"
bool policy_may_expose(Policy *const *policies, size_t n, PolicyProtocol protocol, uint16_t port);
// compile.c: whether policies can be in force together; the bounds that hold for all of an instance's.
int policies_check(Policy *const *policies, size_t n, Error *err);

// rule.c: one rule by itself. `index` is for the names of fields.
void policy_rule_done(PolicyRule *rule);
bool policy_rule_equal(const PolicyRule *a, const PolicyRule *b);
int policy_rule_check(size_t index, const PolicyRule *rule, Error *err); // all but public suffixes
int policy_destination_check(const char *field, const char *to, Error *err);
int policy_rule_copy(const PolicyRule *rule, PolicyRule *ret);
// The rule that entry `i` of the rule's category stands for; all but `to` and `ports` is borrowed, nothing is to be freed. False: the entry has
// a port that is not among the rule's, and stands for nothing.
typedef struct PolicyEntry {
        PolicyRule rule;
        char to[CATEGORY_ENTRY_MAX], ports[8];
} PolicyEntry;
bool policy_rule_of_entry(const PolicyRule *rule, size_t i, PolicyEntry *ret);
bool policy_rule_inspects(const PolicyRule *rule);

// What the enforcing code would do with one packet, or one connection by name. One of `address` and `name` may be NULL: no rule of that
// kind matches then. A name with POLICY_ANY and port 0 asks whether DNS answers it at all.
typedef struct PolicyProbe {
        const char *address;
        PolicyProtocol protocol;
        uint16_t port;
        const char *name, *method, *path;
} PolicyProbe;
typedef struct PolicyAnswer {
        PolicyAction action;
        int index;       // in the concatenated list of the policies' rules, -1 for the default
        char policy[33]; // "" for the default
        char text[512];  // "allowed by rule 2 of policy web: *.example.org tcp 443"
} PolicyAnswer;
int policy_explain(Policy *const *policies, size_t n, const PolicyProbe *probe, PolicyAnswer *ret, Error *err);
