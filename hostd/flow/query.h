// SPDX-License-Identifier: GPL-2.0-or-later
// FlowQuery: reads an instance's log backwards, the newest line first, and hands out the lines that a filter lets through, as they are.
#pragma once

#include "flow/line.h"

typedef struct FlowFilter {
        int64_t since_usec; // realtime: written down at or after; 0: all
        bool denied;        // verdict deny only
        FlowKind kind;      // _FLOW_KIND_INVALID: any
        uint64_t limit;     // of lines
} FlowFilter;

typedef struct FlowQuery FlowQuery;
// -ENOENT: nothing was ever written down of that instance. `dirfd` as for flow_log_new().
int flow_query_new(int dirfd, const char *instance, const FlowFilter *filter, FlowQuery **ret);
FlowQuery *flow_query_free(FlowQuery *query);
DEFINE_CLEANUP(FlowQuery, flow_query_free)
// 1: a line without its newline, valid until the next call; 0: the end; -EAGAIN: read for long enough without finding one, call again
// (a loop that has other things to do gets its turn in between); else the disk's error.
int flow_query_next(FlowQuery *query, const char **ret_line, size_t *ret_size);
uint64_t flow_query_torn(const FlowQuery *query); // lines that were not whole, so far
