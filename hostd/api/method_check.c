// SPDX-License-Identifier: GPL-2.0-or-later
// Method check: holds parameters against a row, before anything looks at them. hostctl runs it too, so that a bad word costs no
// connection; hostd never relies on that.
#include <string.h>

#include "api/method.h"

#define CHECK_ELEMENTS_MAX 4096

MethodId method_from_name(const char *name) {
        for (int i = 0; i < _METHOD_MAX; i++)
                if (strcmp(method_get(i)->name, name) == 0)
                        return i;
        return _METHOD_INVALID;
}

static const Param *param_find(const Method *method, const char *name) {
        for (const Param *p = method->params; p->name; p++)
                if (!(p->flags & PARAM_LOCAL) && strcmp(p->name, name) == 0)
                        return p;
        return NULL;
}

static int check_text(const Param *p, const char *field, const json_t *value, Error *err) {
        if (!json_is_string(value))
                return error_set_field(err, field, "%s must be a string", field);
        // Jansson refuses \u0000 when it parses; this is for objects that were made by hand.
        if (strlen(json_string_value(value)) != json_string_length(value))
                return error_set_field(err, field, "%s must not contain NUL", field);
        return valid_check(p->valid, field, json_string_value(value), err);
}

int param_check_choice(const Param *param, const char *text, Error *err) {
        char list[256] = "";

        for (const char *const *c = param->choices; c && *c; c++) {
                size_t n = strlen(list);
                if (strcmp(*c, text) == 0)
                        return 0;
                snprintf(list + n, sizeof(list) - n, "%s%s", n == 0 ? "" : c[1] ? ", " : " and ", *c);
        }
        return param->choices ? error_set_field(err, param->name, "%s \"%s\" is not one of %s", param->name, text, list) : 0;
}

static int check_string(const Param *p, const json_t *value, Error *err) {
        int r = check_text(p, p->name, value, err);

        return r < 0 ? r : param_check_choice(p, json_string_value(value), err);
}

static int check_size(const Param *p, size_t n, Error *err) {
        if (n == 0 && p->flags & PARAM_REQUIRED)
                return error_set_field(err, p->name, "%s must not be empty", p->name);
        if (n > CHECK_ELEMENTS_MAX)
                return error_set_field(err, p->name, "%s has %zu entries, at most %d are possible", p->name, n, CHECK_ELEMENTS_MAX);
        return 0;
}

static int check_strings(const Param *p, const json_t *value, Error *err) {
        size_t i;
        json_t *element;
        int r;

        if (!json_is_array(value))
                return error_set_field(err, p->name, "%s must be an array of strings", p->name);
        r = check_size(p, json_array_size(value), err);
        json_array_foreach(value, i, element) {
                char field[64];
                if (r < 0)
                        return r;
                r = check_text(p, p->name, element, NULL);
                if (r >= 0)
                        continue;
                snprintf(field, sizeof(field), "%s[%zu]", p->name, i); // only then: there may be thousands
                r = check_text(p, field, element, err);
        }
        return r;
}

// Environment variables have their own alphabet; every other pair is a setting or a label.
static ValidKind pair_key_kind(const Param *p) {
        return p->valid == VALID_ARGUMENT ? VALID_ENV_NAME : VALID_LABEL_KEY;
}

static int check_pairs(const Param *p, const json_t *value, Error *err) {
        const char *key;
        json_t *element;
        int r;

        if (!json_is_object(value))
                return error_set_field(err, p->name, "%s must be an object of strings", p->name);
        r = check_size(p, json_object_size(value), err);
        json_object_foreach((json_t *) value, key, element) {
                char field[256];
                if (r < 0)
                        return r;
                r = valid_check(pair_key_kind(p), p->name, key, err);
                if (r < 0)
                        return r;
                snprintf(field, sizeof(field), "%s.%s", p->name, key);
                r = check_text(p, field, element, err);
        }
        return r;
}

static int check_integer(const Param *p, const json_t *value, Error *err) {
        int64_t max = p->min == 0 && p->max == 0 ? INT64_MAX : p->max, n = json_integer_value(value);

        if (!json_is_integer(value))
                return error_set_field(err, p->name, "%s must be a whole number", p->name);
        if (n < p->min)
                return error_set_field(err, p->name, "%s must be at least %lld", p->name, (long long) p->min);
        if (n > max)
                return error_set_field(err, p->name, "%s must be at most %lld", p->name, (long long) max);
        return 0;
}

static int check_bool(const Param *p, const json_t *value, Error *err) {
        if (!json_is_boolean(value))
                return error_set_field(err, p->name, "%s must be true or false", p->name);
        return 0;
}

static int (*const check_table[])(const Param *p, const json_t *value, Error *err) = {
        [PARAM_STRING] = check_string, [PARAM_STRINGS] = check_strings, [PARAM_INT] = check_integer, [PARAM_SIZE] = check_integer,
        [PARAM_SPAN] = check_integer,  [PARAM_BOOL] = check_bool,       [PARAM_PAIRS] = check_pairs,
};

static int check_unknown(const Method *method, const char *key, Error *err) {
        _cleanup_free_ char *shown = valid_printable(key);

        if (shown && strlen(shown) > 64)
                memcpy(shown + 61, "...", 4);
        return error_set_field(err, shown, "\"%s\" is not a parameter of %s", shown ?: "", method->name);
}

int method_check(const Method *method, const json_t *parameters, Error *err) {
        const char *key;
        json_t *value;

        if (!json_is_object(parameters))
                return error_set_field(err, "parameters", "parameters must be an object");
        json_object_foreach((json_t *) parameters, key, value)
                if (!param_find(method, key))
                        return check_unknown(method, key, err);
        for (const Param *p = method->params; p->name; p++) {
                value = json_object_get(parameters, p->name);
                if (p->flags & PARAM_LOCAL)
                        continue;
                if (!value) {
                        if (p->flags & PARAM_REQUIRED)
                                return error_set_field(err, p->name, "%s is missing", p->name);
                        continue;
                }
                int r = check_table[p->type](p, value, err);
                if (r < 0)
                        return r;
        }
        return 0;
}
