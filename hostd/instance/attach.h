// SPDX-License-Identifier: GPL-2.0-or-later
// Attach: puts hostd-guest into the running container.
#pragma once

#include "instance/spec.h"

// $HOSTD_GUEST or the installed one, copied into a sealed memory file: what runs inside is what was installed at the start,
// and the guest can neither change nor read it.
int guest_binary_load(Error *err);
// Starts `binary` in all namespaces of init, as their root, in the control group box/guest. The host's end of its channel and its
// pid on the host are returned; it is a child of the caller.
int guest_spawn(const InstanceSpec *spec, pid_t init, int init_pidfd, int binary, int *ret_channel, Error *err);
