// SPDX-License-Identifier: GPL-2.0-or-later
// The border's helpers as hostd handles them: this program is its own helper, under the name hostd-resolver and the others. What one is to
// do is in the file "mode" of the run directory.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/strv.h"
#include "border/border.h"
#include "border/server.h"
#include "core/border.h"

// ---- the helper --------------------------------------------------------------------------------------------------------------

#define OTHERS 50 // requests of another slot, behind a flood

typedef struct Fake {
        sd_event *event;
        bool deaf, refuses, floods, liar, repeats, invents;
        uint64_t acks;
} Fake;

static void fake_frame(ControlServer *server, const ControlFrame *frame, void *userdata) {
        Fake *fake = userdata;
        BorderInsert insert = {.slot = 1, .rule_id = 2, .family = 4, .address = {192, 0, 2, 1}, .ttl_s = 60, .ports = 1};

        if (frame->header.type == BORDER_QUERY) {
                int fd = control_server_take_fd(server);
                (void) !write(fd, "line\n", 5);
                (void) close(fd);
                if (fake->deaf)
                        _exit(5);
                (void) control_server_answered(server, frame->header.cookie, -ENOENT);
        }
        if (frame->header.type == BORDER_VIEWS && fake->liar)
                (void) control_server_send(server, BORDER_EVENT, 0, &(FlowRecord) {0}, sizeof(FlowRecord));
        if (frame->header.type == BORDER_VIEWS && !fake->deaf)
                (void) control_server_applied(server, frame->header.cookie, fake->refuses ? -ENOMEM : 0);
        for (unsigned i = 0; i < 3000 && frame->header.type == BORDER_VIEWS && fake->repeats; i++)
                (void) control_server_applied(server, frame->header.cookie, -EIO);
        if (frame->header.type == BORDER_VIEWS && fake->invents)
                (void) control_server_answered(server, 7, 0);
        if (frame->header.type == BORDER_VIEWS && fake->floods)
                for (unsigned i = 0; i < 6000 + OTHERS; i++) {
                        insert.slot = i < 6000 ? 1 : 2;
                        (void) control_server_send(server, BORDER_INSERT, i + 1, &insert, sizeof(insert));
                }
        fake->refuses = false;
}

static int fake_main(void) {
        Fake fake = {0};
        ControlServer *server;
        _cleanup_free_ char *mode = NULL, *path = NULL;
        int fd = border_listen_fd(BORDER_FD_CONTROL);

        if (fd < 0 || asprintf(&path, "%s/mode", getenv(BORDER_RUN_VARIABLE)) < 0 || io_read_file(AT_FDCWD, path, 64, &mode, NULL) < 0)
                return 1;
        if (strstr(mode, "dies"))
                return 2;
        fake.deaf = strstr(mode, "deaf");
        fake.refuses = strstr(mode, "refuses");
        fake.floods = strstr(mode, "floods");
        fake.liar = strstr(mode, "liar");
        fake.repeats = strstr(mode, "repeats");
        fake.invents = strstr(mode, "invents");
        if (sd_event_default(&fake.event) < 0)
                return 3;
        ControlServerConfig config = {.event = fake.event, .fd = fd, .frame = fake_frame, .userdata = &fake};
        return control_server_new(&config, &server) < 0 ? 4 : sd_event_loop(fake.event);
}

// ---- hostd -------------------------------------------------------------------------------------------------------------------

typedef struct Test {
        char run[96], programs[96], logs[96], self[PATH_MAX];
        sd_event *event;
        Border *border;
        unsigned inserts, others, views, done, changed;
        BorderPart late;
        int answer;
        uint64_t generation;
        bool parts; // all views are two texts
} Test;

static int own_account(const char *user, uid_t *ret_uid, gid_t *ret_gid) {
        *ret_uid = getuid();
        *ret_gid = getgid();
        return 0;
}

static int on_views(void *userdata, char ***ret, uint64_t *ret_generation) {
        Test *test = userdata;

        test->views++;
        *ret = NULL;
        *ret_generation = test->generation;
        if (test->parts && strv_append(ret, "{}") < 0)
                return -ENOMEM;
        return strv_append(ret, "{\"whole\":true}");
}

static int on_insert(void *userdata, const BorderInsert *insert) {
        Test *test = userdata;

        test->inserts++;
        test->others += insert->slot == 2;
        return insert->rule_id == 2 ? 0 : -EINVAL;
}

static void on_event(void *userdata, const FlowRecord *record) {
        fail();
}

static void on_changed(void *userdata, BorderPart part) {
        ((Test *) userdata)->changed++;
}

static void on_done(void *userdata, BorderPart late) {
        Test *test = userdata;

        test->done++;
        test->late = late;
}

static void write_mode(Test *test, const char *mode) {
        char path[128];
        int fd;

        (void) snprintf(path, sizeof(path), "%s/mode", test->run);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        assert_int_equal(io_write_all(fd, mode, strlen(mode)), 0);
        (void) close(fd);
}

static void install(Test *test, const char *name) {
        char path[160];

        (void) snprintf(path, sizeof(path), "%s/%s", test->programs, name);
        assert_int_equal(symlink(test->self, path), 0);
}

static void start(Test *test) {
        static const BorderHandlers handlers = {.views = on_views, .insert = on_insert, .event = on_event, .changed = on_changed};
        BorderConfig config = {.event = test->event, .run = test->run, .programs = test->programs, .data = test->run, .handlers = &handlers, .userdata = test,
                               .account = own_account};

        assert_int_equal(border_new(&config, &test->border, NULL), 0);
        border_start(test->border);
}

static int setup(void **state) {
        Test *test = calloc(1, sizeof(Test));
        ssize_t n = readlink("/proc/self/exe", test->self, sizeof(test->self) - 1);

        assert_true(n > 0);
        assert_in_range(snprintf(test->run, sizeof(test->run), "%s/border-helpers-XXXXXX", getenv("TMPDIR") ?: "/tmp"), 1, 80); // a socket's address is short
        assert_non_null(mkdtemp(test->run));
        (void) snprintf(test->programs, sizeof(test->programs), "%.80s/programs", test->run);
        (void) snprintf(test->logs, sizeof(test->logs), "%.80s/hostd-flow", test->run);
        assert_int_equal(mkdir(test->programs, 0755), 0);
        assert_int_equal(sd_event_new(&test->event), 0);
        test->generation = 1;
        write_mode(test, "");
        *state = test;
        return 0;
}

// Whoever listens has our user id and is no child of any more than this test: its name in /proc is how it is found.
static unsigned helpers(const Test *test, int signal_number) {
        DIR *proc = opendir("/proc");
        struct dirent *e;
        unsigned n = 0;

        assert_non_null(proc);
        while ((e = readdir(proc))) {
                static char buf[65536];
                pid_t pid = (pid_t) strtol(e->d_name, NULL, 10);
                char path[64];
                int fd;
                ssize_t size;
                if (pid <= 1)
                        continue;
                (void) snprintf(path, sizeof(path), "/proc/%d/environ", (int) pid);
                fd = open(path, O_RDONLY | O_CLOEXEC);
                size = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
                (void) close_fd(fd);
                if (size <= 0 || !memmem(buf, (size_t) size, test->run, strlen(test->run)) || !memmem(buf, (size_t) size, "LISTEN_FDNAMES=", 15))
                        continue;
                n++;
                if (signal_number)
                        (void) kill(pid, signal_number);
        }
        (void) closedir(proc);
        return n;
}

static int teardown(void **state) {
        Test *test = *state;

        (void) border_free(test->border);
        sd_event_unref(test->event);
        (void) helpers(test, SIGKILL);
        assert_int_equal(io_remove_tree(AT_FDCWD, test->run), 0);
        free(test);
        return 0;
}

// Until `part` is in this state, or at most 10 s.
static void until(Test *test, BorderPart part, BorderState state) {
        usec_t end = clock_monotonic() + 10 * USEC_PER_SEC;

        while (border_state(test->border, part) != state && clock_monotonic() < end)
                (void) sd_event_run(test->event, 100 * USEC_PER_MSEC);
        assert_int_equal(border_state(test->border, part), state);
}

static void wait_for(Test *test, uint64_t generation, usec_t timeout) {
        usec_t end = clock_monotonic() + 10 * USEC_PER_SEC;

        test->done = 0;
        assert_int_equal(border_wait(test->border, generation, timeout, on_done, test), 0);
        assert_int_equal(test->done, 0); // from the loop
        while (test->done == 0 && clock_monotonic() < end)
                (void) sd_event_run(test->event, 100 * USEC_PER_MSEC);
        assert_int_equal(test->done, 1);
}

static void test_not_installed(void **state) {
        Test *test = *state;

        start(test);
        for (BorderPart part = 0; part < _BORDER_PART_MAX; part++)
                assert_int_equal(border_state(test->border, part), BORDER_NOT_INSTALLED);
        wait_for(test, 1, 10 * USEC_PER_SEC);
        assert_int_equal(test->late, _BORDER_PART_INVALID);
        assert_int_equal(helpers(test, 0), 0);
}

static void test_applies(void **state) {
        Test *test = *state;
        char path[128];
        struct stat st;

        install(test, BORDER_RESOLVER);
        start(test);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        wait_for(test, 1, 10 * USEC_PER_SEC);
        assert_int_equal(test->late, _BORDER_PART_INVALID);
        assert_true(border_has_applied(test->border, BORDER_PART_RESOLVER, 1));
        assert_false(border_has_applied(test->border, BORDER_PART_RESOLVER, 2));
        border_send(test->border, (char *[]) {(char *) "{}", (char *) "{}", NULL}, 2);
        wait_for(test, 2, 10 * USEC_PER_SEC);
        assert_true(border_has_applied(test->border, BORDER_PART_RESOLVER, 2));
        assert_string_equal(border_reason(test->border, BORDER_PART_RESOLVER), "");
        (void) snprintf(path, sizeof(path), "%s/resolver.sock", test->run);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
}

// hostd-flow has a directory of its own, and what only it needs.
static void test_flow_has_logs(void **state) {
        Test *test = *state;
        struct stat st;

        install(test, BORDER_FLOW);
        start(test);
        until(test, BORDER_PART_FLOW, BORDER_UP);
        assert_int_equal(stat(test->logs, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_outlives_hostd(void **state) {
        Test *test = *state;

        install(test, BORDER_RESOLVER);
        start(test);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        test->border = border_free(test->border);
        assert_int_equal(helpers(test, 0), 1);
        test->views = 0;
        start(test);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        wait_for(test, 1, 10 * USEC_PER_SEC);
        assert_int_equal(test->views, 1); // all of them, to one that has some
        assert_int_equal(helpers(test, 0), 1); // the same one
        // And when it dies under a hostd that did not start it, there is another.
        assert_int_equal(helpers(test, SIGKILL), 1);
        until(test, BORDER_PART_RESOLVER, BORDER_DOWN);
        wait_for(test, 2, 10 * USEC_PER_SEC); // nobody listens: nothing passes
        assert_int_equal(test->late, _BORDER_PART_INVALID);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
}

static void test_child_dies(void **state) {
        Test *test = *state;

        install(test, BORDER_PROXY);
        start(test);
        until(test, BORDER_PART_PROXY, BORDER_UP);
        write_mode(test, "dies");
        assert_int_equal(helpers(test, SIGKILL), 1);
        until(test, BORDER_PART_PROXY, BORDER_DOWN);
        usec_t begun = clock_monotonic();
        while (clock_monotonic() - begun < 1500 * USEC_PER_MSEC)
                (void) sd_event_run(test->event, 100 * USEC_PER_MSEC);
        write_mode(test, "");
        until(test, BORDER_PART_PROXY, BORDER_UP); // looked for again and again
        assert_int_equal(helpers(test, 0), 1);
}

static void test_older_program(void **state) {
        Test *test = *state;
        _cleanup_free_ char *self = NULL;
        char path[160];
        size_t size;

        install(test, BORDER_PROXY);
        start(test);
        until(test, BORDER_PART_PROXY, BORDER_UP);
        assert_false(border_is_old(test->border, BORDER_PART_PROXY));
        assert_false(border_is_old(test->border, BORDER_PART_FLOW)); // not there
        (void) snprintf(path, sizeof(path), "%s/" BORDER_PROXY, test->programs);
        assert_int_equal(io_read_file(AT_FDCWD, test->self, 64 << 20, &self, &size), 0);
        assert_int_equal(io_write_atomic(AT_FDCWD, path, self, size, 0755), 0); // as dpkg does
        assert_true(border_is_old(test->border, BORDER_PART_PROXY));
        assert_int_equal(helpers(test, SIGKILL), 1);
        until(test, BORDER_PART_PROXY, BORDER_DOWN);
        until(test, BORDER_PART_PROXY, BORDER_UP);
        assert_false(border_is_old(test->border, BORDER_PART_PROXY));
}

static void test_deaf(void **state) {
        Test *test = *state;

        install(test, BORDER_PROXY);
        install(test, BORDER_RESOLVER);
        start(test);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        until(test, BORDER_PART_PROXY, BORDER_UP);
        wait_for(test, 1, 10 * USEC_PER_SEC);
        assert_int_equal(test->late, _BORDER_PART_INVALID);
        write_mode(test, "deaf");
        assert_int_equal(helpers(test, SIGKILL), 2);
        until(test, BORDER_PART_RESOLVER, BORDER_DOWN);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        wait_for(test, 1, 300 * USEC_PER_MSEC);
        assert_true(test->late == BORDER_PART_RESOLVER || test->late == BORDER_PART_PROXY);
        assert_false(border_has_applied(test->border, BORDER_PART_RESOLVER, 1));
}

// The first of two parts is refused, and then all is well: the second part proves nothing, nor does what changed since.
static void test_refuses_once(void **state) {
        Test *test = *state;
        usec_t end = clock_monotonic() + 15 * USEC_PER_SEC;

        test->parts = true;
        write_mode(test, "refuses");
        install(test, BORDER_RESOLVER);
        start(test);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        wait_for(test, 1, 500 * USEC_PER_MSEC);
        assert_int_equal(test->late, BORDER_PART_RESOLVER);
        assert_non_null(strstr(border_reason(test->border, BORDER_PART_RESOLVER), "could not apply"));
        border_send(test->border, (char *[]) {(char *) "{}", NULL}, 1);
        wait_for(test, 1, 500 * USEC_PER_MSEC);
        assert_int_equal(test->late, BORDER_PART_RESOLVER);
        while (!border_has_applied(test->border, BORDER_PART_RESOLVER, 1) && clock_monotonic() < end)
                (void) sd_event_run(test->event, 100 * USEC_PER_MSEC);
        assert_true(border_has_applied(test->border, BORDER_PART_RESOLVER, 1));
}

static void test_too_much(void **state) {
        Test *test = *state;
        usec_t end = clock_monotonic() + 10 * USEC_PER_SEC;

        write_mode(test, "floods");
        install(test, BORDER_RESOLVER);
        start(test);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        while (test->inserts + border_dropped(test->border, BORDER_PART_RESOLVER) < 6000 + OTHERS && clock_monotonic() < end)
                (void) sd_event_run(test->event, 100 * USEC_PER_MSEC);
        assert_int_equal(test->inserts + border_dropped(test->border, BORDER_PART_RESOLVER), 6000 + OTHERS);
        assert_in_range(test->inserts, 4000, 5999);
        assert_int_equal(test->others, OTHERS); // the flood is one slot's, and takes nothing from another
        assert_int_equal(border_state(test->border, BORDER_PART_RESOLVER), BORDER_UP); // it gets answers
}

static void test_liar(void **state) {
        Test *test = *state;

        write_mode(test, "liar");
        install(test, BORDER_RESOLVER);
        start(test);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        until(test, BORDER_PART_RESOLVER, BORDER_DOWN); // the resolver has no events, and this is no record
        assert_non_null(strstr(border_reason(test->border, BORDER_PART_RESOLVER), "may not say"));
        wait_for(test, 1, 50 * USEC_PER_MSEC);
        assert_int_equal(test->late, BORDER_PART_RESOLVER); // it lives
}

static void test_answers_more_than_asked(void **state) {
        Test *test = *state;

        write_mode(test, "repeats");
        install(test, BORDER_RESOLVER);
        start(test);
        until(test, BORDER_PART_RESOLVER, BORDER_UP);
        test->changed = 0;
        until(test, BORDER_PART_RESOLVER, BORDER_DOWN);
        assert_non_null(strstr(border_reason(test->border, BORDER_PART_RESOLVER), "more than it was asked for"));
        assert_in_range(test->changed, 1, 3); // not one for each of thousands
        (void) border_free(test->border);
        (void) helpers(test, SIGKILL);
        write_mode(test, "invents");
        install(test, BORDER_FLOW);
        start(test);
        until(test, BORDER_PART_FLOW, BORDER_UP);
        until(test, BORDER_PART_FLOW, BORDER_DOWN);
        assert_non_null(strstr(border_reason(test->border, BORDER_PART_FLOW), "more than it was asked for"));
}

static void on_answered(void *userdata, int r) {
        Test *test = userdata;

        test->done++;
        test->answer = r;
}

static void ask(Test *test) {
        BorderQuery query = {.limit = 1, .kind = BORDER_QUERY_ANY, .instance = "a"};
        usec_t end = clock_monotonic() + 10 * USEC_PER_SEC;
        char line[8];
        int fds[2];

        assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
        test->done = 0;
        assert_int_equal(border_query(test->border, &query, fds[1], on_answered, test), 0);
        (void) close(fds[1]);
        while (test->done == 0 && clock_monotonic() < end)
                (void) sd_event_run(test->event, 100 * USEC_PER_MSEC);
        assert_int_equal(test->done, 1);
        assert_int_equal(read(fds[0], line, sizeof(line)), 5);
        assert_int_equal(read(fds[0], line, sizeof(line)), 0);
        (void) close(fds[0]);
}

static void test_query(void **state) {
        Test *test = *state;

        start(test);
        assert_int_equal(border_query(test->border, &(BorderQuery) {0}, 0, on_answered, test), -ENOTCONN);
        (void) border_free(test->border);
        install(test, BORDER_FLOW);
        start(test);
        until(test, BORDER_PART_FLOW, BORDER_UP);
        ask(test);
        assert_int_equal(test->answer, -ENOENT);
        write_mode(test, "deaf");
        assert_int_equal(helpers(test, SIGKILL), 1);
        until(test, BORDER_PART_FLOW, BORDER_DOWN);
        until(test, BORDER_PART_FLOW, BORDER_UP);
        ask(test); // it dies of it
        assert_int_equal(test->answer, -ECONNRESET);
}

static void test_rows(void **state) {
        assert_true(border_row_allows(border_row(BORDER_PART_RESOLVER), BORDER_INSERT));
        assert_false(border_row_allows(border_row(BORDER_PART_PROXY), BORDER_INSERT));
        assert_true(border_row_allows(border_row(BORDER_PART_FLOW), BORDER_EVENT));
        assert_false(border_row_allows(border_row(BORDER_PART_RESOLVER), BORDER_EVENT));
        assert_false(border_row_allows(border_row(BORDER_PART_FLOW), BORDER_VIEWS));
        for (BorderPart part = 0; part < _BORDER_PART_MAX; part++)
                assert_non_null(border_part_to_string(part));
        assert_null(border_part_to_string(_BORDER_PART_MAX));
}

int main(int argc, char **argv) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rows),
                cmocka_unit_test_setup_teardown(test_not_installed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_applies, setup, teardown),
                cmocka_unit_test_setup_teardown(test_flow_has_logs, setup, teardown),
                cmocka_unit_test_setup_teardown(test_outlives_hostd, setup, teardown),
                cmocka_unit_test_setup_teardown(test_child_dies, setup, teardown),
                cmocka_unit_test_setup_teardown(test_older_program, setup, teardown),
                cmocka_unit_test_setup_teardown(test_deaf, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refuses_once, setup, teardown),
                cmocka_unit_test_setup_teardown(test_too_much, setup, teardown),
                cmocka_unit_test_setup_teardown(test_query, setup, teardown),
                cmocka_unit_test_setup_teardown(test_liar, setup, teardown),
                cmocka_unit_test_setup_teardown(test_answers_more_than_asked, setup, teardown),
        };
        const char *name = strrchr(argv[0], '/');

        if (strncmp(name ? name + 1 : argv[0], "hostd-", 6) == 0)
                return fake_main();
        if (geteuid() != 0) {
                puts("SKIP: only root can start helpers as users of their own");
                return 77;
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
