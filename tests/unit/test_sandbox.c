// SPDX-License-Identifier: GPL-2.0-or-later
// What the store keeps of a sandbox, and which runtimes there are.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/strv.h"
#include "core/handle.h"
#include "base/valid.h"
#include "core/sandbox.h"

static Sandbox *sample(void) {
        Sandbox *s = calloc(1, sizeof(*s));

        assert_non_null(s);
        s->errors = -EBADF;
        (void) snprintf(s->id, sizeof(s->id), "sb0123456789");
        (void) snprintf(s->instance, sizeof(s->instance), "agent1");
        s->runtime = strdup("bwrap");
        s->caller = strdup("root");
        s->workspace = strdup("/home/agent/work");
        s->message = strdup("it \"ended\"");
        s->network = strdup("web,dns");
        s->number = 0x1001;
        s->labels = json_pack("{s:s}", "a", "b");
        s->root = true;
        limits_init(&s->limits);
        s->limits.value[LIMIT_MEMORY] = 64 << 20;
        s->limits.value[LIMIT_PIDS] = 100;
        s->limits.value[LIMIT_OPEN_FILES] = 32;
        s->run_time = 8;
        s->memory_peak = UINT64_MAX;
        s->cpu_usec = 12;
        s->lease = (SandboxLease) {.deadline = 1, .idle = 2, .grace = 3, .active = 4, .ended = 5};
        s->created = 6;
        s->ended = 7;
        s->state = SANDBOX_ENDED;
        s->cause = SANDBOX_CAUSE_OOM;
        return s;
}

static char *line_of(const Sandbox *s) {
        json_t *object = sandbox_json(s);
        char *text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);

        json_decref(object);
        assert_non_null(text);
        return text;
}

static void test_line(void **state) {
        _cleanup_(sandbox_freep) Sandbox *s = sample(), *again = NULL;
        _cleanup_free_ char *line = line_of(s), *second = NULL;

        assert_int_equal(sandbox_parse(line, &again), 0);
        second = line_of(again);
        assert_string_equal(line, second);
        assert_true(again->limits.value[LIMIT_DISK] == UINT64_MAX && again->limits.value[LIMIT_OPEN_FILES] == 32 && again->run_time == 8 && again->memory_peak == UINT64_MAX && again->lease.ended == 5 && again->cause == SANDBOX_CAUSE_OOM);
        assert_null(again->key);
        assert_string_equal(again->workspace, "/home/agent/work");
        assert_string_equal(again->network, "web,dns");
        assert_int_equal(again->number, 0x1001);
}

// Each key away, and each of another type: nothing of it is taken.
static void test_broken_lines(void **state) {
        static const char *const bad[] = {"", "{}", "[]", "null", "{\"id\":1}", "x"};
        static const char *const optional[] = {"workspace", "message", "root", "network", "open_files", "io_read", "io_write", "io_read_ops", "io_write_ops", "run_time"};
        _cleanup_(sandbox_freep) Sandbox *s = sample();
        json_t *object = sandbox_json(s), *value;
        Sandbox *ret = NULL;
        const char *key;

        for (size_t i = 0; i < ELEMENTS(bad); i++)
                assert_int_equal(sandbox_parse(bad[i], &ret), -EINVAL);
        json_object_foreach(object, key, value) {
                json_t *less = json_copy(object);
                _cleanup_free_ char *text = NULL;
                bool free_to_miss = false;
                for (size_t i = 0; i < ELEMENTS(optional); i++)
                        free_to_miss = free_to_miss || strcmp(key, optional[i]) == 0;
                (void) json_object_del(less, key);
                text = json_dumps(less, 0);
                json_decref(less);
                if (sandbox_parse(text, &ret) != (free_to_miss ? 0 : -EINVAL))
                        fail_msg("without %s", key);
                ret = sandbox_free(ret);
        }
        json_decref(object);
}

// Values that no line of ours has.
static void test_wrong_lines(void **state) {
        const struct {
                const char *key;
                json_t *value;
        } wrong[] = {{"id", json_string("../x")},    {"wire", json_integer(0)},       {"wire", json_integer(0x0fff)},         {"wire", json_integer(0x2000)},
                     {"network", json_string("")},   {"network", json_string("A,b")}, {"network", json_string("web,none")},   {"instance", json_string("no name")}};
        _cleanup_(sandbox_freep) Sandbox *s = sample();
        Sandbox *ret = NULL;

        for (size_t i = 0; i < ELEMENTS(wrong); i++) {
                json_t *object = sandbox_json(s);
                (void) json_object_set_new(object, wrong[i].key, wrong[i].value);
                _cleanup_free_ char *text = json_dumps(object, 0);
                json_decref(object);
                if (sandbox_parse(text, &ret) != -EINVAL)
                        fail_msg("%zu: %s", i, text);
        }
}

static void test_network(void **state) {
        static const struct {
                const char *text, *names; // NULL: refused
        } cases[] = {{"none", ""},       {"instance", ""}, {"web", "web"},      {"web,dns", "web dns"}, {"web,web", "web web"}, {"nonesuch", "nonesuch"}, {"", NULL},
                     {",", NULL},        {"Web", NULL},    {"web dns", NULL},   {"web,instance", NULL}, {"none,web", NULL},     {"../web", NULL},         {"web,-", NULL}};
        char many[65 * 2 + 1] = "";

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_strv_ char **names = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                int r = sandbox_network_parse(cases[i].text, &names, &err);
                _cleanup_free_ char *joined = strv_join(names, " ");
                assert_int_equal(r, cases[i].names ? 0 : -EINVAL);
                assert_string_equal(joined, cases[i].names ?: "");
                assert_int_equal(names != NULL, cases[i].names && *cases[i].names);
                if (r < 0)
                        assert_string_equal(err.field, "network");
        }
        for (size_t i = 0; i < 65; i++)
                memcpy(many + 2 * i, "a,", 3);
        assert_int_equal(sandbox_network_parse(many, &(char **) {NULL}, NULL), -EINVAL);
}

static void test_names(void **state) {
        for (int i = 0; i < _SANDBOX_STATE_MAX; i++)
                assert_int_equal(sandbox_state_from_string(sandbox_state_to_string(i)), i);
        for (int i = 0; i < _SANDBOX_CAUSE_MAX; i++)
                assert_int_equal(sandbox_cause_from_string(sandbox_cause_to_string(i)), i);
        assert_int_equal(sandbox_state_from_string("gone"), _SANDBOX_STATE_INVALID);
        assert_int_equal(sandbox_cause_from_string(NULL), _SANDBOX_CAUSE_INVALID);
}

static void test_runtimes(void **state) {
        static const char *const others[] = {"podman", "microvm", "gpu", "kata", "gvisor", "wasm", "", "bwrapx"};

        assert_int_equal(sandbox_runtime_check("bwrap", NULL), 0);
        for (size_t i = 0; i < ELEMENTS(others); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                assert_int_equal(sandbox_runtime_check(others[i], &err), -EINVAL);
                assert_non_null(strstr(err.message, "bwrap"));
        }
}

static void test_places(void **state) {
        static const struct {
                const char *place, *name;
                bool is;
        } cases[] = {
                {"agent1", "agent1", true},         {"agent1", "agent", false},          {"agent1", "agent12", false},        {"agent1/sb0", "agent1", true},
                {"agent1/sb0", "sb0", true},        {"agent1/sb0", "sb", false},         {"agent1/sb0", "agent1/sb0", false}, {"agent12/sb0", "agent1", false},
                {"sb0", "sb0", true},               {"agent1", "", false},               {"agent1/sb0", "", false},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++)
                if (place_is_of(cases[i].place, cases[i].name) != cases[i].is)
                        fail_msg("%s of %s", cases[i].place, cases[i].name);
}

// No more than its instance has, said by name; what was not asked for is cut down to that.
static void test_limits(void **state) {
        static const struct {
                const char *asked;
                LimitId id;
                uint64_t value; // 0: refused
        } cases[] = {
                {"{}", LIMIT_MEMORY, 256 << 20},
                {"{}", LIMIT_PIDS, 128},
                {"{}", LIMIT_CPU, LIMIT_UNSET},
                {"{}", LIMIT_OPEN_FILES, LIMIT_UNSET},
                {"{}", LIMIT_DISK, LIMIT_UNSET},
                {"{\"memory\": 268435456}", LIMIT_MEMORY, 256 << 20},
                {"{\"memory\": 268435457}", LIMIT_MEMORY, 0},
                {"{\"pids\": 500}", LIMIT_PIDS, 500},
                {"{\"pids\": 513}", LIMIT_PIDS, 0},
                {"{\"cpu\": \"0.5\"}", LIMIT_CPU, 500},
                {"{\"cpu\": \"2.001\"}", LIMIT_CPU, 0},
                {"{\"cpu\": \"max\"}", LIMIT_CPU, LIMIT_UNSET},
                {"{\"cpu\": \"fast\"}", LIMIT_CPU, 0},
                {"{\"disk\": 1048576}", LIMIT_DISK, 1 << 20},
                {"{\"disk\": 536870912}", LIMIT_DISK, 0},
                {"{\"open_files\": 64}", LIMIT_OPEN_FILES, 64},
                {"{\"open_files\": 1025}", LIMIT_OPEN_FILES, 0},
                {"{\"io_read\": \"1MiB\"}", LIMIT_IO_READ, 1 << 20},
                {"{\"io_write\": \"1GiB\"}", LIMIT_IO_WRITE, 1 << 30},
                {"{\"io_read\": \"11MiB\"}", LIMIT_IO_READ, 0},
                {"{\"io_read_ops\": \"1\"}", LIMIT_IO_READ_OPS, 0},
                {"{\"io_write_ops\": \"100\"}", LIMIT_IO_WRITE_OPS, 100},
        };
        Limits instance, limits;

        limits_init(&instance);
        instance.value[LIMIT_MEMORY] = 256 << 20;
        instance.value[LIMIT_PIDS] = 512;
        instance.value[LIMIT_CPU] = 2000;
        instance.value[LIMIT_OPEN_FILES] = 1024;
        instance.value[LIMIT_IO_READ] = 10 << 20;
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                json_t *asked = json_loads(cases[i].asked, 0, NULL);
                _cleanup_error_ Error err = ERROR_NULL;
                int r = sandbox_limits_of(asked, &instance, &limits, &err);
                json_decref(asked);
                if (r != (cases[i].value == 0 ? -EINVAL : 0) || (r == 0 && limits.value[cases[i].id] != cases[i].value))
                        fail_msg("%s: %d, %llu", cases[i].asked, r, (unsigned long long) limits.value[cases[i].id]);
                if (r < 0 && (err.code != ERR_INVALID || !strstr(err.message, limit_row(cases[i].id)->key)))
                        fail_msg("%s: %s", cases[i].asked, err.message);
                assert_true(limits.value[LIMIT_SWAP] == 0);
        }
}

static void test_said(void **state) {
        static const struct {
                const char *bytes, *text;
                size_t n;
        } cases[] = {
                {"", NULL, 0},
                {" \n\n", NULL, 3},
                {"bwrap: No such file\n", "bwrap: No such file", 20},
                {"one\n\n  two\r\nthree \n", "one two three", 19},
                {"a\0b", "a b", 3},
                {"\xa4rest", "rest", 5}, // the end of a character
        };
        char many[1000];

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_free_ char *text = sandbox_said(cases[i].bytes, cases[i].n);
                if (!text != !cases[i].text || (text && strcmp(text, cases[i].text) != 0))
                        fail_msg("%zu: %s", i, text ?: "nothing");
        }
        memset(many, 'x', sizeof(many));
        memcpy(many + sizeof(many) - 4, "end\n", 4);
        _cleanup_free_ char *last = sandbox_said(many, sizeof(many)), *odd = sandbox_said("\x1b[31mred\x1b[0m\xff", 13);
        assert_int_equal(strlen(last), SANDBOX_SAID_MAX - 1);
        assert_string_equal(last + SANDBOX_SAID_MAX - 4, "end");
        assert_non_null(strstr(odd, "red"));
        assert_true(valid_utf8(odd, strlen(odd)));
        assert_null(strchr(odd, 0x1b));
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_said), cmocka_unit_test(test_limits), cmocka_unit_test(test_line), cmocka_unit_test(test_broken_lines), cmocka_unit_test(test_wrong_lines), cmocka_unit_test(test_network),
                                           cmocka_unit_test(test_names), cmocka_unit_test(test_runtimes), cmocka_unit_test(test_places)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
