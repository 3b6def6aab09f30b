// SPDX-License-Identifier: GPL-2.0-or-later
// Seccomp: the deny list of an instance, as liblxc's profile for init and as a loaded filter for what hostd-instance starts itself.
#pragma once

#include "base/error.h"

int seccomp_write_profile(int dirfd, const char *path, Error *err);
// Loads the same filter into this process. No allocation failure is survivable here: the caller exits. Negative errno.
int seccomp_load_filter(void);
