// SPDX-License-Identifier: GPL-2.0-or-later
// File: rm, mkdir, chmod, chown and mv: a call for each place, without a pipe.
#include <stdlib.h>
#include <string.h>

#include "cli/file.h"

// What a call has beyond its place; `to` is what follows the places, or NULL.
typedef int (*ChangeFn)(FileTransfer *t, const char *source, const char *to, Error *err);

// `words` is where the places begin; the last `n_behind` words are none.
static int change_words(Cli *cli, Args *args, char **words, size_t n_behind, ChangeFn prepare) {
        size_t n = strv_length(words);
        int first = 0;

        if (n < 1 + n_behind)
                return file_usage(args);
        for (size_t i = 0; i + n_behind < n; i++) {
                FileTransfer t = {.cli = cli, .args = args, .parameters = args->parameters};
                _cleanup_error_ Error err = ERROR_NULL;
                int r = file_transfer_place(&t, words[i], &err);
                if (r >= 0 && prepare)
                        r = prepare(&t, words[i], n_behind ? words[n - 1] : NULL, &err);
                if (r >= 0)
                        r = cli_call(cli, args->method, t.parameters, NULL, &err);
                if (r < 0) {
                        int status = cli_fail(&err, r);
                        first = first ?: status;
                }
        }
        return first;
}

int command_file_remove(Cli *cli, Args *args) {
        return args->words ? change_words(cli, args, args->words, 0, NULL) : file_usage(args);
}

int command_file_mkdir(Cli *cli, Args *args) {
        return args->words ? change_words(cli, args, args->words, 0, NULL) : file_usage(args);
}

int command_file_chmod(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        unsigned long mode;
        char *end;

        if (strv_length(args->words) < 2)
                return file_usage(args);
        mode = strtoul(args->words[0], &end, 8);
        if (*args->words[0] < '0' || *args->words[0] > '7' || *end || mode > 07777)
                return cli_fail(&err, error_set_field(&err, "mode", "mode \"%s\" is not an octal number up to 7777", args->words[0]));
        (void) json_object_set_new(args->parameters, "mode", json_integer((json_int_t) mode));
        return change_words(cli, args, args->words + 1, 0, NULL);
}

// USER, USER:GROUP or :GROUP, as chown(1) has it; the options say the same.
int command_file_chown(Cli *cli, Args *args) {
        bool given = json_object_get(args->parameters, "owner") || json_object_get(args->parameters, "group");
        char *word, *colon;

        if (strv_length(args->words) < (given ? 1 : 2))
                return file_usage(args);
        if (given)
                return change_words(cli, args, args->words, 0, NULL);
        word = args->words[0];
        colon = strchr(word, ':');
        if (colon) {
                *colon = 0;
                (void) json_object_set_new(args->parameters, "group", json_string(colon + 1));
        }
        if (*word)
                (void) json_object_set_new(args->parameters, "owner", json_string(word));
        return change_words(cli, args, args->words + 1, 0, NULL);
}

static int move_prepare(FileTransfer *t, const char *source, const char *to, Error *err) {
        _cleanup_free_ char *name = NULL, *path = NULL, *place = NULL;
        int r = args_split_location(to, &name, &path, err);

        if (r < 0)
                return r;
        if (strcmp(name, json_string_value(json_object_get(t->parameters, "name"))) != 0)
                return error_set(err, ERR_INVALID, "%s and %s are not in one instance or sandbox: pull and push", source, to);
        place = file_place_below(path, json_string_value(json_object_get(t->parameters, "path")), strv_length(t->args->words) > 2 || path[strlen(path) - 1] == '/');
        if (!place)
                return error_set_errno(err, ENOMEM, "%s", source);
        return json_object_set_new(t->parameters, "to", json_string(place));
}

int command_file_move(Cli *cli, Args *args) {
        return args->words ? change_words(cli, args, args->words, 1, move_prepare) : file_usage(args);
}
