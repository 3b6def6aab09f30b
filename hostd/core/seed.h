// SPDX-License-Identifier: GPL-2.0-or-later
// Seed: the categories that a new configuration begins with.
#pragma once

#include "base/error.h"

// Copies the ones that ship (HOSTD_CATEGORYDIR; the environment's goes before) to `etc`/categories.d, if there is no such folder. What
// is there is the operator's: nothing is added to it later, and what was removed stays away.
int seed_categories(const char *etc, Error *err);
