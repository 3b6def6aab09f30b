// SPDX-License-Identifier: GPL-2.0-or-later
// Redactor: puts "[secret NAME]" in the place of values in a stream of bytes, however the stream is cut into pieces.
//
// Bytes that may be the beginning of a value are held until what follows says so, or until they are asked for. Each value is looked for as it is:
// a line break at its end does not count, and one within is found as CR LF, too, as terminals write it. Linear in the length of the stream for each value.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define REDACT_VALUE_MIN 8 // bytes: shorter ones are in every text
#define REDACT_NAME_MAX 32

typedef struct RedactValue {
        const char *name;
        const void *data; // borrowed; copied, and wiped by redactor_free()
        size_t size;
} RedactValue;

typedef struct Redactor Redactor;
int redactor_new(const RedactValue *values, size_t n, Redactor **ret); // those that are too short are left out
Redactor *redactor_free(Redactor *redactor);
DEFINE_CLEANUP(Redactor, redactor_free)

// One direction of one stream. A redactor may have several.
typedef struct RedactStream {
        char *held; // owned; what came and was not decided yet
        size_t n_held, room;
        char *out; // owned; what may go on
        size_t n_out, room_out;
} RedactStream;
void redact_stream_done(RedactStream *stream);

// Adds to `out`. With `flush` nothing is held: the stream ends here, or somebody waits for what is held. -ENOMEM leaves less in it than there was.
int redactor_feed(Redactor *redactor, RedactStream *stream, const char *data, size_t size, bool flush);
uint64_t redactor_count(const Redactor *redactor, const char *name); // what was replaced; NULL: of all names
