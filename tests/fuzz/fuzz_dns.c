// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes from a guest (first byte even) or from an upstream (odd), read as hostd-resolver does; what was accepted is written out again and
// must be readable: a reply by the rules for questions and answers alike, since both come from the same hands.
#include <stdlib.h>
#include <string.h>

#include "resolver/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const DnsName *name) {
        char text[DNS_TEXT_MAX];
        DnsName again;

        if (name->size == 0 || dns_name_from_text(dns_name_to_text(name, text), &again) < 0 || !dns_name_equal(name, &again))
                abort();
}

static void check_reply(const DnsQuery *query, const DnsReply *reply, size_t max) {
        uint8_t buf[DNS_REPLY_MAX];
        size_t n = dns_reply_write(query, reply, max, buf);

        // The question and the options always fit: 512 bytes are the least that a client takes.
        if (n < DNS_HEADER_SIZE || n > MAX2(max, 512) || !(buf[2] & 0x80) || buf[0] != query->id >> 8)
                abort();
}

static void read_query(const uint8_t *data, size_t size) {
        static const uint8_t records[] = {0, DNS_CNAME, 0, 3, 1, 'x', 0, 0, DNS_A, 0, 4, 192, 0, 2, 1};
        DnsQuery query;
        int r = dns_query_read(data, size, &query);

        if (r < 0)
                return;
        if (r == 0)
                check_name(&query.name);
        check_reply(&query, &(DnsReply) {.rcode = (DnsRcode) r, .ede = DNS_EDE_BLOCKED, .ede_text = "policy p, rule 1 denies it"}, query.udp_size);
        check_reply(&query, &(DnsReply) {.bytes = records, .size = sizeof(records), .ttl = 30, .ede = DNS_EDE_NONE}, DNS_REPLY_MAX);
}

// The question that the answer claims to belong to is taken from its own bytes, so that mutations get behind that check.
static void read_answer(const uint8_t *data, size_t size) {
        static DnsAnswer answer;
        size_t offset = DNS_HEADER_SIZE, n = 0, at = 0;
        DnsAsked asked;
        DnsRecord record;

        if (size < DNS_HEADER_SIZE || dns_name_read(data, size, &offset, &asked.name) < 0 || size - offset < 4 ||
            offset - DNS_HEADER_SIZE != asked.name.size)
                return;
        memcpy(asked.name.wire, data + DNS_HEADER_SIZE, asked.name.size);
        asked.id = (uint16_t) (data[0] << 8 | data[1]);
        asked.type = (uint16_t) (data[offset] << 8 | data[offset + 1]);
        answer.ttl = UINT32_MAX;
        answer.n = answer.n_chain = answer.size = 0;
        if (dns_answer_read(data, size, &asked, &answer) < 0 || answer.truncated || answer.rcode % DNS_NXDOMAIN != 0)
                return;
        check_name(&answer.target);
        while (dns_record_next(answer.bytes, answer.size, &at, &record))
                n++;
        if (n != answer.n || at != answer.size || answer.n_chain > DNS_CHAIN_MAX || (n > 0 && answer.ttl > INT32_MAX))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size < 1)
                return 0;
        // A buffer of exactly this size, so that reading behind it is seen.
        uint8_t *copy = malloc(size > 1 ? size - 1 : 1);
        if (!copy)
                return 0;
        memcpy(copy, data + 1, size - 1);
        if (data[0] & 1)
                read_answer(copy, size - 1);
        else
                read_query(copy, size - 1);
        free(copy);
        return 0;
}
