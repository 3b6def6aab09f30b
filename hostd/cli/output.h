// SPDX-License-Identifier: GPL-2.0-or-later
// Output: replies as tables, CSV, JSON or key-value lines. What hostd says may hold what a guest said: on its way to people, control
// characters are made visible.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "api/method.h"
#include "base/strv.h"

typedef enum OutputFormat { OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_CSV, _OUTPUT_FORMAT_MAX, _OUTPUT_FORMAT_INVALID = -EINVAL } OutputFormat;
// The option --format of a command: table when it is not given; csv only where the reply is a list.
int output_format_parse(const Method *method, const json_t *local, OutputFormat *ret, Error *err);

// Columns to show: `list` is "a,b" or NULL for those that are not hidden. Ends with a NULL path; caller frees the array.
int output_columns(const Column *columns, const char *list, Column **ret, Error *err);
void output_rows(FILE *f, OutputFormat format, const Column *columns, const json_t *rows);
void output_json(FILE *f, const json_t *value);
void output_object(FILE *f, const json_t *object); // key-value lines, nested ones indented
// A reply, as the row and the options say.
int output_reply(FILE *f, const Method *method, const json_t *local, const json_t *reply, Error *err);
void output_text(FILE *f, const char *text); // several lines; control characters other than newline and tab made visible
// One value as text; caller frees, NULL on OOM.
char *output_value(const json_t *value, ParamType type, bool for_people);
