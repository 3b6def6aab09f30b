// SPDX-License-Identifier: GPL-2.0-or-later
// Warm: while commands are coming, moves into their control groups do not wait for the kernel (quotas/cgroup_warm.c).
#pragma once

#include "core/manager.h"

void warm_begin(Manager *manager); // a command was moved: for WARM_FOR from now the next ones are quick
