// SPDX-License-Identifier: GPL-2.0-or-later
// Guard: one limit around all instances, so that a share of the host's memory and processes stays the host's whatever their own limits
// add up to; see admission_guard().
#pragma once

#include "core/manager.h"

// At start and when the reserve has changed. A failure leaves the host without the guard, and the doctor says so.
int guard_apply(Manager *manager, Error *err);
// The limit as the kernel has it: UINT64_MAX where there is none; -ENOENT while no instance runs and no group is there.
int guard_read(Manager *manager, uint64_t *ret_memory);
