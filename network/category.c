// SPDX-License-Identifier: GPL-2.0-or-later
// Category: see category.h.
#include "network/category.h"

#include <stdio.h>
#include <string.h>

#include "base/strv.h"

Category *category_share(Category *category) {
        category->shared++;
        return category;
}

Category *category_free(Category *category) {
        if (!category)
                return NULL;
        if (category->shared > 0) {
                category->shared--;
                return NULL;
        }
        free(category->name);
        strv_free(category->entries);
        free(category);
        return NULL;
}

bool category_equal(const Category *a, const Category *b) {
        return a == b || (a && b && strcmp(a->name, b->name) == 0 && strv_equal(a->entries, b->entries));
}

// Addresses of IPv6 have more colons than one, networks a slash: neither has a port.
uint16_t category_entry_split(const char *entry, char buf[CATEGORY_ENTRY_MAX]) {
        const char *colon = strchr(entry, ':');
        size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
        unsigned long port = digits > 0 && digits <= 5 && colon[1 + digits] == 0 ? strtoul(colon + 1, NULL, 10) : 0;
        bool split = port > 0 && port <= UINT16_MAX && colon[1] != '0';

        (void) snprintf(buf, CATEGORY_ENTRY_MAX, "%.*s", split ? (int) (colon - entry) : CATEGORY_ENTRY_MAX - 1, entry);
        return (uint16_t) (split ? port : 0);
}
