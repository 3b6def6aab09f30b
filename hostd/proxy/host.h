// SPDX-License-Identifier: GPL-2.0-or-later
// Host: what a client calls its peer in SNI, in Host and after CONNECT: a name or the text of an address, nothing in between.
#pragma once

#include <stdint.h>

#include "network/name.h"

typedef enum HostKind { HOST_BAD, HOST_NAME, HOST_ADDRESS } HostKind;

typedef struct Host {
        HostKind kind;
        char name[NAME_TEXT_MAX]; // lower case, no dot at the end; of an address its canonical text
        uint8_t family;                     // 4 or 6, of an address
        uint8_t address[16];                // network order
} Host;
#define HOST_NULL ((Host) {.kind = HOST_BAD})

// A name is what name_normalise() takes. What resolvers of old read as a number ("127.1", "0x7f000001") is bad: what one part takes for a
// name, another could take for an address.
Host host_parse(const char *text, size_t size);
// "name", "name:port", "[v6]:port"; one dot at the end of a name is dropped. No port: 0 in `ret_port`. HOST_BAD also for a bad port.
Host host_parse_authority(const char *text, size_t size, uint16_t *ret_port);
bool host_equal(const Host *a, const Host *b);
