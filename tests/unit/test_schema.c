// SPDX-License-Identifier: GPL-2.0-or-later
// Property tests that are generated from the schema's rows: a key that is added later is tested without a word here.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "model/schema_type.h"

// libconfig 1.5 forgets the string it was reading when the text ends in it; that leak is not ours.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
        return "leak:strbuf_append\nleak:libconfig_yy\n";
}

// Values that no key of any type takes.
static const char *const bad_anywhere[] = {
        "a\nb", "a\rb", "a\tb", "\n", "a\x01z", "a\x1b[31m", "a\x7fz", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xae",
        "\xff", "\xc0\xaf", "a\xe2\x28\xa1", "\xed\xa0\x80", "\xf4\x90\x80\x80", "end\xc3",
};
// Values that free text may hold, and names, limits, numbers and addresses may not.
static const char *const bad_names[] = {
        "..", "../x", "/etc/passwd", "a/../b", "a\"b", "\"", "'", "a'b", "a;b", "a{b}", "#", "a b", " a", "a ", "$(x)", "`x`",
        "a\\b", "%n%s", "*", "-rf", "--help", "max ", "0x10", "-1", "1e3", "99999999999999999999999999", "\xc3\xa9",
        "A", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
};

static bool is_free_text(const SchemaRow *row) {
        return row->type == SCHEMA_STRING && row->valid == VALID_TEXT;
}

// Texts that are fine for one row although they are bad names in general.
static bool is_exception(const SchemaRow *row, const char *value) {
        if (row->type == SCHEMA_INT && strcmp(value, "-1") == 0)
                return true;
        if (row->valid == VALID_DESTINATION && strcmp(value, "*") == 0)
                return true;
        return row->valid == VALID_IFNAME && row->type == SCHEMA_STRING && strspn(value, "A-rfhelp013x") == strlen(value) &&
               strlen(value) < 16 && strcmp(row->key, "uplink") == 0;
}

static char *quote_raw(const char *value) {
        _cleanup_free_ char *quoted = config_text_quote(value);

        assert_non_null(quoted);
        return TAKE_PTR(quoted);
}

static char *setting_text(const SchemaRow *row, const char *value) {
        _cleanup_free_ char *quoted = quote_raw(value);
        char *text = NULL;

        if (row->type == SCHEMA_LABELS)
                assert_true(asprintf(&text, "%s = [ \"k=%.*s ];\n", schema_row_key(row), (int) strlen(quoted), quoted + 1) > 0);
        else if (schema_row_is_list(row))
                assert_true(asprintf(&text, "%s = [ %s ];\n", schema_row_key(row), quoted) > 0);
        else
                assert_true(asprintf(&text, "%s = %s;\n", schema_row_key(row), quoted) > 0);
        return text;
}

typedef int (*ParseText)(const char *text, Error *err);

static int parse_instance_text(const char *text, Error *err) {
        _cleanup_(instance_config_freep) InstanceConfig *config = NULL;
        _cleanup_free_ char *whole = NULL;

        assert_true(asprintf(&whole, "%s%s", strstr(text, "template") == text ? "" : "template = \"agent\";\n", text) > 0);
        return instance_config_parse("a", whole, NULL, &config, err);
}

static int parse_host_text(const char *text, Error *err) {
        HostConfig config;
        int r = host_config_parse(text, &config, err);

        if (r >= 0)
                host_config_done(&config);
        return r;
}

static int parse_policy_text(const char *text, Error *err) {
        _cleanup_(policy_freep) Policy *policy = NULL;

        return policy_parse("p", text, &policy, err);
}

static int parse_rule_text(const char *text, Error *err) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_free_ char *whole = NULL;
        // The key under test comes in place of the good one.
        const char *action = strncmp(text, "action", 6) == 0 ? "" : "action = \"allow\"; ";
        const char *to = strncmp(text, "to ", 3) == 0 ? "" : "to = \"192.0.2.1\"; ";
        const char *protocol = strncmp(text, "protocol", 8) == 0 ? "" : "protocol = \"tcp\"; ";

        assert_true(asprintf(&whole, "rules = ( { %s%s%s%s } );\n", action, to, protocol, text) > 0);
        return policy_parse("p", whole, &policy, err);
}

static const struct {
        const Schema *schema;
        ParseText parse;
        const char *prefix;
} schemas[] = {
        {&instance_schema, parse_instance_text, ""},
        {&host_schema, parse_host_text, ""},
        {&policy_schema, parse_policy_text, ""},
        {&policy_rule_schema, parse_rule_text, "rules[0]."},
};

static void expect_refused(size_t s, const SchemaRow *row, const char *value) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_free_ char *text = setting_text(row, value), *field = NULL;
        int r = schemas[s].parse(text, &err);

        if (r >= 0)
                fail_msg("accepted: %s", text);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(err.message);
        assert_null(strpbrk(err.message, "\n\r\t\x1b"));
        assert_true(valid_utf8(err.message, strlen(err.message)));
        // What is no UTF-8 is refused before there are fields; then the line says where.
        if (!valid_utf8(value, strlen(value))) {
                assert_non_null(strstr(err.message, "UTF-8"));
                return;
        }
        assert_true(asprintf(&field, "%s%s", schemas[s].prefix, schema_row_key(row)) > 0);
        if (!err.field || strcmp(err.field, field) != 0)
                fail_msg("%s: field is %s, sentence %s", field, err.field ?: "(none)", err.message);
        assert_non_null(strstr(err.message, schema_row_key(row)));
}

static bool takes_strings(const SchemaRow *row) {
        return row->type != SCHEMA_BOOL && row->type != SCHEMA_INT && row->type != SCHEMA_COUNT;
}

static void test_bad_values(void **state) {
        unsigned n = 0;

        for (size_t s = 0; s < ELEMENTS(schemas); s++)
                for (size_t i = 0; i < schemas[s].schema->n; i++) {
                        const SchemaRow *row = &schemas[s].schema->rows[i];
                        if (!takes_strings(row)) {
                                expect_refused(s, row, "true"); // a string is the wrong type altogether
                                continue;
                        }
                        for (size_t k = 0; k < ELEMENTS(bad_anywhere); k++, n++)
                                expect_refused(s, row, bad_anywhere[k]);
                        if (is_free_text(row) || row->type == SCHEMA_LABELS)
                                continue;
                        for (size_t k = 0; k < ELEMENTS(bad_names); k++, n++)
                                if (!is_exception(row, bad_names[k]))
                                        expect_refused(s, row, bad_names[k]);
                }
        assert_true(n > 1000);
}

static void test_too_long(void **state) {
        for (size_t s = 0; s < ELEMENTS(schemas); s++)
                for (size_t i = 0; i < schemas[s].schema->n; i++) {
                        const SchemaRow *row = &schemas[s].schema->rows[i];
                        _cleanup_free_ char *value = malloc(2001);
                        assert_non_null(value);
                        memset(value, 'a', 2000);
                        value[2000] = 0;
                        if (takes_strings(row))
                                expect_refused(s, row, value);
                }
}

// "\x00" would end the value in the middle without a word.
static void test_nul_escape(void **state) {
        static const char *const forms[] = {"%s = \"a\\x00b\";\n", "%s = \"\\X00\";\n", "%s = [ \"a\\x00b\" ];\n", "%s = \"\\\\\\x00\";\n"};

        for (size_t s = 0; s < ELEMENTS(schemas); s++)
                for (size_t i = 0; i < schemas[s].schema->n; i++)
                        for (size_t k = 0; k < ELEMENTS(forms); k++) {
                                _cleanup_error_ Error err = ERROR_NULL;
                                _cleanup_free_ char *text = NULL;
                                size_t length = strcspn(forms[k], "%");
                                assert_true(asprintf(&text, "%s%s", schema_row_key(&schemas[s].schema->rows[i]), forms[k] + length + 2) > 0);
                                assert_true(schemas[s].parse(text, &err) < 0);
                                assert_non_null(strstr(err.message, "NUL"));
                        }
}

static void test_wrong_types(void **state) {
        static const char *const forms[] = {"{ a = 1; }", "( ( \"a\" ) )", "( { a = 1; } )", "[ 1, 2 ]", "[ true ]"};

        for (size_t s = 0; s < ELEMENTS(schemas); s++)
                for (size_t i = 0; i < schemas[s].schema->n; i++)
                        for (size_t k = 0; k < ELEMENTS(forms); k++) {
                                _cleanup_error_ Error err = ERROR_NULL;
                                _cleanup_free_ char *text = NULL;
                                assert_true(asprintf(&text, "%s = %s;\n", schema_row_key(&schemas[s].schema->rows[i]), forms[k]) > 0);
                                assert_true(schemas[s].parse(text, &err) < 0);
                                assert_non_null(err.field);
                        }
}

static void test_duplicates(void **state) {
        for (size_t s = 0; s < ELEMENTS(schemas); s++)
                for (size_t i = 0; i < schemas[s].schema->n; i++) {
                        _cleanup_error_ Error err = ERROR_NULL;
                        _cleanup_free_ char *text = NULL;
                        const char *key = schema_row_key(&schemas[s].schema->rows[i]);
                        assert_true(asprintf(&text, "%s = \"1\";\n%s = \"1\";\n", key, key) > 0);
                        assert_true(schemas[s].parse(text, &err) < 0);
                }
}

static const struct {
        const char *key, *value, *wanted; // NULL: as `value`
        const char *file; // what a person would write; NULL: `value` as it is
} good[] = {
        {"template", "debian", NULL, "\"debian\""},
        {"template", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", NULL,
         "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\""},
        {"preset", "medium", NULL, "\"medium\""},
        {"description", "Say \"hello\" to C:\\x00 \xc3\xa9\xe2\x82\xac #not; {a} comment", NULL,
         "\"Say \\\"hello\\\" to C:\\\\x00 \xc3\xa9\xe2\x82\xac #not; {a} comment\""},
        {"description", "", NULL, "\"\""},
        {"description", "100", NULL, "\"100\""},
        {"policies", "web,dns", NULL, "[ \"web\", \"dns\" ]"},
        {"policies", "", NULL, "[]"},
        {"boot", "off", NULL, "\"off\""},
        {"dns_rate", "50"}, {"dns_burst", "100000"}, {"dns_names", "1"}, {"dns_types", "TXT,NS", .file = "[ \"TXT\", \"NS\" ]"},
        {"sandboxes", "0", NULL, NULL},
        {"sandboxes", "1000", NULL, NULL},
        {"boot_order", "-1000", NULL, NULL},
        {"stop_timeout", "90s", NULL, "\"90s\""},
        {"stop_timeout", "120", "2min", "\"2min\""},
        {"stop_timeout", "1500ms", NULL, "\"1500ms\""},
        {"read_only", "true", NULL, NULL},
        {"offline", "true", NULL, NULL},
        {"package_lock_only", "true", NULL, NULL},
        {"package_no_scripts", "true", NULL, NULL},
        {"package_registries", "a.example.org,b.example.org", NULL, "[ \"a.example.org\", \"b.example.org\" ]"},
        {"allow_degraded", "apparmor,quota.inodes", NULL, "[ \"apparmor\", \"quota.inodes\" ]"},
        {"cpu", "2.5", NULL, NULL},
        {"cpu", "0.01", NULL, NULL},
        {"cpu", "12.345", NULL, NULL},
        {"cpu", "4", NULL, NULL},
        {"cpu", "max", "", "\"max\""},
        {"cpu_weight", "100", NULL, NULL},
        {"cpu_pin", "0-3,7", NULL, "\"0-3,7\""},
        {"cpu_pin", "3", NULL, "\"3\""},
        {"memory", "8GiB", NULL, "\"8GiB\""},
        {"memory", "1073741824", "1GiB", "\"1GiB\""},
        {"swap", "0", "0B", NULL},
        {"swap", "1GiB", NULL, "\"1GiB\""},
        {"pids", "4096", NULL, NULL},
        {"io_read", "100MiB", "100MiB/s", "\"100MiB/s\""},
        {"io_write", "1GiB", "1GiB/s", "\"1GiB/s\""},
        {"io_read_ops", "1000", NULL, NULL},
        {"io_write_ops", "1000000000", NULL, NULL},
        {"io_weight", "100", NULL, NULL},
        {"io_weight", "max", "", "\"max\""},
        {"disk", "40GiB", NULL, "\"40GiB\""},
        {"inodes", "1000000", NULL, NULL},
        {"inodes", "1099511627776", NULL, NULL}, // more than 32 bits
        {"open_files", "65536", NULL, NULL},
        {"upload", "12500KiB", "12500KiB/s", "\"12500KiB/s\""},
        {"download", "1GiB", "1GiB/s", "\"1GiB/s\""},
        {"connections", "500", NULL, NULL},
        {"connection_rate", "50", NULL, NULL},
        {"destinations", "100", NULL, NULL},
        {"destinations", "max", "", "\"max\""},
        {"traffic", "10GiB", NULL, "\"10GiB\""},
};

static size_t row_of(const char *key) {
        size_t i = 0;

        while (i < instance_schema_size() && strcmp(instance_schema_key(i), key) != 0)
                i++;
        assert_true(i < instance_schema_size());
        return i;
}

static void expect_written(const char *text, const char *key, const char *value) {
        _cleanup_free_ char *wanted = NULL;

        assert_true(asprintf(&wanted, "%s = %s;", key, value) > 0);
        if (!strstr(text, wanted))
                fail_msg("%s is not written as %s but: %s", key, value, text);
}

// set -> parse -> value -> set: the file says what the command line said, whatever else it holds.
static void test_round_trip(void **state) {
        static const char *const texts[] = {
                "", "# comment\n", "# no newline at the end", "template = \"x\"; /* one */ labels = [ \"a=b\" ] // two\n",
                "template : \"x\" read_only=false boot=\"on\"", "description = \"a\"\n  \"b\" ;\npids = 100, cpu = 1.5\n",
        };
        uint64_t covered = UINT64_C(1) << row_of("labels"); // set key by key, tested in test_desired

        for (size_t i = 0; i < ELEMENTS(good); i++)
                for (size_t t = 0; t < ELEMENTS(texts); t++) {
                        _cleanup_error_ Error err = ERROR_NULL;
                        _cleanup_(instance_config_freep) InstanceConfig *config = NULL;
                        _cleanup_free_ char *text = NULL, *again = NULL, *value = NULL, *removed = NULL;
                        HostConfig host = {.default_template = (char *) "any"};
                        if (instance_text_set(texts[t], good[i].key, good[i].value, &text, &err) < 0)
                                fail_msg("%s: %s", good[i].key, err.message);
                        expect_written(text, good[i].key, good[i].file ?: good[i].value);
                        if (instance_config_parse("a", text, &host, &config, &err) < 0)
                                fail_msg("%s: %s", text, err.message);
                        value = instance_config_value(config, row_of(good[i].key));
                        assert_string_equal(value, good[i].wanted ?: good[i].value);
                        assert_int_equal(config->sources[row_of(good[i].key)], SOURCE_INSTANCE);
                        // Setting the same again changes nothing.
                        assert_int_equal(instance_text_set(text, good[i].key, good[i].value, &again, &err), 0);
                        assert_string_equal(text, again);
                        assert_int_equal(instance_text_set(text, good[i].key, NULL, &removed, &err), 0);
                        assert_null(strstr(removed, "= \"medium\""));
                        covered |= UINT64_C(1) << row_of(good[i].key);
                }
        assert_true(covered == (UINT64_C(1) << instance_schema_size()) - 1);
}

// Rows of the host: read from what would be written of them, they are the same.
static void test_host_round_trip(void **state) {
        static const struct {
                const char *key, *value, *file;
        } values[] = {
                {"uplink", "eth0", "\"eth0\""},
                {"ipv4_pool", "10.99.0.0/20", "\"10.99.0.0/20\""},
                {"ipv6_pool", "fd00:1:2:3::/64", "\"fd00:1:2:3::/64\""},
                {"ipv6_nat", "false", "false"},
                {"memory_reserve", "4GiB", "\"4GiB\""},
                {"disk_reserve", "10GiB", "\"10GiB\""},
                {"allow_degraded", "apparmor,disk", "[ \"apparmor\", \"disk\" ]"},
                {"default_policies", "web", "[ \"web\" ]"},
                {"default_template", "debian", "\"debian\""},
                {"audit_keep_days", "90", "90"},
                {"resolver_upstream", "192.0.2.1,2001:db8::1", "[ \"192.0.2.1\", \"2001:db8::1\" ]"},
                {"connections_per_uid", "64", "64"},
        };

        assert_int_equal(ELEMENTS(values), host_schema.n); // a new row needs a line here
        for (size_t i = 0; i < host_schema.n; i++) {
                const SchemaRow *row = &host_schema.rows[i];
                _cleanup_free_ char *text = NULL, *value = NULL, *file = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                HostConfig config;
                assert_string_equal(values[i].key, schema_row_key(row));
                assert_true(asprintf(&text, "%s = %s;\n", values[i].key, values[i].file) > 0);
                if (host_config_parse(text, &config, &err) < 0)
                        fail_msg("%s: %s", text, err.message);
                value = host_config_value(&config, i);
                file = schema_file_format(row, &config);
                assert_string_equal(value, values[i].value);
                assert_string_equal(file, values[i].file);
                host_config_done(&config);
        }
}

// The same bad values, as they come from the command line.
static void test_text_set_bad(void **state) {
        for (size_t i = 0; i < instance_schema.n; i++) {
                const SchemaRow *row = &instance_schema.rows[i];
                for (size_t k = 0; k < ELEMENTS(bad_anywhere) + ELEMENTS(bad_names); k++) {
                        _cleanup_error_ Error err = ERROR_NULL;
                        const char *value = k < ELEMENTS(bad_anywhere) ? bad_anywhere[k] : bad_names[k - ELEMENTS(bad_anywhere)];
                        char *text = NULL;
                        if (k >= ELEMENTS(bad_anywhere) && (is_free_text(row) || is_exception(row, value)))
                                continue;
                        if (instance_text_set("template = \"x\";\n", schema_row_key(row), value, &text, &err) >= 0)
                                fail_msg("%s accepted %s", schema_row_key(row), value);
                        assert_null(text);
                        assert_non_null(err.field);
                        assert_string_equal(err.field, schema_row_key(row));
                }
        }
}

static void test_rows(void **state) {
        for (size_t s = 0; s < ELEMENTS(schemas); s++)
                for (size_t i = 0; i < schemas[s].schema->n; i++) {
                        const SchemaRow *row = &schemas[s].schema->rows[i];
                        assert_ptr_equal(schema_find(schemas[s].schema, schema_row_key(row)), row);
                        assert_true(strlen(schema_row_doc(row)) > 5);
                }
        assert_int_equal(host_schema_size(), host_schema.n);
        for (BootMode mode = 0; mode < _BOOT_MODE_MAX; mode++)
                assert_int_equal(boot_mode_from_string(boot_mode_to_string(mode)), mode);
        assert_int_equal(boot_mode_from_string("never"), _BOOT_MODE_INVALID);
        for (ValueSource source = 0; source < _SOURCE_MAX; source++)
                assert_non_null(value_source_to_string(source));
}

// A rule begins as a copy of one with nothing but fallbacks, so these own nothing; and what equals it is not written.
static void test_rule_fallbacks(void **state) {
        PolicyRule plain = {0}, other;

        assert_int_equal(schema_apply_fallbacks(&policy_rule_schema, &plain, NULL), 0);
        for (size_t i = 0; i < policy_rule_schema.n; i++) {
                const SchemaRow *row = &policy_rule_schema.rows[i];
                other = plain;
                assert_int_equal(schema_value_is_fallback(row, &other, &plain), row->fallback != NULL);
                if (!row->fallback)
                        continue;
                assert_null(schema_types[row->type].clear);
                ((char *) &other)[row->offset] ^= 1;
                assert_false(schema_value_is_fallback(row, &other, &plain));
        }
}

static void test_rule_text(void **state) {
        static const char full[] = "description = \"it's \\\"quoted\\\"\";\n"
                                   "rules = (\n        { action = \"deny\"; to = \"192.0.2.0/24\"; },\n"
                                   "        { action = \"allow\"; to = \"www.example.org\"; protocol = \"tcp\"; ports = \"80,443\"; methods = [ \"GET\", \"HEAD\" ]; "
                                   "paths = [ \"/a\" ]; git = \"read\"; inspect = true; rate = \"1MiB\"; budget = \"2GiB\"; comment = \"why\"; }\n);\n";
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_free_ char *text = NULL;

        assert_int_equal(policy_parse("p", full, &policy, NULL), 0);
        text = policy_format(policy);
        assert_string_equal(text, full);
}

// Where libconfig 1.5 needs a mark behind a number, and where a look for that must not find one.
static void test_long_numbers(void **state) {
        static const struct { const char *text; int r; } cases[] = {
                {"description = \"n\"; # 12345678901234567890, deadbeefdeadbeef\nrules = ( ); # 0x80000000", 0},
                {"description = \"0123456789\";", 0},
                {"description = 2147483648;", -EINVAL}, // no string
                {"description = 0x80000000;", -EINVAL},
                {"description = 99999999999999999999;", -EINVAL},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                int r = policy_parse("p", cases[i].text, &policy, &err);
                if ((r < 0) != (cases[i].r < 0))
                        fail_msg("%s: %d", cases[i].text, r);
                assert_int_equal(r < 0 && strstr(error_message(&err, r), "too large") != NULL, i + 1 == ELEMENTS(cases));
        }
}

static void expect_documented(const char *manual, const Schema *schema) {
        _cleanup_free_ char *path = NULL, *text = NULL;

        assert_true(asprintf(&path, "%s/docs/man/%s", getenv("srcdir") ?: ".", manual) > 0);
        assert_int_equal(io_read_file(AT_FDCWD, path, 1 << 20, &text, NULL), 0);
        for (size_t i = 0; i < schema->n; i++) {
                _cleanup_free_ char *entry = NULL, *fallback = NULL;
                const SchemaRow *row = &schema->rows[i];
                assert_true(asprintf(&entry, "\n.It Ic %s\n", schema_row_key(row)) > 0);
                const char *at = strstr(text, entry);
                if (!at) {
                        fail_msg("%s does not document %s", manual, schema_row_key(row));
                        return;
                }
                // The default of the row stands in the key's own paragraph.
                const char *end = strstr(at + 1, "\n.It Ic ") ?: text + strlen(text);
                assert_true(asprintf(&fallback, "Default: %s", row->fallback ?: "none") > 0);
                const char *found = strstr(at, fallback);
                if (!found || found > end)
                        fail_msg("%s: %s lacks \"%s\"", manual, schema_row_key(row), fallback);
        }
        for (const char *p = text; (p = strstr(p, "\n.It Ic ")); p++) {
                _cleanup_free_ char *key = strndup(p + 8, strcspn(p + 8, " \n"));
                assert_non_null(key);
                if (strcmp(key, "rules") != 0 && !schema_find(schema, key) && !schema_find(&policy_schema, key) && !schema_find(&policy_rule_schema, key))
                        fail_msg("%s documents %s, which is no key", manual, key);
        }
}

static void test_manual(void **state) {
        expect_documented("hostd.conf.5", &host_schema);
        expect_documented("hostd-instance.conf.5", &instance_schema);
        expect_documented("hostd-policy.conf.5", &policy_schema);
        expect_documented("hostd-policy.conf.5", &policy_rule_schema);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rows),        cmocka_unit_test(test_bad_values),  cmocka_unit_test(test_too_long),
                cmocka_unit_test(test_nul_escape),  cmocka_unit_test(test_wrong_types), cmocka_unit_test(test_duplicates),
                cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_text_set_bad), cmocka_unit_test(test_manual),
                cmocka_unit_test(test_host_round_trip), cmocka_unit_test(test_rule_fallbacks), cmocka_unit_test(test_rule_text), cmocka_unit_test(test_long_numbers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
