// SPDX-License-Identifier: GPL-2.0-or-later
// Clock: see clock.h.
#include "base/clock.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

static const struct {
        const char *unit;
        usec_t usec;
} clock_units[] = {
        {"d", 86400 * USEC_PER_SEC}, {"h", 3600 * USEC_PER_SEC}, {"min", 60 * USEC_PER_SEC},
        {"s", USEC_PER_SEC},         {"ms", USEC_PER_MSEC},      {"us", 1},
};

static usec_t clock_get(clockid_t id) {
        struct timespec ts;

        clock_gettime(id, &ts);
        return (usec_t) ts.tv_sec * USEC_PER_SEC + (usec_t) ts.tv_nsec / 1000;
}

usec_t clock_monotonic(void) {
        return clock_get(CLOCK_MONOTONIC);
}

usec_t clock_realtime(void) {
        return clock_get(CLOCK_REALTIME);
}

char *clock_format(usec_t realtime, char *buf) {
        time_t sec = (time_t) (realtime / USEC_PER_SEC);
        struct tm tm;
        size_t n;

        gmtime_r(&sec, &tm);
        n = strftime(buf, CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(buf + n, CLOCK_TEXT_MAX - n, ".%06uZ", (unsigned) (realtime % USEC_PER_SEC));
        return buf;
}

char *clock_format_day(usec_t realtime, char *buf) {
        time_t sec = (time_t) (realtime / USEC_PER_SEC);
        struct tm tm;

        gmtime_r(&sec, &tm);
        strftime(buf, CLOCK_TEXT_MAX, "%Y-%m-%d", &tm);
        return buf;
}

int clock_parse_span(const char *text, usec_t *ret) {
        usec_t value = 0, factor = USEC_PER_SEC;
        const char *p = text;

        if (!isdigit((unsigned char) *p))
                return -EINVAL;
        for (; isdigit((unsigned char) *p); p++)
                if (__builtin_mul_overflow(value, (usec_t) 10, &value) ||
                    __builtin_add_overflow(value, (usec_t) (*p - '0'), &value))
                        return -ERANGE;
        if (*p) {
                size_t i;
                for (i = 0; i < ELEMENTS(clock_units); i++)
                        if (strcmp(p, clock_units[i].unit) == 0)
                                break;
                if (i == ELEMENTS(clock_units))
                        return -EINVAL;
                factor = clock_units[i].usec;
        }
        if (__builtin_mul_overflow(value, factor, &value))
                return -ERANGE;
        *ret = value;
        return 0;
}

char *clock_format_span(usec_t span, char *buf, size_t size) {
        size_t used = 0;

        snprintf(buf, size, "0s");
        for (size_t i = 0; i < ELEMENTS(clock_units); i++) {
                usec_t n = span / clock_units[i].usec;
                if (n == 0)
                        continue;
                span %= clock_units[i].usec;
                int k = snprintf(buf + used, size - used, "%s%llu%s", used ? " " : "", (unsigned long long) n,
                                 clock_units[i].unit);
                if (k < 0 || (size_t) k >= size - used)
                        break;
                used += (size_t) k;
        }
        return buf;
}
