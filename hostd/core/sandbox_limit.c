// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, limits: which of quotas/limit.h a sandbox may have, from what was asked for and what its instance has. Pure.
//
// What its instance has bounds it in any case, in the kernel; asked for above that it is a promise that nobody could keep, and is refused.
#include "core/sandbox.h"

static const struct {
        LimitId id;
        uint64_t fallback; // or its instance's, if that is less
        LimitId bound;     // of the instance
} limit_rows[] = {
        {LIMIT_MEMORY, 512ULL << 20, LIMIT_MEMORY},
        {LIMIT_PIDS, 128, LIMIT_PIDS},
        {LIMIT_CPU, LIMIT_UNSET, LIMIT_CPU},
        {LIMIT_DISK, LIMIT_UNSET, LIMIT_MEMORY}, // what is written counts as memory
        {LIMIT_OPEN_FILES, LIMIT_UNSET, LIMIT_OPEN_FILES},
        {LIMIT_IO_READ, LIMIT_UNSET, LIMIT_IO_READ},
        {LIMIT_IO_WRITE, LIMIT_UNSET, LIMIT_IO_WRITE},
        {LIMIT_IO_READ_OPS, LIMIT_UNSET, LIMIT_IO_READ_OPS},
        {LIMIT_IO_WRITE_OPS, LIMIT_UNSET, LIMIT_IO_WRITE_OPS},
};

static int limit_ask(const json_t *asked, size_t i, const Limits *instance, Limits *ret, Error *err) {
        LimitId id = limit_rows[i].id;
        uint64_t most = instance->value[limit_rows[i].bound];
        _cleanup_free_ char *wanted = NULL, *has = NULL;
        int r = 0;

        if (json_is_string(asked)) // has the same bounds as an instance's; a number has those of its parameter
                r = limit_parse(id, json_string_value(asked), ret, err);
        else if (json_is_integer(asked))
                ret->value[id] = (uint64_t) json_integer_value(asked);
        else
                ret->value[id] = MIN2(limit_rows[i].fallback, limit_rows[i].fallback == LIMIT_UNSET ? LIMIT_UNSET : most);
        if (r < 0 || ret->value[id] == LIMIT_UNSET || ret->value[id] <= most)
                return r;
        wanted = limit_format(id, ret);
        has = limit_format(limit_rows[i].bound, instance);
        return error_set_field(err, limit_row(id)->key, "%s %s is more than the instance's limit \"%s\" of %s", limit_row(id)->key, wanted ?: "?", limit_row(limit_rows[i].bound)->key,
                               has ?: "?");
}

int sandbox_limits_of(const json_t *parameters, const Limits *instance, Limits *ret, Error *err) {
        int r = 0;

        limits_init(ret);
        ret->value[LIMIT_SWAP] = 0;
        for (size_t i = 0; i < ELEMENTS(limit_rows) && r >= 0; i++)
                r = limit_ask(json_object_get(parameters, limit_row(limit_rows[i].id)->key), i, instance, ret, err);
        return r;
}

void sandbox_limits_describe(const Limits *limits, json_t *object) {
        for (size_t i = 0; i < ELEMENTS(limit_rows); i++) {
                uint64_t value = limits->value[limit_rows[i].id];
                json_t *number = value > INT64_MAX                     ? json_null()
                                 : limit_rows[i].id == LIMIT_CPU ? json_real((double) value / 1000)
                                                                        : json_integer((json_int_t) value);
                (void) json_object_set_new(object, limit_row(limit_rows[i].id)->key, number);
        }
}
