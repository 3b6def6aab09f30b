// SPDX-License-Identifier: GPL-2.0-or-later
// Group: which lines of a compiled policy become one rule of the kernel.
//
// Lines that differ by their address only, or by address and port, are one look-up in a map from these to the mark of their rule: the
// kernel takes a tenth of the time to load, check and walk them, and each still has its own mark. The first line that matches a packet
// decides as before: a line joins a group in front of others only if no packet can match both it and one of these.
#pragma once

#include "network/ruleset.h"

typedef struct Group {
        const RuleLine *lines; // in order; of a mapped group sorted by key, and no key twice
        size_t n;
        bool mapped;      // one rule with a map (allow) or a set (deny); else a rule for each line
        bool port_in_key; // the key is address and port, not the address alone
} Group;

typedef struct Groups {
        Group *groups;
        size_t n;
        RuleLine *lines; // of all groups
} Groups;

int groups_new(const Compiled *compiled, Groups *ret);
void groups_done(Groups *groups);
