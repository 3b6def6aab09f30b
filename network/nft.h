// SPDX-License-Identifier: GPL-2.0-or-later
// Nft: transactions of text through libnftables, and the few reads that are asked of the kernel directly.
//
// libnftables reads sets, chains and objects of every table before a command (not foreign elements or rules), so single objects
// are read by libnftnl, which costs the same whatever else is loaded.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

// One transaction: all of it or nothing. `purpose` begins the error's sentence.
int nft_apply(const char *text, const char *purpose, Error *err);
// Output of list commands.
int nft_list(const char *commands, char **ret, Error *err);

// -ENOENT if there is no such counter.
int nft_counter(int family, const char *name, uint64_t *ret_packets, uint64_t *ret_bytes);

// Bytes that a quota of `inet hostd` has counted.
int nft_quota(const char *name, uint64_t *ret_used);

typedef struct NftChain {
        int family;
        const char *table, *name, *type; // type: NULL for a regular chain
        uint32_t hook, policy;           // NF_INET_*, NF_DROP or NF_ACCEPT
} NftChain;
typedef int (*NftChainHandler)(const NftChain *chain, void *userdata);
// All chains of all tables; rules and elements are not touched.
int nft_chains(NftChainHandler fn, void *userdata);
// Comments of the rules of one chain of `inet hostd`.
typedef int (*NftCommentHandler)(const char *comment, void *userdata);
int nft_comments(const char *chain, NftCommentHandler fn, void *userdata);
// Elements of one of its sets of marks, with their comments.
typedef int (*NftMarkHandler)(uint32_t mark, const char *comment, void *userdata);
int nft_marks(const char *set, NftMarkHandler fn, void *userdata);
// Elements of one of its maps of names.
typedef struct NftNameElement {
        int family;
        unsigned char address[16];
        uint8_t protocol;
        uint16_t port;
        uint32_t mark;
        uint64_t left_ms;
} NftNameElement;
typedef int (*NftNameHandler)(const NftNameElement *element, void *userdata);
int nft_names_map(const char *set, int family, NftNameHandler fn, void *userdata);
// Interfaces that have an address in src4.
typedef int (*NftSourceHandler)(const char *ifname, void *userdata);
int nft_sources(NftSourceHandler fn, void *userdata);
// Elements of a map of exposed ports: where each leads.
typedef struct NftExposed {
        int family;
        uint8_t protocol;
        uint16_t port;
        unsigned char address[16];
} NftExposed;
typedef int (*NftExposedHandler)(const NftExposed *element, void *userdata);
int nft_exposed(const char *map, int family, NftExposedHandler fn, void *userdata);
// What of a rule can be told without knowing its language.
typedef enum NftVerdict { NFT_VERDICT_OTHER, NFT_VERDICT_ACCEPT, NFT_VERDICT_DROP, NFT_VERDICT_REJECT, NFT_VERDICT_CHAIN } NftVerdict;
typedef struct NftRule {
        NftVerdict verdict;
        const char *chain;        // of NFT_VERDICT_CHAIN
        bool always;              // nothing is asked: every packet that comes here
        bool states;              // asks for the connection's state
        bool interfaces;          // asks for nothing but interfaces
        char iif[17], oif[17];    // names or beginnings of names ("hv" of "hv*"); "" if not asked for
} NftRule;
typedef int (*NftRuleHandler)(const NftRule *rule, void *userdata);
// The rules of one chain of any table, in order.
typedef struct NftPlace { int family; const char *table, *chain; } NftPlace;
int nft_rules(const NftPlace *place, NftRuleHandler fn, void *userdata);
// What the kernel calls this process in its notices (differs from getpid() in a pid namespace).
int nft_own_pid(uint32_t *ret);
// Forgets connections whose mark has these bits.
int nft_forget_flows(uint32_t mark, uint32_t mask);
// And, of these, those that this address began. One by one: it takes as long as there are connections on the host.
typedef struct NftFlows { uint32_t mark, mask; int family; const void *address; } NftFlows;
int nft_forget_flows_of(const NftFlows *flows);

// Appends the names of all chains, sets and objects in tables named hostd.
int nft_names(char ***names);
