// SPDX-License-Identifier: GPL-2.0-or-later
// Compile: the policies of a slot as one ordered list of typed matches. Enforcement (ruleset.c) and explanation (policy.c)
// both walk this list, so that they cannot disagree about order, about the denied ranges or about port 25.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "network/policy.h"

#define COMPILED_PORTS_MAX 128
#define COMPILED_DIGEST 16 // hex digits of the effect's digest that the kernel keeps for us in the rule's comment
#define SMTP_PORT 25

typedef struct PortRange { uint16_t first, last; } PortRange;

typedef struct Cidr {
        int family;              // AF_INET or AF_INET6
        unsigned char bytes[16]; // network order; host bits zero
        unsigned prefix;
} Cidr;

typedef struct CompiledRule {
        PolicyAction action;
        PolicyProtocol protocol;
        Cidr to;
        PortRange *ports; // sorted, disjoint; NULL: any
        size_t n_ports;
        bool spare_denied; // a broad allow: it does not reach what is denied by default
        bool spare_smtp;   // an allow that does not name TCP 25
        int index;         // in the concatenated list of the policies' rules
        uint16_t id;       // low half of the conntrack mark; 0 until it was assigned (and for denials)
        char digest[COMPILED_DIGEST + 1]; // of this rule and of each denial in front of it: equal digest, equal effect
} CompiledRule;

typedef struct Compiled {
        CompiledRule *rules;
        size_t n;
} Compiled;

int compiled_new(Policy *const *policies, size_t n, Compiled **ret, Error *err);
Compiled *compiled_free(Compiled *compiled);
DEFINE_CLEANUP(Compiled, compiled_free)

// What is denied unless a rule names it: arrays of CIDR texts, disjoint and sorted, ending with NULL.
const char *const *denied_ranges(int family);

int cidr_parse(const char *text, Cidr *ret);
bool cidr_contains(const Cidr *outer, const Cidr *inner);
char *cidr_format(const Cidr *cidr, char *buf, size_t size);
#define CIDR_TEXT_MAX 64
bool compiled_rule_matches(const CompiledRule *rule, const Cidr *address, PolicyProtocol protocol, uint16_t port);
