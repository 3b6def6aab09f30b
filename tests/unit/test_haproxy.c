// SPDX-License-Identifier: GPL-2.0-or-later
// HAProxy's configuration and its admin socket: nothing unchecked gets into the text, no value ever does, and a false HAProxy at the other end of
// the socket can neither hang nor mislead hostd. What the real one does with it: tests/integration/secrets.sh.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/strv.h"
#include "secret/haproxy.h"
#include "secret/haproxy_log.h"
#include "secret/runtime.h"

static Binding example(BindingPlace place) {
        return (Binding) {.id = "00112233445566aa", .secret = "token", .instance = "one", .host = (char *) "api.example.com", .port = 443, .place = place,
                          .field = place == BINDING_BASIC ? NULL : (char *) "X-Key", .placeholder = BINDING_PLACEHOLDER "0123456789abcdef0123456789abcdef"};
}

static HaproxyConfig config_of(const Binding *const *bindings, size_t n) {
        return (HaproxyConfig) {"/run/x/sock", "/run/x/crt", "/run/x/secret.map", "/run/x/redact.lua", "/run/x/log.sock", NULL, bindings, n};
}

static unsigned count(const char *text, const char *word) {
        unsigned n = 0;

        for (const char *p = text; (p = strstr(p, word)); p++)
                n++;
        return n;
}

static void test_text(void **state) {
        Binding a = example(BINDING_HEADER), b = example(BINDING_QUERY), c = example(BINDING_BASIC);
        char *paths[] = {(char *) "/v1", (char *) "/v2/", NULL}, *methods[] = {(char *) "GET", (char *) "POST", NULL};
        _cleanup_free_ char *text = NULL, *again = NULL;
        const Binding *list[] = {&a, &b, &c};
        HaproxyConfig config = config_of(list, 3);

        b.id[0] = '1';
        c.id[0] = '2';
        c.host = (char *) "other.example.com";
        a.paths = paths;
        a.methods = methods;
        assert_int_equal(haproxy_config(&config, &text, NULL), 0);
        assert_int_equal(haproxy_config(&config, &again, NULL), 0);
        assert_string_equal(text, again);
        assert_int_equal(count(text, "\nbackend "), 2); // one for each host
        assert_int_equal(count(text, "verify required ca-file @system-ca"), 4); // and two servers of each
        assert_int_equal(count(text, "alpn h2,http/1.1 ws h1\n"), 2);
        assert_int_equal(count(text, "verify none"), 0);
        assert_non_null(strstr(text, "method -m str GET POST\n"));
        assert_non_null(strstr(text, "path -m str /v1\n"));
        assert_non_null(strstr(text, "path -m beg /v1/\n"));
        assert_null(strstr(text, "path -m str /v2"));
        assert_non_null(strstr(text, "strict-sni"));
}

// The program has ids and names of what it looks for, and is part of what makes one configuration another.
static void test_program(void **state) {
        Binding a = example(BINDING_HEADER), b = example(BINDING_QUERY), c = example(BINDING_BASIC);
        _cleanup_free_ char *text = NULL, *program = NULL;
        const Binding *list[] = {&a, &b, &c};
        HaproxyConfig config = config_of(list, 3);
        char version[DIGEST_TEXT_MAX];

        b.id[0] = '1';
        c.id[0] = '2';
        memcpy(c.secret, "other", sizeof("other"));
        assert_int_equal(haproxy_program(&config, &program, NULL), 0);
        assert_non_null(strstr(program, "local MAP, MIN, NAMES = '/run/x/secret.map', 8, 8\n"));
        assert_non_null(strstr(program, "{id = '00112233445566aa', secret = 'token', first = '00112233445566aa'},\n"));
        assert_non_null(strstr(program, "{id = '10112233445566aa', secret = 'token', first = '00112233445566aa'},\n"));
        assert_non_null(strstr(program, "{id = '20112233445566aa', secret = 'other', first = '20112233445566aa'},\n"));
        assert_null(strstr(program, BINDING_PLACEHOLDER));
        assert_int_equal(haproxy_config(&config, &text, NULL), 0);
        assert_non_null(strstr(text, haproxy_program_version(version)));
        assert_non_null(strstr(text, "lua-load-per-thread /run/x/redact.lua\n"));
        assert_non_null(strstr(text, "http-response lua.redact\n"));
        assert_non_null(strstr(text, "unless { var(txn.looked) -m found }\n"));
}

static void refused(const HaproxyConfig *config, const char *what) {
        _cleanup_error_ Error err = ERROR_NULL;
        char *text = NULL;

        if (haproxy_config(config, &text, &err) >= 0 || haproxy_program(config, &text, NULL) >= 0)
                fail_msg("taken: %s", what);
        assert_int_equal(err.code, ERR_INVALID);
        assert_null(text);
}

// The strings that would end a word, a quote, a line or a format there.
static void test_nothing_unchecked(void **state) {
        static const char *const bad[] = {"a b", "a\nb", "a'b", "a\"b", "a#b", "a\\b", "a%[b]", "a{b", "a}b", "a$b", "a;b", "a\x80", "", "a\tb", "a,b", "a(b"};

        for (size_t i = 0; i < ELEMENTS(bad); i++)
                for (int field = 0; field < 14; field++) {
                        Binding b = example(field == 8 ? BINDING_QUERY : field == 7 ? BINDING_BASIC : BINDING_HEADER);
                        const Binding *list[] = {&b};
                        HaproxyConfig config = config_of(list, 1);
                        _cleanup_free_ char *path = NULL;
                        char *words[] = {(char *) bad[i], NULL};
                        assert_true(asprintf(&path, "/%s", bad[i]) > 0);
                        if (!*bad[i] && field >= 4 && field <= 5)
                                continue; // "/" is a path
                        char *paths[] = {path, NULL};
                        switch (field) {
                        case 0: b.host = words[0]; break;
                        case 1: b.field = words[0]; break;
                        case 2: snprintf(b.secret, sizeof(b.secret), "%s", bad[i]); break;
                        case 3: b.methods = words; break;
                        case 4: b.paths = paths; break;
                        case 5: config.map = path; break;
                        case 6: b.inject = true; b.placeholder[0] = 0; b.word = words[0]; break;
                        case 7: b.inject = true; b.placeholder[0] = 0; b.user = words[0]; break;
                        case 8: b.field = words[0]; break;
                        case 9: snprintf(b.id, sizeof(b.id), "%s", bad[i]); break;
                        case 10: snprintf(b.placeholder + strlen(BINDING_PLACEHOLDER), 8, "%s", bad[i]); break;
                        case 11: config.log = bad[i]; break;
                        case 12: config.authorities = bad[i]; break;
                        case 13: config.program = bad[i]; break;
                        }
                        refused(&config, bad[i]);
                }
}

// ---- admin socket ----

// A false HAProxy: for each connection reads up to `reads` bytes and writes an answer.
typedef struct Answers {
        const char *texts[6];
        bool silent; // takes the connection and says nothing
} Answers;

typedef struct Fake {
        char directory[64], path[96];
        pid_t pid;
        sd_event *event;
        int r;
        ErrorCode code;
        char message[256];
        bool done;
} Fake;

static void serve(int fd, int record, const Answers *answers) {
        for (size_t i = 0; i < 6 && answers->texts[i]; i++) {
                int c = accept(fd, NULL, NULL);
                char command[4096];
                ssize_t n;
                if (answers->silent)
                        (void) pause();
                n = read(c, command, sizeof(command));
                if (n > 0)
                        (void) io_write_all(record, command, (size_t) n);
                (void) io_write_all(c, answers->texts[i], strlen(answers->texts[i]));
                close(c);
        }
}

static void start(Fake *f, const Answers *answers) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        _cleanup_free_ char *record = NULL;

        *f = (Fake) {.directory = "/tmp/hostd-test-haproxy.XXXXXX"};
        assert_non_null(mkdtemp(f->directory));
        snprintf(f->path, sizeof(f->path), "%s/admin.sock", f->directory);
        assert_true(asprintf(&record, "%s/record", f->directory) > 0);
        _cleanup_close_ int out = open(record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        memcpy(address.sun_path, f->path, strlen(f->path) + 1);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 8), 0);
        f->pid = fork();
        assert_true(f->pid >= 0);
        if (f->pid == 0) {
                (void) signal(SIGPIPE, SIG_IGN);
                serve(fd, out, answers);
                _exit(0);
        }
        assert_int_equal(sd_event_new(&f->event), 0);
}

static void on_done(void *userdata, int r, Error *err) {
        Fake *f = userdata;

        f->done = true;
        f->r = r;
        f->code = err->code;
        snprintf(f->message, sizeof(f->message), "%s", r < 0 ? error_message(err, r) : "");
}

static RuntimeEntry *entries_of(const char *text) {
        RuntimeEntry *entries = calloc(1, sizeof(RuntimeEntry));

        snprintf(entries[0].key, sizeof(entries[0].key), "00112233445566aa");
        assert_int_equal(value_new(strlen(text), &entries[0].value), 0);
        memcpy(entries[0].value->data, text, strlen(text));
        return entries;
}

#define VALUE "a value; with \\ \"all\" <<\tof it"

// Runs to the end; returns what the other side was told. Caller frees.
static char *fill(Fake *f, uid_t uid, int *ret) {
        RuntimeSpec spec = {f->path, "/run/x/secret.map", uid, entries_of(VALUE), 1, 300 * USEC_PER_MSEC, on_done, f};
        _cleanup_(runtime_freep) Runtime *rt = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        usec_t until = clock_monotonic() + 20 * USEC_PER_SEC;
        char *record = NULL;
        int r = runtime_fill(f->event, &spec, &rt, &err);

        while (r >= 0 && !f->done && clock_monotonic() < until)
                assert_true(sd_event_run(f->event, 100000) >= 0);
        assert_true(r < 0 || f->done);
        *ret = r < 0 ? r : f->r;
        if (r < 0)
                f->code = err.code;
        rt = runtime_free(rt);
        kill(f->pid, SIGKILL);
        waitpid(f->pid, NULL, 0);
        _cleanup_close_ int dir = open(f->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(io_read_file(dir, "record", 65536, &record, NULL), 0);
        sd_event_unref(f->event);
        assert_int_equal(io_remove_tree(AT_FDCWD, f->directory), 0);
        return record;
}

static void test_fill(void **state) {
        static const Answers answers = {.texts = {"New version created: 7\n\n", "\n", "\n"}};
        _cleanup_free_ char *record = NULL;
        Fake f;
        int r;

        start(&f, &answers);
        record = fill(&f, geteuid(), &r);
        if (r < 0)
                fail_msg("%s", f.message);
        assert_string_equal(record, "prepare map /run/x/secret.map\n"
                                    "add map @7 /run/x/secret.map <<\n00112233445566aa YSB2YWx1ZTsgd2l0aCBcICJhbGwiIDw8CW9mIGl0\n\n"
                                    "commit map @7 /run/x/secret.map\n");
}

static void test_false_answers(void **state) {
        static char long_text[4096];
        static const Answers cases[] = {
                {.texts = {"Unknown map identifier.\n"}},
                {.texts = {"New version created: 0\n"}},
                {.texts = {"New version created: \n"}},
                {.texts = {""}},
                {.texts = {long_text}},
                {.texts = {"New version created: 7\n", "bad " VALUE "\n"}},
                {.texts = {"New version created: 7\n", "\n", "no\n"}},
                {.texts = {"New version created: 7\n", "\n"}}, // and gone
                {.texts = {"x"}, .silent = true},
        };

        memset(long_text, 'x', sizeof(long_text) - 1);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Fake f;
                int r;
                start(&f, &cases[i]);
                _cleanup_free_ char *record = fill(&f, geteuid(), &r);
                if (r >= 0)
                        fail_msg("case %zu: taken for success", i);
                assert_int_equal(f.code, cases[i].silent ? ERR_TIMEOUT : ERR_UNAVAILABLE);
                assert_null(strstr(f.message, VALUE));
        }
}

// A socket that is another user's gets nothing.
static void test_socket_of_another(void **state) {
        static const Answers answers = {.texts = {"New version created: 7\n\n", "\n", "\n"}};
        Fake f;
        int r;

        start(&f, &answers);
        _cleanup_free_ char *record = fill(&f, geteuid() + 1, &r);
        assert_true(r < 0);
        assert_int_equal(f.code, ERR_DENIED);
        assert_string_equal(record, "");
}

// ---- log ----

// Says far more than there may be, for a second and a half, while hostd reads. Returns how many lines it could not even say.
static unsigned flood(sd_event *event, int fd) {
        char line[3000];
        unsigned refused = 0;

        memset(line, 'x', sizeof(line));
        memcpy(line, "\x1b\x80", 2);
        line[sizeof(line) - 1] = '\n';
        for (usec_t end = clock_monotonic() + 1500 * USEC_PER_MSEC; clock_monotonic() < end;) {
                for (int i = 0; i < 50; i++)
                        refused += write(fd, line, sizeof(line)) != (ssize_t) sizeof(line);
                assert_true(sd_event_run(event, 1000) >= 0);
        }
        return refused;
}

static char *log_text_of(int directory, const char *name, size_t *ret_size) {
        char *text = NULL;

        assert_int_equal(io_read_file(directory, name, HAPROXY_LOG_MAX, &text, ret_size), 0); // no larger
        return text;
}

static void test_log(void **state) {
        char path[] = "/tmp/hostd-test-haproxy.XXXXXX";
        _cleanup_free_ char *old = NULL, *text = NULL, *full = calloc(1, HAPROXY_LOG_MAX);
        _cleanup_close_ int directory = -EBADF, fd = -EBADF;
        HaproxyLog *log = NULL;
        sd_event *event = NULL;
        size_t size;

        assert_non_null(mkdtemp(path));
        directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        memset(full, 'y', HAPROXY_LOG_MAX - 10);
        assert_int_equal(io_write_atomic(directory, HAPROXY_LOG_FILE, full, HAPROXY_LOG_MAX - 10, 0600), 0);
        assert_int_equal(sd_event_new(&event), 0);
        assert_int_equal(haproxy_log_new(event, directory, getegid(), &log, NULL), 0);
        fd = openat(directory, HAPROXY_LOG_PIPE, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_true(flood(event, fd) > 0);
        assert_true(write(fd, "the end", 7) == 7 || errno == EAGAIN);
        log = haproxy_log_free(log);
        old = log_text_of(directory, HAPROXY_LOG_OLD, &size);
        assert_int_equal(size, HAPROXY_LOG_MAX - 10);
        text = log_text_of(directory, HAPROXY_LOG_FILE, &size);
        assert_true(count(text, "\n") <= 3 * (HAPROXY_LOG_LINES_PER_SECOND + 1));
        assert_true(count(text, "\n??x") >= HAPROXY_LOG_LINES_PER_SECOND);
        assert_true(count(text, "{\"lost\":") >= 1);
        for (const char *line = text; *line; line = strchr(line, '\n') + 1)
                assert_true(strcspn(line, "\n") < HAPROXY_LOG_LINE_MAX);
        sd_event_unref(event);
        (void) io_remove_tree(AT_FDCWD, path);
}

// What HAProxy said last is there when hostd has ended it.
static void test_log_end(void **state) {
        char path[] = "/tmp/hostd-test-haproxy.XXXXXX";
        _cleanup_close_ int directory = -EBADF, fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        HaproxyLog *log = NULL;
        sd_event *event = NULL;

        assert_non_null(mkdtemp(path));
        directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(sd_event_new(&event), 0);
        assert_int_equal(haproxy_log_new(event, directory, getegid(), &log, NULL), 0);
        fd = openat(directory, HAPROXY_LOG_PIPE, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, "one\ntwo", 7), 7);
        log = haproxy_log_free(log);
        text = log_text_of(directory, HAPROXY_LOG_FILE, NULL);
        assert_string_equal(text, "one\ntwo\n");
        sd_event_unref(event);
        (void) io_remove_tree(AT_FDCWD, path);
}

typedef struct Told {
        unsigned n;
        char host[256], ids[256];
} Told;

static void told(void *userdata, const char *host, const char *ids) {
        Told *t = userdata;

        t->n++;
        snprintf(t->host, sizeof(t->host), "%s", host);
        snprintf(t->ids, sizeof(t->ids), "%s", ids);
}

// A log that says what is written to its pipe.
typedef struct Heard {
        char path[40];
        int directory, fd;
        HaproxyLog *log;
        sd_event *event;
} Heard;

static void heard_open(Heard *h) {
        *h = (Heard) {.path = "/tmp/hostd-test-haproxy.XXXXXX"};
        assert_non_null(mkdtemp(h->path));
        h->directory = open(h->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(sd_event_new(&h->event), 0);
        assert_int_equal(haproxy_log_new(h->event, h->directory, getegid(), &h->log, NULL), 0);
        h->fd = openat(h->directory, HAPROXY_LOG_PIPE, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

static void heard_line(Heard *h, const char *line) {
        assert_true(dprintf(h->fd, "%s\n", line) > 0);
        assert_true(sd_event_run(h->event, 1000000) > 0);
}

static void heard_close(Heard *h) {
        h->log = haproxy_log_free(h->log);
        sd_event_unref(h->event);
        (void) close_fd(h->fd);
        (void) close_fd(h->directory);
        (void) io_remove_tree(AT_FDCWD, h->path);
}

static void test_alert(void **state) {
        static const struct {
                const char *line, *host, *ids;
        } cases[] = {
                {"{\"host\":\"a.example.com\",\"alert\":\"placeholder\",\"leaked\":\"0123456789abcdef \"}", "a.example.com", "0123456789abcdef "},
                {"{\"host\":\"a.example.com\",\"alert\":\"placeholder\",\"leaked\":\"\"}", "a.example.com", ""},
                {"{\"host\":\"a.example.com\",\"alert\":\"\",\"leaked\":\"\"}", NULL, NULL},
                {"{\"host\":\"a\\\",\\\"alert\\\":\\\"placeholder\\\"\",\"alert\":\"\"}", NULL, NULL}, // written by a guest
                {"{\"host\":\"<b>\",\"alert\":\"placeholder\",\"leaked\":\"x y\"}", "", ""},
                {"\"alert\":\"placeholder\"", "", ""},
                {"\"alert\":\"placeholder\",\"leaked\":\"00", "", "00"},
        };
        Heard heard_log;

        heard_open(&heard_log);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Told t = {.n = 0};
                haproxy_log_listen(heard_log.log, told, NULL, &t);
                heard_line(&heard_log, cases[i].line);
                if (t.n != (cases[i].host ? 1 : 0) || (t.n && (strcmp(t.host, cases[i].host) != 0 || strcmp(t.ids, cases[i].ids) != 0)))
                        fail_msg("%s: %u \"%s\" \"%s\"", cases[i].line, t.n, t.host, t.ids);
        }
        heard_close(&heard_log);
}

static void heard(void *userdata, const char *counts) {
        Told *t = userdata;

        t->n++;
        snprintf(t->ids, sizeof(t->ids), "%s", counts);
}

static void test_redacted(void **state) {
        static const struct {
                const char *line, *counts;
        } cases[] = {
                {"{\"host\":\"a\",\"redacted\":\"0123456789abcdef 2 ffff456789abcdef 10 \",\"grants\":\"\"}", "0123456789abcdef 2 ffff456789abcdef 10 "},
                {"{\"host\":\"a\",\"redacted\":\"\"}", NULL},
                {"{\"host\":\"a\"}", NULL},
                {"{\"host\":\"\\\"redacted\\\":\\\"0123456789abcdef 2 \\\"\",\"redacted\":\"\"}", NULL}, // written by a guest
                {"{\"redacted\":\"name 2 \"}", NULL},
        };
        Heard heard_log;

        heard_open(&heard_log);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Told t = {.n = 0};
                haproxy_log_listen(heard_log.log, NULL, heard, &t);
                heard_line(&heard_log, cases[i].line);
                if (t.n != (cases[i].counts ? 1 : 0) || (t.n && strcmp(t.ids, cases[i].counts) != 0))
                        fail_msg("%s: %u \"%s\"", cases[i].line, t.n, t.ids);
        }
        heard_close(&heard_log);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_alert), cmocka_unit_test(test_text),          cmocka_unit_test(test_nothing_unchecked), cmocka_unit_test(test_fill),
                cmocka_unit_test(test_false_answers), cmocka_unit_test(test_socket_of_another),
                cmocka_unit_test(test_log),           cmocka_unit_test(test_log_end), cmocka_unit_test(test_program), cmocka_unit_test(test_redacted),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
