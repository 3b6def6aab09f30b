// SPDX-License-Identifier: GPL-2.0-or-later
// The method table is sound, and no bad value gets past it: cases are generated from the rows.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/method.h"

static void test_rows_are_sound(void **state) {
        for (int i = 0; i < _METHOD_MAX; i++) {
                const Method *m = method_get(i);
                assert_non_null(m->name);
                assert_int_equal(method_from_name(m->name), i);
                assert_true(strncmp(m->name, "io.hostd.", 9) == 0);
                assert_true(m->access > ACCESS_NONE && m->access < _ACCESS_MAX);
                assert_true(m->n_fds <= WIRE_FDS_MAX);
                assert_true(m->words && m->doc && m->params);
                assert_true((m->list != NULL) == (m->columns != NULL));
                assert_false(m->flags & METHOD_MUTATES && m->access == ACCESS_VIEW);
                for (int k = 0; k < i; k++)
                        assert_string_not_equal(m->words, method_get(k)->words);
                for (const Param *p = m->params; p->name; p++) {
                        assert_non_null(p->doc);
                        assert_true(p->type == PARAM_BOOL || p->meta);
                        for (const Param *q = m->params; q != p; q++) {
                                assert_string_not_equal(p->name, q->name);
                                assert_false(p->letter && p->letter == q->letter);
                        }
                }
        }
        assert_int_equal(method_from_name("io.hostd.Instance.Nothing"), _METHOD_INVALID);
}

// A value of each kind that is right.
static const char *good_text(ValidKind kind) {
        static const char *const good[_VALID_MAX] = {
                [VALID_PATH] = "/x", [VALID_DIGEST] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                [VALID_CPUSET] = "0", [VALID_CIDR] = "10.0.0.1", [VALID_PORTS] = "80", [VALID_UNIT] = "a.service", [VALID_PACKAGE] = "ab",
                [VALID_HOST] = "api.example.com", [VALID_METHOD] = "GET", [VALID_URL_PATH] = "/v1/",
        };

        return good[kind] ?: "abc";
}

static json_t *good_value(const Param *p) {
        switch (p->type) {
        case PARAM_STRING:
                return json_string(p->choices ? p->choices[0] : good_text(p->valid));
        case PARAM_STRINGS:
                return json_pack("[s]", good_text(p->valid));
        case PARAM_BOOL:
                return json_true();
        case PARAM_PAIRS:
                return json_pack("{s:s}", p->valid == VALID_ARGUMENT ? "KEY" : "key", good_text(p->valid));
        case PARAM_INT:
        case PARAM_SIZE:
        case PARAM_SPAN:
                break;
        }
        return json_integer(p->min > 0 ? p->min : 1);
}

static json_t *good_parameters(const Method *m) {
        json_t *object = json_object();

        for (const Param *p = m->params; p->name; p++)
                if (!(p->flags & PARAM_LOCAL))
                        json_object_set_new(object, p->name, good_value(p));
        return object;
}

static void refused(const Method *m, const json_t *parameters, const char *field, const char *what) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = method_check(m, parameters, &err);

        if (r != -EINVAL || err.code != ERR_INVALID || !err.field || !strstr(err.field, field) || !strstr(err.message, field))
                fail_msg("%s: %s of %s: %d, field %s, \"%s\"", m->name, what, field, r, err.field ?: "none", error_message(&err, r));
}

static void test_good_is_accepted(void **state) {
        for (int i = 0; i < _METHOD_MAX; i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                json_t *object = good_parameters(method_get(i));
                if (method_check(method_get(i), object, &err) != 0)
                        fail_msg("%s: %s", method_get(i)->name, error_message(&err, 0));
                json_decref(object);
        }
}

static void test_missing_unknown_and_types(void **state) {
        for (int i = 0; i < _METHOD_MAX; i++) {
                const Method *m = method_get(i);
                json_t *unknown = good_parameters(m);
                json_object_set_new(unknown, "nosuch", json_true());
                refused(m, unknown, "nosuch", "unknown");
                json_decref(unknown);
                for (const Param *p = m->params; p->name; p++) {
                        json_t *bad[] = {json_null(), json_real(1.5), json_integer(-5), json_string("x\n"), json_array(), json_pack("[i]", 1),
                                         json_pack("{s:i}", "k", 1)};
                        json_t *object = good_parameters(m);
                        if (p->flags & PARAM_LOCAL) { // hostctl's own: hostd does not know it
                                json_object_set_new(object, p->name, json_true());
                                refused(m, object, p->name, "local");
                        } else if (p->flags & PARAM_REQUIRED) {
                                json_object_del(object, p->name);
                                refused(m, object, p->name, "missing");
                        }
                        for (size_t k = 0; k < ELEMENTS(bad); k++) {
                                bool fits = (p->type == PARAM_STRINGS && json_is_array(bad[k]) && !json_array_size(bad[k]) &&
                                             !(p->flags & PARAM_REQUIRED)) ||
                                            (p->type == PARAM_STRING && p->valid == VALID_ARGUMENT && json_is_string(bad[k]));
                                json_object_set(object, p->name, bad[k]);
                                if (!fits && !(p->flags & PARAM_LOCAL))
                                        refused(m, object, p->name, "type");
                                json_decref(bad[k]);
                        }
                        json_decref(object);
                }
        }
}

// Puts `text` where the parameter has its string.
static json_t *with_text(const Param *p, const char *text, size_t size) {
        json_t *string = json_stringn_nocheck(text, size);

        return p->type == PARAM_STRINGS ? json_pack("[o]", string)
               : p->type == PARAM_PAIRS ? json_pack("{s:o}", p->valid == VALID_ARGUMENT ? "KEY" : "key", string)
                                        : string;
}

static void test_bad_strings(void **state) {
        static char huge[200000];
        static const struct {
                const char *text, *what;
                size_t size;
        } cases[] = {
                {"a\nb", "newline", 3},   {"a\rb", "return", 3}, {"a\0b", "NUL", 3},      {"a\xff", "no UTF-8", 2},
                {"a\xc0\xaf", "overlong", 3}, {"a\x1b[0m", "escape", 5}, {"a\"b", "quote", 3}, {"a'b", "quote", 3},
                {"a\\b", "backslash", 3}, {"/a/../b", "dots", 7}, {"..", "dots", 2},     {"", "empty", 0},
                {huge, "too long", sizeof(huge) - 1}, {"a;b", "semicolon", 3}, {"a{b", "brace", 3}, {"a#b", "hash", 3},
        };

        memset(huge, 'a', sizeof(huge) - 1);
        for (int i = 0; i < _METHOD_MAX; i++)
                for (const Param *p = method_get(i)->params; p->name; p++) {
                        if (p->flags & PARAM_LOCAL || (p->type != PARAM_STRING && p->type != PARAM_STRINGS && p->type != PARAM_PAIRS))
                                continue;
                        for (size_t k = 0; k < ELEMENTS(cases); k++) {
                                bool nul = memchr(cases[k].text, 0, cases[k].size) != NULL;
                                json_t *object = good_parameters(method_get(i));
                                json_object_set_new(object, p->name, with_text(p, cases[k].text, cases[k].size));
                                // The kind decides what is bad for it; these are bad for every kind.
                                bool always = nul || cases[k].size > 131071 || strstr(cases[k].what, "UTF-8") || strstr(cases[k].what, "overlong");
                                bool line = p->valid != VALID_ARGUMENT && (strchr(cases[k].text, '\n') || strchr(cases[k].text, '\r') || strchr(cases[k].text, 27));
                                if (always || line || !valid_is(p->valid, cases[k].text))
                                        refused(method_get(i), object, p->name, cases[k].what);
                                json_decref(object);
                        }
                }
}

static void test_choices(void **state) {
        size_t n = 0;

        for (int i = 0; i < _METHOD_MAX; i++)
                for (const Param *p = method_get(i)->params; p->name; p++) {
                        if (p->choices && strcmp(p->name, "format") == 0) // csv where there is a list, and only there
                                assert_true(!param_check_choice(p, "csv", NULL) == !!method_get(i)->list);
                        if (!p->choices || p->flags & PARAM_LOCAL)
                                continue;
                        json_t *object = good_parameters(method_get(i));
                        for (const char *const *c = p->choices; *c; c++, n++) {
                                json_object_set_new(object, p->name, json_string(*c));
                                assert_int_equal(method_check(method_get(i), object, NULL), 0);
                        }
                        json_object_set_new(object, p->name, json_string("none"));
                        refused(method_get(i), object, p->name, "choice");
                        json_decref(object);
                }
        assert_true(n > 0);
}

static void test_bad_keys(void **state) {
        static const char *const keys[] = {"", "a b", "a\nb", "a=b", "a\"b", "\xff", "a;b", "../x"};

        for (int i = 0; i < _METHOD_MAX; i++)
                for (const Param *p = method_get(i)->params; p->name; p++)
                        for (size_t k = 0; p->type == PARAM_PAIRS && k < ELEMENTS(keys); k++) {
                                json_t *object = good_parameters(method_get(i)), *pairs = json_object();
                                json_object_set_new_nocheck(pairs, keys[k], json_string("v"));
                                json_object_set_new(object, p->name, pairs);
                                refused(method_get(i), object, p->name, "key");
                                json_decref(object);
                        }
}

static void test_bounds(void **state) {
        for (int i = 0; i < _METHOD_MAX; i++)
                for (const Param *p = method_get(i)->params; p->name; p++) {
                        if (p->flags & PARAM_LOCAL || (p->type != PARAM_INT && p->type != PARAM_SIZE && p->type != PARAM_SPAN))
                                continue;
                        json_t *object = good_parameters(method_get(i));
                        json_object_set_new(object, p->name, json_integer(p->min - 1));
                        refused(method_get(i), object, p->name, "minimum");
                        if (p->max > 0) {
                                json_object_set_new(object, p->name, json_integer(p->max));
                                assert_int_equal(method_check(method_get(i), object, NULL), 0);
                        }
                        if (p->max > 0 && p->max < INT64_MAX) {
                                json_object_set_new(object, p->name, json_integer(p->max + 1));
                                refused(method_get(i), object, p->name, "maximum");
                        }
                        json_decref(object);
                }
}

static void test_too_many_entries(void **state) {
        const Method *m = method_get(METHOD_COMMAND_EXEC);
        json_t *object = good_parameters(m), *words = json_array();

        for (int i = 0; i < 5000; i++)
                json_array_append_new(words, json_string("x"));
        json_object_set_new(object, "command", words);
        refused(m, object, "command", "number");
        json_decref(object);
}

static void test_descriptions(void **state) {
        const ServerDescription *d = method_description();

        for (int i = 0; i < _METHOD_MAX; i++) {
                const Method *m = method_get(i);
                _cleanup_free_ char *interface = strndup(m->name, (size_t) (strrchr(m->name, '.') - m->name)), *line = NULL;
                _cleanup_free_ char *text = d->describe(interface);
                bool listed = false;
                for (const char *const *k = d->interfaces; *k; k++)
                        listed |= strcmp(*k, interface) == 0;
                assert_true(listed);
                assert_non_null(text);
                assert_true(asprintf(&line, "\nmethod %s(", strrchr(m->name, '.') + 1) > 0);
                assert_non_null(strstr(text, line));
                assert_true(d->has_method(m->name));
        }
        assert_null(d->describe("io.hostd.Nothing"));
        assert_false(d->has_method("io.hostd.Instance.Nothing"));
        for (int i = 0; i < _ACCESS_MAX; i++)
                assert_string_not_equal(method_access_name(i), "unknown");
}

// What a record of the audit log can say is what the log can be searched for.
static void test_results(void **state) {
        const Method *query = method_get(METHOD_AUDIT_QUERY);
        const Param *p = query->params;
        unsigned n = 0;

        while (strcmp(p->name, "result") != 0)
                p++;
        while (p->choices[n])
                n++;
        assert_int_equal(n, 3 + _ERR_MAX - ERR_INTERNAL);
        for (int code = ERR_INTERNAL; code < _ERR_MAX; code++)
                assert_int_equal(param_check_choice(p, error_code_info(code)->name, NULL), 0);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rows_are_sound), cmocka_unit_test(test_good_is_accepted),
                cmocka_unit_test(test_missing_unknown_and_types), cmocka_unit_test(test_bad_strings),
                cmocka_unit_test(test_bad_keys), cmocka_unit_test(test_choices), cmocka_unit_test(test_bounds),
                cmocka_unit_test(test_too_many_entries), cmocka_unit_test(test_descriptions),
                cmocka_unit_test(test_results),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
