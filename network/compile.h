// SPDX-License-Identifier: GPL-2.0-or-later
// Compile: the policies of a slot as one ordered list of typed matches, categories expanded. The firewall (ruleset.c, transact.c), the
// resolver, the proxy and the explanation (policy.c) all work on this list, so that they cannot disagree about order, about the
// denied ranges or about port 25. decide.c walks it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "network/name.h"
#include "network/policy.h"

#define COMPILED_PORTS_MAX 128
#define COMPILED_RULES_MAX 32768 // of one slot, categories expanded
#define COMPILED_INDEX_MAX (1 << 20)
#define COMPILED_DIGEST 16 // hex digits of the effect's digest that the kernel keeps for us in the rule's comment
#define SMTP_PORT 25
#define GRANT_PREFIX "grant-" // a policy with one rule that ends: what was approved, by the number of the approval

typedef struct PortRange { uint16_t first, last; } PortRange;

typedef struct Cidr {
        int family;              // AF_INET or AF_INET6
        unsigned char bytes[16]; // network order; host bits zero
        unsigned prefix;
} Cidr;

typedef enum RuleKind { RULE_ADDRESS, RULE_NAME, RULE_SUFFIX, RULE_ANY_NAME } RuleKind;

typedef struct CompiledRule {
        PolicyAction action;
        RuleKind kind;
        PolicyProtocol protocol; // of an allow by name never POLICY_ANY
        Cidr to;           // RULE_ADDRESS
        char *name;        // owned; RULE_NAME: the name, RULE_SUFFIX: what is behind "*."; else NULL
        PortRange *ports;  // sorted, disjoint; NULL: any. An allow by name always has some
        size_t n_ports;
        bool spare_denied; // a broad allow: it does not reach what is denied by default
        bool spare_smtp;   // an allow that does not name TCP 25
        PolicyGit git;
        bool inspect;      // or has methods, paths or git
        char **methods, **paths; // owned; NULL: any
        uint64_t rate, budget;   // 0: none
        uint64_t until;          // it matches nothing any more from then on, whoever walks the list; 0: no end
        int index;         // of the operator's rule, in the concatenated list of the policies' rules
        uint16_t policy;   // in Compiled.policies
        uint16_t id;       // low half of the conntrack mark; 0 until it was assigned, and for ever where none is: see compiled_rule_is_marked()
        char digest[COMPILED_DIGEST + 1]; // of this rule and of each denial in front of it: equal digest, equal effect; "" from a view, and of an allow without a mark
} CompiledRule;

typedef struct CompiledPolicy {
        char *name; // owned
        int first;  // index of its first rule in the concatenated list
} CompiledPolicy;

typedef struct NameEntry { const char *name; uint32_t rule; bool suffix; } NameEntry; // "*" is the suffix ""

typedef struct Compiled {
        CompiledRule *rules;
        size_t n;
        CompiledPolicy *policies;
        size_t n_policies;
        NameEntry *names; // of all rules with names, sorted by name, kind and place
        size_t n_names;
        uint32_t *addresses; // places of all others, ascending
        size_t n_addresses;
        Category *spared; // owned share: names that an allow of "*" does not reach; NULL for none
        bool offline; // allows were left out: see policy_bind()
        struct Compiled *within; // owned share: nothing is allowed that this one denies; NULL: it stands alone. See compiled_set_within()
        unsigned shared; // owners besides the first
} Compiled;

int compiled_new(Policy *const *policies, size_t n, Compiled **ret, Error *err);
Compiled *compiled_free(Compiled *compiled);
Compiled *compiled_share(Compiled *compiled); // one more owner; a shared one must not be changed any more
DEFINE_CLEANUP(Compiled, compiled_free)
// A sandbox's list is bounded by its instance's. They stay two lists, asked one after the other: one list would need a rule for each pair,
// and rules that are about a name and an address at once. Shares `within` (NULL: none), which has none itself. The one change that a shared
// list may see.
void compiled_set_within(Compiled *compiled, Compiled *within);
// For the parser of views: makes one piece by piece. `rule` must have been checked; compiled_seal() makes the index.
int compiled_begin(size_t n_policies, Compiled **ret);
int compiled_add_policy(Compiled *compiled, const char *name, int first);
int compiled_add(Compiled *compiled, const PolicyRule *rule, int index, CompiledRule **ret);
int compiled_seal(Compiled *compiled);

// What is denied unless a rule names it: arrays of CIDR texts, disjoint and sorted, ending with NULL.
const char *const *denied_ranges(int family);
bool denied_by_default(const Cidr *address);

// Sorted and joined; -EINVAL for what VALID_PORTS refuses. The caller frees.
int ports_parse(const char *text, PortRange **ret, size_t *ret_n);
int cidr_parse(const char *text, Cidr *ret);
bool cidr_contains(const Cidr *outer, const Cidr *inner);
char *cidr_format(const Cidr *cidr, char *buf, size_t size);
#define CIDR_TEXT_MAX 64
// An allow that the kernel may write on a connection, or let one pass by: by address, or by name with a port besides the proxy's. What only
// the proxy carries out has no id and no live mark; the connections to the proxy have the mark 0 of their slot.
bool compiled_rule_is_marked(const CompiledRule *rule);
bool compiled_rule_is_of_requests(const CompiledRule *rule); // of some to its destination only, not of all
Cidr cidr_of_address(int family, const void *bytes);
bool compiled_rule_matches(const CompiledRule *rule, const Cidr *address, PolicyProtocol protocol, uint16_t port); // RULE_ADDRESS
bool compiled_rule_has_port(const CompiledRule *rule, PolicyProtocol protocol, uint16_t port); // any kind; port 25 is spared where it is
bool compiled_rule_is_over(const CompiledRule *rule); // by the wall clock
uint64_t compiled_next_end(const Compiled *compiled, uint64_t now); // of the rules that have not ended by then, those around included; UINT64_MAX: none
bool compiled_rule_port(const CompiledRule *rule, unsigned i, uint16_t *ret); // the i-th, its ranges counted through; false behind the last
// Text of the rule's `to` and of its ports ("" for any), from which the same rule can be made again.
char *compiled_rule_to(const CompiledRule *rule, char buf[NAME_TEXT_MAX + 2]);
char *compiled_rule_ports(const CompiledRule *rule); // NULL on OOM; caller frees
unsigned compiled_rule_number(const Compiled *compiled, const CompiledRule *rule); // in its policy, as the operator counts: from 1
size_t compiled_first_name(const Compiled *compiled); // place of the first rule with a name; n if there is none
bool compiled_is_proxied(PolicyProtocol protocol, uint16_t port); // TCP 80 and 443: the proxy connects; else the kernel needs the addresses

// ---- decide.c
// NULL or 0 is what is not known. A name with POLICY_ANY and port 0 asks whether it may be resolved: an allow by name decides so unless
// denials by name in front of it leave none of its ports, and so does an allow of 0.0.0.0/0 or ::/0.
typedef struct PolicyQuestion {
        const char *name;    // name_normalise()d
        const Cidr *address; // one address
        PolicyProtocol protocol;
        uint16_t port;
        const char *method, *path; // not known: a rule that has them matches
        int family;          // of the addresses that are wanted of a name that may be resolved; 0: any
} PolicyQuestion;
typedef struct PolicyDecision {
        PolicyAction action;
        const CompiledRule *rule; // NULL: none matched. Lives as long as the compiled list
        int index;                // of the operator's rule in the concatenated list, -1 for the default
        const char *policy;       // NULL for the default
        bool spared;              // by the default, because "*" does not reach the name
        const Compiled *of;       // the list that decided: the one that was asked, or what it is within
        const CompiledRule *outer; // of an allow: the rule of the list around, which allowed it too; NULL where there is none
} PolicyDecision;
// A denial is of the list itself if it denies, else of the one around; an allow is of both.
PolicyDecision policy_decide(const Compiled *compiled, const PolicyQuestion *question);
// The sentence: "denied by rule 1 of policy web: evil.example any". Cut off where it has no room.
char *policy_decision_text(const Compiled *compiled, const PolicyDecision *decision, char *buf, size_t size);
// Allows by name that match and have ports which are neither proxied nor denied to this name in front, in order; how many there are, though
// at most `max` are stored.
#define INSERT_PORTS_MAX 32
#define NETWORK_NAME_GRACE 600 // seconds that an address stays open behind the end of its answer
typedef struct PolicyInsert {
        const CompiledRule *rule;
        uint32_t ports; // bit i: compiled_rule_port() i. What has no bit is not opened
} PolicyInsert;
size_t policy_inserts(const Compiled *compiled, const char *name, PolicyInsert *ret, size_t max); // of this list alone: each has a map of its own
// Whether an address may be in an answer: not in the ranges that are denied by default, or inside one that an allow names on purpose.
bool policy_may_answer(const Compiled *compiled, const Cidr *address);
