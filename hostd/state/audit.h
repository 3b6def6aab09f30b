// SPDX-License-Identifier: GPL-2.0-or-later
// Audit: the append-only, hash-chained record of who did what. One file a day (audit/2026-01-31.jsonl), one JSON object a line.
//
// Line: {"seq":N,"time":"…","prev":"<sha256 of the line before>","uid":0,"user":"root","pid":1,"method":"io.hostd.Instance.Start","target":"a","result":"ok"|<error name>,"detail":{…}}
// The first line of a day chains to the last of the day before; the first of all to 64 zeros. audit_append() returns after
// fdatasync: the caller answers only then. A torn last line (power cut) is cut off at open and noted in the chain.
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

typedef struct Audit Audit;
int audit_open(const char *directory, Audit **ret, Error *err); // continues the chain; 0700, files 0600
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

// Readers open the files anew and may run in any process that can read them.
typedef struct AuditQuery {
        usec_t since, until; // 0: open
        const char *method, *target, *user, *result; // exact, NULL: any
        uint64_t last; // only the last N matches; 0: all
} AuditQuery;
typedef int (*AuditEach)(const json_t *record, void *userdata);
int audit_query(const char *directory, const AuditQuery *query, AuditEach each, void *userdata, Error *err);
// Walks the whole chain. ERR_CONFLICT naming file, line and what does not match. ret_records may be NULL.
int audit_verify(const char *directory, uint64_t *ret_records, Error *err);
