// SPDX-License-Identifier: GPL-2.0-or-later
// FlowBook: what hostd-flow knows of the slots, and what becomes of all that is told of them: a line in the log of the slot's instance, a
// count, and of denials an event for hostd. Reads no socket.
#pragma once

#include "flow/conntrack.h"
#include "flow/log.h"
#include "flow/nflog.h"
#include "network/view.h"

typedef struct FlowBook FlowBook;

typedef struct FlowBookConfig {
        int logs; // directory; borrowed
        FlowLogSettings settings;
        void (*denied)(const FlowRecord *record, void *userdata); // at most FLOW_EVENTS_PER_SEC of one slot; may be NULL
        void *userdata;
} FlowBookConfig;

#define FLOW_EVENTS_PER_SEC 5 // of one slot, and four times as many at once: one that goes wild must not hide the others
#define FLOW_GONE_AFTER (150 * USEC_PER_SEC) // a slot that is gone is known for so long: the ends of its connections come late
#define FLOW_SWEEP_KEEP 128 // logs of instances that do not run, or are gone

int flow_book_new(const FlowBookConfig *config, FlowBook **ret);
FlowBook *flow_book_free(FlowBook *book);
DEFINE_CLEANUP(FlowBook, flow_book_free)

// Takes the slots out of `view`. An error: one of them has no log for now; all others do, and what comes of it is counted as lost.
int flow_book_apply(FlowBook *book, View *view, usec_t now);
// What resolver or proxy said; checked by flow_record_valid(). False: no such slot.
bool flow_book_record(FlowBook *book, const FlowRecord *record, usec_t now);
bool flow_book_packet(FlowBook *book, const NflogPacket *packet, usec_t now);
// The end of a connection; or, in a dump, one that lives: written down when it is one minute old, two, four and so on, then each hour, as
// seen from dumps that were begun at `previous` and at `now`.
bool flow_book_connection(FlowBook *book, const ConntrackFlow *flow, usec_t previous, usec_t now);
// `count` messages of one source that concern nobody knows whom: said in the log of each slot. 0: not known how many.
void flow_book_lost(FlowBook *book, uint64_t count, const char *reason, usec_t now);
void flow_book_tidy(FlowBook *book, usec_t now); // each minute or so
