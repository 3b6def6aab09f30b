// SPDX-License-Identifier: GPL-2.0-or-later
// Recorder: the daemon hostd-flow on its event loop: reads the kernel's sockets and that of resolver and proxy, and hands what comes to the
// book. A source that has more to say than can be read loses some of it; that is counted and stands in the logs.
#pragma once

#include "border/server.h"
#include "flow/book.h"

typedef struct Recorder Recorder;

typedef struct RecorderConfig {
        sd_event *event;
        int packets, ends, dump; // flow/evidence.h; -EBADF: not to be had. The recorder's
        int records;             // SOCK_DGRAM, bound; the recorder's
        int control;             // listening; the recorder's
        int logs;                // directory; the recorder's
        uid_t writers[3];        // who may send records: resolver, proxy, hostd
        size_t n_writers;
        const char *blind;       // why a source of the kernel's is not to be had, for the logs; NULL
        FlowLogSettings settings;
} RecorderConfig;

int recorder_new(const RecorderConfig *config, Recorder **ret);
Recorder *recorder_free(Recorder *recorder);
DEFINE_CLEANUP(Recorder, recorder_free)
