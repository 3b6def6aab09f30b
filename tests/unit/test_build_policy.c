// SPDX-License-Identifier: GPL-2.0-or-later
// From apt's configuration to what a build may reach: tables.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/strv.h"
#include "build/mirrors.h"
#include "core/build_policy.h"

static void test_mirrors(void **state) {
        static const struct {
                const char *sources, *options, *wanted;
        } rows[] = {
                {"deb http://a.example/debian trixie main\n", "", "a.example 80"},
                {"deb [signed-by=/k.gpg] https://u:p@A.Example:8443/x trixie main\ndeb http://a.example/y trixie-security main\n", "", "a.example 8443, a.example 80"},
                {"deb http://a.example/ trixie main\ndeb http://a.example/sec trixie-security main\n", "", "a.example 80"},
                {"deb http://[2001:db8::1]:81/x trixie main\n", "", "2001:db8::1 81"},
                {"deb https://[2001:db8::1] trixie main\n", "", "2001:db8::1 443"},
                {"deb mirror+http://a.example/list trixie main\n", "", "a.example 80"},
                // Without a host, or by a method that nobody vouches for.
                {"deb file:///srv/debian trixie main\ndeb cdrom://x/ trixie main\ndeb ftp://f.example/ trixie main\ndeb http:///x trixie main\n", "", ""},
                {"deb http://a.example:0/ trixie main\ndeb http://a.example:65536/ trixie main\ndeb http://a.example:8x/ trixie main\ndeb http://[::1/ trixie main\n", "", ""},
                {"", "Acquire::http::Proxy \"http://10.0.0.1:3142\";\n", "10.0.0.1 3142"},
                {"", "Acquire::https::Proxy \"http://p.example\";\n", "p.example 80"},
                {"", "Acquire::http::Proxy \"socks5h://p.example\";\n", "p.example 1080"},
                {"", "Acquire::http::Proxy::b.example \"http://p.example:8080/\";\n", "p.example 8080"},
                {"", "Acquire::http::Proxy \"\";\nAcquire::http::Proxy::b.example \"DIRECT\";\nAcquire::https::Proxy::c.example \"direct\";\n", "b.example 80?, c.example 443?"},
                {"", "Acquire::http::Proxy \"DIRECT\";\nAcquire::http::Proxy-Auto-Detect \"/usr/bin/x\";\nAcquire::http::ProxyAutoDetect \"http://n.example/\";\n", ""},
                {"", "Acquire::ftp::Proxy \"http://n.example/\";\nAPT::x \"http://n.example/\";\nDir \"/\";\n", ""},
                {"deb http://b.example/ trixie main\n", "Acquire::http::Proxy::b.example \"DIRECT\";\n", "b.example 80"},
        };

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                Mirrors mirrors = {0};
                char text[1024] = "";
                assert_int_equal(mirrors_parse(rows[i].sources, rows[i].options, &mirrors, NULL), 0);
                for (size_t k = 0; k < mirrors.n; k++) {
                        size_t used = strlen(text);
                        (void) snprintf(text + used, sizeof(text) - used, "%s%s %u%s", k ? ", " : "", mirrors.list[k].host, mirrors.list[k].port,
                                        mirrors.list[k].optional ? "?" : "");
                }
                assert_string_equal(text, rows[i].wanted);
                mirrors_done(&mirrors);
        }
}

static void test_mirrors_bounded(void **state) {
        _cleanup_strv_ char **lines = NULL;
        _cleanup_free_ char *text = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        Mirrors mirrors = {0};

        for (int i = 0; i <= MIRRORS_MAX; i++)
                assert_int_equal(strv_append_format(&lines, "deb %s://m%d.example/ trixie main", "http", i), 0);
        text = strv_join(lines, "\n");
        assert_true(mirrors_parse(text, "", &mirrors, &err) < 0);
        assert_int_equal(err.code, ERR_QUOTA);
}

#define OWN "\"own\": [\"127.0.0.1\", \"::1\", \"192.0.2.2\"]"

static void test_policy(void **state) {
        static const struct {
                const char *found, *rules, *text; // rules NULL: refused, with `text` in the sentence
        } rows[] = {
                {"{\"mirrors\": [{\"host\": \"a.example.org\", \"port\": 80, \"addresses\": [\"11.0.0.1\", \"2a00::1\"]}]," OWN "}", "a.example.org 80", "a.example.org port 80"},
                // Not to be looked up here: the name may be for a proxy to look up.
                {"{\"mirrors\": [{\"host\": \"a.example.org\", \"port\": 443, \"addresses\": []}]," OWN "}", "a.example.org 443", "a.example.org port 443"},
                // A mirror of one's own network: named by its name, reached by its address, in front of all names.
                {"{\"mirrors\": [{\"host\": \"a.example.org\", \"port\": 80, \"addresses\": []}, {\"host\": \"m.example.org\", \"port\": 80, \"addresses\": [\"10.0.0.9\", \"fd00::9\"]}]," OWN "}",
                 "10.0.0.9/32 80, fd00::9/128 80, a.example.org 80, m.example.org 80", "a.example.org port 80, m.example.org port 80"},
                {"{\"mirrors\": [{\"host\": \"10.0.0.1\", \"port\": 3142, \"addresses\": [\"10.0.0.1\"]}]," OWN "}", "10.0.0.1/32 3142", "10.0.0.1 port 3142"},
                {"{\"mirrors\": [{\"host\": \"11.0.0.1\", \"port\": 80, \"addresses\": [\"11.0.0.1\"]}]," OWN "}", "11.0.0.1/32 80", "11.0.0.1 port 80"},
                // Without a domain only by its addresses.
                {"{\"mirrors\": [{\"host\": \"mirror\", \"port\": 80, \"addresses\": [\"10.0.0.9\"]}]," OWN "}", "10.0.0.9/32 80", "mirror port 80"},
                {"{\"mirrors\": [{\"host\": \"mirror\", \"port\": 80, \"addresses\": []}]," OWN "}", NULL, "mirror (port 80)"},
                // What no name server may open.
                {"{\"mirrors\": [{\"host\": \"m.example.org\", \"port\": 80, \"addresses\": [\"169.254.169.254\"]}]," OWN "}", NULL, "m.example.org (port 80)"},
                {"{\"mirrors\": [{\"host\": \"m.example.org\", \"port\": 80, \"addresses\": [\"169.254.169.254\", \"10.0.0.9\"]}]," OWN "}", "10.0.0.9/32 80, m.example.org 80", "m.example.org port 80"},
                {"{\"mirrors\": [{\"host\": \"localhost\", \"port\": 3142, \"addresses\": [\"127.0.0.1\"]}]," OWN "}", NULL, "localhost (port 3142), which /etc/apt names, is this host itself"},
                {"{\"mirrors\": [{\"host\": \"m.example.org\", \"port\": 80, \"addresses\": [\"192.0.2.2\"]}]," OWN "}", NULL, "this host itself"},
                {"{\"mirrors\": [{\"host\": \"m.example.org\", \"port\": 80, \"addresses\": [\"224.0.0.1\", \"fe80::1\", \"0.0.0.0\", \"::\"]}]," OWN "}", NULL, "m.example.org"},
                // Only said to need no proxy: nothing to fail for.
                {"{\"mirrors\": [{\"host\": \"a.example.org\", \"port\": 80, \"addresses\": []}, {\"host\": \"localhost\", \"port\": 80, \"optional\": true, \"addresses\": [\"127.0.0.1\"]}]," OWN "}",
                 "a.example.org 80", "a.example.org port 80"},
                {"{\"mirrors\": []," OWN "}", NULL, "/etc/apt names no host"},
                {"{}", NULL, "/etc/apt names no host"},
        };

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                _cleanup_(policy_freep) Policy *policy = NULL;
                _cleanup_free_ char *text = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                json_t *found = json_loads(rows[i].found, 0, NULL);
                char rules[1024] = "";
                assert_non_null(found);
                int r = build_policy_new("build-x", found, &policy, &text, &err);
                json_decref(found);
                if (!rows[i].rules) {
                        assert_true(r < 0);
                        assert_non_null(strstr(err.message, rows[i].text));
                        continue;
                }
                assert_int_equal(r, 0);
                for (size_t k = 0; k < policy->n_rules; k++) {
                        size_t used = strlen(rules);
                        assert_int_equal(policy->rules[k].action, POLICY_ALLOW);
                        assert_int_equal(policy->rules[k].protocol, POLICY_TCP);
                        (void) snprintf(rules + used, sizeof(rules) - used, "%s%s %s", k ? ", " : "", policy->rules[k].to, policy->rules[k].ports);
                }
                assert_string_equal(rules, rows[i].rules);
                assert_string_equal(text, rows[i].text);
        }
}

static void test_named(void **state) {
        char *hosts[] = {(char *) "a.example.org:443", (char *) "10.0.0.1:80", (char *) "localhost:80", (char *) "*.example.org:443", (char *) "b.example.org:80",
                         (char *) "b.example.org", (char *) "c.example.org:0", (char *) "d.example.org:99999", (char *) "@web:443", (char *) ":443", NULL};
        _cleanup_(policy_freep) Policy *policy = NULL;
        Policy *none = NULL;

        assert_int_equal(build_policy_named(hosts, &policy, NULL), 0);
        assert_int_equal(policy->n_rules, 2);
        assert_string_equal(policy->name, BUILD_POLICY_NAMED);
        assert_string_equal(policy->rules[0].to, "a.example.org");
        assert_string_equal(policy->rules[0].ports, "443");
        assert_string_equal(policy->rules[1].to, "b.example.org");
        assert_string_equal(policy->rules[1].ports, "80");
        assert_int_equal(build_policy_named(hosts + 5, &none, NULL), 0);
        assert_null(none);
        assert_int_equal(build_policy_named(NULL, &none, NULL), 0);
        assert_null(none);
}

// By the code that enforces: what it opens, and that it opens no more.
static void test_decided(void **state) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_free_ char *text = NULL;
        json_t *found = json_loads("{\"mirrors\": [{\"host\": \"a.example.org\", \"port\": 80, \"addresses\": [\"11.0.0.1\"]},"
                                   "{\"host\": \"m.example.org\", \"port\": 80, \"addresses\": [\"10.0.0.9\"]}]," OWN "}", 0, NULL);
        static const struct {
                PolicyProbe probe;
                PolicyAction action;
        } rows[] = {
                {{.name = "a.example.org", .protocol = POLICY_TCP, .port = 80}, POLICY_ALLOW},
                {{.name = "a.example.org", .protocol = POLICY_TCP, .port = 443}, POLICY_DENY},
                {{.name = "b.example.org", .protocol = POLICY_TCP, .port = 80}, POLICY_DENY},
                {{.name = "x.a.example.org", .protocol = POLICY_TCP, .port = 80}, POLICY_DENY},
                {{.address = "11.0.0.1", .protocol = POLICY_TCP, .port = 80}, POLICY_DENY}, // by name alone
                {{.address = "10.0.0.9", .protocol = POLICY_TCP, .port = 80}, POLICY_ALLOW},
                {{.address = "10.0.0.9", .protocol = POLICY_TCP, .port = 22}, POLICY_DENY},
                {{.address = "10.0.0.9", .protocol = POLICY_UDP, .port = 80}, POLICY_DENY},
                {{.address = "10.0.0.8", .protocol = POLICY_TCP, .port = 80}, POLICY_DENY},
                {{.name = "a.example.org"}, POLICY_ALLOW}, // is it resolved
                {{.name = "b.example.org"}, POLICY_DENY},
        };

        assert_int_equal(build_policy_new("build-x", found, &policy, &text, NULL), 0);
        json_decref(found);
        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                PolicyAnswer answer;
                assert_int_equal(policy_explain(&policy, 1, &rows[i].probe, &answer, NULL), 0);
                assert_int_equal(answer.action, rows[i].action);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_mirrors),
                cmocka_unit_test(test_mirrors_bounded),
                cmocka_unit_test(test_policy),
                cmocka_unit_test(test_named),
                cmocka_unit_test(test_decided),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
