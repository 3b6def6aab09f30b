// SPDX-License-Identifier: GPL-2.0-or-later
// Netns: the network namespace of the process that is, or is about to become, an instance's init; and of a build or a sandbox.
#pragma once

#include "instance/spec.h"

// Opens it, close-on-exec. It is that of a living process in a user namespace with exactly the instance's ids, which owns the network
// namespace too, and it is not the caller's own. -EAGAIN: not so yet.
int netns_open(pid_t pid, uint32_t id_base, uint32_t id_count, int *ret, Error *err);
// The same of a build (hostd/build/wire.h) and a sandbox: that of a living process in a user namespace which the user `owner` made, and which owns
// the network namespace, too.
int netns_open_of(pid_t pid, uid_t owner, int *ret, Error *err);
