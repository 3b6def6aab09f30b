// SPDX-License-Identifier: GPL-2.0-or-later
// Command lines: words to rows, options and positions of every row, and output of values.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/session.h"

static int parse(MethodId id, const char *line, Args *ret, Error *err) {
        _cleanup_strv_ char **argv = NULL;
        static char *none[] = {NULL};

        assert_int_equal(strv_split(line, " ", &argv), 0);
        return args_parse(method_get(id), argv ?: none, ret, err);
}

static void parsed(MethodId id, const char *line, const char *want) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_args_ Args args = {0};

        if (parse(id, line, &args, &err) < 0)
                fail_msg("%s: %s", line, error_message(&err, 0));
        char *text = json_dumps(args.parameters, JSON_COMPACT | JSON_SORT_KEYS);
        assert_string_equal(text, want);
        free(text);
}

static void rejected(MethodId id, const char *line, const char *why) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_args_ Args args = {0};

        if (parse(id, line, &args, &err) != -EINVAL || !strstr(err.message, why))
                fail_msg("%s: %s", line, error_message(&err, 0));
}

static void test_words(void **state) {
        size_t used;
        char *build[] = {"template", "build", "agent", NULL}, *none[] = {"tempalte", "list", NULL}, *list[] = {"lst", NULL};
        const struct {
                char *words[5];
                MethodId method;
                size_t used;
        } below[] = {
                {{"sandbox", "logs", "sb1"}, METHOD_COMMAND_LOGS, 2},
                {{"sandbox", "file", "push", "a"}, METHOD_FILE_PUSH, 3},
                {{"sandbox", "list"}, METHOD_SANDBOX_LIST, 2},
                {{"sandbox", "file"}, _METHOD_INVALID, 0},
                {{"sandbox", "start"}, _METHOD_INVALID, 0},
                {{"sandbox", "sandbox", "logs"}, _METHOD_INVALID, 0},
                {{"sandbox"}, _METHOD_INVALID, 0},
        };
        char *far[] = {"xyzzyplugh", NULL}, *half[] = {"file", NULL};
        _cleanup_free_ char *a = NULL, *b = NULL, *c = NULL;

        assert_ptr_equal(words_match(build, &used), method_get(METHOD_TEMPLATE_BUILD));
        assert_int_equal(used, 2);
        assert_null(words_match(none, &used));
        assert_null(words_match(half, &used));
        for (int i = 0; i < _METHOD_MAX; i++) {
                _cleanup_strv_ char **words = NULL;
                assert_int_equal(strv_split(method_get(i)->words, " ", &words), 0);
                assert_ptr_equal(words_match(words, &used), method_get(i));
                assert_int_equal(used, strv_length(words));
        }
        for (size_t i = 0; i < ELEMENTS(below); i++) {
                assert_ptr_equal(words_match(below[i].words, &used), below[i].method == _METHOD_INVALID ? NULL : method_get(below[i].method));
                assert_int_equal(used, below[i].used);
        }
        a = words_nearest(none);
        assert_string_equal(a, "template list");
        b = words_nearest(list);
        assert_string_equal(b, "list");
        c = words_nearest(far);
        assert_null(c);
        assert_int_equal(words_distance("kitten", "sitting"), 3);
        assert_int_equal(words_distance("", "abc"), 3);
}

static void test_options(void **state) {
        parsed(METHOD_COMMAND_EXEC, "a -u bob --cwd=/tmp -e A=b --env C=d=e -t 90s ls -l --cwd /x",
               "{\"command\":[\"ls\",\"-l\",\"--cwd\",\"/x\"],\"cwd\":\"/tmp\",\"env\":{\"A\":\"b\",\"C\":\"d=e\"},\"name\":\"a\","
               "\"timeout\":90000000,\"user\":\"bob\"}");
        parsed(METHOD_COMMAND_EXEC, "a -- -x -- y", "{\"command\":[\"-x\",\"--\",\"y\"],\"name\":\"a\"}");
        parsed(METHOD_COMMAND_EXEC, "-Tubob a id", "{\"command\":[\"id\"],\"name\":\"a\",\"tty\":true,\"user\":\"bob\"}");
        parsed(METHOD_INSTANCE_SET, "a memory=8GiB cpu=2 --force", "{\"force\":true,\"name\":\"a\",\"settings\":{\"cpu\":\"2\",\"memory\":\"8GiB\"}}");
        parsed(METHOD_CONFIG_APPLY, "--dry-run", "{\"dry_run\":true}");
        parsed(METHOD_POLICY_EXPLAIN, "a 10.0.0.1:443 --protocol=udp", "{\"host\":\"10.0.0.1:443\",\"name\":\"a\",\"protocol\":\"udp\"}");
        parsed(METHOD_AUDIT_TAIL, "-n5", "{\"lines\":5}");
        parsed(METHOD_COMMAND_SIGNAL, "c1 SIGTERM", "{\"id\":\"c1\",\"signal\":15}");
        parsed(METHOD_COMMAND_SIGNAL, "c1 9", "{\"id\":\"c1\",\"signal\":9}");
        parsed(METHOD_FILE_PUSH, "-m 0755 x a:/y", "{\"mode\":493}");
        parsed(METHOD_INSTANCE_LOG, "a", "{\"name\":\"a\"}");
        rejected(METHOD_COMMAND_EXEC, "a -u", "needs a value");
        rejected(METHOD_COMMAND_EXEC, "a --user x --user y id", "given twice");
        rejected(METHOD_COMMAND_EXEC, "a --usr x id", "did you mean --user?");
        rejected(METHOD_CONFIG_APPLY, "--dry-rum", "did you mean --dry-run?");
        rejected(METHOD_COMMAND_EXEC, "a --tty=yes id", "takes no value");
        rejected(METHOD_COMMAND_EXEC, "a -e 1=x id", "env");
        rejected(METHOD_COMMAND_EXEC, "a -e x id", "NAME=VALUE");
        rejected(METHOD_COMMAND_EXEC, "a -t soon id", "time span");
        rejected(METHOD_INSTANCE_LOG, "a -n 0", "from 1 to");
        rejected(METHOD_INSTANCE_LOG, "a -n 1x", "whole number");
        rejected(METHOD_INSTANCE_LOG, "a b", "unexpected word");
        rejected(METHOD_FILE_PUSH, "-m 0999 x a:/y", "octal");
        rejected(METHOD_INSTANCE_LIST, "--all", "unknown option");
        rejected(METHOD_HOST_CARVE, "", "--count is missing");
}

static void test_many_names(void **state) {
        _cleanup_args_ Args a = {0}, b = {0};

        assert_int_equal(parse(METHOD_INSTANCE_LAUNCH, "agent a b --preset small c", &a, NULL), 0);
        assert_int_equal(strv_length(a.names), 3);
        assert_string_equal(a.many, "name");
        assert_null(json_object_get(a.parameters, "name"));
        assert_int_equal(parse(METHOD_INSTANCE_STOP, "--all --force", &b, NULL), 0);
        assert_true(b.all && b.many && !b.names);
        rejected(METHOD_INSTANCE_LAUNCH, "agent", "NAME is missing");
        rejected(METHOD_INSTANCE_STOP, "--all a", "not both");
}

// Each row: --help, each option, and its positions in order.
static void test_every_row(void **state) {
        for (int i = 0; i < _METHOD_MAX; i++) {
                const Method *m = method_get(i);
                _cleanup_args_ Args help = {0};
                char *text = NULL, *argv[] = {"--help", NULL};
                size_t size;
                FILE *f = open_memstream(&text, &size);

                assert_int_equal(args_parse(m, argv, &help, NULL), 0);
                assert_true(help.help);
                help_method(f, m);
                fclose(f);
                assert_non_null(strstr(text, m->words));
                assert_non_null(strstr(text, m->doc));
                for (const Param *p = m->params; p->name; p++)
                        assert_non_null(strstr(text, p->doc));
                free(text);
                assert_true(!(m->flags & METHOD_SPECIAL) == !special_find(m));
        }
}

static const char *sample(const Param *p) {
        static const char *const kinds[_VALID_MAX] = {[VALID_PATH] = "/x", [VALID_CIDR] = "10.0.0.1", [VALID_HOST] = "api.example.com", [VALID_METHOD] = "GET", [VALID_URL_PATH] = "/v1/"};

        if (p->choices)
                return p->choices[0];
        if (p->type == PARAM_PAIRS)
                return "key=value";
        if (p->type == PARAM_INT)
                return p->min > 5 ? "16" : "5";
        return p->type == PARAM_SIZE ? (p->max ? "64MiB" : "1GiB") : p->type == PARAM_SPAN ? "5s" : kinds[p->valid] ?: "abc";
}

static void test_every_position_and_option(void **state) {
        for (int i = 0; i < _METHOD_MAX; i++) {
                const Method *m = method_get(i);
                _cleanup_error_ Error err = ERROR_NULL;
                _cleanup_strv_ char **argv = NULL;
                _cleanup_args_ Args args = {0};
                for (const Param *p = m->params; p->name; p++) { // options first
                        if (p->flags & PARAM_POSITIONAL)
                                continue;
                        assert_int_equal(strv_append_format(&argv, "--%s", p->name), 0);
                        for (char *c = argv[strv_length(argv) - 1]; *c; c++)
                                *c = *c == '_' ? '-' : *c;
                        if (p->type != PARAM_BOOL)
                                assert_int_equal(strv_append(&argv, sample(p)), 0);
                }
                for (const Param *p = m->params; p->name; p++)
                        if (p->flags & PARAM_POSITIONAL)
                                assert_int_equal(strv_append(&argv, sample(p)), 0);
                char *none[] = {NULL};
                if (args_parse(m, argv ?: none, &args, &err) < 0)
                        fail_msg("%s: %s", m->words, error_message(&err, 0));
                if (args_syntax(m))
                        continue;
                if (args.many)
                        json_object_set_new(args.parameters, args.many, json_string(args.names[0]));
                if (method_check(m, args.parameters, &err) < 0)
                        fail_msg("%s: %s", m->words, error_message(&err, 0));
                for (const Param *p = m->params; p->name; p++)
                        assert_non_null(json_object_get(p->flags & PARAM_LOCAL ? args.local : args.parameters, p->name));
        }
}

static void test_locations(void **state) {
        static const struct {
                const char *word;
                int r;
        } cases[] = {{"a:/x", 0}, {"a:/x:y", 0}, {"a", -EINVAL}, {"A:/x", -EINVAL}, {"a:x", -EINVAL}, {"a:/../x", -EINVAL}, {":/x", -EINVAL}};

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_free_ char *name = NULL, *path = NULL;
                assert_int_equal(args_split_location(cases[i].word, &name, &path, NULL), cases[i].r);
        }
}

static void test_values(void **state) {
        static const struct {
                const char *json;
                ParamType type;
                bool people;
                const char *want;
        } cases[] = {
                {"\"x\"", PARAM_STRING, true, "x"}, {"8589934592", PARAM_SIZE, true, "8.00GiB"}, {"8589934592", PARAM_SIZE, false, "8589934592"},
                {"90000000", PARAM_SPAN, true, "1min 30s"}, {"true", PARAM_BOOL, true, "yes"}, {"null", PARAM_SIZE, true, ""},
                {"[\"a\",\"b\"]", PARAM_STRING, true, "a,b"}, {"{\"k\":\"v\"}", PARAM_STRING, true, "k=v"}, {"1.5", PARAM_INT, true, "1.50"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                json_t *value = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
                _cleanup_free_ char *text = output_value(value, cases[i].type, cases[i].people);
                assert_string_equal(text, cases[i].want);
                json_decref(value);
        }
}

static usec_t at(int year, int month, int day, int hour, int minute, int second) {
        struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour, .tm_min = minute, .tm_sec = second};

        return (usec_t) timegm(&tm) * USEC_PER_SEC;
}

// Two hours ahead of UTC; now is half past noon there.
static void test_moments(void **state) {
        const usec_t now = at(2026, 3, 10, 10, 30, 0);
        const struct { const char *text; int r; usec_t want; } cases[] = {
                {"12:30", 0, now},
                {"12:29", 0, now - 60 * USEC_PER_SEC},
                {"12:31", 0, at(2026, 3, 9, 10, 31, 0)}, // of yesterday
                {"00:00", 0, at(2026, 3, 9, 22, 0, 0)},
                {"12:29:59", 0, now - USEC_PER_SEC},
                {"12:29:59.5", 0, now - USEC_PER_SEC / 2},
                {"10:29Z", 0, now - 60 * USEC_PER_SEC},
                {"23:59Z", 0, at(2026, 3, 9, 23, 59, 0)},
                {"2026-03-10", 0, at(2026, 3, 9, 22, 0, 0)},
                {"2026-01-02 14:30", 0, at(2026, 1, 2, 12, 30, 0)},
                {"2026-01-02T14:30:01", 0, at(2026, 1, 2, 12, 30, 1)},
                {"2026-01-02T14:30:00.250000Z", 0, at(2026, 1, 2, 14, 30, 0) + USEC_PER_SEC / 4},
                {"2024-02-29", 0, at(2024, 2, 28, 22, 0, 0)},
                {"2026-03-10 12:31", -ERANGE, 0},
                {"2027-01-01", -ERANGE, 0},
                {"2026-02-29", -EINVAL, 0},  {"2026-13-01", -EINVAL, 0}, {"2026-1-2", -EINVAL, 0}, {"24:00", -EINVAL, 0},   {"12:60", -EINVAL, 0},
                {"12", -EINVAL, 0},          {"12:3", -EINVAL, 0},       {"12:30:", -EINVAL, 0},   {"12:30 ", -EINVAL, 0},  {"", -EINVAL, 0},
                {"2026-01-02 ", -EINVAL, 0}, {"2026-01-02Z", -EINVAL, 0}, {"12:30:00.", -EINVAL, 0}, {"-1:30", -EINVAL, 0}, {"yesterday", -EINVAL, 0},
        };

        assert_int_equal(setenv("TZ", "EET-2", 1), 0);
        tzset();
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                usec_t got = 0;
                if (clock_parse_moment(cases[i].text, now, &got) != cases[i].r || got != cases[i].want)
                        fail_msg("\"%s\": %lld", cases[i].text, (long long) got);
        }
        assert_int_equal(unsetenv("TZ"), 0);
        tzset();
}

// A span where a moment was given: hostd knows no time zones.
static void test_since(void **state) {
        const Method *method = method_get(METHOD_INSTANCE_FLOWS);
        char wanted[CLOCK_TEXT_MAX];
        usec_t ago = clock_realtime() - 90 * 60 * USEC_PER_SEC;
        const struct { const char *word; bool good; int64_t least, most; } cases[] = {
                {"2h", true, 7200000000, 7200000000}, {"10m", true, 600000000, 600000000}, {clock_format(ago, wanted), true, 5400000000, 5460000000}, {"2100-01-01", false, 0, 0}, {"soon", false, 0, 0},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                char *argv[] = {(char *) "a", (char *) "--since", (char *) cases[i].word, NULL};
                _cleanup_args_ Args args = {0};
                _cleanup_error_ Error err = ERROR_NULL;
                assert_int_equal(args_parse(method, argv, &args, &err) >= 0, cases[i].good);
                if (cases[i].good)
                        assert_in_range(json_integer_value(json_object_get(args.parameters, "since")), cases[i].least, cases[i].most);
                else
                        assert_string_equal(err.field, "since");
        }
        // Where a span is meant, a time is none.
        char *argv[] = {(char *) "1", (char *) "--for", (char *) "12:30", NULL};
        _cleanup_args_ Args args = {0};
        assert_true(args_parse(method_get(METHOD_APPROVAL_APPROVE), argv, &args, NULL) < 0);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_moments),   cmocka_unit_test(test_since),
                cmocka_unit_test(test_words),     cmocka_unit_test(test_options),  cmocka_unit_test(test_many_names),
                cmocka_unit_test(test_every_row), cmocka_unit_test(test_every_position_and_option),
                cmocka_unit_test(test_locations), cmocka_unit_test(test_values),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
