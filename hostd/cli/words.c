// SPDX-License-Identifier: GPL-2.0-or-later
// Words: from "template build" to its row, and what was meant when there is none.
#include <string.h>

#include "cli/args.h"
#include "cli/cli.h"

// How many of argv spell `words`; 0 if they do not.
static size_t words_count(const char *words, char *const *argv) {
        size_t n = 0;

        for (const char *p = words; *p; n++) {
                size_t k = strcspn(p, " ");
                if (!argv[n] || strlen(argv[n]) != k || strncmp(argv[n], p, k) != 0)
                        return 0;
                p += k;
                p += strspn(p, " ");
        }
        return n;
}

static const Method *match_rows(char *const *argv, size_t *ret_used) {
        const Method *best = NULL;
        size_t used = 0;

        for (int i = 0; i < _METHOD_MAX; i++) {
                size_t n = words_count(method_get(i)->words, argv);
                if (n > used) {
                        used = n;
                        best = method_get(i);
                }
        }
        *ret_used = used;
        return best;
}

// What sandboxes have in common with instances is found below their word as well; the place says which of them is meant.
bool words_are_shared(const char *words) {
        return strcmp(words, "logs") == 0 || strncmp(words, "file ", strlen("file ")) == 0;
}

const Method *words_match(char *const *argv, size_t *ret_used) {
        const Method *method = match_rows(argv, ret_used);

        if (method || !argv[0] || strcmp(argv[0], "sandbox") != 0)
                return method;
        method = match_rows(argv + 1, ret_used);
        if (!method || !words_are_shared(method->words)) {
                *ret_used = 0;
                return NULL;
        }
        ++*ret_used;
        return method;
}

// Levenshtein over one row; words are short.
size_t words_distance(const char *a, const char *b) {
        size_t n = strlen(b), row[65];

        if (n > 64 || strlen(a) > 64)
                return SIZE_MAX;
        for (size_t j = 0; j <= n; j++)
                row[j] = j;
        for (size_t i = 1; a[i - 1]; i++) {
                size_t diagonal = row[0];
                row[0] = i;
                for (size_t j = 1; j <= n; j++) {
                        size_t change = diagonal + (a[i - 1] != b[j - 1]);
                        diagonal = row[j];
                        row[j] = MIN2(change, MIN2(row[j], row[j - 1]) + 1);
                }
        }
        return row[n];
}

static void words_consider(const char *words, const char *typed, size_t *best, const char **found) {
        size_t d = words_distance(words, typed);

        if (d < *best) {
                *best = d;
                *found = words;
        }
}

char *words_nearest(char *const *argv) {
        const char *found = NULL;
        size_t best = 4; // further than three edits is no typing mistake
        size_t n = 0;

        if (!argv[0])
                return NULL;
        if (argv[1] && argv[1][0] != '-')
                n = 1;
        for (; n < 2; n--) { // two words first, then one
                _cleanup_free_ char *typed = NULL;
                if (asprintf(&typed, "%s%s%s", argv[0], n ? " " : "", n ? argv[1] : "") < 0)
                        return NULL;
                for (int i = 0; i < _METHOD_MAX; i++)
                        words_consider(method_get(i)->words, typed, &best, &found);
                for (const LocalCommand *c = local_commands; c->word; c++)
                        words_consider(c->word, typed, &best, &found);
                if (found || n == 0)
                        break;
        }
        return found ? strdup(found) : NULL;
}
