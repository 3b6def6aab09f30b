// SPDX-License-Identifier: GPL-2.0-or-later
// Packages: the package policy of an instance as its package clients' own settings, in files that they read for every user.
//
// What clients can be told is little, and root of the instance can take it back: it keeps honest programs from surprises. What cannot be fetched is
// decided by the network's policy. A file that is there already and not of our writing is left as it is.
#pragma once

#include <stdint.h>

#include "base/error.h"

// `root` is "/"; `flags` GUEST_PACKAGES_…, 0 to take everything away.
int packages_apply(int root, uint32_t flags, Error *err);
