// SPDX-License-Identifier: GPL-2.0-or-later
// Dns: what upstreams are asked and what they answer. An upstream is trusted to resolve, not to send sound bytes: others can write to
// the port that its answer is awaited at.
#include <string.h>

#include "resolver/dns.h"
#include "resolver/dns_wire.h"

#define RECORDS_MAX 512 // of a section

ssize_t dns_asked_write(const DnsAsked *asked, uint8_t *buf, size_t max) {
        static const uint8_t opt[] = {0, 0, DNS_OPT, DNS_UDP_SIZE >> 8, DNS_UDP_SIZE & 0xff, 0, 0, 0, 0, 0, 0};
        Writer w = {.data = buf, .max = max};

        writer_put16(&w, asked->id);
        writer_put16(&w, 0x0100); // RD
        writer_put16(&w, 1);
        writer_put32(&w, 0);
        writer_put16(&w, 1);
        writer_put(&w, asked->name.wire, asked->name.size);
        writer_put16(&w, asked->type);
        writer_put16(&w, DNS_CLASS_IN);
        writer_put(&w, opt, sizeof(opt));
        return w.full ? -ENOSPC : (ssize_t) w.size;
}

int dns_answer_add(DnsAnswer *answer, uint16_t type, const void *data, size_t size) {
        Writer w = {.data = answer->bytes, .size = answer->size, .max = sizeof(answer->bytes)};

        writer_put16(&w, type);
        writer_put16(&w, (uint16_t) size);
        writer_put(&w, data, size);
        if (w.full || size > UINT16_MAX)
                return -E2BIG;
        answer->size = (uint16_t) w.size;
        answer->n++;
        return 0;
}

typedef struct Message {
        const uint8_t *data;
        size_t size;
        size_t answers; // where the section starts
        unsigned n_answers, n_authority;
} Message;

typedef struct Raw {
        DnsName owner;
        bool odd; // the owner has characters that no name of ours has
        uint16_t type, class;
        uint32_t ttl;
        size_t start, size; // of the data in the message
} Raw;

static int raw_read(const Message *m, size_t *offset, Raw *ret) {
        int r = dns_name_read(m->data, m->size, offset, &ret->owner);
        const uint8_t *p = m->data + *offset;

        if (r == -EBADMSG || m->size - *offset < 10)
                return -EBADMSG;
        ret->odd = r < 0;
        ret->type = get16(p);
        ret->class = get16(p + 2);
        ret->ttl = get32(p + 4);
        if (ret->ttl > INT32_MAX) // RFC 2181
                ret->ttl = 0;
        ret->size = get16(p + 8);
        ret->start = *offset + 10;
        if (m->size - ret->start < ret->size)
                return -EBADMSG;
        *offset = ret->start + ret->size;
        return 0;
}

// Data with a name behind `fixed` bytes, which must end with it. Names are written out: a pointer means nothing in another message.
static int add_named(const Message *m, const Raw *raw, size_t fixed, DnsAnswer *answer) {
        uint8_t data[8 + DNS_NAME_MAX];
        size_t offset = raw->start + fixed;
        DnsName name;
        int r;

        if (raw->size < fixed + 1)
                return -EBADMSG;
        r = dns_name_read(m->data, m->size, &offset, &name);
        if (r < 0 || offset != raw->start + raw->size)
                return r == -EILSEQ ? r : -EBADMSG;
        memcpy(data, m->data + raw->start, fixed);
        memcpy(data + fixed, name.wire, name.size);
        if (raw->type == DNS_CNAME)
                answer->target = name;
        return dns_answer_add(answer, raw->type, data, fixed + name.size);
}

static int add_record(const Message *m, const Raw *raw, DnsAnswer *answer) {
        const uint8_t *data = m->data + raw->start;

        if (!dns_type_is_known(raw->type))
                return -EBADMSG;
        answer->ttl = MIN2(answer->ttl, raw->ttl);
        switch (raw->type) {
        case DNS_A:
                return raw->size == 4 ? dns_answer_add(answer, DNS_A, data, 4) : -EBADMSG;
        case DNS_AAAA:
                return raw->size == 16 ? dns_answer_add(answer, DNS_AAAA, data, 16) : -EBADMSG;
        case DNS_CNAME:
        case DNS_NS:
        case DNS_PTR:
                return add_named(m, raw, 0, answer);
        case DNS_MX:
                return add_named(m, raw, 2, answer);
        case DNS_SRV:
                return add_named(m, raw, 6, answer);
        default: // no names in them, or none that may be compressed
                return dns_answer_add(answer, raw->type, data, raw->size);
        }
}

// All records of the wanted type at `answer->target`, or else one CNAME there, which moves the target. 1: a CNAME.
static int answer_step(const Message *m, uint16_t type, DnsAnswer *answer) {
        DnsName owner = answer->target;
        size_t offset = m->answers, cname_at = 0;
        unsigned n = answer->n;
        Raw raw;
        int r;

        for (unsigned i = 0; i < m->n_answers; i++) {
                size_t at = offset;
                r = raw_read(m, &offset, &raw);
                if (r < 0)
                        return r;
                if (raw.odd || raw.class != DNS_CLASS_IN || !dns_name_equal(&raw.owner, &owner))
                        continue;
                if (raw.type == type) {
                        r = add_record(m, &raw, answer);
                        if (r < 0)
                                return r;
                } else if (raw.type == DNS_CNAME && cname_at == 0)
                        cname_at = at;
        }
        if (answer->n > n) {
                answer->complete = true;
                return 0;
        }
        if (cname_at == 0)
                return 0;
        if (answer->n_chain == DNS_CHAIN_MAX)
                return -ELOOP;
        answer->n_chain++;
        r = raw_read(m, &cname_at, &raw);
        if (r == 0)
                r = add_record(m, &raw, answer);
        return r < 0 ? r : 1;
}

// RFC 2308: how long the absence of records may be believed is said by the zone's SOA.
static int answer_read_soa(const Message *m, DnsAnswer *answer) {
        size_t offset = m->answers;
        Raw raw;
        int r;

        for (unsigned i = 0; i < m->n_answers + m->n_authority; i++) {
                r = raw_read(m, &offset, &raw);
                if (r < 0)
                        return r;
                if (i < m->n_answers || raw.type != DNS_SOA || raw.class != DNS_CLASS_IN || raw.size < 22)
                        continue;
                answer->complete = true;
                answer->ttl = MIN2(answer->ttl, MIN2(raw.ttl, get32(m->data + raw.start + raw.size - 4)));
        }
        return 0;
}

static int message_open(const uint8_t *data, size_t size, const DnsAsked *asked, Message *ret) {
        size_t question = DNS_HEADER_SIZE + asked->name.size;

        // The name must be the same to the letter's case: that is where the sender of a forged answer must guess most.
        if (size < question + 4 || get16(data) != asked->id || (get16(data + 2) & 0xf800) != 0x8000 || get16(data + 4) != 1 ||
            memcmp(data + DNS_HEADER_SIZE, asked->name.wire, asked->name.size) != 0 || get16(data + question) != asked->type ||
            get16(data + question + 2) != DNS_CLASS_IN)
                return -ENOMSG;
        *ret = (Message) {data, size, question + 4, get16(data + 6), get16(data + 8)};
        return ret->n_answers > RECORDS_MAX || ret->n_authority > RECORDS_MAX ? -EBADMSG : 0;
}

int dns_answer_read(const uint8_t *data, size_t size, const DnsAsked *asked, DnsAnswer *answer) {
        size_t offset = 0;
        Message m;
        int r = message_open(data, size, asked, &m);

        if (r < 0)
                return r;
        answer->rcode = data[3] & 0xf;
        answer->truncated = data[2] & 0x02;
        answer->complete = false;
        if (answer->truncated)
                return 0;
        if (answer->rcode != DNS_NOERROR && answer->rcode != DNS_NXDOMAIN)
                return 0;
        r = dns_name_read(asked->name.wire, asked->name.size, &offset, &answer->target);
        if (r < 0)
                return r;
        do {
                r = answer_step(&m, asked->type, answer);
        } while (r > 0);
        if (r < 0)
                return r;
        if (!answer->complete)
                r = answer_read_soa(&m, answer);
        if (answer->rcode == DNS_NXDOMAIN)
                answer->complete = true;
        return r;
}
