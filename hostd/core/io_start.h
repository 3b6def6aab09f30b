// SPDX-License-Identifier: GPL-2.0-or-later
// IoStart: the process of a slot's hostd-io: its directory RUN/io/SLOT, its start, and the connection to it.
#pragma once

#include "core/manager.h"

typedef struct IoStart IoStart;
int io_start_new(Manager *manager, uint16_t slot, IoStart **ret, Error *err); // it is on its way: it listens when it is there
IoStart *io_start_free(IoStart *start); // it goes on
DEFINE_CLEANUP(IoStart, io_start_free)
// -ENOENT, -ECONNREFUSED: it does not run. The peer is hostd-io's user.
int io_start_connect(Manager *manager, uint16_t slot, Error *err);
