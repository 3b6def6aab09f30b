// SPDX-License-Identifier: GPL-2.0-or-later
// BuildWire: the network of one build: a slot of its own (SLOT_BUILDS), a wire into the network namespace that hostd-build made and asked from,
// and a policy that nobody wrote: the mirrors of the host's apt (core/build_policy.h). Rules, resolver, proxy and records are those of
// instances; the log is "build-NAME".
//
// A build needs the border's programs and is refused without them. It has no packet before its policy is in force, and its wire goes when it ends,
// however it ends: what a killed hostd leaves is the next one's sweep's.
#pragma once

#include <sys/types.h>

#include "border/record.h"
#include "core/manager.h"

typedef struct BuildWire BuildWire;

// `owner`: the user that hostd-build runs as. `ret_socket` is hostd-build's end of where it asks (build/wire.h), the caller's to close.
int build_wire_new(Manager *manager, const char *recipe, uid_t owner, BuildWire **ret, int *ret_socket, Error *err);
// The build is over, or given up. What is left of it goes from the loop.
BuildWire *build_wire_free(BuildWire *wire);
// Names in front of a failure what was denied to the build, if anything was, and what it may reach.
void build_wire_explain(const BuildWire *wire, Error *err);

BuildWire *build_wire_by_slot(const Manager *manager, uint16_t slot); // also of one that is on its way out; NULL
BuildWire *build_wire_next(const Manager *manager, const BuildWire *wire); // of all; NULL: the first
uint16_t build_wire_slot(const BuildWire *wire);
const char *build_wire_name(const BuildWire *wire); // of its log
bool build_wire_is_live(const BuildWire *wire); // has a policy, and is not on its way out
void build_wire_denied(BuildWire *wire, const FlowRecord *record);
