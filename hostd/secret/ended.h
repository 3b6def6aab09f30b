// SPDX-License-Identifier: GPL-2.0-or-later
// Ended: the ids of grants that are in force no more and could not be taken out of the store, because a disk took nothing. Whoever loads grants passes
// over these.
//
// They are written into two files that have their full size from the first day, so that nothing has to be found room for: one beside the store, which
// outlives the host, and one in the run directory, which is on no disk. One that took it is enough.
#pragma once

#include <stdbool.h>

#include "base/error.h"

#define ENDED_FILE "grants.ended"
#define ENDED_MAX 256

typedef struct Ended Ended;
// `directories`: two, borrowed for the call. A place that cannot be opened is done without.
int ended_open(const int directories[2], Ended **ret);
Ended *ended_free(Ended *ended);
DEFINE_CLEANUP(Ended, ended_free)

bool ended_has(const Ended *ended, const char *id);
int ended_add(Ended *ended, const char *id); // -ENOSPC: there are too many; else why no place took it
void ended_remove(Ended *ended, const char *id); // absent is success
