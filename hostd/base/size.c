// SPDX-License-Identifier: GPL-2.0-or-later
// Size: see size.h.
#include "base/size.h"

#include <ctype.h>
#include <string.h>

static const struct {
        const char *unit;
        uint64_t bytes;
} size_units[] = {
        {"", 1},           {"B", 1},
        {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40},
        {"K", 1ULL << 10},   {"M", 1ULL << 20},   {"G", 1ULL << 30},   {"T", 1ULL << 40},
        {"kB", 1000},      {"MB", 1000000},     {"GB", 1000000000},  {"TB", 1000000000000},
};

int size_parse(const char *text, uint64_t *ret) {
        uint64_t value = 0;
        const char *p = text;

        if (!isdigit((unsigned char) *p))
                return -EINVAL;
        for (; isdigit((unsigned char) *p); p++)
                if (__builtin_mul_overflow(value, (uint64_t) 10, &value) ||
                    __builtin_add_overflow(value, (uint64_t) (*p - '0'), &value))
                        return -ERANGE;
        for (size_t i = 0; i < ELEMENTS(size_units); i++) {
                if (strcmp(p, size_units[i].unit) != 0)
                        continue;
                if (__builtin_mul_overflow(value, size_units[i].bytes, &value) || value > INT64_MAX)
                        return -ERANGE;
                *ret = value;
                return 0;
        }
        return -EINVAL;
}

static const char *const size_names[] = {"B", "KiB", "MiB", "GiB", "TiB"};

char *size_format(uint64_t bytes, char *buf) {
        unsigned unit = 0;

        while (bytes && bytes % 1024 == 0 && unit + 1 < ELEMENTS(size_names)) {
                bytes /= 1024;
                unit++;
        }
        snprintf(buf, SIZE_TEXT_MAX, "%llu%s", (unsigned long long) bytes, size_names[unit]);
        return buf;
}

char *size_format_short(uint64_t bytes, char *buf) {
        double value = (double) bytes;
        unsigned unit = 0;

        while (value >= 1024 && unit + 1 < ELEMENTS(size_names)) {
                value /= 1024;
                unit++;
        }
        snprintf(buf, SIZE_TEXT_MAX, unit == 0 || value >= 100 ? "%.0f%s" : value >= 10 ? "%.1f%s" : "%.2f%s", value,
                 size_names[unit]);
        return buf;
}
