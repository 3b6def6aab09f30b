// SPDX-License-Identifier: GPL-2.0-or-later
// SandboxNetwork: the network of one sandbox: a number, a wire, and the profile that it shares with those of its instance that have the same
// policies. What it may is what these allow and its instance's policies, too; see network/network_sandbox.h.
//
// Whoever makes sandboxes keeps one of these for each that has a network, and its number and its policies' names beside its own record, for the
// hostd that comes after (core/sandbox_wire.c).
#pragma once

#include "core/instance.h"
#include "core/policy_set.h"
#include "network/network_sandbox.h"

typedef struct SandboxNetwork SandboxNetwork;

#define SANDBOX_NETWORKS_MAX 2048 // at once

// `policies`: names, NULL-terminated; NULL: the instance's own, whatever they are by then. No wire yet. The instance must run.
int sandbox_network_new(Instance *instance, const char *id, char *const *policies, SandboxNetwork **ret, Error *err);
// Of an earlier hostd, whose wire the kernel has. -ENOENT: it has none.
int sandbox_network_adopt(Instance *instance, const char *id, uint16_t number, char *const *policies, SandboxNetwork **ret, Error *err);
// eth0 in the namespace `netns`, with address and routes, usable when this returns. Names are refused until resolver and proxy listen at the
// wire, some milliseconds later: border_link_wait() tells.
int sandbox_network_plug(SandboxNetwork *network, int netns, Error *err);
// Its packets are dropped from now on, whatever becomes of its namespace. Wire and connections go in a job. NULL is nothing.
SandboxNetwork *sandbox_network_free(SandboxNetwork *network);
uint16_t sandbox_network_number(const SandboxNetwork *network);
const NetworkAddress *sandbox_network_address(const SandboxNetwork *network);

// ---- the rest of the daemon
void sandbox_network_apply(Instance *instance); // its policies, or the texts of policies, are others
void sandbox_network_done(Manager *manager);    // hostd ends: what is in the kernel stays

typedef struct SandboxProfile SandboxProfile;
SandboxProfile *sandbox_profile_next(const Manager *manager, const SandboxProfile *profile); // NULL: the first
SandboxProfile *sandbox_profile_find(const Manager *manager, uint16_t number);
uint16_t sandbox_profile_number(const SandboxProfile *profile);
char *const *sandbox_profile_policies(const SandboxProfile *profile); // names; NULL: its instance's, or none
Instance *sandbox_profile_instance(const SandboxProfile *profile); // NULL: it does not run
SandboxNetwork *sandbox_network_next(const Manager *manager, const SandboxNetwork *network);
SandboxNetwork *sandbox_network_find(const Manager *manager, uint16_t number);
const char *sandbox_network_id(const SandboxNetwork *network);
SandboxProfile *sandbox_network_profile(const SandboxNetwork *network);
