// SPDX-License-Identifier: GPL-2.0-or-later
// Frames: splitting over reads, limits, and which frame gets the descriptors.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/io.h"
#include "wire/frame.h"

#define _cleanup_reader_ _cleanup_(frame_reader_done)

static void test_split_at_every_byte(void **state) {
        static const char text[] = "{\"a\":1}\0{}\0{\"b\":\"x\"}";
        static const char *const want[] = {"{\"a\":1}", "{}", "{\"b\":\"x\"}"};

        for (size_t step = 1; step <= sizeof(text); step++) {
                _cleanup_reader_ FrameReader reader = FRAME_READER_INIT(WIRE_FRAME_MAX);
                size_t n = 0;
                for (size_t i = 0; i < sizeof(text); i += step) {
                        assert_int_equal(frame_reader_feed(&reader, text + i, MIN2(step, sizeof(text) - i), NULL, 0), 0);
                        for (;;) {
                                _cleanup_frame_ Frame frame = FRAME_NULL;
                                if (frame_reader_next(&reader, &frame) == 0)
                                        break;
                                assert_string_equal(frame.text, want[n]);
                                assert_int_equal(frame.size, strlen(want[n]));
                                n++;
                        }
                }
                assert_int_equal(n, 3);
        }
}

static void test_too_long(void **state) {
        _cleanup_reader_ FrameReader reader = FRAME_READER_INIT(10), whole = FRAME_READER_INIT(10);
        _cleanup_frame_ Frame frame = FRAME_NULL;

        assert_int_equal(frame_reader_feed(&reader, "0123456789", 10, NULL, 0), 0);
        assert_int_equal(frame_reader_feed(&reader, "x", 1, NULL, 0), -EMSGSIZE);
        assert_int_equal(frame_reader_feed(&whole, "0123456789a", 12, NULL, 0), 0);
        assert_int_equal(frame_reader_next(&whole, &frame), -EMSGSIZE);
}

static int null_fd(void) {
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool is_open(int fd) {
        return fcntl(fd, F_GETFD) >= 0;
}

static void test_fds_go_to_their_frame(void **state) {
        _cleanup_reader_ FrameReader reader = FRAME_READER_INIT(WIRE_FRAME_MAX);
        _cleanup_frame_ Frame a = FRAME_NULL, b = FRAME_NULL;
        int sv[2], fds[3] = {null_fd(), null_fd(), null_fd()};

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
        // Without descriptors and with, sent before anything is read: the kernel joins both into one read.
        assert_int_equal(io_send_fds(sv[0], "{\"a\":1}", 8, NULL, 0, 0), 8);
        assert_int_equal(io_send_fds(sv[0], "{\"b\":1}", 8, fds, 3, 0), 8);
        while (frame_reader_next(&reader, &a) == 0)
                assert_true(frame_reader_receive(&reader, sv[1], MSG_DONTWAIT) > 0);
        while (frame_reader_next(&reader, &b) == 0)
                assert_true(frame_reader_receive(&reader, sv[1], MSG_DONTWAIT) > 0);
        assert_string_equal(a.text, "{\"a\":1}");
        assert_int_equal(a.n_fds, 0);
        assert_string_equal(b.text, "{\"b\":1}");
        assert_int_equal(b.n_fds, 3);
        for (int i = 0; i < 3; i++) {
                assert_true(is_open(b.fds[i]));
                close(fds[i]);
        }
        close(sv[0]);
        close(sv[1]);
}

static void test_fds_with_first_bytes(void **state) {
        _cleanup_reader_ FrameReader reader = FRAME_READER_INIT(WIRE_FRAME_MAX);
        _cleanup_frame_ Frame a = FRAME_NULL, b = FRAME_NULL;
        int fd = null_fd();

        assert_int_equal(frame_reader_feed(&reader, "{}\0{\"", 5, &fd, 1), 0);
        assert_int_equal(frame_reader_next(&reader, &a), 1);
        assert_int_equal(a.n_fds, 0);
        assert_int_equal(frame_reader_next(&reader, &b), 0);
        assert_int_equal(frame_reader_feed(&reader, "a\":1}\0{}", 9, NULL, 0), 0);
        assert_int_equal(frame_reader_next(&reader, &b), 1);
        assert_int_equal(b.n_fds, 1);
        assert_int_equal(b.fds[0], fd);
}

static void test_too_many_fds_are_closed(void **state) {
        _cleanup_reader_ FrameReader reader = FRAME_READER_INIT(WIRE_FRAME_MAX);
        int fds[4] = {null_fd(), null_fd(), null_fd(), null_fd()}, late;

        assert_int_equal(frame_reader_feed(&reader, "{", 1, fds, 4), -E2BIG);
        for (int i = 0; i < 4; i++)
                assert_false(is_open(fds[i]));
        for (int i = 0; i < 3; i++)
                fds[i] = null_fd();
        assert_int_equal(frame_reader_feed(&reader, "{", 1, fds, 3), 0);
        late = null_fd();
        assert_int_equal(frame_reader_feed(&reader, "}", 1, &late, 1), -E2BIG);
        assert_false(is_open(late));
        frame_reader_done(&reader);
        assert_false(is_open(fds[0]));
}

static void test_many_fds_over_socket(void **state) {
        _cleanup_reader_ FrameReader reader = FRAME_READER_INIT(WIRE_FRAME_MAX);
        int sv[2], fds[IO_FDS_MAX], before, after;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
        for (int i = 0; i < IO_FDS_MAX; i++)
                fds[i] = null_fd();
        assert_int_equal(io_send_fds(sv[0], "{}", 3, fds, IO_FDS_MAX, 0), 3);
        before = null_fd();
        close(before);
        assert_int_equal(frame_reader_receive(&reader, sv[1], 0), -E2BIG);
        after = null_fd();
        assert_int_equal(before, after); // nothing leaked
        close(after);
        for (int i = 0; i < IO_FDS_MAX; i++)
                close(fds[i]);
        close(sv[0]);
        close(sv[1]);
}

static void test_parse(void **state) {
        static const struct {
                const char *text;
                size_t size;
                int r;
        } cases[] = {
                {"{}", 2, 0},
                {"{\"a\":{\"b\":[1,2]}}", 17, 0},
                {"", 0, -EINVAL},
                {"[]", 2, -EINVAL},
                {"{} x", 4, -EINVAL},
                {"{\"a\":1,\"a\":2}", 13, -EINVAL},
                {"{\"a\":\"\\u0000\"}", 14, -EINVAL},
                {"{\"a\\u0000\":1}", 13, -EINVAL},
                {"{\"a\":\"\xff\"}", 9, -EINVAL},
                {"{\"a\":\"\xc0\x80\"}", 10, -EINVAL},
                {"{\"a\":\"\\ud800\"}", 14, -EINVAL},
                {"{\"a\":\"x\ny\"}", 11, -EINVAL},
                {"{\"a\":99999999999999999999}", 26, -EINVAL},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                json_t *object = NULL;
                int r = frame_parse(cases[i].text, cases[i].size, &object, &err);
                if (r != cases[i].r)
                        fail_msg("%s: %d (%s)", cases[i].text, r, error_message(&err, r));
                assert_true((r == 0) == (object != NULL));
                json_decref(object);
        }
}

static void test_parse_bombs(void **state) {
        size_t size = WIRE_FRAME_MAX;
        _cleanup_free_ char *text = malloc(size + 1);
        json_t *object = NULL;

        memset(text, '[', size); // depth
        memcpy(text, "{\"a\":", 5);
        assert_int_equal(frame_parse(text, 3000, &object, NULL), -EINVAL);
        assert_int_equal(frame_parse(text, size, &object, NULL), -EINVAL);
        for (size_t i = 5; i + 2 < size; i += 2) // width
                memcpy(text + i, i == 5 ? "[1" : ",1", 2);
        memcpy(text + size - 2, "]}", 2);
        assert_int_equal(frame_parse(text, size, &object, NULL), -EINVAL);
        memset(text, ',', size); // a long string is one value
        memcpy(text, "{\"a\":\"", 6);
        memcpy(text + size - 2, "\"}", 2);
        assert_int_equal(frame_parse(text, size, &object, NULL), 0);
        json_decref(object);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_split_at_every_byte),   cmocka_unit_test(test_too_long),
                cmocka_unit_test(test_fds_go_to_their_frame), cmocka_unit_test(test_fds_with_first_bytes),
                cmocka_unit_test(test_too_many_fds_are_closed), cmocka_unit_test(test_many_fds_over_socket),
                cmocka_unit_test(test_parse),                 cmocka_unit_test(test_parse_bombs),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
