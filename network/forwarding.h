// SPDX-License-Identifier: GPL-2.0-or-later
// Forwarding: what the host's sysctls must be for routing and for the evidence, and what they were before hostd made them so.
#pragma once

#include "base/strv.h"

// `uplink` may be NULL. What is changed is first written to the file `before` (may be NULL: it is not kept), which belongs below
// /run: after a boot of the host nothing of it is true any more.
int forwarding_enable(const char *uplink, const char *before, Error *err);
// Puts back what the file says, unless it is not ours any more or something else on this host forwards; then, and when it is
// done, a line for people is appended to `notes`. The file goes. None: success.
int forwarding_restore(const char *before, char ***notes, Error *err);
