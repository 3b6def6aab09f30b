// SPDX-License-Identifier: GPL-2.0-or-later
// ClientHello: the server name in the first message of a TLS client. Pure: bytes in, outcome out.
//
// The message may be cut into records and records into reads. The caller keeps all bytes (it replays them) and calls again with more of
// them; only record headers are looked at until the message is whole, so a client that sends byte by byte costs no more than any other.
// Whatever is not plainly right is refused: what this reads must be what the server reads.
#pragma once

#include "proxy/host.h"

#define CLIENTHELLO_MAX 16384 // records and their headers; real ones take 300 to 2500 bytes

typedef enum HelloResult {
        HELLO_MORE,      // not whole yet
        HELLO_NAMED,     // `host` is a name
        HELLO_ADDRESS,   // an address where a name belongs
        HELLO_NAMELESS,  // TLS without a server name
        HELLO_BAD_NAME,  // several names, another type, or bytes that no name has
        HELLO_NOT_TLS,
        HELLO_MALFORMED, // begins as TLS
        HELLO_TOO_LONG,
        _HELLO_MAX,
} HelloResult;

typedef struct ClientHello {
        size_t record;    // where the next record header is looked for
        size_t have;      // bytes of the message in the records before it
        size_t need;      // its length; 0 while that is not there
        Host host;        // HOST_BAD unless the result is HELLO_NAMED or HELLO_ADDRESS
        bool ech;         // an encrypted one goes along: what it names is known to the server alone
} ClientHello;
#define CLIENTHELLO_NULL ((ClientHello) {0})

HelloResult clienthello_parse(ClientHello *hello, const uint8_t *data, size_t size);
// For the log: "no server name".
const char *hello_result_text(HelloResult result);
