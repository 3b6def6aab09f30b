// SPDX-License-Identifier: GPL-2.0-or-later
// The queue of commits with a real loop and a real git: one commit for each change, also when git fails, is killed or is not there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/strv.h"
#include "core/commits.h"

typedef struct Fixture {
        char *top;
        sd_event *event;
        ConfDir *dir;
        Commits *commits;
        unsigned asked, told, failed;
        int last; // what was told last
        int reported;
} Fixture;

static void on_report(void *userdata, int r, const Error *err) {
        ((Fixture *) userdata)->reported = r;
}

static void on_done(void *userdata, int r, Error *err) {
        Fixture *f = userdata;

        f->told++;
        f->failed += r < 0;
        f->last = r;
}

static int setup(void **state) {
        char template[] = "/tmp/test_commits.XXXXXX";
        Fixture *f = calloc(1, sizeof(*f));

        f->top = strdup(mkdtemp(template));
        *state = f;
        return f->top && sd_event_new(&f->event) >= 0 && confdir_open(f->top, &f->dir, NULL) == 0 &&
                               commits_new(f->event, f->dir, on_report, f, &f->commits) == 0
                       ? 0
                       : -1;
}

static int teardown(void **state) {
        Fixture *f = *state;

        (void) commits_free(f->commits);
        (void) confdir_free(f->dir);
        (void) sd_event_unref(f->event);
        int r = io_remove_tree(AT_FDCWD, f->top);
        free(f->top);
        free(f);
        return r;
}

static void ask(Fixture *f, const char *author, const char *message) {
        f->asked++;
        commits_add(f->commits, &(CommitAsk) {.author = author, .message = message, .done = on_done, .userdata = f});
}

static void change(Fixture *f, const char *path, const char *text, const char *author, const char *message) {
        assert_int_equal(confdir_write(f->dir, path, text, NULL), 0);
        ask(f, author, message);
}

static void run_until_told(Fixture *f) {
        usec_t end = clock_monotonic() + 30 * USEC_PER_SEC;

        while (f->told < f->asked && clock_monotonic() < end)
                assert_true(sd_event_run(f->event, 100000) >= 0);
        assert_int_equal(f->told, f->asked);
}

static char **history(Fixture *f) {
        _cleanup_free_ char *text = NULL;
        char **lines = NULL;

        assert_int_equal(confdir_log(f->dir, 1000, &text, NULL), 0);
        assert_int_equal(strv_split(text, "\n", &lines), 0);
        return lines;
}

// The loop goes on while git runs: the changes come in the midst of commits that run already.
static void test_burst(void **state) {
        Fixture *f = *state;
        usec_t start = clock_monotonic(), longest = 0;
        _cleanup_strv_ char **lines = NULL;

        for (unsigned i = 0; i < 100; i++) {
                char text[32], message[32];
                snprintf(text, sizeof(text), "pids = %u;\n", 100 + i);
                snprintf(message, sizeof(message), "set a pids=%u", 100 + i);
                change(f, i % 3 ? "instances.d/a.conf" : "instances.d/b.conf", text, i % 2 ? "alice <1000@host>" : "bob <1001@host>", message);
                usec_t before = clock_monotonic();
                assert_true(sd_event_run(f->event, 0) >= 0);
                longest = MAX2(longest, clock_monotonic() - before);
        }
        run_until_told(f);
        print_message("100 changes: %llu us until all are in history, the loop held up for %llu us\n",
                      (unsigned long long) (clock_monotonic() - start), (unsigned long long) longest);
        assert_int_equal(f->failed, 0);
        lines = history(f);
        assert_int_equal(strv_length(lines), 101);
        for (unsigned i = 0; i < 100; i++) {
                char wanted[64];
                snprintf(wanted, sizeof(wanted), " %s set a pids=%u", i % 2 ? "alice" : "bob", 100 + i);
                char *found = strstr(lines[99 - i], wanted);
                assert_non_null(found);
                assert_string_equal(found, wanted);
                // The very text of this change, in this commit.
                _cleanup_free_ char *diff = NULL;
                char rev[16];
                snprintf(rev, sizeof(rev), "HEAD~%u", 99 - i);
                snprintf(wanted, sizeof(wanted), "+pids = %u;\n", 100 + i);
                assert_int_equal(confdir_diff(f->dir, rev, &diff, NULL), 0);
                assert_non_null(strstr(diff, wanted));
                assert_ptr_equal(strstr(diff, "diff --git"), diff);
                assert_null(strstr(diff + 1, "diff --git"));
        }
}

static void test_nothing(void **state) {
        Fixture *f = *state;
        _cleanup_strv_ char **lines = NULL;

        ask(f, "alice <1000@host>", "nothing was written");
        assert_int_equal(f->told, 1); // at once
        assert_int_equal(f->last, 0);
        lines = history(f);
        assert_int_equal(strv_length(lines), 1);
}

static void lock_branch(Fixture *f, bool locked) {
        static const struct timespec young[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = INT32_MAX}};
        int fd = confdir_fd(f->dir);

        if (!locked) {
                assert_int_equal(unlinkat(fd, ".git/refs/heads/main.lock", 0), 0);
                return;
        }
        assert_int_equal(io_write_atomic(fd, ".git/refs/heads/main.lock", "", 0, 0600), 0);
        assert_int_equal(utimensat(fd, ".git/refs/heads/main.lock", young, 0), 0);
}

// Whoever asked is told, and later each change gets its commit all the same, before those that came after.
static void test_failure(void **state) {
        Fixture *f = *state;
        _cleanup_strv_ char **lines = NULL, **after = NULL;

        lock_branch(f, true);
        change(f, "hostd.conf", "1", "alice <1000@host>", "one");
        change(f, "hostd.conf", "2", "bob <1001@host>", "two");
        run_until_told(f);
        assert_int_equal(f->failed, 2);
        assert_true(f->reported < 0);
        lock_branch(f, false);
        change(f, "hostd.conf", "3", "carol <1002@host>", "three");
        run_until_told(f);
        assert_int_equal(f->failed, 2);
        assert_int_equal(f->reported, 0);
        lines = history(f);
        assert_int_equal(strv_length(lines), 4);
        assert_non_null(strstr(lines[0], " carol three"));
        assert_non_null(strstr(lines[1], " bob two"));
        assert_non_null(strstr(lines[2], " alice one"));
        // By itself, too: nobody waits for that.
        lock_branch(f, true);
        change(f, "hostd.conf", "4", "alice <1000@host>", "four");
        run_until_told(f);
        lock_branch(f, false);
        commits_retry(f->commits);
        usec_t end = clock_monotonic() + 20 * USEC_PER_SEC;
        f->reported = -1;
        while (f->reported < 0 && clock_monotonic() < end)
                assert_true(sd_event_run(f->event, 100000) >= 0);
        after = history(f);
        assert_int_equal(strv_length(after), 5);
        assert_non_null(strstr(after[0], " alice four"));
}

// Somebody else's git has the index for a moment: it is set to the commit all the same.
static void test_index_is_held(void **state) {
        Fixture *f = *state;
        _cleanup_free_ char *shown = NULL;
        pid_t holder;
        int fd = confdir_fd(f->dir), status;

        assert_int_equal(io_write_atomic(fd, ".git/index.lock", "", 0, 0600), 0);
        change(f, "hostd.conf", "1", "alice <1000@host>", "one");
        holder = fork();
        if (holder == 0) {
                // Until the commit is there: what comes next is the index.
                for (unsigned i = 0; i < 1000; i++) {
                        _cleanup_free_ char *log = NULL;
                        if (confdir_log(f->dir, 1, &log, NULL) == 0 && strstr(log, " alice one"))
                                break;
                        usleep(5000);
                }
                usleep(20000);
                _exit(unlinkat(fd, ".git/index.lock", 0) < 0);
        }
        run_until_told(f);
        assert_int_equal(waitpid(holder, &status, 0), holder);
        assert_int_equal(status, 0);
        assert_int_equal(f->failed, 0);
        assert_int_equal(git_check(&(Git) {.path = f->top}, GIT_ARGUMENTS("diff-index", "--cached", "--name-status", "HEAD"), &shown, NULL), 0);
        assert_string_equal(shown, "");
}

// git dies at some moment: each change is in history, by itself or in one commit that names it, and never twice.
static void test_killed(void **state) {
        Fixture *f = *state;

        for (unsigned i = 0; i < 12; i++) {
                char text[16], message[32], children[64];
                unsigned long long child = 0, git = 0;
                snprintf(text, sizeof(text), "%u", i);
                snprintf(message, sizeof(message), "killed number %u.", i);
                change(f, "hostd.conf", text, "alice <1000@host>", message);
                snprintf(children, sizeof(children), "/proc/%d/task/%d/children", getpid(), getpid());
                assert_int_equal(io_read_u64(AT_FDCWD, children, &child), 0);
                usleep(i * 1500);
                snprintf(children, sizeof(children), "/proc/%llu/task/%llu/children", child, child);
                if (io_read_u64(AT_FDCWD, children, &git) == 0 && git > 1)
                        (void) kill((pid_t) git, SIGKILL);
                run_until_told(f);
        }
        change(f, "policies.d/p.conf", "1", "bob <1001@host>", "the last one");
        run_until_told(f);
        _cleanup_strv_ char **lines = history(f);
        for (unsigned i = 0; i < 12; i++) {
                char message[32];
                unsigned n = 0;
                snprintf(message, sizeof(message), "killed number %u.", i);
                for (char **line = lines; *line; line++)
                        n += strstr(*line, message) != NULL;
                assert_int_equal(n, 1);
        }
        assert_non_null(strstr(lines[0], " bob the last one"));
        _cleanup_free_ char *pending = NULL;
        assert_int_equal(confdir_diff(f->dir, NULL, &pending, NULL), 0);
        assert_string_equal(pending, "");
}

// Without a history changes are made all the same, and are in it once it is there.
static void test_no_history(void **state) {
        Fixture *f = *state;
        int fd = confdir_fd(f->dir);

        // As a hostd that started while the repository was broken.
        assert_int_equal(renameat(fd, ".git", fd, ".git.whole"), 0);
        assert_int_equal(symlinkat(".git.whole", fd, ".git"), 0);
        (void) commits_free(f->commits);
        (void) confdir_free(f->dir);
        assert_int_equal(confdir_open(f->top, &f->dir, NULL), CONFDIR_NO_HISTORY);
        assert_int_equal(commits_new(f->event, f->dir, on_report, f, &f->commits), 0);
        fd = confdir_fd(f->dir);
        change(f, "hostd.conf", "1", "alice <1000@host>", "one");
        run_until_told(f);
        assert_int_equal(f->last, 0);
        assert_int_equal(f->reported, CONFDIR_NO_HISTORY);
        assert_int_equal(unlinkat(fd, ".git", 0), 0);
        assert_int_equal(renameat(fd, ".git.whole", fd, ".git"), 0);
        change(f, "hostd.conf", "2", "bob <1001@host>", "two");
        run_until_told(f);
        _cleanup_strv_ char **lines = history(f);
        assert_int_equal(strv_length(lines), 3);
        assert_non_null(strstr(lines[0], " bob two"));
        assert_non_null(strstr(lines[1], " alice one"));
}

static void test_stop(void **state) {
        Fixture *f = *state;

        change(f, "hostd.conf", "1", "alice <1000@host>", "one");
        change(f, "hostd.conf", "2", "alice <1000@host>", "two");
        commits_stop(f->commits);
        assert_int_equal(f->told, 2);
        assert_int_equal(f->last, -ECANCELED);
        while (waitpid(-1, NULL, 0) > 0) // it writes below what teardown removes
                ;
}

int main(void) {
        if (access("/usr/bin/git", X_OK) < 0) {
                printf("SKIP: /usr/bin/git is not installed\n");
                return 77;
        }
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_burst, setup, teardown),      cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
                cmocka_unit_test_setup_teardown(test_failure, setup, teardown),    cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_index_is_held, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_history, setup, teardown), cmocka_unit_test_setup_teardown(test_stop, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
