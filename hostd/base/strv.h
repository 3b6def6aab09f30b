// SPDX-License-Identifier: GPL-2.0-or-later
// Strv: NULL-terminated vectors of owned strings. A NULL vector is the empty one.
#pragma once

#include <stdbool.h>

#include "base/cleanup.h"

char **strv_free(char **v); // always NULL
size_t strv_length(char *const *v);
int strv_append(char ***v, const char *text); // copies
int strv_append_format(char ***v, const char *format, ...) _printf_(2, 3);
bool strv_contains(char *const *v, const char *text);
bool strv_equal(char *const *a, char *const *b);
bool text_equal(const char *a, const char *b); // of two texts; NULL is equal to NULL alone
char **strv_copy(char *const *v); // NULL for an empty one or on OOM
char *strv_join(char *const *v, const char *separator); // "" for an empty one; NULL on OOM
// Splits at any of `separators`, dropping empty pieces.
int strv_split(const char *text, const char *separators, char ***ret);

static inline _unused_ void strv_freep(char ***v) {
        *v = strv_free(*v);
}
#define _cleanup_strv_ _cleanup_(strv_freep)
