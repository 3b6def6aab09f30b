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
        s->labels = json_pack("{s:s}", "a", "b");
        s->root = true;
        s->memory = 64 << 20;
        s->pids = 100;
        s->millicpus = s->disk = s->memory_peak = UINT64_MAX;
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
        assert_true(again->disk == UINT64_MAX && again->memory_peak == UINT64_MAX && again->lease.ended == 5 && again->cause == SANDBOX_CAUSE_OOM);
        assert_null(again->key);
        assert_string_equal(again->workspace, "/home/agent/work");
}

// Each key away, and each of another type: nothing of it is taken.
static void test_broken_lines(void **state) {
        static const char *const bad[] = {"", "{}", "[]", "null", "{\"id\":1}", "x"};
        static const char *const optional[] = {"workspace", "message", "root"};
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
        (void) json_object_set_new(object, "id", json_string("../x"));
        _cleanup_free_ char *text = json_dumps(object, 0);
        assert_int_equal(sandbox_parse(text, &ret), -EINVAL);
        json_decref(object);
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

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_line), cmocka_unit_test(test_broken_lines), cmocka_unit_test(test_names), cmocka_unit_test(test_runtimes)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
