// SPDX-License-Identifier: GPL-2.0-or-later
// Server and client over socketpairs and a real event loop: the loop and the blocking client take turns in one process.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "wire/client.h"
#include "wire/connection.h"

typedef struct World {
        sd_event *event;
        Server *server;
        Call *held;
        unsigned calls, closed;
        int fd;
} World;

static void on_closed(Call *call, void *userdata) {
        World *w = userdata;

        assert_ptr_equal(call, w->held);
        w->held = NULL;
        w->closed++;
}

static void on_call(Call *call, void *userdata) {
        World *w = userdata;
        const char *method = call_method(call);

        w->calls++;
        if (strcmp(method, "x.Echo") == 0)
                call_reply(call, json_incref(call_parameters(call)));
        else if (strcmp(method, "x.Hold") == 0) {
                w->held = call;
                call_set_closed(call, on_closed, w);
        } else if (strcmp(method, "x.HoldBlind") == 0)
                w->held = call;
        else if (strcmp(method, "x.Stream") == 0) {
                for (int i = 0; i < 3; i++)
                        call_reply_continues(call, json_pack("{s:i}", "i", i));
                call_reply(call, NULL);
        } else if (strcmp(method, "x.Flood") == 0) {
                char *big = malloc(65536);
                memset(big, 'x', 65535);
                big[65535] = 0;
                for (int i = 0; i < 100; i++)
                        call_reply_continues(call, json_pack("{s:s}", "s", big));
                call_reply(call, NULL); // the connection is dead by now, the call is not
                free(big);
        } else if (strcmp(method, "x.Fd") == 0) {
                w->fd = call_take_fd(call, 0);
                assert_int_equal(call_take_fd(call, 0), -EBADF);
                assert_int_equal(call_take_fd(call, 7), -EBADF);
                call_reply(call, json_pack("{s:b}", "second", call_take_fd(call, 1) >= 0));
        } else {
                _cleanup_error_ Error err = ERROR_NULL;
                int r = error_set_field(&err, "limits.memory", "limits.memory is odd");
                call_error(call, &err, r);
        }
}

static int setup(void **state) {
        World *w = calloc(1, sizeof(*w));

        assert_int_equal(sd_event_new(&w->event), 0);
        assert_int_equal(server_new(w->event, -EBADF, on_call, w, &w->server, NULL), 0);
        w->fd = -EBADF;
        *state = w;
        return 0;
}

static int teardown(void **state) {
        World *w = *state;

        server_free(w->server);
        sd_event_unref(w->event);
        close_fd(w->fd);
        free(w);
        return 0;
}

static void spin(World *w) {
        for (int i = 0; i < 10000 && sd_event_run(w->event, 0) > 0; i++)
                ;
}

static int join(World *w, Access access) {
        Peer peer = {.uid = access == ACCESS_NONE ? 4242 : 0, .user = "tester", .access = access};
        int sv[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
        assert_int_equal(server_add(w->server, sv[1], &peer, NULL), 0);
        return sv[0];
}

static Client *join_client(World *w) {
        Client *client = NULL;

        assert_int_equal(client_from_fd(join(w, ACCESS_ADMIN), &client, NULL), 0);
        return client;
}

static size_t n_connections(const World *w) {
        size_t n = 0;

        for (const Connection *c = w->server->connections; c; c = c->next)
                n++;
        return n;
}

static void test_echo(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *client = join_client(w);
        json_t *p = json_pack("{s:s}", "k", "v"), *reply = NULL;

        for (int i = 0; i < 3; i++) {
                assert_int_equal(client_send(client, "x.Echo", p, false, NULL, 0, NULL), 0);
                spin(w);
                assert_int_equal(client_receive(client, &reply, NULL), 0);
                assert_true(json_equal(p, reply));
                json_decref(reply);
        }
        json_decref(p);
}

static void test_error(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *client = join_client(w);
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *reply = NULL;

        assert_int_equal(client_send(client, "x.Bad", NULL, false, NULL, 0, NULL), 0);
        spin(w);
        assert_int_equal(client_receive(client, &reply, &err), -EINVAL);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.message, "limits.memory is odd");
        assert_string_equal(err.field, "limits.memory");
        assert_null(reply);
}

static void test_stream(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *client = join_client(w);
        json_t *reply = NULL;

        assert_int_equal(client_receive_ready(client, &reply, NULL), -EAGAIN);
        assert_int_equal(client_send(client, "x.Stream", NULL, true, NULL, 0, NULL), 0);
        spin(w);
        for (int i = 0; i < 3; i++) {
                assert_int_equal(client_receive_ready(client, &reply, NULL), 1);
                assert_int_equal(json_integer_value(json_object_get(reply, "i")), i);
                json_decref(reply);
        }
        assert_int_equal(client_receive(client, &reply, NULL), 0);
        json_decref(reply);
        // Without `more` only the last one comes.
        assert_int_equal(client_send(client, "x.Stream", NULL, false, NULL, 0, NULL), 0);
        spin(w);
        assert_int_equal(client_receive(client, &reply, NULL), 0);
        assert_int_equal(json_object_size(reply), 0);
        json_decref(reply);
}

static void test_pipelined_in_order(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *client = join_client(w);

        for (int i = 0; i < 50; i++) {
                json_t *p = json_pack("{s:i}", "i", i);
                assert_int_equal(client_send(client, i == 10 ? "x.Hold" : "x.Echo", p, false, NULL, 0, NULL), 0);
                json_decref(p);
        }
        spin(w);
        assert_int_equal(w->calls, 11); // the held one blocks what follows
        call_reply(w->held, json_pack("{s:i}", "i", 10));
        spin(w);
        for (int i = 0; i < 50; i++) {
                json_t *reply = NULL;
                assert_int_equal(client_receive(client, &reply, NULL), 0);
                assert_int_equal(json_integer_value(json_object_get(reply, "i")), i);
                json_decref(reply);
        }
}

static void test_fd(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *client = join_client(w);
        int p[2];
        char c = 0;
        json_t *reply = NULL;

        assert_int_equal(pipe(p), 0);
        assert_int_equal(client_send(client, "x.Fd", NULL, false, &p[0], 1, NULL), 0);
        spin(w);
        assert_int_equal(client_receive(client, &reply, NULL), 0);
        assert_false(json_is_true(json_object_get(reply, "second")));
        json_decref(reply);
        assert_int_equal(write(p[1], "z", 1), 1);
        assert_int_equal(read(w->fd, &c, 1), 1);
        assert_int_equal(c, 'z');
        assert_true(fcntl(w->fd, F_GETFD) & FD_CLOEXEC);
        close(p[0]);
        close(p[1]);
}

static void test_closed(void **state) {
        World *w = *state;
        Client *client = join_client(w);

        assert_int_equal(client_send(client, "x.Hold", NULL, false, NULL, 0, NULL), 0);
        spin(w);
        assert_non_null(w->held);
        client_free(client);
        spin(w);
        assert_int_equal(w->closed, 1);
        assert_null(w->held);
        assert_int_equal(n_connections(w), 0);
}

static void test_answer_into_nothing(void **state) {
        World *w = *state;
        Client *client = join_client(w);

        assert_int_equal(client_send(client, "x.HoldBlind", NULL, false, NULL, 0, NULL), 0);
        spin(w);
        client_free(client);
        spin(w);
        assert_int_equal(n_connections(w), 0);
        call_reply(w->held, NULL);
        assert_null(w->server->calls);
}

// A client that has said everything (`nc -N`) still gets its answer; the call is not taken for abandoned.
static void test_half_closed(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *client = join_client(w);
        json_t *reply = NULL;

        assert_int_equal(client_send(client, "x.Hold", NULL, false, NULL, 0, NULL), 0);
        assert_int_equal(shutdown(client_fd(client), SHUT_WR), 0);
        spin(w);
        assert_int_equal(w->closed, 0);
        call_reply(w->held, NULL);
        spin(w);
        assert_int_equal(client_receive(client, &reply, NULL), 0);
        json_decref(reply);
        assert_int_equal(n_connections(w), 0);
}

static void test_oneway(void **state) {
        World *w = *state;
        _cleanup_close_ int fd = join(w, ACCESS_ADMIN);
        char buf[256];

        assert_int_equal(send(fd, "{\"method\":\"x.Echo\",\"oneway\":true}", 34, 0), 34);
        assert_int_equal(send(fd, "{\"method\":\"x.Echo\"}", 20, 0), 20);
        spin(w);
        assert_int_equal(w->calls, 2);
        assert_int_equal(recv(fd, buf, sizeof(buf), MSG_DONTWAIT), 18);
        assert_string_equal(buf, "{\"parameters\":{}}");
}

static void test_slow_client_is_dropped(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *client = join_client(w);

        assert_int_equal(client_send(client, "x.Flood", NULL, true, NULL, 0, NULL), 0);
        spin(w);
        assert_int_equal(w->calls, 1);
        assert_int_equal(n_connections(w), 0);
        assert_null(w->server->calls);
}

// One that never reads gets no more calls in: what it costs is bounded and others are served.
static void test_unread_answers_stop_reading(void **state) {
        World *w = *state;
        _cleanup_close_ int fd = join(w, ACCESS_ADMIN);
        _cleanup_(client_freep) Client *other = join_client(w);
        _cleanup_free_ char *pad = malloc(100001);
        json_t *p, *reply = NULL;
        ssize_t n = 0;

        memset(pad, 'x', 100000);
        pad[100000] = 0;
        p = json_pack("{s:s, s:{s:s}}", "method", "x.Echo", "parameters", "pad", pad);
        char *text = json_dumps(p, JSON_COMPACT);
        json_decref(p);
        for (int i = 0; i < 1000 && n >= 0; i++) {
                n = send(fd, text, strlen(text) + 1, MSG_DONTWAIT);
                spin(w);
        }
        assert_true(n < 0);
        assert_true(w->calls < 100);
        for (const Connection *c = w->server->connections; c; c = c->next)
                assert_true(c->out_used <= 200000);
        assert_int_equal(client_send(other, "x.Echo", NULL, false, NULL, 0, NULL), 0);
        spin(w);
        assert_int_equal(client_receive_ready(other, &reply, NULL), 0);
        json_decref(reply);
        free(text);
}

static void test_garbage(void **state) {
        static const struct {
                const char *text;
                const char *parameter;
        } cases[] = {
                {"nonsense", "message"},
                {"[]", "message"},
                {"{}", "method"},
                {"{\"method\":1}", "method"},
                {"{\"method\":\"x.Echo\",\"parameters\":[]}", "parameters"},
                {"{\"method\":\"x.Echo\",\"more\":1}", "more"},
                {"{\"method\":\"x.Echo\",\"upgrade\":true}", "upgrade"},
                {"{\"method\":\"x.Echo\",\"parameters\":{\"a\":\"\\u0000\"}}", "message"},
        };
        World *w = *state;

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_close_ int fd = join(w, ACCESS_ADMIN);
                char want[256], got[256] = "";
                assert_true(send(fd, cases[i].text, strlen(cases[i].text) + 1, 0) > 0);
                spin(w);
                snprintf(want, sizeof(want),
                         "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"%s\"}}",
                         cases[i].parameter);
                assert_true(recv(fd, got, sizeof(got), MSG_DONTWAIT) > 0);
                assert_string_equal(got, want);
                assert_int_equal(n_connections(w), 0);
                assert_int_equal(w->calls, 0);
        }
}

static void test_too_many_fds(void **state) {
        World *w = *state;
        _cleanup_close_ int fd = join(w, ACCESS_ADMIN);
        int fds[4] = {0, 0, 0, 0};

        assert_true(io_send_fds(fd, "{\"method\":\"x.Echo\"}", 20, fds, 4, 0) > 0);
        spin(w);
        assert_int_equal(n_connections(w), 0);
        assert_int_equal(w->calls, 0);
}

static void test_frame_limits(void **state) {
        World *w = *state;
        _cleanup_close_ int stranger = join(w, ACCESS_NONE);
        char buf[WIRE_STRANGER_FRAME_MAX + 100];

        memset(buf, ' ', sizeof(buf));
        assert_true(send(stranger, buf, sizeof(buf), 0) > 0);
        spin(w);
        assert_int_equal(n_connections(w), 0);
}

static void test_cap_per_uid(void **state) {
        World *w = *state;
        Peer peer = {.uid = 77, .access = ACCESS_VIEW};
        _cleanup_error_ Error err = ERROR_NULL;
        int fds[3][2];
        Client *client;
        json_t *reply = NULL;

        server_set_connections_max(w->server, 2);
        for (int i = 0; i < 3; i++) {
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds[i]), 0);
                assert_int_equal(server_add(w->server, fds[i][1], &peer, NULL), i < 2 ? 0 : -EBUSY);
        }
        assert_int_equal(client_from_fd(fds[2][0], &client, NULL), 0);
        assert_int_equal(client_send(client, "x.Echo", NULL, false, NULL, 0, NULL), 0); // EPIPE: the reason is read next
        assert_int_equal(client_receive(client, &reply, &err), -EBUSY);
        assert_non_null(strstr(err.message, "uid 77"));
        client_free(client);
        close(fds[0][0]);
        spin(w);
        assert_int_equal(n_connections(w), 1);
        close(fds[1][0]);
}

static const char *const interfaces[] = {"x", NULL};

static char *describe(const char *interface) {
        return strcmp(interface, "x") == 0 ? strdup("interface x\n") : NULL;
}

static bool has_method(const char *method) {
        return strcmp(method, "x.Echo") == 0;
}

static void ask(World *w, const char *method, json_t *parameters, const char *want) {
        _cleanup_close_ int fd = join(w, ACCESS_VIEW);
        json_t *message = json_pack("{s:s, s:o}", "method", method, "parameters", parameters);
        char *text = json_dumps(message, 0), got[2048] = "";

        assert_true(send(fd, text, strlen(text) + 1, 0) > 0);
        spin(w);
        assert_true(recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT) > 0);
        if (!strstr(got, want))
                fail_msg("%s: %s instead of %s", method, got, want);
        free(text);
        json_decref(message);
}

static void test_service(void **state) {
        static const ServerDescription description = {"v", "p", "1", "u", interfaces, describe, has_method};
        World *w = *state;

        server_set_description(w->server, &description);
        ask(w, "org.varlink.service.GetInfo", json_object(), "\"interfaces\":[\"org.varlink.service\",\"x\"]");
        ask(w, "org.varlink.service.GetInterfaceDescription", json_pack("{s:s}", "interface", "x"), "interface x");
        ask(w, "org.varlink.service.GetInterfaceDescription", json_pack("{s:s}", "interface", "org.varlink.service"),
            "method GetInfo()");
        ask(w, "org.varlink.service.GetInterfaceDescription", json_pack("{s:s}", "interface", "y"),
            "org.varlink.service.InterfaceNotFound");
        ask(w, "org.varlink.service.GetInterfaceDescription", json_object(), "org.varlink.service.InvalidParameter");
        ask(w, "org.varlink.service.Other", json_object(), "org.varlink.service.MethodNotFound");
        ask(w, "x.Other", json_object(), "org.varlink.service.MethodNotFound");
        assert_int_equal(w->calls, 0);
        ask(w, "x.Echo", json_object(), "parameters");
        assert_int_equal(w->calls, 1);
}

static void test_access(void **state) {
        static const PeerGroups groups = {{PEER_NO_GROUP, 10, 20, 30}}, none = {{PEER_NO_GROUP, PEER_NO_GROUP, PEER_NO_GROUP, PEER_NO_GROUP}};
        static const struct {
                uid_t uid;
                gid_t gids[2];
                Access access;
        } cases[] = {
                {0, {1, 2}, ACCESS_ADMIN},    {5, {1, 2}, ACCESS_NONE},  {5, {1, 10}, ACCESS_VIEW}, {5, {20, 10}, ACCESS_OPERATE},
                {5, {10, 30}, ACCESS_ADMIN}, {5, {PEER_NO_GROUP, 0}, ACCESS_NONE},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                assert_int_equal(peer_access(&groups, cases[i].uid, cases[i].gids, 2), cases[i].access);
                if (cases[i].uid)
                        assert_int_equal(peer_access(&none, cases[i].uid, cases[i].gids, 2), ACCESS_NONE);
        }
        for (int i = 0; i < _ACCESS_MAX; i++)
                assert_string_not_equal(access_to_string(i), "unknown");
}

static void test_listen_and_connect(void **state) {
        World *w = *state;
        char dir[] = "/tmp/hostd-wire.XXXXXX", path[64];
        _cleanup_error_ Error err = ERROR_NULL, busy = ERROR_NULL, gone = ERROR_NULL;
        Client *client = NULL;
        Server *server = NULL;
        struct stat st;
        json_t *reply = NULL;
        int fd;

        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/sock", dir);
        assert_int_equal(client_connect(path, &client, &err), -EHOSTDOWN);
        assert_non_null(strstr(err.message, "is hostd running?"));
        fd = server_listen(path, NULL);
        assert_true(fd >= 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0666);
        assert_int_equal(server_new(w->event, fd, on_call, w, &server, NULL), 0);
        assert_int_equal(client_connect(path, &client, NULL), 0);
        assert_int_equal(client_send(client, "x.Hold", NULL, false, NULL, 0, NULL), 0);
        spin(w);
        assert_non_null(w->held);
        assert_int_equal(call_peer(w->held)->uid, getuid());
        assert_int_equal(call_peer(w->held)->pid, getpid());
        assert_int_equal(server_listen(path, &busy), -EBUSY);
        call_reply(w->held, NULL);
        assert_int_equal(client_receive(client, &reply, NULL), 0);
        json_decref(reply);
        client_free(client);
        server_free(server);
        assert_int_equal(client_connect(path, &client, &gone), -EHOSTDOWN); // stale: refused
        fd = server_listen(path, NULL);                                     // and replaced
        assert_true(fd >= 0);
        close(fd);
        unlink(path);
        rmdir(dir);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void) {
        static const struct CMUnitTest tests[] = {
                T(test_echo), T(test_error), T(test_stream), T(test_pipelined_in_order), T(test_fd), T(test_closed),
                T(test_answer_into_nothing), T(test_half_closed), T(test_oneway), T(test_slow_client_is_dropped),
                T(test_unread_answers_stop_reading), T(test_garbage), T(test_too_many_fds), T(test_frame_limits),
                T(test_cap_per_uid), T(test_service), T(test_access), T(test_listen_and_connect),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
