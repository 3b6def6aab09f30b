// SPDX-License-Identifier: GPL-2.0-or-later
// Border: names, frames at every split, links that break, records of a liar, questions and answers, and what a confined process cannot do.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "border/confine.h"
#include "border/resolve.h"
#include "border/server.h"

#define _cleanup_event_ _cleanup_(sd_event_unrefp)

static void test_names(void **state) {
        static const char *const good[] = {"a", "example.org", "_dmarc.example.org", "xn--bcher-kva.example", "a-b.c1", "1.example", "127.0.0.1.example"};
        static const char *const bad[] = {"", ".", "a.", ".a", "a..b", "A.example", "-a.example", "a-.example", "a b", "192.0.2.1", "1", "a/b", "a\n", "\xc3\xa9.example"};
        char longest[260];

        for (size_t i = 0; i < ELEMENTS(good); i++)
                assert_true(border_name_valid(good[i]));
        for (size_t i = 0; i < ELEMENTS(bad); i++)
                assert_false(border_name_valid(bad[i]));
        memset(longest, 'a', sizeof(longest));
        longest[64] = 0;
        assert_false(border_name_valid(longest));
        longest[63] = 0;
        assert_true(border_name_valid(longest));
        longest[63] = longest[127] = longest[191] = '.';
        longest[64] = longest[192] = 'a';
        longest[253] = 0;
        assert_true(border_name_valid(longest));
        longest[253] = 'a';
        longest[254] = 0;
        assert_false(border_name_valid(longest));
}

static FlowRecord some_record(void) {
        FlowRecord record;

        flow_record_init(&record, FLOW_TLS, FLOW_DENY);
        record.slot = 3;
        record.realtime_usec = 1;
        record.family = 4;
        record.address[0] = 192;
        flow_record_set_name(&record, "example.org", strlen("example.org"));
        flow_record_set_policy(&record, "base");
        flow_record_set_reason(&record, "rule %d of %s", 1, "base");
        return record;
}

static BorderInsert some_insert(void) {
        return (BorderInsert) {.slot = 1, .rule_id = 2, .family = 4, .address = {192, 0, 2, 1}, .ttl_s = 60, .ports = 1};
}

static size_t put(unsigned char *to, uint32_t type, uint64_t cookie, const void *payload, size_t length) {
        ControlHeader h = {.type = type, .length = (uint32_t) length, .cookie = cookie};

        memcpy(to, &h, sizeof(h));
        memcpy(to + sizeof(h), payload, length);
        return sizeof(h) + length;
}

static void feed(ControlReader *reader, const void *data, size_t size) {
        void *place;

        assert_int_equal(control_reader_space(reader, size, &place), 0);
        memcpy(place, data, size);
        control_reader_filled(reader, size);
}

static void test_split_at_every_byte(void **state) {
        unsigned char bytes[1024];
        BorderHello hello = {1};
        BorderInsert insert = some_insert();
        FlowRecord record = some_record();
        size_t size = put(bytes, BORDER_HELLO, 0, &hello, sizeof(hello));

        size += put(bytes + size, BORDER_INSERT, 7, &insert, sizeof(insert));
        size += put(bytes + size, BORDER_EVENT, 8, &record, sizeof(record));
        for (size_t step = 1; step <= size; step += step < 40 ? 1 : 37) {
                ControlReader reader = CONTROL_READER_INIT(CONTROL_HOSTD);
                static const uint32_t want[] = {BORDER_HELLO, BORDER_INSERT, BORDER_EVENT};
                size_t n = 0;
                for (size_t i = 0; i < size; i += step) {
                        ControlFrame frame;
                        feed(&reader, bytes + i, MIN2(step, size - i));
                        while (control_reader_next(&reader, &frame) == 1) {
                                assert_int_equal(frame.header.type, want[n]);
                                if (n == 2)
                                        assert_memory_equal(frame.payload, &record, sizeof(record));
                                n++;
                        }
                }
                assert_int_equal(n, 3);
                assert_int_equal(control_reader_missing(&reader), sizeof(ControlHeader));
                control_reader_done(&reader);
        }
}

static int verdict(ControlSide side, uint32_t type, const void *payload, size_t length) {
        unsigned char bytes[1024];
        ControlReader reader = CONTROL_READER_INIT(side);
        ControlFrame frame;
        int r;

        feed(&reader, bytes, put(bytes, type, 1, payload, length));
        r = control_reader_next(&reader, &frame);
        control_reader_done(&reader);
        return r;
}

static void test_rules_of_frames(void **state) {
        BorderInsert insert = some_insert();
        BorderResult result = {-ENOSPC};
        ControlReader reader = CONTROL_READER_INIT(CONTROL_HELPER);
        ControlHeader huge = {.type = BORDER_VIEWS, .length = CONTROL_TEXT_MAX + 1};
        ControlFrame frame;

        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_INSERT, &insert, sizeof(insert)), 1);
        assert_int_equal(verdict(CONTROL_HELPER, BORDER_INSERT, &insert, sizeof(insert)), -EPROTO);
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_INSERT, &insert, sizeof(insert) - 1), -EPROTO);
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_VIEWS, "{}", 2), -EPROTO); // hostd reads no text
        assert_int_equal(verdict(CONTROL_HELPER, BORDER_VIEWS, "{}", 2), 1);
        assert_int_equal(verdict(CONTROL_HELPER, BORDER_VIEWS, "{\0}", 3), -EPROTO);
        assert_int_equal(verdict(CONTROL_HOSTD, 99, "", 0), -EPROTO);
        insert.ports = 0;
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_INSERT, &insert, sizeof(insert)), -EPROTO);
        insert.ports = 1;
        insert.address[4] = 1; // behind a v4 address
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_INSERT, &insert, sizeof(insert)), -EPROTO);
        insert.family = 6;
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_INSERT, &insert, sizeof(insert)), 1);
        insert.slot = 0;
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_INSERT, &insert, sizeof(insert)), -EPROTO);
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_APPLIED, &result, sizeof(result)), 1);
        result.error = 1;
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_APPLIED, &result, sizeof(result)), -EPROTO);
        // A length is refused before a byte of what it promises.
        feed(&reader, &huge, sizeof(huge));
        assert_int_equal(control_reader_next(&reader, &frame), -EPROTO);
        control_reader_done(&reader);
}

static void test_records_of_a_liar(void **state) {
        FlowRecord good = some_record(), r;
        unsigned char shifted[sizeof(r) + 1];

        memcpy(shifted + 1, &good, sizeof(good));
        assert_true(flow_record_valid(shifted + 1, sizeof(good)));
        assert_false(flow_record_valid(&good, sizeof(good) - 1));
#define SPOILED(change)                                       \
        do {                                                  \
                r = good;                                     \
                change;                                       \
                assert_false(flow_record_valid(&r, sizeof(r))); \
        } while (false)
        SPOILED(r.version = 2);
        SPOILED(r.size--);
        SPOILED(r.slot = 0);
        SPOILED(r.kind = _FLOW_KIND_MAX);
        SPOILED(r.verdict = _FLOW_VERDICT_MAX);
        SPOILED(r.flags = FLOW_FLAGS + 1);
        SPOILED(r.family = 5);
        SPOILED(r.address[5] = 1);
        SPOILED(r.realtime_usec = 0);
        SPOILED(memset(r.name, 'a', sizeof(r.name)));
        SPOILED(r.name[sizeof(r.name) - 1] = 'x');
        SPOILED(r.name[0] = '\x1b');
        SPOILED(r.name[0] = '"');
        SPOILED(r.name[0] = '$');
        SPOILED(r.name[0] = '`');
        SPOILED(r.name[0] = ';');
        SPOILED(r.name[0] = ' ');
        SPOILED(r.policy[0] = '\n');
        SPOILED(r.reason[0] = '\n');
        SPOILED(r.reason[0] = (char) 0x9b);
        SPOILED(r.reason[sizeof(r.reason) - 2] = 'a'); // behind its end
}

static void test_writers_keep_the_rules(void **state) {
        FlowRecord r = some_record();
        char name[400];

        for (size_t i = 0; i < sizeof(name); i++)
                name[i] = (char) i;
        flow_record_set_name(&r, name, sizeof(name));
        flow_record_set_policy(&r, name + 1);
        flow_record_set_reason(&r, "%s%s", "\n\xc3\xa9", name + 32);
        assert_true(flow_record_valid(&r, sizeof(r)));
        assert_int_equal(strlen(r.name), sizeof(r.name) - 1);
        flow_record_set_name(&r, "$(id)._x-1.Example", 18);
        assert_string_equal(r.name, "??id?._x-1.Example");
        for (FlowKind i = 0; i < _FLOW_KIND_MAX; i++)
                assert_int_equal(flow_kind_from_string(flow_kind_to_string(i)), i);
        for (FlowVerdict i = 0; i < _FLOW_VERDICT_MAX; i++)
                assert_int_equal(flow_verdict_from_string(flow_verdict_to_string(i)), i);
        assert_int_equal(flow_kind_from_string("x"), _FLOW_KIND_INVALID);
        assert_null(flow_kind_to_string(_FLOW_KIND_MAX));
}

typedef struct Place {
        char dir[32], path[64];
} Place;

static void place_new(Place *place) {
        strcpy(place->dir, "border-test-XXXXXX");
        assert_non_null(mkdtemp(place->dir));
        (void) snprintf(place->path, sizeof(place->path), "%s/socket", place->dir);
}

static void place_done(Place *place) {
        (void) unlink(place->path);
        (void) rmdir(place->dir);
}
#define _cleanup_place_ _cleanup_(place_done)

static int listen_on(const Place *place, int type) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        memcpy(address.sun_path, place->path, sizeof(place->path));
        (void) unlink(place->path);
        assert_int_equal(bind(fd, (const struct sockaddr *) &address, sizeof(address)), 0);
        if (type != SOCK_DGRAM)
                assert_int_equal(listen(fd, 8), 0);
        return fd;
}

static int connect_to(const Place *place, int type) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        memcpy(address.sun_path, place->path, sizeof(place->path));
        assert_int_equal(connect(fd, (const struct sockaddr *) &address, sizeof(address)), 0);
        return fd;
}

static void test_sender_never_waits(void **state) {
        _cleanup_(flow_sender_freep) FlowSender *sender = NULL;
        _cleanup_place_ Place place;
        const uint8_t missed[] = {255, 45, 0};
        FlowRecord record = some_record(), got;
        unsigned sent = 0;
        int fd;

        place_new(&place);
        assert_int_equal(flow_sender_new(place.path, &sender), 0);
        flow_sender_send(sender, &record); // nobody is there
        assert_int_equal(flow_sender_dropped(sender), 1);
        sender = flow_sender_free(sender);
        fd = listen_on(&place, SOCK_DGRAM);
        assert_int_equal(flow_sender_new(place.path, &sender), 0);
        while (flow_sender_dropped(sender) < 300 && sent < 1000000) // nobody reads
                flow_sender_send(sender, &record), sent++;
        assert_int_equal(flow_sender_dropped(sender), 300);
        for (sent -= 300; sent > 0; sent--) {
                assert_int_equal(recv(fd, &got, sizeof(got), 0), sizeof(got));
                assert_memory_equal(&got, &record, sizeof(got));
        }
        for (size_t i = 0; i < ELEMENTS(missed); i++) { // there is room again
                flow_sender_send(sender, &record);
                assert_int_equal(recv(fd, &got, sizeof(got), 0), sizeof(got));
                assert_true(flow_record_valid(&got, sizeof(got)));
                assert_int_equal(got.missed, missed[i]);
        }
        assert_int_equal(flow_sender_dropped(sender), 300);
        (void) close(fd);
        flow_sender_send(sender, &record);
        assert_int_equal(flow_sender_dropped(sender), 301);
}

// ---- links -------------------------------------------------------------------------------------------------------------------

typedef struct Seen {
        unsigned frames, gone;
        uint32_t type;
        uint64_t cookie;
        size_t length;
        int32_t result;
        int r;
} Seen;

static void see(Seen *seen, const ControlFrame *frame) {
        seen->frames++;
        seen->type = frame->header.type;
        seen->cookie = frame->header.cookie;
        seen->length = frame->header.length;
        if (frame->header.length == sizeof(BorderResult))
                memcpy(&seen->result, frame->payload, sizeof(BorderResult));
}

static void link_frame(ControlLink *link, const ControlFrame *frame, void *userdata) {
        see(userdata, frame);
}

static void link_is_gone(ControlLink *link, int r, void *userdata) {
        Seen *seen = userdata;

        seen->gone++;
        seen->r = r;
}

static void server_frame(ControlServer *server, const ControlFrame *frame, void *userdata) {
        see(userdata, frame);
        if (frame->header.type == BORDER_VIEWS)
                assert_int_equal(control_server_applied(server, frame->header.cookie, -EINVAL), 0);
}

static void server_is_gone(ControlServer *server, void *userdata) {
        ((Seen *) userdata)->gone++;
}

static void run(sd_event *event) {
        for (int i = 0; i < 2000 && sd_event_run(event, 0) > 0; i++)
                ;
}

static ControlLink *link_to(sd_event *event, const Place *place, Seen *seen) {
        ControlLinkConfig config = {.event = event, .fd = connect_to(place, SOCK_STREAM), .side = CONTROL_HOSTD, .frame = link_frame,
                                    .gone = link_is_gone, .userdata = seen};
        ControlLink *link;

        assert_int_equal(control_link_new(&config, &link), 0);
        return link;
}

static void test_one_hostd(void **state) {
        _cleanup_event_ sd_event *event = NULL;
        _cleanup_place_ Place place;
        Seen at_server = {0}, at_first = {0}, at_second = {0};
        _cleanup_(control_server_freep) ControlServer *server = NULL;
        _cleanup_(control_link_freep) ControlLink *first = NULL, *second = NULL;
        _cleanup_free_ char *big = calloc(1, CONTROL_TEXT_MAX);

        place_new(&place);
        assert_int_equal(sd_event_new(&event), 0);
        ControlServerConfig config = {.event = event, .fd = listen_on(&place, SOCK_STREAM), .frame = server_frame, .gone = server_is_gone, .userdata = &at_server};
        assert_int_equal(control_server_new(&config, &server), 0);
        assert_int_equal(control_server_applied(server, 1, 0), -ENOTCONN);
        first = link_to(event, &place, &at_first);
        run(event);
        assert_int_equal(at_first.type, BORDER_HELLO);
        memset(big, ' ', CONTROL_TEXT_MAX); // more than any socket holds
        assert_int_equal(control_link_send(first, BORDER_VIEWS, 5, big, CONTROL_TEXT_MAX), 0);
        run(event);
        assert_int_equal(at_server.length, CONTROL_TEXT_MAX);
        assert_int_equal(at_first.type, BORDER_APPLIED);
        assert_int_equal(at_first.cookie, 5);
        assert_int_equal(at_first.result, -EINVAL);
        assert_int_equal(control_link_send(first, BORDER_HELLO, 5, big, 4), -EMSGSIZE); // not hostd's to say
        second = link_to(event, &place, &at_second);
        run(event);
        assert_int_equal(at_first.gone, 1);
        assert_int_equal(at_first.r, -ECONNRESET);
        assert_int_equal(at_server.gone, 1);
        assert_int_equal(control_link_send(first, BORDER_VIEWS, 6, "{}", 2), -ENOTCONN);
        assert_int_equal(control_link_send(second, BORDER_VIEWS, 6, "{}", 2), 0);
        run(event);
        assert_int_equal(at_second.cookie, 6);
        second = control_link_free(second);
        run(event);
        assert_int_equal(at_server.gone, 2);
        assert_false(control_server_is_connected(server));
}

static void test_links_break(void **state) {
        _cleanup_event_ sd_event *event = NULL;
        _cleanup_(control_link_freep) ControlLink *link = NULL;
        _cleanup_free_ char *big = malloc(CONTROL_TEXT_MAX);
        Seen seen = {0};
        int fds[2], r = 0;
        unsigned sent = 0;

        assert_int_equal(sd_event_new(&event), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        ControlLinkConfig config = {.event = event, .fd = fds[0], .side = CONTROL_HOSTD, .frame = link_frame, .gone = link_is_gone, .userdata = &seen};
        assert_int_equal(control_link_new(&config, &link), 0);
        memset(big, ' ', CONTROL_TEXT_MAX);
        while (sent < 10 && (r = control_link_send(link, BORDER_VIEWS, 1, big, CONTROL_TEXT_MAX)) == 0)
                sent++; // nobody reads
        assert_int_equal(r, -ENOBUFS);
        assert_in_range(sent, 1, CONTROL_QUEUE_MAX / CONTROL_TEXT_MAX);
        assert_int_equal(seen.gone, 0); // not from within
        run(event);
        assert_int_equal(seen.gone, 1);
        assert_int_equal(seen.r, -ENOBUFS);
        link = control_link_free(link);
        (void) close(fds[1]);

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        config.fd = fds[0];
        assert_int_equal(control_link_new(&config, &link), 0);
        assert_int_equal(send(fds[1], "GET / HTTP/1.1\r\n", 16, 0), 16);
        run(event);
        assert_int_equal(seen.gone, 2);
        assert_int_equal(seen.r, -EPROTO);
        assert_int_equal(seen.frames, 0);
        (void) close(fds[1]);
}

// Whoever says much at once does not have the loop for himself, and what he said is not lost.
static void test_many_frames_have_turns(void **state) {
        _cleanup_event_ sd_event *event = NULL;
        _cleanup_(control_link_freep) ControlLink *link = NULL;
        static unsigned char bytes[1000 * (sizeof(ControlHeader) + sizeof(BorderResult))];
        BorderResult result = {0};
        Seen seen = {0};
        size_t size = 0;
        unsigned most = 0;
        int fds[2];

        assert_int_equal(sd_event_new(&event), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        ControlLinkConfig config = {.event = event, .fd = fds[0], .side = CONTROL_HOSTD, .frame = link_frame, .gone = link_is_gone, .userdata = &seen};
        assert_int_equal(control_link_new(&config, &link), 0);
        for (unsigned i = 0; i < 1000; i++)
                size += put(bytes + size, BORDER_APPLIED, i + 1, &result, sizeof(result));
        assert_int_equal(send(fds[1], bytes, size, 0), size);
        (void) close(fds[1]);
        for (int i = 0; i < 2000 && seen.gone == 0; i++) {
                unsigned before = seen.frames;
                assert_return_code(sd_event_run(event, 0), 0);
                most = MAX2(most, seen.frames - before);
        }
        assert_int_equal(seen.frames, 1000);
        assert_int_equal(seen.cookie, 1000);
        assert_in_range(most, 1, 64);
        assert_int_equal(seen.gone, 1);
        assert_int_equal(seen.r, -ECONNRESET);
}

static void query_frame(ControlServer *server, const ControlFrame *frame, void *userdata) {
        Seen *seen = userdata;
        int fd = frame->header.cookie == 1 ? -ENOENT : control_server_take_fd(server); // the first is not taken

        see(seen, frame);
        if (fd >= 0) {
                assert_int_equal(write(fd, &frame->header.cookie, 1), 1);
                (void) close(fd);
        }
        (void) control_server_answered(server, frame->header.cookie, fd < 0 ? fd : 0);
}

static int byte_of(int fd) {
        unsigned char byte;

        return read(fd, &byte, 1) == 1 ? byte : -1; // -1: closed
}

static void test_queries_bring_a_pipe(void **state) {
        _cleanup_event_ sd_event *event = NULL;
        _cleanup_place_ Place place;
        Seen at_server = {0}, at_link = {0};
        _cleanup_(control_server_freep) ControlServer *server = NULL;
        _cleanup_(control_link_freep) ControlLink *link = NULL;
        BorderQuery query = {.limit = 10, .kind = BORDER_QUERY_ANY, .instance = "a"};
        int pipes[3][2];

        place_new(&place);
        assert_int_equal(sd_event_new(&event), 0);
        ControlServerConfig config = {.event = event, .fd = listen_on(&place, SOCK_STREAM), .frame = query_frame, .userdata = &at_server};
        assert_int_equal(control_server_new(&config, &server), 0);
        link = link_to(event, &place, &at_link);
        run(event);
        for (unsigned i = 0; i < 3; i++) { // all at once: each frame has its own
                assert_int_equal(pipe2(pipes[i], O_CLOEXEC | O_NONBLOCK), 0);
                assert_int_equal(control_link_send_fd(link, BORDER_QUERY, i + 1, &query, sizeof(query), pipes[i][1]), 0);
                (void) close(pipes[i][1]);
        }
        run(event);
        assert_int_equal(at_server.frames, 3);
        assert_int_equal(byte_of(pipes[0][0]), -1);
        assert_int_equal(byte_of(pipes[1][0]), 2);
        assert_int_equal(byte_of(pipes[2][0]), 3);
        assert_int_equal(byte_of(pipes[2][0]), -1); // nobody holds the other end
        assert_int_equal(at_link.type, BORDER_ANSWERED);
        assert_int_equal(at_link.result, 0);
        for (unsigned i = 0; i < 3; i++)
                (void) close(pipes[i][0]);
        query.instance[20] = 'x';
        assert_int_equal(verdict(CONTROL_HELPER, BORDER_QUERY, &query, sizeof(query)), -EPROTO);
        query.instance[20] = 0;
        assert_int_equal(verdict(CONTROL_HELPER, BORDER_QUERY, &query, sizeof(query)), 1);
        query.instance[0] = '.';
        assert_int_equal(verdict(CONTROL_HELPER, BORDER_QUERY, &query, sizeof(query)), -EPROTO);
        assert_int_equal(verdict(CONTROL_HOSTD, BORDER_QUERY, &query, sizeof(query)), -EPROTO);
}

static void link_frees_itself(ControlLink *link, const ControlFrame *frame, void *userdata) {
        ControlLink **place = userdata;

        *place = control_link_free(*place);
}

static void test_freed_by_its_frame(void **state) {
        _cleanup_event_ sd_event *event = NULL;
        ControlLink *link;
        unsigned char bytes[64];
        BorderHello hello = {1};
        size_t size = put(bytes, BORDER_HELLO, 0, &hello, sizeof(hello));
        int fds[2];

        size += put(bytes + size, BORDER_HELLO, 0, &hello, sizeof(hello));
        assert_int_equal(sd_event_new(&event), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        ControlLinkConfig config = {.event = event, .fd = fds[0], .side = CONTROL_HOSTD, .frame = link_frees_itself, .gone = link_is_gone, .userdata = &link};
        assert_int_equal(control_link_new(&config, &link), 0);
        assert_int_equal(send(fds[1], bytes, size, 0), size);
        run(event);
        assert_null(link);
        (void) close(fds[1]);
}

// ---- resolve -----------------------------------------------------------------------------------------------------------------

typedef struct Asked {
        unsigned asked;
        uint64_t connection, cookie;
        ResolveQuestion question;
        unsigned answers;
        int error;
        uint32_t n;
} Asked;

static void on_question(ResolveServer *server, uint64_t connection, const ResolveQuestion *question, void *userdata) {
        Asked *asked = userdata;

        asked->asked++;
        asked->connection = connection;
        asked->question = *question;
}

static void on_answer(const ResolveAnswer *answer, void *userdata) {
        Asked *asked = userdata;

        asked->answers++;
        asked->cookie = answer->cookie;
        asked->error = answer->error;
        asked->n = answer->n;
}

static ResolveAnswer answer_to(const ResolveQuestion *question) {
        return (ResolveAnswer) {.cookie = question->cookie, .ttl_s = 60, .n = 1, .addresses = {{.family = 4, .address = {192, 0, 2, 1}}}};
}

static void test_questions(void **state) {
        _cleanup_event_ sd_event *event = NULL;
        _cleanup_place_ Place place;
        _cleanup_(resolve_server_freep) ResolveServer *server = NULL;
        _cleanup_(resolve_client_freep) ResolveClient *client = NULL;
        Asked asked = {0};
        ResolveQuestion question;
        ResolveAnswer answer;
        uint64_t cookie, other;

        place_new(&place);
        assert_int_equal(sd_event_new(&event), 0);
        assert_int_equal(resolve_client_new(event, place.path, &client), 0);
        assert_int_equal(resolve_question_init(&question, 1, 4, "Example.org"), -EINVAL);
        assert_int_equal(resolve_question_init(&question, 1, 5, "example.org"), -EINVAL);
        assert_int_equal(resolve_question_init(&question, 1, 4, "example.org"), 0);
        assert_int_equal(resolve_client_ask(client, &question, on_answer, &asked, &cookie), -ENOENT);
        assert_int_equal(resolve_server_new(event, listen_on(&place, SOCK_SEQPACKET), on_question, &asked, &server), 0);
        assert_int_equal(resolve_client_ask(client, &question, on_answer, &asked, &cookie), 0);
        run(event);
        assert_int_equal(asked.asked, 1);
        assert_string_equal(asked.question.name, "example.org");
        answer = answer_to(&asked.question);
        assert_int_equal(resolve_server_answer(server, asked.connection, &answer), 0);
        assert_int_equal(resolve_server_answer(server, asked.connection, &answer), 0); // once more than was asked
        run(event);
        assert_int_equal(asked.answers, 1);
        assert_int_equal(asked.cookie, cookie);
        assert_int_equal(asked.n, 1);
        assert_int_equal(resolve_client_ask(client, &question, on_answer, &asked, &other), 0);
        assert_int_not_equal(other, cookie); // the same place
        resolve_client_cancel(client, other);
        resolve_client_cancel(client, other);
        run(event);
        answer = answer_to(&asked.question);
        assert_int_equal(resolve_server_answer(server, asked.connection, &answer), 0);
        run(event);
        assert_int_equal(asked.answers, 1);
        answer.n = 0; // neither an error nor an address
        assert_int_equal(resolve_server_answer(server, asked.connection, &answer), -EINVAL);
}

static void test_resolver_dies(void **state) {
        _cleanup_event_ sd_event *event = NULL;
        _cleanup_place_ Place place;
        _cleanup_(resolve_server_freep) ResolveServer *server = NULL;
        _cleanup_(resolve_client_freep) ResolveClient *client = NULL;
        Asked asked = {0};
        ResolveQuestion question;
        uint64_t cookie;
        int r = 0;

        place_new(&place);
        assert_int_equal(sd_event_new(&event), 0);
        assert_int_equal(resolve_client_new(event, place.path, &client), 0);
        assert_int_equal(resolve_question_init(&question, 1, 6, "example.org"), 0);
        assert_int_equal(resolve_server_new(event, listen_on(&place, SOCK_SEQPACKET), on_question, &asked, &server), 0);
        for (int i = 0; i < 3; i++)
                assert_int_equal(resolve_client_ask(client, &question, on_answer, &asked, &cookie), 0);
        run(event);
        server = resolve_server_free(server);
        run(event);
        assert_int_equal(asked.answers, 3);
        assert_int_equal(asked.error, -ECONNRESET);
        assert_int_equal(resolve_client_ask(client, &question, on_answer, &asked, &cookie), -ECONNREFUSED);
        assert_int_equal(resolve_server_new(event, listen_on(&place, SOCK_SEQPACKET), on_question, &asked, &server), 0);
        for (unsigned i = 0; i < RESOLVE_WAITING_MAX + 1 && r == 0; i++) {
                r = resolve_client_ask(client, &question, on_answer, &asked, &cookie);
                if (i % 8 == 0)
                        run(event);
        }
        assert_int_equal(r, -EBUSY); // and not before
        assert_int_equal(asked.asked, 3 + RESOLVE_WAITING_MAX);
        assert_int_equal(asked.answers, 3);
}

static void test_answers_of_a_liar(void **state) {
        ResolveQuestion question = {0};
        ResolveAnswer good, a;

        assert_int_equal(resolve_question_init(&question, 1, 4, "example.org"), 0);
        assert_true(resolve_question_valid(&question, sizeof(question)));
        question.name[20] = 'x';
        assert_false(resolve_question_valid(&question, sizeof(question)));
        good = answer_to(&question);
        assert_true(resolve_answer_valid(&good, sizeof(good)));
        assert_false(resolve_answer_valid(&good, sizeof(good) - 1));
        a = good, a.n = 17;
        assert_false(resolve_answer_valid(&a, sizeof(a)));
        a = good, a.error = -EIO;
        assert_false(resolve_answer_valid(&a, sizeof(a)));
        a = good, a.addresses[0].address[9] = 1;
        assert_false(resolve_answer_valid(&a, sizeof(a)));
        a = good, a.addresses[1].family = 4;
        assert_false(resolve_answer_valid(&a, sizeof(a)));
}

// ---- processes ---------------------------------------------------------------------------------------------------------------

static void test_listen_fds(void **state) {
        char pid[16];
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), saved = dup(3);

        assert_int_equal(dup2(fd, 3), 3);
        (void) setenv("LISTEN_FDS", "1", 1);
        (void) setenv("LISTEN_FDNAMES", "control", 1);
        assert_int_equal(border_listen_fd("control"), 3); // hostd gives no LISTEN_PID
        assert_int_equal(fcntl(3, F_GETFD), FD_CLOEXEC);
        assert_int_equal(border_listen_fd("contro"), -ENOENT);
        assert_int_equal(border_listen_fd("resolve"), -ENOENT);
        (void) setenv("LISTEN_PID", "1", 1);
        assert_int_equal(border_listen_fd("control"), -ENOENT); // somebody else's
        (void) snprintf(pid, sizeof(pid), "%d", (int) getpid());
        (void) setenv("LISTEN_PID", pid, 1);
        assert_int_equal(border_listen_fd("control"), 3);
        (void) setenv("LISTEN_FDS", "99999", 1);
        assert_int_equal(border_listen_fd("control"), -ENOENT);
        (void) unsetenv("LISTEN_FDS");
        assert_int_equal(border_listen_fd("control"), -ENOENT);
        if (saved >= 0)
                (void) dup2(saved, 3);
        else
                (void) close(3);
}

// One bit for each thing that went otherwise than it should.
static int confined(const BorderConfine *confine) {
        int fds[2], bad = 0;
        char *const argv[] = {(char *) "true", NULL};

        if (border_confine(confine, NULL) < 0)
                return 255;
        bad |= socket(AF_INET6, SOCK_STREAM, 0) < 0 ? 1 : 0;
        bad |= (socket(AF_NETLINK, SOCK_RAW, 0) >= 0) != confine->netlink ? 2 : 0;
        bad |= socket(AF_PACKET, SOCK_RAW, 0) >= 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0 ? 4 : 0;
        bad |= execve("/bin/true", argv, argv + 1) == 0 || fork() >= 0 ? 8 : 0;
        bad |= mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED ? 16 : 0;
        bad |= open("/proc/self/status", O_RDONLY | O_CLOEXEC) < 0 ? 32 : 0;
        bad |= (open("border-test-file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0) != confine->write_files ? 64 : 0;
        bad |= prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 12 /* NET_ADMIN */, 0, 0) == 0 ? 128 : 0;
        bad |= !malloc(1 << 20) || geteuid() != getuid() ? 128 : 0;
        return bad;
}

static int in_child(const BorderConfine *confine) {
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(confined(confine));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void test_confined(void **state) {
        BorderConfine plain = {.allow_root = true, .files_max = 64}, flow = {.allow_root = true, .netlink = true, .write_files = true};
        _cleanup_error_ Error err = ERROR_NULL;

        assert_int_equal(in_child(&plain), 0);
        assert_int_equal(in_child(&flow), 0);
        (void) unlink("border-test-file");
        plain.allow_root = false;
        if (geteuid() == 0)
                assert_int_equal(in_child(&plain), 255);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_split_at_every_byte),
                cmocka_unit_test(test_rules_of_frames),
                cmocka_unit_test(test_records_of_a_liar),
                cmocka_unit_test(test_writers_keep_the_rules),
                cmocka_unit_test(test_sender_never_waits),
                cmocka_unit_test(test_one_hostd),
                cmocka_unit_test(test_links_break),
                cmocka_unit_test(test_many_frames_have_turns),
                cmocka_unit_test(test_queries_bring_a_pipe),
                cmocka_unit_test(test_freed_by_its_frame),
                cmocka_unit_test(test_questions),
                cmocka_unit_test(test_resolver_dies),
                cmocka_unit_test(test_answers_of_a_liar),
                cmocka_unit_test(test_listen_fds),
                cmocka_unit_test(test_confined),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
