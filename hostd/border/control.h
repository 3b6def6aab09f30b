// SPDX-License-Identifier: GPL-2.0-or-later
// Control: the frames between hostd and a helper of the border, as pure code. link.h carries them, server.h is a helper's end.
//
// A frame is a header and `length` bytes, in the host's order, over a stream. hostd sends text (views); a helper sends structs of a fixed
// size for each type and nothing else, because hostd parses no text of a process that reads the network. What does not fit is -EPROTO,
// and the connection ends.
//
// The order: the helper says HELLO; hostd sends VIEWS, first of a connection a whole, each with a cookie; the helper answers each with
// APPLIED and the same cookie once its listeners and views are as told. INSERT is answered by hostd with ACK and its cookie, QUERY by the
// helper with ANSWERED. With a QUERY comes a descriptor, the write end of a pipe; hostd for its part never takes one.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "border/record.h"

#define BORDER_PROTOCOL 3

typedef enum BorderType {
        BORDER_VIEWS = 1,   // hostd: JSON text, see network/view.h
        BORDER_ACK = 2,     // hostd: BorderResult
        BORDER_QUERY = 3,   // hostd: BorderQuery, and a descriptor
        BORDER_HELLO = 16,  // helper: BorderHello
        BORDER_APPLIED = 17, // helper: BorderResult
        BORDER_INSERT = 18, // helper: BorderInsert
        BORDER_EVENT = 19,  // helper: FlowRecord
        BORDER_ANSWERED = 20, // helper: BorderResult, when the pipe is closed
} BorderType;

typedef struct ControlHeader {
        uint32_t type, length;
        uint64_t cookie;
} ControlHeader;

typedef struct BorderHello {
        uint32_t version;
} BorderHello;

typedef struct BorderResult {
        int32_t error; // 0, or a negative errno
} BorderResult;

typedef struct BorderInsert { // a name on a port that is not proxied: the address may be reached for ttl_s
        uint16_t slot, rule_id;
        uint8_t family; // 4 or 6
        uint8_t pad[3]; // zero
        uint8_t address[16];
        uint32_t ttl_s;
        uint32_t ports; // which of the rule's: see PolicyInsert (network/compile.h)
} BorderInsert;

#define BORDER_QUERY_ANY 255

typedef struct BorderQuery { // lines of one instance's log of flows, newest first, into the pipe
        int64_t since_usec; // realtime; 0: all
        uint64_t limit;     // of lines, at least 1
        uint8_t denied;     // 1: only what was denied
        uint8_t kind;       // FlowKind, or BORDER_QUERY_ANY
        uint8_t pad[6];     // zero
        char instance[40];  // VALID_NAME, zeros behind
} BorderQuery;

_Static_assert(sizeof(BorderQuery) == 64, "a layout without holes");
_Static_assert(sizeof(ControlHeader) == 16, "a layout without holes");
_Static_assert(sizeof(BorderInsert) == 32, "a layout without holes");

#define CONTROL_TEXT_MAX (16u << 20) // views, or a part of them

typedef enum ControlSide {
        CONTROL_HOSTD, // reads what helpers say
        CONTROL_HELPER,
} ControlSide;

typedef struct ControlFrame {
        ControlHeader header;
        const void *payload; // header.length bytes; in the reader, until it is fed again. Not aligned: copy it
} ControlFrame;

typedef struct ControlReader {
        ControlSide side; // that reads
        unsigned char *data;
        size_t start, size, allocated; // bytes that were not taken yet: data[start .. size)
} ControlReader;

#define CONTROL_READER_INIT(s) ((ControlReader) {.side = (s)})

// A place for `want` more bytes; control_reader_filled() says how many came.
int control_reader_space(ControlReader *reader, size_t want, void **ret);
void control_reader_filled(ControlReader *reader, size_t size);
// 1: a whole frame, checked; 0: not yet; -EPROTO: the other side does not keep to the rules.
int control_reader_next(ControlReader *reader, ControlFrame *ret);
// Bytes that are missing for the next frame, at least 1: how much it is worth reading.
size_t control_reader_missing(const ControlReader *reader);
void control_reader_done(ControlReader *reader);

// May this be sent by the side opposite to `reader`, with this length?
bool control_header_valid(ControlSide reader, const ControlHeader *header);
