// SPDX-License-Identifier: GPL-2.0-or-later
// Ruleset: writes nft text from typed values. Pure: nothing here looks at the machine, so golden tests see all of it.
#pragma once

#include <stdio.h>

#include "network/compile.h"
#include "network/network.h"

#define HOST_PREFIX "hv"     // host ends of the veths; the rules match "hv*"
#define SANDBOX_PREFIX "hvs" // those of sandboxes, "hvs0800x1001": profile and sandbox. No slot's name begins so, it goes on with a digit
#define SANDBOX_MIDDLE "x"
#define ROUTE_MARK 0x100   // set by the chains that have checked a packet; without it the ip rules blackhole
#define LOG_GROUP 10
#define GATEWAY4 "169.254.0.1"
#define GATEWAY6 "fe80::1"

typedef struct Pools { char four[CIDR_TEXT_MAX], six[CIDR_TEXT_MAX]; } Pools;
Pools pools_format(const NetworkSettings *settings);
// What chains of slots and of the border's programs have alike: made empty; the end of what is denied; no way to the host or to an instance.
void chain_new(FILE *f, const char *chain);
void chain_refuse(FILE *f, const char *chain, uint16_t slot); // slot 0: nobody's
void chain_keep_out(FILE *f, const char *chain, const Pools *pools, const char *refused);

// Tables, sets, maps and base chains; all can be there already and keep what they hold.
void ruleset_base(FILE *f, const NetworkSettings *settings);
// Chains, sets and counters of one slot, without the map elements that lead to them; its policy, live set and rate are left as they are. `device`: also the
// netdev chain, made anew (the veth must exist). `within`: of a profile, the slot of its instance, whose chains must be there; else 0.
typedef struct SlotKind { uint16_t within; bool device; } SlotKind;
void ruleset_slot(FILE *f, const NetworkSettings *settings, uint16_t slot, SlotKind kind);
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
// None for a rule by name: the proxy and maps of addresses enforce it. Where there are such maps its mark is in the live set all the same.
size_t ruleset_lines(const CompiledRule *rule, RuleLine *ret);
uint64_t ruleset_left_ms(uint64_t until); // at least 1

// What transact_policy() does, as text, for tests and readers: replaces the rules and the live set. Ids must have been assigned; `next_id` is kept for the next hostd.
typedef struct PolicyText {
        uint16_t slot;
        const Compiled *compiled;
        uint32_t next_id;
        NetworkBorder border;
        bool ids_anew; // ids are given again: no address that was found for an earlier one stays
        uint64_t until; // of a profile: when the first grant of its instance ends, so that its connections are judged again; 0: none
} PolicyText;
int ruleset_policy(FILE *f, const PolicyText *text);
uint64_t ruleset_live_until(const PolicyText *text, const CompiledRule *rule); // of the rule's mark; 0: no end

// border.c: what leads to the border's programs. Ports as in border/border.h of hostd; the last is addressed directly.
enum { REDIRECT_DNS = 8453, REDIRECT_TLS = 8443, REDIRECT_HTTP = 8480, CONNECT_PORT = 3128 };
#define REDIRECTS_MAX 4
typedef struct Redirect { uint8_t protocol; uint16_t from, to; } Redirect;
// In the order of the chain: what does not depend on the policy, then, behind the rules that decide by address, what does.
size_t redirects_dns(const PolicyText *text, Redirect ret[REDIRECTS_MAX]);
size_t redirects_names(const PolicyText *text, Redirect ret[REDIRECTS_MAX]);
// What the policy means for the proxy, whether it is there or not. None of it is forwarded behind the first rule by name: a flow that the
// forward chain sees all the same began before there was a redirect, or while there is none.
size_t redirects_of_policy(const Compiled *compiled, Redirect ret[REDIRECTS_MAX]);
void redirects_split(const Compiled *compiled, Compiled *ret_front, Compiled *ret_behind); // the content is borrowed
// The rules by address in front of the first by name that have to do with a redirected port, as denials. The rules' content is borrowed.
int redirects_in_front(const PolicyText *text, Compiled *ret);
bool redirects_has_names_map(const PolicyText *text); // some rule by name has a port that is not proxied
#define EXPOSED_IDS 0xff00 // marks of exposures: above all ids of rules
void ruleset_border_base(FILE *f);
void ruleset_border_slot(FILE *f, uint16_t slot); // sets and maps, which are kept
void ruleset_border_remove(FILE *f, uint16_t slot); // the chains must be empty
void ruleset_border(FILE *f, uint16_t slot, const NetworkBorder *border);
void ruleset_helpers(FILE *f, const NetworkSettings *settings, const NetworkHelpers *helpers);
#define NAMES_MAX 4096 // addresses and ports in each map of names
#define DNS_MAX 1024   // of a slot's DNS questions that the kernel remembers: its table is everybody's

// limits.c: the chains of a slot's limits and the sets and the quota that they use. What the kernel has counted stays unless it is to
// be made `anew`.
typedef struct LimitsText {
        NetworkLimits limits;
        uint64_t traffic_used; // if there is no quota yet, or it is made anew
        bool police_download;  // there is no tbf, or more than one wire: packets above the rate are dropped
        uint16_t within;       // of a profile: its instance's slot, whose limits hold over the sum of both; a profile has none of its own
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
