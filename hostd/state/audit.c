// SPDX-License-Identifier: GPL-2.0-or-later
// Audit: the writer. One line, one write(2), one fdatasync(2), and only then is the record answered for: whatever fails before that
// is cut off again, with all that was written behind it, so that the next record follows the last one that was answered for.
#include "state/audit_chain.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/flush.h"
#include "base/io.h"
#include "base/strv.h"
#include "base/valid.h"

#define AUDIT_RESERVE (1 << 20)
#define AUDIT_HEAD_EVERY 100
#define AUDIT_TEXT_MAX 512
#define AUDIT_DETAIL_START 24576 // of a cut detail's text; its quotes may double it, and a line holds 64 KiB
#define AUDIT_REPAIR "io.hostd.Audit.Repair"

// Somebody who goes on when a record is on disk.
typedef struct AuditWait {
        struct AuditWait *next;
        uint64_t seq;
        bool decided;
        int result;
        AuditDone done;
        void *userdata;
} AuditWait;

typedef struct AuditEnd { // where the log ends
        AuditMark mark;
        off_t size; // of the file of mark.day
} AuditEnd;

struct Audit {
        int dir;  // also holds the writer's lock
        int file; // of the newest day
        off_t reserved; // in it: up to here there is room, whatever the file system has left
        AuditEnd written, safe; // safe: on disk and answered for; it follows `written` by fdatasync()
        uint64_t head_seq;      // what the head vouches for
        bool broken;
        Flush flush;
        AuditEnd flushing; // what is on disk when the flush that runs has succeeded
        int told;          // eventfd: there is something for audit_dispatch()
        AuditWait *waits;
};

// ---- the line ----

// JSON text of printable ASCII: nothing in the log can move a terminal's cursor.
static char *dump_ascii(const json_t *value) {
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY), *out, *to;
        size_t n = 0;

        for (const char *p = text; p && *p; p++)
                n += *p == 0x7f;
        if (n == 0)
                return text;
        // DEL is the one control character that JSON does not have escaped.
        out = to = malloc(strlen(text) + n * 5 + 1);
        for (const char *p = text; out && *p; p++)
                if (*p == 0x7f)
                        to = stpcpy(to, "\\u007f");
                else
                        *to++ = *p;
        if (out)
                *to = 0;
        free(text);
        return out;
}

// Text from anywhere: what is not UTF-8 is shown as \xNN, what is long is cut.
static json_t *text_value(const char *text, bool *cut) {
        _cleanup_free_ char *shown = NULL;
        size_t n;

        if (!text)
                return json_null();
        n = strnlen(text, AUDIT_TEXT_MAX + 1);
        if (!valid_utf8(text, strlen(text))) {
                shown = valid_printable(text);
                if (!shown)
                        return NULL;
                text = shown;
                n = strlen(shown);
        }
        if (n > AUDIT_TEXT_MAX) {
                *cut = true;
                for (n = AUDIT_TEXT_MAX; (text[n] & 0xc0) == 0x80; n--)
                        ;
        }
        return json_stringn(text, n);
}

// What is left of a detail that does not fit: how large it was, and its beginning as text. Cutting is safe anywhere, because the
// dumped text is ASCII.
static json_t *detail_cut(const json_t *detail) {
        _cleanup_free_ char *text = detail ? dump_ascii(detail) : NULL;
        size_t size = text ? strlen(text) : 0;

        return json_pack("{s:b,s:I,s:s%}", "truncated", 1, "size", (json_int_t) size, "start", text ?: "",
                         (size_t) MIN2(size, AUDIT_DETAIL_START));
}

// Keys in the order of audit.h: people read these files with less(1).
static char *line_format(const AuditMark *mark, const AuditRecord *record, usec_t now, json_t *detail) {
        char when[CLOCK_TEXT_MAX];
        bool cut = false;
        json_t *user = text_value(record->user, &cut), *method = text_value(record->method, &cut);
        json_t *target = text_value(record->target, &cut), *result = text_value(record->result, &cut);
        json_t *extra = detail && !cut ? json_incref(detail) : json_object();
        json_t *line;
        char *text;

        if (cut) {
                if (json_is_object(detail))
                        (void) json_object_update(extra, detail);
                (void) json_object_set_new(extra, "truncated", json_true());
        }
        // "o" steals, also when it fails; a NULL makes the whole fail.
        line = json_pack("{s:I,s:s,s:s,s:I,s:o,s:I,s:o,s:o,s:o,s:o}", "seq", (json_int_t) mark->seq + 1, "time",
                         clock_format(now, when), "prev", mark->hash, "uid", (json_int_t) record->uid, "user", user, "pid",
                         (json_int_t) record->pid, "method", method, "target", target, "result", result, "detail",
                         extra);
        text = line ? dump_ascii(line) : NULL;
        json_decref(line);
        return text;
}

// ---- the file ----

// The file ends again where `end` says, or nothing more may be written.
static int write_undo(Audit *audit, const AuditEnd *end, int r) {
        char day[sizeof(audit->written.mark.day)];

        if (ftruncate(audit->file, end->size) < 0 || fdatasync(audit->file) < 0)
                audit->broken = true;
        memcpy(day, audit->written.mark.day, sizeof(day)); // the file stays open, whether it got a record or not
        audit->written = *end;
        memcpy(audit->written.mark.day, day, sizeof(day));
        return r;
}

// After the records it vouches for are on disk, never before: a head that is ahead of the days would cry loss after a crash.
static int head_save(Audit *audit) {
        int r = audit_mark_save(audit->dir, AUDIT_HEAD, &audit->safe.mark);

        if (r == 0)
                audit->head_seq = audit->safe.mark.seq;
        return r;
}

// A failed flush is the failure of all that is not safe: nobody can tell what of it the disk has.
static void flush_ended(Audit *audit, const AuditEnd *reached, int r) {
        if (r < 0)
                (void) write_undo(audit, &audit->safe, r);
        else
                audit->safe = *reached;
        for (AuditWait *w = audit->waits; w; w = w->next) {
                if (w->decided || (r >= 0 && w->seq > reached->mark.seq))
                        continue;
                w->decided = true;
                w->result = r;
                (void) eventfd_write(audit->told, 1);
        }
        // An old head still tells the truth, only about fewer records; the next flush tries again.
        if (audit->safe.mark.seq - audit->head_seq >= AUDIT_HEAD_EVERY)
                (void) head_save(audit);
}

static void flush_settle(Audit *audit) {
        if (audit->flush.running)
                flush_ended(audit, &audit->flushing, flush_end(&audit->flush, true));
}

static int flush_now(Audit *audit, Error *err) {
        AuditEnd reached = audit->written;
        int r = fdatasync(audit->file) < 0 ? -errno : 0;

        flush_ended(audit, &reached, r);
        return r < 0 ? error_set_errno(err, r, "writing the audit log") : 0;
}

static void flush_start(Audit *audit) {
        audit->flushing = audit->written;
        flush_begin(&audit->flush, audit->file, audit->told);
}

// Room for the records of what an operator does about a full disk. A failure only means that there is none.
static void reserve(Audit *audit) {
        if (audit->written.size + AUDIT_RESERVE / 2 > audit->reserved &&
            fallocate(audit->file, FALLOC_FL_KEEP_SIZE, audit->written.size, AUDIT_RESERVE) == 0)
                audit->reserved = audit->written.size + AUDIT_RESERVE;
}

static int file_open(Audit *audit, const char *day, Error *err) {
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        flush_settle(audit);
        if (audit->written.mark.seq != audit->safe.mark.seq) {
                int r = flush_now(audit, err); // the chain goes on in another file
                if (r < 0)
                        return r;
        }
        fd = audit_day_open(audit->dir, day, O_WRONLY | O_APPEND | O_CREAT, err);
        if (fd < 0)
                return fd;
        // The name must be as durable as the first record in it.
        if (fstat(fd, &st) < 0 || fsync(audit->dir) < 0)
                return error_set_errno(err, errno, "opening the audit file of %s", day);
        if (audit->file >= 0)
                (void) !ftruncate(audit->file, audit->written.size); // gives back what was reserved in it
        (void) close_fd(audit->file);
        audit->file = TAKE_FD(fd);
        audit->written.size = st.st_size;
        audit->reserved = 0;
        reserve(audit);
        snprintf(audit->written.mark.day, sizeof(audit->written.mark.day), "%.10s", day);
        audit->safe = audit->written;
        return 0;
}

// One write for line and newline, so that the torn state is rare and always at the end.
static int line_write(Audit *audit, const char *line, size_t size, Error *err) {
        _cleanup_free_ char *with_newline = malloc(size + 1);
        AuditEnd before = audit->written;
        int r;

        if (!with_newline)
                return -ENOMEM;
        memcpy(with_newline, line, size);
        with_newline[size] = '\n';
        r = io_write_all(audit->file, with_newline, size + 1);
        if (r < 0)
                return error_set_errno(err, write_undo(audit, &before, r), "writing the audit log");
        audit->written.size += (off_t) size + 1;
        reserve(audit);
        audit->written.mark.seq++;
        digest_bytes(line, size, audit->written.mark.hash);
        return 0;
}

static int record_write(Audit *audit, const AuditRecord *record, usec_t now, Error *err) {
        _cleanup_free_ char *line = NULL;
        char day[CLOCK_TEXT_MAX];
        struct stat st;
        int r;

        if (audit->broken)
                return error_set(err, ERR_UNAVAILABLE, "the audit log could not be repaired after a failed write; restart hostd");
        clock_format_day(now, day);
        if (audit->file < 0 || strcmp(day, audit->written.mark.day) > 0) {
                r = file_open(audit, day, err);
                if (r < 0)
                        return r;
        }
        line = line_format(&audit->written.mark, record, now, record->detail);
        if (line && strlen(line) > AUDIT_LINE_MAX) {
                json_t *cut = detail_cut(record->detail);
                free(line);
                line = cut ? line_format(&audit->written.mark, record, now, cut) : NULL;
                json_decref(cut);
        }
        if (!line)
                return error_set(err, ERR_INTERNAL, "an audit record could not be written as JSON");
        // Writing into a file that has no name any more would look like keeping a record and keep none.
        if (fstat(audit->file, &st) < 0 || st.st_nlink == 0)
                return error_set(err, ERR_UNAVAILABLE, "the audit file of today was removed or replaced: put it back and restart hostd");
        return line_write(audit, line, strlen(line), err);
}

int audit_append_at(Audit *audit, const AuditRecord *record, usec_t now, Error *err) {
        int r;

        // The kernel tells of a failed write to one flush only: two at a time would take each other's failures.
        flush_settle(audit);
        r = record_write(audit, record, now, err);
        return r < 0 ? r : flush_now(audit, err);
}

int audit_append(Audit *audit, const AuditRecord *record, Error *err) {
        return audit_append_at(audit, record, clock_realtime(), err);
}

int audit_append_later(Audit *audit, const AuditRecord *record, AuditDone done, void *userdata, Error *err) {
        _cleanup_free_ AuditWait *wait = calloc(1, sizeof(*wait));
        AuditWait **last = &audit->waits;
        int r = wait ? record_write(audit, record, clock_realtime(), err) : error_set_errno(err, ENOMEM, "writing the audit log");

        if (r < 0)
                return r;
        wait->seq = audit->written.mark.seq;
        wait->done = done;
        wait->userdata = userdata;
        while (*last)
                last = &(*last)->next;
        *last = TAKE_PTR(wait);
        if (!audit->flush.running)
                flush_start(audit);
        return 0;
}

int audit_fd(const Audit *audit) {
        return audit->told;
}

void audit_dispatch(Audit *audit) {
        AuditWait *wait;
        eventfd_t n;
        int r;

        (void) eventfd_read(audit->told, &n);
        if (audit->flush.running && (r = flush_end(&audit->flush, false)) != FLUSH_RUNNING) {
                flush_ended(audit, &audit->flushing, r);
                (void) eventfd_read(audit->told, &n); // what it told is dealt with below, and none runs that could tell more
        }
        // What came meanwhile shares the next one.
        if (!audit->flush.running && !audit->broken && audit->written.mark.seq != audit->safe.mark.seq)
                flush_start(audit);
        while ((wait = audit->waits) && wait->decided) {
                Error err = ERROR_NULL;
                audit->waits = wait->next;
                if (wait->result < 0)
                        (void) error_set_errno(&err, wait->result, "writing the audit log");
                wait->done(wait->userdata, wait->result, &err);
                error_done(&err);
                free(wait);
        }
}

void audit_forget(Audit *audit, const void *userdata) {
        for (AuditWait **p = &audit->waits; *p;) {
                AuditWait *wait = *p;
                if (wait->userdata != userdata) {
                        p = &wait->next;
                        continue;
                }
                *p = wait->next;
                free(wait);
        }
}

// ---- opening ----

// What the end of the log looked like at open.
typedef struct Tail {
        bool found; // a whole line
        off_t cut;  // bytes of a torn one
        AuditMark mark;
        char torn_hash[DIGEST_TEXT_MAX];
} Tail;

// The last line decides where the chain goes on, so it must be a record: a new record behind garbage would hide the garbage.
static int tail_parse(const char *day, const char *line, size_t size, Tail *tail, Error *err) {
        json_t *record = size <= AUDIT_LINE_MAX ? audit_record_parse(line, size) : NULL;
        json_int_t seq = json_integer_value(json_object_get(record, "seq"));

        json_decref(record);
        if (seq < 1 || seq > AUDIT_SEQ_MAX)
                return error_set(err, ERR_CONFLICT,
                                 "%s.jsonl: the last line is not an audit record; keep the directory as evidence under another "
                                 "name and start again", day);
        tail->found = true;
        tail->mark.seq = (uint64_t) seq;
        digest_bytes(line, size, tail->mark.hash);
        return 0;
}

// The last whole line of a file, and how much follows it.
static int tail_read(int fd, const char *day, Tail *tail, Error *err) {
        size_t window = 2 * ((size_t) AUDIT_LINE_MAX + 1), size;
        _cleanup_free_ char *buf = malloc(window);
        char *end, *start;
        struct stat st;
        ssize_t n;

        if (!buf || fstat(fd, &st) < 0)
                return error_set_errno(err, buf ? errno : ENOMEM, "reading the audit file of %s", day);
        size = (size_t) st.st_size < window ? (size_t) st.st_size : window;
        n = pread(fd, buf, size, st.st_size - (off_t) size);
        if (n < 0 || (size_t) n != size)
                return error_set_errno(err, n < 0 ? errno : EIO, "reading the audit file of %s", day);
        end = size ? memrchr(buf, '\n', size) : NULL;
        if (!end && (size_t) st.st_size > AUDIT_LINE_MAX)
                return error_set(err, ERR_CONFLICT, "%s.jsonl: ends with a line that is longer than a record can be", day);
        tail->cut = (off_t) (end ? buf + size - end - 1 : (ssize_t) size);
        digest_bytes(end ? end + 1 : buf, (size_t) tail->cut, tail->torn_hash);
        if (!end)
                return 0;
        start = memrchr(buf, '\n', (size_t) (end - buf));
        return tail_parse(day, start ? start + 1 : buf, (size_t) (end - (start ? start + 1 : buf)), tail, err);
}

// The last record of all days, and the torn end of the newest file cut off.
static int tail_find(Audit *audit, char *const *days, Tail *tail, Error *err) {
        for (size_t n = strv_length(days), i = n; i > 0 && !tail->found; i--) {
                _cleanup_close_ int fd = audit_day_open(audit->dir, days[i - 1], O_RDWR, err);
                Tail one = {.mark = AUDIT_MARK_START};
                int r = fd < 0 ? fd : tail_read(fd, days[i - 1], &one, err);

                if (r < 0)
                        return r;
                if (one.cut > 0 && i < n)
                        return error_set(err, ERR_CONFLICT, "%s.jsonl: ends without a newline", days[i - 1]);
                if (one.cut > 0) {
                        off_t size = lseek(fd, 0, SEEK_END);
                        if (size < 0 || ftruncate(fd, size - one.cut) < 0 || fdatasync(fd) < 0)
                                return error_set_errno(err, errno, "cutting the torn record off %s.jsonl", days[i - 1]);
                        tail->cut = one.cut;
                        memcpy(tail->torn_hash, one.torn_hash, sizeof(one.torn_hash));
                }
                tail->found = one.found;
                if (one.found)
                        tail->mark = one.mark;
        }
        return 0;
}

// The repair is itself a record. `detail` is stolen.
static int repair_append(Audit *audit, const char *result, json_t *detail, Error *err) {
        AuditRecord record = {
                .user = "hostd", .uid = getuid(), .pid = getpid(), .method = AUDIT_REPAIR, .result = result, .detail = detail};
        int r = detail ? audit_append(audit, &record, err) : -ENOMEM;

        json_decref(detail);
        return r;
}

// The loss is written into the chain before the head is renewed: afterwards only the record tells of it. Its result is
// "Conflict", so that `audit query` finds it.
static int open_repair(Audit *audit, const Tail *tail, int head_state, const AuditMark *head, Error *err) {
        bool behind = head_state == 0 && head->seq > audit->written.mark.seq;
        bool other = head_state == 0 && head->seq == audit->written.mark.seq && strcmp(head->hash, audit->written.mark.hash) != 0;
        bool lost = behind || other || (head_state < 0 && audit->written.mark.seq > 0);
        json_int_t last = (json_int_t) audit->written.mark.seq;
        int r = 0;

        if (tail->cut > 0)
                r = repair_append(audit, "ok", json_pack("{s:I,s:s}", "cut_bytes", (json_int_t) tail->cut, "cut_sha256",
                                                         tail->torn_hash), err);
        if (r == 0 && lost)
                r = repair_append(audit, "Conflict", json_pack("{s:s,s:I,s:I,s:s}", "reason",
                                                               head_state < 0 ? "the head file was missing or unreadable"
                                                               : behind       ? "records were missing at the end"
                                                                              : "the last record was not the one written",
                                                               "last_seq", last, "head_seq",
                                                               head_state == 0 ? (json_int_t) head->seq : 0, "head_hash",
                                                               head_state == 0 ? head->hash : ""), err);
        return r < 0 ? r : lost ? AUDIT_LOST : tail->cut > 0 ? AUDIT_REPAIRED : AUDIT_OPENED;
}

// Costs the end of one file however long the log is; walking the whole chain is audit_verify()'s business.
static int open_chain(Audit *audit, Error *err) {
        _cleanup_strv_ char **days = NULL;
        Tail tail = {0};
        AuditMark head = {0};
        size_t n;
        int r, outcome, head_state = audit_mark_load(audit->dir, AUDIT_HEAD, &head, NULL);

        r = audit_days_load(audit->dir, &days, err);
        if (r == 0)
                r = tail_find(audit, days, &tail, err);
        if (r < 0)
                return r;
        if (tail.found)
                audit->written.mark = tail.mark;
        else if (audit_mark_load(audit->dir, AUDIT_BASE, &audit->written.mark, NULL) < 0)
                audit->written.mark = AUDIT_MARK_START;
        audit->safe = audit->written;
        // Without any day the first record makes one.
        n = strv_length(days);
        r = n ? file_open(audit, days[n - 1], err) : 0;
        if (r < 0)
                return r;
        outcome = open_repair(audit, &tail, head_state, &head, err);
        if (outcome < 0)
                return outcome;
        // With a head on disk a full file system is no reason to stay down: the old one is still true.
        r = head_save(audit);
        if (r < 0 && (head_state < 0 || (r != -ENOSPC && r != -EDQUOT)))
                return error_set_errno(err, r, "writing the audit file %s", AUDIT_HEAD);
        return outcome;
}

int audit_open(const char *directory, Audit **ret, Error *err) {
        _cleanup_(audit_closep) Audit *audit = calloc(1, sizeof(Audit));
        int r;

        if (!audit)
                return -ENOMEM;
        audit->dir = audit->file = audit->told = -EBADF;
        r = io_mkdir_p(AT_FDCWD, directory, 0700);
        if (r < 0)
                return error_set_errno(err, r, "making the audit directory %s", directory);
        audit->dir = audit_directory_open(directory, err);
        if (audit->dir < 0)
                return audit->dir;
        if (flock(audit->dir, LOCK_EX | LOCK_NB) < 0)
                return errno != EWOULDBLOCK
                               ? error_set_errno(err, errno, "locking the audit directory %s", directory)
                               : error_set(err, ERR_BUSY, "another process writes the audit log in %s: is a second hostd running?",
                                           directory);
        if (fchmod(audit->dir, 0700) < 0)
                return error_set_errno(err, errno, "changing the mode of %s", directory);
        audit->told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (audit->told < 0)
                return error_set_errno(err, errno, "opening the audit log");
        io_sweep_temporaries(audit->dir, ".");
        r = open_chain(audit, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(audit);
        return r;
}

Audit *audit_close(Audit *audit) {
        if (!audit)
                return NULL;
        // Nobody is left to hear of a failure; the head is then older, not wrong.
        flush_settle(audit);
        if (audit->written.mark.seq != audit->safe.mark.seq && !audit->broken)
                (void) flush_now(audit, NULL);
        if (audit->safe.mark.seq != audit->head_seq && !audit->broken && audit->file >= 0)
                (void) head_save(audit);
        flush_done(&audit->flush);
        while (audit->waits)
                audit_forget(audit, audit->waits->userdata);
        (void) close_fd(audit->told);
        (void) close_fd(audit->file);
        (void) close_fd(audit->dir);
        free(audit);
        return NULL;
}
