// SPDX-License-Identifier: GPL-2.0-or-later
// Leaks: what the kernel and the disk hold under our names minus what should live. Must be empty.
#pragma once

#include <jansson.h>

#include "core/manager.h"

json_t *leaks_list(Manager *manager, Error *err); // array of {kind, object}; NULL on error
// At start, after adoption: removes them. Returns how many there were.
int leaks_sweep(Manager *manager, Error *err);
