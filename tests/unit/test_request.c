// SPDX-License-Identifier: GPL-2.0-or-later
// Requests: who may call what, what the audit log says of each outcome, and what becomes of calls when hostd ends. A manager
// with stores but without a kernel, behind a real server.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/io.h"
#include "core/job.h"
#include "core/request.h"
#include "core/secrets.h"
#include "model/schema.h"
#include "wire/client.h"

typedef struct World {
        Manager m;
        char directory[64], audit[80];
        Access access; // of the next call
} World;

static int setup(void **state) {
        World *w = calloc(1, sizeof(*w));

        snprintf(w->directory, sizeof(w->directory), "/tmp/hostd-test-request.XXXXXX");
        assert_non_null(mkdtemp(w->directory));
        snprintf(w->audit, sizeof(w->audit), "%s/audit", w->directory);
        w->m.paths.state = w->m.paths.run = w->directory;
        w->m.desired = calloc(1, sizeof(Desired));
        w->m.bus = event_bus_new();
        assert_int_equal(sd_event_new(&w->m.event), 0);
        assert_true(audit_open(w->audit, &w->m.audit, NULL) >= 0);
        assert_true(store_open(":memory:", &w->m.store, NULL) >= 0);
        assert_int_equal(server_new(w->m.event, -EBADF, request_dispatch, &w->m, &w->m.server, NULL), 0);
        *state = w;
        return 0;
}

static void stop(World *w) {
        w->m.stopping = true;
        w->m.server = server_free(w->m.server);
        requests_detach(&w->m);
        jobs_cancel();
        requests_forget(&w->m);
        assert_null(w->m.requests);
}

static int teardown(void **state) {
        World *w = *state;

        stop(w);
        event_bus_free(w->m.bus);
        store_close(w->m.store);
        audit_close(w->m.audit);
        sd_event_source_disable_unref(w->m.trim);
        sd_event_unref(w->m.event);
        free(w->m.desired);
        assert_true(io_remove_tree(AT_FDCWD, w->directory) >= 0);
        free(w);
        return 0;
}

static Client *join(World *w, Access access) {
        Peer peer = {.uid = 1234, .pid = 99, .user = "tester", .access = access};
        Client *client = NULL;
        int sv[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
        assert_int_equal(server_add(w->m.server, sv[1], &peer, NULL), 0);
        assert_int_equal(client_from_fd(sv[0], &client, NULL), 0);
        return client;
}

// Calls, with one descriptor or -1, and waits for the answer; the parameters are stolen.
static int call_with(World *w, int fd, const char *method, json_t *parameters, Error *err) {
        Access access = fd >= 0 ? ACCESS_ADMIN : w->access;
        _cleanup_(client_freep) Client *client = join(w, access);
        json_t *reply = NULL;
        int r = -EAGAIN;

        assert_int_equal(client_send(client, method, parameters, false, &fd, fd >= 0, NULL), 0);
        json_decref(parameters);
        for (int i = 0; i < 1000 && r == -EAGAIN; i++) {
                assert_true(sd_event_run(w->m.event, 1000 * 1000) >= 0);
                r = client_receive_ready(client, &reply, err);
        }
        json_decref(reply);
        return r;
}

static int call(World *w, Access access, const char *method, json_t *parameters, Error *err) {
        w->access = access;
        return call_with(w, -1, method, parameters, err);
}

static int keep_last(const json_t *record, void *userdata) {
        json_t **last = userdata;

        json_decref(*last);
        *last = json_deep_copy(record);
        return 0;
}

// The newest record; caller frees. NULL if there is none.
static json_t *last_record(World *w) {
        AuditQuery query = {.last = 1};
        json_t *last = NULL;

        assert_true(audit_query(w->audit, &query, keep_last, &last, NULL) >= 0);
        return last;
}

static void assert_record(World *w, const char *method, const char *target, const char *result) {
        json_t *record = last_record(w);
        const char *found;

        assert_non_null(record);
        assert_string_equal(json_string_value(json_object_get(record, "method")), method);
        assert_string_equal(json_string_value(json_object_get(record, "result")), result);
        assert_string_equal(json_string_value(json_object_get(record, "user")), "tester");
        assert_int_equal(json_integer_value(json_object_get(record, "uid")), 1234);
        found = json_string_value(json_object_get(record, "target"));
        assert_string_equal(found ?: "", target);
        json_decref(record);
}

#define START "io.hostd.Instance.Start"
#define CLEAR "io.hostd.Warning.Clear"

static void test_outcomes(void **state) {
        static const struct {
                const char *label, *method, *parameters;
                Access access;
                ErrorCode code; // ERR_NONE: it succeeds
                const char *field, *target;
                bool recorded;
        } cases[] = {
                {"unknown method", "io.hostd.Nothing.At.All", "{}", ACCESS_ADMIN, ERR_NOT_FOUND, NULL, NULL, false},
                {"a view", "io.hostd.Policy.List", "{}", ACCESS_VIEW, ERR_NONE, NULL, NULL, false},
                {"a view by nobody", "io.hostd.Policy.List", "{}", ACCESS_NONE, ERR_DENIED, NULL, NULL, false},
                {"a change by a viewer", START, "{\"name\":\"web\"}", ACCESS_VIEW, ERR_DENIED, NULL, "web", true},
                {"no such instance", START, "{\"name\":\"web\"}", ACCESS_ADMIN, ERR_NOT_FOUND, NULL, "web", true},
                {"a name that is none", START, "{\"name\":\"We b\"}", ACCESS_ADMIN, ERR_INVALID, "name", "We b", true},
                {"a name of another type", START, "{\"name\":7}", ACCESS_ADMIN, ERR_INVALID, "name", "", true},
                {"no name", START, "{}", ACCESS_ADMIN, ERR_INVALID, "name", "", true},
                {"an unknown key", START, "{\"name\":\"web\",\"x\":1}", ACCESS_ADMIN, ERR_INVALID, "x", "web", true},
                {"without more", "io.hostd.Command.Exec", "{\"name\":\"web\",\"command\":[\"true\"]}", ACCESS_ADMIN, ERR_INVALID, NULL, "web", true},
                {"success", CLEAR, "{\"kind\":\"test\"}", ACCESS_ADMIN, ERR_NONE, NULL, "", true},
        };
        World *w = *state;

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                json_t *before = last_record(w), *after;
                int r = call(w, cases[i].access, cases[i].method, json_loads(cases[i].parameters, 0, NULL), &err);
                print_message("%s: %s\n", cases[i].label, r < 0 ? error_message(&err, r) : "ok");
                assert_int_equal(err.code, cases[i].code);
                assert_int_equal(r < 0, cases[i].code != ERR_NONE);
                if (cases[i].field)
                        assert_string_equal(err.field, cases[i].field);
                if (cases[i].recorded)
                        assert_record(w, cases[i].method, cases[i].target, cases[i].code ? error_code_info(cases[i].code)->name : "ok");
                after = last_record(w);
                assert_int_equal(!cases[i].recorded, (!before && !after) || json_equal(before, after));
                json_decref(before);
                json_decref(after);
                assert_null(w->m.requests);
        }
}

// Secrets come in as environment variables. Refused calls are recorded, too, and unchecked parameters may have any form.
static void test_no_secret_is_recorded(void **state) {
        static const char *const calls[] = {
                "{\"name\":\"web\",\"command\":[\"true\"],\"env\":{\"TOKEN\":\"hunter2\"}}",
                "{\"name\":\"web\",\"command\":[\"true\"],\"env\":[\"TOKEN=hunter2\"]}",
                "{\"name\":\"web\",\"command\":[\"true\"],\"env\":\"TOKEN=hunter2\"}",
                "{\"name\":\"web\",\"command\":[\"true\"],\"env\":{\"TOKEN\":\"hunter2\"},\"unknown\":1}",
        };
        World *w = *state;

        for (size_t i = 0; i < ELEMENTS(calls); i++)
                for (Access access = ACCESS_VIEW; access <= ACCESS_ADMIN; access++) {
                        _cleanup_(client_freep) Client *client = join(w, access);
                        _cleanup_free_ char *text = NULL;
                        json_t *parameters = json_loads(calls[i], 0, NULL), *reply = NULL, *record;
                        assert_int_equal(client_send(client, "io.hostd.Command.Exec", parameters, true, NULL, 0, NULL), 0);
                        json_decref(parameters);
                        for (int n = 0; n < 100 && client_receive_ready(client, &reply, NULL) == -EAGAIN; n++)
                                assert_true(sd_event_run(w->m.event, 1000 * 1000) >= 0);
                        json_decref(reply);
                        record = last_record(w);
                        text = json_dumps(record, 0);
                        assert_non_null(strstr(text, "io.hostd.Command.Exec"));
                        assert_null(strstr(text, "hunter2"));
                        json_decref(record);
                }
}

// Nothing that changes something goes on while it cannot be recorded, and everything does again afterwards.
static void test_audit_cannot_be_written(void **state) {
        struct rlimit before, none;
        _cleanup_error_ Error made = ERROR_NULL, refused = ERROR_NULL, view = ERROR_NULL, again = ERROR_NULL;
        World *w = *state;

        assert_int_equal(call(w, ACCESS_ADMIN, CLEAR, json_pack("{s:s}", "kind", "test"), NULL), 0);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        none = before;
        none.rlim_cur = 1; // stands in for a full disk
        (void) signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        assert_true(call(w, ACCESS_ADMIN, CLEAR, json_pack("{s:s}", "kind", "test"), &made) < 0);
        assert_non_null(strstr(error_message(&made, 0), "the change was made"));
        assert_true(call(w, ACCESS_ADMIN, CLEAR, json_pack("{s:s}", "kind", "test"), &refused) < 0);
        assert_non_null(strstr(error_message(&refused, 0), "nothing was changed"));
        assert_int_equal(call(w, ACCESS_ADMIN, "io.hostd.Policy.List", NULL, &view), 0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(call(w, ACCESS_ADMIN, CLEAR, json_pack("{s:s}", "kind", "test"), &again), 0);
        assert_record(w, CLEAR, "", "ok");
        assert_false(w->m.audit_failed);
        assert_true(audit_verify(w->audit, NULL, NULL) >= 0);
}

// Nobody would end it: it would follow for ever, and be told of calls that are gone.
static void test_oneway_follower(void **state) {
        static const char message[] = "{\"method\":\"io.hostd.Events.Follow\",\"more\":true,\"oneway\":true}";
        World *w = *state;
        Peer peer = {.user = "tester", .access = ACCESS_ADMIN};
        int sv[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
        assert_int_equal(server_add(w->m.server, sv[1], &peer, NULL), 0);
        assert_int_equal(write(sv[0], message, sizeof(message)), sizeof(message)); // with its NUL
        for (int i = 0; i < 20; i++)
                (void) sd_event_run(w->m.event, 0);
        (void) close_fd(sv[0]);
        for (int i = 0; i < 20; i++)
                (void) sd_event_run(w->m.event, 0);
        event_publish(w->m.bus, "x", NULL, NULL);
        stop(w);
        event_publish(w->m.bus, "y", NULL, NULL);
}

static void test_caller_leaves(void **state) {
        World *w = *state;
        Client *client = join(w, ACCESS_ADMIN);

        assert_int_equal(client_send(client, "io.hostd.Audit.Verify", NULL, false, NULL, 0, NULL), 0);
        for (int i = 0; i < 100 && !w->m.requests; i++)
                assert_true(sd_event_run(w->m.event, 1000 * 1000) >= 0);
        assert_non_null(w->m.requests); // its job runs
        client_free(client);
        for (int i = 0; i < 100 && w->m.requests; i++)
                assert_true(sd_event_run(w->m.event, 1000 * 1000) >= 0);
        assert_null(w->m.requests);
}

static void test_hostd_ends(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *client = join(w, ACCESS_ADMIN), *other = join(w, ACCESS_ADMIN);

        assert_int_equal(client_send(client, "io.hostd.Audit.Verify", NULL, false, NULL, 0, NULL), 0);
        assert_int_equal(client_send(other, "io.hostd.Audit.Tail", NULL, false, NULL, 0, NULL), 0);
        for (int i = 0; i < 100 && !w->m.requests; i++)
                assert_true(sd_event_run(w->m.event, 1000 * 1000) >= 0);
        assert_non_null(w->m.requests);
        stop(w);
}

static void test_no_change_while_stopping(void **state) {
        _cleanup_error_ Error err = ERROR_NULL;
        World *w = *state;

        w->m.stopping = true;
        assert_true(call(w, ACCESS_ADMIN, START, json_pack("{s:s}", "name", "web"), &err) < 0);
        assert_int_equal(err.code, ERR_UNAVAILABLE);
        assert_int_equal(call(w, ACCESS_ADMIN, "io.hostd.Policy.List", NULL, NULL), 0);
}

static void test_no_change_during_a_rollback(void **state) {
        World *w = *state;
        _cleanup_error_ Error err = ERROR_NULL, other = ERROR_NULL;

        w->m.rolling_back = true;
        assert_true(call(w, ACCESS_ADMIN, "io.hostd.Config.Apply", json_object(), &err) < 0);
        assert_int_equal(err.code, ERR_BUSY);
        assert_true(call(w, ACCESS_ADMIN, START, json_pack("{s:s}", "name", "web"), &other) < 0);
        assert_int_equal(other.code, ERR_NOT_FOUND); // what writes no file goes on
}

// ---- secrets ----

#define VALUE "correct-horse-battery-staple"

static int secret_call(World *w, const char *method, const char *value, bool closed, Error *err) {
        int p[2], r;

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        assert_int_equal(io_write_all(p[1], value, strlen(value)), 0);
        if (closed)
                p[1] = close_fd(p[1]);
        r = call_with(w, p[0], method, json_pack("{s:s}", "secret", "token"), err);
        (void) close_fd(p[0]);
        (void) close_fd(p[1]);
        return r;
}

static int look_for_value(const json_t *record, void *userdata) {
        _cleanup_free_ char *text = json_dumps(record, 0);

        assert_null(strstr(text, VALUE));
        ++*(unsigned *) userdata;
        return 0;
}

static void test_secret_values_are_in_no_record(void **state) {
        _cleanup_error_ Error unread = ERROR_NULL, again = ERROR_NULL, denied = ERROR_NULL, absent = ERROR_NULL;
        World *w = *state;
        unsigned records = 0;

        w->m.state_fd = open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        secrets_open(&w->m);
        assert_non_null(w->m.secrets);
        assert_true(secret_call(w, "io.hostd.Secret.Set", VALUE, false, &unread) < 0); // its end may never come: hostd does not wait
        assert_int_equal(unread.code, ERR_INVALID);
        assert_record(w, "io.hostd.Secret.Set", "token", "Invalid");
        assert_int_equal(secret_call(w, "io.hostd.Secret.Set", VALUE, true, NULL), 0);
        assert_record(w, "io.hostd.Secret.Set", "token", "ok");
        assert_true(secret_call(w, "io.hostd.Secret.Set", VALUE, true, &again) < 0);
        assert_int_equal(again.code, ERR_EXISTS);
        assert_int_equal(secret_call(w, "io.hostd.Secret.Rotate", VALUE "2", true, NULL), 0);
        assert_record(w, "io.hostd.Secret.Rotate", "token", "ok");
        assert_true(call(w, ACCESS_OPERATE, "io.hostd.Secret.Revoke", json_pack("{s:s}", "secret", "token"), &denied) < 0);
        assert_int_equal(denied.code, ERR_DENIED);
        assert_true(call(w, ACCESS_ADMIN, "io.hostd.Secret.Grant",
                         json_pack("{s:s, s:s, s:s, s:s}", "secret", "token", "name", "one", "host", "api.example.com", "header", "X-Key"), &absent) < 0);
        assert_int_equal(absent.code, ERR_NOT_FOUND); // of the instance
        assert_int_equal(call(w, ACCESS_VIEW, "io.hostd.Secret.List", json_object(), NULL), 0);
        assert_true(audit_query(w->audit, &(AuditQuery) {0}, look_for_value, &records, NULL) >= 0);
        assert_int_equal(records, 6);
        w->m.secrets = secrets_free(w->m.secrets);
        w->m.state_fd = close_fd(w->m.state_fd);
}

// A grant ends at its time, also when hostd was not there then, and the end is recorded.
static void test_grants_end_by_themselves(void **state) {
        _cleanup_(value_freep) Value *value = NULL;
        World *w = *state;
        Binding *b[2];

        w->m.state_fd = open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        secrets_open(&w->m);
        assert_int_equal(value_new(1, &value), 0);
        value->data[0] = 'x';
        assert_int_equal(secret_add(&w->m.secrets->vault, "token", value, NULL), 0);
        for (int i = 0; i < 2; i++) {
                b[i] = calloc(1, sizeof(Binding));
                *b[i] = (Binding) {.secret = "token", .instance = "one", .host = strdup("api.example.com"), .port = 443, .place = BINDING_BASIC};
                b[i]->until = clock_realtime() + (i + 1) * 200 * USEC_PER_MSEC;
                assert_int_equal(secrets_grant(w->m.secrets, b[i], NULL), 0);
        }
        for (usec_t until = clock_monotonic() + 10 * USEC_PER_SEC; w->m.secrets->n > 1 && clock_monotonic() < until;)
                assert_true(sd_event_run(w->m.event, 100 * USEC_PER_MSEC) >= 0);
        assert_true(w->m.secrets->n <= 1);
        w->m.secrets = secrets_free(w->m.secrets);
        (void) usleep(300 * USEC_PER_MSEC);
        secrets_open(&w->m);
        assert_int_equal(w->m.secrets->n, 0);
        json_t *record = last_record(w);
        assert_string_equal(json_string_value(json_object_get(record, "method")), "io.hostd.Secret.Ungrant");
        assert_string_equal(json_string_value(json_object_get(record, "result")), "ended");
        assert_string_equal(json_string_value(json_object_get(record, "target")), "one");
        json_decref(record);
        w->m.secrets = secrets_free(w->m.secrets);
        w->m.state_fd = close_fd(w->m.state_fd);
}

// Each row of the method table is served, and each handler has a row: the tables are indexed alike.
static void test_handlers(void **state) {
        for (MethodId id = 0; id < _METHOD_MAX; id++) {
                const Method *method = method_get(id);
                assert_non_null(method->name);
                if (!request_handlers[id])
                        fail_msg("%s has no handler", method->name);
        }
}

// The presets of the calls are those of the files.
static void test_presets(void **state) {
        const char *const *known = schema_find(&instance_schema, "preset")->choices;
        const Param *p = method_get(METHOD_INSTANCE_CREATE)->params;
        size_t i = 0;

        while (strcmp(p->name, "preset") != 0)
                p++;
        for (; known[i]; i++)
                assert_string_equal(p->choices[i], known[i]);
        assert_null(p->choices[i]);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_outcomes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_secret_is_recorded, setup, teardown),
                cmocka_unit_test_setup_teardown(test_audit_cannot_be_written, setup, teardown),
                cmocka_unit_test_setup_teardown(test_oneway_follower, setup, teardown),
                cmocka_unit_test_setup_teardown(test_caller_leaves, setup, teardown),
                cmocka_unit_test_setup_teardown(test_hostd_ends, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_change_while_stopping, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_change_during_a_rollback, setup, teardown),
                cmocka_unit_test_setup_teardown(test_secret_values_are_in_no_record, setup, teardown),
                cmocka_unit_test_setup_teardown(test_grants_end_by_themselves, setup, teardown),
                cmocka_unit_test(test_handlers),
                cmocka_unit_test(test_presets),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
