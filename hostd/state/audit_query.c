// SPDX-License-Identifier: GPL-2.0-or-later
// AuditQuery: filters the audit log line by line. Only "the last N" keeps records, and for that the days are read from the
// newest back, so that a tail of a year's log costs one day.
#include "state/audit_chain.h"

#include <fcntl.h>
#include <string.h>

#include "base/strv.h"

#define QUERY_LAST_MAX 10000
#define QUERY_TIME_MAX (UINT64_C(253402300799) * USEC_PER_SEC) // later years have five digits and do not sort as text

typedef struct Query {
        const AuditQuery *filter;
        char since[CLOCK_TEXT_MAX], until[CLOCK_TEXT_MAX]; // the fixed width makes times comparable as text
        AuditEach each;
        void *userdata;
        json_t **ring; // NULL: matches go to each() at once
        size_t room;
        uint64_t n;
        int unreadable;
} Query;

// Exact: a filter that matched parts would find "a" in every target.
static bool matches_text(const json_t *record, const char *key, const char *wanted) {
        const char *value = json_string_value(json_object_get(record, key));

        return !wanted || (value && strcmp(value, wanted) == 0);
}

static bool query_matches(const Query *query, const json_t *record) {
        const char *when = json_string_value(json_object_get(record, "time"));
        const AuditQuery *f = query->filter;

        return (!f->since || strcmp(when, query->since) >= 0) && (!f->until || strcmp(when, query->until) < 0) &&
               matches_text(record, "method", f->method) && matches_text(record, "target", f->target) &&
               matches_text(record, "user", f->user) && matches_text(record, "result", f->result);
}

// A line that is no record is counted and passed over: one broken line must not hide the days after it.
static int query_line(Query *query, const AuditReader *reader) {
        json_t *record = audit_record_parse(reader->line, reader->size);
        int r = 0;

        if (!record)
                query->unreadable++;
        else if (query_matches(query, record)) {
                if (query->ring) {
                        json_t **place = &query->ring[query->n++ % query->room];
                        json_decref(*place);
                        *place = json_incref(record);
                } else
                        r = query->each(record, query->userdata);
        }
        json_decref(record);
        return r;
}

static int query_day(Query *query, int dir, const char *day, Error *err) {
        _cleanup_close_ int fd = audit_day_open(dir, day, O_RDONLY, err);
        _cleanup_(audit_reader_done) AuditReader reader = {.fd = fd};
        int r;

        // No record in a file is later than its day.
        if (query->filter->since && strncmp(day, query->since, 10) < 0)
                return 0;
        if (fd < 0)
                return fd;
        while ((r = audit_reader_next(&reader)) > 0) {
                r = query_line(query, &reader);
                if (r != 0)
                        return r;
        }
        if (r == -EMSGSIZE) { // no record; where the next one begins cannot be known
                query->unreadable++;
                return 0;
        }
        return r < 0 ? error_set_errno(err, r, "reading the audit file of %s", day) : 0;
}

static int query_all(Query *query, int dir, char *const *days, Error *err) {
        int r = 0;

        for (; r == 0 && days && *days; days++)
                r = query_day(query, dir, *days, err);
        return r;
}

// Fills found[] from its end, one day at a time. Returns how many.
static int query_last(Query *query, int dir, char *const *days, json_t **found) {
        size_t need = query->filter->last, n_days = strv_length(days);
        int r = 0;

        while (r == 0 && need > 0 && n_days > 0) {
                query->room = need;
                query->n = 0;
                query->ring = calloc(need, sizeof(json_t *));
                if (!query->ring)
                        return -ENOMEM;
                r = query_day(query, dir, days[--n_days], NULL);
                size_t k = MIN2(query->n, query->room);
                for (size_t i = 0; i < k; i++)
                        found[need - k + i] = query->ring[(query->n - k + i) % query->room];
                need -= k;
                free(TAKE_PTR(query->ring));
        }
        return r < 0 ? r : (int) (query->filter->last - need);
}

// Every reference found is given back, also when each() ends the query early.
static int query_tail(Query *query, int dir, char *const *days, Error *err) {
        size_t last = query->filter->last;
        _cleanup_free_ json_t **found = NULL;
        int r, k;

        if (last > QUERY_LAST_MAX)
                return error_set_field(err, "last", "last must be at most %d", QUERY_LAST_MAX);
        found = calloc(last, sizeof(json_t *));
        if (!found)
                return -ENOMEM;
        k = query_last(query, dir, days, found);
        r = k < 0 ? error_set_errno(err, k, "reading the audit log") : 0;
        for (size_t i = 0; i < last; i++) {
                if (found[i] && r == 0)
                        r = query->each(found[i], query->userdata);
                json_decref(found[i]);
        }
        return r;
}

int audit_query(const char *directory, const AuditQuery *filter, AuditEach each, void *userdata, Error *err) {
        _cleanup_close_ int dir = audit_directory_open(directory, err);
        Query query = {.filter = filter, .each = each, .userdata = userdata};
        _cleanup_strv_ char **days = NULL;
        int r;

        if (dir < 0)
                return dir;
        r = audit_days_load(dir, &days, err);
        if (r < 0)
                return r;
        clock_format(MIN2(filter->since, QUERY_TIME_MAX), query.since);
        clock_format(MIN2(filter->until, QUERY_TIME_MAX), query.until);
        r = filter->last ? query_tail(&query, dir, days, err) : query_all(&query, dir, days, err);
        return r < 0 ? r : query.unreadable;
}
