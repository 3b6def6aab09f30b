// SPDX-License-Identifier: GPL-2.0-or-later
// Two values and a stream of a few letters, so that they meet often: what comes out has no value in it, and does not depend on how the stream was cut.
// The first bytes: the length of a piece, the lengths of the values, then the values, then the stream.
#include <stdlib.h>
#include <string.h>

#include "redact/redact.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *through(const RedactValue *values, const char *text, size_t size, size_t step, size_t *ret_n) {
        _cleanup_(redactor_freep) Redactor *redactor = NULL;
        RedactStream stream = {0};

        if (redactor_new(values, 2, &redactor) < 0)
                abort();
        for (size_t at = 0; at < size; at += step)
                if (redactor_feed(redactor, &stream, text + at, MIN2(step, size - at), false) < 0)
                        abort();
        if (redactor_feed(redactor, &stream, NULL, 0, true) < 0 || stream.n_held != 0)
                abort();
        char *out = TAKE_PTR(stream.out);
        *ret_n = stream.n_out;
        redact_stream_done(&stream);
        return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        size_t step, n[2], n_whole, n_pieces;
        char text[4096];

        if (size < 3 || size > sizeof(text))
                return 0;
        step = data[0] % 32 + 1;
        n[0] = 8 + data[1] % 16;
        n[1] = 8 + data[2] % 16;
        if (size < 3 + n[0] + n[1])
                return 0;
        for (size_t i = 3; i < size; i++)
                text[i] = (char) ('a' + data[i] % 3); // none of the letters of a name in its place but `a` and `c`, and those never eight in a row
        RedactValue values[] = {{"x", text + 3, n[0]}, {"y", text + 3 + n[0], n[1]}};
        const char *stream = text + 3 + n[0] + n[1];
        size_t left = size - 3 - n[0] - n[1];
        char *whole = through(values, stream, left, left + 1, &n_whole), *pieces = through(values, stream, left, step, &n_pieces);
        if (n_whole != n_pieces || (n_whole > 0 && memcmp(whole, pieces, n_whole) != 0))
                abort();
        for (size_t i = 0; i < 2; i++)
                if (n_whole > 0 && memmem(whole, n_whole, values[i].data, values[i].size))
                        abort();
        free(whole);
        free(pieces);
        return 0;
}
