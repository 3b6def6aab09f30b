// SPDX-License-Identifier: GPL-2.0-or-later
// Error: one code, one errno and one finished sentence for the person who reads it.
//
// A function that may fail returns 0 (or a positive outcome of its own) or a negative errno, and fills `Error *err`
// (its last parameter, NULL allowed) when a person will want to know. error_set() returns the negative errno, so that
// setting and returning is one line. The first error wins: error_set() on a filled Error replaces nothing.
// Codes are part of the interface: wire name, HTTP status and exit status come from one table in error.c.
#pragma once

#include "base/cleanup.h"

typedef enum ErrorCode {
        ERR_NONE,
        ERR_INTERNAL,    // our own fault, or an unexpected answer of the kernel
        ERR_INVALID,     // a field of the request is wrong; `field` names it
        ERR_NOT_FOUND,
        ERR_EXISTS,
        ERR_DENIED,      // the caller may not do this
        ERR_QUOTA,       // a limit or the admission says no; the sentence has the shortfall
        ERR_BUSY,        // legal later, not in this state
        ERR_CONFLICT,    // changed by somebody else meanwhile
        ERR_UNAVAILABLE, // a part that is needed does not answer or is missing
        ERR_DEGRADED,    // a protection cannot be enforced on this host and allow_degraded does not name it
        ERR_TIMEOUT,
        ERR_CANCELLED,
        _ERR_MAX,
        _ERR_INVALID = -EINVAL,
} ErrorCode;

typedef struct Error {
        ErrorCode code;
        int errnum;    // positive errno
        char *message; // owned; one sentence without a full stop
        char *field;   // owned; the field that is wrong, or NULL
} Error;

#define ERROR_NULL ((Error) {0})

typedef struct ErrorInfo {
        const char *name; // last part of the wire name: io.hostd.<name>
        int errnum;
        int http_status;
        int exit_status;
} ErrorInfo;

const ErrorInfo *error_code_info(ErrorCode code);
ErrorCode error_code_from_name(const char *name); // _ERR_INVALID if unknown
ErrorCode error_code_from_errno(int errnum);      // positive or negative errno

int error_set(Error *err, ErrorCode code, const char *format, ...) _printf_(3, 4);
// As error_set with ERR_INVALID; `field` is what the caller wrote ("limits.memory").
int error_set_field(Error *err, const char *field, const char *format, ...) _printf_(3, 4);
// `errnum` of either sign; the sentence is "<text>: <strerror>". Returns -errnum.
int error_set_errno(Error *err, int errnum, const char *format, ...) _printf_(3, 4);
// Prefixes "<text>: " to the sentence. Returns the error's negative errno.
int error_wrap(Error *err, const char *format, ...) _printf_(2, 3);
// "sentence (field)" or strerror for an empty one. Valid until the Error is done.
const char *error_message(const Error *err, int r);
void error_done(Error *err);
void error_move(Error *to, Error *from);

#define _cleanup_error_ _cleanup_(error_done)
