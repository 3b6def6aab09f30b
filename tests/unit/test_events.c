// SPDX-License-Identifier: GPL-2.0-or-later
// Events: the ring that remembers, and followers that come and go.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "core/events.h"
#include "wire/client.h"

typedef struct World {
        sd_event *event;
        Server *server;
        EventBus *bus;
} World;

// x.All follows everything, x.NAME one instance.
static void on_call(Call *call, void *userdata) {
        World *w = userdata;
        const char *name = call_method(call) + 2;

        event_follow(w->bus, call, strcmp(name, "All") == 0 ? NULL : name);
}

static int setup(void **state) {
        World *w = calloc(1, sizeof(*w));

        assert_int_equal(sd_event_new(&w->event), 0);
        assert_int_equal(server_new(w->event, -EBADF, on_call, w, &w->server, NULL), 0);
        w->bus = event_bus_new();
        assert_non_null(w->bus);
        *state = w;
        return 0;
}

static int teardown(void **state) {
        World *w = *state;

        server_free(w->server);
        event_bus_free(w->bus);
        sd_event_unref(w->event);
        free(w);
        return 0;
}

static void spin(World *w) {
        for (int i = 0; i < 10000 && sd_event_run(w->event, 0) > 0; i++)
                ;
}

static Client *follow(World *w, const char *method) {
        Peer peer = {.user = "tester", .access = ACCESS_ADMIN};
        Client *client = NULL;
        json_t *first = NULL;
        int sv[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
        assert_int_equal(server_add(w->server, sv[1], &peer, NULL), 0);
        assert_int_equal(client_from_fd(sv[0], &client, NULL), 0);
        assert_int_equal(client_send(client, method, NULL, true, NULL, 0, NULL), 0);
        spin(w);
        assert_int_equal(client_receive_ready(client, &first, NULL), 1); // what is remembered
        assert_true(json_is_array(json_object_get(first, "events")));
        json_decref(first);
        return client;
}

// The type of the next event, or "" when there is none.
static const char *next_type(Client *client, char ret[32]) {
        json_t *reply = NULL;

        ret[0] = 0;
        if (client_receive_ready(client, &reply, NULL) == 1)
                snprintf(ret, 32, "%s", json_string_value(json_object_get(json_object_get(reply, "event"), "type")));
        json_decref(reply);
        return ret;
}

static void test_shape(void **state) {
        World *w = *state;
        json_t *list, *event;

        event_publish(w->bus, "a", NULL, NULL);
        event_publish(w->bus, "b", "one", json_pack("{s:i, s:s}", "n", 3, "type", "forged"));
        list = event_recent(w->bus, NULL);
        assert_int_equal(json_array_size(list), 2);
        event = json_array_get(list, 0);
        assert_true(json_is_null(json_object_get(event, "name")));
        assert_true(json_is_string(json_object_get(event, "time")));
        event = json_array_get(list, 1);
        assert_string_equal(json_string_value(json_object_get(event, "name")), "one");
        assert_string_equal(json_string_value(json_object_get(event, "type")), "b"); // the detail replaces nothing
        assert_int_equal(json_integer_value(json_object_get(event, "n")), 3);
        json_decref(list);
}

static void test_ring(void **state) {
        World *w = *state;
        json_t *list;

        for (int i = 0; i < EVENT_RING + 10; i++)
                event_publish(w->bus, "n", i % 2 ? "odd" : "even", json_pack("{s:i}", "n", i));
        list = event_recent(w->bus, NULL);
        assert_int_equal(json_array_size(list), EVENT_RING);
        for (int i = 0; i < EVENT_RING; i++) // oldest first
                assert_int_equal(json_integer_value(json_object_get(json_array_get(list, (size_t) i), "n")), i + 10);
        json_decref(list);
        list = event_recent(w->bus, "odd");
        assert_int_equal(json_array_size(list), EVENT_RING / 2);
        json_decref(list);
        list = event_recent(w->bus, "nobody");
        assert_int_equal(json_array_size(list), 0);
        json_decref(list);
}

static void test_followers(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *all = follow(w, "x.All"), *one = follow(w, "x.one"), *gone = follow(w, "x.All");
        char type[32];

        gone = client_free(gone);
        event_publish(w->bus, "first", "one", NULL); // before the server knows that somebody left
        spin(w);
        event_publish(w->bus, "second", "two", NULL);
        event_publish(w->bus, "third", NULL, NULL);
        spin(w);
        assert_string_equal(next_type(all, type), "first");
        assert_string_equal(next_type(all, type), "second");
        assert_string_equal(next_type(all, type), "third");
        assert_string_equal(next_type(all, type), "");
        assert_string_equal(next_type(one, type), "first");
        assert_string_equal(next_type(one, type), "");
}

// A follower that does not read is cut off; the others do not notice.
static void test_slow_follower(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *slow = follow(w, "x.All"), *good = follow(w, "x.All");
        char *big = malloc(100000), type[32];
        unsigned n = 0;

        memset(big, 'x', 99999);
        big[99999] = 0;
        for (int i = 0; i < 100; i++) {
                event_publish(w->bus, "big", "one", json_pack("{s:s}", "text", big));
                spin(w);
                while (strcmp(next_type(good, type), "big") == 0) {
                        n++;
                        spin(w);
                }
        }
        assert_int_equal(n, 100);
        free(big);
}

static void test_bus_goes_first(void **state) {
        World *w = *state;
        _cleanup_(client_freep) Client *all = follow(w, "x.All");

        w->bus = event_bus_free(w->bus); // its calls stay the server's
        spin(w);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_shape, setup, teardown),     cmocka_unit_test_setup_teardown(test_ring, setup, teardown),
                cmocka_unit_test_setup_teardown(test_followers, setup, teardown), cmocka_unit_test_setup_teardown(test_slow_follower, setup, teardown),
                cmocka_unit_test_setup_teardown(test_bus_goes_first, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
