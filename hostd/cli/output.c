// SPDX-License-Identifier: GPL-2.0-or-later
// Output: see output.h.
#include "cli/output.h"

#include <string.h>

#include "base/clock.h"
#include "base/size.h"

static const char *const format_names[_OUTPUT_FORMAT_MAX] = {"table", "json", "csv"};

int output_format_parse(const Method *method, const json_t *local, OutputFormat *ret, Error *err) {
        const char *text = json_string_value(json_object_get(local, "format"));

        *ret = OUTPUT_TABLE;
        for (const Param *p = method->params; text && p->name; p++)
                if (strcmp(p->name, "format") == 0 && param_check_choice(p, text, err) < 0)
                        return -EINVAL;
        for (int i = 0; text && i < _OUTPUT_FORMAT_MAX; i++)
                if (strcmp(text, format_names[i]) == 0)
                        *ret = i;
        return 0;
}

static const Column *column_find(const Column *columns, const char *path) {
        for (const Column *c = columns; c->path; c++)
                if (strcmp(c->path, path) == 0)
                        return c;
        return NULL;
}

static int columns_unknown(const Column *columns, const char *path, Error *err) {
        _cleanup_strv_ char **known = NULL;
        _cleanup_free_ char *text = NULL;

        for (const Column *c = columns; c->path; c++)
                (void) strv_append(&known, c->path); // at worst a shorter list
        text = strv_join(known, ", ");
        return error_set_field(err, "columns", "unknown column \"%s\"; there are: %s", path, text ?: "");
}

int output_columns(const Column *columns, const char *list, Column **ret, Error *err) {
        _cleanup_strv_ char **paths = NULL;
        _cleanup_free_ Column *chosen = NULL;
        size_t n = 0, used = 0;

        if (list && strv_split(list, ", ", &paths) < 0)
                return error_set_errno(err, ENOMEM, "columns");
        for (const Column *c = columns; c->path; c++)
                n++;
        if (strv_length(paths) > n)
                n = strv_length(paths);
        chosen = calloc(n + 1, sizeof(Column));
        if (!chosen)
                return error_set_errno(err, ENOMEM, "columns");
        for (const Column *c = columns; !list && c->path; c++)
                if (!c->hidden)
                        chosen[used++] = *c;
        for (char **p = paths; p && *p; p++) {
                const Column *c = column_find(columns, *p);
                if (!c)
                        return columns_unknown(columns, *p, err);
                chosen[used++] = *c;
        }
        if (used == 0)
                return error_set_field(err, "columns", "no column is named");
        *ret = TAKE_PTR(chosen);
        return 0;
}

static const json_t *value_at(const json_t *object, const char *path) {
        for (;;) {
                char key[64];
                size_t n = strcspn(path, ".");
                // A key that has a dot in it comes before a path.
                const json_t *whole = json_object_get(object, path);
                if (whole || !path[n] || n >= sizeof(key))
                        return whole;
                memcpy(key, path, n);
                key[n] = 0;
                object = json_object_get(object, key);
                path += n + 1;
        }
}

static char *value_integer(json_int_t n, ParamType type, bool for_people) {
        char buf[64];

        if (for_people && type == PARAM_SIZE && n >= 0)
                return strdup(size_format_short((uint64_t) n, buf));
        if (for_people && type == PARAM_SPAN && n >= 0)
                return strdup(clock_format_span((usec_t) n - (usec_t) n % (n < 1000000 ? 1 : 1000), buf, sizeof(buf)));
        snprintf(buf, sizeof(buf), "%lld", (long long) n);
        return strdup(buf);
}

static char *value_list(const json_t *value) {
        _cleanup_strv_ char **parts = NULL;
        const char *key;
        json_t *element;
        size_t i;

        json_array_foreach(value, i, element) {
                _cleanup_free_ char *text = output_value(element, PARAM_STRING, true);
                if (!text || strv_append(&parts, text) < 0)
                        return NULL;
        }
        json_object_foreach((json_t *) value, key, element) {
                _cleanup_free_ char *text = output_value(element, PARAM_STRING, true);
                if (!text || strv_append_format(&parts, "%s=%s", key, text) < 0)
                        return NULL;
        }
        return strv_join(parts, ",");
}

char *output_value(const json_t *value, ParamType type, bool for_people) {
        char *text = NULL;

        switch (value ? json_typeof(value) : JSON_NULL) {
        case JSON_STRING:
                return strdup(json_string_value(value));
        case JSON_INTEGER:
                return value_integer(json_integer_value(value), type, for_people);
        case JSON_REAL:
                return asprintf(&text, "%.2f", json_real_value(value)) < 0 ? NULL : text;
        case JSON_TRUE:
                return strdup("yes");
        case JSON_FALSE:
                return strdup("no");
        case JSON_NULL:
                return strdup("");
        case JSON_ARRAY:
        case JSON_OBJECT:
                break;
        }
        return value_list(value);
}

static char *cell(const json_t *row, const Column *column) {
        _cleanup_free_ char *text = output_value(value_at(row, column->path), column->type, true);

        return text ? valid_printable(text[0] ? text : "-") : NULL;
}

// Code points: near enough to what a terminal shows, without a locale.
static size_t text_width(const char *text) {
        size_t n = 0;

        for (; *text; text++)
                n += ((unsigned char) *text & 0xc0) != 0x80;
        return n;
}

static void print_cell(FILE *f, const char *text, size_t width, bool last) {
        fputs(text, f);
        if (last)
                fputc('\n', f);
        else
                fprintf(f, "%*s", (int) (width - text_width(text)) + 2, "");
}

static void output_table(FILE *f, const Column *columns, const json_t *rows) {
        size_t n_rows = json_array_size(rows), n = 0, i, k;
        char **cells;
        size_t *widths;
        json_t *row;

        while (columns[n].path)
                n++;
        cells = calloc(n_rows * n + 1, sizeof(char *));
        widths = calloc(n + 1, sizeof(size_t));
        for (k = 0; cells && widths && k < n; k++)
                widths[k] = text_width(columns[k].title);
        json_array_foreach(rows, i, row)
                for (k = 0; cells && widths && k < n; k++) {
                        cells[i * n + k] = cell(row, &columns[k]) ?: strdup("?");
                        widths[k] = MAX2(widths[k], text_width(cells[i * n + k]));
                }
        for (k = 0; cells && widths && k < n; k++)
                print_cell(f, columns[k].title, widths[k], k + 1 == n);
        for (i = 0; cells && widths && i < n_rows * n; i++)
                print_cell(f, cells[i], widths[i % n], i % n + 1 == n);
        strv_free(cells);
        free(widths);
}

// RFC 4180: quotes around what needs them, CRLF at the end of each record.
static void print_csv(FILE *f, const char *text, bool last) {
        if (strpbrk(text, ",\"\r\n")) {
                fputc('"', f);
                for (const char *p = text; *p; p++) {
                        if (*p == '"')
                                fputc('"', f);
                        fputc(*p, f);
                }
                fputc('"', f);
        } else
                fputs(text, f);
        fputs(last ? "\r\n" : ",", f);
}

static void output_csv(FILE *f, const Column *columns, const json_t *rows) {
        bool tty = isatty(fileno(f));
        json_t *row;
        size_t i;

        for (const Column *c = columns; c->path; c++)
                print_csv(f, c->path, !c[1].path);
        json_array_foreach(rows, i, row)
                for (const Column *c = columns; c->path; c++) {
                        _cleanup_free_ char *text = output_value(value_at(row, c->path), c->type, false);
                        _cleanup_free_ char *shown = text && tty ? valid_printable(text) : NULL;
                        print_csv(f, shown ?: text ?: "", !c[1].path);
                }
}

void output_rows(FILE *f, OutputFormat format, const Column *columns, const json_t *rows) {
        if (format == OUTPUT_JSON)
                output_json(f, rows);
        else if (format == OUTPUT_CSV)
                output_csv(f, columns, rows);
        else
                output_table(f, columns, rows);
}

void output_json(FILE *f, const json_t *value) {
        // On a terminal everything beyond ASCII is escaped, as it may steer the terminal.
        size_t flags = JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_ENCODE_ANY | (isatty(fileno(f)) ? JSON_ENSURE_ASCII : 0);

        (void) json_dumpf(value, f, flags); // a write error is found when stdout is closed
        fputc('\n', f);
}

static bool is_table(const json_t *value) {
        return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

static void output_nested(FILE *f, const json_t *object, int indent);

// An array of objects inside an object: one block each.
static void output_blocks(FILE *f, const json_t *array, int indent) {
        json_t *element;
        size_t i;

        json_array_foreach(array, i, element) {
                fprintf(f, "%*s- #%zu\n", indent, "", i + 1);
                output_nested(f, element, indent + 2);
        }
}

// Sizes and times are told by their keys; nothing else in a reply says so.
static ParamType key_type(const char *key) {
        static const struct {
                const char *suffix;
                ParamType type;
        } suffixes[] = {{"_bytes", PARAM_SIZE}, {"_usec", PARAM_SPAN}, {"memory", PARAM_SIZE}, {"memory_used", PARAM_SIZE},
                        {"memory_peak", PARAM_SIZE}, {"disk", PARAM_SIZE}, {"disk_used", PARAM_SIZE}, {"size", PARAM_SIZE},
                        {"cpu_used", PARAM_SPAN},
                        {"memory_reserve", PARAM_SIZE}, {"memory_promised", PARAM_SIZE}, {"disk_reserve", PARAM_SIZE}, {"disk_promised", PARAM_SIZE}};
        size_t n = strlen(key);

        for (size_t i = 0; i < ELEMENTS(suffixes); i++) {
                size_t k = strlen(suffixes[i].suffix);
                if (suffixes[i].suffix[0] == '_' ? n > k && strcmp(key + n - k, suffixes[i].suffix) == 0
                                                 : strcmp(key, suffixes[i].suffix) == 0)
                        return suffixes[i].type;
        }
        return PARAM_STRING;
}

static void output_nested(FILE *f, const json_t *object, int indent) {
        size_t width = 0;
        const char *key;
        json_t *value;

        json_object_foreach((json_t *) object, key, value)
                if (!json_is_object(value) && !is_table(value))
                        width = MAX2(width, text_width(key));
        json_object_foreach((json_t *) object, key, value) {
                _cleanup_free_ char *name = valid_printable(key), *text = NULL, *shown = NULL;
                if (json_object_size(value) > 0 || is_table(value)) {
                        fprintf(f, "%*s%s:\n", indent, "", name ?: "");
                        if (is_table(value))
                                output_blocks(f, value, indent + 2);
                        else
                                output_nested(f, value, indent + 2);
                        continue;
                }
                text = output_value(value, key_type(key), true);
                shown = text ? valid_printable(text[0] ? text : "-") : NULL;
                fprintf(f, "%*s%s:%*s %s\n", indent, "", name ?: "", (int) (width > text_width(key) ? width - text_width(key) : 0),
                        "", shown ?: "?");
        }
}

void output_object(FILE *f, const json_t *object) {
        output_nested(f, object, 0);
}

void output_text(FILE *f, const char *text) {
        while (*text) {
                size_t n = strcspn(text, "\n\t");
                _cleanup_free_ char *piece = strndup(text, n), *shown = piece ? valid_printable(piece) : NULL;
                fputs(shown ?: "", f);
                text += n;
                if (*text)
                        fputc(*text++, f);
                else if (n)
                        fputc('\n', f);
        }
}

int output_reply(FILE *f, const Method *method, const json_t *local, const json_t *reply, Error *err) {
        const char *list = json_string_value(json_object_get(local, "columns"));
        _cleanup_free_ Column *columns = NULL;
        OutputFormat format;
        int r = output_format_parse(method, local, &format, err);

        if (r < 0)
                return r;
        if (method->list) {
                r = output_columns(method->columns, list, &columns, err);
                if (r < 0)
                        return r;
        }
        if (format == OUTPUT_JSON)
                output_json(f, reply);
        else if (method->list)
                output_rows(f, format, columns, json_object_get(reply, method->list));
        else
                output_object(f, reply);
        return 0;
}
