// SPDX-License-Identifier: GPL-2.0-or-later
// ProxyHeader: see proxy_header.h.
#include "proxy/proxy_header.h"

#include <stdio.h>
#include <string.h>

#define COMMAND_PROXY 0x21 // version 2
#define STREAM_IPV4 0x11
#define STREAM_IPV6 0x21
#define TLV_AUTHORITY 0x02
#define TLV_UNIQUE_ID 0x05
#define HEAD 16

static size_t put(uint8_t *to, size_t at, const void *data, size_t size) {
        memcpy(to + at, data, size);
        return at + size;
}

static size_t put16(uint8_t *to, size_t at, unsigned n) {
        to[at] = (uint8_t) (n >> 8);
        to[at + 1] = (uint8_t) n;
        return at + 2;
}

static size_t put_tlv(uint8_t *to, size_t at, uint8_t type, const char *text) {
        to[at] = type;
        at = put16(to, at + 1, (unsigned) strlen(text));
        return put(to, at, text, strlen(text));
}

size_t proxy_header_write(const ProxyAddress *from, const ProxyAddress *to, const char *name, uint16_t slot, uint8_t ret[PROXY_HEADER_MAX]) {
        static const uint8_t signature[12] = "\r\n\r\n\0\r\nQUIT\n";
        size_t n, size = from->family == 4 ? 4 : 16;
        char id[8];

        if (from->family != to->family || strlen(name) > 253)
                return 0;
        n = put(ret, 0, signature, sizeof(signature));
        ret[n++] = COMMAND_PROXY;
        ret[n++] = from->family == 4 ? STREAM_IPV4 : STREAM_IPV6;
        n += 2; // the length, which is known at the end
        n = put(ret, n, from->address, size);
        n = put(ret, n, to->address, size);
        n = put16(ret, n, from->port);
        n = put16(ret, n, to->port);
        if (*name)
                n = put_tlv(ret, n, TLV_AUTHORITY, name);
        (void) snprintf(id, sizeof(id), "%u", slot);
        n = put_tlv(ret, n, TLV_UNIQUE_ID, id);
        (void) put16(ret, 14, (unsigned) (n - HEAD));
        return n;
}
