// SPDX-License-Identifier: GPL-2.0-or-later
// Transact: policies and set elements by netlink messages of our own, for speed that does not depend on what else is loaded.
#pragma once

#include "network/ruleset.h"

// The same rules as ruleset_policy() writes, in one transaction.
int transact_policy(const PolicyText *text);

// One element of a map of names.
typedef struct NameElement {
        uint16_t slot, port;
        int family;
        uint8_t protocol;
        unsigned char address[16];
        uint32_t mark;
        uint64_t timeout_ms;
} NameElement;
// All begin their time anew; -ENFILE if the map is full.
int transact_names(const NameElement *names, size_t n);

// The map elements that lead packets of a slot to its chains, and back out again. Adding what is there and removing what is not
// there is success; the chains must exist for both.
int transact_slot(const NetworkSettings *settings, uint16_t slot, bool add);

// The same for a profile, by the names of all interfaces that its sandboxes may have, and the addresses of one sandbox.
int transact_profile(uint16_t profile, bool add);
int transact_sandbox(const NetworkAddress *sandbox, bool add);

// Both directions; removing what is not there is success.
int transact_expose(const NetworkSettings *settings, const NetworkExposure *exposure);
int transact_unexpose(const NetworkSettings *settings, const NetworkExposure *exposure);

// One transaction of many parts, for a restart or a restore: all slots go live together.
typedef struct Transaction Transaction;
int transaction_new(Transaction **ret);
Transaction *transaction_free(Transaction *transaction);
DEFINE_CLEANUP(Transaction, transaction_free)
int transaction_deny_sets(Transaction *transaction);
int transaction_slot(Transaction *transaction, const NetworkSettings *settings, uint16_t slot);
int transaction_profile(Transaction *transaction, uint16_t profile);
int transaction_sandbox(Transaction *transaction, const NetworkAddress *sandbox);
int transaction_policy(Transaction *transaction, const PolicyText *text);
int transaction_name(Transaction *transaction, const NameElement *name);
int transaction_expose(Transaction *transaction, const NetworkSettings *settings, const NetworkExposure *exposure);
int transaction_commit(Transaction *transaction);
