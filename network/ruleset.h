// SPDX-License-Identifier: GPL-2.0-or-later
// Ruleset: writes nft text from typed values. Pure: nothing here looks at the machine, so golden tests see all of it.
#pragma once

#include <stdio.h>

#include "network/compile.h"
#include "network/network.h"

#define HOST_PREFIX "hv"   // host ends of the veths; the rules match "hv*"
#define ROUTE_MARK 0x100   // set by the chains that have checked a packet; without it the ip rules blackhole
#define LOG_GROUP 10
#define GATEWAY4 "169.254.0.1"
#define GATEWAY6 "fe80::1"

// Tables, sets, maps and base chains; all can be there already and keep what they hold.
void ruleset_base(FILE *f, const NetworkSettings *settings);
// Chains, sets and counters of one slot, without the map elements that lead to them; its policy, live set and rate are left as they are. `device`: also the
// netdev chain, made anew (the veth must exist).
void ruleset_slot(FILE *f, const NetworkSettings *settings, uint16_t slot, bool device);
// The netdev chain alone.
void ruleset_gate(FILE *f, const NetworkSettings *settings, uint16_t slot);
// The map elements must be gone before.
void ruleset_slot_remove(FILE *f, const NetworkSettings *settings, uint16_t slot);
// One rule of the kernel: what a compiled rule becomes, in one place for the text and for the messages of transact.c.
typedef struct RuleLine {
        const CompiledRule *rule;
        uint8_t protocol;   // IPPROTO_*, 0: any
        bool protocol_not;  // all but this protocol
        PortRange ports;    // first 0: any
        bool port_not_smtp;
} RuleLine;
#define RULE_LINES_MAX (COMPILED_PORTS_MAX + 1)
// None for a rule by name: the proxy and maps of addresses enforce it. Its mark is in the live set all the same.
size_t ruleset_lines(const CompiledRule *rule, RuleLine *ret);

// What transact_policy() does, as text, for tests and readers: replaces the rules and the live set. Ids must have been assigned; `next_id` is kept for the next hostd.
int ruleset_policy(FILE *f, uint16_t slot, const Compiled *compiled, uint32_t next_id);

// limits.c: the chains of a slot's limits and the sets and the quota that they use. What the kernel has counted stays unless it is to
// be made `anew`.
typedef struct LimitsText {
        NetworkLimits limits;
        uint64_t traffic_used; // if there is no quota yet, or it is made anew
        bool police_download;  // there is no tbf: packets above the rate are dropped
        bool connections_anew, destinations_anew, traffic_anew;
} LimitsText;
void ruleset_limits(FILE *f, uint16_t slot, const LimitsText *text);
void ruleset_limits_remove(FILE *f, uint16_t slot); // the chains must be empty
// Closes the slot to all traffic, both ways, established or not; or takes that back.
void ruleset_cut(FILE *f, uint16_t slot, bool cut);
// Removes both tables, present or not.
void ruleset_remove(FILE *f);

// inspect.c: network_doctor() without the object.
int network_doctor_settings(const NetworkSettings *settings, char ***ret, Error *err);
