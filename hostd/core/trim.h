// SPDX-License-Identifier: GPL-2.0-or-later
// Trim: memory that a call needed for a moment goes back to the kernel. A large policy or a long list takes some MiB, which the allocator
// would keep: hostd is promised to be small when it has nothing to do.
#pragma once

#include "core/manager.h"

void trim_soon(Manager *manager); // a call has ended: TRIM_AFTER from now, unless that is due already
