// SPDX-License-Identifier: GPL-2.0-or-later
// The evidence log: lines, rotation, age, a full disk, torn lines, and reading it backwards through filters.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/io.h"
#include "flow/answer.h"
#include "flow/log.h"
#include "flow/query.h"

#define NOW ((usec_t) 1800000000 * USEC_PER_SEC)
#define EVERYTHING ((FlowFilter) {.kind = _FLOW_KIND_INVALID, .limit = UINT64_MAX})

static char folder[] = "test_flow_log.XXXXXX";

static int setup(void **state) {
        int *fd = malloc(sizeof(int));

        memcpy(strrchr(folder, '.'), ".XXXXXX", 7);
        if (!mkdtemp(folder))
                return -1;
        *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        *state = fd;
        return *fd < 0;
}

static int teardown(void **state) {
        (void) close(*(int *) *state);
        free(*state);
        return io_remove_tree(AT_FDCWD, folder);
}

static FlowRecord record_make(FlowKind kind, FlowVerdict verdict, const char *name) {
        FlowRecord record;

        flow_record_init(&record, kind, verdict);
        record.slot = 1;
        record.realtime_usec = (int64_t) NOW;
        flow_record_set_name(&record, name, strlen(name));
        return record;
}

static FlowLog *log_open(int dir, const FlowLogSettings *settings) {
        FlowLog *log = NULL;

        assert_int_equal(flow_log_new(dir, "a", settings, &log), 0);
        return log;
}

// The names of what a query hands out, newest first, each followed by a space; `ret_torn` may be NULL.
static char *ask(int dir, FlowFilter filter, uint64_t *ret_torn) {
        _cleanup_(flow_query_freep) FlowQuery *query = NULL;
        char *names = strdup("");
        const char *line;
        size_t size;
        int r;

        assert_int_equal(flow_query_new(dir, "a", &filter, &query), 0);
        while ((r = flow_query_next(query, &line, &size)) != 0) {
                json_error_t error;
                json_t *object;
                char *more;
                if (r == -EAGAIN)
                        continue;
                assert_int_equal(r, 1);
                object = json_loadb(line, size, 0, &error);
                assert_non_null(object);
                assert_true(asprintf(&more, "%s%s ", names, json_string_value(json_object_get(object, "name")) ?: "-") >= 0);
                free(names);
                names = more;
                json_decref(object);
        }
        if (ret_torn)
                *ret_torn = flow_query_torn(query);
        return names;
}

static void expect(int dir, FlowFilter filter, const char *names) {
        _cleanup_free_ char *found = ask(dir, filter, NULL);

        assert_string_equal(found, names);
}

static void lines(void **state) {
        char line[FLOW_LINE_MAX], long_name[300];
        FlowRecord record = record_make(FLOW_TLS, FLOW_DENY, "evil.example");
        json_t *object;
        FlowLineHead head;
        size_t n;

        record.family = 4;
        memcpy(record.address, "\x01\x02\x03\x04", 4);
        record.protocol = IPPROTO_TCP;
        record.port = 443;
        record.rule = 3;
        record.tx = 10;
        record.rx = UINT64_MAX;
        record.duration_usec = 5;
        record.flags = FLOW_FLAG_OPEN | FLOW_FLAG_INBOUND;
        flow_record_set_policy(&record, "web");
        flow_record_set_reason(&record, "no \"such\" \\ thing {}");
        n = flow_line_format(&record, NULL, NOW, line);
        assert_true(flow_line_parse(line, n - 1, &head));
        assert_int_equal(head.kind, FLOW_TLS);
        assert_int_equal(head.verdict, FLOW_DENY);
        assert_string_equal(head.time, "2027-01-15T08:00:00.000000Z");
        line[n] = 0;
        assert_string_equal(line, "{\"time\":\"2027-01-15T08:00:00.000000Z\",\"verdict\":\"deny\",\"kind\":\"tls\",\"name\":\"evil.example\","
                                  "\"address\":\"1.2.3.4\",\"protocol\":\"tcp\",\"port\":443,\"policy\":\"web\",\"rule\":3,"
                                  "\"reason\":\"no \\\"such\\\" \\\\ thing {}\",\"sent\":10,\"received\":9223372036854775807,\"duration\":5,"
                                  "\"start\":\"2027-01-15T08:00:00.000000Z\",\"open\":true,\"inbound\":true}\n");
        for (size_t cut = 0; cut < n - 2; cut++) // what a power cut may leave; "{}" in the reason ends like a line
                if (line[cut] != '}')
                        assert_false(flow_line_parse(line, cut + 1, &head));
        memset(long_name, 'x', sizeof(long_name));
        flow_record_set_name(&record, long_name, sizeof(long_name));
        memset(record.reason, '"', sizeof(record.reason) - 1);
        n = flow_line_format(&record, NULL, NOW, line);
        object = json_loadb(line, n, 0, NULL);
        assert_non_null(object);
        assert_int_equal(json_string_length(json_object_get(object, "name")), 255);
        assert_int_equal(json_string_length(json_object_get(object, "reason")), 95);
        json_decref(object);
        n = flow_line_format_lost(7, "why", NOW, line);
        assert_true(flow_line_parse(line, n - 1, &head));
        assert_int_equal(head.kind, _FLOW_KIND_INVALID);
}

static void filters(void **state) {
        int dir = *(int *) *state;
        _cleanup_(flow_log_freep) FlowLog *log = log_open(dir, &FLOW_LOG_DEFAULTS);
        FlowFilter filter = EVERYTHING;

        for (int i = 0; i < 4; i++) {
                char name[] = {(char) ('a' + i), 0};
                FlowRecord record = record_make(i % 2 ? FLOW_DNS : FLOW_TLS, i < 2 ? FLOW_DENY : FLOW_ALLOW, name);
                flow_log_write(log, &record, NULL, NOW + (usec_t) i * USEC_PER_SEC);
        }
        expect(dir, filter, "d c b a ");
        filter.limit = 2;
        expect(dir, filter, "d c ");
        filter = EVERYTHING;
        filter.denied = true;
        expect(dir, filter, "b a ");
        filter.kind = FLOW_DNS;
        expect(dir, filter, "b ");
        filter = EVERYTHING;
        filter.since_usec = (int64_t) (NOW + 2 * USEC_PER_SEC);
        filter.since_usec = MIN2(filter.since_usec, (int64_t) clock_realtime()); // files are left out by their own time
        expect(dir, filter, filter.since_usec == (int64_t) (NOW + 2 * USEC_PER_SEC) ? "d c " : "d c b a ");
}

static void since(void **state) {
        int dir = *(int *) *state;
        _cleanup_(flow_log_freep) FlowLog *log = log_open(dir, &FLOW_LOG_DEFAULTS);
        usec_t now = clock_realtime();
        FlowRecord record = record_make(FLOW_DNS, FLOW_ALLOW, "old");
        FlowFilter filter = EVERYTHING;

        flow_log_write(log, &record, NULL, now - 100 * USEC_PER_SEC);
        record = record_make(FLOW_DNS, FLOW_ALLOW, "new");
        flow_log_write(log, &record, NULL, now);
        filter.since_usec = (int64_t) (now - 10 * USEC_PER_SEC);
        expect(dir, filter, "new ");
        filter.since_usec = (int64_t) (now + 3600 * USEC_PER_SEC);
        expect(dir, filter, "");
}

static size_t count_files(int dir, uint64_t *ret_bytes) {
        uint64_t numbers[FLOW_LOG_FILES_MAX];
        _cleanup_close_ int fd = openat(dir, "a", O_RDONLY | O_DIRECTORY);
        int n = flow_log_list(fd, numbers);

        *ret_bytes = 0;
        for (int i = 0; i < n; i++) {
                char name[32];
                struct stat st;
                flow_log_file_name(numbers[i], name);
                assert_int_equal(fstatat(fd, name, &st, 0), 0);
                *ret_bytes += (uint64_t) st.st_size;
        }
        return (size_t) n;
}

static void bounded(void **state) {
        int dir = *(int *) *state;
        const FlowLogSettings settings = {.file_bytes = 10000, .total_bytes = 50000, .age = FLOW_LOG_DEFAULTS.age};
        FlowLog *log = log_open(dir, &settings);
        _cleanup_free_ char *found = NULL;
        uint64_t bytes, torn;

        for (int i = 0; i < 3000; i++) { // about 90 bytes each
                FlowRecord record;
                char name[16];
                (void) snprintf(name, sizeof(name), "n%04d", i);
                record = record_make(FLOW_DNS, FLOW_ALLOW, name);
                flow_log_write(log, &record, NULL, NOW);
                if (i % 500 == 0) { // as if it were started again
                        (void) flow_log_free(log);
                        log = log_open(dir, &settings);
                }
        }
        assert_true(count_files(dir, &bytes) <= 6);
        assert_true(bytes <= 50000 && bytes > 30000);
        assert_true(flow_log_dropped(log) == 0);
        found = ask(dir, EVERYTHING, &torn);
        assert_int_equal(torn, 0);
        assert_memory_equal(found, "n2999 n2998 n2997 ", 18);
        assert_true(strlen(found) > 300 * 6);
        // Nothing is missing in between.
        for (size_t i = 0; i < strlen(found) / 6; i++)
                assert_int_equal(strtol(found + i * 6 + 1, NULL, 10), 2999 - (long) i);
        (void) flow_log_free(log);
}

static void age(void **state) {
        int dir = *(int *) *state;
        _cleanup_(flow_log_freep) FlowLog *log = log_open(dir, &FLOW_LOG_DEFAULTS);
        const usec_t day = 86400 * USEC_PER_SEC;
        uint64_t bytes;

        for (usec_t i = 0; i < 5; i++) {
                FlowRecord record = record_make(FLOW_DNS, FLOW_ALLOW, "x");
                flow_log_write(log, &record, NULL, NOW + i * day + i * USEC_PER_SEC);
        }
        assert_int_equal(count_files(dir, &bytes), 5); // one a day
        flow_log_tidy(log, NOW + 32 * day);
        assert_int_equal(count_files(dir, &bytes), 3);
        flow_log_tidy(log, NOW + 400 * day);
        assert_int_equal(count_files(dir, &bytes), 0);
        FlowRecord record = record_make(FLOW_DNS, FLOW_ALLOW, "again");
        flow_log_write(log, &record, NULL, NOW + 400 * day);
        expect(dir, EVERYTHING, "again ");
}

static void torn_lines(void **state) {
        int dir = *(int *) *state;
        FlowLog *log = log_open(dir, &FLOW_LOG_DEFAULTS);
        FlowRecord record = record_make(FLOW_DNS, FLOW_ALLOW, "one");
        _cleanup_free_ char *found = NULL;
        _cleanup_close_ int fd = -EBADF;
        char junk[100000];
        uint64_t torn;

        flow_log_write(log, &record, NULL, NOW);
        (void) flow_log_free(log);
        fd = openat(dir, "a/0000000001.jsonl", O_WRONLY | O_APPEND);
        assert_int_equal(write(fd, "{\"time\":\"2027-01-15T08:0", 24), 24);
        log = log_open(dir, &FLOW_LOG_DEFAULTS);
        record = record_make(FLOW_DNS, FLOW_ALLOW, "two");
        flow_log_write(log, &record, NULL, NOW);
        found = ask(dir, EVERYTHING, &torn);
        assert_string_equal(found, "two one ");
        assert_int_equal(torn, 1);
        free(TAKE_PTR(found));
        memset(junk, 'j', sizeof(junk)); // longer than what is read at once
        assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
        assert_int_equal(write(fd, "\n", 1), 1);
        record = record_make(FLOW_DNS, FLOW_ALLOW, "three");
        flow_log_write(log, &record, NULL, NOW);
        found = ask(dir, EVERYTHING, &torn);
        assert_string_equal(found, "three two one ");
        assert_true(torn >= 2);
        (void) flow_log_free(log);
}

// A file size limit is as good as a full disk: a short write first, then an error.
static void full(void **state) {
        int dir = *(int *) *state;
        FlowLog *log = log_open(dir, &FLOW_LOG_DEFAULTS);
        FlowRecord record = record_make(FLOW_DNS, FLOW_ALLOW, "one");
        struct rlimit old, small;
        _cleanup_free_ char *found = NULL;
        uint64_t torn;

        (void) signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
        small = (struct rlimit) {.rlim_cur = 150, .rlim_max = old.rlim_max};
        flow_log_write(log, &record, NULL, NOW);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        for (int i = 0; i < 5; i++)
                flow_log_write(log, &record, NULL, NOW);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(flow_log_dropped(log), 5);
        found = ask(dir, EVERYTHING, &torn);
        assert_string_equal(found, "one ");
        assert_int_equal(torn, 0);
        free(TAKE_PTR(found));
        record = record_make(FLOW_DNS, FLOW_ALLOW, "two");
        flow_log_write(log, &record, NULL, NOW);
        expect(dir, EVERYTHING, "two - one "); // "-": that five were lost
        (void) flow_log_free(log);
}

static bool known_b(const char *instance, void *userdata) {
        return strcmp(instance, "b") == 0;
}

static void sweep(void **state) {
        static const char *const names[] = {"a", "b", "c", "d"};
        int dir = *(int *) *state;
        FlowRecord record = record_make(FLOW_DNS, FLOW_ALLOW, "x");

        for (size_t i = 0; i < ELEMENTS(names); i++) {
                FlowLog *log = NULL;
                struct timespec times[2] = {{.tv_sec = 1000 * (time_t) (i + 1)}, {.tv_sec = 1000 * (time_t) (i + 1)}};
                assert_int_equal(flow_log_new(dir, names[i], &FLOW_LOG_DEFAULTS, &log), 0);
                flow_log_write(log, &record, NULL, NOW);
                (void) flow_log_free(log);
                assert_int_equal(utimensat(dir, names[i], times, 0), 0);
        }
        assert_int_equal(flow_log_sweep(dir, 1500 * USEC_PER_SEC, 1, known_b, NULL), 0);
        assert_int_equal(faccessat(dir, "a", F_OK, 0), -1); // too old
        assert_int_equal(faccessat(dir, "b", F_OK, 0), 0);  // somebody's
        assert_int_equal(faccessat(dir, "c", F_OK, 0), -1); // one too many
        assert_int_equal(faccessat(dir, "d", F_OK, 0), 0);
}

static void on_done(Answer *answer, int r, void *userdata) {
        *(int *) userdata = r;
}

// Each bit that is read is progress, and none of it buys time.
static void slow_reader(void **state) {
        int dir = *(int *) *state, fds[2], result = 1;
        FlowLog *log = log_open(dir, &FLOW_LOG_DEFAULTS);
        FlowRecord record = record_make(FLOW_DNS, FLOW_ALLOW, "x");
        FlowFilter filter = EVERYTHING;
        sd_event *event = NULL;
        Answer *answer = NULL;
        usec_t begun, taken = 0;
        char some[4096];

        for (int i = 0; i < 20000; i++)
                flow_log_write(log, &record, NULL, NOW);
        (void) flow_log_free(log);
        assert_int_equal(sd_event_new(&event), 0);
        assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
        AnswerConfig config = {.event = event, .fd = fds[1], .deadline = 400 * USEC_PER_MSEC, .done = on_done, .userdata = &result};
        assert_int_equal(flow_query_new(dir, "a", &filter, &config.query), 0);
        begun = clock_monotonic(); // before its deadline begins: this process may be put aside right after that
        assert_int_equal(answer_new(&config, &answer), 0);
        while (result > 0 && clock_monotonic() - begun < 10 * USEC_PER_SEC) {
                (void) sd_event_run(event, 20 * USEC_PER_MSEC);
                if (clock_monotonic() - begun >= (taken + 1) * 50 * USEC_PER_MSEC) {
                        taken++;
                        assert_true(read(fds[0], some, sizeof(some)) > 0);
                }
        }
        assert_int_equal(result, -ETIMEDOUT);
        assert_true(clock_monotonic() - begun >= 400 * USEC_PER_MSEC);
        (void) answer_free(answer);
        (void) close(fds[0]);
        sd_event_unref(event);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lines),
                cmocka_unit_test_setup_teardown(filters, setup, teardown), cmocka_unit_test_setup_teardown(since, setup, teardown),
                cmocka_unit_test_setup_teardown(bounded, setup, teardown), cmocka_unit_test_setup_teardown(age, setup, teardown),
                cmocka_unit_test_setup_teardown(torn_lines, setup, teardown), cmocka_unit_test_setup_teardown(full, setup, teardown),
                cmocka_unit_test_setup_teardown(sweep, setup, teardown),
                cmocka_unit_test_setup_teardown(slow_reader, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
