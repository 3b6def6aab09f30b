// SPDX-License-Identifier: GPL-2.0-or-later
// Keeper: hostd-io's end of the connection to hostd: what it is asked, and what it tells.
#pragma once

#include "io/output.h"

typedef struct Keeper {
        Outputs outputs;
        Source listening, link; // link: fd is -EBADF while hostd is not there
        usec_t idle_after, idle_since;
        bool over; // hostd said so
} Keeper;

int keeper_init(Keeper *keeper, int listening);
// Until hostd says so, or it has had nothing to do for `idle_after`: hostd starts it when there is something again.
void keeper_run(Keeper *keeper);
