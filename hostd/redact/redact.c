// SPDX-License-Identifier: GPL-2.0-or-later
// Redactor: see redact.h. Whole values are found by memmem(), which is linear; what might be the beginning of one at the end of what is there by the
// failure function of Knuth, Morris and Pratt.
#include "redact/redact.h"

#include <string.h>

typedef struct Pattern {
        char name[REDACT_NAME_MAX + 1];
        char *bytes;
        size_t size;
        uint32_t *fail; // of each length: the longest beginning that is also an end of it
        uint64_t count;
        size_t next; // where it is in what is looked at; SIZE_MAX: nowhere
} Pattern;

struct Redactor {
        Pattern *patterns;
        size_t n;
};

static void pattern_done(Pattern *p) {
        if (p->bytes)
                explicit_bzero(p->bytes, p->size);
        free(p->bytes);
        if (p->fail) // it tells of the value's repetitions
                explicit_bzero(p->fail, p->size * sizeof(uint32_t));
        free(p->fail);
}

Redactor *redactor_free(Redactor *redactor) {
        if (!redactor)
                return NULL;
        for (size_t i = 0; i < redactor->n; i++)
                pattern_done(redactor->patterns + i);
        free(redactor->patterns);
        free(redactor);
        return NULL;
}

void redact_stream_done(RedactStream *stream) {
        if (stream->held)
                explicit_bzero(stream->held, stream->n_held);
        free(stream->held);
        free(stream->out);
        *stream = (RedactStream) {0};
}

static void pattern_fail(Pattern *p) {
        uint32_t k = 0;

        p->fail[0] = 0;
        for (size_t i = 1; i < p->size; i++) {
                while (k > 0 && p->bytes[i] != p->bytes[k])
                        k = p->fail[k - 1];
                k += p->bytes[i] == p->bytes[k];
                p->fail[i] = k;
        }
}

static int pattern_add(Redactor *redactor, const char *name, const char *bytes, size_t size) {
        Pattern *p = redactor->patterns + redactor->n;

        *p = (Pattern) {.bytes = malloc(size), .fail = calloc(size, sizeof(uint32_t)), .size = size};
        redactor->n++;
        if (!p->bytes || !p->fail)
                return -ENOMEM;
        (void) snprintf(p->name, sizeof(p->name), "%s", name);
        memcpy(p->bytes, bytes, size);
        pattern_fail(p);
        return 0;
}

// With CR LF for each LF.
static int pattern_add_terminal(Redactor *redactor, const char *name, const char *bytes, size_t size) {
        char *text = malloc(2 * size);
        size_t n = 0;
        int r;

        if (!text)
                return -ENOMEM;
        for (size_t i = 0; i < size; i++) {
                if (bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r'))
                        text[n++] = '\r';
                text[n++] = bytes[i];
        }
        r = n > size ? pattern_add(redactor, name, text, n) : 0;
        explicit_bzero(text, 2 * size);
        free(text);
        return r;
}

int redactor_new(const RedactValue *values, size_t n, Redactor **ret) {
        _cleanup_(redactor_freep) Redactor *redactor = calloc(1, sizeof(Redactor));

        if (!redactor || !(redactor->patterns = calloc(2 * n + 1, sizeof(Pattern))))
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                const char *bytes = values[i].data;
                size_t size = values[i].size;
                while (size > 0 && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r'))
                        size--;
                if (size < REDACT_VALUE_MIN)
                        continue;
                int r = pattern_add(redactor, values[i].name, bytes, size);
                if (r >= 0)
                        r = pattern_add_terminal(redactor, values[i].name, bytes, size);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(redactor);
        return 0;
}

uint64_t redactor_count(const Redactor *redactor, const char *name) {
        uint64_t count = 0;

        for (size_t i = 0; i < redactor->n; i++)
                if (!name || strcmp(redactor->patterns[i].name, name) == 0)
                        count += redactor->patterns[i].count;
        return count;
}

// ---- bytes ----

static int reserve(char **bytes, size_t *room, size_t size) {
        size_t bigger = MAX2(*room, (size_t) 4096);
        char *grown;

        if (size <= *room)
                return 0;
        while (bigger < size)
                bigger *= 2;
        grown = realloc(*bytes, bigger);
        if (!grown)
                return -ENOMEM;
        *bytes = grown;
        *room = bigger;
        return 0;
}

static int put(RedactStream *stream, const char *bytes, size_t size) {
        int r = reserve(&stream->out, &stream->room_out, stream->n_out + size);

        if (r < 0 || size == 0)
                return r;
        memcpy(stream->out + stream->n_out, bytes, size);
        stream->n_out += size;
        return 0;
}

static int put_name(RedactStream *stream, Pattern *p) {
        char text[REDACT_NAME_MAX + 16];
        int n = snprintf(text, sizeof(text), "[secret %s]", p->name);

        p->count++;
        return put(stream, text, (size_t) n);
}

static void seek(Pattern *p, const char *bytes, size_t from, size_t size) {
        const char *at = from < size ? memmem(bytes + from, size - from, p->bytes, p->size) : NULL;

        p->next = at ? (size_t) (at - bytes) : SIZE_MAX;
}

// The first, and of those that begin there the longest.
static Pattern *first_match(Redactor *redactor) {
        Pattern *first = NULL;

        for (size_t i = 0; i < redactor->n; i++) {
                Pattern *p = redactor->patterns + i;
                if (p->next != SIZE_MAX && (!first || p->next < first->next || (p->next == first->next && p->size > first->size)))
                        first = p;
        }
        return first;
}

// How many bytes at the end are a beginning of the value.
static size_t beginning(const Pattern *p, const char *bytes, size_t size) {
        size_t tail = MIN2(size, p->size - 1), k = 0;

        for (const char *c = bytes + size - tail; c < bytes + size; c++) {
                while (k > 0 && (k == p->size || *c != p->bytes[k]))
                        k = p->fail[k - 1];
                k += *c == p->bytes[k];
        }
        return k;
}

// Where what has to be held begins.
static size_t hold_from(const Redactor *redactor, const char *bytes, size_t from, size_t size) {
        size_t longest = 0;

        for (size_t i = 0; i < redactor->n; i++)
                longest = MAX2(longest, beginning(redactor->patterns + i, bytes + from, size - from));
        return size - longest;
}

// A value that begins where a longer one might have begun waits with it.
static int decide(Redactor *redactor, RedactStream *stream, bool flush, size_t *ret_from) {
        size_t from = 0, until = flush ? stream->n_held : hold_from(redactor, stream->held, 0, stream->n_held);
        Pattern *p;
        int r = 0;

        for (size_t i = 0; i < redactor->n; i++)
                seek(redactor->patterns + i, stream->held, 0, stream->n_held);
        while (r >= 0 && (p = first_match(redactor)) && p->next < until) {
                size_t at = p->next;
                r = put(stream, stream->held + from, at - from);
                if (r >= 0)
                        r = put_name(stream, p);
                from = at + p->size;
                for (size_t i = 0; i < redactor->n; i++)
                        if (redactor->patterns[i].next < from)
                                seek(redactor->patterns + i, stream->held, from, stream->n_held);
                if (!flush && from > until)
                        until = hold_from(redactor, stream->held, from, stream->n_held);
        }
        if (r >= 0 && until > from) {
                r = put(stream, stream->held + from, until - from);
                from = until;
        }
        *ret_from = from;
        return r;
}

int redactor_feed(Redactor *redactor, RedactStream *stream, const char *data, size_t size, bool flush) {
        size_t from = 0;
        int r = reserve(&stream->held, &stream->room, stream->n_held + size);

        if (r < 0)
                return r;
        if (size > 0)
                memcpy(stream->held + stream->n_held, data, size);
        stream->n_held += size;
        if (stream->n_held == 0)
                return 0;
        r = decide(redactor, stream, flush, &from);
        stream->n_held -= from;
        memmove(stream->held, stream->held + from, stream->n_held);
        return r;
}
