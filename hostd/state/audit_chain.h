// SPDX-License-Identifier: GPL-2.0-or-later
// AuditChain: what writer, verifier and query of the audit log share: the days on disk, lines of bounded length, the chain.
// Internal to libstate, its tests and its fuzz target; the interface is audit.h.
#pragma once

#include <stdbool.h>

#include "base/digest.h"
#include "state/audit.h"

#define AUDIT_LINE_MAX 65536u // without the newline
#define AUDIT_SEQ_MAX (INT64_C(1) << 53) // what JSON readers agree on; more is no number of ours
#define AUDIT_DAY_SIZE 11     // "2026-01-31" and NUL
#define AUDIT_HEAD "head"
#define AUDIT_BASE "base"

// A place in the chain: the last record before it. seq 0 and 64 zeros at the very beginning.
typedef struct AuditMark {
        uint64_t seq;
        char hash[DIGEST_TEXT_MAX];
        char day[AUDIT_DAY_SIZE]; // of the file the record is in, "" for none
} AuditMark;
#define AUDIT_MARK_START \
        ((AuditMark) {.hash = "0000000000000000000000000000000000000000000000000000000000000000"})

int audit_mark_load(int dir, const char *name, AuditMark *ret, Error *err); // ERR_NOT_FOUND if absent
int audit_mark_save(int dir, const char *name, const AuditMark *mark);

int audit_directory_open(const char *directory, Error *err); // descriptor
int audit_day_open(int dir, const char *day, int flags, Error *err); // descriptor of a plain file, O_NOFOLLOW
int audit_days_load(int dir, char ***ret_days, Error *err); // sorted "2026-01-31"; other names are not ours

typedef struct AuditReader {
        int fd; // borrowed
        char *buf;
        size_t used, next;
        unsigned number; // of the current line, from 1
        const char *line; // borrowed, without newline, not terminated
        size_t size;
        bool torn; // at the end: bytes without a newline were left
} AuditReader;
void audit_reader_done(AuditReader *reader);
int audit_reader_next(AuditReader *reader); // 1, 0 at the end, -EMSGSIZE for a longer line

json_t *audit_record_parse(const char *line, size_t size); // NULL if it is no record
// Moves the mark over one line. NULL, or the reason why this line does not continue the chain.
const char *audit_chain_step(AuditMark *mark, const char *line, size_t size);
// Over a whole file. `head` may be NULL; a torn end is allowed in the newest file only, where it is a record being written.
int audit_chain_file(AuditMark *mark, int fd, const AuditMark *head, bool newest, Error *err);

// As audit_append() with another clock (tests).
int audit_append_at(Audit *audit, const AuditRecord *record, usec_t now, Error *err);
