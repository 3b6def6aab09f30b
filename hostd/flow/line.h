// SPDX-License-Identifier: GPL-2.0-or-later
// Line: one record as one line of JSON, as it stands in the log and reaches hostctl. Pure.
//
// The first three keys are always there, in this order, so that a filter need not parse the rest: "time" (when it was written down),
// "verdict" and "kind". A key without a value is left out.
#pragma once

#include <stddef.h>

#include "base/clock.h"
#include "border/record.h"

#define FLOW_LINE_MAX 2048 // with its newline; what is longer in a file is no line of ours

// Length of the line with its newline; there is room for every valid record. `sandbox`: the id of whose flow it was, or NULL for the instance's own.
size_t flow_line_format(const FlowRecord *record, const char *sandbox, usec_t now, char buf[FLOW_LINE_MAX]);
// Records that are not there: how many, and why.
size_t flow_line_format_lost(uint64_t count, const char *reason, usec_t now, char buf[FLOW_LINE_MAX]);

typedef struct FlowLineHead {
        char time[CLOCK_TEXT_MAX]; // sorts as text
        FlowVerdict verdict;
        FlowKind kind; // _FLOW_KIND_INVALID: "lost"
} FlowLineHead;

// `size` without the newline. False for what is not a whole line: a power cut may leave one.
bool flow_line_parse(const char *line, size_t size, FlowLineHead *ret);
const char *flow_protocol_format(uint8_t protocol, char buf[16]);
