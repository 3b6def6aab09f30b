// SPDX-License-Identifier: GPL-2.0-or-later
// Record: what one lookup or one connection was, as resolver and proxy tell hostd-flow, and hostd-flow tells hostd of denials.
//
// One layout of a fixed size and no text that needs parsing. Each reader checks a record as if the writer were conquered: strings end with
// a NUL, hold only what may go to a log and a terminal, and are followed by zeros, so that no byte of a writer's memory goes along.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define FLOW_RECORD_VERSION 1

typedef enum FlowKind { FLOW_DNS, FLOW_TLS, FLOW_HTTP, FLOW_CONNECT, FLOW_KERNEL, _FLOW_KIND_MAX, _FLOW_KIND_INVALID = -EINVAL } FlowKind;
typedef enum FlowVerdict { FLOW_ALLOW, FLOW_DENY, FLOW_ERROR, _FLOW_VERDICT_MAX, _FLOW_VERDICT_INVALID = -EINVAL } FlowVerdict;

const char *flow_kind_to_string(FlowKind kind); // "dns"
FlowKind flow_kind_from_string(const char *text);
const char *flow_verdict_to_string(FlowVerdict verdict); // "allow"
FlowVerdict flow_verdict_from_string(const char *text);

#define FLOW_FLAG_INTERCEPTED 1u // handed to HAProxy, which ends TLS and has a log of its own (secret/haproxy_log.h)
#define FLOW_FLAG_CUT 2u         // an allowed flow that was ended by a change of policy
#define FLOW_FLAG_CACHED 4u      // answered from the resolver's cache
#define FLOW_FLAG_OPEN 8u        // not over yet: bytes and duration are those so far
#define FLOW_FLAG_INBOUND 16u    // began outside
#define FLOW_FLAGS 31u

typedef struct FlowRecord {
        uint16_t version, size, slot;
        uint8_t kind, verdict;
        uint8_t family;   // 4, 6; 0: no address
        uint8_t protocol; // IPPROTO_*; 0: none
        uint16_t port;
        uint16_t rule; // the operator's rule in `policy`, counted from 1; 0: the default
        uint8_t flags;
        uint8_t missed; // records in front of this one that its writer could not hand over; what is above 255 is told with the next
        int64_t realtime_usec; // of the beginning
        uint64_t duration_usec, tx, rx; // bytes from and to the workload
        uint8_t address[16];
        char policy[64], name[256], reason[96];
} FlowRecord;

_Static_assert(sizeof(FlowRecord) == 480, "a layout without holes");

// All zero but version and size. Fill the strings with the functions below: they keep the rules.
void flow_record_init(FlowRecord *record, FlowKind kind, FlowVerdict verdict);
// Any bytes: what may not stand in a record becomes "?", what is too long is cut.
void flow_record_set_name(FlowRecord *record, const char *name, size_t size);
void flow_record_set_policy(FlowRecord *record, const char *policy);
void flow_record_set_reason(FlowRecord *record, const char *format, ...) _printf_(2, 3);
// `data` need not be aligned.
bool flow_record_valid(const void *data, size_t size);

// A sender never waits: what hostd-flow has no room for, or nobody to take, is counted and gone, and the next that is taken says how many.
typedef struct FlowSender FlowSender;
int flow_sender_new(const char *path, FlowSender **ret);
FlowSender *flow_sender_free(FlowSender *sender);
DEFINE_CLEANUP(FlowSender, flow_sender_free)
void flow_sender_send(FlowSender *sender, const FlowRecord *record);
uint64_t flow_sender_dropped(const FlowSender *sender); // since it was made
