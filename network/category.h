// SPDX-License-Identifier: GPL-2.0-or-later
// Category: a named set of destinations, /etc/hostd/categories.d/NAME.conf: a name, "*.suffix", "*", address or network per line, '#' begins a
// comment. A rule says "@NAME" and stands for one rule per entry. Shared by the policies that use it, and never changed.
// A name may have a port, "example.org:80": the entry is that port of it and no other.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define CATEGORY_ENTRIES_MAX 4096

typedef struct Category {
        char *name;
        char **entries; // in the file's order, no two alike; NULL for none
        unsigned shared;
} Category;

// category_text.c. Errors: "FILE:LINE: …"; `file` may be NULL.
int category_parse(const char *name, const char *file, const char *text, Category **ret, Error *err);
Category *category_share(Category *category);
Category *category_free(Category *category);
DEFINE_CLEANUP(Category, category_free)
bool category_equal(const Category *a, const Category *b);
// An entry without its port; `buf` has room for the longest one. 0: it has none.
#define CATEGORY_ENTRY_MAX 264
uint16_t category_entry_split(const char *entry, char buf[CATEGORY_ENTRY_MAX]);
