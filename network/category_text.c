// SPDX-License-Identifier: GPL-2.0-or-later
// Category text: the lines of a category's file. Apart from the object, as suffix.c is apart from name.c.
#include <string.h>

#include "base/strv.h"
#include "network/name.h"
#include "network/policy.h"

static int refuse(const char *file, unsigned line, Error *why, Error *err) {
        return error_set_field(err, "entry", "%s:%u: %s", file, line, error_message(why, -EINVAL));
}

// One word a line. The entries are copied into the room that is there; sorted for doublets at the end.
static int parse_line(Category *category, size_t *n, char *line, Error *err) {
        char *hash = strchr(line, '#'), *word, *rest, to[CATEGORY_ENTRY_MAX];
        uint16_t port;
        int r;

        if (hash)
                *hash = 0;
        word = line + strspn(line, " \t\r");
        rest = word + strcspn(word, " \t\r");
        if (!*word)
                return 0;
        if (rest[strspn(rest, " \t\r")])
                return error_set_field(err, "entry", "there is more than one word; one entry a line");
        *rest = 0;
        if (*word == '@')
                return error_set_field(err, "entry", "entry \"%s\": a category cannot hold another one", word);
        if (*n >= CATEGORY_ENTRIES_MAX)
                return error_set_field(err, "entry", "a category has at most %d entries", CATEGORY_ENTRIES_MAX);
        port = category_entry_split(word, to);
        if (port && policy_target(to) == POLICY_TO_CIDR)
                return error_set_field(err, "entry", "entry \"%s\": only a name has a port", word);
        if (port && strcmp(category->name, POLICY_SPARED) == 0)
                return error_set_field(err, "entry", "entry \"%s\": names of this category are meant whatever the port", word);
        r = policy_destination_check("entry", port ? to : word, err);
        if (r >= 0 && policy_target(to) == POLICY_TO_SUFFIX)
                r = name_pattern_check_suffix("entry", to, err);
        if (r < 0)
                return r;
        category->entries[*n] = strdup(word);
        return category->entries[(*n)++] ? 0 : error_set_errno(err, ENOMEM, "cannot read category %s", category->name);
}

static int compare(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

static int check_doublets(const Category *category, size_t n, const char *file, Error *err) {
        _cleanup_free_ char **sorted = calloc(n + 1, sizeof(char *));

        if (!sorted)
                return error_set_errno(err, ENOMEM, "cannot read category %s", category->name);
        if (n > 0) {
                memcpy(sorted, category->entries, n * sizeof(char *));
                qsort(sorted, n, sizeof(char *), compare);
        }
        for (size_t i = 1; i < n; i++)
                if (strcmp(sorted[i - 1], sorted[i]) == 0)
                        return error_set_field(err, "entry", "%s: entry \"%s\" is there twice", file, sorted[i]);
        return 0;
}

static size_t count_lines(const char *text) {
        size_t n = 1;

        for (; (text = strchr(text, '\n')); text++)
                n++;
        return n;
}

int category_parse(const char *name, const char *file, const char *text, Category **ret, Error *err) {
        _cleanup_(category_freep) Category *category = calloc(1, sizeof(Category));
        _cleanup_free_ char *copy = strdup(text);
        size_t n = 0;
        unsigned number = 1;
        char *next;

        if (!category || !copy || !(category->name = strdup(name)) ||
            !(category->entries = calloc(MIN2(count_lines(text), (size_t) CATEGORY_ENTRIES_MAX) + 1, sizeof(char *))))
                return error_set_errno(err, ENOMEM, "cannot read category %s", name);
        for (char *line = copy; line; line = next, number++) {
                _cleanup_error_ Error why = ERROR_NULL;
                next = strchr(line, '\n');
                if (next)
                        *next++ = 0;
                int r = parse_line(category, &n, line, &why);
                if (r == -EINVAL)
                        return refuse(file ?: name, number, &why, err);
                if (r < 0) {
                        error_move(err, &why);
                        return r;
                }
        }
        int r = check_doublets(category, n, file ?: name, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(category);
        return 0;
}
