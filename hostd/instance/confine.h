// SPDX-License-Identifier: GPL-2.0-or-later
// Confine: what the kernel says about the confinement of a process that was started inside, read from the host's proc. Neither
// liblxc's word nor anything that the guest could have mounted over its own is taken for it.
#pragma once

#include <sys/types.h>

#include "base/error.h"

// The seccomp filter is loaded and, unless `profile` is NULL, the AppArmor profile is this one and enforcing. `who` is for the message.
int confine_verify(const char *proc, pid_t pid, const char *profile, const char *who, Error *err);
// The same about a process that has just executed its program: the kernel closes descriptors and clears flags before it changes the
// label, so whoever was told of the exec may look too early. Waits up to half a second for what is right.
int confine_await(const char *proc, pid_t pid, const char *profile, const char *who, Error *err);

// Leaves the session keyring of whoever started us for an empty one. Children inherit it, those inside the instance too, and who
// holds a keyring may read its keys, whatever user namespace he is in. Charged to the host's root, whose quota no guest can fill.
int confine_session_keyring(void);
