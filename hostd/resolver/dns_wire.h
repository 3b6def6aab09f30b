// SPDX-License-Identifier: GPL-2.0-or-later
// Wire: numbers in network order, and a buffer that notes when it is full. For the dns*.c files only.
#pragma once

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"

static inline uint16_t get16(const uint8_t *p) {
        return (uint16_t) (p[0] << 8 | p[1]);
}

static inline uint32_t get32(const uint8_t *p) {
        return (uint32_t) get16(p) << 16 | get16(p + 2);
}

static inline void put16(uint8_t *p, uint16_t value) {
        p[0] = (uint8_t) (value >> 8);
        p[1] = (uint8_t) value;
}

typedef struct Writer {
        uint8_t *data;
        size_t size, max;
        bool full; // something was not written
} Writer;

static inline void writer_put(Writer *w, const void *data, size_t size) {
        if (w->full || w->max - w->size < size) {
                w->full = true;
                return;
        }
        if (size > 0)
                memcpy(w->data + w->size, data, size);
        w->size += size;
}

static inline _unused_ void writer_put16(Writer *w, uint16_t value) {
        uint8_t bytes[2];

        put16(bytes, value);
        writer_put(w, bytes, sizeof(bytes));
}

static inline _unused_ void writer_put32(Writer *w, uint32_t value) {
        value = htonl(value);
        writer_put(w, &value, sizeof(value));
}
