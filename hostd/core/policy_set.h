// SPDX-License-Identifier: GPL-2.0-or-later
// PolicySet: the policies that an instance lives under, as they are for this instance: "@packages" is what the package clients of its template
// use, and an instance that is offline has no more than what is named. Whoever enforces or explains takes them from here.
#pragma once

#include "core/manager.h"

typedef struct PolicySet {
        Policy **list; // owned shares, in order
        size_t n;
} PolicySet;
#define POLICY_SET_NULL ((PolicySet) {NULL, 0})

void policy_set_done(PolicySet *set);
// `desired` may be a set that is not in force yet. `template`: a name or digest to go by; NULL: of the instance's root, or, before it has one,
// of its configuration. Errors say what to do.
int policy_set_load(Manager *manager, const Desired *desired, const InstanceConfig *config, const char *template, PolicySet *ret, Error *err);
// Every instance's can be in force.
int policy_set_check_all(Manager *manager, const Desired *desired, Error *err);
// A template's list is another: instances with that root are brought to it.
void policy_set_changed(Manager *manager, const char *digest);
