// SPDX-License-Identifier: GPL-2.0-or-later
// Show: single objects with tables in them, plain texts, and the two commands whose exit status is the answer.
#include <string.h>

#include "cli/cli.h"
#include "cli/output.h"

#define SHOW_COLUMNS_MAX 16

static bool columns_have(const Column *columns, const char *key) {
        for (; columns->path; columns++)
                if (strcmp(columns->path, key) == 0)
                        return true;
        return false;
}

// A table for an array of objects: every key of any of them is a column, since events differ in what they tell.
static void show_table(const char *title, const json_t *rows) {
        Column columns[SHOW_COLUMNS_MAX + 1] = {{NULL}};
        char titles[SHOW_COLUMNS_MAX][32];
        json_t *row, *value;
        size_t n = 0, i;
        const char *key;

        json_array_foreach(rows, i, row)
                json_object_foreach(row, key, value) {
                        if (n == SHOW_COLUMNS_MAX || columns_have(columns, key))
                                continue;
                        snprintf(titles[n], sizeof(titles[n]), "%s", key);
                        for (char *c = titles[n]; *c; c++)
                                *c = *c == '_' ? '-' : *c >= 'a' && *c <= 'z' ? (char) (*c - 'a' + 'A') : *c;
                        columns[n] = (Column) {.path = key, .title = titles[n], .type = PARAM_STRING};
                        n++;
                }
        if (title)
                printf("\n%s:\n", title);
        if (n > 0)
                output_rows(stdout, OUTPUT_TABLE, columns, rows);
}

static bool show_is_table(const json_t *value) {
        return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

static bool show_is_text(const json_t *value) { // several lines
        return json_is_string(value) && strchr(json_string_value(value), '\n');
}

static void show_object(const json_t *reply) {
        json_t *plain = json_object(), *value;
        const char *key;

        json_object_foreach((json_t *) reply, key, value)
                if (!show_is_table(value) && !show_is_text(value))
                        (void) json_object_set(plain, key, value);
        output_object(stdout, plain);
        json_object_foreach((json_t *) reply, key, value)
                if (show_is_table(value))
                        show_table(key, value);
                else if (show_is_text(value)) {
                        printf("\n%s:\n", key);
                        output_text(stdout, json_string_value(value));
                }
        json_decref(plain);
}

int command_show(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        const json_t *settings;
        json_t *reply = NULL;
        OutputFormat format;
        int r = output_format_parse(args->method, args->local, &format, &err);

        if (r >= 0)
                r = cli_call(cli, args->method, args->parameters, &reply, &err);
        if (r < 0)
                return cli_fail(&err, r);
        settings = json_object_get(reply, "settings");
        if (format == OUTPUT_JSON)
                output_json(stdout, reply);
        else if (json_is_true(json_object_get(args->parameters, "expanded")) && show_is_table(settings))
                show_table(NULL, settings); // key, value, source
        else
                show_object(reply);
        json_decref(reply);
        return 0;
}

// Replies that are a text: {"text": …} or {"lines": […]}.
int command_text(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *reply = NULL, *line;
        const char *text;
        size_t i;
        int r = cli_call(cli, args->method, args->parameters, &reply, &err);

        if (r < 0)
                return cli_fail(&err, r);
        text = json_string_value(json_object_get(reply, "text"));
        if (text)
                output_text(stdout, text);
        json_array_foreach(json_object_get(reply, "lines"), i, line) {
                output_text(stdout, json_string_value(line) ?: "");
                if (!json_string_length(line))
                        putchar('\n');
        }
        json_decref(reply);
        return 0;
}

static int show_list(Cli *cli, Args *args, json_t **ret) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_free_ Column *columns = NULL;
        json_t *reply = NULL;
        int r = output_columns(args->method->columns, args_local_string(args, "columns"), &columns, &err);

        if (r >= 0)
                r = cli_call(cli, args->method, args->parameters, &reply, &err);
        if (r >= 0 && (json_array_size(json_object_get(reply, args->method->list)) > 0 || args_local_string(args, "format")))
                r = output_reply(stdout, args->method, args->local, reply, &err);
        if (r < 0) {
                json_decref(reply);
                return cli_fail(&err, r);
        }
        *ret = reply;
        return 0;
}

int command_doctor(Cli *cli, Args *args) {
        json_t *reply = NULL, *row;
        size_t i;
        int status = show_list(cli, args, &reply);

        if (status != 0)
                return status;
        json_array_foreach(json_object_get(reply, args->method->list), i, row)
                if (strcmp(json_string_value(json_object_get(row, "state")) ?: "", "missing") == 0 && !json_is_true(json_object_get(row, "allowed")))
                        status = 1;
        json_decref(reply);
        return status;
}

int command_leaks(Cli *cli, Args *args) {
        json_t *reply = NULL;
        int status = show_list(cli, args, &reply);

        if (status == 0 && json_array_size(json_object_get(reply, args->method->list)) > 0)
                status = 1;
        json_decref(reply);
        return status;
}
