// SPDX-License-Identifier: GPL-2.0-or-later
// HttpHead: see http_head.h.
#include "proxy/http_head.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

typedef struct Text {
        const char *at;
        size_t size;
} Text;

typedef struct Fields { // what the header lines say
        unsigned hosts, lengths, encodings;
        Text host;
        uint64_t length;
        bool chunked, bad_encoding, upgrade, websocket, other_protocol;
} Fields;

static bool is_token(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c != 0 && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_blank(char c) {
        return c == ' ' || c == '\t';
}

static bool text_is(Text text, const char *word) {
        return text.size == strlen(word) && strncasecmp(text.at, word, text.size) == 0;
}

static Text text_trim(Text text) {
        while (text.size > 0 && is_blank(text.at[0]))
                text = (Text) {text.at + 1, text.size - 1};
        while (text.size > 0 && is_blank(text.at[text.size - 1]))
                text.size--;
        return text;
}

// Whether `word` is in a list with commas.
static bool text_lists(Text text, const char *word) {
        while (text.size > 0) {
                const char *comma = memchr(text.at, ',', text.size);
                size_t size = comma ? (size_t) (comma - text.at) : text.size;
                if (text_is(text_trim((Text) {text.at, size}), word))
                        return true;
                size += comma != NULL;
                text = (Text) {text.at + size, text.size - size};
        }
        return false;
}

// The next line without its end; the scan has seen that every line has one.
static Text line_next(const HttpHead *head, const char *data, size_t *at) {
        const char *end = memchr(data + *at, '\r', head->size - *at);
        Text line = {data + *at, (size_t) (end - data) - *at};

        *at += line.size + 2;
        return line;
}

// ---- scan: until the empty line

// Bytes that no head has, wherever they are. `next` is -1 where it is not there yet.
static bool byte_allowed(char c, char before, int next) {
        if (c == '\r')
                return next == -1 || next == '\n';
        if (c == '\n')
                return before == '\r';
        return c == '\t' || ((unsigned char) c >= ' ' && c != 0x7f);
}

static HttpResult head_scan(HttpHead *head, const char *data, size_t size) {
        if (size > 0 && data[0] == 0x16)
                return HTTP_TLS;
        if (size > 0 && !is_token(data[0]))
                return HTTP_NOT_HTTP;
        // The last byte is looked at again: whether a CR is allowed says the one after it.
        for (size_t i = head->scanned; i < size; i++) {
                if (!byte_allowed(data[i], i > 0 ? data[i - 1] : 0, i + 1 < size ? (unsigned char) data[i + 1] : -1))
                        return HTTP_MALFORMED;
                if (i >= HTTP_HEAD_MAX)
                        return HTTP_TOO_LONG;
                if (i >= 3 && memcmp(data + i - 3, "\r\n\r\n", 4) == 0) {
                        head->size = i + 1;
                        return HTTP_OK;
                }
        }
        head->scanned = size > 0 ? size - 1 : 0;
        return HTTP_MORE;
}

// ---- request line

static HttpResult target_parse(HttpHead *head, const char *data, Text target) {
        static const char scheme[] = "http://";
        size_t authority;

        if (strcmp(head->method, "CONNECT") == 0) {
                head->form = HTTP_FORM_AUTHORITY;
                head->host = host_parse_authority(target.at, target.size, &head->port);
                return head->host.kind == HOST_BAD || head->port == 0 ? HTTP_BAD_HOST : HTTP_OK;
        }
        head->path = (size_t) (target.at - data);
        head->path_size = target.size;
        if (target.at[0] == '/')
                head->form = HTTP_FORM_ORIGIN;
        else if (text_is(target, "*") && strcmp(head->method, "OPTIONS") == 0)
                head->form = HTTP_FORM_ASTERISK;
        else if (target.size > strlen(scheme) && strncasecmp(target.at, scheme, strlen(scheme)) == 0) {
                head->form = HTTP_FORM_ABSOLUTE;
                target = (Text) {target.at + strlen(scheme), target.size - strlen(scheme)};
                for (authority = 0; authority < target.size && !strchr("/?#", target.at[authority]);)
                        authority++;
                head->host = host_parse_authority(target.at, authority, &head->port); // a user before an '@' is no host name
                head->path = (size_t) (target.at + authority - data);
                head->path_size = target.size - authority;
                return head->host.kind == HOST_BAD ? HTTP_BAD_HOST : HTTP_OK;
        } else
                return HTTP_MALFORMED;
        return HTTP_OK;
}

static HttpResult request_line_parse(HttpHead *head, const char *data, Text line) {
        static const char version[] = " HTTP/1.";
        const char *blank = memchr(line.at, ' ', line.size);
        size_t method = blank ? (size_t) (blank - line.at) : 0, tail = strlen(version) + 1;
        Text target;

        if (text_is(line, "PRI * HTTP/2.0"))
                return HTTP_2;
        for (size_t i = 0; i < method; i++)
                if (!is_token(line.at[i]))
                        return HTTP_NOT_HTTP;
        if (method == 0 || method > HTTP_METHOD_MAX || line.size < method + 2 + tail)
                return HTTP_NOT_HTTP;
        memcpy(head->method, line.at, method);
        if (memcmp(line.at + line.size - tail, version, tail - 1) != 0)
                return HTTP_MALFORMED;
        head->minor = (unsigned) (line.at[line.size - 1] - '0');
        if (head->minor > 1)
                return HTTP_MALFORMED;
        target = (Text) {line.at + method + 1, line.size - method - 1 - tail};
        for (size_t i = 0; i < target.size; i++)
                if ((unsigned char) target.at[i] <= ' ' || (unsigned char) target.at[i] >= 0x7f)
                        return HTTP_MALFORMED;
        return target_parse(head, data, target);
}

// ---- header lines

static bool length_parse(Text value, uint64_t *ret) {
        uint64_t n = 0;

        if (value.size == 0 || value.size > 18) // below 2^63
                return false;
        for (size_t i = 0; i < value.size; i++) {
                if (value.at[i] < '0' || value.at[i] > '9')
                        return false;
                n = n * 10 + (uint64_t) (value.at[i] - '0');
        }
        *ret = n;
        return true;
}

static HttpResult field_parse(Fields *fields, Text line) {
        const char *colon = memchr(line.at, ':', line.size);
        Text name = {line.at, colon ? (size_t) (colon - line.at) : 0}, value;

        if (name.size == 0)
                return HTTP_MALFORMED;
        for (size_t i = 0; i < name.size; i++) // a folded line begins with a blank, which is no token either
                if (!is_token(name.at[i]))
                        return HTTP_MALFORMED;
        value = text_trim((Text) {colon + 1, line.size - name.size - 1});
        if (text_is(name, "host")) {
                fields->hosts++;
                fields->host = value;
        } else if (text_is(name, "content-length")) {
                fields->lengths++;
                if (!length_parse(value, &fields->length))
                        return HTTP_AMBIGUOUS;
        } else if (text_is(name, "transfer-encoding")) {
                fields->encodings++;
                fields->chunked = text_is(value, "chunked");
                fields->bad_encoding = fields->bad_encoding || !fields->chunked;
        } else if (text_is(name, "connection"))
                fields->upgrade = fields->upgrade || text_lists(value, "upgrade");
        else if (text_is(name, "upgrade")) {
                fields->websocket = text_is(value, "websocket");
                fields->other_protocol = fields->other_protocol || !fields->websocket;
        }
        return HTTP_OK;
}

static HttpResult host_check(HttpHead *head, const Fields *fields) {
        uint16_t port = 0;
        Host host;

        if (fields->hosts > 1)
                return HTTP_SEVERAL_HOSTS;
        if (fields->hosts == 0)
                return head->host.kind != HOST_BAD && head->minor == 0 ? HTTP_OK : HTTP_NO_HOST;
        host = host_parse_authority(fields->host.at, fields->host.size, &port);
        if (host.kind == HOST_BAD)
                return HTTP_BAD_HOST;
        if (head->host.kind != HOST_BAD)
                return host_equal(&host, &head->host) ? HTTP_OK : HTTP_SEVERAL_HOSTS;
        head->host = host;
        head->port = port;
        return HTTP_OK;
}

static HttpResult body_check(HttpHead *head, const Fields *fields) {
        bool body = fields->lengths > 0 || fields->encodings > 0;

        if (fields->lengths + fields->encodings > 1 || fields->bad_encoding || (fields->encodings > 0 && head->minor == 0))
                return HTTP_AMBIGUOUS;
        if (head->form == HTTP_FORM_AUTHORITY && (fields->encodings > 0 || fields->length > 0))
                return HTTP_AMBIGUOUS;
        head->websocket = fields->upgrade && fields->websocket && !fields->other_protocol && head->minor == 1;
        if (head->websocket && body)
                return HTTP_AMBIGUOUS;
        head->chunked = fields->chunked;
        head->length = fields->lengths > 0 ? fields->length : HTTP_NO_LENGTH;
        return HTTP_OK;
}

HttpResult http_head_parse(HttpHead *head, const char *data, size_t size) {
        Fields fields = {.length = 0};
        HttpResult result = head_scan(head, data, size);
        size_t at = 0;

        if (result != HTTP_OK)
                return result;
        result = request_line_parse(head, data, line_next(head, data, &at));
        while (result == HTTP_OK && at + 2 < head->size)
                result = field_parse(&fields, line_next(head, data, &at));
        if (result == HTTP_OK)
                result = host_check(head, &fields);
        return result == HTTP_OK ? body_check(head, &fields) : result;
}

// ---- what the server gets

// Between client and proxy only, or said anew by the proxy.
static bool field_is_dropped(const HttpHead *head, Text name) {
        static const char *const dropped[] = {"connection", "proxy-connection", "keep-alive", "proxy-authorization",
                                              "http2-settings", "te", "trailer"};

        for (size_t i = 0; i < ELEMENTS(dropped); i++)
                if (text_is(name, dropped[i]))
                        return true;
        return text_is(name, "upgrade") && !head->websocket;
}

static size_t append(char *to, size_t used, Text text) {
        memcpy(to + used, text.at, text.size);
        return used + text.size;
}

static size_t append_word(char *to, size_t used, const char *word) {
        return append(to, used, (Text) {word, strlen(word)});
}

static size_t append_target(const HttpHead *head, const char *data, char *ret, size_t n) {
        // A fragment is not for servers, and a query may follow the authority at once.
        const char *fragment = memchr(data + head->path, '#', head->path_size);
        Text path = {data + head->path, fragment ? (size_t) (fragment - data) - head->path : head->path_size};

        if (head->form == HTTP_FORM_ABSOLUTE && (path.size == 0 || path.at[0] != '/'))
                n = append_word(ret, n, "/");
        return append(ret, n, path);
}

size_t http_head_rewrite(const HttpHead *head, const char *data, char *ret) {
        size_t at = 0, n = append_word(ret, 0, head->method);

        (void) line_next(head, data, &at);
        n = append_word(ret, n, " ");
        n = append_target(head, data, ret, n);
        n = append_word(ret, n, head->minor == 0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
        while (at + 2 < head->size) {
                Text line = line_next(head, data, &at);
                Text name = {line.at, (size_t) ((const char *) memchr(line.at, ':', line.size) - line.at)};
                if (field_is_dropped(head, name))
                        continue;
                n = append(ret, n, line);
                n = append_word(ret, n, "\r\n");
        }
        return append_word(ret, n, head->websocket ? "Connection: Upgrade\r\n\r\n" : "Connection: close\r\n\r\n");
}

const char *http_result_text(HttpResult result) {
        static const char *const texts[_HTTP_MAX] = {
                [HTTP_MORE] = "the client did not say whom it wants in time",
                [HTTP_OK] = "a request",
                [HTTP_NOT_HTTP] = "not HTTP",
                [HTTP_MALFORMED] = "a malformed request",
                [HTTP_AMBIGUOUS] = "a request whose length is ambiguous",
                [HTTP_NO_HOST] = "no Host",
                [HTTP_SEVERAL_HOSTS] = "several hosts in one request",
                [HTTP_BAD_HOST] = "an invalid Host",
                [HTTP_TOO_LONG] = "a request head that is too long",
                [HTTP_2] = "HTTP/2 without TLS",
                [HTTP_TLS] = "TLS on the port of plain HTTP",
        };

        return (unsigned) result < _HTTP_MAX ? texts[result] : "?";
}
