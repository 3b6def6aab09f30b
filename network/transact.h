// SPDX-License-Identifier: GPL-2.0-or-later
// Transact: policies and set elements by netlink messages of our own, for speed that does not depend on what else is loaded.
#pragma once

#include "network/compile.h"
#include "network/network.h"

// The same rules as ruleset_policy() writes, in one transaction.
int transact_policy(uint16_t slot, const Compiled *compiled, uint32_t next_id);

// The map elements that lead packets of a slot to its chains, and back out again. Adding what is there and removing what is not
// there is success; the chains must exist for both.
int transact_slot(const NetworkSettings *settings, uint16_t slot, bool add);

// One transaction of many parts, for a restart or a restore: all slots go live together.
typedef struct Transaction Transaction;
int transaction_new(Transaction **ret);
Transaction *transaction_free(Transaction *transaction);
DEFINE_CLEANUP(Transaction, transaction_free)
int transaction_deny_sets(Transaction *transaction);
int transaction_slot(Transaction *transaction, const NetworkSettings *settings, uint16_t slot);
int transaction_policy(Transaction *transaction, uint16_t slot, const Compiled *compiled, uint32_t next_id);
int transaction_commit(Transaction *transaction);
