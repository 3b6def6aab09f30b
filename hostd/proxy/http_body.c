// SPDX-License-Identifier: GPL-2.0-or-later
// HttpBody: see http_body.h.
#include "proxy/http_body.h"

#include <errno.h>

#include "base/cleanup.h"

#define SIZE_DIGITS 15 // below 2^60
#define TRAILERS_MAX 4096

HttpBody http_body_length(uint64_t length) {
        return (HttpBody) {.state = length > 0 ? BODY_LENGTH : BODY_DONE, .left = length};
}

HttpBody http_body_chunked(void) {
        return (HttpBody) {.state = BODY_SIZE_FIRST};
}

static int hex_digit(char c) {
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int expect(HttpBody *body, char c, char wanted, HttpBodyState next) {
        if (c != wanted)
                return -EBADMSG;
        body->state = next;
        return 0;
}

static int size_feed(HttpBody *body, char c) {
        int digit = hex_digit(c);

        if (digit >= 0 && body->count < SIZE_DIGITS) {
                body->left = body->left << 4 | (uint64_t) digit;
                body->count++;
                body->state = BODY_SIZE;
                return 0;
        }
        return body->state == BODY_SIZE ? expect(body, c, '\r', BODY_SIZE_LF) : -EBADMSG;
}

static int trailer_feed(HttpBody *body, char c) {
        if (++body->count > TRAILERS_MAX)
                return -EBADMSG;
        if (c == '\r') {
                body->state = body->state == BODY_TRAILER_FIRST ? BODY_LAST_LF : BODY_TRAILER_LF;
                return 0;
        }
        // The first byte of a folded line is a blank; other control bytes are nowhere.
        if ((unsigned char) c <= (body->state == BODY_TRAILER_FIRST ? ' ' : 0x1f) && (c != '\t' || body->state == BODY_TRAILER_FIRST))
                return -EBADMSG;
        body->state = BODY_TRAILER;
        return c == 0x7f ? -EBADMSG : 0;
}

static int byte_feed(HttpBody *body, char c) {
        int r;

        switch (body->state) {
        case BODY_SIZE_FIRST:
        case BODY_SIZE:
                return size_feed(body, c);
        case BODY_SIZE_LF:
                r = expect(body, c, '\n', body->left > 0 ? BODY_DATA : BODY_TRAILER_FIRST);
                body->count = 0;
                return r;
        case BODY_DATA_CR:
                return expect(body, c, '\r', BODY_DATA_LF);
        case BODY_DATA_LF:
                return expect(body, c, '\n', BODY_SIZE_FIRST);
        case BODY_TRAILER_FIRST:
        case BODY_TRAILER:
                return trailer_feed(body, c);
        case BODY_TRAILER_LF:
                return expect(body, c, '\n', BODY_TRAILER_FIRST);
        case BODY_LAST_LF:
                return expect(body, c, '\n', BODY_DONE);
        default:
                return -EBADMSG;
        }
}

ssize_t http_body_feed(HttpBody *body, const char *data, size_t size) {
        size_t at = 0;

        while (at < size && body->state != BODY_DONE) {
                if (body->state == BODY_LENGTH || body->state == BODY_DATA) {
                        size_t step = (size_t) MIN2(body->left, (uint64_t) (size - at));
                        at += step;
                        body->left -= step;
                        if (body->left == 0)
                                body->state = body->state == BODY_LENGTH ? BODY_DONE : BODY_DATA_CR;
                } else if (byte_feed(body, data[at++]) < 0)
                        return -EBADMSG;
        }
        return (ssize_t) at;
}
