// SPDX-License-Identifier: GPL-2.0-or-later
// Dns: names, questions, answers of upstreams and our replies, byte by byte; and what is malformed.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/valid.h"
#include "resolver/dns.h"

// A string literal with escapes as a message; the compiler adds a zero that is not part of it.
#define BYTES(text) (const uint8_t *) (text), sizeof(text) - 1
#define HEADER(flags, qd, an, ns, ar) "\x12\x34" flags "\0" qd "\0" an "\0" ns "\0" ar
#define EXAMPLE "\7example\3org\0"

static void test_names(void **state) {
        static const struct {
                const char *text;
                const char *again; // NULL: refused
        } rows[] = {
                {"example.org", "example.org"}, {"Example.ORG.", "example.org"}, {"_dmarc.a-b.test", "_dmarc.a-b.test"}, {".", "."}, {"", "."},
                {"a..org", NULL}, {".org", NULL}, {"a b.test", NULL}, {"a/b", NULL}, {"b\303\274cher.de", NULL},
                {"0123456789012345678901234567890123456789012345678901234567890123.test", NULL},
                {"012345678901234567890123456789012345678901234567890123456789012.test", "012345678901234567890123456789012345678901234567890123456789012.test"},
        };
        char buf[DNS_TEXT_MAX];
        DnsName name;

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                int r = dns_name_from_text(rows[i].text, &name);
                assert_int_equal(r, rows[i].again ? 0 : -EINVAL);
                if (rows[i].again)
                        assert_string_equal(dns_name_to_text(&name, buf), rows[i].again);
        }
        memset(buf, 'a', sizeof(buf));
        for (size_t i = 1; i < sizeof(buf); i += 2)
                buf[i] = '.';
        buf[253] = 0; // 127 labels
        assert_int_equal(dns_name_from_text(buf, &name), 0);
        assert_int_equal(name.size, 255);
        buf[253] = '.';
        char longer[260];
        (void) snprintf(longer, sizeof(longer), "%.254sb", buf);
        assert_int_equal(dns_name_from_text(longer, &name), -EINVAL);
}

static void test_names_on_the_wire(void **state) {
        static const struct {
                const uint8_t *data;
                size_t size, offset;
                int result;
                size_t end;
                const char *text;
        } rows[] = {
                {BYTES("\3FoO\0"), 0, 0, 5, "foo"},
                {BYTES("\4test\0\1a\300\0z"), 6, 0, 10, "a.test"},
                {BYTES("\4test\0\1a\300\0\1b\300\6"), 10, 0, 14, "b.a.test"},
                {BYTES("\300\0"), 0, -EBADMSG, 0, NULL},             // to itself
                {BYTES("\1a\300\0"), 0, -EBADMSG, 0, NULL},          // to its own start
                {BYTES("\300\2\300\0"), 2, -EBADMSG, 0, NULL},       // there and back
                {BYTES("\300\4\0\0\1a\0"), 0, -EBADMSG, 0, NULL},    // forward
                {BYTES("\3or"), 0, -EBADMSG, 0, NULL},
                {BYTES("\3org"), 0, -EBADMSG, 0, NULL},
                {BYTES("\300"), 0, -EBADMSG, 0, NULL},
                {BYTES("\100a\0"), 0, -EBADMSG, 0, NULL},            // reserved kinds of labels
                {BYTES("\200a\0"), 0, -EBADMSG, 0, NULL},
                {BYTES("\3a.b\0"), 0, -EILSEQ, 5, NULL},             // would read as two labels
                {BYTES("\2a\0\0"), 0, -EILSEQ, 4, NULL},
                {BYTES(""), 0, -EBADMSG, 0, NULL},
        };

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                size_t offset = rows[i].offset;
                char buf[DNS_TEXT_MAX];
                DnsName name;
                assert_int_equal(dns_name_read(rows[i].data, rows[i].size, &offset, &name), rows[i].result);
                if (rows[i].result != -EBADMSG)
                        assert_int_equal(offset, rows[i].end);
                if (rows[i].text)
                        assert_string_equal(dns_name_to_text(&name, buf), rows[i].text);
        }
}

static void test_name_that_grows_by_pointers(void **state) {
        uint8_t data[1024];
        size_t n = 0, last = 0, offset;
        DnsName name;
        int r = 0, steps = 0;

        data[n++] = 0;
        // Each name is 64 bytes longer than the one in front of it: the fourth does not fit any more.
        while (r == 0) {
                size_t start = n;
                data[n++] = 63;
                memset(data + n, 'x', 63);
                n += 63;
                data[n++] = (uint8_t) (0xc0 | last >> 8);
                data[n++] = (uint8_t) last;
                offset = last = start;
                r = dns_name_read(data, n, &offset, &name);
                steps++;
        }
        assert_int_equal(r, -EBADMSG);
        assert_int_equal(steps, 4);
}

static void test_questions(void **state) {
        static const struct {
                const uint8_t *data;
                size_t size;
                int result;
        } rows[] = {
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") EXAMPLE "\0\1\0\1"), 0},
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\1") EXAMPLE "\0\1\0\1" "\0\0\51\4\320\0\0\0\0\0\0"), 0},
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\1") EXAMPLE "\0\1\0\1" "\0\0\51\4\320\0\0\0\0\0\4\0\12\0\0"), 0}, // an option
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\1") EXAMPLE "\0\1\0\1" "\0\0\51\4\320\0\1\0\0\0\0"), DNS_BADVERS},
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\1") EXAMPLE "\0\1\0\1" "\0\0\51\4\320\0\0\0\0\0\1"), DNS_FORMERR},
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\1") EXAMPLE "\0\1\0\1" "\0\0\1\4\320\0\0\0\0\0\0"), DNS_FORMERR}, // no OPT
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\1") EXAMPLE "\0\1\0\1"), DNS_FORMERR},
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") EXAMPLE "\0\1\0\1x"), DNS_FORMERR}, // bytes behind
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") EXAMPLE "\0\1\0"), DNS_FORMERR},
                {BYTES(HEADER("\1\0", "\2", "\0", "\0", "\0") EXAMPLE "\0\1\0\1" EXAMPLE "\0\1\0\1"), DNS_FORMERR},
                {BYTES(HEADER("\1\0", "\0", "\0", "\0", "\0")), DNS_FORMERR},
                {BYTES(HEADER("\1\0", "\1", "\1", "\0", "\0") EXAMPLE "\0\1\0\1"), DNS_FORMERR},
                {BYTES(HEADER("\1\0", "\1", "\0", "\1", "\0") EXAMPLE "\0\1\0\1"), DNS_FORMERR},
                {BYTES(HEADER("\50\0", "\1", "\0", "\0", "\0") EXAMPLE "\0\6\0\1"), DNS_NOTIMP}, // UPDATE
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") "\3a b\0" "\0\1\0\1"), DNS_REFUSED},
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") "\300\2" "\0\1\0\1"), DNS_FORMERR}, // a pointer into the header
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") "\1a\300\14" "\0\1\0\1"), DNS_FORMERR},
                {BYTES(HEADER("\201\0", "\1", "\0", "\0", "\0") EXAMPLE "\0\1\0\1"), -EBADMSG}, // an answer
                {BYTES("\22\64\1\0\0\1\0\0\0\0\0"), -EBADMSG},
        };
        DnsQuery query;

        for (size_t i = 0; i < ELEMENTS(rows); i++)
                assert_int_equal(dns_query_read(rows[i].data, rows[i].size, &query), rows[i].result);
        assert_int_equal(dns_query_read(rows[1].data, rows[1].size, &query), 0);
        assert_true(query.edns);
        assert_int_equal(query.udp_size, 1232);
        assert_int_equal(query.type, DNS_A);
        assert_int_equal(query.id, 0x1234);
        assert_int_equal(query.question_size, 17);
}

static void test_replies(void **state) {
        uint8_t buf[DNS_REPLY_MAX];
        DnsQuery query;
        size_t n;
        static const uint8_t records[] = "\0\5\0\13" "\1b\7example\0" "\0\1\0\4\300\0\2\1"; // b.example, 192.0.2.1
        DnsReply reply = {.bytes = records, .size = sizeof(records) - 1, .ttl = 30, .ede = DNS_EDE_NONE};
        static const char want[] = HEADER("\201\200", "\1", "\2", "\0", "\0") "\7eXample\3oRg\0" "\0\1\0\1"
                                   "\300\14\0\5\0\1\0\0\0\36\0\13" "\1b\7example\0"
                                   "\300\51\0\1\0\1\0\0\0\36\0\4\300\0\2\1";

        assert_int_equal(dns_query_read(BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") "\7eXample\3oRg\0" "\0\1\0\1"), &query), 0);
        n = dns_reply_write(&query, &reply, 512, buf);
        assert_int_equal(n, sizeof(want) - 1);
        assert_memory_equal(buf, want, n);
}

static void test_errors_are_explained(void **state) {
        static const char want[] = HEADER("\201\205", "\1", "\0", "\0", "\1") EXAMPLE "\0\1\0\1"
                                   "\0\0\51\4\320\0\0\0\0\0\11\0\17\0\5\0\17why";
        uint8_t buf[DNS_REPLY_MAX];
        DnsQuery query;
        DnsReply reply = {.rcode = DNS_REFUSED, .ede = DNS_EDE_BLOCKED, .ede_text = "why"};
        char text[400];

        assert_int_equal(dns_query_read(BYTES(HEADER("\1\0", "\1", "\0", "\0", "\1") EXAMPLE "\0\1\0\1" "\0\0\51\4\320\0\0\0\0\0\0"), &query), 0);
        assert_int_equal(dns_reply_write(&query, &reply, 512, buf), sizeof(want) - 1);
        assert_memory_equal(buf, want, sizeof(want) - 1);
        // A client that knows no EDNS gets no options.
        query.edns = false;
        assert_int_equal(dns_reply_write(&query, &reply, 512, buf), 12 + 17);
        // A long text is cut, and never at the cost of the question.
        query.edns = true;
        memset(text, 'x', sizeof(text) - 1);
        text[sizeof(text) - 1] = 0;
        reply.ede_text = text;
        assert_int_equal(dns_reply_write(&query, &reply, 512, buf), 12 + 17 + 17 + DNS_EDE_TEXT_MAX);
        // BADVERS has its upper bits in the option record.
        reply.rcode = DNS_BADVERS;
        (void) dns_reply_write(&query, &reply, 512, buf);
        assert_int_equal(buf[3] & 0xf, 0);
        assert_int_equal(buf[12 + 17 + 5], 1);
}

static void test_too_large_is_truncated(void **state) {
        static DnsAnswer answer;
        uint8_t buf[DNS_REPLY_MAX];
        DnsQuery query;

        answer = DNS_ANSWER_NULL;
        for (int i = 0; i < 64; i++)
                assert_int_equal(dns_answer_add(&answer, DNS_AAAA, "0123456789abcdef", 16), 0);
        assert_int_equal(dns_query_read(BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") EXAMPLE "\0\34\0\1"), &query), 0);
        DnsReply reply = {.bytes = answer.bytes, .size = answer.size, .ttl = 30, .ede = DNS_EDE_NONE};
        assert_int_equal(dns_reply_write(&query, &reply, 512, buf), 12 + 17);
        assert_int_equal(buf[2] & 2, 2);
        assert_int_equal(buf[7], 0);
        assert_int_equal(dns_reply_write(&query, &reply, DNS_REPLY_MAX, buf), 12 + 17 + 64 * 28);
        assert_int_equal(buf[2] & 2, 0);
        assert_int_equal(buf[7], 64);
        while (dns_answer_add(&answer, DNS_AAAA, "0123456789abcdef", 16) == 0)
                ;
        assert_in_range(answer.size, DNS_ANSWER_MAX - 20, DNS_ANSWER_MAX);
}

// ---- answers of upstreams ----

#define ANSWER(an, ns, records) HEADER("\201\200", "\1", an, ns, "\0") EXAMPLE "\0\1\0\1" records
#define A_RECORD(owner, address) owner "\0\1\0\1\0\0\1\54\0\4" address
#define CNAME_RECORD(owner, size, target) owner "\0\5\0\1\0\0\0\74\0" size target
#define SOA(owner) owner "\0\6\0\1\0\0\16\20\0\26" "\0\0" "\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\7"

static int read_answer(const uint8_t *data, size_t size, DnsAnswer *ret) {
        DnsAsked asked = {.id = 0x1234, .type = DNS_A};

        assert_int_equal(dns_name_from_text("example.org", &asked.name), 0);
        *ret = DNS_ANSWER_NULL;
        return dns_answer_read(data, size, &asked, ret);
}

static void test_answers(void **state) {
        static const struct {
                const uint8_t *data;
                size_t size;
                int result;
                bool complete;
                unsigned n, n_chain;
                uint32_t ttl;
                const char *target;
        } rows[] = {
                {BYTES(ANSWER("\1", "\0", A_RECORD("\300\14", "\300\0\2\1"))), 0, true, 1, 0, 300, "example.org"},
                {BYTES(ANSWER("\2", "\0", CNAME_RECORD("\300\14", "\4", "\1b\300\14") A_RECORD("\1b\300\14", "\300\0\2\1"))), 0, true, 2, 1, 60, "b.example.org"},
                // The order of the records does not matter, and others are passed over.
                {BYTES(ANSWER("\3", "\0", A_RECORD("\1b\300\14", "\300\0\2\1") A_RECORD("\1c\300\14", "\300\0\2\2") CNAME_RECORD("\300\14", "\4", "\1b\300\14"))), 0, true, 2, 1, 60,
                 "b.example.org"},
                // Records of another name are nobody's answer.
                {BYTES(ANSWER("\1", "\0", A_RECORD("\1c\300\14", "\300\0\2\1"))), 0, false, 0, 0, UINT32_MAX, "example.org"},
                // The upstream stopped at the alias: to be asked on.
                {BYTES(ANSWER("\1", "\0", CNAME_RECORD("\300\14", "\4", "\1b\300\14"))), 0, false, 1, 1, 60, "b.example.org"},
                // NODATA, with and without an alias in front.
                {BYTES(ANSWER("\0", "\1", SOA("\300\14"))), 0, true, 0, 0, 7, "example.org"},
                {BYTES(ANSWER("\1", "\1", CNAME_RECORD("\300\14", "\4", "\1b\300\14") SOA("\300\14"))), 0, true, 1, 1, 7, "b.example.org"},
                {BYTES(ANSWER("\2", "\0", CNAME_RECORD("\300\14", "\4", "\1b\300\14") CNAME_RECORD("\1b\300\14", "\2", "\300\14"))), -ELOOP, false, 0, 0, 0, NULL},
                {BYTES(ANSWER("\1", "\0", CNAME_RECORD("\300\14", "\2", "\300\14"))), -ELOOP, false, 0, 0, 0, NULL},
                {BYTES(ANSWER("\1", "\0", CNAME_RECORD("\300\14", "\5", "\3a b\0"))), -EILSEQ, false, 0, 0, 0, NULL},
                {BYTES(ANSWER("\1", "\0", CNAME_RECORD("\300\14", "\5", "\1b\300\14"))), -EBADMSG, false, 0, 0, 0, NULL}, // beyond the end
                {BYTES(ANSWER("\1", "\0", "\300\14\0\1\0\1\0\0\1\54\0\5\300\0\2\1\0")), -EBADMSG, false, 0, 0, 0, NULL},
                {BYTES(ANSWER("\2", "\0", A_RECORD("\300\14", "\300\0\2\1"))), -EBADMSG, false, 0, 0, 0, NULL},
                // Not what was asked: another id, name, case of its letters, type, or a question.
                {BYTES("\x12\x35\x81\x80\0\1\0\0\0\0\0\0" EXAMPLE "\0\1\0\1"), -ENOMSG, false, 0, 0, 0, NULL},
                {BYTES(HEADER("\201\200", "\1", "\0", "\0", "\0") "\7exbmple\3org\0" "\0\1\0\1"), -ENOMSG, false, 0, 0, 0, NULL},
                {BYTES(HEADER("\201\200", "\1", "\0", "\0", "\0") "\7Example\3org\0" "\0\1\0\1"), -ENOMSG, false, 0, 0, 0, NULL},
                {BYTES(HEADER("\201\200", "\1", "\0", "\0", "\0") EXAMPLE "\0\34\0\1"), -ENOMSG, false, 0, 0, 0, NULL},
                {BYTES(HEADER("\1\0", "\1", "\0", "\0", "\0") EXAMPLE "\0\1\0\1"), -ENOMSG, false, 0, 0, 0, NULL},
                {BYTES("\x12\x34"), -ENOMSG, false, 0, 0, 0, NULL},
        };
        char buf[DNS_TEXT_MAX];
        DnsAnswer answer;

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                assert_int_equal(read_answer(rows[i].data, rows[i].size, &answer), rows[i].result);
                if (rows[i].result < 0)
                        continue;
                assert_int_equal(answer.complete, rows[i].complete);
                assert_int_equal(answer.n, rows[i].n);
                assert_int_equal(answer.n_chain, rows[i].n_chain);
                assert_int_equal(answer.ttl, rows[i].ttl);
                assert_string_equal(dns_name_to_text(&answer.target, buf), rows[i].target);
        }
}

static void test_answers_without_records(void **state) {
        DnsAnswer answer;

        assert_int_equal(read_answer(BYTES(HEADER("\201\203", "\1", "\0", "\1", "\0") EXAMPLE "\0\1\0\1" SOA("\300\14")), &answer), 0);
        assert_int_equal(answer.rcode, DNS_NXDOMAIN);
        assert_true(answer.complete);
        assert_int_equal(answer.ttl, 7);
        assert_int_equal(read_answer(BYTES(HEADER("\203\200", "\1", "\0", "\0", "\0") EXAMPLE "\0\1\0\1"), &answer), 0);
        assert_true(answer.truncated);
        assert_int_equal(read_answer(BYTES(HEADER("\201\202", "\1", "\0", "\0", "\0") EXAMPLE "\0\1\0\1"), &answer), 0);
        assert_int_equal(answer.rcode, DNS_SERVFAIL);
        assert_false(answer.complete);
}

// A chain over two upstreams' answers is one chain.
static void test_chain_goes_on(void **state) {
        DnsAsked asked = {.id = 0x1234, .type = DNS_A};
        DnsAnswer answer;
        size_t offset = 0;
        DnsRecord record;

        assert_int_equal(read_answer(BYTES(ANSWER("\1", "\0", CNAME_RECORD("\300\14", "\4", "\1b\300\14"))), &answer), 0);
        asked.name = answer.target;
        assert_int_equal(dns_answer_read(BYTES(HEADER("\201\200", "\1", "\1", "\0", "\0") "\1b" EXAMPLE "\0\1\0\1" A_RECORD("\300\14", "\300\0\2\1")), &asked, &answer), 0);
        assert_true(answer.complete);
        assert_int_equal(answer.n, 2);
        assert_true(dns_record_next(answer.bytes, answer.size, &offset, &record));
        assert_int_equal(record.type, DNS_CNAME);
        assert_int_equal(record.size, 15);
        assert_true(dns_record_next(answer.bytes, answer.size, &offset, &record));
        assert_int_equal(record.type, DNS_A);
        assert_false(dns_record_next(answer.bytes, answer.size, &offset, &record));
}

static void test_asked(void **state) {
        static const char want[] = HEADER("\1\0", "\1", "\0", "\0", "\1") "\7ExAmple\3org\0" "\0\1\0\1" "\0\0\51\4\320\0\0\0\0\0\0";
        DnsAsked asked = {.id = 0x1234, .type = DNS_A};
        uint8_t buf[512];

        assert_int_equal(dns_name_from_text("example.org", &asked.name), 0);
        asked.name.wire[1] = 'E';
        asked.name.wire[3] = 'A';
        assert_int_equal(dns_asked_write(&asked, buf, sizeof(buf)), sizeof(want) - 1);
        assert_memory_equal(buf, want, sizeof(want) - 1);
        assert_int_equal(dns_asked_write(&asked, buf, 20), -ENOSPC);
}

static void test_types(void **state) {
        char buf[DNS_TYPE_TEXT_MAX];

        assert_int_equal(dns_type_from_name("txt"), DNS_TXT);
        assert_int_equal(dns_type_from_name("ANY"), -EINVAL);
        // What a configuration may enable is what can be answered and is not anyway.
        static const char *const usual[] = {"A", "AAAA", "CNAME", "MX", "SRV"};
        for (unsigned type = 0; type <= UINT16_MAX; type++) {
                bool is_usual = false;
                (void) dns_type_to_text((uint16_t) type, buf);
                for (size_t i = 0; i < ELEMENTS(usual); i++)
                        is_usual = is_usual || strcmp(usual[i], buf) == 0;
                if (valid_is(VALID_DNS_TYPE, buf) != (dns_type_is_known((uint16_t) type) && !is_usual))
                        fail_msg("type %s", buf);
        }
        assert_int_equal(dns_type_from_name("NULL"), -EINVAL);
        assert_string_equal(dns_type_to_text(DNS_HTTPS, buf), "HTTPS");
        assert_string_equal(dns_type_to_text(65535, buf), "TYPE65535");
        assert_false(dns_type_is_known(DNS_HTTPS));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_names_on_the_wire),
                cmocka_unit_test(test_name_that_grows_by_pointers),
                cmocka_unit_test(test_questions),
                cmocka_unit_test(test_replies),
                cmocka_unit_test(test_errors_are_explained),
                cmocka_unit_test(test_too_large_is_truncated),
                cmocka_unit_test(test_answers),
                cmocka_unit_test(test_answers_without_records),
                cmocka_unit_test(test_chain_goes_on),
                cmocka_unit_test(test_asked),
                cmocka_unit_test(test_types),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
