// SPDX-License-Identifier: GPL-2.0-or-later
// Time: microseconds everywhere, one formatter, one parser.
#pragma once

#include <stdint.h>

#include "base/error.h"

typedef uint64_t usec_t;

#define USEC_PER_MSEC ((usec_t) 1000)
#define USEC_PER_SEC ((usec_t) 1000000)
#define USEC_INFINITY UINT64_MAX

usec_t clock_monotonic(void);
usec_t clock_boottime(void); // goes on while the machine sleeps
usec_t clock_realtime(void);
// "2026-01-31T12:34:56.123456Z"; buf holds at least CLOCK_TEXT_MAX bytes. Returns buf.
#define CLOCK_TEXT_MAX 32
char *clock_format(usec_t realtime, char *buf);
// "2026-01-31", for names of daily files.
char *clock_format_day(usec_t realtime, char *buf);
// "90", "90s", "5min" or "5m", "2h", "500ms", "1d"; a bare number is seconds. -EINVAL or -ERANGE.
int clock_parse_span(const char *text, usec_t *ret);
// A moment that is over: "14:30" or "14:30:05" (the last one there was), "2026-01-31", "2026-01-31 14:30" (or with "T"), of the caller's time zone; as
// clock_format() writes it, with "Z" behind, of UTC. -EINVAL, or -ERANGE if it is not over at `now`.
int clock_parse_moment(const char *text, usec_t now, usec_t *ret);
// "1h 30min", "500ms"; the shortest exact form.
char *clock_format_span(usec_t span, char *buf, size_t size);
