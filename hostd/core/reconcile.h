// SPDX-License-Identifier: GPL-2.0-or-later
// Reconcile: observes, asks the planner, acts. No opinions of its own.
#pragma once

#include "core/manager.h"

void reconcile_run(Manager *manager);
