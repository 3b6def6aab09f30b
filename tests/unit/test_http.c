// SPDX-License-Identifier: GPL-2.0-or-later
// Request heads and bodies: whom a request is for, how long it is, and what is refused because two readers could disagree.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "proxy/http_body.h"
#include "proxy/http_head.h"

#define HOST "Host: example.org\r\n"
#define GET "GET / HTTP/1.1\r\n" HOST

static HttpResult parse_in_steps(const char *data, size_t size, size_t step, HttpHead *head) {
        HttpResult result = HTTP_MORE;

        *head = HTTP_HEAD_NULL;
        for (size_t n = step; result == HTTP_MORE; n += step) {
                result = http_head_parse(head, data, MIN2(n, size));
                if (n >= size)
                        break;
        }
        return result;
}

static void test_heads(void **state) {
        static const struct { const char *text; HttpResult want; const char *host; uint16_t port; } cases[] = {
                {GET "\r\n", HTTP_OK, "example.org", 0},
                {"GET / HTTP/1.1\r\nhOST:\t Example.ORG.:8080 \r\nX:\r\n\r\n", HTTP_OK, "example.org", 8080},
                {"GET / HTTP/1.0\r\n" HOST "\r\n", HTTP_OK, "example.org", 0},
                {"GET http://example.org:81/x?y HTTP/1.1\r\nHost: example.org:81\r\n\r\n", HTTP_OK, "example.org", 81},
                {"GET http://example.org HTTP/1.0\r\n\r\n", HTTP_OK, "example.org", 0},
                {"GET HTTP://example.org?q HTTP/1.1\r\n" HOST "\r\n", HTTP_OK, "example.org", 0},
                {"CONNECT example.org:443 HTTP/1.1\r\n" HOST "\r\n", HTTP_OK, "example.org", 443},
                {"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n", HTTP_OK, "2001:db8::1", 443},
                {"CONNECT 192.0.2.1:443 HTTP/1.0\r\n\r\n", HTTP_OK, "192.0.2.1", 443},
                {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", HTTP_OK, "example.org", 0},
                {"GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n", HTTP_OK, "192.0.2.1", 0},
                // whom it is for
                {"GET / HTTP/1.1\r\nX: y\r\n\r\n", HTTP_NO_HOST},
                {"GET / HTTP/1.0\r\n\r\n", HTTP_NO_HOST},
                {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", HTTP_SEVERAL_HOSTS},
                {GET "host: evil.example\r\n\r\n", HTTP_SEVERAL_HOSTS},
                {"GET http://evil.example/ HTTP/1.1\r\n" HOST "\r\n", HTTP_SEVERAL_HOSTS},
                {"CONNECT evil.example:443 HTTP/1.1\r\n" HOST "\r\n", HTTP_SEVERAL_HOSTS},
                {"GET http://example.org/ HTTP/1.1\r\n\r\n", HTTP_NO_HOST},
                {"GET / HTTP/1.1\r\nHost: \r\n\r\n", HTTP_BAD_HOST},
                {"GET / HTTP/1.1\r\nHost: a, example.org\r\n\r\n", HTTP_BAD_HOST},
                {"GET / HTTP/1.1\r\nHost: example.org evil.example\r\n\r\n", HTTP_BAD_HOST},
                {"GET / HTTP/1.1\r\nHost: u@example.org\r\n\r\n", HTTP_BAD_HOST},
                {"GET http://" "u@example.org/ HTTP/1.1\r\n" HOST "\r\n", HTTP_BAD_HOST},
                {"GET http:///x HTTP/1.1\r\n" HOST "\r\n", HTTP_BAD_HOST},
                {"CONNECT example.org HTTP/1.1\r\n" HOST "\r\n", HTTP_BAD_HOST},
                {"CONNECT / HTTP/1.1\r\n" HOST "\r\n", HTTP_BAD_HOST},
                // another protocol
                {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP_2},
                {"\x16\x03\x01", HTTP_TLS},
                {"\r\nGET / HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_HTTP},
                {"SSH-2.0-x\r\n\r\n", HTTP_NOT_HTTP},
                {"G@T / HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_HTTP},
                {"GET /\r\n\r\n", HTTP_NOT_HTTP},
                {"GET / HTTP/2.0\r\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET / HTTP/1.2\r\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET / http/1.1\r\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET https://example.org/ HTTP/1.1\r\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET x HTTP/1.1\r\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET * HTTP/1.1\r\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET  / HTTP/1.1\r\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET / x HTTP/1.1\r\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", HTTP_MALFORMED},
                // lines
                {"GET / HTTP/1.1\n" HOST "\r\n", HTTP_MALFORMED},
                {"GET / HTTP/1.1\r\nHost: example.org\n\r\n", HTTP_MALFORMED},
                {GET "X: a\rb\r\n\r\n", HTTP_MALFORMED},
                {GET "X: a\r\n b\r\n\r\n", HTTP_MALFORMED},
                {GET "X: a\r\n\tb\r\n\r\n", HTTP_MALFORMED},
                {GET "X : a\r\n\r\n", HTTP_MALFORMED},
                {GET "X\r\n\r\n", HTTP_MALFORMED},
                {GET ": a\r\n\r\n", HTTP_MALFORMED},
                {GET "X: \x7f\r\n\r\n", HTTP_MALFORMED},
                {GET "X: \x01\r\n\r\n", HTTP_MALFORMED},
                // length
                {GET "Content-Length: 5\r\n\r\n", HTTP_OK, "example.org", 0},
                {GET "Transfer-Encoding: chunked\r\n\r\n", HTTP_OK, "example.org", 0},
                {GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Content-Length: 5, 5\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Content-Length: +5\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Content-Length:\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Content-Length: 9999999999999999999\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Transfer-Encoding: gzip, chunked\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Transfer-Encoding: xchunked\r\n\r\n", HTTP_AMBIGUOUS},
                {"POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", HTTP_AMBIGUOUS},
                {"CONNECT example.org:1 HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n", HTTP_AMBIGUOUS},
                {"CONNECT example.org:1 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", HTTP_AMBIGUOUS},
                {GET "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\n", HTTP_AMBIGUOUS},
                // not whole
                {"", HTTP_MORE}, {"GE", HTTP_MORE}, {GET, HTTP_MORE}, {GET "\r", HTTP_MORE},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++)
                for (size_t step = 1; step < 300; step += step < 4 ? 1 : 97) {
                        HttpHead head;
                        HttpResult got = parse_in_steps(cases[i].text, strlen(cases[i].text), step, &head);
                        if (got != cases[i].want)
                                fail_msg("%s (reads of %zu): %s", cases[i].text, step, http_result_text(got));
                        if (cases[i].host) {
                                assert_string_equal(head.host.name, cases[i].host);
                                assert_int_equal(head.port, cases[i].port);
                                assert_int_equal(head.size, strlen(cases[i].text));
                        }
                }
        assert_int_equal(http_head_parse(&(HttpHead) {0}, GET "X: a\0b\r\n\r\n", sizeof(GET) - 1 + 10), HTTP_MALFORMED);
}

static void test_bounds(void **state) {
        static char text[HTTP_HEAD_MAX + 100];
        HttpHead head;
        size_t n = strlen(GET);

        memset(text, 'x', sizeof(text));
        memcpy(text, GET "X: ", n + 3);
        memcpy(text + HTTP_HEAD_MAX - 4, "\r\n\r\n", 4);
        assert_int_equal(parse_in_steps(text, sizeof(text), 1000, &head), HTTP_OK);
        assert_int_equal(head.size, HTTP_HEAD_MAX);
        memcpy(text + HTTP_HEAD_MAX - 4, "x\r\n\r\n", 5);
        assert_int_equal(parse_in_steps(text, sizeof(text), 1000, &head), HTTP_TOO_LONG);
        memset(text, 'G', sizeof(text));
        assert_int_equal(parse_in_steps(text, sizeof(text), 1, &head), HTTP_TOO_LONG);
}

static void test_rewrite(void **state) {
        static const struct { const char *text, *want; } cases[] = {
                {GET "\r\n", GET "Connection: close\r\n\r\n"},
                {"GET http://example.org HTTP/1.1\r\n" HOST "\r\n", GET "Connection: close\r\n\r\n"},
                {"GET http://" "example.org?q#f HTTP/1.1\r\n" HOST "\r\n", "GET /?q HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"},
                {"GET http://example.org/a/b?q HTTP/1.0\r\n" HOST "\r\n", "GET /a/b?q HTTP/1.0\r\n" HOST "Connection: close\r\n\r\n"},
                {GET "Connection: keep-alive, X\r\nProxy-Connection: x\r\nKeep-Alive: 5\r\nProxy-Authorization: Basic x\r\nTE: trailers\r\n"
                     "Upgrade: h2c\r\nHTTP2-Settings: x\r\nAccept: */*\r\n\r\n", GET "Accept: */*\r\nConnection: close\r\n\r\n"},
                {GET "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", GET "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"},
                {GET "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n\r\n", GET "Connection: close\r\n\r\n"},
                {GET "Upgrade: websocket\r\n\r\n", GET "Connection: close\r\n\r\n"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                HttpHead head = HTTP_HEAD_NULL;
                char text[HTTP_HEAD_MAX + HTTP_REWRITE_MORE];
                size_t n;
                assert_int_equal(http_head_parse(&head, cases[i].text, strlen(cases[i].text)), HTTP_OK);
                n = http_head_rewrite(&head, cases[i].text, text);
                text[n] = 0;
                assert_string_equal(text, cases[i].want);
        }
}

static void test_bodies(void **state) {
        static const struct { const char *text; ssize_t want; bool done; } cases[] = {
                {"0\r\n\r\n", 5, true},
                {"0\r\n\r\nGET / HTTP/1.1", 5, true},
                {"5\r\nhello\r\n0\r\n\r\nx", 15, true},
                {"00A\r\n0123456789\r\n0\r\nX: y\r\nZ:\r\n\r\n", 32, true},
                {"5\r\nhel", 6, false}, {"", 0, false}, {"5\r\nhello\r\n", 10, false},
                {"5;x=y\r\nhello\r\n", -EBADMSG}, {"5 \r\nhello", -EBADMSG}, {" 5\r\n", -EBADMSG}, {"0x5\r\n", -EBADMSG}, {"-1\r\n", -EBADMSG},
                {"\r\n", -EBADMSG}, {"5\nhello", -EBADMSG}, {"5\r\nhelloX", -EBADMSG}, {"5\r\nhello\rX", -EBADMSG}, {"5\r\nhello\n", -EBADMSG},
                {"1000000000000000\r\n", -EBADMSG}, {"0\r\n folded\r\n\r\n", -EBADMSG}, {"0\r\nX: y\n\r\n", -EBADMSG}, {"0\r\n\rX", -EBADMSG},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++)
                for (size_t step = 1; step < 40; step += 6) {
                        HttpBody body = http_body_chunked();
                        size_t size = strlen(cases[i].text);
                        ssize_t got = 0;
                        for (size_t at = 0; at < size && got >= 0 && body.state != BODY_DONE; at += step) {
                                ssize_t n = http_body_feed(&body, cases[i].text + at, MIN2(step, size - at));
                                got = n < 0 ? n : got + n;
                        }
                        if (got != cases[i].want || (got >= 0 && (body.state == BODY_DONE) != cases[i].done))
                                fail_msg("%s in steps of %zu: %zd", cases[i].text, step, got);
                }
}

static void test_length(void **state) {
        HttpBody body = http_body_length(5), none = http_body_length(0);

        assert_int_equal(none.state, BODY_DONE);
        assert_int_equal(http_body_feed(&none, "x", 1), 0);
        assert_int_equal(http_body_feed(&body, "hel", 3), 3);
        assert_int_equal(http_body_feed(&body, "loGET", 5), 2);
        assert_int_equal(body.state, BODY_DONE);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_heads),
                cmocka_unit_test(test_bounds),
                cmocka_unit_test(test_rewrite),
                cmocka_unit_test(test_bodies),
                cmocka_unit_test(test_length),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
