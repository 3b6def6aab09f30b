// SPDX-License-Identifier: GPL-2.0-or-later
// What a helper of the border may send to hostd (first byte even) and hostd to it (odd), over arbitrary bytes in arbitrary pieces; and the
// packets of the other two sockets.
#include <assert.h>
#include <string.h>

#include "border/control.h"
#include "border/resolve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const ControlReader *reader, const ControlFrame *frame) {
        FlowRecord record;
        BorderInsert insert;

        assert(control_header_valid(reader->side, &frame->header));
        if (frame->header.type == BORDER_EVENT) {
                memcpy(&record, frame->payload, sizeof(record));
                assert(frame->header.length == sizeof(record) && memchr(record.policy, 0, sizeof(record.policy)) &&
                       memchr(record.name, 0, sizeof(record.name)) && memchr(record.reason, 0, sizeof(record.reason)) &&
                       flow_verdict_to_string(record.verdict) && flow_kind_to_string(record.kind));
        }
        if (frame->header.type == BORDER_INSERT) {
                memcpy(&insert, frame->payload, sizeof(insert));
                assert(frame->header.length == sizeof(insert) && insert.slot && (insert.family == 4 || insert.family == 6));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        ControlReader reader;
        size_t step, taken = 0, given = 0;
        int r = 0;

        if (resolve_question_valid(data, size))
                assert(size == sizeof(ResolveQuestion) && border_name_valid((const char *) data + offsetof(ResolveQuestion, name)));
        if (resolve_answer_valid(data, size))
                assert(size == sizeof(ResolveAnswer));
        if (size < 2)
                return 0;
        reader = CONTROL_READER_INIT(data[0] & 1 ? CONTROL_HELPER : CONTROL_HOSTD);
        step = (size_t) data[1] + 1;
        data += 2, size -= 2;
        while (r >= 0 && given < size) {
                ControlFrame frame;
                void *place;
                size_t n = MIN2(step, size - given);
                assert(control_reader_missing(&reader) > 0);
                if (control_reader_space(&reader, n, &place) < 0)
                        break;
                memcpy(place, data + given, n);
                control_reader_filled(&reader, n);
                given += n;
                while ((r = control_reader_next(&reader, &frame)) > 0) {
                        check(&reader, &frame);
                        taken += sizeof(frame.header) + frame.header.length;
                        assert(taken <= given);
                }
        }
        control_reader_done(&reader);
        return 0;
}
