// SPDX-License-Identifier: GPL-2.0-or-later
// Warm: while commands are coming or instances start, moves into their control groups do not wait for the kernel
// (quotas/cgroup_warm.c).
#pragma once

#include "core/manager.h"

// From the first hold to the last release; also while hostd itself is busy or waits for the disk.
void warm_hold(Manager *manager);
void warm_release(Manager *manager);
void warm_begin(Manager *manager); // a command was moved: for WARM_FOR from now the next ones are quick
