// SPDX-License-Identifier: GPL-2.0-or-later
// Keeper: a second process of hostd-flow that keeps the one right which asks the kernel for all connections there are, and does nothing
// else: it sends the same question once a minute, into a socket whose answers hostd-flow reads. It reads nothing of anybody's.
#pragma once

#include "base/clock.h"
#include "base/error.h"

// To be called with CAP_NET_ADMIN and before border_confine(). `fd` is of evidence_open_dump(). The keeper dies with this process.
int keeper_start(int fd, usec_t interval, Error *err);
