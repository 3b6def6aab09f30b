// SPDX-License-Identifier: GPL-2.0-or-later
// Dns: questions of clients and our replies to them. See dns_answer.c for what upstreams say, dns_name.c for names and types.
#include "resolver/dns.h"

#include <string.h>

#include "resolver/dns_wire.h"

#define FLAG_QR 0x8000
#define FLAG_OPCODE 0x7800
#define FLAG_TC 0x0200
#define FLAG_RD 0x0100
#define FLAG_RA 0x0080
#define FLAG_CD 0x0010

// The only additional record that a question may have. Its options are skipped: none of them is of use here (cookies, padding,
// keep-alive), and client subnet must go nowhere.
static int query_read_opt(const uint8_t *data, size_t size, size_t offset, DnsQuery *query) {
        if (size - offset < 11 || data[offset] != 0 || get16(data + offset + 1) != DNS_OPT)
                return DNS_FORMERR;
        query->edns = true;
        query->udp_size = MAX2(get16(data + offset + 3), 512);
        if (get16(data + offset + 9) != size - offset - 11)
                return DNS_FORMERR;
        return data[offset + 6] != 0 ? DNS_BADVERS : 0;
}

int dns_query_read(const uint8_t *data, size_t size, DnsQuery *ret) {
        size_t offset = DNS_HEADER_SIZE;
        unsigned n_additional;
        int r, odd;

        if (size < DNS_HEADER_SIZE || size > DNS_QUERY_MAX || get16(data + 2) & FLAG_QR)
                return -EBADMSG;
        // Field by field and not as one assignment: this runs for each packet, and most of the structure is buffers.
        ret->id = get16(data);
        ret->flags = get16(data + 2);
        ret->type = ret->class = ret->question_size = 0;
        ret->name.size = 0;
        ret->edns = false;
        ret->udp_size = 512;
        if (ret->flags & FLAG_OPCODE)
                return DNS_NOTIMP;
        n_additional = get16(data + 10);
        if (get16(data + 4) != 1 || get16(data + 6) != 0 || get16(data + 8) != 0 || n_additional > 1)
                return DNS_FORMERR;
        odd = dns_name_read(data, size, &offset, &ret->name);
        // Nothing stands in front of the question that a pointer could lead to.
        if (odd == -EBADMSG || size - offset < 4 || offset - DNS_HEADER_SIZE != ret->name.size)
                return DNS_FORMERR;
        ret->type = get16(data + offset);
        ret->class = get16(data + offset + 2);
        offset += 4;
        if (offset - DNS_HEADER_SIZE > sizeof(ret->question))
                return DNS_FORMERR;
        ret->question_size = (uint16_t) (offset - DNS_HEADER_SIZE);
        memcpy(ret->question, data + DNS_HEADER_SIZE, ret->question_size);
        r = n_additional ? query_read_opt(data, size, offset, ret) : offset < size ? DNS_FORMERR : 0;
        return r != 0 ? r : odd < 0 ? DNS_REFUSED : 0;
}

bool dns_record_next(const uint8_t *bytes, size_t size, size_t *offset, DnsRecord *ret) {
        if (size - *offset < 4)
                return false;
        ret->type = get16(bytes + *offset);
        ret->size = get16(bytes + *offset + 2);
        if (size - *offset - 4 < ret->size)
                return false;
        ret->data = bytes + *offset + 4;
        *offset += 4 + (size_t) ret->size;
        return true;
}

// The first record's owner is the question's name; behind a CNAME it is that one's target, to which a pointer leads.
static int reply_write_records(const DnsReply *reply, Writer *w) {
        size_t offset = 0, owner = DNS_HEADER_SIZE;
        DnsRecord record;
        int n = 0;

        for (; dns_record_next(reply->bytes, reply->size, &offset, &record); n++) {
                writer_put16(w, (uint16_t) (0xc000 | owner));
                writer_put16(w, record.type);
                writer_put16(w, DNS_CLASS_IN);
                writer_put32(w, reply->ttl);
                writer_put16(w, record.size);
                if (record.type == DNS_CNAME)
                        owner = w->size;
                writer_put(w, record.data, record.size);
        }
        return n;
}

static void reply_write_opt(const DnsReply *reply, Writer *w) {
        size_t text = reply->ede_text ? strnlen(reply->ede_text, DNS_EDE_TEXT_MAX) : 0;

        writer_put(w, "\0", 1);
        writer_put16(w, DNS_OPT);
        writer_put16(w, DNS_UDP_SIZE);
        writer_put32(w, (uint32_t) reply->rcode >> 4 << 24);
        if (reply->ede == DNS_EDE_NONE) {
                writer_put16(w, 0);
                return;
        }
        writer_put16(w, (uint16_t) (6 + text));
        writer_put16(w, 15); // the option's code
        writer_put16(w, (uint16_t) (2 + text));
        writer_put16(w, (uint16_t) reply->ede);
        writer_put(w, reply->ede_text, text);
}

static size_t reply_opt_size(const DnsQuery *query, const DnsReply *reply) {
        if (!query->edns)
                return 0;
        return reply->ede == DNS_EDE_NONE ? 11 : 17 + (reply->ede_text ? strnlen(reply->ede_text, DNS_EDE_TEXT_MAX) : 0);
}

size_t dns_reply_write(const DnsQuery *query, const DnsReply *reply, size_t max, uint8_t *buf) {
        Writer w = {.data = buf, .max = MIN2(max, DNS_REPLY_MAX)};
        uint16_t flags = (uint16_t) (FLAG_QR | FLAG_RA | (query->flags & (FLAG_OPCODE | FLAG_RD | FLAG_CD)) | ((unsigned) reply->rcode & 0xf));
        size_t opt = reply_opt_size(query, reply), head;
        int n;

        w.max -= MIN2(w.max, opt);
        writer_put16(&w, query->id);
        writer_put16(&w, flags);
        writer_put16(&w, query->question_size > 0);
        writer_put16(&w, 0);
        writer_put16(&w, 0);
        writer_put16(&w, query->edns);
        writer_put(&w, query->question, query->question_size);
        head = w.size;
        n = reply_write_records(reply, &w);
        if (w.full) { // all or nothing: a part of the addresses would be taken for all of them
                w.size = head;
                w.full = false;
                n = 0;
                put16(buf + 2, (uint16_t) (flags | FLAG_TC));
        }
        put16(buf + 6, (uint16_t) n);
        w.max += opt;
        if (query->edns)
                reply_write_opt(reply, &w);
        return w.size;
}
