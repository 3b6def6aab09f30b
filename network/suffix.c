// SPDX-License-Identifier: GPL-2.0-or-later
// Suffix: public suffixes, from the list that the distribution updates (package publicsuffix), else the one built into libpsl.
//
// A file of its own, because only what checks a person's text needs the library: the resolver and the proxy get rules that were checked.
#include <libpsl.h>
#include <string.h>

#include "base/cleanup.h"
#include "network/name.h"

// Kept for private use by their registries' own rules or by common habit: nobody can register a name below them.
static const char *const private_tops[] = {"corp", "example", "home", "internal", "intranet", "lan", "local", "private", "test"};

static const psl_ctx_t *list_get(void) {
        static const psl_ctx_t *list; // for the life of the process

        if (!list && !(list = psl_latest(NULL)))
                list = psl_builtin();
        return list;
}

int name_is_public_suffix(const char *name) {
        const psl_ctx_t *list = list_get();

        if (!list)
                return -ENOENT;
        for (size_t i = 0; i < ELEMENTS(private_tops); i++)
                if (strcmp(name, private_tops[i]) == 0)
                        return 0;
        return psl_is_public_suffix(list, name) != 0;
}

int name_pattern_check_suffix(const char *field, const char *pattern, Error *err) {
        int r = name_kind(pattern) == NAME_SUFFIX ? name_is_public_suffix(pattern + 2) : 0;

        if (r == -ENOENT)
                return error_set_field(err, field, "%s \"%s\" cannot be checked: this host has no list of public suffixes; install publicsuffix", field,
                                       pattern);
        if (r > 0)
                return error_set_field(err, field, "%s \"%s\" is too wide: anybody can register a name below %s", field, pattern, pattern + 2);
        return 0;
}
