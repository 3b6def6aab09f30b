// SPDX-License-Identifier: GPL-2.0-or-later
// BorderLink: the border's helpers (core/border.h) and the rest of the daemon: views are made of instances, what a helper asks for is done,
// what it tells becomes events, and its death a warning.
#pragma once

#include "core/border.h"
#include "core/manager.h"

#define BORDER_APPLY_TIMEOUT (2 * USEC_PER_SEC)

int border_link_new(Manager *manager, Error *err);
void border_link_start(Manager *manager);
void border_link_free(Manager *manager);
// The slot has another policy, another wire, or none any more. Told to the helpers from the loop, once for all that changes until then.
void border_link_changed(Manager *manager, uint16_t slot);
// Now and then: the host's name servers may be others.
void border_link_tick(Manager *manager);
// Calls `done` once the helpers have all that was changed up to now in force, or after BORDER_APPLY_TIMEOUT, with a warning.
void border_link_wait(Manager *manager, void (*done)(void *userdata), void *userdata);
// Lines of the instance's log of flows into `fd`; see border_query().
int border_link_query(Manager *manager, const BorderQuery *query, int fd, BorderAnswered done, void *userdata);
// Sockets in the run directory that no helper can have: an array of names.
json_t *border_link_leaks(const Manager *manager);
// Whether slots are led to it: a helper that should run and does not is a closed door.
bool border_link_leads(const Manager *manager, BorderPart part);
int border_link_lead(Manager *manager, uint16_t slot, Error *err); // to each, or to where it is refused: see border_link_is_late()
// One that lives and has not taken over what was changed of the slot in BORDER_APPLY_TIMEOUT may enforce what was in force before: the slot is
// led to it and refused there, until it has. Not to lead it there would leave names to the rules by address behind them.
bool border_link_is_late(const Manager *manager, uint16_t slot, BorderPart part);
// For doctor: "" or why not. *ret_state is BORDER_NOT_INSTALLED without a border.
const char *border_link_state(const Manager *manager, BorderPart part, BorderState *ret_state);
bool border_link_is_old(const Manager *manager, BorderPart part); // it runs an older program than the installed one
