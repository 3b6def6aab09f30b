// SPDX-License-Identifier: GPL-2.0-or-later
// Helper: the loop of hostd-guest. One process, one thread, no state on disk: it forks commands, remembers those that run and those
// whose end no hostd has acknowledged, and tells a new hostd of both.
#pragma once

#include "base/error.h"

// Runs on the SOCK_SEQPACKET `channel` until its other end is closed everywhere (0) or something breaks. SIGCHLD is blocked
// by it. Descriptors 0 to 3 must be open. `binary` is this program, to be copied for people inside; -EBADF for none.
// In a sandbox nobody asks for anything, and no sandbox is made.
int helper_run(int channel, int binary);
int helper_run_sandbox(int channel);
