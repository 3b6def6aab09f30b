// SPDX-License-Identifier: GPL-2.0-or-later
// Schema types: how each type of value is checked, stored, written and freed. One row per type.
#include "model/schema_type.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "base/size.h"

// Where a row's value lies in the object that is filled.
#define FIELD(row, object, type) ((type *) ((char *) (object) + (row)->offset))
#define FIELD_CONST(row, object, type) ((const type *) ((const char *) (object) + (row)->offset))

static int out_of_memory(const SchemaRow *row, Error *err) {
        return error_set_errno(err, ENOMEM, "cannot read %s", schema_row_key(row));
}

// "KEY "value" is not valid: it must be …", with the value made harmless for a terminal and cut to a line.
static int refuse(const SchemaRow *row, const char *text, const char *wanted, Error *err) {
        _cleanup_free_ char *shown = valid_printable(text);

        if (shown && strlen(shown) > 80)
                memcpy(shown + 77, "...", 4);
        return error_set_field(err, schema_row_key(row), "%s \"%s\" is not valid: it must be %s", schema_row_key(row),
                               shown ?: "", wanted);
}

// An unset string is no value, which is not the same as an empty one.
static int append_text(char ***ret, const char *text) {
        return text ? strv_append(ret, text) : 0;
}

// Strings, with or without a closed list of values.
static int string_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        char **field = FIELD(row, object, char *), *copy;
        int r;

        if (row->choices) {
                size_t i = 0;
                while (row->choices[i] && strcmp(row->choices[i], values[0]) != 0)
                        i++;
                if (!row->choices[i])
                        return choice_refuse(row, values[0], err);
        }
        r = valid_check(row->valid, schema_row_key(row), values[0], err);
        if (r < 0)
                return r;
        copy = strdup(values[0]);
        if (!copy)
                return out_of_memory(row, err);
        free(*field);
        *field = copy;
        return 0;
}

static int string_format(const SchemaRow *row, const void *object, char ***ret) {
        return append_text(ret, *FIELD_CONST(row, object, char *));
}

static void string_clear(const SchemaRow *row, void *object) {
        free(*FIELD(row, object, char *));
        *FIELD(row, object, char *) = NULL;
}

// Built aside and swapped, so that a bad element leaves the old list. A name that comes twice is a mistake in every list we have.
static int list_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        _cleanup_strv_ char **copy = NULL;
        char ***field = FIELD(row, object, char **);

        for (size_t i = 0; values && values[i]; i++) {
                int r = valid_check(row->valid, schema_row_key(row), values[i], err);
                if (r < 0)
                        return r;
                if (strv_contains(copy, values[i]))
                        return error_set_field(err, schema_row_key(row), "%s names \"%s\" twice", schema_row_key(row),
                                               values[i]);
                if (i >= SCHEMA_LIST_MAX)
                        return error_set_field(err, schema_row_key(row), "%s has more than %d entries",
                                               schema_row_key(row), SCHEMA_LIST_MAX);
                if (strv_append(&copy, values[i]) < 0)
                        return out_of_memory(row, err);
        }
        strv_free(*field);
        *field = TAKE_PTR(copy);
        return 0;
}

static int list_format(const SchemaRow *row, const void *object, char ***ret) {
        char *const *field = *(char **const *) ((const char *) object + row->offset);

        *ret = strv_copy(field);
        return *ret || strv_length(field) == 0 ? 0 : -ENOMEM;
}

static void list_clear(const SchemaRow *row, void *object) {
        *FIELD(row, object, char **) = strv_free(*FIELD(row, object, char **));
}

// One spelling: "yes", "on" and "1" would each need a rule in every other reader of these files.
static int bool_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        bool yes = strcmp(values[0], "true") == 0;

        if (!yes && strcmp(values[0], "false") != 0)
                return refuse(row, values[0], "true or false", err);
        *FIELD(row, object, bool) = yes;
        return 0;
}

static int bool_format(const SchemaRow *row, const void *object, char ***ret) {
        return strv_append(ret, *FIELD_CONST(row, object, bool) ? "true" : "false");
}

// A decimal number and nothing else.
static int number_parse(const SchemaRow *row, const char *text, int64_t *ret, Error *err) {
        const char *digits = text + (*text == '-' && row->min < 0);
        char wanted[80];
        long long value;
        size_t n = strspn(digits, "0123456789");

        snprintf(wanted, sizeof(wanted), "a whole number from %lld to %lld", (long long) row->min, (long long) row->max);
        if (n == 0 || digits[n])
                return refuse(row, text, wanted, err);
        errno = 0;
        value = strtoll(text, NULL, 10);
        if (errno || value < row->min || value > row->max)
                return refuse(row, text, wanted, err);
        *ret = value;
        return 0;
}

// Signed and unsigned numbers share their rules; bounds of a row keep an unsigned one from being negative.
static int int_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        return number_parse(row, values[0], FIELD(row, object, int64_t), err);
}

static int int_format(const SchemaRow *row, const void *object, char ***ret) {
        return strv_append_format(ret, "%lld", (long long) *FIELD_CONST(row, object, int64_t));
}

static int count_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        int64_t value;
        int r = number_parse(row, values[0], &value, err);

        if (r < 0)
                return r;
        *FIELD(row, object, uint64_t) = (uint64_t) value;
        return 0;
}

static int count_format(const SchemaRow *row, const void *object, char ***ret) {
        return strv_append_format(ret, "%llu", (unsigned long long) *FIELD_CONST(row, object, uint64_t));
}

// Sizes of the host; those of instances are limits. UINT64_MAX in the object means that the file says nothing.
static int size_field_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        char low[SIZE_TEXT_MAX], high[SIZE_TEXT_MAX], wanted[2 * SIZE_TEXT_MAX + 40];
        uint64_t value;

        if (size_parse(values[0], &value) >= 0 && value >= (uint64_t) row->min && value <= (uint64_t) row->max) {
                *FIELD(row, object, uint64_t) = value;
                return 0;
        }
        snprintf(wanted, sizeof(wanted), "a size from %s to %s", size_format((uint64_t) row->min, low),
                 size_format((uint64_t) row->max, high));
        return refuse(row, values[0], wanted, err);
}

static int size_field_format(const SchemaRow *row, const void *object, char ***ret) {
        char buf[SIZE_TEXT_MAX];
        uint64_t value = *FIELD_CONST(row, object, uint64_t);

        return value == UINT64_MAX ? 0 : strv_append(ret, size_format(value, buf));
}

// One number and one unit, which clock_parse_span() reads again ("90s", not "1min 30s").
static const char *span_text(usec_t span, char *buf, size_t size) {
        static const struct {
                usec_t usec;
                const char *unit;
        } units[] = {{3600 * USEC_PER_SEC, "h"}, {60 * USEC_PER_SEC, "min"}, {USEC_PER_SEC, "s"}, {USEC_PER_MSEC, "ms"}, {1, "us"}};

        for (size_t i = 0; i < ELEMENTS(units); i++) {
                if (span % units[i].usec != 0 || span == 0)
                        continue;
                snprintf(buf, size, "%llu%s", (unsigned long long) (span / units[i].usec), units[i].unit);
                return buf;
        }
        return "0s";
}

static int span_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        char low[32], high[32], wanted[160];
        usec_t value;

        snprintf(wanted, sizeof(wanted), "a time such as \"90s\" from %s to %s",
                 span_text((usec_t) row->min, low, sizeof(low)), span_text((usec_t) row->max, high, sizeof(high)));
        if (clock_parse_span(values[0], &value) < 0 || value < (usec_t) row->min || value > (usec_t) row->max)
                return refuse(row, values[0], wanted, err);
        *FIELD(row, object, usec_t) = value;
        return 0;
}

static int span_format(const SchemaRow *row, const void *object, char ***ret) {
        char buf[32];

        return strv_append(ret, span_text(*FIELD_CONST(row, object, usec_t), buf, sizeof(buf)));
}

// The possible values are the best explanation.
int choice_refuse(const SchemaRow *row, const char *text, Error *err) {
        char wanted[160] = "one of";
        size_t used = strlen(wanted);

        for (size_t i = 0; row->choices[i]; i++)
                used += (size_t) snprintf(wanted + used, sizeof(wanted) - used, "%s %s", i ? "," : "", row->choices[i]);
        return refuse(row, text, wanted, err);
}

// Enums: `choices` is in the order of the enum's values.
static int choice_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        for (int i = 0; row->choices[i]; i++)
                if (strcmp(row->choices[i], values[0]) == 0) {
                        *FIELD(row, object, int) = i;
                        return 0;
                }
        return choice_refuse(row, values[0], err);
}

static int choice_format(const SchemaRow *row, const void *object, char ***ret) {
        return strv_append(ret, row->choices[*FIELD_CONST(row, object, int)]);
}

// What a limit may be is known to quotas/limit.c alone. Before it only: "max" where admission needs a number, and strings that no
// limit could be, so that its sentences never hold strange characters.
static int limit_field_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        if (row->bounded && strcmp(values[0], "max") == 0)
                return error_set_field(err, schema_row_key(row), "%s cannot be unlimited, because it is promised to the instance",
                                       schema_row_key(row));
        if (!valid_is(VALID_LABEL_VALUE, values[0]))
                return refuse(row, values[0], "a limit", err);
        return limit_parse(row->limit, values[0], FIELD(row, object, Limits), err);
}

// Unlimited is the absence of a value; "max" would otherwise stand in every file that is written.
static bool limit_is_set(const SchemaRow *row, const Limits *limits) {
        if (limit_row(row->limit)->unit == LIMIT_UNIT_CPUSET)
                return limits->cpu_pin != NULL;
        return limits->value[row->limit] != LIMIT_UNSET;
}

static int limit_field_format(const SchemaRow *row, const void *object, char ***ret) {
        const Limits *limits = FIELD_CONST(row, object, Limits);
        _cleanup_free_ char *text = NULL;

        if (!limit_is_set(row, limits))
                return 0;
        text = limit_format(row->limit, limits);
        return text ? strv_append(ret, text) : -ENOMEM;
}

static void labels_free(Labels *labels) {
        for (size_t i = 0; i < labels->n; i++) {
                free(labels->items[i].key);
                free(labels->items[i].value);
        }
        free(labels->items);
        *labels = (Labels) {0};
}

// Appends "key=value" to `labels`, which has room. The label counts before it is checked: the caller frees all on error.
static int label_add(const SchemaRow *row, const char *text, Labels *labels, Error *err) {
        const char *equals = strchr(text, '=');
        Label *label = &labels->items[labels->n];
        int r;

        if (!equals)
                return refuse(row, text, "of the form key=value", err);
        label->key = strndup(text, (size_t) (equals - text));
        label->value = strdup(equals + 1);
        labels->n++;
        if (!label->key || !label->value)
                return out_of_memory(row, err);
        r = valid_check(VALID_LABEL_KEY, schema_row_key(row), label->key, err);
        if (r >= 0)
                r = valid_check(VALID_LABEL_VALUE, schema_row_key(row), label->value, err);
        for (size_t i = 0; r >= 0 && i + 1 < labels->n; i++)
                if (strcmp(labels->items[i].key, label->key) == 0)
                        return error_set_field(err, schema_row_key(row), "%s has \"%s\" twice", schema_row_key(row), label->key);
        return r;
}

static int label_compare(const void *a, const void *b) {
        return strcmp(((const Label *) a)->key, ((const Label *) b)->key);
}

// Sorted, so that two files that list the same labels in another order are the same configuration.
static int labels_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        size_t n = strv_length(values);
        Labels labels = {0};

        if (n > SCHEMA_LIST_MAX)
                return error_set_field(err, schema_row_key(row), "%s has more than %d entries", schema_row_key(row),
                                       SCHEMA_LIST_MAX);
        labels.items = calloc(n + 1, sizeof(Label));
        if (!labels.items)
                return out_of_memory(row, err);
        for (size_t i = 0; i < n; i++) {
                int r = label_add(row, values[i], &labels, err);
                if (r < 0) {
                        labels_free(&labels);
                        return r;
                }
        }
        if (n > 0)
                qsort(labels.items, n, sizeof(Label), label_compare);
        labels_free(FIELD(row, object, Labels));
        *FIELD(row, object, Labels) = labels;
        return 0;
}

static int labels_format(const SchemaRow *row, const void *object, char ***ret) {
        const Labels *labels = FIELD_CONST(row, object, Labels);

        for (size_t i = 0; i < labels->n; i++)
                if (strv_append_format(ret, "%s=%s", labels->items[i].key, labels->items[i].value) < 0)
                        return -ENOMEM;
        return 0;
}

static void labels_clear(const SchemaRow *row, void *object) {
        labels_free(FIELD(row, object, Labels));
}

// Splits "address/prefix" and clears nothing: host bits that are set are a mistake somebody should see.
static bool pool_split(int family, const char *text, unsigned char *address, unsigned *ret_prefix) {
        size_t size = family == AF_INET ? 4 : 16;
        char copy[64], *slash;

        if (!valid_is(VALID_CIDR, text) || strlen(text) >= sizeof(copy))
                return false;
        memcpy(copy, text, strlen(text) + 1);
        slash = strchr(copy, '/');
        if (!slash)
                return false;
        *slash = 0;
        if (inet_pton(family, copy, address) != 1)
                return false;
        *ret_prefix = (unsigned) strtoul(slash + 1, NULL, 10);
        for (size_t bit = *ret_prefix; bit < size * 8; bit++)
                if (address[bit / 8] & (0x80 >> bit % 8))
                        return false;
        return true;
}

static int pool4_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        NetworkSettings *network = FIELD(row, object, NetworkSettings);
        unsigned char a[16];
        unsigned prefix;

        // Loopback, link-local, "this network" and multicast cannot be routed.
        if (!pool_split(AF_INET, values[0], a, &prefix) || prefix < 16 || prefix > 24 || a[0] == 0 || a[0] == 127 ||
            a[0] >= 224 || (a[0] == 169 && a[1] == 254))
                return refuse(row, values[0],
                              "a routable IPv4 network such as \"10.209.0.0/16\", prefix 16 to 24, host bits zero", err);
        memcpy(&network->ipv4_pool, a, 4);
        network->ipv4_prefix = prefix;
        return 0;
}

static int pool6_parse(const SchemaRow *row, char *const *values, void *object, Error *err) {
        NetworkSettings *network = FIELD(row, object, NetworkSettings);
        unsigned char a[16];
        unsigned prefix;

        // Unique local (fc00::/7) or global (2000::/3).
        if (!pool_split(AF_INET6, values[0], a, &prefix) || prefix < 64 || prefix > 112 ||
            ((a[0] & 0xfe) != 0xfc && (a[0] & 0xe0) != 0x20))
                return refuse(row, values[0],
                              "a routable IPv6 network such as \"fd68:6f73:7464::/64\", prefix 64 to 112, host bits zero", err);
        memcpy(&network->ipv6_pool, a, 16);
        network->ipv6_prefix = prefix;
        return 0;
}

static int pool_format(int family, const void *address, unsigned prefix, char ***ret) {
        char text[INET6_ADDRSTRLEN];

        return inet_ntop(family, address, text, sizeof(text)) ? strv_append_format(ret, "%s/%u", text, prefix) : -EINVAL;
}

static int pool4_format(const SchemaRow *row, const void *object, char ***ret) {
        const NetworkSettings *network = FIELD_CONST(row, object, NetworkSettings);

        return pool_format(AF_INET, &network->ipv4_pool, network->ipv4_prefix, ret);
}

static int pool6_format(const SchemaRow *row, const void *object, char ***ret) {
        const NetworkSettings *network = FIELD_CONST(row, object, NetworkSettings);

        return pool_format(AF_INET6, &network->ipv6_pool, network->ipv6_prefix, ret);
}

#define STRING (1u << CONFIG_TYPE_STRING)
#define NUMBER (1u << CONFIG_TYPE_INT | 1u << CONFIG_TYPE_INT64)

// Limits also come as a float, because "cpu = 2.5;" is what people write.
const SchemaTypeInfo schema_types[_SCHEMA_TYPE_MAX] = {
        [SCHEMA_STRING] = {"a string in quotes", STRING, false, true, 0, string_parse, string_format, string_clear},
        [SCHEMA_LIST] = {"a list of strings, [ \"a\", \"b\" ]", 0, true, true, 0, list_parse, list_format, list_clear},
        [SCHEMA_BOOL] = {"true or false", 1u << CONFIG_TYPE_BOOL, false, false, sizeof(bool), bool_parse, bool_format, NULL},
        [SCHEMA_INT] = {"a whole number", NUMBER, false, false, sizeof(int64_t), int_parse, int_format, NULL},
        [SCHEMA_COUNT] = {"a whole number", NUMBER, false, false, sizeof(uint64_t), count_parse, count_format, NULL},
        [SCHEMA_SIZE] = {"a size such as \"8GiB\"", STRING | NUMBER, false, true, sizeof(uint64_t), size_field_parse, size_field_format, NULL},
        [SCHEMA_SPAN] = {"a time such as \"90s\"", STRING | NUMBER, false, true, sizeof(usec_t), span_parse, span_format, NULL},
        [SCHEMA_CHOICE] = {"a string in quotes", STRING, false, true, sizeof(int), choice_parse, choice_format, NULL},
        [SCHEMA_LIMIT] = {"a number or a string such as \"8GiB\"", STRING | NUMBER | 1u << CONFIG_TYPE_FLOAT, false, true, 0,
                          limit_field_parse, limit_field_format, NULL},
        [SCHEMA_LABELS] = {"a list of strings, [ \"key=value\" ]", 0, true, true, 0, labels_parse, labels_format, labels_clear},
        [SCHEMA_POOL4] = {"a string in quotes", STRING, false, true, 0, pool4_parse, pool4_format, NULL},
        [SCHEMA_POOL6] = {"a string in quotes", STRING, false, true, 0, pool6_parse, pool6_format, NULL},
};
