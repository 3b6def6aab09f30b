// SPDX-License-Identifier: GPL-2.0-or-later
// HttpBody: where the body of one request ends. What comes after it is another request, and the proxy lets none follow.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum HttpBodyState {
        BODY_DONE,
        BODY_LENGTH,     // `left` bytes
        BODY_SIZE_FIRST, // chunked: the first digit of a chunk's size
        BODY_SIZE,
        BODY_SIZE_LF,
        BODY_DATA, // `left` bytes of it
        BODY_DATA_CR,
        BODY_DATA_LF,
        BODY_TRAILER_FIRST, // the first byte of a line after the last chunk
        BODY_TRAILER,
        BODY_TRAILER_LF,
        BODY_LAST_LF,
} HttpBodyState;

typedef struct HttpBody {
        HttpBodyState state;
        uint64_t left;
        unsigned count; // digits of a size, or bytes of trailers
} HttpBody;

HttpBody http_body_length(uint64_t length);
HttpBody http_body_chunked(void);
// How many of the bytes belong to the body; fewer than `size` only where it ends. -EBADMSG: not chunks as they are written, or with
// extensions, of which readers make different things.
ssize_t http_body_feed(HttpBody *body, const char *data, size_t size);
