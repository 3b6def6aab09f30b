// SPDX-License-Identifier: GPL-2.0-or-later
// HttpHead: the head of one HTTP/1 request: whom it is for and how long its body is. Pure: bytes in, outcome out.
//
// Stricter than servers are: a request that two readers could take for two different things (two lengths, two hosts, folded lines,
// bare CR or LF, blanks before a colon) is refused, because the proxy decides by one reading and the server acts by its own.
#pragma once

#include "proxy/host.h"

#define HTTP_HEAD_MAX 16384
#define HTTP_METHOD_MAX 31
#define HTTP_NO_LENGTH UINT64_MAX

typedef enum HttpResult {
        HTTP_MORE, // not whole yet
        HTTP_OK,
        HTTP_NOT_HTTP,
        HTTP_MALFORMED,
        HTTP_AMBIGUOUS,     // two lengths, or a length that readers understand differently
        HTTP_NO_HOST,
        HTTP_SEVERAL_HOSTS, // also a target and a Host that differ
        HTTP_BAD_HOST,
        HTTP_TOO_LONG,
        HTTP_2,             // HTTP/2 without TLS: each of its streams could name another host
        HTTP_TLS,           // a TLS record
        _HTTP_MAX,
} HttpResult;

typedef enum HttpForm { HTTP_FORM_ORIGIN, HTTP_FORM_ABSOLUTE, HTTP_FORM_AUTHORITY, HTTP_FORM_ASTERISK } HttpForm;

typedef struct HttpHead {
        size_t scanned; // bytes that were looked at; keep between calls
        size_t size;    // of the head with its empty line
        HttpForm form;
        char method[HTTP_METHOD_MAX + 1];
        size_t path, path_size; // of the target: where it begins and its length; of the absolute form what comes after the authority, can be 0
        unsigned minor;         // HTTP/1.minor
        Host host;
        uint16_t port;   // 0: none was named
        uint64_t length; // of the body; HTTP_NO_LENGTH: no body, or `chunked`
        bool chunked;
        bool websocket;  // asks to become one
} HttpHead;
#define HTTP_HEAD_NULL ((HttpHead) {.length = HTTP_NO_LENGTH})

// With all bytes so far, beginning from a HTTP_HEAD_NULL; what fails does so as soon as the bytes show it.
HttpResult http_head_parse(HttpHead *head, const char *data, size_t size);
const char *http_result_text(HttpResult result);

// The head as it goes to the server: the target in origin form, nothing that is between client and proxy only, and one request on the
// connection ("Connection: close"): a second one could name another host. `ret` has room for HTTP_HEAD_MAX + HTTP_REWRITE_MORE bytes.
// Returns the size.
#define HTTP_REWRITE_MORE 64
size_t http_head_rewrite(const HttpHead *head, const char *data, char *ret);
