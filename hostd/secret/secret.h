// SPDX-License-Identifier: GPL-2.0-or-later
// Secret: a named credential. Name, version and times are plain records of the store; the value is there as sealed text only.
//
// What is written is on disk when a function returns. A value is in the open only between secret_value() and value_free().
#pragma once

#include <stdint.h>

#include "base/clock.h"
#include "secret/seal.h"
#include "state/store.h"

// What secrets and bindings are kept in; borrowed.
typedef struct Vault {
        Store *store;
        Seal *seal;
} Vault;

typedef struct Secret {
        char name[33];
        uint64_t version; // 1, and one more with each rotation
        usec_t created, rotated; // realtime; rotated is created until the first rotation
} Secret;

int secret_add(const Vault *vault, const char *name, const Value *value, Error *err);    // ERR_EXISTS
int secret_rotate(const Vault *vault, const char *name, const Value *value, Error *err); // ERR_NOT_FOUND
int secret_remove(const Vault *vault, const char *name, Error *err);                     // absent is success
int secret_get(const Vault *vault, const char *name, Secret *ret, Error *err);           // ERR_NOT_FOUND
int secret_value(const Vault *vault, const char *name, Value **ret, Error *err);
int secret_list(const Vault *vault, Secret **ret, size_t *ret_n, Error *err); // by name; caller frees
