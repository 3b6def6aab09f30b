// SPDX-License-Identifier: GPL-2.0-or-later
// Seal: the host's key, and what is kept under it. XChaCha20-Poly1305 (libsodium), a random nonce each time.
//
// The key is the systemd credential "hostd.secret-key" (32 bytes) when the service has one: then the disk alone opens nothing. Otherwise it
// is STATE/secret.key, 0600, made once. When both are there the credential seals, and the file still opens what was sealed before.
// Key and opened values live in memory that is locked, left out of core files, and empty in every process that hostd forks.
#pragma once

#include <stddef.h>

#include "base/error.h"

#define SEAL_CREDENTIAL "hostd.secret-key"
#define SEAL_KEY_FILE "secret.key"
#define SEAL_VALUE_MAX 16384 // bytes of a value

// A value in the open. Its memory is wiped when it is freed.
typedef struct Value {
        unsigned char *data; // size bytes; one more is a NUL that is not counted
        size_t size;
} Value;
int value_new(size_t size, Value **ret);
Value *value_free(Value *value);
DEFINE_CLEANUP(Value, value_free)

typedef struct Seal Seal;
// `credentials` is $CREDENTIALS_DIRECTORY or NULL. ERR_DENIED for a key file that others may read, ERR_CONFLICT for one of another size.
int seal_open(int state_fd, const char *credentials, Seal **ret, Error *err);
Seal *seal_free(Seal *seal);
DEFINE_CLEANUP(Seal, seal_free)
// `context` says what the text is of ("secret/NAME/2"): it opens under the same one only, so that texts cannot change places. Caller
// frees; the text is base64.
int seal_encrypt(Seal *seal, const char *context, const Value *value, char **ret, Error *err);
// ERR_CONFLICT: damaged, of another context, or of a key that is not here.
int seal_decrypt(Seal *seal, const char *context, const char *text, Value **ret, Error *err);
