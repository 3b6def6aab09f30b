// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs in forked children: what comes back, what does not, and what is left when hostd ends.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "core/job.h"

typedef struct Outcome {
        unsigned calls;
        int r;
        json_t *result;
        ErrorCode code;
        char message[128], field[32];
} Outcome;

static int setup(void **state) {
        sd_event *event;

        assert_int_equal(sd_event_new(&event), 0);
        *state = event;
        return 0;
}

static int teardown(void **state) {
        jobs_cancel();
        sd_event_unref(*state);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // no child is left, dead or alive
        assert_int_equal(errno, ECHILD);
        return 0;
}

static void done(void *userdata, int r, json_t *result, Error *err) {
        Outcome *outcome = userdata;

        outcome->calls++;
        outcome->r = r;
        outcome->result = json_incref(result);
        outcome->code = err->code;
        snprintf(outcome->message, sizeof(outcome->message), "%s", err->message ?: "");
        snprintf(outcome->field, sizeof(outcome->field), "%s", err->field ?: "");
}

static void run(sd_event *event, JobWork work, void *input, Outcome *outcome) {
        JobSpec spec = {work, input, done, outcome};

        assert_int_equal(job_start(event, &spec, NULL), 0);
        for (int i = 0; i < 100000 && outcome->calls == 0; i++)
                assert_true(sd_event_run(event, 5 * 1000 * 1000) >= 0);
        assert_int_equal(outcome->calls, 1);
}

static int work_value(void *input, json_t **ret, Error *err) {
        *ret = json_pack("{s:s}", "said", input);
        return 7;
}

static int work_nothing(void *input, json_t **ret, Error *err) {
        return 0;
}

static int work_error(void *input, json_t **ret, Error *err) {
        return error_set(err, ERR_CONFLICT, "%s does not match", (const char *) input);
}

static int work_field(void *input, json_t **ret, Error *err) {
        return error_set_field(err, "rev", "rev is odd");
}

static int work_errno(void *input, json_t **ret, Error *err) {
        return -ENOSPC;
}

static int work_dies(void *input, json_t **ret, Error *err) {
        raise(SIGKILL);
        return 0;
}

static int work_large(void *input, json_t **ret, Error *err) {
        size_t size = *(size_t *) input;
        char *text = malloc(size + 1);

        memset(text, 'x', size);
        text[size] = 0;
        *ret = json_pack("{s:s}", "text", text);
        free(text);
        return 0;
}

static int work_for_ever(void *input, json_t **ret, Error *err) {
        while (pause() < 0)
                ;
        return 0;
}

static void test_result(void **state) {
        Outcome outcome = {0};

        run(*state, work_value, (void *) "hello", &outcome);
        assert_int_equal(outcome.r, 7);
        assert_string_equal(json_string_value(json_object_get(outcome.result, "said")), "hello");
        json_decref(outcome.result);
}

static void test_no_result(void **state) {
        Outcome outcome = {0};

        run(*state, work_nothing, NULL, &outcome);
        assert_int_equal(outcome.r, 0);
        assert_null(outcome.result);
        assert_int_equal(outcome.code, ERR_NONE);
}

static void test_errors(void **state) {
        static const struct {
                JobWork work;
                int r;
                ErrorCode code;
                const char *message, *field;
        } cases[] = {
                {work_error, -ESTALE, ERR_CONFLICT, "it does not match", ""},
                {work_field, -EINVAL, ERR_INVALID, "rev is odd", "rev"},
                {work_errno, -EDQUOT, ERR_QUOTA, "No space left on device", ""},
                {work_dies, -EIO, ERR_INTERNAL, "a helper process ended without an answer", ""},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Outcome outcome = {0};
                run(*state, cases[i].work, (void *) "it", &outcome);
                assert_int_equal(outcome.r, cases[i].r);
                assert_int_equal(outcome.code, cases[i].code);
                assert_string_equal(outcome.message, cases[i].message);
                assert_string_equal(outcome.field, cases[i].field);
                assert_null(outcome.result);
        }
}

static void test_large(void **state) {
        size_t fits = 5 << 20, too_large = 20 << 20;
        Outcome outcome = {0}, refused = {0};

        run(*state, work_large, &fits, &outcome);
        assert_int_equal(json_string_length(json_object_get(outcome.result, "text")), fits);
        json_decref(outcome.result);
        run(*state, work_large, &too_large, &refused);
        assert_int_equal(refused.code, ERR_QUOTA);
        assert_null(refused.result);
}

static void test_cancel_and_limit(void **state) {
        Outcome outcomes[JOB_MAX] = {0};
        _cleanup_error_ Error err = ERROR_NULL;

        for (size_t i = 0; i < JOB_MAX; i++) {
                JobSpec spec = {work_for_ever, NULL, done, &outcomes[i]};
                assert_int_equal(job_start(*state, &spec, NULL), 0);
        }
        JobSpec spec = {work_nothing, NULL, done, NULL};
        assert_int_equal(job_start(*state, &spec, &err), -EBUSY);
        assert_int_equal(err.code, ERR_BUSY);
        jobs_cancel();
        for (size_t i = 0; i < JOB_MAX; i++) {
                assert_int_equal(outcomes[i].calls, 1);
                assert_int_equal(outcomes[i].code, ERR_CANCELLED);
        }
        jobs_cancel(); // none is left
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_result, setup, teardown), cmocka_unit_test_setup_teardown(test_no_result, setup, teardown),
                cmocka_unit_test_setup_teardown(test_errors, setup, teardown), cmocka_unit_test_setup_teardown(test_large, setup, teardown),
                cmocka_unit_test_setup_teardown(test_cancel_and_limit, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
