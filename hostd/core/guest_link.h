// SPDX-License-Identifier: GPL-2.0-or-later
// Links an instance to its hostd-guest and the commands that run through it: made when hostd-instance hands over the channel,
// undone when either end is gone.
#pragma once

#include "core/command.h"
#include "core/instance.h"

void guest_link_up(Instance *instance, int fd /* owned */, pid_t pid);
void guest_link_down(Instance *instance);
void guest_link_open(Instance *instance); // commands may come: what has to be there before them is
json_t *command_record_json(const CommandRecord *record);
