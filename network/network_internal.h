// SPDX-License-Identifier: GPL-2.0-or-later
// Network, inside: the object as network.c and its parts (network_limits.c) share it.
#pragma once

#include <stdio.h>

#include "base/clock.h"
#include "network/network_sandbox.h"
#include "network/transact.h"
#include "network/watch.h"

typedef struct KnownId {
        char digest[COMPILED_DIGEST + 1];
        uint16_t id;
} KnownId;

typedef struct KeptName {
        NameElement element;
        usec_t until; // monotonic
} KeptName;

typedef struct Slot {
        uint16_t slot;
        uint16_t within;    // of a profile: the slot of its instance; else 0
        Compiled *compiled; // NULL until a policy was set by this process
        KnownId *known;     // of the rules that the kernel has; survives a restart in the comments of their marks
        size_t n_known;
        uint32_t next_id;
        bool ids_anew;      // ids began again, and the kernel does not have a policy with the new ones yet
        LimitsText limits;
        bool fresh;              // attached by this process, so that the kernel has counted nothing yet
        bool limits_set;         // by this process; else the kernel may have others,
        uint64_t kernel_connections, kernel_destinations; // of which these are read back; 0: none
        bool cut, cut_set;       // the same
        NetworkBorder border;
        bool border_set;
        KeptName *names;         // what the kernel's maps hold, without what has ended
        size_t n_names;
        struct { NetworkExposure exposure; usec_t until; } exposures[NETWORK_EXPOSURES_MAX]; // monotonic; USEC_INFINITY: without end
        size_t n_exposures;
} Slot;

typedef struct SandboxWire { uint16_t sandbox, profile; } SandboxWire;

struct Network {
        NetworkSettings settings;
        Slot **slots; // profiles among them
        size_t n_slots;
        SandboxWire *sandboxes; // whose addresses are in the kernel
        size_t n_sandboxes;
        Watch *watch;
        NetworkHelpers helpers;
        bool helpers_set;            // by this process
        bool lacks_rate, lacks_fair; // what this kernel was found not to have
};

Slot *slot_find(const Network *network, uint16_t number);
Slot *slot_add(Network *network, uint16_t number);
void slot_remove(Network *network, uint16_t number);
int slot_load(Network *network, uint16_t number, bool device, Error *err); // its chains, and what leads to them
int slot_restarted(Slot *slot, Error *err); // after slot_renumber() left ids_anew, and the kernel has them
int slot_renumber(Slot *slot, Compiled *compiled, KnownId **ret, size_t *ret_n); // gives the rules their ids

// A transaction's text in the making.
typedef struct Script {
        FILE *f;
        char *text;
        size_t size;
} Script;
void script_done(Script *script);
int script_open(Script *script, Error *err);
int script_apply(Script *script, const char *purpose, Error *err);

PolicyText slot_policy(const Slot *slot, const Compiled *compiled); // what the kernel should have of it

// network_sandbox.c
int network_recover_sandboxes(Network *network);
int network_load_sandboxes(Network *network, Transaction *transaction);
int profiles_detach(Network *network, uint16_t within, Error *err); // all of an instance
int sandboxes_detach(Network *network, uint16_t profile, Error *err); // all of a profile
// The marks of an instance's profiles change with its policy, in one transaction: their connections are judged again, by both.
typedef struct Renewal {
        Slot *slot;
        KnownId *known; // of the new ids; NULL when it is in force
        size_t n_known;
        uint16_t *ids;  // of the rules before
} Renewal;
typedef struct Renewals { Renewal *list; size_t n; } Renewals;
int profiles_renew(Network *network, const Slot *instance, const Compiled *compiled, Transaction *transaction, Renewals *ret);
int renewals_commit(Network *network, const Slot *instance, Renewals *renewals, Error *err);
void renewals_done(Renewals *renewals); // what was not committed is undone

// network_border.c
int slot_recover_names(Slot *slot);
int slot_restore_names(Slot *slot, Transaction *transaction); // after a flush

// network_expose.c
int slot_restore_exposures(Slot *slot, const NetworkSettings *settings, Transaction *transaction);
int slot_unexpose_all(const NetworkSettings *settings, uint16_t slot); // whoever exposed it

// network_limits.c
int slot_recover_limits(Slot *slot);
int slot_forget_flows(const Network *network, const Slot *slot); // of its profiles, too
int limits_share(Network *network, Slot *slot, Error *err); // it has sandboxes now, or none any more
int slot_pace(Network *network, Slot *slot, Error *err); // its wire, if there is one, by its download rate
