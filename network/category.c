// SPDX-License-Identifier: GPL-2.0-or-later
// Category: see category.h.
#include "network/category.h"

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
