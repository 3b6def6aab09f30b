// SPDX-License-Identifier: GPL-2.0-or-later
// A request head, cut into reads, and the body after it: however they are cut, the outcome is the same. What is written for the server
// is read again as the same request of one connection.
// The first byte says how long the pieces are.
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proxy/http_body.h"
#include "proxy/http_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rewrite(const HttpHead *head, const char *data) {
        char text[HTTP_HEAD_MAX + HTTP_REWRITE_MORE];
        HttpHead again = HTTP_HEAD_NULL;
        size_t size = http_head_rewrite(head, data, text);

        if (size > sizeof(text))
                abort();
        // Of a target without Host (HTTP/1.0, absolute) the origin form has no host any more.
        if (size > HTTP_HEAD_MAX)
                return;
        switch (http_head_parse(&again, text, size)) {
        case HTTP_OK:
                if (!host_equal(&again.host, &head->host) || again.length != head->length || again.chunked != head->chunked ||
                    again.websocket != head->websocket || again.size != size || again.form == HTTP_FORM_ABSOLUTE)
                        abort();
                break;
        case HTTP_NO_HOST:
                if (head->minor != 0)
                        abort();
                break;
        default:
                abort();
        }
}

static void check_body(const char *data, size_t size, size_t step) {
        HttpBody whole = http_body_chunked(), pieces = http_body_chunked();
        ssize_t want = http_body_feed(&whole, data, size), got = 0, n = 0;

        for (size_t at = 0; at < size && got >= 0 && pieces.state != BODY_DONE; at += step) {
                n = http_body_feed(&pieces, data + at, MIN2(step, size - at));
                got = n < 0 ? n : got + n;
        }
        if (want != got || (want >= 0 && whole.state != pieces.state))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        HttpHead whole = HTTP_HEAD_NULL, pieces = HTTP_HEAD_NULL;
        HttpResult want, got = HTTP_MORE;
        const char *data = (const char *) bytes + 1;
        size_t step;

        if (size < 1 || size > HTTP_HEAD_MAX + 4096)
                return 0;
        step = bytes[0] + 1u;
        size--;
        want = http_head_parse(&whole, data, size);
        for (size_t n = step; got == HTTP_MORE; n += step) {
                got = http_head_parse(&pieces, data, MIN2(n, size));
                if (n >= size)
                        break;
        }
        if (got != want || whole.size != pieces.size || strcmp(whole.host.name, pieces.host.name) != 0)
                abort();
        if (want != HTTP_OK)
                return 0;
        if (whole.form != HTTP_FORM_AUTHORITY)
                check_rewrite(&whole, data);
        if (whole.chunked)
                check_body(data + whole.size, size - whole.size, step);
        return 0;
}
