// SPDX-License-Identifier: GPL-2.0-or-later
// Hosts and server names: what is read from the first bytes of a TLS client, whole, cut and broken; and the PROXY header.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "proxy/clienthello.h"
#include "proxy/proxy_header.h"

// ---- hosts

static void test_hosts(void **state) {
        static const struct { const char *text; HostKind kind; const char *name; } cases[] = {
                {"example.org", HOST_NAME, "example.org"},
                {"EXAMPLE.Org", HOST_NAME, "example.org"},
                {"_dmarc.example.org", HOST_NAME, "_dmarc.example.org"},
                {"xn--bcher-kva.example", HOST_NAME, "xn--bcher-kva.example"},
                {"localhost", HOST_NAME, "localhost"},
                {"1.example.org", HOST_NAME, "1.example.org"},
                {"", HOST_BAD}, {".", HOST_BAD}, {"a..b", HOST_BAD}, {".example.org", HOST_BAD},
                {"example.org.", HOST_BAD}, // in SNI; Host drops the dot before
                {"-a.example", HOST_BAD}, {"a-.example", HOST_BAD}, {"*.example.org", HOST_BAD},
                {"example.org:443", HOST_BAD}, {"exa mple.example", HOST_BAD}, {"example.org\n", HOST_BAD}, {"b\xc3\xbc" "cher.example", HOST_BAD},
                {"user@example.org", HOST_BAD}, {"example.org/", HOST_BAD}, {"example.org%00", HOST_BAD},
                {"192.0.2.1", HOST_ADDRESS, "192.0.2.1"},
                {"2001:DB8::1", HOST_ADDRESS, "2001:db8::1"},
                {"::ffff:192.0.2.1", HOST_ADDRESS, "::ffff:192.0.2.1"},
                {"127.1", HOST_BAD}, {"2130706433", HOST_BAD}, {"0x7f000001", HOST_BAD}, {"0177.0.0.1", HOST_BAD},
                {"1.2.3.4.5", HOST_BAD}, {"1.2.3.0x4", HOST_BAD}, {"fe80::1%eth0", HOST_BAD}, {"[::1]", HOST_BAD},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Host host = host_parse(cases[i].text, strlen(cases[i].text));
                if (host.kind != cases[i].kind || (cases[i].name && strcmp(host.name, cases[i].name) != 0))
                        fail_msg("%s: kind %d, name %s", cases[i].text, (int) host.kind, host.name);
        }
        assert_int_equal(host_parse("a\0b", 3).kind, HOST_BAD);
}

static void test_long_names(void **state) {
        char name[260];

        memset(name, 'a', sizeof(name));
        for (size_t i = 63; i < sizeof(name); i += 64)
                name[i] = '.';
        assert_int_equal(host_parse(name, 253).kind, HOST_NAME);
        assert_int_equal(host_parse(name, 254).kind, HOST_BAD);
        assert_int_equal(host_parse(name, 63).kind, HOST_NAME);
        name[63] = 'a';
        assert_int_equal(host_parse(name, 64).kind, HOST_BAD);
}

static void test_authorities(void **state) {
        static const struct { const char *text; HostKind kind; const char *name; uint16_t port; } cases[] = {
                {"example.org", HOST_NAME, "example.org", 0},
                {"example.org.:80", HOST_NAME, "example.org", 80},
                {"example.org:65535", HOST_NAME, "example.org", 65535},
                {"[2001:db8::1]:443", HOST_ADDRESS, "2001:db8::1", 443},
                {"[::1]", HOST_ADDRESS, "::1", 0},
                {"192.0.2.1:1", HOST_ADDRESS, "192.0.2.1", 1},
                {"example.org:", HOST_BAD}, {"example.org:0", HOST_BAD}, {"example.org:65536", HOST_BAD}, {"example.org:+1", HOST_BAD},
                {"example.org:80:80", HOST_BAD}, {"::1", HOST_BAD}, {"[192.0.2.1]", HOST_BAD}, {"[::1]x", HOST_BAD}, {"[::1", HOST_BAD},
                {"example.org..", HOST_BAD}, {".", HOST_BAD}, {"", HOST_BAD}, {":80", HOST_BAD}, {"a@example.org", HOST_BAD},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                uint16_t port = 0;
                Host host = host_parse_authority(cases[i].text, strlen(cases[i].text), &port);
                if (host.kind != cases[i].kind || (cases[i].name && (strcmp(host.name, cases[i].name) != 0 || port != cases[i].port)))
                        fail_msg("%s: kind %d, name %s, port %u", cases[i].text, (int) host.kind, host.name, port);
        }
}

// ---- a client that says what the test wants

typedef struct Builder {
        uint8_t data[CLIENTHELLO_MAX * 2];
        size_t size;
} Builder;

static void put(Builder *b, const void *data, size_t size) {
        assert_true(b->size + size <= sizeof(b->data));
        memcpy(b->data + b->size, data, size);
        b->size += size;
}

static void put_number(Builder *b, unsigned n, size_t bytes) {
        uint8_t text[4];

        for (size_t i = 0; i < bytes; i++)
                text[i] = (uint8_t) (n >> 8 * (bytes - 1 - i));
        put(b, text, bytes);
}

static void put_vector(Builder *b, const Builder *content, size_t bytes) {
        put_number(b, (unsigned) content->size, bytes);
        put(b, content->data, content->size);
}

static void put_extension(Builder *b, unsigned type, const Builder *content) {
        put_number(b, type, 2);
        put_vector(b, content, 2);
}

typedef struct Wish {
        const char *name, *second;
        unsigned name_type;
        bool no_extensions, twice, grease, ech, odd_suites;
        size_t padding;
} Wish;

static void put_server_name(Builder *b, const Wish *wish) {
        static Builder list, extension;

        list.size = extension.size = 0;
        put_number(&list, wish->name_type, 1);
        put_number(&list, (unsigned) strlen(wish->name), 2);
        put(&list, wish->name, strlen(wish->name));
        if (wish->second) {
                put_number(&list, 0, 1);
                put_number(&list, (unsigned) strlen(wish->second), 2);
                put(&list, wish->second, strlen(wish->second));
        }
        put_vector(&extension, &list, 2);
        put_extension(b, 0, &extension);
}

static void build_message(Builder *message, const Wish *wish) {
        static Builder body, extensions, content;

        body.size = extensions.size = content.size = message->size = 0;
        put_number(&body, 0x0303, 2);
        for (size_t i = 0; i < 32; i++)
                put_number(&body, (unsigned) i, 1);
        put_number(&body, 0, 1);
        if (wish->odd_suites)
                put(&body, "\0\3\x13\1\x13", 5);
        else
                put(&body, "\0\4\x0a\x0a\x13\1", 6);
        put(&body, "\1\0", 2);
        if (wish->grease)
                put_extension(&extensions, 0x0a0a, &content);
        if (wish->ech) {
                put(&content, "\0\0\1\0\1\7", 6);
                put_extension(&extensions, 0xfe0d, &content);
        }
        if (wish->name)
                put_server_name(&extensions, wish);
        if (wish->twice)
                put_server_name(&extensions, wish);
        content.size = wish->padding;
        memset(content.data, 0, content.size);
        if (wish->padding > 0)
                put_extension(&extensions, 21, &content);
        if (!wish->no_extensions)
                put_vector(&body, &extensions, 2);
        put_number(message, 1, 1);
        put_vector(message, &body, 3);
}

static void build_records(Builder *records, const Builder *message, size_t record) {
        records->size = 0;
        for (size_t at = 0; at < message->size; at += record) {
                size_t n = MIN2(record, message->size - at);
                put(records, "\x16\3\1", 3);
                put_number(records, (unsigned) n, 2);
                put(records, message->data + at, n);
        }
}

static HelloResult parse_in_steps(const Builder *b, size_t step, ClientHello *hello) {
        HelloResult result = HELLO_MORE;

        *hello = CLIENTHELLO_NULL;
        for (size_t n = step; result == HELLO_MORE; n += step) {
                result = clienthello_parse(hello, b->data, MIN2(n, b->size));
                if (n >= b->size)
                        break;
        }
        return result;
}

static void test_wishes(void **state) {
        static const struct { const char *what; Wish wish; HelloResult want; } cases[] = {
                {"plain", {.name = "example.org"}, HELLO_NAMED},
                {"upper case", {.name = "Example.ORG"}, HELLO_NAMED},
                {"grease and ech", {.name = "example.org", .grease = true, .ech = true}, HELLO_NAMED},
                {"large keys", {.name = "example.org", .padding = 9000}, HELLO_NAMED},
                {"no name", {.grease = true}, HELLO_NAMELESS},
                {"no extensions", {.no_extensions = true}, HELLO_NAMELESS},
                {"address", {.name = "192.0.2.1"}, HELLO_ADDRESS},
                {"address 6", {.name = "2001:db8::1"}, HELLO_ADDRESS},
                {"number", {.name = "2130706433"}, HELLO_BAD_NAME},
                {"empty", {.name = ""}, HELLO_BAD_NAME},
                {"dot at the end", {.name = "example.org."}, HELLO_BAD_NAME},
                {"port", {.name = "example.org:443"}, HELLO_BAD_NAME},
                {"two names", {.name = "example.org", .second = "evil.example"}, HELLO_BAD_NAME},
                {"another type", {.name = "example.org", .name_type = 1}, HELLO_BAD_NAME},
                {"the extension twice", {.name = "example.org", .twice = true}, HELLO_MALFORMED},
                {"half a suite", {.name = "example.org", .odd_suites = true}, HELLO_MALFORMED},
                {"too long", {.name = "example.org", .padding = 16384}, HELLO_TOO_LONG},
        };
        static const size_t sizes[] = {1, 2, 3, 5, 100, 16384};
        static Builder message, records;

        for (size_t i = 0; i < ELEMENTS(cases); i++)
                for (size_t r = cases[i].wish.padding > 0 ? 4 : 0; r < ELEMENTS(sizes); r++)
                        for (size_t s = 0; s < ELEMENTS(sizes); s++) {
                                ClientHello hello;
                                HelloResult got;
                                build_message(&message, &cases[i].wish);
                                build_records(&records, &message, sizes[r]);
                                got = parse_in_steps(&records, sizes[s], &hello);
                                if (got != cases[i].want)
                                        fail_msg("%s, records of %zu, reads of %zu: %s", cases[i].what, sizes[r], sizes[s], hello_result_text(got));
                                assert_int_equal(hello.host.kind, got == HELLO_NAMED ? HOST_NAME : got == HELLO_ADDRESS ? HOST_ADDRESS : HOST_BAD);
                                if (got == HELLO_NAMED)
                                        assert_string_equal(hello.host.name, "example.org");
                                if (got == HELLO_NAMED || got == HELLO_NAMELESS)
                                        assert_int_equal(hello.ech, cases[i].wish.ech);
                        }
}

static void test_every_prefix_waits(void **state) {
        static const Wish wish = {.name = "example.org"};
        static Builder message, records;

        build_message(&message, &wish);
        build_records(&records, &message, 40);
        for (size_t n = 0; n < records.size; n++) {
                ClientHello hello = CLIENTHELLO_NULL;
                assert_int_equal(clienthello_parse(&hello, records.data, n), HELLO_MORE);
        }
        // Early data after it does not matter.
        put(&records, "\x14\3\3\0\1\1\x17\3\3\0\5hello", 16);
        assert_int_equal(parse_in_steps(&records, records.size, &(ClientHello) {0}), HELLO_NAMED);
}

static void test_broken(void **state) {
        static const struct { const char *data; size_t size; HelloResult want; } cases[] = {
                {"GET / HTTP/1.1\r\n", 16, HELLO_NOT_TLS},
                {"SSH-2.0-x\r\n", 11, HELLO_NOT_TLS},
                {"\x80\x2e\1\3\1", 5, HELLO_NOT_TLS}, // SSL 2
                {"\x16", 1, HELLO_MORE},
                {"\x16\2", 2, HELLO_NOT_TLS},
                {"\x17\3\3\0\1x", 6, HELLO_NOT_TLS},
                {"\x16\3\1\0\0", 5, HELLO_MALFORMED},            // an empty record
                {"\x16\3\1\x40\1", 5, HELLO_MALFORMED},          // longer than records are
                {"\x16\3\1\0\4\2\0\0\0", 9, HELLO_MALFORMED},    // a ServerHello
                {"\x16\3\1\0\4\1\0\x40\1", 9, HELLO_TOO_LONG},
                {"\x16\3\1\0\1\1\x17\3\1\0\1x", 12, HELLO_MALFORMED}, // another record in between
                {"\x16\3\1\0\5\1\0\0\1\0", 10, HELLO_MALFORMED}, // one byte is no ClientHello
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                ClientHello hello = CLIENTHELLO_NULL;
                HelloResult got = clienthello_parse(&hello, (const uint8_t *) cases[i].data, cases[i].size);
                if (got != cases[i].want)
                        fail_msg("case %zu: %s", i, hello_result_text(got));
        }
}

// No byte that is changed, and none that is cut off by a wrong length, makes it read beyond the end (ASan) or take another name.
static void test_every_byte_changed(void **state) {
        static const Wish wish = {.name = "example.org", .grease = true};
        static Builder message, records;

        build_message(&message, &wish);
        build_records(&records, &message, 16384);
        for (size_t i = 0; i < records.size; i++)
                for (unsigned change = 1; change < 256; change <<= 1) {
                        ClientHello hello = CLIENTHELLO_NULL;
                        records.data[i] ^= (uint8_t) change;
                        if (clienthello_parse(&hello, records.data, records.size) == HELLO_NAMED)
                                assert_int_equal(strlen(hello.host.name), strlen("example.org"));
                        records.data[i] ^= (uint8_t) change;
                }
}

// ---- PROXY

static void test_proxy_header(void **state) {
        static const ProxyAddress from = {4, {10, 99, 0, 1}, 40000}, to = {4, {192, 0, 2, 1}, 443}, to6 = {6, {0x20, 1}, 443};
        static const uint8_t want[] = "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x1e\x0a\x63\0\1\xc0\0\2\1\x9c\x40\1\xbb\2\0\x0b" "example.n" "et"
                                      "\5\0\1" "7";
        uint8_t header[PROXY_HEADER_MAX];
        char name[300];

        assert_int_equal(proxy_header_write(&from, &to, "example.net", 7, header), sizeof(want) - 1);
        assert_memory_equal(header, want, sizeof(want) - 1);
        assert_int_equal(proxy_header_write(&from, &to6, "example.net", 7, header), 0);
        memset(name, 'a', 254);
        name[254] = 0;
        assert_int_equal(proxy_header_write(&from, &to, name, 7, header), 0);
        name[253] = 0;
        assert_int_equal(proxy_header_write(&from, &to, name, 65535, header), 16 + 12 + 3 + 253 + 3 + 5);
        assert_true(proxy_header_write(&to6, &to6, name, 65535, header) == 16 + 36 + 3 + 253 + 3 + 5);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_hosts),
                cmocka_unit_test(test_long_names),
                cmocka_unit_test(test_authorities),
                cmocka_unit_test(test_wishes),
                cmocka_unit_test(test_every_prefix_waits),
                cmocka_unit_test(test_broken),
                cmocka_unit_test(test_every_byte_changed),
                cmocka_unit_test(test_proxy_header),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
