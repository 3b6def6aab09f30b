// SPDX-License-Identifier: GPL-2.0-or-later
// Audit: writing over many days, what a crash leaves, every way of tampering that verification promises to see, expiry, query.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "own_mount.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/flush.h"
#include "base/io.h"
#include "base/strv.h"
#include "state/audit_chain.h"

#define DAY ((usec_t) 86400 * USEC_PER_SEC)
#define T0 (20000 * DAY) // 2024-10-04
#define FIRST "2024-10-04"

static char dir[] = "/tmp/test-audit-XXXXXX";

static int fresh_dir(void **state) {
        strcpy(dir + strlen(dir) - 6, "XXXXXX");
        return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state) {
        return io_remove_tree(AT_FDCWD, dir);
}

static Audit *open_audit(int outcome) {
        _cleanup_error_ Error e = ERROR_NULL;
        Audit *a = NULL;
        int r = audit_open(dir, &a, &e);

        if (r != outcome)
                fail_msg("audit_open: %d, wanted %d: %s", r, outcome, error_message(&e, r));
        return a;
}

static void append(Audit *a, const char *method, usec_t when) {
        AuditRecord record = {.user = "root", .pid = 1, .method = method, .target = "a", .result = "ok"};
        assert_int_equal(audit_append_at(a, &record, when, NULL), 0);
}

// `per_day` records on each of `days` days.
static void write_days(unsigned days, unsigned per_day) {
        Audit *a = open_audit(AUDIT_OPENED);

        for (unsigned d = 0; d < days; d++)
                for (unsigned i = 0; i < per_day; i++)
                        append(a, "io.hostd.Test.Do", T0 + d * DAY + i * USEC_PER_SEC);
        audit_close(a);
}

static void verify(const char *wants, uint64_t records) {
        _cleanup_error_ Error e = ERROR_NULL;
        uint64_t n = UINT64_MAX;
        int r = audit_verify(dir, &n, &e);

        if (wants ? (e.code != ERR_CONFLICT || !strstr(e.message, wants)) : (r != 0 || n != records))
                fail_msg("verify: %d, %llu records, %s; wanted %s", r, (unsigned long long) n, error_message(&e, r),
                         wants ?: "success");
}

static char *day_path(const char *name) {
        char *path = NULL;
        assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
        return path;
}

static char *slurp(const char *name, size_t *size) {
        _cleanup_free_ char *path = day_path(name);
        char *text = NULL;
        assert_int_equal(io_read_file(AT_FDCWD, path, 1 << 24, &text, size), 0);
        return text;
}

static void spit(const char *name, const char *text, size_t size) {
        _cleanup_free_ char *path = day_path(name);
        assert_int_equal(io_write_atomic(AT_FDCWD, path, text, size, 0600), 0);
}

static void test_append_and_days(void **state) {
        _cleanup_free_ char *path = day_path(FIRST ".jsonl"), *head = NULL, *text = NULL;
        struct stat st;

        write_days(40, 5);
        verify(NULL, 200);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(stat(dir, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
        head = slurp("head", NULL);
        assert_non_null(strstr(head, "{\"seq\":200,"));
        text = slurp(FIRST ".jsonl", NULL);
        assert_int_equal(strncmp(text, "{\"seq\":1,\"time\":\"2024-10-04T00:00:00.000000Z\",\"prev\":\"0000", 58), 0);
        audit_close(open_audit(AUDIT_OPENED));
        verify(NULL, 200);
}

// A clock that steps back continues the newer file.
static void test_clock_back(void **state) {
        Audit *a = open_audit(AUDIT_OPENED);

        append(a, "a", T0 + DAY);
        append(a, "b", T0);
        append(a, "c", T0 + 3 * DAY);
        append(a, "d", T0 + 2 * DAY);
        audit_close(a);
        verify(NULL, 4);
}

static void test_second_writer(void **state) {
        _cleanup_error_ Error e = ERROR_NULL;
        Audit *a = open_audit(AUDIT_OPENED), *b = NULL;

        assert_int_equal(audit_open(dir, &b, &e), -EBUSY);
        assert_non_null(strstr(e.message, "another process writes the audit log in"));
        audit_close(a);
        audit_close(open_audit(AUDIT_OPENED));
}

// ---- what a crash leaves ----

static void test_torn(void **state) {
        static const char *const tails[] = {"{", "{\"seq\":7,\"time\":\"2024", "\0\0\0\0"};
        static const size_t sizes[] = {1, 22, 4};

        for (size_t i = 0; i < ELEMENTS(tails); i++) {
                _cleanup_free_ char *text = NULL, *grown = NULL, *after = NULL;
                size_t size;
                Audit *a;

                fresh_dir(state);
                write_days(2, 3);
                text = slurp("2024-10-05.jsonl", &size);
                grown = malloc(size + sizes[i]);
                memcpy(grown, text, size);
                memcpy(grown + size, tails[i], sizes[i]);
                spit("2024-10-05.jsonl", grown, size + sizes[i]);
                verify(NULL, 6); // a record being written is none yet
                a = open_audit(AUDIT_REPAIRED);
                audit_close(a);
                verify(NULL, 7);
                after = slurp("2024-10-05.jsonl", NULL);
                assert_int_equal(strncmp(after, text, size), 0);
                drop_dir(state);
        }
}

static int count(const json_t *record, void *userdata) {
        ++*(unsigned *) userdata;
        return 0;
}

static void test_torn_only_line(void **state) {
        unsigned repairs = 0;
        AuditQuery q = {.method = "io.hostd.Audit.Repair"};

        audit_close(open_audit(AUDIT_OPENED));
        spit(FIRST ".jsonl", "{\"se", 4);
        audit_close(open_audit(AUDIT_REPAIRED));
        verify(NULL, 1);
        assert_int_equal(audit_query(dir, &q, count, &repairs, NULL), 0);
        assert_int_equal(repairs, 1);
}

// kill -9 at any moment: what was answered for is there, and the chain goes on.
static void test_killed_writer(void **state) {
        uint64_t before = 0;

        for (unsigned round = 0; round < 20; round++) {
                int fds[2], status, outcome;
                uint64_t answered = 0, records = 0;
                Audit *a = NULL;
                char buf[4096];
                ssize_t n;
                pid_t pid;

                assert_int_equal(pipe(fds), 0);
                pid = fork();
                if (pid == 0) {
                        AuditRecord record = {.method = "m", .result = "ok"};
                        if (audit_open(dir, &a, NULL) < 0)
                                _exit(1);
                        for (;;)
                                if (audit_append(a, &record, NULL) < 0 || write(fds[1], "", 1) != 1)
                                        _exit(2);
                }
                close(fds[1]);
                (void) usleep(3000 + 1000 * round);
                assert_int_equal(kill(pid, SIGKILL), 0);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_true(WIFSIGNALED(status));
                while ((n = read(fds[0], buf, sizeof(buf))) > 0)
                        answered += (uint64_t) n;
                close(fds[0]);
                outcome = audit_open(dir, &a, NULL);
                assert_true(outcome == AUDIT_OPENED || outcome == AUDIT_REPAIRED);
                audit_close(a);
                assert_int_equal(audit_verify(dir, &records, NULL), 0);
                assert_true(records >= before + answered && records <= before + answered + 2);
                before = records;
        }
}

// In a child with a tiny file system: a record that does not fit leaves no trace, and the log goes on when there is room.
static int fill_disk(void) {
        AuditRecord record = {.user = "root", .method = "m", .result = "ok"};
        _cleanup_free_ char *name = day_path("ballast"), *more = day_path("more");
        Audit *a = NULL;
        Error e = ERROR_NULL;
        char junk[4096] = {0};
        uint64_t n = 1, records;
        int fd, r;

        // One record first: its page has room left, so that a later one is written in part before the disk is full.
        if (audit_open(dir, &a, NULL) < 0 || audit_append(a, &record, NULL) < 0)
                return 10;
        fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        while (write(fd, junk, sizeof(junk)) > 0)
                ;
        close(fd);
        while ((r = audit_append(a, &record, &e)) == 0 && n < 1000)
                n++;
        if (r == 0 || e.code != ERR_QUOTA)
                return 11;
        if (audit_verify(dir, &records, NULL) < 0 || records != n)
                return 12;
        if (unlink(name) < 0 || audit_append(a, &record, NULL) < 0)
                return 13;
        audit_close(a);
        error_done(&e);
        fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        while (write(fd, junk, sizeof(junk)) > 0)
                ;
        close(fd);
        if (audit_open(dir, &a, NULL) != AUDIT_OPENED) // full, but the daemon must come up
                return 15;
        audit_close(a);
        return audit_verify(dir, &records, NULL) < 0 || records != n + 1 ? 14 : 0;
}

static void test_disk_full(void **state) {
        test_with_mount(&(OwnMount) {"tmpfs", dir, "tmpfs", 0, "size=64k"}, fill_disk);
}

// ---- tampering ----

static void test_changed_bytes(void **state) {
        _cleanup_free_ char *text = NULL;
        size_t size;

        write_days(3, 3);
        text = slurp("2024-10-05.jsonl", &size);
        // Every byte of a day in the middle, one after the other.
        for (size_t i = 0; i < size; i++) {
                char saved = text[i];
                _cleanup_error_ Error e = ERROR_NULL;

                text[i] = saved == '1' ? '2' : '1';
                spit("2024-10-05.jsonl", text, size);
                if (audit_verify(dir, NULL, &e) >= 0 || e.code != ERR_CONFLICT)
                        fail_msg("changed byte %zu was not seen", i);
                text[i] = saved;
        }
        spit("2024-10-05.jsonl", text, size);
        verify(NULL, 9);
}

static void test_lines(void **state) {
        _cleanup_free_ char *text = NULL, *copy = NULL;
        size_t size, one;
        char *second, *third;

        write_days(3, 3);
        text = slurp("2024-10-05.jsonl", &size);
        copy = malloc(size);
        second = strchr(text, '\n') + 1;
        third = strchr(second, '\n') + 1;
        one = (size_t) (second - text);
        // Removed in the middle.
        memcpy(copy, text, one);
        memcpy(copy + one, third, size - (size_t) (third - text));
        spit("2024-10-05.jsonl", copy, size - (size_t) (third - second));
        verify("2024-10-05.jsonl line 2: does not continue", 0);
        // Removed at the end of a day in the middle.
        spit("2024-10-05.jsonl", text, (size_t) (third - text));
        verify("2024-10-06.jsonl line 1: does not continue", 0);
        // Reordered.
        memcpy(copy, second, (size_t) (third - second));
        memcpy(copy + (third - second), text, one);
        memcpy(copy + (third - text), third, size - (size_t) (third - text));
        spit("2024-10-05.jsonl", copy, size);
        verify("2024-10-05.jsonl line 1: does not continue", 0);
        // A line that no record can be, and one too long.
        spit("2024-10-05.jsonl", "[]\n", 3);
        verify("2024-10-05.jsonl line 1: is not an audit record", 0);
        free(copy);
        copy = malloc(AUDIT_LINE_MAX + 2);
        memset(copy, 'x', AUDIT_LINE_MAX + 2);
        spit("2024-10-05.jsonl", copy, AUDIT_LINE_MAX + 2);
        verify("2024-10-05.jsonl line 1: is longer than a record can be", 0);
        spit("2024-10-05.jsonl", text, size - 1);
        verify("2024-10-05.jsonl line 3: ends without a newline", 0);
}

static void test_files(void **state) {
        _cleanup_free_ char *middle = NULL, *first = NULL, *head = day_path("head"), *head_text = NULL;
        size_t size;

        write_days(4, 2);
        middle = slurp("2024-10-05.jsonl", &size);
        first = day_path("2024-10-05.jsonl");
        assert_int_equal(unlink(first), 0);
        verify("2024-10-06.jsonl line 1: does not continue", 0);
        assert_int_equal(symlink("2024-10-06.jsonl", first), 0);
        verify("2024-10-05.jsonl: is not a plain file", 0);
        assert_int_equal(unlink(first), 0);
        spit("2024-10-05.jsonl", middle, size);
        verify(NULL, 8);
        head_text = slurp("head", &size);
        assert_int_equal(unlink(head), 0);
        verify("head: is missing", 0);
        spit("head", "{}", 2);
        verify("head: does not hold", 0);
        spit("head", head_text, size);
        verify(NULL, 8);
}

static void test_truncated_tail(void **state) {
        _cleanup_free_ char *text = NULL, *whole = NULL;
        unsigned conflicts = 0;
        AuditQuery q = {.result = "Conflict"};
        size_t size;

        write_days(2, 3);
        text = slurp("2024-10-05.jsonl", &size);
        spit("2024-10-05.jsonl", text, (size_t) (strchr(text, '\n') + 1 - text));
        verify("head: record 6 was written, but the chain ends with record 4", 0);
        // The daemon goes on, but the loss is part of the chain from now on.
        audit_close(open_audit(AUDIT_LOST));
        verify(NULL, 5);
        assert_int_equal(audit_query(dir, &q, count, &conflicts, NULL), 0);
        assert_int_equal(conflicts, 1);
        // A last line that is no record is not written over.
        whole = slurp("2024-10-04.jsonl", &size);
        drop_dir(state);
        fresh_dir(state);
        spit("2024-10-04.jsonl", "garbage\n", 8);
        {
                _cleanup_error_ Error e = ERROR_NULL;
                Audit *a = NULL;
                assert_true(audit_open(dir, &a, &e) < 0);
                assert_non_null(strstr(e.message, "the last line is not an audit record"));
        }
}

// The last record replaced by another of the same number: only the head knows.
static void test_rewritten_last(void **state) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        char *ok;

        write_days(1, 3);
        text = slurp(FIRST ".jsonl", &size);
        ok = strrchr(text, 'o'); // "Do" or "ok": any byte of the last line will do
        *ok = 'p';
        spit(FIRST ".jsonl", text, size);
        verify("is not the record 3 that the head file vouches for", 0);
        audit_close(open_audit(AUDIT_LOST));
}

// ---- expiry ----

static void test_expire(void **state) {
        _cleanup_free_ char *oldest = NULL, *base = NULL;
        _cleanup_error_ Error e = ERROR_NULL;
        size_t size;

        write_days(10, 2);
        assert_int_equal(audit_expire(dir, 0, NULL), 0);
        assert_int_equal(audit_expire(dir, 30, NULL), 0);
        oldest = slurp(FIRST ".jsonl", &size);
        assert_int_equal(audit_expire(dir, 7, NULL), 2); // 2024-10-13 is the newest
        verify(NULL, 16);
        base = slurp("base", NULL);
        assert_non_null(strstr(base, "{\"seq\":4,"));
        assert_non_null(strstr(base, "\"day\":\"2024-10-05\""));
        // A crash between the new base and the removal left an old day: readers pass over it, the next call removes it.
        spit(FIRST ".jsonl", oldest, size);
        verify(NULL, 16);
        assert_int_equal(audit_expire(dir, 7, NULL), 1);
        assert_int_equal(audit_expire(dir, 7, NULL), 0);
        audit_close(open_audit(AUDIT_OPENED));
        verify(NULL, 16);
        // The newest day stays whatever is asked; what does not verify stays as well.
        oldest[0] = 'X';
        spit("2024-10-07.jsonl", oldest, size);
        assert_int_equal(audit_expire(dir, 1, &e), -ESTALE);
        verify("2024-10-07.jsonl line 1", 0);
}

static void test_expire_beside_writer(void **state) {
        Audit *a;

        write_days(5, 120);
        a = open_audit(AUDIT_OPENED);
        append(a, "x", T0 + 5 * DAY);
        assert_int_equal(audit_expire(dir, 1, NULL), 4);
        append(a, "y", T0 + 5 * DAY);
        audit_close(a);
        verify(NULL, 122);
}

// ---- content ----

static json_t *last_record(void) {
        _cleanup_free_ char *text = slurp(FIRST ".jsonl", NULL);
        char *nl = strrchr(text, '\n'), *line;
        json_t *record;

        *nl = 0;
        line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
        for (char *p = line; *p; p++)
                assert_true(*p >= 0x20 && *p < 0x7f); // nothing that moves a cursor
        assert_true(strlen(line) <= AUDIT_LINE_MAX);
        record = audit_record_parse(line, strlen(line));
        assert_non_null(record);
        return record;
}

static void test_escapes_and_cuts(void **state) {
        _cleanup_free_ char *big = malloc(300001);
        AuditRecord record = {.uid = 1000, .user = "\x1b[2J\n\x7f", .method = "m\"\\", .target = "\xff\xfe", .result = "ok"};
        Audit *a = open_audit(AUDIT_OPENED);
        json_t *r, *detail;

        assert_int_equal(audit_append_at(a, &record, T0, NULL), 0);
        r = last_record();
        assert_string_equal(json_string_value(json_object_get(r, "user")), "\x1b[2J\n\x7f");
        assert_string_equal(json_string_value(json_object_get(r, "method")), "m\"\\");
        assert_string_equal(json_string_value(json_object_get(r, "target")), "\\xff\\xfe");
        json_decref(r);
        for (size_t i = 0; i < 300000; i++)
                big[i] = "\\\"\x01\xc3\xa4"[i % 5];
        big[300000] = 0;
        record = (AuditRecord) {.user = big, .method = big, .target = big, .result = big};
        record.detail = detail = json_pack("{s:s,s:i}", "argv", big, "keep", 1);
        assert_int_equal(audit_append_at(a, &record, T0, NULL), 0);
        r = last_record();
        assert_true(json_is_true(json_object_get(json_object_get(r, "detail"), "truncated")));
        assert_true(json_string_length(json_object_get(r, "target")) <= 512);
        assert_true(json_integer_value(json_object_get(json_object_get(r, "detail"), "size")) > 300000);
        json_decref(r);
        record = (AuditRecord) {.method = "m", .result = "ok", .target = big, .detail = json_object_get(detail, "none")};
        assert_int_equal(audit_append_at(a, &record, T0, NULL), 0);
        r = last_record();
        assert_true(json_is_true(json_object_get(json_object_get(r, "detail"), "truncated")));
        json_decref(r);
        json_decref(detail);
        audit_close(a);
        verify(NULL, 3);
}

// ---- query ----

typedef struct Seen {
        unsigned n, stop_after;
        json_int_t first, last;
} Seen;

static int see(const json_t *record, void *userdata) {
        Seen *s = userdata;
        json_int_t seq = json_integer_value(json_object_get(record, "seq"));

        s->first = s->n ? s->first : seq;
        if (s->n > 0 && seq <= s->last)
                fail_msg("out of order");
        s->last = seq;
        return ++s->n == s->stop_after ? -ECANCELED : 0;
}

static void test_query(void **state) {
        static const struct {
                AuditQuery q;
                unsigned n;
                json_int_t first, last;
        } cases[] = {
                {{0}, 500, 1, 500},
                {{.last = 7}, 7, 494, 500},
                {{.last = 120}, 120, 381, 500}, // over more than one day
                {{.last = 10000}, 500, 1, 500},
                {{.since = T0 + DAY}, 450, 51, 500},
                {{.since = T0 + DAY + 10 * USEC_PER_SEC, .until = T0 + DAY + 20 * USEC_PER_SEC}, 10, 61, 70},
                {{.until = T0 + DAY, .last = 3}, 3, 48, 50},
                {{.method = "io.hostd.Test.Do", .target = "a", .user = "root", .result = "ok"}, 500, 1, 500},
                {{.method = "io.hostd.Test"}, 0, 0, 0},
                {{.target = "b"}, 0, 0, 0},
                {{.until = USEC_INFINITY}, 500, 1, 500},
                {{.since = USEC_INFINITY}, 0, 0, 0},
        };
        AuditQuery too_many = {.last = 10001}, all = {0};
        Seen stopped = {.stop_after = 3}, rest = {0};
        _cleanup_error_ Error e = ERROR_NULL;

        write_days(10, 50);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Seen s = {0};
                assert_int_equal(audit_query(dir, &cases[i].q, see, &s, NULL), 0);
                if (s.n != cases[i].n || s.first != cases[i].first || s.last != cases[i].last)
                        fail_msg("case %zu: %u records, %d to %d", i, s.n, (int) s.first, (int) s.last);
        }
        assert_int_equal(audit_query(dir, &too_many, see, &rest, &e), -EINVAL);
        assert_int_equal(audit_query(dir, &all, see, &stopped, NULL), -ECANCELED);
        assert_int_equal(stopped.n, 3);
        spit("2024-10-05.jsonl", "junk\n{}\n", 8);
        assert_int_equal(audit_query(dir, &all, see, &rest, NULL), 2);
        assert_int_equal(rest.n, 450);
}

#define DIR_TEST(fn) cmocka_unit_test_setup_teardown(fn, fresh_dir, drop_dir)

// A record kept in a file that nobody can open any more is none: the caller is told.
static void test_replaced_file(void **state) {
        Audit *a = open_audit(AUDIT_OPENED);
        AuditRecord record = {.user = "root", .pid = 1, .method = "io.hostd.Test.Do", .result = "ok"};
        _cleanup_error_ Error e = ERROR_NULL;
        char name[CLOCK_TEXT_MAX + 8], day[CLOCK_TEXT_MAX];

        append(a, "io.hostd.Test.Do", T0);
        snprintf(name, sizeof(name), "%s.jsonl", clock_format_day(T0, day));
        _cleanup_free_ char *path = day_path(name);
        assert_int_equal(unlink(path), 0);
        assert_true(audit_append_at(a, &record, T0 + 1, &e) < 0);
        assert_non_null(strstr(e.message, "removed or replaced"));
        audit_close(a);
}

// ---- records that are not waited for ----

// A disk that fails: the linker leads the writer's flush_end() here.
static int flush_failure;
int __real_flush_end(Flush *flush, bool wait);
int __wrap_flush_end(Flush *flush, bool wait);
int __wrap_flush_end(Flush *flush, bool wait) {
        int r = __real_flush_end(flush, wait);

        return r == 0 && flush_failure ? flush_failure : r;
}

typedef struct Told { int n, failed; } Told;

static void tell(void *userdata, int r, Error *err) {
        Told *told = userdata;

        told->n++;
        told->failed += r < 0;
        assert_true(r == 0 || strstr(error_message(err, r), "writing the audit log"));
}

static void append_later(Audit *a, Told *told) {
        AuditRecord record = {.user = "root", .pid = 1, .method = "io.hostd.Test.Later", .result = "started"};

        assert_int_equal(audit_append_later(a, &record, tell, told, NULL), 0);
}

static void append_now(Audit *a) {
        AuditRecord record = {.user = "root", .pid = 1, .method = "io.hostd.Test.Now", .result = "ok"};

        assert_int_equal(audit_append(a, &record, NULL), 0);
}

// As the loop does it.
static void dispatch_until(Audit *a, const Told *told, int n) {
        struct pollfd p = {.fd = audit_fd(a), .events = POLLIN};

        while (told->n < n) {
                assert_int_equal(poll(&p, 1, 10000), 1);
                audit_dispatch(a);
        }
        assert_int_equal(told->n, n);
        assert_int_equal(poll(&p, 1, 0), 0); // or the loop would spin
}

static void test_later(void **state) {
        Audit *a = open_audit(AUDIT_OPENED);
        Told one = {0}, two = {0}, gone = {0};

        append_later(a, &one);
        assert_int_equal(one.n, 0); // never from within
        dispatch_until(a, &one, 1);
        verify(NULL, 1);
        // Three that come together, and one of them whose caller goes away.
        append_later(a, &one);
        append_later(a, &gone);
        append_later(a, &two);
        audit_forget(a, &gone);
        dispatch_until(a, &two, 1);
        assert_int_equal(one.n, 2);
        assert_int_equal(gone.n, 0);
        // One that is waited for takes along those before it, and they are told all the same.
        append_later(a, &one);
        append_later(a, &two);
        append_now(a);
        verify(NULL, 7);
        dispatch_until(a, &two, 2);
        assert_int_equal(one.n, 3);
        assert_int_equal(one.failed + two.failed, 0);
        // A close does not lose what nobody was told of yet.
        append_later(a, &one);
        audit_close(a);
        verify(NULL, 8);
        assert_int_equal(one.n, 3);
        audit_close(open_audit(AUDIT_OPENED));
}

// What the disk did not take is cut off again and told; what follows continues the chain behind the last safe record.
static void test_later_fails(void **state) {
        Audit *a = open_audit(AUDIT_OPENED);
        Told told = {0}, next = {0};

        append_now(a);
        flush_failure = -EIO;
        append_later(a, &told);
        append_later(a, &told); // behind the flush that runs
        dispatch_until(a, &told, 2);
        assert_int_equal(told.failed, 2);
        verify(NULL, 1);
        append_later(a, &told);
        flush_failure = 0;
        append_later(a, &next);
        flush_failure = -EIO;
        append_now(a); // settles that flush first
        flush_failure = 0;
        dispatch_until(a, &told, 3);
        assert_int_equal(told.failed, 3);
        assert_int_equal(next.failed, 1);
        verify(NULL, 2);
        append_later(a, &next);
        dispatch_until(a, &next, 2);
        audit_close(a);
        verify(NULL, 3);
}

// Where the kernel has no asynchronous flush, or no room for one more.
static void test_flush_at_once(void **state) {
        _cleanup_close_ int fd = open(dir, O_TMPFILE | O_RDWR, 0600), told = eventfd(0, EFD_NONBLOCK);
        Flush flush = FLUSH_NULL;
        eventfd_t n;
        int p[2];

        assert_int_equal(pipe(p), 0);
        flush_begin(&flush, p[1], told); // no fsync there: the kernel refuses to take it, and so does fdatasync()
        assert_int_equal(eventfd_read(told, &n), 0);
        assert_int_equal(flush_end(&flush, false), -EINVAL);
        assert_false(flush.running);
        flush_begin(&flush, fd, told);
        assert_int_equal(flush_end(&flush, true), 0);
        assert_int_equal(eventfd_read(told, &n), 0);
        flush_done(&flush);
        (void) close(p[0]);
        (void) close(p[1]);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                DIR_TEST(test_later), DIR_TEST(test_later_fails), DIR_TEST(test_flush_at_once),
                DIR_TEST(test_replaced_file),
                DIR_TEST(test_append_and_days), DIR_TEST(test_clock_back),     DIR_TEST(test_second_writer),
                cmocka_unit_test(test_torn),    DIR_TEST(test_torn_only_line), DIR_TEST(test_killed_writer),
                DIR_TEST(test_disk_full),
                DIR_TEST(test_changed_bytes),   DIR_TEST(test_lines),          DIR_TEST(test_files),
                DIR_TEST(test_truncated_tail),  DIR_TEST(test_rewritten_last), DIR_TEST(test_expire),
                DIR_TEST(test_expire_beside_writer), DIR_TEST(test_escapes_and_cuts), DIR_TEST(test_query),
        };
        return cmocka_run_group_tests_name("audit", tests, NULL, NULL);
}
