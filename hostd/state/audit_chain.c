// SPDX-License-Identifier: GPL-2.0-or-later
// AuditChain: reading, verifying and expiring the audit log. Everything here believes nothing that is in the files.
#include "state/audit_chain.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/io.h"
#include "base/strv.h"
#include "base/valid.h"

#define AUDIT_SUFFIX ".jsonl"

// ---- days ----

int audit_directory_open(const char *directory, Error *err) {
        int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd >= 0 ? fd : error_set_errno(err, errno, "opening the audit directory %s", directory);
}

// Only names of this shape are days: editors' backups and the two marks lie in the same directory.
static bool day_valid(const char *name) {
        static const char shape[] = "dddd-dd-dd" AUDIT_SUFFIX;

        if (strlen(name) != sizeof(shape) - 1)
                return false;
        for (size_t i = 0; shape[i]; i++)
                if (i < 10 && shape[i] == 'd' ? name[i] < '0' || name[i] > '9' : name[i] != shape[i])
                        return false;
        return true;
}

// A link or FIFO in place of a day would let somebody else choose what is read, or block the reader for ever.
int audit_day_open(int dir, const char *day, int flags, Error *err) {
        char name[32];
        struct stat st;
        int fd;

        snprintf(name, sizeof(name), "%.10s" AUDIT_SUFFIX, day);
        fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
        if (fd < 0 && errno != ELOOP)
                return error_set_errno(err, errno, "opening the audit file %s", name);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
                (void) close_fd(fd);
                return error_set(err, ERR_CONFLICT, "%s: is not a plain file", name);
        }
        return fd;
}

static int compare_days(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

int audit_days_load(int dir, char ***ret_days, Error *err) {
        _cleanup_strv_ char **days = NULL;
        int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
        DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
        struct dirent *e;

        if (!d) {
                r = error_set_errno(err, errno, "reading the audit directory");
                (void) close_fd(copy);
                return r;
        }
        while (r == 0 && (e = readdir(d)))
                if (day_valid(e->d_name))
                        r = strv_append_format(&days, "%.10s", e->d_name);
        (void) closedir(d);
        if (r < 0)
                return r;
        if (days)
                qsort(days, strv_length(days), sizeof(char *), compare_days);
        *ret_days = TAKE_PTR(days);
        return 0;
}

// ---- marks ----

// Strict: a mark that is half right would turn every later comparison into a guess.
int audit_mark_load(int dir, const char *name, AuditMark *ret, Error *err) {
        _cleanup_free_ char *text = NULL;
        const char *hash = NULL, *day = NULL;
        AuditMark mark = {0};
        json_int_t seq = -1;
        json_t *object;
        size_t size;
        bool good;
        int r = io_read_file(dir, name, 4096, &text, &size);

        if (r < 0)
                return error_set_errno(err, r, "reading the audit file %s", name);
        object = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
        good = object && json_unpack(object, "{s:I,s:s,s:s}", "seq", &seq, "hash", &hash, "day", &day) == 0 && seq >= 0 &&
               seq <= AUDIT_SEQ_MAX && valid_is(VALID_DIGEST, hash) && strlen(day) < sizeof(mark.day);
        if (good) {
                mark.seq = (uint64_t) seq;
                memcpy(mark.hash, hash, sizeof(mark.hash));
                strncpy(mark.day, day, sizeof(mark.day) - 1);
                *ret = mark;
        }
        json_decref(object);
        return good ? 0 : error_set(err, ERR_CONFLICT, "%s: does not hold the number and hash of a record", name);
}

// No jansson: the writer must be able to save a mark when memory is short.
int audit_mark_save(int dir, const char *name, const AuditMark *mark) {
        char text[160];
        int n = snprintf(text, sizeof(text), "{\"seq\":%llu,\"hash\":\"%s\",\"day\":\"%s\"}\n", (unsigned long long) mark->seq,
                         mark->hash, mark->day);

        return io_write_atomic(dir, name, text, (size_t) n, 0600);
}

// ---- lines ----

void audit_reader_done(AuditReader *reader) {
        free(reader->buf);
        reader->buf = NULL;
}

// Fills the buffer behind what is unread. 0 at the end of the file.
static ssize_t reader_fill(AuditReader *reader) {
        size_t room = AUDIT_LINE_MAX + 1;
        ssize_t n;

        if (!reader->buf && !(reader->buf = malloc(room)))
                return -ENOMEM;
        reader->used -= reader->next;
        memmove(reader->buf, reader->buf + reader->next, reader->used);
        reader->next = 0;
        if (reader->used == room)
                return -EMSGSIZE;
        do
                n = read(reader->fd, reader->buf + reader->used, room - reader->used);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        reader->used += (size_t) n;
        return n;
}

// `seen` keeps the search linear: a long line that comes in pieces is not searched from its beginning again.
int audit_reader_next(AuditReader *reader) {
        size_t seen = 0;

        for (;;) {
                size_t rest = reader->used - reader->next;
                char *start = reader->buf ? reader->buf + reader->next : NULL;
                char *eol = rest > seen ? memchr(start + seen, '\n', rest - seen) : NULL;
                ssize_t n;

                if (eol) {
                        reader->line = start;
                        reader->size = (size_t) (eol - start);
                        reader->next += reader->size + 1;
                        reader->number++;
                        return 1;
                }
                seen = rest;
                n = reader_fill(reader);
                if (n < 0) {
                        reader->number++; // the line that is too long
                        return (int) n;
                }
                if (n == 0) {
                        reader->torn = rest > 0;
                        return 0;
                }
        }
}

// ---- the chain ----

// The keys on which the chain and the filters rest. Duplicate keys are refused: two readers might each believe another one.
json_t *audit_record_parse(const char *line, size_t size) {
        json_t *record = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);

        if (json_is_object(record) && json_is_integer(json_object_get(record, "seq")) &&
            json_is_string(json_object_get(record, "time")) && json_is_string(json_object_get(record, "prev")) &&
            json_is_string(json_object_get(record, "method")) && json_is_string(json_object_get(record, "result")))
                return record;
        json_decref(record);
        return NULL;
}

// The hash first: it is what tampering changes, and its sentence is the more helpful one.
const char *audit_chain_step(AuditMark *mark, const char *line, size_t size) {
        json_t *record = audit_record_parse(line, size);
        const char *why = NULL;

        if (!record)
                return "is not an audit record";
        if (strcmp(json_string_value(json_object_get(record, "prev")), mark->hash) != 0)
                why = "does not continue the record before it: that one was changed, removed or moved";
        else if (json_integer_value(json_object_get(record, "seq")) != (json_int_t) mark->seq + 1)
                why = "has a number that does not follow the record before it";
        json_decref(record);
        if (why)
                return why;
        mark->seq++;
        digest_bytes(line, size, mark->hash);
        return NULL;
}

int audit_chain_file(AuditMark *mark, int fd, const AuditMark *head, bool newest, Error *err) {
        _cleanup_(audit_reader_done) AuditReader reader = {.fd = fd};
        int r;

        while ((r = audit_reader_next(&reader)) > 0) {
                const char *why = audit_chain_step(mark, reader.line, reader.size);
                if (why)
                        return error_set(err, ERR_CONFLICT, "%s" AUDIT_SUFFIX " line %u: %s", mark->day, reader.number, why);
                if (head && head->seq == mark->seq && strcmp(head->hash, mark->hash) != 0)
                        return error_set(err, ERR_CONFLICT,
                                         "%s" AUDIT_SUFFIX " line %u: is not the record %llu that the head file vouches for",
                                         mark->day, reader.number, (unsigned long long) mark->seq);
        }
        if (r == -EMSGSIZE)
                return error_set(err, ERR_CONFLICT, "%s" AUDIT_SUFFIX " line %u: is longer than a record can be", mark->day,
                                 reader.number);
        if (r < 0)
                return error_set_errno(err, r, "reading %s" AUDIT_SUFFIX, mark->day);
        if (reader.torn && !newest)
                return error_set(err, ERR_CONFLICT, "%s" AUDIT_SUFFIX " line %u: ends without a newline", mark->day,
                                 reader.number + 1);
        return 0;
}

static int chain_day(int dir, AuditMark *mark, const char *day, const AuditMark *head, bool newest, Error *err) {
        _cleanup_close_ int fd = audit_day_open(dir, day, O_RDONLY, err);

        if (fd < 0)
                return fd;
        snprintf(mark->day, sizeof(mark->day), "%.10s", day);
        return audit_chain_file(mark, fd, head, newest, err);
}

// Where the chain begins. Days up to base.day are being removed and count no more.
static int chain_base(int dir, AuditMark *ret, Error *err) {
        _cleanup_error_ Error e = ERROR_NULL;
        int r = audit_mark_load(dir, AUDIT_BASE, ret, &e);

        if (r == -ENOENT) {
                *ret = AUDIT_MARK_START;
                return 0;
        }
        if (r < 0)
                error_move(err, &e);
        return r;
}

int audit_verify(const char *directory, uint64_t *ret_records, Error *err) {
        _cleanup_close_ int dir = audit_directory_open(directory, err);
        _cleanup_error_ Error e = ERROR_NULL;
        _cleanup_strv_ char **days = NULL;
        AuditMark base, mark, head;
        int r, head_state;

        if (dir < 0)
                return dir;
        // The head first: what is written meanwhile only adds to what it vouches for.
        head_state = audit_mark_load(dir, AUDIT_HEAD, &head, &e);
        r = chain_base(dir, &base, err);
        if (r == 0)
                r = audit_days_load(dir, &days, err);
        mark = base;
        for (char **day = days; r == 0 && day && *day; day++)
                if (strcmp(*day, base.day) > 0)
                        r = chain_day(dir, &mark, *day, head_state == 0 ? &head : NULL, !day[1], err);
        if (r < 0)
                return r;
        if (head_state == -ENOENT && mark.seq > 0)
                return error_set(err, ERR_CONFLICT, "%s: is missing, so nobody can say whether the last records are still there",
                                 AUDIT_HEAD);
        if (head_state < 0 && head_state != -ENOENT) {
                error_move(err, &e);
                return head_state;
        }
        if (head_state == 0 && head.seq > mark.seq)
                return error_set(err, ERR_CONFLICT, "%s: record %llu was written, but the chain ends with record %llu in %s",
                                 AUDIT_HEAD, (unsigned long long) head.seq, (unsigned long long) mark.seq,
                                 mark.day[0] ? mark.day : "no file");
        if (ret_records)
                *ret_records = mark.seq - base.seq;
        return 0;
}

// ---- expiry ----

// Days since 1970; names were checked for their shape, and a date that does not exist only shifts by a day or two.
static int64_t day_number(const char *day) {
        struct tm tm = {0};

        if (sscanf(day, "%4d-%2d-%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday) != 3)
                return 0;
        tm.tm_year -= 1900;
        tm.tm_mon--;
        return timegm(&tm) / 86400;
}

// Oldest first, so that what a crash leaves is still a run of days without a hole.
static int expire_remove(int dir, char *const *days, size_t n, Error *err) {
        for (size_t i = 0; i < n; i++) {
                char name[32];
                snprintf(name, sizeof(name), "%.10s" AUDIT_SUFFIX, days[i]);
                if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
                        return error_set_errno(err, errno, "removing %s", name);
        }
        return fsync(dir) < 0 ? error_set_errno(err, errno, "writing the audit directory") : 0;
}

int audit_expire(const char *directory, uint64_t keep_days, Error *err) {
        _cleanup_close_ int dir = audit_directory_open(directory, err);
        _cleanup_strv_ char **days = NULL;
        AuditMark base, mark;
        size_t n, old = 0;
        int r;

        if (dir < 0)
                return dir;
        r = audit_days_load(dir, &days, err);
        if (r == 0)
                r = chain_base(dir, &base, err);
        if (r < 0)
                return r;
        n = strv_length(days);
        // Counted from the newest record and not from the clock, which may be wrong by decades after a reset.
        while (keep_days > 0 && old + 1 < n && (uint64_t) (day_number(days[n - 1]) - day_number(days[old])) > keep_days)
                old++;
        mark = base;
        for (size_t i = 0; r == 0 && i < old; i++)
                if (strcmp(days[i], base.day) > 0)
                        r = chain_day(dir, &mark, days[i], NULL, false, err);
        if (r < 0)
                return r;
        // The new beginning is on disk before the old one goes; what a crash leaves is skipped by readers and removed next time.
        if (mark.seq != base.seq || strcmp(mark.day, base.day) != 0)
                r = audit_mark_save(dir, AUDIT_BASE, &mark);
        if (r < 0)
                return error_set_errno(err, r, "writing the audit file %s", AUDIT_BASE);
        while (old + 1 < n && strcmp(days[old], mark.day) <= 0)
                old++; // left over by a crash
        r = old > 0 ? expire_remove(dir, days, old, err) : 0;
        return r < 0 ? r : (int) old;
}
