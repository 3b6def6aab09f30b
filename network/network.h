// SPDX-License-Identifier: GPL-2.0-or-later
// Network: the host's side of every instance's wire: routed veth, one nftables table, fail-closed routing.
//
// Everything is named after the slot: veth "hv0001" (the other end is eth0 in the instance), chains and sets "i0001_…".
// All calls are idempotent and synchronous (milliseconds). The table `inet hostd`, `netdev hostd` and the ip rules exist
// before any veth and stay when hostd exits. No name chosen by a person reaches nft.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "network/compile.h"
#include "network/policy.h"

typedef struct NetworkSettings {
        char *uplink;             // NULL: no masquerading until a default route appears; "auto" resolved by the caller with network_find_uplink()
        struct in_addr ipv4_pool; // network address of the instances' pool
        unsigned ipv4_prefix;     // 16..24
        struct in6_addr ipv6_pool;
        unsigned ipv6_prefix;     // 64..112
        bool ipv6_nat;            // masquerade v6 (ULA) or route /128s of a public prefix
} NetworkSettings;

typedef struct NetworkAddress { // what one slot or sandbox gets; pure function of the settings
        char host_ifname[16];
        unsigned char mac[6], host_mac[6];
        struct in_addr ipv4;
        struct in6_addr ipv6;
} NetworkAddress;
void network_address(const NetworkSettings *settings, uint16_t slot, NetworkAddress *ret);

typedef struct Network Network;
// Loads tables and rules (keeping sets, counters and chains of slots that are there), ip rules, sysctls. Slots, rule ids and limits
// of an earlier hostd are found in the kernel and stay in force; call network_attach(), network_set_limits() and
// network_set_policy() for each adopted slot all the same: network_restore() knows only what this object was told.
int network_new(const NetworkSettings *settings, Network **ret, Error *err);
// Last, when the fence is up: ip_forward and the v6 one; an uplink that lives on router advertisements keeps them. What they were is
// kept in the file `before` (may be NULL), which belongs below /run.
int network_enable_forwarding(Network *network, const char *before, Error *err);
Network *network_free(Network *network); // leaves the kernel's state
DEFINE_CLEANUP(Network, network_free)
int network_find_uplink(char **ret); // interface of the default route; -ENOENT

// Makes the slot's chains, sets and routing rules; brings the host's end of its wire in order where there is one. Already so is
// success. network_set_policy() must follow before network_plug(); until then all is denied.
int network_attach(Network *network, uint16_t slot, Error *err);
// Makes the wire of an attached slot: its other end is born in the network namespace `netns` (a descriptor) as eth0, with address and
// routes. An interface that has the slot's name already is removed first: whoever holds its other end, it is not this namespace.
// On failure there is none.
int network_plug(Network *network, uint16_t slot, int netns, Error *err);
bool network_is_plugged(const Network *network, uint16_t slot);
int network_detach(Network *network, uint16_t slot, Error *err);
// Only removes an interface, which is what takes long: a forked job may do it ahead of detach. By index, since by the time the job
// runs the name may be a successor's. 0 is no interface.
unsigned network_interface(const Network *network, uint16_t slot);
int network_unplug(unsigned interface, Error *err);
// What was compiled of the slot's policies, with the ids that its rules have in the kernel. Borrowed; NULL while no policy was set.
Compiled *network_compiled(const Network *network, uint16_t slot);
// One transaction; established flows that the new policies do not admit are cut by it, others do not lose a packet.
int network_set_policy(Network *network, uint16_t slot, Policy *const *policies, size_t n, Error *err);

// What of the border is there for a slot. Without it DNS and names are what the rules by address make of them: none.
typedef struct NetworkBorder {
        bool resolver; // every DNS question goes to it
        bool proxy;    // with rules by name TCP 443 and 80 go to it, and CONNECT may be asked of it
        bool resolver_shut, proxy_shut; // what is led there is refused, connections that exist too: it might decide by an older policy
} NetworkBorder;
// Before the policy of a slot that an earlier hostd left.
int network_set_border(Network *network, uint16_t slot, const NetworkBorder *border, Error *err);
// An address that the resolver found for the allow by name with this id, until ttl_s and a grace have passed; once more is a new beginning.
// Nothing where a rule by address in front decides. ERR_DENIED: no such rule, or a range that is denied by default. ERR_QUOTA: the map is full.
typedef struct NetworkName {
        uint16_t slot, rule_id;
        int family;
        unsigned char address[16];
        uint32_t ttl_s;
        uint32_t ports; // of the rule: see PolicyInsert
} NetworkName;
int network_name_insert(Network *network, const NetworkName *name, Error *err);

// A port of the host's own addresses that leads into an instance, from everywhere or from one network; the instance sees who comes.
#define NETWORK_EXPOSURES_MAX 64 // of one slot
typedef struct NetworkExposure {
        uint16_t slot;
        uint8_t id;       // 0..NETWORK_EXPOSURES_MAX - 1: the caller's, another one for each of a slot
        uint8_t protocol; // IPPROTO_TCP or IPPROTO_UDP
        uint16_t host_port, port;
        int from_family;  // 0: from everywhere, IPv4 and IPv6
        unsigned char from[16];
        unsigned from_prefix;
        uint64_t left_ms; // then the kernel ends it, with its connections; 0: until network_unexpose()
} NetworkExposure;
// Already so is success, and does not begin its time anew. ERR_CONFLICT: another slot has the port.
int network_expose(Network *network, const NetworkExposure *exposure, Error *err);
int network_unexpose(Network *network, const NetworkExposure *exposure, Error *err); // its connections end with it; absent is success

// The users of the border's programs: they reach nothing private, nothing of the host and no instance, but answer those who ask them.
#define NETWORK_HELPERS_MAX 8
#define NETWORK_UPSTREAMS_MAX 8
typedef struct NetworkHelpers {
        uint32_t uids[NETWORK_HELPERS_MAX];
        uint32_t n_uids;
        uint32_t first_uid, last_uid; // and all of these; 0: none
        uint32_t resolver; // among them the one that may ask the upstreams, wherever they are; 0: none
        struct NetworkUpstream { int family; unsigned char address[16]; } upstreams[NETWORK_UPSTREAMS_MAX];
        uint32_t n_upstreams;
} NetworkHelpers; // without holes
// What an earlier hostd set stays until then. Nothing is done when it is so already.
int network_set_helpers(Network *network, const NetworkHelpers *helpers, Error *err);
int network_helpers_denied(Network *network, uint64_t *ret_packets); // packets that this kept in

#define NETWORK_UNLIMITED UINT64_MAX
typedef struct NetworkLimits {
        uint64_t upload, download; // bytes a second
        uint64_t connections;      // at once
        uint64_t connection_rate;  // new ones a second
        uint64_t destinations;     // distinct addresses and ports a minute
        uint64_t traffic;          // bytes, both ways together, until network_traffic_begin()
} NetworkLimits;
#define NETWORK_LIMITS_NONE {NETWORK_UNLIMITED, NETWORK_UNLIMITED, NETWORK_UNLIMITED, NETWORK_UNLIMITED, NETWORK_UNLIMITED, NETWORK_UNLIMITED}
// Before the policy of a slot that an earlier hostd left; a new slot has none of them.
int network_set_limits(Network *network, uint16_t slot, const NetworkLimits *limits, Error *err);
// What of `traffic` is used. -ENOENT while there is no such limit.
int network_traffic(Network *network, uint16_t slot, uint64_t *ret_used, Error *err);
// A new day: what is used is 0 again. And what was used before a stop, for a slot that is new: a count that the kernel has is kept.
int network_traffic_begin(Network *network, uint16_t slot, Error *err);
int network_traffic_resume(Network *network, uint16_t slot, uint64_t used, Error *err);
// The kernel told, since the last call, that some slot's traffic is used up.
bool network_is_spent(Network *network);
// Closes the slot in both directions; established flows are forgotten. The kernel keeps it so when hostd ends.
int network_set_cut(Network *network, uint16_t slot, bool cut, Error *err);

typedef struct NetworkCounters {
        uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes, denied_packets, denied_bytes, spoofed_packets;
        uint64_t connections, connection_rate, destinations, traffic; // packets that were denied for a limit; also among `denied`
} NetworkCounters;
int network_counters(Network *network, uint16_t slot, NetworkCounters *ret, Error *err);
// Text of the slot's chains as the kernel has them, for `hostctl network show`.
int network_dump(Network *network, uint16_t slot, char **ret, Error *err);

// Watches NFNLGRP_NFTABLES: fd for the loop (EPOLLIN); dispatch says whether our table was touched by somebody else and must be
// restored. network_restore() reloads everything from what the object knows (slots, policies, rates).
int network_watch_fd(Network *network);
int network_watch_dispatch(Network *network, bool *ret_lost);
int network_restore(Network *network, Error *err);

// Kernel objects of ours (veths, chains, sets, rules) of slots, profiles and sandboxes that are not in `live`. network_detach() of the number removes them.
typedef struct NetworkLeak {
        uint16_t slot;
        char *object; // "interface hv0001"
} NetworkLeak;
typedef struct NetworkLeaks {
        NetworkLeak *leaks;
        size_t n;
} NetworkLeaks;
int network_leaks(const uint16_t *live, size_t n, NetworkLeaks *ret, Error *err);
void network_leaks_done(NetworkLeaks *leaks);
// Chains of other programs that stop what a policy allows: a drop in any table is final. What they are asked is not all understood: a
// chain whose own sets or maps let instances pass is named, too.
typedef struct NetworkObstacle {
        char *what; // "chain forward of table inet firewall drops …"
        char *fix;  // commands
} NetworkObstacle;
typedef struct NetworkObstacles {
        NetworkObstacle *obstacles;
        size_t n;
} NetworkObstacles;
int network_obstacles(NetworkObstacles *ret, Error *err);
void network_obstacles_done(NetworkObstacles *obstacles);
// For doctor: missing table, ip_forward and so on; each "state: text" with the fix.
int network_doctor(Network *network, char ***ret, Error *err);
// Removes all that is ours (quickstart --clean, purge) and puts back what `before` says, unless somebody else needs it; `notes` gets
// a line of what was done about that.
int network_remove_all(const char *before, char ***notes, Error *err);
