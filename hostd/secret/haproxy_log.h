// SPDX-License-Identifier: GPL-2.0-or-later
// HaproxyLog: takes what the HAProxies of one instance say through a pipe and keeps it in two files of bounded size, whatever the guest behind it asks and however often.
//
// The files are on memory of the host's. So there is a bound on a line, on the lines of a second (the others are counted) and on the files; when HAProxy
// says more, the pipe is left full and HAProxy drops it. Bytes are copied where they are printable, and mean nothing here.
//
// The pipe has a name, and each side has both of its ends: neither is disturbed when the other is started again. What is said meanwhile stays in it, as
// far as it holds it.
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"

#define HAPROXY_LOG_FILE "log"
#define HAPROXY_LOG_OLD "log.1" // the one before
#define HAPROXY_LOG_PIPE "log.fifo"
#define HAPROXY_LOG_MAX (1 << 20) // of each
#define HAPROXY_LOG_LINE_MAX 1024 // what is longer is cut
#define HAPROXY_LOG_LINES_PER_SECOND 100

typedef struct HaproxyLog HaproxyLog;
// Appends to what is in `directory` (borrowed, root's), where it makes the pipe for processes of `gid`. Writing to that never blocks.
int haproxy_log_new(sd_event *event, int directory, gid_t gid, HaproxyLog **ret, Error *err);
// Calls `alert` for each line that tells of a placeholder in a wrong place, with what it says: the host, if it is a name, and ids of grants, each
// followed by a space. What comes is HAProxy's word for what a guest did: it may be anything that has this form.
typedef void (*HaproxyAlert)(void *userdata, const char *host, const char *ids);
// Calls `redacted` for each line that tells of values that were replaced in a response: ids of grants and counts in turn, each followed by a space; of that form, too.
typedef void (*HaproxyRedacted)(void *userdata, const char *counts);
void haproxy_log_listen(HaproxyLog *log, HaproxyAlert alert, HaproxyRedacted redacted, void *userdata);
HaproxyLog *haproxy_log_free(HaproxyLog *log); // writes what is still in the pipe first, within the same bounds
DEFINE_CLEANUP(HaproxyLog, haproxy_log_free)
