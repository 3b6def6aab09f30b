// SPDX-License-Identifier: GPL-2.0-or-later
// Relay: what goes through between two sockets, in which order, and what does not.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "proxy/relay.h"

typedef struct World {
        int client, server; // the far ends
        int near[2];
        Relay relay;
        Pipes pipes;
} World;

static void world_begin(World *w) {
        int a[2], b[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, a), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, b), 0);
        *w = (World) {.client = a[0], .server = b[0], .near = {a[1], b[1]}, .relay = RELAY_NULL};
        relay_begin(&w->relay, a[1], b[1]);
}

static void world_end(World *w) {
        relay_done(&w->relay, &w->pipes);
        pipes_done(&w->pipes);
        (void) close_fd(w->client);
        (void) close_fd(w->server);
        (void) close_fd(w->near[0]);
        (void) close_fd(w->near[1]);
}

static int pump(World *w) {
        size_t moved;

        return relay_pump(&w->relay, &w->pipes, 1 << 20, &moved);
}

static void say(int fd, const char *text) {
        assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void hears(int fd, const char *text) {
        char data[256];
        ssize_t n = recv(fd, data, sizeof(data) - 1, 0);

        data[n > 0 ? n : 0] = 0;
        assert_string_equal(data, text);
}

static void test_both_ways(void **state) {
        World w;

        world_begin(&w);
        assert_int_equal(relay_flow_put(&w.relay.up, "first ", 6), 0);
        assert_int_equal(relay_flow_put(&w.relay.up, "second ", 7), 0);
        say(w.client, "third");
        say(w.server, "answer");
        assert_int_equal(pump(&w), RELAY_WAITS);
        hears(w.server, "first second third");
        hears(w.client, "answer");
        assert_int_equal(w.relay.up.bytes, 18);
        assert_int_equal(w.relay.down.bytes, 6);
        // One half closes, the other goes on.
        assert_int_equal(shutdown(w.client, SHUT_WR), 0);
        assert_int_equal(pump(&w), RELAY_WAITS);
        assert_true(relay_is_half_closed(&w.relay));
        hears(w.server, "");
        say(w.server, "late");
        assert_int_equal(pump(&w), RELAY_WAITS);
        hears(w.client, "late");
        assert_int_equal(shutdown(w.server, SHUT_WR), 0);
        assert_int_equal(pump(&w), RELAY_OVER);
        assert_int_equal(w.pipes.n, 1); // nobody holds one any more
        world_end(&w);
}

static void test_allowance(void **state) {
        static char data[100000];
        World w;
        size_t moved = 0, got = 0;
        ssize_t n;
        int r = RELAY_HAS_MORE;

        world_begin(&w);
        n = send(w.client, data, sizeof(data), MSG_NOSIGNAL);
        assert_true(n > 50000);
        for (int i = 0; i < 1000 && r == RELAY_HAS_MORE; i++) {
                r = relay_pump(&w.relay, &w.pipes, 4096, &moved);
                assert_true(r >= 0 && moved <= 2 * 4096);
                got += moved;
        }
        assert_int_equal(got, n);
        world_end(&w);
}

static void test_body_of_a_length(void **state) {
        World w;

        world_begin(&w);
        w.relay.up.gate = GATE_BODY;
        w.relay.up.body = http_body_length(8);
        assert_int_equal(relay_put_body(&w.relay, "abc", 3), 0);
        say(w.client, "defghGET / HTTP/1.1");
        assert_int_equal(pump(&w), RELAY_WAITS);
        hears(w.server, "abcdefgh");
        assert_int_equal(pump(&w), RELAY_WAITS);
        assert_int_equal(recv(w.server, &(char) {0}, 1, 0), -1);
        say(w.server, "answer");
        assert_int_equal(shutdown(w.server, SHUT_WR), 0);
        assert_int_equal(pump(&w), RELAY_OVER); // the answer of the one request is all there is
        hears(w.client, "answer");
        world_end(&w);
}

static void test_body_in_chunks(void **state) {
        World w;

        world_begin(&w);
        w.relay.up.gate = GATE_BODY;
        w.relay.up.body = http_body_chunked();
        assert_int_equal(relay_put_body(&w.relay, "3\r\nab", 5), 0);
        say(w.client, "c\r\n0\r\n\r\nGET / HTTP/1.1");
        assert_int_equal(pump(&w), RELAY_WAITS);
        hears(w.server, "3\r\nabc\r\n0\r\n\r\n");
        world_end(&w);
        world_begin(&w);
        w.relay.up.gate = GATE_BODY;
        w.relay.up.body = http_body_chunked();
        say(w.client, "3;x\r\n");
        assert_int_equal(pump(&w), -EBADMSG);
        world_end(&w);
}

static void test_upgrade(void **state) {
        static const struct { const char *answer; bool through; } cases[] = {
                {"HTTP/1.1 101 Switching Protocols\r\n\r\n", true}, {"HTTP/1.1 200 OK\r\n\r\n", false}, {"HTTP/1.0 101 x\r\n\r\n", false}, {"HTTP/1.1 100 Continue\r\n\r\n", false}};

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                World w;
                world_begin(&w);
                w.relay.up.gate = GATE_UPGRADE;
                say(w.client, "frame");
                assert_int_equal(pump(&w), RELAY_WAITS);
                assert_int_equal(recv(w.server, &(char) {0}, 1, 0), -1);
                say(w.server, "HTTP/1");
                assert_int_equal(pump(&w), RELAY_WAITS);
                assert_int_equal(recv(w.client, &(char) {0}, 1, 0), -1);
                say(w.server, cases[i].answer + 6);
                assert_int_equal(pump(&w), RELAY_WAITS);
                hears(w.client, cases[i].answer);
                if (cases[i].through)
                        hears(w.server, "frame");
                else
                        assert_int_equal(recv(w.server, &(char) {0}, 1, 0), -1);
                world_end(&w);
        }
}

static void test_end_of_one_side(void **state) {
        World w;

        world_begin(&w);
        w.server = close_fd(w.server);
        say(w.client, "x");
        assert_true(pump(&w) < 0);
        world_end(&w);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_both_ways),
                cmocka_unit_test(test_allowance),
                cmocka_unit_test(test_body_of_a_length),
                cmocka_unit_test(test_body_in_chunks),
                cmocka_unit_test(test_upgrade),
                cmocka_unit_test(test_end_of_one_side),
        };
        (void) signal(SIGPIPE, SIG_IGN); // as the program does: splice(2) knows no MSG_NOSIGNAL
        return cmocka_run_group_tests(tests, NULL, NULL);
}
