// SPDX-License-Identifier: GPL-2.0-or-later
// Schema: see schema.h.
#include "model/schema.h"

#include <string.h>

#include "model/schema_type.h"

const char *schema_row_key(const SchemaRow *row) {
        return row->key ?: limit_row(row->limit)->key;
}

const char *schema_row_doc(const SchemaRow *row) {
        return row->doc ?: limit_row(row->limit)->doc;
}

bool schema_row_is_list(const SchemaRow *row) {
        return schema_types[row->type].list;
}

const SchemaRow *schema_find(const Schema *schema, const char *key) {
        for (size_t i = 0; i < schema->n; i++)
                if (strcmp(schema_row_key(&schema->rows[i]), key) == 0)
                        return &schema->rows[i];
        return NULL;
}

// The one door to a row's value.
int schema_value_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        const SchemaTypeInfo *type = &schema_types[row->type];

        if (!type->list && strv_length(values) != 1)
                return error_set_field(err, schema_row_key(row), "%s must be %s", schema_row_key(row), type->wanted);
        return type->parse(row, values, object, err);
}

// No element of any list may hold a comma, so splitting at commas loses nothing; labels, which may, are set one by one.
int schema_text_parse(const SchemaRow *row, const char *text, void *object, Error *err) {
        _cleanup_strv_ char **values = NULL;
        int r;

        if (schema_row_is_list(row))
                r = strv_split(text, ",", &values);
        else
                r = strv_append(&values, text);
        if (r < 0)
                return error_set_errno(err, r, "cannot read %s", schema_row_key(row));
        return schema_value_parse(row, values, object, err);
}

int schema_value_format(const SchemaRow *row, const void *object, char ***ret) {
        _cleanup_strv_ char **values = NULL;
        int r = schema_types[row->type].format(row, object, &values);

        if (r < 0)
                return r;
        *ret = TAKE_PTR(values);
        return 0;
}

char *schema_text_format(const SchemaRow *row, const void *object) {
        _cleanup_strv_ char **values = NULL;

        return schema_value_format(row, object, &values) < 0 ? NULL : strv_join(values, ",");
}

// Written as a person would: a count or a number of CPUs without quotes, a size with them, as it has a unit.
static char *file_value(const SchemaRow *row, const char *value) {
        bool plain = row->type == SCHEMA_LIMIT && limit_is_plain(row->limit);

        if (row->type == SCHEMA_LIMIT && strcmp(value, "0B") == 0)
                return strdup("0");
        return schema_types[row->type].quoted && !plain ? config_text_quote(value) : strdup(value);
}

// Lists are written as arrays, which hold strings only; either form is read.
char *schema_file_value(const SchemaRow *row, char *const *values) {
        const SchemaTypeInfo *type = &schema_types[row->type];
        _cleanup_strv_ char **quoted = NULL;
        _cleanup_free_ char *joined = NULL;
        char *out = NULL;

        if (!type->list && values && values[0])
                return file_value(row, values[0]);
        for (size_t i = 0; values && values[i]; i++) {
                _cleanup_free_ char *q = file_value(row, values[i]);
                if (!q || strv_append(&quoted, q) < 0)
                        return NULL;
        }
        joined = strv_join(quoted, ", ");
        if (!joined || !type->list)
                return TAKE_PTR(joined);
        return asprintf(&out, quoted ? "[ %s ]" : "[%s]", joined) < 0 ? NULL : out;
}

char *schema_file_format(const SchemaRow *row, const void *object) {
        _cleanup_strv_ char **values = NULL;

        return schema_value_format(row, object, &values) < 0 ? NULL : schema_file_value(row, values);
}

bool schema_value_is_fallback(const SchemaRow *row, const void *object, const void *plain) {
        size_t size = schema_types[row->type].size;

        return row->fallback && size > 0 && memcmp((const char *) object + row->offset, (const char *) plain + row->offset, size) == 0;
}

void schema_value_clear(const SchemaRow *row, void *object) {
        if (schema_types[row->type].clear)
                schema_types[row->type].clear(row, object);
}

void schema_clear(const Schema *schema, void *object) {
        for (size_t i = 0; i < schema->n; i++)
                schema_value_clear(&schema->rows[i], object);
}

// Defaults go through the parser like anything else: a default that is out of bounds fails the first test that parses.
int schema_apply_fallbacks(const Schema *schema, void *object, Error *err) {
        for (size_t i = 0; i < schema->n; i++) {
                const SchemaRow *row = &schema->rows[i];
                int r = row->fallback ? schema_text_parse(row, row->fallback, object, err) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

// One scalar as text. Numbers have exactly one spelling, so that rules for text hold for them too.
static int scalar_text(const config_setting_t *setting, char ***values) {
        switch (config_setting_type(setting)) {
        case CONFIG_TYPE_STRING:
                return strv_append(values, config_setting_get_string(setting) ?: "");
        case CONFIG_TYPE_BOOL:
                return strv_append(values, config_setting_get_bool(setting) ? "true" : "false");
        case CONFIG_TYPE_FLOAT:
                return strv_append_format(values, "%.15g", config_setting_get_float(setting));
        case CONFIG_TYPE_INT:
                return strv_append_format(values, "%d", config_setting_get_int(setting));
        default:
                return strv_append_format(values, "%lld", config_setting_get_int64(setting));
        }
}

static int wrong_type(const SchemaRow *row, Error *err) {
        return error_set_field(err, schema_row_key(row), "%s must be %s", schema_row_key(row),
                               schema_types[row->type].wanted);
}

// The file's value as texts, if it has a type that the row takes.
static int setting_values(const SchemaRow *row, const config_setting_t *setting, char ***ret, Error *err) {
        const SchemaTypeInfo *type = &schema_types[row->type];
        _cleanup_strv_ char **values = NULL;
        int r = 0;

        if (!type->list) {
                if (!(type->accepts & 1u << config_setting_type(setting)))
                        return wrong_type(row, err);
                r = scalar_text(setting, &values);
        } else if (!config_setting_is_list(setting) && !config_setting_is_array(setting)) {
                return wrong_type(row, err);
        }
        for (unsigned i = 0; r >= 0 && type->list && i < (unsigned) config_setting_length(setting); i++) {
                const config_setting_t *element = config_setting_get_elem(setting, i);
                if (config_setting_type(element) != CONFIG_TYPE_STRING)
                        return wrong_type(row, err);
                if (i > SCHEMA_LIST_MAX)
                        break; // one more than allowed is enough for the refusal
                r = scalar_text(element, &values);
        }
        if (r < 0)
                return error_set_errno(err, r, "cannot read %s", schema_row_key(row));
        *ret = TAKE_PTR(values);
        return 0;
}

// Fields of a group in a list are known by where they stand: "rules[2].to".
static void qualify_field(const SchemaInput *input, Error *err) {
        char *field = NULL;

        if (!input->list || !err || !err->field || asprintf(&field, "%s[%zu].%s", input->list, input->index, err->field) < 0)
                return;
        free(err->field);
        err->field = field;
        (void) error_wrap(err, "%s[%zu]", input->list, input->index);
}

// Most values of a long file are strings, and nobody keeps what he is given: they are read where libconfig has them.
static int parse_string(const SchemaRow *row, const config_setting_t *setting, void *object, Error *err) {
        const char *text = config_setting_get_string(setting) ?: "";
        char *values[] = {(char *) text, NULL};

        if (schema_types[row->type].list || !(schema_types[row->type].accepts & 1u << CONFIG_TYPE_STRING))
                return wrong_type(row, err);
        return schema_value_parse(row, values, object, err);
}

// libconfig has refused keys that come twice before this.
static int parse_member(const Schema *schema, const config_setting_t *setting, void *object, uint64_t *seen, Error *err) {
        const char *key = config_setting_name(setting);
        const SchemaRow *row = schema_find(schema, key);
        int r;

        if (!row)
                return error_set_field(err, key, "%s is not a known key", key);
        if (config_setting_type(setting) == CONFIG_TYPE_STRING) {
                r = parse_string(row, setting, object, err);
        } else {
                _cleanup_strv_ char **values = NULL;
                r = setting_values(row, setting, &values, err);
                if (r >= 0)
                        r = schema_value_parse(row, values, object, err);
        }
        if (r >= 0)
                *seen |= UINT64_C(1) << (row - schema->rows);
        return r;
}

// Stops at the first fault: one sentence that is right is worth more than ten of which nine follow from the first.
int schema_parse(const Schema *schema, const SchemaInput *input, void *object, uint64_t *ret_seen, Error *err) {
        uint64_t seen = 0;

        for (unsigned i = 0; i < (unsigned) config_setting_length(input->group); i++) {
                const config_setting_t *setting = config_setting_get_elem(input->group, i);
                if (input->ignore && strcmp(config_setting_name(setting), input->ignore) == 0)
                        continue;
                int r = parse_member(schema, setting, object, &seen, err);
                if (r < 0) {
                        qualify_field(input, err);
                        return config_text_locate(input->text, setting, r, err);
                }
        }
        if (ret_seen)
                *ret_seen = seen;
        return 0;
}

// A policy that does not exist would silently deny everything; so the file that names it is at fault.
int schema_check_policies(const ParseContext *context, const ConfigText *text, const char *key, char *const *policies, Error *err) {
        for (; context->check_policies && policies && *policies; policies++) {
                if (strv_contains(context->policies, *policies))
                        continue;
                int r = error_set_field(err, key, "%s names \"%s\", and there is no policy of that name", key, *policies);
                return config_text_locate(text, config_setting_get_member(config_root_setting(&text->config), key), r, err);
        }
        return 0;
}
