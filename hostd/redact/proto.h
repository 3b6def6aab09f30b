// SPDX-License-Identifier: GPL-2.0-or-later
// What hostd and hostd-redact say to each other, on a SOCK_SEQPACKET pair that hostd made; and how values are handed over: a pipe that holds all of
// them, each a RedactFrame with its bytes behind, the last one with no name and no bytes.
//
//   hostd                         hostd-redact
//   <-- READY ------------------- has the values, and no rights any more
//   DRAIN ----------------------> what is in the pipes now is passed on, and no more
//   <-- DONE, counts ------------ all is written, or nobody reads any more; it ends
#pragma once

#include <stdint.h>

#include "redact/redact.h"

#define REDACT_MAGIC 0x72646163u
#define REDACT_VALUES_MAX 64 // of one instance
#define REDACT_BYTES_MAX (2 * 1024 * 1024)

// Descriptors of hostd-redact: the pair, the values, and for output and errors each where they come from and where they go.
enum { REDACT_FD_CHANNEL = 3, REDACT_FD_VALUES, REDACT_FD_STREAMS, REDACT_STREAMS = 2, REDACT_FDS = 2 + 2 * REDACT_STREAMS };

typedef enum RedactType { REDACT_READY = 1, REDACT_DRAIN, REDACT_DONE } RedactType;

typedef struct RedactFrame {
        uint32_t magic, size;
        char name[REDACT_NAME_MAX + 4]; // zeros behind
} RedactFrame;

typedef struct RedactMessage {
        uint32_t magic, type;
        uint64_t counts[REDACT_VALUES_MAX]; // DONE: in the order of the values
} RedactMessage;
