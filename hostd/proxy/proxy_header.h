// SPDX-License-Identifier: GPL-2.0-or-later
// ProxyHeader: what is said in front of a stream that goes to another process of this host, as PROXY protocol version 2: whose it is,
// where it was going and by which name.
#pragma once

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#define PROXY_HEADER_MAX 512

typedef struct ProxyAddress {
        uint8_t family; // 4 or 6, the same in both
        uint8_t address[16];
        uint16_t port; // host order
} ProxyAddress;

// `name` becomes the authority, `slot` in decimal the unique id, which is what HAProxy of both Debians can read. Returns the size;
// 0 if the name is too long or the families differ.
size_t proxy_header_write(const ProxyAddress *from, const ProxyAddress *to, const char *name, uint16_t slot, uint8_t ret[PROXY_HEADER_MAX]);
