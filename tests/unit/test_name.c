// SPDX-License-Identifier: GPL-2.0-or-later
// Names: spelling, patterns, public suffixes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "network/name.h"

#define LABEL63 "a23456789012345678901234567890123456789012345678901234567890123"

static void test_normalise(void **state) {
        static const struct { const char *text, *name; } cases[] = {
                {"example.org", "example.org"},     {"EXAMPLE.Org", "example.org"},     {"localhost", "localhost"},
                {"a-b.example.org", "a-b.example.org"}, {"_dns._tcp.example.org", "_dns._tcp.example.org"},
                {"xn--bcher-kva.example", "xn--bcher-kva.example"}, {"1.2.example", "1.2.example"}, {LABEL63 ".example", LABEL63 ".example"},
                {LABEL63 "." LABEL63 "." LABEL63 ".a2345678901234567890123456789012345678901234567890123456789.x", LABEL63 "." LABEL63 "." LABEL63 ".a2345678901234567890123456789012345678901234567890123456789.x"},
                {"", NULL},                         {"example.org.", NULL},             {".", NULL},
                {".example.org", NULL},             {"a..example.org", NULL},           {"-a.example.org", NULL},
                {"a-.example.org", NULL},           {"a b.example.org", NULL},          {"*.example.org", NULL},
                {"b\xc3\xbc" "cher.example", NULL}, {"example.org:443", NULL},          {"user@example.org", NULL},
                {"127.0.0.1", NULL},                {"10.1", NULL},                     {"0x7f.1", NULL},
                {"0x7f000001", NULL},               {"2130706433", NULL},               {"[::1]", NULL},
                {"::1", NULL},                      {"a.example.123", NULL},            {"a\n.example", NULL},
                {"a/b.example", NULL},              {LABEL63 "4.example", NULL},
                {LABEL63 "." LABEL63 "." LABEL63 ".a23456789012345678901234567890123456789012345678901234567890.xx", NULL},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                char name[NAME_TEXT_MAX] = "";
                int r = name_normalise(cases[i].text, strlen(cases[i].text), name);
                if (r != (cases[i].name ? 0 : -EINVAL) || (cases[i].name && strcmp(name, cases[i].name) != 0))
                        fail_msg("%s: %d %s", cases[i].text, r, name);
        }
        char name[NAME_TEXT_MAX];
        assert_int_equal(name_normalise("a\0b.example", 11, name), -EINVAL);
}

static void test_check(void **state) {
        static const struct { const char *pattern, *message; } cases[] = {
                {"example.org", NULL},   {"*.example.org", NULL}, {"*", NULL}, {"*.internal", NULL},
                {"example", "to \"example\" is no host name: it has one label only: a host name has two at least, and a category is written with '@'"},
                {"example.org.", "to \"example.org.\" is no host name: it ends with a dot: write it without"},
                {"Example.org", "to \"Example.org\" is no host name: it may only have lower-case letters, digits, '-', '_' and dots (international names as \"xn--…\")"},
                {"a..b", "to \"a..b\" is no host name: it has an empty label"},
                {"*example.org", "to \"*example.org\" is no pattern: a star stands alone, or before a dot and a name, as in \"*.example.org\""},
                {"*.", "to \"*.\" is no pattern: a star stands alone, or before a dot and a name, as in \"*.example.org\""},
                {"*.*.org", "to \"*.*.org\" is no pattern: a star stands alone, or before a dot and a name, as in \"*.example.org\""},
                {"a.*.org", "to \"a.*.org\" is no host name: it may only have lower-case letters, digits, '-', '_' and dots (international names as \"xn--…\")"},
                {"a\x1b.test", "to \"a\\x1b.test\" is no host name: it may only have lower-case letters, digits, '-', '_' and dots (international names as \"xn--…\")"},
                {"", "to \"\" is no host name: it is empty"},
                {NULL, "to \"\" is no host name: it is missing"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                int r = name_pattern_check("to", cases[i].pattern, &err);
                assert_int_equal(r, cases[i].message ? -EINVAL : 0);
                if (cases[i].message)
                        assert_string_equal(err.message, cases[i].message);
        }
}

static void test_match(void **state) {
        static const struct { const char *pattern, *name; bool matches; } cases[] = {
                {"example.org", "example.org", true},      {"example.org", "a.example.org", false}, {"*.example.org", "a.example.org", true},
                {"*.example.org", "a.b.example.org", true}, {"*.example.org", "example.org", false}, {"*.example.org", "bad" "example.org", false},
                {"*.example.org", "example.org.evil.test", false}, {"*", "x", true},                 {"*.example.org", ".example.org", false},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++)
                if (name_pattern_matches(cases[i].pattern, cases[i].name) != cases[i].matches)
                        fail_msg("%s %s", cases[i].pattern, cases[i].name);
        assert_string_equal(name_parent("a.b.c"), "b.c");
        assert_null(name_parent("c"));
}

static void test_split_port(void **state) {
        static const struct { const char *text, *host; uint16_t port; } cases[] = {
                {"example.org", "example.org", 0}, {"example.org:8443", "example.org", 8443}, {"192.0.2.1:1", "192.0.2.1", 1},
                {"::1", "::1", 0},                 {"[::1]", "::1", 0},                       {"[::1]:65535", "::1", 65535},
                {"", NULL, 0},                     {":443", NULL, 0},                         {"a:", NULL, 0},
                {"a:0", NULL, 0},                  {"a:65536", NULL, 0},                      {"a:4x", NULL, 0},
                {"a:000443", NULL, 0},             {"[::1", NULL, 0},                         {"[::1]443", NULL, 0},
                {"[]:443", NULL, 0},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                char host[NAME_TEXT_MAX];
                uint16_t port;
                int r = name_split_port(cases[i].text, host, &port);
                if (r != (cases[i].host ? 0 : -EINVAL) || (cases[i].host && (strcmp(host, cases[i].host) != 0 || port != cases[i].port)))
                        fail_msg("%s: %d", cases[i].text, r);
        }
}

static void test_public_suffix(void **state) {
        static const struct { const char *name; int is; } cases[] = {
                {"com", 1},     {"org", 1},          {"co.uk", 1},      {"uk", 1},         {"barsy.shop", 1}, // from the list's private part
                {"ck", 1},      {"anything.ck", 1},  {"www.ck", 0},     // a wildcard and its exception
                {"unheardof", 1}, {"example.org", 0}, {"a.co.uk", 0},   {"internal", 0},   {"lan", 0},        {"a.unheardof", 0},
        };
        _cleanup_error_ Error err = ERROR_NULL;

        for (size_t i = 0; i < ELEMENTS(cases); i++)
                if (name_is_public_suffix(cases[i].name) != cases[i].is)
                        fail_msg("%s is %d", cases[i].name, !cases[i].is);
        assert_int_equal(name_pattern_check_suffix("to", "*.co.uk", &err), -EINVAL);
        assert_string_equal(err.message, "to \"*.co.uk\" is too wide: anybody can register a name below co.uk");
        assert_int_equal(name_pattern_check_suffix("to", "*.example.co.uk", NULL), 0);
        assert_int_equal(name_pattern_check_suffix("to", "co.uk", NULL), 0); // one name, whatever it is
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_normalise), cmocka_unit_test(test_check), cmocka_unit_test(test_match), cmocka_unit_test(test_split_port), cmocka_unit_test(test_public_suffix),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
