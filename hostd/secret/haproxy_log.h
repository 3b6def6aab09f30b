// SPDX-License-Identifier: GPL-2.0-or-later
// HaproxyLog: takes what one HAProxy says through a pipe and keeps it in two files of bounded size, whatever the guest behind it asks and however often.
//
// The files are on memory of the host's. So there is a bound on a line, on the lines of a second (the others are counted) and on the files; when HAProxy
// says more, the pipe is left full and HAProxy drops it. Bytes are copied where they are printable, and mean nothing here.
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"

#define HAPROXY_LOG_FILE "log"
#define HAPROXY_LOG_OLD "log.1" // the one before
#define HAPROXY_LOG_MAX (1 << 20) // of each
#define HAPROXY_LOG_LINE_MAX 1024 // what is longer is cut
#define HAPROXY_LOG_LINES_PER_SECOND 100

typedef struct HaproxyLog HaproxyLog;
// Appends to what is in `directory` (borrowed). The caller closes `ret_fd` when the child has it; writing to it never blocks.
int haproxy_log_new(sd_event *event, int directory, HaproxyLog **ret, int *ret_fd, Error *err);
HaproxyLog *haproxy_log_free(HaproxyLog *log); // writes what is still in the pipe first, within the same bounds
DEFINE_CLEANUP(HaproxyLog, haproxy_log_free)
