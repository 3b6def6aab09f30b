// SPDX-License-Identifier: GPL-2.0-or-later
// Line: see line.h.
#include "flow/line.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>

#define HEAD_TIME "{\"time\":\""
#define HEAD_VERDICT "\",\"verdict\":\""
#define HEAD_KIND "\",\"kind\":\""
#define KIND_LOST "lost"

typedef struct Text {
        char *data;
        size_t n; // at most FLOW_LINE_MAX - 3: there is always room for the end
} Text;

static void put(Text *text, const char *format, ...) _printf_(2, 3);
static void put(Text *text, const char *format, ...) {
        size_t room = FLOW_LINE_MAX - 2 - text->n;
        va_list ap;
        int n;

        va_start(ap, format);
        n = vsnprintf(text->data + text->n, room, format, ap);
        va_end(ap);
        if (n > 0 && (size_t) n < room)
                text->n += (size_t) n;
}

// Of a record only printable ASCII comes here: two characters need an escape.
static void put_string(Text *text, const char *key, const char *value) {
        if (!*value)
                return;
        put(text, ",\"%s\":\"", key);
        for (; *value && text->n < FLOW_LINE_MAX - 8; value++) {
                if (*value == '"' || *value == '\\')
                        text->data[text->n++] = '\\';
                text->data[text->n++] = *value;
        }
        put(text, "\"");
}

// No reader of JSON knows more than INT64_MAX.
static void put_number(Text *text, const char *key, uint64_t value) {
        if (value)
                put(text, ",\"%s\":%llu", key, (unsigned long long) MIN2(value, (uint64_t) INT64_MAX));
}

static void put_head(Text *text, usec_t now, const char *verdict, const char *kind) {
        char time[CLOCK_TEXT_MAX];

        put(text, HEAD_TIME "%s" HEAD_VERDICT "%s" HEAD_KIND "%s\"", clock_format(now, time), verdict, kind);
}

static size_t put_end(Text *text) {
        memcpy(text->data + text->n, "}\n", 2);
        return text->n + 2;
}

const char *flow_protocol_format(uint8_t protocol, char buf[16]) {
        switch (protocol) {
        case IPPROTO_TCP:
                return "tcp";
        case IPPROTO_UDP:
                return "udp";
        case IPPROTO_ICMP:
        case IPPROTO_ICMPV6:
                return "icmp";
        default:
                (void) snprintf(buf, 16, "%u", protocol);
                return buf;
        }
}

static void put_flags(Text *text, uint8_t flags) {
        static const struct {
                uint8_t flag;
                const char *name;
        } names[] = {
                {FLOW_FLAG_INTERCEPTED, "intercepted"}, {FLOW_FLAG_CUT, "cut"}, {FLOW_FLAG_CACHED, "cached"},
                {FLOW_FLAG_OPEN, "open"}, {FLOW_FLAG_INBOUND, "inbound"},
        };

        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (flags & names[i].flag)
                        put(text, ",\"%s\":true", names[i].name);
}

size_t flow_line_format(const FlowRecord *record, const char *sandbox, usec_t now, char buf[FLOW_LINE_MAX]) {
        char time[CLOCK_TEXT_MAX], address[INET6_ADDRSTRLEN] = "", protocol[16];
        Text text = {.data = buf};

        if (record->family)
                (void) inet_ntop(record->family == 4 ? AF_INET : AF_INET6, record->address, address, sizeof(address));
        put_head(&text, now, flow_verdict_to_string(record->verdict) ?: "error", flow_kind_to_string(record->kind) ?: "kernel");
        put_string(&text, "sandbox", sandbox ?: "");
        put_string(&text, "name", record->name);
        put_string(&text, "address", address);
        if (record->protocol)
                put_string(&text, "protocol", flow_protocol_format(record->protocol, protocol));
        put_number(&text, "port", record->port);
        put_string(&text, "policy", record->policy);
        put_number(&text, "rule", record->rule);
        put_string(&text, "reason", record->reason);
        put_number(&text, "sent", record->tx);
        put_number(&text, "received", record->rx);
        put_number(&text, "duration", record->duration_usec);
        if (record->duration_usec)
                put_string(&text, "start", clock_format((usec_t) record->realtime_usec, time));
        put_flags(&text, record->flags);
        return put_end(&text);
}

size_t flow_line_format_lost(uint64_t count, const char *reason, usec_t now, char buf[FLOW_LINE_MAX]) {
        Text text = {.data = buf};

        put_head(&text, now, flow_verdict_to_string(FLOW_ERROR), KIND_LOST);
        put_number(&text, "count", count);
        put_string(&text, "reason", reason);
        return put_end(&text);
}

typedef struct Cursor {
        const char *at, *end;
} Cursor;

static bool take(Cursor *cursor, const char *literal) {
        size_t n = strlen(literal);

        if ((size_t) (cursor->end - cursor->at) < n || memcmp(cursor->at, literal, n) != 0)
                return false;
        cursor->at += n;
        return true;
}

// Up to the next quotation mark.
static bool take_word(Cursor *cursor, char *buf, size_t size) {
        const char *end = memchr(cursor->at, '"', (size_t) (cursor->end - cursor->at));
        size_t n = end ? (size_t) (end - cursor->at) : size;

        if (n >= size)
                return false;
        memcpy(buf, cursor->at, n);
        buf[n] = 0;
        cursor->at = end;
        return true;
}

bool flow_line_parse(const char *line, size_t size, FlowLineHead *ret) {
        Cursor cursor = {line, line + size};
        FlowLineHead head;
        char verdict[16], kind[16];

        if (size == 0 || line[size - 1] != '}' || memchr(line, 0, size))
                return false;
        if (!take(&cursor, HEAD_TIME) || !take_word(&cursor, head.time, sizeof(head.time)) || !take(&cursor, HEAD_VERDICT) ||
            !take_word(&cursor, verdict, sizeof(verdict)) || !take(&cursor, HEAD_KIND) || !take_word(&cursor, kind, sizeof(kind)))
                return false;
        head.verdict = flow_verdict_from_string(verdict);
        head.kind = flow_kind_from_string(kind);
        if (head.verdict < 0 || (head.kind < 0 && strcmp(kind, KIND_LOST) != 0))
                return false;
        *ret = head;
        return true;
}
