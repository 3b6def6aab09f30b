// SPDX-License-Identifier: GPL-2.0-or-later
// RedactValues: the values that hostd put into a pipe (redact/proto.h), as what looks for them, and their names in the order in which they came.
#pragma once

#include "redact/proto.h"

typedef struct RedactValues {
        Redactor *redactor; // owned
        char names[REDACT_VALUES_MAX][REDACT_NAME_MAX + 1];
        size_t n;
} RedactValues;

int redact_values_read(int fd, RedactValues *ret); // to the end; `fd` stays open
void redact_values_done(RedactValues *values);
