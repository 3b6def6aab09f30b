// SPDX-License-Identifier: GPL-2.0-or-later
// Control: see control.h.
#include "border/control.h"

#include <string.h>

#include "base/valid.h"

typedef struct ControlRow {
        BorderType type;
        ControlSide reader;
        uint32_t min, max; // of the payload
} ControlRow;

static const ControlRow rows[] = {
        {BORDER_VIEWS, CONTROL_HELPER, 2, CONTROL_TEXT_MAX},
        {BORDER_ACK, CONTROL_HELPER, sizeof(BorderResult), sizeof(BorderResult)},
        {BORDER_QUERY, CONTROL_HELPER, sizeof(BorderQuery), sizeof(BorderQuery)},
        {BORDER_ANSWERED, CONTROL_HOSTD, sizeof(BorderResult), sizeof(BorderResult)},
        {BORDER_HELLO, CONTROL_HOSTD, sizeof(BorderHello), sizeof(BorderHello)},
        {BORDER_APPLIED, CONTROL_HOSTD, sizeof(BorderResult), sizeof(BorderResult)},
        {BORDER_INSERT, CONTROL_HOSTD, sizeof(BorderInsert), sizeof(BorderInsert)},
        {BORDER_EVENT, CONTROL_HOSTD, sizeof(FlowRecord), sizeof(FlowRecord)},
};

bool control_header_valid(ControlSide reader, const ControlHeader *header) {
        for (size_t i = 0; i < ELEMENTS(rows); i++)
                if ((uint32_t) rows[i].type == header->type)
                        return rows[i].reader == reader && header->length >= rows[i].min && header->length <= rows[i].max;
        return false;
}

static bool insert_valid(const BorderInsert *insert) {
        static const uint8_t zero[16];

        if (insert->slot == 0 || insert->rule_id == 0 || insert->ttl_s == 0 || insert->ports == 0 || memcmp(insert->pad, zero, sizeof(insert->pad)) != 0)
                return false;
        return insert->family == 6 || (insert->family == 4 && memcmp(insert->address + 4, zero, 12) == 0);
}

static bool query_valid(const BorderQuery *query) {
        static const uint8_t zero[sizeof(query->instance)];
        size_t n = strnlen(query->instance, sizeof(query->instance));

        return n < sizeof(query->instance) && memcmp(query->instance + n, zero, sizeof(query->instance) - n) == 0 &&
               valid_is(VALID_NAME, query->instance) && memcmp(query->pad, zero, sizeof(query->pad)) == 0 && query->denied <= 1 && query->limit > 0 &&
               query->since_usec >= 0 && (query->kind < _FLOW_KIND_MAX || query->kind == BORDER_QUERY_ANY);
}

// What a fixed layout can still get wrong. Reads copies: the payload lies anywhere in the stream.
static bool payload_valid(const ControlFrame *frame) {
        BorderInsert insert;
        BorderResult result;
        BorderQuery query;

        switch ((BorderType) frame->header.type) {
        case BORDER_INSERT:
                memcpy(&insert, frame->payload, sizeof(insert));
                return insert_valid(&insert);
        case BORDER_EVENT:
                return flow_record_valid(frame->payload, frame->header.length);
        case BORDER_QUERY:
                memcpy(&query, frame->payload, sizeof(query));
                return query_valid(&query);
        case BORDER_ACK:
        case BORDER_ANSWERED:
        case BORDER_APPLIED:
                memcpy(&result, frame->payload, sizeof(result));
                return result.error <= 0 && result.error > -4096;
        case BORDER_VIEWS:
                return !memchr(frame->payload, 0, frame->header.length);
        case BORDER_HELLO:
                return true;
        }
        return false;
}

int control_reader_space(ControlReader *reader, size_t want, void **ret) {
        size_t used = reader->size - reader->start;

        if (reader->start > 0) {
                memmove(reader->data, reader->data + reader->start, used);
                reader->start = 0;
                reader->size = used;
        }
        if (reader->allocated - used < want) {
                unsigned char *p = realloc(reader->data, used + want);
                if (!p)
                        return -ENOMEM;
                reader->data = p;
                reader->allocated = used + want;
        }
        *ret = reader->data + used;
        return 0;
}

void control_reader_filled(ControlReader *reader, size_t size) {
        reader->size += size;
}

size_t control_reader_missing(const ControlReader *reader) {
        size_t used = reader->size - reader->start;
        ControlHeader header;

        if (used < sizeof(header))
                return sizeof(header) - used;
        memcpy(&header, reader->data + reader->start, sizeof(header));
        if (!control_header_valid(reader->side, &header) || used >= sizeof(header) + header.length)
                return 1;
        return sizeof(header) + header.length - used;
}

int control_reader_next(ControlReader *reader, ControlFrame *ret) {
        size_t used = reader->size - reader->start;
        ControlFrame frame;

        if (used < sizeof(frame.header))
                return 0;
        memcpy(&frame.header, reader->data + reader->start, sizeof(frame.header));
        // Before anything of it is kept: a length is believed only where the type allows it.
        if (!control_header_valid(reader->side, &frame.header))
                return -EPROTO;
        if (used < sizeof(frame.header) + frame.header.length)
                return 0;
        frame.payload = reader->data + reader->start + sizeof(frame.header);
        if (!payload_valid(&frame))
                return -EPROTO;
        reader->start += sizeof(frame.header) + frame.header.length;
        *ret = frame;
        return 1;
}

void control_reader_done(ControlReader *reader) {
        free(reader->data);
        *reader = CONTROL_READER_INIT(reader->side);
}
