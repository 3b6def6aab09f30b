// SPDX-License-Identifier: GPL-2.0-or-later
// Args: what a command line says, read by the rows of the method table.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "api/method.h"
#include "base/strv.h"

typedef struct Args {
        const Method *method;
        json_t *parameters; // for hostd; without the names when the row takes several
        json_t *local;      // hostctl's own options
        const char *many;   // key of the several names, or NULL
        char **names;
        char **words; // of commands with a syntax of their own (see args_syntax), as they came
        bool all, help;
        char *socket; // --socket among the options, or NULL
} Args;

void args_done(Args *args);
#define _cleanup_args_ _cleanup_(args_done)

// `argv` is what follows the command's words, NULL-terminated. Errors are ERR_INVALID.
int args_parse(const Method *method, char *const *argv, Args *ret, Error *err);
// Words after the command where they are not simply the row's positions ("LOCAL... NAME:PATH"), or NULL.
const char *args_syntax(const Method *method);
// "NAME [COMMAND...]" and so on; caller frees.
char *args_usage(const Method *method);
const char *args_local_string(const Args *args, const char *name); // NULL if it was not given
bool args_local_bool(const Args *args, const char *name);
// "NAME:PATH" into its halves.
int args_split_location(const char *word, char **ret_name, char **ret_path, Error *err);

// The row whose words begin `argv` (the longest match); *ret_used says how many were taken. NULL if there is none.
const Method *words_match(char *const *argv, size_t *ret_used);
bool words_are_shared(const char *words); // "sandbox" may stand before them
// What was probably meant by the words, or NULL; caller frees.
char *words_nearest(char *const *argv);
size_t words_distance(const char *a, const char *b); // edits between two words
