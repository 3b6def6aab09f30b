// SPDX-License-Identifier: GPL-2.0-or-later
// Schema: one row per configuration key, and the few functions that walk rows. Internal to the model (and its tests).
//
// A value is a vector of texts (one for a scalar). Files, the command line and defaults all become such a vector and go through
// schema_value_parse(), so that a key cannot have two sets of rules. schema_value_format() is its inverse.
#pragma once

#include <stddef.h>

#include "base/strv.h"
#include "base/valid.h"
#include "model/config_text.h"
#include "model/desired.h"

typedef enum SchemaType {
        SCHEMA_STRING, // char *, of kind `valid`
        SCHEMA_LIST,   // char **, each of kind `valid`, no two alike
        SCHEMA_BOOL,   // bool
        SCHEMA_INT,    // int64_t
        SCHEMA_COUNT,  // uint64_t
        SCHEMA_SIZE,   // uint64_t bytes
        SCHEMA_SPAN,   // usec_t
        SCHEMA_CHOICE, // int, index into `choices`
        SCHEMA_LIMIT,  // Limits at `offset`, row `limit`
        SCHEMA_LABELS, // Labels
        SCHEMA_POOL4,  // NetworkSettings at `offset`
        SCHEMA_POOL6,
        _SCHEMA_TYPE_MAX,
} SchemaType;

typedef struct Labels { Label *items; size_t n; } Labels;

struct SchemaRow {
        const char *key; // NULL: the limit's
        SchemaType type;
        size_t offset; // in the object that is filled
        ValidKind valid;
        int64_t min, max; // INT, COUNT, SIZE, SPAN
        const char *const *choices; // NULL-terminated
        LimitId limit;
        bool bounded; // LIMIT: "max" is refused, because admission counts it or all instances share what it bounds
        bool restart; // takes effect at the next start only
        const char *fallback; // default as text, NULL for none
        const char *doc; // NULL: the limit's
};

typedef struct Schema {
        const SchemaRow *rows;
        size_t n;
} Schema;

extern const Schema instance_schema, host_schema, policy_schema, policy_rule_schema;

const char *schema_row_key(const SchemaRow *row);
const char *schema_row_doc(const SchemaRow *row);
bool schema_row_is_list(const SchemaRow *row);
const SchemaRow *schema_find(const Schema *schema, const char *key); // NULL if unknown

// Checks and stores; the old value is freed. Errors name the key in `field` and sentence; on error the object is unchanged.
int schema_value_parse(const SchemaRow *row, char *const *values, void *object, Error *err);
// As it stands on a command line: one text, lists with commas.
int schema_text_parse(const SchemaRow *row, const char *text, void *object, Error *err);
// The inverse. *ret is NULL for an unset value and for an empty list.
int schema_value_format(const SchemaRow *row, const void *object, char ***ret);
char *schema_text_format(const SchemaRow *row, const void *object); // "" for unset; NULL on OOM; caller frees
char *schema_file_format(const SchemaRow *row, const void *object); // libconfig text; NULL on OOM; caller frees
char *schema_file_value(const SchemaRow *row, char *const *values); // the same of what schema_value_format() said
// Whether an object has the value of one that has nothing but fallbacks. false also where only its text would tell.
bool schema_value_is_fallback(const SchemaRow *row, const void *object, const void *plain);
void schema_value_clear(const SchemaRow *row, void *object); // frees what the row owns
void schema_clear(const Schema *schema, void *object);
int schema_apply_fallbacks(const Schema *schema, void *object, Error *err);

// Parses all members of a group; *ret_seen (may be NULL) gets a bit per row. Members named `ignore` (may be NULL) are skipped.
typedef struct SchemaInput {
        const ConfigText *text;
        const config_setting_t *group;
        const char *ignore;
        const char *list; // of which the group is one, for names of fields ("rules[2].to"), may be NULL
        size_t index;     // in it
} SchemaInput;
int schema_parse(const Schema *schema, const SchemaInput *input, void *object, uint64_t *ret_seen, Error *err);

// What parts of a set know of each other.
typedef struct ParseContext {
        const char *file; // for errors, may be NULL
        char *const *policies; // names that exist; only looked at if check_policies
        Category *const *categories; // that exist; as above
        size_t n_categories;
        bool check_policies;
        const HostConfig *host; // gives defaults to instances, may be NULL
} ParseContext;
int host_config_parse_in(const ParseContext *context, const char *text, HostConfig *ret, Error *err);
int instance_config_parse_in(const ParseContext *context, const char *name, const char *text, InstanceConfig **ret, Error *err);
int policy_parse_in(const ParseContext *context, const char *name, const char *text, Policy **ret, Error *err);
// Refuses names in `policies` that the context does not know.
int schema_check_policies(const ParseContext *context, const ConfigText *text, const char *key, char *const *policies, Error *err);
