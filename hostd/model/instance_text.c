// SPDX-License-Identifier: GPL-2.0-or-later
// Edits of an instance's file: one setting is replaced, all other text (comments too) stays as it is.
#include <string.h>

#include "model/schema.h"

// An object to check one value in: everything else stays empty.
static InstanceConfig *scratch_new(void) {
        InstanceConfig *scratch = calloc(1, sizeof(*scratch));

        if (scratch)
                limits_init(&scratch->limits);
        return scratch;
}

// What the file says now, without defaults, for keys that are changed in part (labels).
static int load_row(const ConfigText *parsed, const SchemaRow *row, InstanceConfig *scratch, Error *err) {
        const config_setting_t *setting = config_setting_get_member(config_root_setting(&parsed->config), schema_row_key(row));
        _cleanup_strv_ char **values = NULL;

        for (unsigned i = 0; setting && i < (unsigned) config_setting_length(setting); i++) {
                const char *text = config_setting_get_string_elem(setting, (int) i);
                if (!text)
                        return error_set_field(err, schema_row_key(row), "%s must be a list of strings", schema_row_key(row));
                if (strv_append(&values, text) < 0)
                        return error_set_errno(err, ENOMEM, "cannot read %s", schema_row_key(row));
        }
        return schema_value_parse(row, values, scratch, err);
}

// One label is replaced, added or (value NULL) removed; the list is written anew, sorted.
static int change_label(const SchemaRow *row, const char *key, const char *value, InstanceConfig *scratch, Error *err) {
        _cleanup_strv_ char **old = NULL, **values = NULL;
        _cleanup_free_ char *field = NULL;
        size_t size = strlen(key);
        int r = valid_check(VALID_LABEL_KEY, "labels", key, err);

        if (r < 0)
                return r;
        if (asprintf(&field, "labels.%s", key) < 0) {
                field = NULL;
                return error_set_errno(err, ENOMEM, "cannot change %s", key);
        }
        if (value) {
                r = valid_check(VALID_LABEL_VALUE, field, value, err);
                if (r < 0)
                        return r;
        }
        r = schema_value_format(row, scratch, &old);
        for (char **p = old; r >= 0 && p && *p; p++)
                if (strncmp(*p, key, size) != 0 || (*p)[size] != '=')
                        r = strv_append(&values, *p);
        if (r >= 0 && value)
                r = strv_append_format(&values, "%s=%s", key, value);
        if (r < 0)
                return error_set_errno(err, r, "cannot change %s", field);
        return schema_value_parse(row, values, scratch, err);
}

// What a key on the command line names.
typedef struct Target {
        const SchemaRow *row;
        const char *label; // of "labels.KEY", otherwise NULL
} Target;

// The new libconfig text of the target's row, or NULL to remove it.
static int new_value(const ConfigText *parsed, const Target *target, const char *value, char **ret, Error *err) {
        _cleanup_(instance_config_freep) InstanceConfig *scratch = scratch_new();
        const SchemaRow *row = target->row;
        int r;

        if (!scratch)
                return error_set_errno(err, ENOMEM, "cannot change %s", schema_row_key(row));
        if (target->label) {
                r = load_row(parsed, row, scratch, err);
                if (r >= 0)
                        r = change_label(row, target->label, value, scratch, err);
                if (r < 0)
                        return r;
                if (scratch->n_labels == 0)
                        return 0;
        } else if (!value) {
                return 0;
        } else {
                r = schema_text_parse(row, value, scratch, err);
                if (r < 0)
                        return r;
        }
        // "max" is unset in the object, but a word in a file, where it overrides preset and default.
        *ret = row->type == SCHEMA_LIMIT && strcmp(value, "max") == 0 ? config_text_quote("max") : schema_file_format(row, scratch);
        return *ret ? 0 : error_set_errno(err, ENOMEM, "cannot change %s", schema_row_key(row));
}

// The key may be anything that a caller sent, so it is shown only in a printable form.
static int find_target(const char *key, Target *ret, Error *err) {
        const char *label = strncmp(key, "labels.", 7) == 0 ? key + 7 : NULL;
        const SchemaRow *row = schema_find(&instance_schema, label ? "labels" : key);
        _cleanup_free_ char *shown = NULL;

        if (!row) {
                shown = valid_printable(key);
                return error_set_field(err, shown, "%s is not a known key", shown ?: "this");
        }
        *ret = (Target) {row, label};
        return 0;
}

int instance_text_set(const char *text, const char *key, const char *value, char **ret, Error *err) {
        _cleanup_config_text_ ConfigText parsed = CONFIG_TEXT_NULL;
        _cleanup_(instance_config_freep) InstanceConfig *check = NULL;
        _cleanup_free_ char *formatted = NULL, *edited = NULL;
        HostConfig host = {.default_template = (char *) "any"}; // borrowed: the file need not name a template
        ParseContext context = {.host = &host};
        Target target = {0};
        int r;

        text = text ?: "";
        r = find_target(key, &target, err);
        if (r < 0)
                return r;
        if (target.row->type == SCHEMA_LABELS && !target.label && value)
                return error_set_field(err, "labels", "labels are set one by one, as labels.KEY");
        r = config_text_parse(&parsed, NULL, text, err);
        if (r >= 0)
                r = new_value(&parsed, &target, value, &formatted, err);
        if (r < 0)
                return r;
        if (config_text_edit(text, &parsed, schema_row_key(target.row), formatted, &edited) < 0)
                return error_set_errno(err, ENOMEM, "cannot change %s", key);
        // The whole must be good, not only the part: a file that was wrong before must not look blessed by an edit.
        r = instance_config_parse_in(&context, "any", edited, &check, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(edited);
        return 0;
}
