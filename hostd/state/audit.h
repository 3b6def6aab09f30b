// SPDX-License-Identifier: GPL-2.0-or-later
// Audit: the append-only, hash-chained record of who did what. One file a day (audit/2026-01-31.jsonl), one JSON object a line.
//
// Line: {"seq":N,"time":"…","prev":"<sha256 of the line before>","uid":0,"user":"root","pid":1,"method":"io.hostd.Instance.Start","target":"a","result":"ok"|<error name>,"detail":{…}}
// The first line of a day chains to the last of the day before; the first of all to 64 zeros. audit_append() returns after
// fdatasync: the caller answers only then. A torn last line (power cut) is cut off at open and noted in the chain by a record
// of io.hostd.Audit.Repair. A day never ends before its last record: if the clock steps back, the newer file is continued.
//
// Two small files stand beside the days, {"seq":N,"hash":"…","day":"…"} of one record each, replaced atomically:
//   head  a record that surely was written; renewed at open, at close and every 100 records. A chain proves that nothing inside
//         it was changed, removed or reordered, but not that its end is still there: the head proves that, up to the last
//         renewal, against accidents, restores and careless edits. Root can rewrite days and head alike; against root only a
//         copy of the head that left this host proves anything.
//   base  the last record of the last day that audit_expire() removed: where the chain now begins.
//
// Strings are escaped to printable ASCII; those beyond 512 bytes and details beyond what fits a line of 64 KiB are cut, with
// "truncated":true in the detail.
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

typedef struct Audit Audit;
// Outcomes of audit_open(); either is in the chain as well.
typedef enum AuditOutcome {
        AUDIT_OPENED,
        AUDIT_REPAIRED, // a torn last line was cut off; no answer had gone out for it
        AUDIT_LOST,     // records that the head vouches for are gone, or the head itself is: warn the operator
} AuditOutcome;
// Continues the chain; 0700, files 0600. One writer: ERR_BUSY for a second. ERR_CONFLICT if the last line is no record.
int audit_open(const char *directory, Audit **ret, Error *err);
Audit *audit_close(Audit *audit);
DEFINE_CLEANUP(Audit, audit_close)

typedef struct AuditRecord {
        uid_t uid;
        const char *user; // may be NULL
        pid_t pid;
        const char *method, *target; // target may be NULL
        const char *result; // "ok", "started" or an error name
        json_t *detail;   // borrowed, may be NULL
} AuditRecord;
int audit_append(Audit *audit, const AuditRecord *record, Error *err);
// The same without waiting for the disk: on success `done` is called once, by a later audit_dispatch(), when the record is on disk
// or when that failed (r < 0; then it is cut off again). Those who come together share one fdatasync.
typedef void (*AuditDone)(void *userdata, int r, Error *err);
int audit_append_later(Audit *audit, const AuditRecord *record, AuditDone done, void *userdata, Error *err);
int audit_fd(const Audit *audit); // for the loop: readable when there is something for audit_dispatch()
void audit_dispatch(Audit *audit);
void audit_forget(Audit *audit, const void *userdata); // its `done` is not called any more; the record stays

// Readers open the files anew and may run in any process that can read them.
typedef struct AuditQuery {
        usec_t since, until; // since <= time < until; 0: open
        const char *method, *target, *user, *result; // exact, NULL: any
        uint64_t last; // only the last N matches, at most 10000; 0: all
} AuditQuery;
typedef int (*AuditEach)(const json_t *record, void *userdata); // not 0 ends the query; negative is its result
// Returns how many lines could not be read as records and were passed over (audit_verify() names them).
int audit_query(const char *directory, const AuditQuery *query, AuditEach each, void *userdata, Error *err);
// Walks the whole chain. ERR_CONFLICT naming file, line and what does not match. ret_records may be NULL.
int audit_verify(const char *directory, uint64_t *ret_records, Error *err);
// Removes days older than `keep_days` before the newest record; 0 keeps all. What is removed must verify (ERR_CONFLICT: evidence
// stays). Safe beside the writer: the newest day is never removed. Returns how many days went.
int audit_expire(const char *directory, uint64_t keep_days, Error *err);
