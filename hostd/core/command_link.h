// SPDX-License-Identifier: GPL-2.0-or-later
// The daemon's command manager: what is stored of running commands so that they outlive a restart of hostd.
#pragma once

#include "core/command.h"
#include "core/manager.h"

int command_link_new(Manager *manager, Error *err);
void command_link_free(Manager *manager);
// Commands that a former hostd started at this place: an instance by its name, or a sandbox (sandbox_place()).
void command_link_restore(Manager *manager, const char *place, GuestChannel *channel);
// The place is gone, and its commands were never taken up: they are recorded as lost.
void command_link_lose(Manager *manager, const char *place);
// At start, after adoption: commands of instances that run no more are recorded as lost.
void command_link_sweep(Manager *manager);
