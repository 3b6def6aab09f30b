// SPDX-License-Identifier: GPL-2.0-or-later
// Watch: tells when somebody else changed our tables.
#pragma once

#include <stdbool.h>

#include "base/cleanup.h"

typedef struct Watch Watch;
int watch_new(Watch **ret);
Watch *watch_free(Watch *watch);
DEFINE_CLEANUP(Watch, watch_free)
int watch_fd(const Watch *watch);
// Reads what is there without blocking. When notices were lost, the answer is yes: restoring is idempotent.
int watch_dispatch(Watch *watch, bool *ret_lost);
// To be called when everything was just restored: reads the notices of that. True if somebody else changed it meanwhile. That some
// did not fit is forgiven here: the restore of a very large ruleset would be followed by the next one, for ever.
bool watch_settle(Watch *watch);
bool watch_is_spent(Watch *watch); // a quota of ours was used up since the last call
