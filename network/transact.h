// SPDX-License-Identifier: GPL-2.0-or-later
// Transact: replaces one slot's policy by netlink messages of our own, for speed that does not depend on what else is loaded.
#pragma once

#include "network/compile.h"

// The same rules as ruleset_policy() writes, in one transaction.
int transact_policy(uint16_t slot, const Compiled *compiled, uint32_t next_id);
