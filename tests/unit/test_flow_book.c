// SPDX-License-Identifier: GPL-2.0-or-later
// The book: whose packet, whose connection, by which rule of which policy, and when it is worth a line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <string.h>

#include "base/io.h"
#include "flow/book.h"
#include "flow/query.h"

#define MINUTE (60 * USEC_PER_SEC)

static usec_t today; // of logs that are too old by the clock nothing is left

typedef struct Desk {
        char folder[32];
        int dir;
        FlowBook *book;
        unsigned told;
        FlowRecord last;
} Desk;

static void denied(const FlowRecord *record, void *userdata) {
        Desk *desk = userdata;

        desk->told++;
        desk->last = *record;
        assert_true(flow_record_valid(record, sizeof(*record)));
}

static void apply(Desk *desk, const char *text) {
        _cleanup_(view_freep) View *view = NULL;
        _cleanup_error_ Error err = ERROR_NULL;

        if (view_parse(text, strlen(text), &view, &err) < 0)
                fail_msg("%s", error_message(&err, -EINVAL));
        assert_int_equal(flow_book_apply(desk->book, view, today), 0);
}

#define SLOT_HEAD "\"slot\":1,\"ifname\":\"hv0001\",\"instance\":\"a\",\"ipv4\":\"10.90.0.1\",\"ipv6\":\"fd00:90::1\",\"offline\":false," \
                  "\"dns\":{\"rate\":200,\"burst\":400,\"names\":100,\"types\":[]}"
#define RULES "\"policies\":[{\"name\":\"base\",\"first\":0,\"rules\":[{\"action\":\"deny\",\"to\":\"198.18.0.0/24\",\"protocol\":\"any\",\"origin\":0,\"id\":0}]}," \
              "{\"name\":\"web\",\"first\":1,\"rules\":[{\"action\":\"deny\",\"to\":\"8.8.8.8/32\",\"protocol\":\"any\",\"origin\":1,\"id\":0}," \
              "{\"action\":\"allow\",\"to\":\"9.9.9.0/24\",\"protocol\":\"tcp\",\"ports\":\"443\",\"origin\":2,\"id\":52}]}]"
#define VIEW_ALL "{\"generation\":1,\"whole\":true,\"upstreams\":[],\"slots\":[{" SLOT_HEAD "," RULES "}],\"gone\":[]}"

static int setup(void **state) {
        Desk *desk = calloc(1, sizeof(Desk));
        FlowBookConfig config = {.settings = FLOW_LOG_DEFAULTS, .denied = denied, .userdata = desk};

        (void) snprintf(desk->folder, sizeof(desk->folder), "test_flow_book.XXXXXX");
        if (!mkdtemp(desk->folder))
                return -1;
        desk->dir = config.logs = open(desk->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        *state = desk;
        if (flow_book_new(&config, &desk->book) < 0)
                return -1;
        apply(desk, VIEW_ALL);
        return 0;
}

static int teardown(void **state) {
        Desk *desk = *state;
        int r;

        (void) flow_book_free(desk->book);
        (void) close(desk->dir);
        r = io_remove_tree(AT_FDCWD, desk->folder);
        free(desk);
        return r;
}

// The newest line, or NULL.
static json_t *newest(Desk *desk, const char *instance) {
        const FlowFilter filter = {.kind = _FLOW_KIND_INVALID, .limit = 1};
        _cleanup_(flow_query_freep) FlowQuery *query = NULL;
        const char *line;
        size_t size;
        int r = flow_query_new(desk->dir, instance, &filter, &query);

        if (r == -ENOENT)
                return NULL;
        assert_int_equal(r, 0);
        r = flow_query_next(query, &line, &size);
        return r == 1 ? json_loadb(line, size, 0, NULL) : NULL;
}

static unsigned count_lines(Desk *desk) {
        const FlowFilter filter = {.kind = _FLOW_KIND_INVALID, .limit = UINT64_MAX};
        _cleanup_(flow_query_freep) FlowQuery *query = NULL;
        const char *line;
        unsigned n = 0;
        size_t size;
        int r;

        assert_int_equal(flow_query_new(desk->dir, "a", &filter, &query), 0);
        while ((r = flow_query_next(query, &line, &size)) != 0) {
                assert_true(r > 0 || r == -EAGAIN);
                n += r > 0;
        }
        return n;
}

static void check(Desk *desk, const char *key, const char *text) {
        json_t *object = newest(desk, "a");

        assert_non_null(object);
        if (text)
                assert_string_equal(json_string_value(json_object_get(object, key)) ?: "", text);
        else
                assert_null(json_object_get(object, key));
        json_decref(object);
}

static json_int_t number(Desk *desk, const char *key) {
        json_t *object = newest(desk, "a");
        json_int_t value = json_integer_value(json_object_get(object, key));

        json_decref(object);
        return value;
}

static NflogPacket packet(const char *from, const char *to, uint8_t protocol, uint16_t port) {
        NflogPacket p = {.slot = 1, .cause = "deny", .family = AF_INET, .protocol = protocol, .has_ports = true, .source_port = 40000, .destination_port = port,
                         .realtime_usec = (int64_t) today};

        assert_int_equal(inet_pton(AF_INET, from, p.source), 1);
        assert_int_equal(inet_pton(AF_INET, to, p.destination), 1);
        return p;
}

static void denials(void **state) {
        Desk *desk = *state;
        NflogPacket p = packet("10.90.0.1", "8.8.8.8", IPPROTO_UDP, 53);

        assert_true(flow_book_packet(desk->book, &p, today));
        check(desk, "verdict", "deny");
        check(desk, "kind", "kernel");
        check(desk, "address", "8.8.8.8");
        check(desk, "protocol", "udp");
        check(desk, "policy", "web");
        assert_int_equal(number(desk, "rule"), 1); // of that policy, not of the list
        check(desk, "reason", "denied by rule 1 of policy web: 8.8.8.8/32 any");
        assert_int_equal(desk->told, 1);
        assert_int_equal(desk->last.port, 53);
        p = packet("10.90.0.1", "1.1.1.1", IPPROTO_TCP, 443);
        assert_true(flow_book_packet(desk->book, &p, today));
        check(desk, "reason", "denied: no rule allows it");
        check(desk, "policy", NULL);
        check(desk, "rule", NULL);
        p = packet("10.90.0.1", "9.9.9.9", IPPROTO_TCP, 443); // the rules allow it: something else stopped it
        assert_true(flow_book_packet(desk->book, &p, today));
        check(desk, "reason", "not by a rule: the host, another instance, too fast, or no beginning of a connection");
        (void) snprintf(p.cause, sizeof(p.cause), "over-budget");
        assert_true(flow_book_packet(desk->book, &p, today));
        check(desk, "reason", "over budget");
        p = packet("1.1.1.1", "10.90.0.1", IPPROTO_TCP, 40000); // to the instance
        assert_true(flow_book_packet(desk->book, &p, today));
        check(desk, "address", "1.1.1.1");
        p.slot = 2;
        assert_false(flow_book_packet(desk->book, &p, today));
        assert_int_equal(count_lines(desk), 5);
}

static void events_limited(void **state) {
        Desk *desk = *state;
        NflogPacket p = packet("10.90.0.1", "8.8.8.8", IPPROTO_UDP, 53);

        for (int i = 0; i < 1000; i++)
                assert_true(flow_book_packet(desk->book, &p, today));
        assert_int_equal(count_lines(desk), 1000);
        assert_in_range(desk->told, 4 * FLOW_EVENTS_PER_SEC, 4 * FLOW_EVENTS_PER_SEC + 50); // a slow machine gets some back meanwhile
}

static ConntrackFlow flow(bool ended, usec_t start) {
        ConntrackFlow f = {.ended = ended, .slot = 1, .rule_id = 52, .family = AF_INET, .protocol = IPPROTO_TCP, .source_port = 40000,
                           .destination_port = 443, .counted = true, .sent = 100, .received = 200, .start_usec = (int64_t) start};

        (void) inet_pton(AF_INET, "10.90.0.1", f.source);
        (void) inet_pton(AF_INET, "9.9.9.9", f.destination);
        return f;
}

static void connections(void **state) {
        Desk *desk = *state;
        ConntrackFlow f = flow(true, today - MINUTE);

        f.stop_usec = (int64_t) today;
        assert_true(flow_book_connection(desk->book, &f, 0, today + MINUTE));
        check(desk, "verdict", "allow");
        check(desk, "address", "9.9.9.9");
        check(desk, "policy", "web");
        assert_int_equal(number(desk, "rule"), 2);
        assert_int_equal(number(desk, "sent"), 100);
        assert_int_equal(number(desk, "received"), 200);
        assert_true(number(desk, "duration") == (json_int_t) MINUTE);
        check(desk, "open", NULL);
        check(desk, "reason", NULL);
        f.rule_id = 51; // of an earlier policy
        assert_true(flow_book_connection(desk->book, &f, 0, today));
        check(desk, "reason", "by a rule that is not there any more");
        f = flow(true, 0); // began before times and bytes were kept
        f.counted = false;
        f.sent = f.received = 0;
        assert_true(flow_book_connection(desk->book, &f, 0, today));
        check(desk, "reason", "its bytes were not counted");
        check(desk, "duration", NULL);
        f = flow(true, today - MINUTE);
        memcpy(f.source, f.destination, 4); // from outside
        (void) inet_pton(AF_INET, "10.90.0.1", f.destination);
        assert_true(flow_book_connection(desk->book, &f, 0, today));
        assert_int_equal(number(desk, "sent"), 200);
        check(desk, "address", "9.9.9.9");
        assert_int_equal(desk->told, 0);
}

// Dumps once a minute, not quite on time: a connection that lives for three hours is written down at 1, 2, 4, 8, 16, 32 minutes and each hour.
static void long_connections(void **state) {
        Desk *desk = *state;
        const usec_t start = today + 7 * USEC_PER_SEC;
        usec_t previous = today;

        for (int i = 1; i <= 185; i++) {
                usec_t now = today + (usec_t) i * MINUTE + (usec_t) (i * 7919 % 3000) * USEC_PER_MSEC;
                ConntrackFlow f = flow(false, start);
                assert_true(flow_book_connection(desk->book, &f, previous, now));
                previous = now;
        }
        assert_int_equal(count_lines(desk), 9);
        json_t *object = newest(desk, "a");
        assert_true(json_is_true(json_object_get(object, "open")));
        json_decref(object);
}

// Of a sandbox the kernel says the profile, or its instance whose rules decided; the address says which. All stands in the instance's log, with
// the sandbox's id.
static void sandboxes(void **state) {
        Desk *desk = *state;
        NflogPacket p = packet("10.90.16.1", "9.9.9.9", IPPROTO_TCP, 80);
        ConntrackFlow flow = {.slot = 0x800, .rule_id = 7, .family = AF_INET, .protocol = IPPROTO_TCP, .destination_port = 443, .ended = true, .counted = true, .sent = 5, .received = 6};

        apply(desk, "{\"generation\":2,\"whole\":false,\"upstreams\":[],\"slots\":["
                    "{\"slot\":2048,\"within\":1,\"instance\":\"a\",\"policies\":[{\"name\":\"box\",\"first\":0,\"rules\":[{\"action\":\"allow\",\"to\":\"9.9.0.0/16\",\"protocol\":\"tcp\",\"origin\":0,\"id\":7}]}]},"
                    "{\"slot\":4097,\"profile\":2048,\"sandbox\":\"sb1\",\"ifname\":\"hvs0800x1001\",\"instance\":\"a\",\"ipv4\":\"10.90.16.1\",\"ipv6\":\"fd00:90::1001\",\"offline\":false,"
                    "\"dns\":{\"rate\":1,\"burst\":1,\"names\":1,\"types\":[]}},"
                    "{\"slot\":4098,\"profile\":2048,\"sandbox\":\"sb2\",\"ifname\":\"hvs0800x1002\",\"instance\":\"a\",\"ipv4\":\"10.90.16.2\",\"ipv6\":\"fd00:90::1002\",\"offline\":false,"
                    "\"dns\":{\"rate\":1,\"burst\":1,\"names\":1,\"types\":[]}}],\"gone\":[]}");
        p.slot = 0x800;
        assert_true(flow_book_packet(desk->book, &p, today));
        check(desk, "sandbox", "sb1");
        check(desk, "reason", "denied: no rule of its instance allows it");
        assert_int_equal(desk->last.slot, 0x1001);
        p = packet("10.90.16.2", "8.8.8.8", IPPROTO_TCP, 443); // by the instance's chain
        assert_true(flow_book_packet(desk->book, &p, today));
        check(desk, "sandbox", "sb2");
        check(desk, "reason", "denied: no rule allows it");
        p = packet("10.90.0.1", "8.8.8.8", IPPROTO_TCP, 443);
        assert_true(flow_book_packet(desk->book, &p, today));
        check(desk, "sandbox", NULL);
        assert_int_equal(inet_pton(AF_INET, "10.90.16.2", flow.source), 1);
        assert_int_equal(inet_pton(AF_INET, "9.9.9.9", flow.destination), 1);
        assert_true(flow_book_connection(desk->book, &flow, 0, today));
        check(desk, "sandbox", "sb2");
        check(desk, "policy", "box");
        check(desk, "address", "9.9.9.9");
        apply(desk, "{\"generation\":3,\"whole\":false,\"upstreams\":[],\"slots\":[],\"gone\":[4098]}");
        flow_book_tidy(desk->book, today + 1);
        assert_true(flow_book_connection(desk->book, &flow, 0, today)); // late news
        check(desk, "sandbox", "sb2");
}

static void slots(void **state) {
        Desk *desk = *state;
        NflogPacket p = packet("10.90.0.1", "8.8.8.8", IPPROTO_UDP, 53);
        json_t *object;

        apply(desk, "{\"generation\":2,\"whole\":false,\"upstreams\":[],\"slots\":[],\"gone\":[1]}");
        assert_true(flow_book_packet(desk->book, &p, today)); // late news
        flow_book_tidy(desk->book, today + FLOW_GONE_AFTER / 2);
        assert_true(flow_book_packet(desk->book, &p, today));
        flow_book_tidy(desk->book, today + 2 * FLOW_GONE_AFTER);
        assert_false(flow_book_packet(desk->book, &p, today));
        apply(desk, "{\"generation\":3,\"whole\":true,\"upstreams\":[],\"slots\":[{\"slot\":1,\"ifname\":\"hv0001\",\"instance\":\"b\",\"ipv4\":\"10.90.0.1\","
                    "\"ipv6\":\"fd00:90::1\",\"offline\":false,\"dns\":{\"rate\":200,\"burst\":400,\"names\":100,\"types\":[]},\"policies\":[]}],\"gone\":[]}");
        assert_true(flow_book_packet(desk->book, &p, today));
        object = newest(desk, "b");
        assert_string_equal(json_string_value(json_object_get(object, "reason")), "denied: no rule allows it");
        json_decref(object);
        object = newest(desk, "a");
        assert_non_null(object); // the evidence of what is gone stays
        json_decref(object);
        flow_book_lost(desk->book, 3, "a test", today);
        object = newest(desk, "b");
        assert_string_equal(json_string_value(json_object_get(object, "kind")), "lost");
        assert_int_equal(json_integer_value(json_object_get(object, "count")), 3);
        json_decref(object);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(denials, setup, teardown),          cmocka_unit_test_setup_teardown(events_limited, setup, teardown),
                cmocka_unit_test_setup_teardown(connections, setup, teardown),      cmocka_unit_test_setup_teardown(long_connections, setup, teardown),
                cmocka_unit_test_setup_teardown(sandboxes, setup, teardown),
                cmocka_unit_test_setup_teardown(slots, setup, teardown),
        };

        today = clock_realtime();
        return cmocka_run_group_tests(tests, NULL, NULL);
}
