// SPDX-License-Identifier: GPL-2.0-or-later
// Byte sizes as people write them: "8GiB", "500MB", "4096", and "max" where a limit may be absent.
#pragma once

#include <stdint.h>

#include "base/error.h"

// -EINVAL for what is no size, -ERANGE for what does not fit 63 bits. Units: B KiB MiB GiB TiB, K M G T (binary, as the
// kernel and Incus read them), kB MB GB TB (decimal).
int size_parse(const char *text, uint64_t *ret);
// The shortest exact form in binary units ("8GiB", "1536MiB", "1000B"). Returns buf (at least SIZE_TEXT_MAX).
#define SIZE_TEXT_MAX 32
char *size_format(uint64_t bytes, char *buf);
// For people: three digits, rounded ("7.45GiB").
char *size_format_short(uint64_t bytes, char *buf);
