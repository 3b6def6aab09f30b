// SPDX-License-Identifier: GPL-2.0-or-later
// Digest: SHA-256 as 64 lower-case hex digits (libsodium).
#pragma once

#include <stddef.h>

#include "base/error.h"

#define DIGEST_TEXT_MAX 65

char *digest_bytes(const void *data, size_t size, char ret[DIGEST_TEXT_MAX]);
// Of the rest of a file, from its current offset; fd stays open.
int digest_fd(int fd, char ret[DIGEST_TEXT_MAX]);
// `size` random bytes as hex; ret holds 2 * size + 1 bytes. Returns ret.
char *digest_random(size_t size, char *ret);
