// SPDX-License-Identifier: GPL-2.0-or-later
// The daemon's command manager: what is stored of running commands so that they outlive a restart of hostd.
#pragma once

#include "core/command.h"
#include "core/manager.h"

int command_link_new(Manager *manager, Error *err);
void command_link_free(Manager *manager);
// Commands that a former hostd started in this instance.
void command_link_restore(Instance *instance);
// At start, after adoption: commands of instances that run no more are recorded as lost.
void command_link_sweep(Manager *manager);
