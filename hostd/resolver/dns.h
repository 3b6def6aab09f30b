// SPDX-License-Identifier: GPL-2.0-or-later
// Dns: messages of the domain name system as bytes in a buffer. Pure functions; what they read comes from guests and from the internet.
//
// Names are kept as on the wire, in lower case, and hold nothing but letters, digits, '-' and '_': what else DNS allows in a label has no
// use here and would have to be quoted in every log. An answer is kept without owners and compression: its CNAMEs in their
// order, then the records at their end, so that each record's owner follows from the one in front of it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

#define DNS_NAME_MAX 255      // on the wire, with the root's zero
#define DNS_TEXT_MAX 254      // 253 characters and the NUL
#define DNS_HEADER_SIZE 12
#define DNS_QUERY_MAX 1024    // of a client; longer ones are not looked at
#define DNS_UDP_SIZE 1232     // what passes everywhere without fragments
#define DNS_ANSWER_MAX 4096
#define DNS_CHAIN_MAX 16      // CNAMEs
#define DNS_ADDRESSES_MAX 64  // that a client gets
#define DNS_REPLY_MAX 6144
#define DNS_EDE_TEXT_MAX 200

typedef enum DnsRcode {
        DNS_NOERROR = 0,
        DNS_FORMERR = 1,
        DNS_SERVFAIL = 2,
        DNS_NXDOMAIN = 3,
        DNS_NOTIMP = 4,
        DNS_REFUSED = 5,
        DNS_BADVERS = 16, // does not fit the header: its upper bits are in OPT
} DnsRcode;

// RFC 8914
typedef enum DnsEde { DNS_EDE_NONE = -1, DNS_EDE_OTHER = 0, DNS_EDE_NOT_READY = 14, DNS_EDE_BLOCKED = 15, DNS_EDE_FILTERED = 17, DNS_EDE_NETWORK = 23, DNS_EDE_INVALID = 24 } DnsEde;

typedef enum DnsType {
        DNS_A = 1, DNS_NS = 2, DNS_CNAME = 5, DNS_SOA = 6, DNS_NULL = 10, DNS_PTR = 12, DNS_MX = 15, DNS_TXT = 16, DNS_AAAA = 28, DNS_SRV = 33,
        DNS_OPT = 41, DNS_SVCB = 64, DNS_HTTPS = 65, DNS_IXFR = 251, DNS_AXFR = 252, DNS_MAILB = 253, DNS_MAILA = 254, DNS_ANY = 255,
} DnsType;

#define DNS_CLASS_IN 1

typedef struct DnsName {
        uint8_t size; // 1 for the root; 0 is no name
        uint8_t wire[DNS_NAME_MAX];
} DnsName;

// Reads a name at *offset and puts *offset behind it. -EBADMSG: malformed; -EILSEQ: other characters (*offset is set all the same).
int dns_name_read(const uint8_t *data, size_t size, size_t *offset, DnsName *ret);
int dns_name_from_text(const char *text, DnsName *ret); // -EINVAL
char *dns_name_to_text(const DnsName *name, char *buf); // at least DNS_TEXT_MAX bytes; "." for the root; returns buf
bool dns_name_equal(const DnsName *a, const DnsName *b);

// "TXT" for what has a name, "TYPE123" otherwise; from_name knows the types that may be enabled or are always answered. -EINVAL.
#define DNS_TYPE_TEXT_MAX 16
char *dns_type_to_text(uint16_t type, char *buf);
int dns_type_from_name(const char *name);
bool dns_type_is_known(uint16_t type); // one whose records can be passed on

typedef struct DnsQuery {
        uint16_t id, flags;
        DnsName name;
        uint16_t type, class;
        bool edns;
        uint16_t udp_size; // what the client takes, at least 512
        uint16_t question_size;
        uint8_t question[DNS_NAME_MAX + 4]; // as it came: letters keep their case in the reply
} DnsQuery;

// 0: a question. A DnsRcode: an error to be answered by dns_reply() with what *ret has. -EBADMSG: not to be answered.
int dns_query_read(const uint8_t *data, size_t size, DnsQuery *ret);

typedef struct DnsAnswer {
        uint8_t rcode;
        bool truncated; // ask again by TCP
        bool complete;  // the chain's end has records, or there are none to be had (NXDOMAIN, or NODATA that a SOA vouches for)
        uint32_t ttl;   // the least of all records, or how long their absence may be believed
        uint16_t n, n_chain; // records, CNAMEs among them
        uint16_t size;
        DnsName target; // the chain's end
        uint8_t bytes[DNS_ANSWER_MAX]; // {uint16 type, uint16 size, data}, network order, without padding
} DnsAnswer;

typedef struct DnsAsked {
        uint16_t id, type;
        DnsName name; // letters in the case that was sent
} DnsAsked;

// Size of the question for an upstream (no client's bytes are in it but the name), at most `max`; -ENOSPC.
ssize_t dns_asked_write(const DnsAsked *asked, uint8_t *buf, size_t max);
// -ENOMSG: not the answer to this question (forged or late: wait on). -EBADMSG, -EILSEQ, -ELOOP, -E2BIG: this upstream has no use. Appends
// to *answer, which starts as DNS_ANSWER_NULL and holds the chain so far where an upstream gave only a part of it.
int dns_answer_read(const uint8_t *data, size_t size, const DnsAsked *asked, DnsAnswer *answer);
#define DNS_ANSWER_NULL ((DnsAnswer) {.ttl = UINT32_MAX})

// Walks the records: *offset starts at 0. False at the end.
typedef struct DnsRecord { uint16_t type, size; const uint8_t *data; } DnsRecord;
bool dns_record_next(const uint8_t *bytes, size_t size, size_t *offset, DnsRecord *ret);
int dns_answer_add(DnsAnswer *answer, uint16_t type, const void *data, size_t size); // -E2BIG

typedef struct DnsReply {
        DnsRcode rcode;
        const uint8_t *bytes; // records as in DnsAnswer
        size_t size;
        uint32_t ttl;
        DnsEde ede;
        const char *ede_text; // cut at DNS_EDE_TEXT_MAX; may be NULL
} DnsReply;

// `max`: room by UDP or TCP; what does not fit becomes an empty reply with TC. Returns its size; buf has DNS_REPLY_MAX.
size_t dns_reply_write(const DnsQuery *query, const DnsReply *reply, size_t max, uint8_t *buf);
