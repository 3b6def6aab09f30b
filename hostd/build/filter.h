// SPDX-License-Identifier: GPL-2.0-or-later
// Filter: what no build needs of the kernel. Loaded in the jail, where no_new_privs is set; systemd's filter of the unit comes on top.
#pragma once

#include "base/error.h"

int filter_load(Error *err);
