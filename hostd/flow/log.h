// SPDX-License-Identifier: GPL-2.0-or-later
// FlowLog: the evidence of one instance on disk, in DIR/INSTANCE/NUMBER.jsonl: a line for each record, the highest number is written to.
//
// Bounded in size and in age; the oldest file goes first. A full disk loses records, never the program: what was lost is counted, and
// said by the first line that could be written again. A file is only ever appended to and removed, so that a reader needs no lock,
// and a cut (of power, of the process) leaves at most one torn line, which the reader skips and counts.
#pragma once

#include "flow/line.h"

typedef struct FlowLogSettings {
        uint64_t file_bytes;  // of one file, about
        uint64_t total_bytes; // of all of them
        usec_t age;           // nothing is kept longer, but for a day at most
} FlowLogSettings;

#define FLOW_LOG_DEFAULTS ((FlowLogSettings) {16 << 20, 128 << 20, 30 * 86400 * USEC_PER_SEC})
#define FLOW_LOG_FILES_MAX 256

typedef struct FlowLog FlowLog;
// `dirfd` is borrowed and must live longer; `instance` is VALID_NAME. The directory is made.
int flow_log_new(int dirfd, const char *instance, const FlowLogSettings *settings, FlowLog **ret);
FlowLog *flow_log_free(FlowLog *log);
DEFINE_CLEANUP(FlowLog, flow_log_free)

void flow_log_write(FlowLog *log, const FlowRecord *record, const char *sandbox, usec_t now); // as flow_line_format()
// `count` records of which nothing is known; `reason` has no control characters.
void flow_log_lost(FlowLog *log, uint64_t count, const char *reason, usec_t now);
// Removes what is too old. To be called now and then; writing looks only at the size.
void flow_log_tidy(FlowLog *log, usec_t now);
uint64_t flow_log_dropped(const FlowLog *log); // since it was opened, because they could not be written

// The numbers of the files in DIR/INSTANCE, ascending, at most FLOW_LOG_FILES_MAX, the newest. Returns how many, or -errno.
int flow_log_list(int logfd, uint64_t numbers[FLOW_LOG_FILES_MAX]);
void flow_log_file_name(uint64_t number, char buf[32]);
// Instances whose logs are below `dirfd` but for which `known` is false: what is older than `age` is removed, and of the others all but
// the newest `keep`.
typedef bool (*FlowLogKnown)(const char *instance, void *userdata);
int flow_log_sweep(int dirfd, usec_t older_than, size_t keep, FlowLogKnown known, void *userdata);
