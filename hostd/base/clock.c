// SPDX-License-Identifier: GPL-2.0-or-later
// Clock: see clock.h.
#include "base/clock.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

static const struct {
        const char *unit;
        usec_t usec;
} clock_units[] = {
        {"d", 86400 * USEC_PER_SEC}, {"h", 3600 * USEC_PER_SEC}, {"min", 60 * USEC_PER_SEC}, {"m", 60 * USEC_PER_SEC}, // written as the first of equal ones
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

usec_t clock_boottime(void) {
        return clock_get(CLOCK_BOOTTIME);
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

typedef struct Moment {
        struct tm tm;
        usec_t fraction;
        bool has_date, utc;
} Moment;

// Exactly `digits` digits from `min` to `max`, and what they end with.
static const char *parse_digits(const char *p, unsigned digits, int min, int max, int *ret) {
        int n = 0;

        if (!p)
                return NULL;
        for (; digits > 0; digits--, p++) {
                if (!isdigit((unsigned char) *p))
                        return NULL;
                n = n * 10 + (*p - '0');
        }
        *ret = n;
        return n >= min && n <= max ? p : NULL;
}

static const char *parse_char(const char *p, char c) {
        return p && *p == c ? p + 1 : NULL;
}

static const char *parse_date(const char *p, Moment *m) {
        int year, month;

        p = parse_char(parse_digits(p, 4, 1970, 9999, &year), '-');
        p = parse_char(parse_digits(p, 2, 1, 12, &month), '-');
        p = parse_digits(p, 2, 1, 31, &m->tm.tm_mday);
        if (!p)
                return NULL;
        m->tm.tm_year = year - 1900;
        m->tm.tm_mon = month - 1;
        m->has_date = true;
        return p;
}

static const char *parse_fraction(const char *p, usec_t *ret) {
        usec_t unit = USEC_PER_SEC / 10;

        if (!isdigit((unsigned char) *p))
                return NULL;
        for (; isdigit((unsigned char) *p); p++, unit /= 10)
                *ret += (usec_t) (*p - '0') * unit;
        return p;
}

static const char *parse_time(const char *p, Moment *m) {
        p = parse_char(parse_digits(p, 2, 0, 23, &m->tm.tm_hour), ':');
        p = parse_digits(p, 2, 0, 59, &m->tm.tm_min);
        if (p && *p == ':') {
                p = parse_digits(p + 1, 2, 0, 59, &m->tm.tm_sec);
                if (p && *p == '.')
                        p = parse_fraction(p + 1, &m->fraction);
        }
        if (p && *p == 'Z') {
                m->utc = true;
                p++;
        }
        return p;
}

static int moment_of(const Moment *m, usec_t *ret) {
        struct tm tm = m->tm, back;
        time_t t;

        tm.tm_isdst = -1;
        t = m->utc ? timegm(&tm) : mktime(&tm);
        // Days that a month does not have become others.
        back = tm;
        if (t < 0 || back.tm_mday != m->tm.tm_mday || back.tm_mon != m->tm.tm_mon)
                return -EINVAL;
        *ret = (usec_t) t * USEC_PER_SEC + m->fraction;
        return 0;
}

// Today's, or of the day before where that is still to come.
static int moment_of_day(Moment *m, usec_t now, usec_t *ret) {
        for (int back = 0; back < 2; back++) {
                time_t t = (time_t) (now / USEC_PER_SEC) - back * 86400;
                struct tm day;
                int r;
                if (!(m->utc ? gmtime_r(&t, &day) : localtime_r(&t, &day)))
                        return -EINVAL;
                m->tm.tm_year = day.tm_year;
                m->tm.tm_mon = day.tm_mon;
                m->tm.tm_mday = day.tm_mday;
                r = moment_of(m, ret);
                if (r < 0 || *ret <= now)
                        return r;
        }
        return -EINVAL;
}

int clock_parse_moment(const char *text, usec_t now, usec_t *ret) {
        Moment m = {.fraction = 0};
        const char *p = text;
        usec_t when;
        int r;

        if (strchr(text, '-')) {
                p = parse_date(p, &m);
                if (p && (*p == ' ' || *p == 'T'))
                        p = parse_time(p + 1, &m);
        } else
                p = parse_time(p, &m);
        if (!p || *p)
                return -EINVAL;
        r = m.has_date ? moment_of(&m, &when) : moment_of_day(&m, now, &when);
        if (r < 0)
                return r;
        if (when > now)
                return -ERANGE;
        *ret = when;
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
