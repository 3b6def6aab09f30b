// SPDX-License-Identifier: GPL-2.0-or-later
// Schema types: the table behind schema.c.
#pragma once

#include "model/schema.h"

#define SCHEMA_LIST_MAX 64 // entries of a list or of labels

typedef struct SchemaTypeInfo {
        const char *wanted; // completes "must be …" when a file has another type
        unsigned accepts;   // libconfig types, as bits; lists have their own rule
        bool list;
        bool quoted; // when written to a file
        size_t size; // of a value that is nothing but its bytes, else 0
        int (*parse)(const SchemaRow *row, char *const *values, void *object, Error *err);
        int (*format)(const SchemaRow *row, const void *object, char ***ret); // appends to *ret
        void (*clear)(const SchemaRow *row, void *object); // NULL: owns nothing
} SchemaTypeInfo;

extern const SchemaTypeInfo schema_types[_SCHEMA_TYPE_MAX];

int choice_refuse(const SchemaRow *row, const char *text, Error *err);
