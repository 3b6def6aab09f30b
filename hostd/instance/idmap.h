// SPDX-License-Identifier: GPL-2.0-or-later
// Idmap: mounts through which an instance's files, whose ids on disk are 0-based, belong to the instance's range of host ids.
#pragma once

#include <stdint.h>

// A user namespace that maps 0.. to `base`.., held by descriptor only. Negative errno.
int idmap_open(uint32_t base, uint32_t count);
// A detached, idmapped clone of the one mount (not of mounts below it) that `dir` leads to. `set` and `clear` are MOUNT_ATTR_*.
int idmap_clone(int dir, int userns, uint64_t set, uint64_t clear);
