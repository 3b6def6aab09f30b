// SPDX-License-Identifier: GPL-2.0-or-later
// Dns: names and types.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "resolver/dns.h"
#include "resolver/dns_wire.h"

static bool label_is_plain(const uint8_t *label, size_t size) {
        for (size_t i = 0; i < size; i++)
                if (!(label[i] < 0x80 && (isalnum(label[i]) || label[i] == '-' || label[i] == '_')))
                        return false;
        return true;
}

static void label_copy(uint8_t *to, const uint8_t *from, size_t size) {
        for (size_t i = 0; i < size; i++)
                to[i] = from[i] >= 'A' && from[i] <= 'Z' ? (uint8_t) (from[i] | 0x20) : from[i];
}

int dns_name_read(const uint8_t *data, size_t size, size_t *offset, DnsName *ret) {
        size_t at = *offset, end = 0, n = 0, bound = at;
        bool plain = true;

        for (;;) {
                if (at >= size)
                        return -EBADMSG;
                if ((data[at] & 0xc0) == 0xc0) {
                        size_t to;
                        if (size - at < 2)
                                return -EBADMSG;
                        to = get16(data + at) & 0x3fff;
                        // Each jump leads in front of all that was read so far: so there are no loops, and not many jumps.
                        if (to >= bound)
                                return -EBADMSG;
                        if (end == 0)
                                end = at + 2;
                        at = bound = to;
                        continue;
                }
                size_t label = data[at];
                if (label > 63 || size - at - 1 < label || n + label + 1 > DNS_NAME_MAX)
                        return -EBADMSG;
                plain = plain && label_is_plain(data + at + 1, label);
                ret->wire[n] = (uint8_t) label;
                label_copy(ret->wire + n + 1, data + at + 1, label);
                n += label + 1;
                at += label + 1;
                if (label == 0)
                        break;
        }
        ret->size = (uint8_t) n;
        *offset = end > 0 ? end : at;
        return plain ? 0 : -EILSEQ;
}

int dns_name_from_text(const char *text, DnsName *ret) {
        size_t n = 0;

        if (strcmp(text, ".") == 0)
                text = "";
        while (*text) {
                size_t label = strcspn(text, ".");
                if (label == 0 || label > 63 || n + label + 2 > DNS_NAME_MAX || !label_is_plain((const uint8_t *) text, label))
                        return -EINVAL;
                ret->wire[n] = (uint8_t) label;
                label_copy(ret->wire + n + 1, (const uint8_t *) text, label);
                n += label + 1;
                text += label;
                if (*text == '.')
                        text++;
        }
        ret->wire[n] = 0;
        ret->size = (uint8_t) (n + 1);
        return 0;
}

char *dns_name_to_text(const DnsName *name, char *buf) {
        size_t n = 0;

        for (size_t at = 0; at < name->size && name->wire[at] > 0; at += name->wire[at] + 1u) {
                if (n > 0)
                        buf[n++] = '.';
                memcpy(buf + n, name->wire + at + 1, name->wire[at]);
                n += name->wire[at];
        }
        if (n == 0)
                buf[n++] = '.';
        buf[n] = 0;
        return buf;
}

bool dns_name_equal(const DnsName *a, const DnsName *b) {
        return a->size == b->size && memcmp(a->wire, b->wire, a->size) == 0;
}

// What a policy can enable beyond A, AAAA, CNAME, MX and SRV, and what a log calls the others. `known`: dns_answer.c can copy their records.
static const struct {
        uint16_t type;
        bool known;
        const char *name;
} types[] = {
        {DNS_A, true, "A"},         {DNS_AAAA, true, "AAAA"},  {DNS_CNAME, true, "CNAME"},   {DNS_MX, true, "MX"},       {DNS_SRV, true, "SRV"},
        {DNS_TXT, true, "TXT"},     {DNS_NS, true, "NS"},      {DNS_PTR, true, "PTR"},       {257, true, "CAA"},         {52, true, "TLSA"},
        {44, true, "SSHFP"},        {35, true, "NAPTR"},       {256, true, "URI"},           {53, true, "SMIMEA"},       {61, true, "OPENPGPKEY"},
        {DNS_SOA, false, "SOA"},    {DNS_NULL, false, "NULL"}, {DNS_HTTPS, false, "HTTPS"},  {DNS_SVCB, false, "SVCB"},  {DNS_ANY, false, "ANY"},
        {DNS_AXFR, false, "AXFR"},  {DNS_IXFR, false, "IXFR"}, {43, false, "DS"},            {48, false, "DNSKEY"},      {13, false, "HINFO"},
};

char *dns_type_to_text(uint16_t type, char *buf) {
        for (size_t i = 0; i < ELEMENTS(types); i++)
                if (types[i].type == type) {
                        (void) snprintf(buf, DNS_TYPE_TEXT_MAX, "%s", types[i].name);
                        return buf;
                }
        (void) snprintf(buf, DNS_TYPE_TEXT_MAX, "TYPE%u", type);
        return buf;
}

int dns_type_from_name(const char *name) {
        for (size_t i = 0; i < ELEMENTS(types); i++)
                if (types[i].known && strcasecmp(types[i].name, name) == 0)
                        return types[i].type;
        return -EINVAL;
}

bool dns_type_is_known(uint16_t type) {
        for (size_t i = 0; i < ELEMENTS(types); i++)
                if (types[i].type == type)
                        return types[i].known;
        return false;
}
