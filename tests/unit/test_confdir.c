// SPDX-License-Identifier: GPL-2.0-or-later
// The configuration directory with a real git in a directory of its own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "own_mount.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/strv.h"
#include "state/confdir.h"

static char *top; // new for each test

static int setup(void **state) {
        char template[] = "/tmp/test_confdir.XXXXXX";

        top = strdup(mkdtemp(template));
        return top ? 0 : -1;
}

static int teardown(void **state) {
        int r = io_remove_tree(AT_FDCWD, top);

        free(top);
        return r;
}

static ConfDir *open_or_fail(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        ConfDir *dir = NULL;

        if (confdir_open(top, &dir, &err) < 0)
                fail_msg("%s", err.message);
        return dir;
}

static int run_commits(ConfDir *dir, const HistoryCommit *commits, Error *err) {
        _cleanup_close_ int pidfd = -EBADF;
        pid_t pid;
        int status, r = confdir_commit(dir, commits, &pid, &pidfd, err);

        if (r < 0)
                return r;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return confdir_commit_result(dir, status, err);
}

// What was written since the last call.
static HistoryCommit *take_commit(ConfDir *dir, const char *author, const char *message) {
        HistoryChange *changes = confdir_take_changes(dir);
        HistoryCommit *taken = NULL;

        assert_int_equal(history_commit_new(author, message, &changes, &taken, NULL), 0);
        return taken;
}

static int commit(ConfDir *dir, const char *message, Error *err) {
        _cleanup_(history_commit_freep) HistoryCommit *one = take_commit(dir, "alice <1000@host>", message);

        return run_commits(dir, one, err);
}

static int commit_whole(ConfDir *dir, const char *message, char *const *except, Error *err) {
        HistoryChange *changes = NULL;
        _cleanup_(history_commit_freep) HistoryCommit *one = NULL;

        assert_int_equal(confdir_snapshot(dir, except, &changes, err), 0);
        assert_int_equal(history_commit_new("alice <1000@host>", message, &changes, &one, err), 0);
        one->whole = true;
        return run_commits(dir, one, err);
}

static void commit_or_fail(ConfDir *dir, const char *message) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (commit(dir, message, &err) < 0)
                fail_msg("%s", err.message);
}

static void write_or_fail(ConfDir *dir, const char *path, const char *text) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (confdir_write(dir, path, text, &err) < 0)
                fail_msg("%s", err.message);
}

// As a person does: hostd is not told.
static void write_by_hand(ConfDir *dir, const char *path, const char *text) {
        assert_int_equal(io_write_atomic(confdir_fd(dir), path, text, strlen(text), 0644), 0);
}

static void expect_text(ConfDir *dir, const char *path, const char *wanted) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_free_ char *text = NULL;
        int r = confdir_read(dir, path, &text, &err);

        if (!wanted) {
                assert_int_equal(r, -ENOENT);
                assert_int_equal(err.code, ERR_NOT_FOUND);
                return;
        }
        assert_int_equal(r, 0);
        assert_string_equal(text, wanted);
}

static size_t log_lines(ConfDir *dir, char ***ret) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_free_ char *text = NULL;
        _cleanup_strv_ char **lines = NULL;

        if (confdir_log(dir, 100, &text, &err) < 0)
                fail_msg("%s", err.message);
        assert_int_equal(strv_split(text, "\n", &lines), 0);
        size_t n = strv_length(lines);
        if (ret)
                *ret = TAKE_PTR(lines);
        return n;
}

static void test_history(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_strv_ char **lines = NULL;
        _cleanup_free_ char *diff = NULL, *pending = NULL, *clean = NULL;
        struct stat st;

        assert_int_equal(log_lines(dir, NULL), 1);
        write_or_fail(dir, "instances.d/a.conf", "memory = \"1GiB\";\n");
        write_or_fail(dir, "hostd.conf", "uplink = \"auto\";\n");
        assert_int_equal(fstatat(confdir_fd(dir), "instances.d/a.conf", &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(st.st_mode & 07777, 0644);
        assert_int_equal(confdir_diff(dir, NULL, &pending, &err), 0);
        assert_non_null(strstr(pending, "+memory = \"1GiB\";"));
        commit_or_fail(dir, "instance create a \"quoted\" $(not) `run` -- --help");
        commit_or_fail(dir, "nothing to commit");
        assert_int_equal(log_lines(dir, &lines), 2);
        assert_non_null(strstr(lines[0], " alice instance create a \"quoted\" $(not) `run` -- --help"));
        assert_int_equal(strspn(lines[0], "0123456789abcdef"), 12);
        assert_int_equal(confdir_diff(dir, NULL, &clean, &err), 0);
        assert_string_equal(clean, "");
        assert_int_equal(confdir_diff(dir, "HEAD", &diff, &err), 0);
        assert_non_null(strstr(diff, "+uplink = \"auto\";"));
}

static void test_checkout(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();
        _cleanup_error_ Error err = ERROR_NULL;

        write_or_fail(dir, "instances.d/a.conf", "one");
        write_or_fail(dir, "policies.d/web.conf", "web");
        commit_or_fail(dir, "first");
        write_or_fail(dir, "instances.d/a.conf", "two");
        write_or_fail(dir, "instances.d/b.conf", "new");
        assert_int_equal(confdir_remove(dir, "policies.d/web.conf", &err), 0);
        commit_or_fail(dir, "second");
        write_by_hand(dir, "instances.d/c.conf", "not committed");
        if (confdir_checkout(dir, "HEAD~1", &err) < 0)
                fail_msg("%s", err.message);
        expect_text(dir, "instances.d/a.conf", "one");
        expect_text(dir, "policies.d/web.conf", "web");
        expect_text(dir, "instances.d/b.conf", NULL);
        expect_text(dir, "instances.d/c.conf", NULL);
        assert_int_equal(log_lines(dir, NULL), 3); // no commit of its own
        assert_int_equal(commit_whole(dir, "config rollback", NULL, NULL), 0);
        assert_int_equal(log_lines(dir, NULL), 4);
        assert_int_equal(commit_whole(dir, "nothing differs", NULL, NULL), 0);
        assert_int_equal(log_lines(dir, NULL), 4);
        assert_int_equal(faccessat(confdir_fd(dir), ".git/index.lock", F_OK, 0), -1);
}

static void test_refused_revisions(void **state) {
        static const char *const bad[] = {"", "abc", "--help", "HEAD^", "HEAD~", "HEAD~x", "HEAD~1..2", "main", "HEAD:a", "@{u}",
                                          "ABCDEF", "0123456789012345678901234567890123456789a", "-n", "HEAD~123456"};
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();

        for (size_t i = 0; i < ELEMENTS(bad); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                char *text = NULL;
                assert_int_equal(confdir_diff(dir, bad[i], &text, &err), -EINVAL);
                assert_string_equal(err.field, "rev");
                assert_int_equal(confdir_checkout(dir, bad[i], NULL), -EINVAL);
        }
        _cleanup_error_ Error err = ERROR_NULL;
        assert_int_equal(confdir_checkout(dir, "0123456789", &err), -ENOENT);
        assert_int_equal(err.code, ERR_NOT_FOUND);
        assert_int_equal(confdir_checkout(dir, "HEAD~7", NULL), -ENOENT);
}

static void test_refused_paths(void **state) {
        static const char *const bad[] = {
                "", "../x", "../hostd.conf", "/etc/passwd", "instances.d", "instances.d/", "instances.d/../../x", "instances.d/A.conf",
                "instances.d/a", "instances.d/.conf", "instances.d/a.conf/b", "instances.d/sub/a.conf", "other.d/a.conf", ".git/config",
                "instances.d//a.conf", "./hostd.conf", "hostd.conf2", "instances.d/a.conf\n", "instances.d/..conf", "instance/a.conf",
                "instances.d.conf", "instances.d/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.conf", "instances.d/a b.conf", "i/a.conf", "/a.conf",
        };
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();

        for (size_t i = 0; i < ELEMENTS(bad); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                char *text = NULL;
                assert_int_equal(confdir_write(dir, bad[i], "x", &err), -EINVAL);
                assert_string_equal(err.field, "path");
                assert_int_equal(confdir_read(dir, bad[i], &text, NULL), -EINVAL);
                assert_int_equal(confdir_remove(dir, bad[i], NULL), -EINVAL);
        }
}

static void test_refused_authors(void **state) {
        static const char *const bad[] = {"", "alice", "<a@b>", " <a@b>x", "alice <a@b", "al<ice <a@b>", "alice <a<b>", "alice\n <a@b>",
                                          "alice <a@b>\n", "alice<a@b>", "alice> <a@b>", "alice <a>@b>"};
        HistoryChange *none = NULL;
        HistoryCommit *made = NULL;

        for (size_t i = 0; i < ELEMENTS(bad); i++)
                assert_int_equal(history_commit_new(bad[i], "m", &none, &made, NULL), -EINVAL);
        assert_int_equal(history_commit_new("a <b@c>", "two\nlines", &none, &made, NULL), -EINVAL);
        assert_int_equal(history_commit_new("a <b@c>", "", &none, &made, NULL), -EINVAL);
}

static void touch_lock(int dir, const char *path, time_t age) {
        struct timespec now, times[2];

        assert_int_equal(io_write_atomic(dir, path, "", 0, 0600), 0);
        clock_gettime(CLOCK_REALTIME, &now);
        now.tv_sec -= age;
        times[0] = times[1] = now;
        assert_int_equal(utimensat(dir, path, times, 0), 0);
}

static void test_stale_lock(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail(), *again = NULL;
        _cleanup_(history_commit_freep) HistoryCommit *blocked = NULL;
        _cleanup_error_ Error err = ERROR_NULL;

        write_or_fail(dir, "hostd.conf", "1");
        touch_lock(confdir_fd(dir), ".git/index.lock", 1000);
        touch_lock(confdir_fd(dir), ".git/HEAD.lock", 1000);
        touch_lock(confdir_fd(dir), ".git/refs/heads/main.lock", 1000);
        commit_or_fail(dir, "in spite of locks of the dead");
        assert_int_equal(log_lines(dir, NULL), 2);
        // A lock that is younger than this process may be somebody's work. The index can wait, the branch cannot.
        write_or_fail(dir, "hostd.conf", "2");
        touch_lock(confdir_fd(dir), ".git/index.lock", -1);
        commit_or_fail(dir, "without the index");
        write_or_fail(dir, "hostd.conf", "3");
        touch_lock(confdir_fd(dir), ".git/refs/heads/main.lock", -1);
        blocked = take_commit(dir, "a <b@c>", "blocked");
        assert_int_equal(run_commits(dir, blocked, &err), -EIO);
        assert_non_null(strstr(err.message, "git failed"));
        assert_int_equal(log_lines(dir, NULL), 3);
        assert_int_equal(unlinkat(confdir_fd(dir), ".git/refs/heads/main.lock", 0), 0);
        assert_int_equal(unlinkat(confdir_fd(dir), ".git/index.lock", 0), 0);
        assert_int_equal(run_commits(dir, blocked, NULL), 0);
        assert_int_equal(log_lines(dir, NULL), 4);
        touch_lock(confdir_fd(dir), ".git/index.lock", 1000);
        again = open_or_fail();
        assert_int_equal(faccessat(confdir_fd(dir), ".git/index.lock", F_OK, 0), -1);
        expect_text(again, "hostd.conf", "3");
}

// Whatever moment git is killed at, the next commit works.
static void test_killed_git(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();

        for (unsigned i = 0; i < 10; i++) {
                _cleanup_(history_commit_freep) HistoryCommit *killed = NULL;
                _cleanup_close_ int pidfd = -EBADF;
                _cleanup_error_ Error err = ERROR_NULL;
                char text[16], children[64];
                unsigned long long git = 0;
                pid_t pid;
                int status;
                snprintf(text, sizeof(text), "%u", i);
                write_or_fail(dir, "hostd.conf", text);
                killed = take_commit(dir, "a <b@c>", "killed");
                assert_int_equal(confdir_commit(dir, killed, &pid, &pidfd, &err), 0);
                assert_int_equal(confdir_commit(dir, killed, &pid, &pidfd, NULL), -EBUSY);
                usleep(i * 1500);
                snprintf(children, sizeof(children), "/proc/%d/task/%d/children", pid, pid);
                if (io_read_u64(AT_FDCWD, children, &git) == 0 && git > 1)
                        (void) kill((pid_t) git, SIGKILL);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                (void) confdir_commit_result(dir, status, &err);
                snprintf(text, sizeof(text), "after %u", i);
                write_or_fail(dir, "hostd.conf", text);
                commit_or_fail(dir, "after");
        }
        _cleanup_free_ char *clean = NULL;
        assert_int_equal(confdir_diff(dir, NULL, &clean, NULL), 0);
        assert_string_equal(clean, "");
}

static void test_links_refused(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail(), *none = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        char *text = NULL;
        int fd = confdir_fd(dir);

        assert_int_equal(mkdirat(fd, "elsewhere", 0755), 0);
        assert_int_equal(unlinkat(fd, "instances.d", AT_REMOVEDIR), 0);
        assert_int_equal(symlinkat("elsewhere", fd, "instances.d"), 0);
        assert_true(confdir_write(dir, "instances.d/a.conf", "x", NULL) < 0);
        assert_int_equal(faccessat(fd, "elsewhere/a.conf", F_OK, 0), -1);
        assert_true(confdir_open(top, &none, &err) < 0);
        assert_non_null(strstr(err.message, "instances.d is a symbolic link"));
        assert_int_equal(symlinkat("/etc/passwd", fd, "policies.d/p.conf"), 0);
        assert_int_equal(confdir_read(dir, "policies.d/p.conf", &text, NULL), -EINVAL);
        // Writing replaces the link and leaves alone what it points to.
        assert_int_equal(symlinkat("../elsewhere/victim", fd, "templates.d/t.conf"), 0);
        assert_int_equal(io_write_atomic(fd, "elsewhere/victim", "precious", 8, 0600), 0);
        write_or_fail(dir, "templates.d/t.conf", "new");
        assert_int_equal(io_read_file(fd, "elsewhere/victim", 100, &text, NULL), 0);
        assert_string_equal(text, "precious");
        free(text);
}

static void fill_disk(const char *path) {
        static const char block[4096];
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        while (write(fd, block, sizeof(block)) > 0)
                ;
}

// The old text stays, the commit says why, and later everything is made up for.
static int run_disk_full(void) {
        _cleanup_(history_commit_freep) HistoryCommit *full = NULL;
        _cleanup_error_ Error written = ERROR_NULL, committed = ERROR_NULL;
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();
        char filler[64];

        snprintf(filler, sizeof(filler), "%s/filler", top);
        write_or_fail(dir, "hostd.conf", "old");
        commit_or_fail(dir, "old");
        write_or_fail(dir, "instances.d/a.conf", "not committed");
        fill_disk(filler);
        if (confdir_write(dir, "hostd.conf", "new", &written) != -ENOSPC || written.code != ERR_QUOTA)
                return 1;
        expect_text(dir, "hostd.conf", "old");
        full = take_commit(dir, "a <b@c>", "full");
        if (run_commits(dir, full, &committed) >= 0 || committed.code != ERR_QUOTA)
                return 2;
        _cleanup_(confdir_freep) ConfDir *again = open_or_fail(); // hostd comes up nevertheless
        (void) unlink(filler);
        if (run_commits(dir, full, NULL) < 0)
                return 4;
        return log_lines(dir, NULL) == 3 ? 0 : 3;
}

static void test_disk_full(void **state) {
        test_with_mount(&(OwnMount) {"tmpfs", top, "tmpfs", 0, "size=2m"}, run_disk_full);
}

// What is not ours stays out of the history, and git's own configuration cannot make git run anything.
static void test_foreign_files(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();
        _cleanup_free_ char *pending = NULL, *config = NULL;
        int fd = confdir_fd(dir);
        static const char hook[] = "#!/bin/sh\ntouch \"$(dirname \"$0\")/ran\"\n";

        assert_int_equal(io_write_atomic(fd, "instances.d/.a.conf.123.tmp", "half", 4, 0644), 0);
        assert_int_equal(io_write_atomic(fd, "instances.d/a.conf~", "backup", 6, 0644), 0);
        assert_int_equal(io_write_atomic(fd, "secret.key", "secret", 6, 0600), 0);
        assert_int_equal(confdir_diff(dir, NULL, &pending, NULL), 0);
        assert_string_equal(pending, "");
        assert_int_equal(mkdirat(fd, ".git/hooks", 0755), 0);
        assert_int_equal(io_write_atomic(fd, ".git/hooks/pre-commit", hook, strlen(hook), 0755), 0);
        assert_int_equal(io_write_atomic(fd, ".git/hooks/post-commit", hook, strlen(hook), 0755), 0);
        assert_int_equal(setenv("GIT_DIR", "/nonexistent", 1), 0);
        write_or_fail(dir, "hostd.conf", "1");
        commit_or_fail(dir, "no hooks");
        assert_int_equal(unsetenv("GIT_DIR"), 0);
        assert_int_equal(faccessat(fd, ".git/hooks/ran", F_OK, 0), -1);
        assert_int_equal(log_lines(dir, NULL), 2);
}

// Who wrote what, whatever overlaps: two callers, and a person who edits the same and another file.
static void test_exact(void **state) {
        static const char *const wanted[] = {" root instances.d/c.conf: found changed by hand", " bob delete b", " alice set c",
                                             " root instances.d/a.conf: found changed by hand", " bob set a", " alice set a b"};
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();
        _cleanup_free_ char *pending = NULL, *diff = NULL, *whole = NULL;
        _cleanup_strv_ char **lines = NULL;
        HistoryCommit *c[4];

        write_or_fail(dir, "instances.d/a.conf", "1\n");
        write_or_fail(dir, "instances.d/b.conf", "1\n");
        c[0] = take_commit(dir, "alice <1000@host>", "set a b");
        write_or_fail(dir, "instances.d/a.conf", "2\n");
        c[1] = take_commit(dir, "bob <1001@host>", "set a");
        write_by_hand(dir, "instances.d/a.conf", "hand\n");
        write_or_fail(dir, "instances.d/a.conf", "hand\nc\n");
        write_or_fail(dir, "instances.d/c.conf", "1\n");
        c[2] = take_commit(dir, "alice <1000@host>", "set c");
        assert_int_equal(confdir_remove(dir, "instances.d/b.conf", NULL), 0);
        write_by_hand(dir, "instances.d/c.conf", "hand\n");
        write_or_fail(dir, "instances.d/c.conf", "2\n");
        c[3] = take_commit(dir, "bob <1001@host>", "delete b");
        write_by_hand(dir, "instances.d/d.conf", "untold\n");
        write_by_hand(dir, "instances.d/c.conf", "untold\n");
        for (size_t i = 0; i < ELEMENTS(c); i++)
                c[i]->next = i + 1 < ELEMENTS(c) ? c[i + 1] : NULL;
        assert_int_equal(run_commits(dir, c[0], NULL), 0);
        for (size_t i = 0; i < ELEMENTS(c); i++)
                (void) history_commit_free(c[i]);
        assert_int_equal(log_lines(dir, &lines), 7);
        // bob's last commit changed c.conf, too, and a person's text was found before it.
        assert_non_null(strstr(lines[0], wanted[1]));
        assert_non_null(strstr(lines[1], wanted[0]));
        for (size_t i = 2; i < ELEMENTS(wanted); i++)
                assert_non_null(strstr(lines[i], wanted[i]));
        assert_int_equal(confdir_diff(dir, "HEAD~4", &diff, NULL), 0);
        assert_string_equal(diff, "diff --git a/instances.d/a.conf b/instances.d/a.conf\nindex d00491f..0cfbf08 100644\n"
                                  "--- a/instances.d/a.conf\n+++ b/instances.d/a.conf\n@@ -1 +1 @@\n-1\n+2\n");
        // What a person did last is in nobody's commit until it is asked for.
        assert_int_equal(confdir_diff(dir, NULL, &pending, NULL), 0);
        assert_non_null(strstr(pending, "d.conf"));
        assert_non_null(strstr(pending, "+untold"));
        char *except[] = {"instances.d/d.conf", NULL};
        assert_int_equal(commit_whole(dir, "apply", except, NULL), 0);
        assert_int_equal(confdir_diff(dir, "HEAD", &whole, NULL), 0);
        assert_null(strstr(whole, "d.conf"));
        assert_non_null(strstr(whole, "+++ b/instances.d/c.conf"));
        assert_int_equal(log_lines(dir, NULL), 8);
}

// What was refused was put back before anybody asked for a commit.
static void test_taken_back(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();

        write_or_fail(dir, "hostd.conf", "1");
        commit_or_fail(dir, "1");
        write_or_fail(dir, "hostd.conf", "2");
        assert_true(confdir_has_changes(dir));
        write_or_fail(dir, "hostd.conf", "1");
        assert_false(confdir_has_changes(dir));
        write_or_fail(dir, "policies.d/p.conf", "1");
        assert_int_equal(confdir_remove(dir, "policies.d/p.conf", NULL), 0);
        assert_false(confdir_has_changes(dir));
        write_or_fail(dir, "hostd.conf", "1");
        assert_false(confdir_has_changes(dir));
}

// A person's commit on a branch of their own, and files that are none of ours.
static void test_other_commits(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();
        _cleanup_free_ char *status = NULL;
        _cleanup_strv_ char **lines = NULL;
        Git git = {.path = top};

        write_or_fail(dir, "hostd.conf", "1");
        commit_or_fail(dir, "1");
        assert_int_equal(git_check(&git, GIT_ARGUMENTS("checkout", "-q", "-b", "other"), NULL, NULL), 0);
        write_by_hand(dir, "README", "foreign");
        assert_int_equal(git_check(&git, GIT_ARGUMENTS("add", "-f", "README"), NULL, NULL), 0);
        assert_int_equal(git_check(&git, GIT_ARGUMENTS("commit", "-q", "-m", "by a person"), NULL, NULL), 0);
        write_or_fail(dir, "hostd.conf", "2");
        commit_or_fail(dir, "2");
        assert_int_equal(commit_whole(dir, "whole", NULL, NULL), 0);
        assert_int_equal(log_lines(dir, &lines), 4);
        assert_int_equal(git_check(&git, GIT_ARGUMENTS("cat-file", "-e", "other:README"), NULL, NULL), 0);
        assert_int_equal(git_run(&git, GIT_ARGUMENTS("cat-file", "-e", "main:README"), NULL, NULL), 128);
        assert_int_equal(git_check(&git, GIT_ARGUMENTS("status", "--porcelain"), &status, NULL), 0);
        assert_string_equal(status, "");
        assert_int_equal(faccessat(confdir_fd(dir), "README", F_OK, 0), 0);
}

static void test_broken_repository(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = NULL;
        _cleanup_error_ Error err = ERROR_NULL;

        confdir_free(open_or_fail());
        assert_int_equal(io_write_atomic(AT_FDCWD, strcat(strcpy((char[200]) {0}, top), "/.git/HEAD"), "rubbish", 7, 0644), 0);
        assert_int_equal(io_write_atomic(AT_FDCWD, strcat(strcpy((char[200]) {0}, top), "/.git/config"), "[rubbish", 8, 0644), 0);
        assert_int_equal(confdir_open(top, &dir, &err), CONFDIR_NO_HISTORY);
        assert_non_null(strstr(confdir_no_history(dir), "git"));
        write_or_fail(dir, "hostd.conf", "1");
        expect_text(dir, "hostd.conf", "1");
        _cleanup_(history_commit_freep) HistoryCommit *one = take_commit(dir, "a <b@c>", "later");
        assert_int_equal(run_commits(dir, one, &err), CONFDIR_NO_HISTORY);
        assert_int_equal(io_remove_tree(confdir_fd(dir), ".git"), 0);
        assert_int_equal(run_commits(dir, one, &err), 0);
        assert_null(confdir_no_history(dir));
        assert_int_equal(log_lines(dir, NULL), 2);
}

static void put(const char *name, const char *text) {
        char path[256];

        (void) snprintf(path, sizeof(path), "%s/%s", top, name);
        assert_int_equal(io_write_atomic(AT_FDCWD, path, text, strlen(text), 0644), 0);
}

// What a power cut during the very first start leaves: the names are there and the contents are not, and temporary files lie about.
static void test_cut_short(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = NULL;
        char path[256];

        (void) snprintf(path, sizeof(path), "%s/.git/objects", top);
        assert_int_equal(io_mkdir_p(AT_FDCWD, path, 0755), 0);
        (void) snprintf(path, sizeof(path), "%s/instances.d", top);
        assert_int_equal(io_mkdir_p(AT_FDCWD, path, 0755), 0);
        put(".git/HEAD", "");
        put(".git/config", "");
        put(".hostd.conf.12.tmp", "half");
        put("instances.d/.a.conf.4711.tmp", "half");
        put("instances.d/.a.conf.tmp", "an editor's");
        put("hostd.conf", "1");
        dir = open_or_fail();
        assert_null(confdir_no_history(dir));
        assert_int_equal(faccessat(confdir_fd(dir), ".hostd.conf.12.tmp", F_OK, 0), -1);
        assert_int_equal(faccessat(confdir_fd(dir), "instances.d/.a.conf.4711.tmp", F_OK, 0), -1);
        assert_int_equal(faccessat(confdir_fd(dir), "instances.d/.a.conf.tmp", F_OK, 0), 0);
        expect_text(dir, "hostd.conf", "1");
        write_or_fail(dir, "hostd.conf", "2");
        commit_or_fail(dir, "two");
}

static int run_no_git(void) {
        _cleanup_(confdir_freep) ConfDir *dir = NULL;

        if (confdir_open(top, &dir, NULL) != CONFDIR_NO_HISTORY || strcmp(confdir_no_history(dir), "git is not installed") != 0)
                return 1;
        write_or_fail(dir, "hostd.conf", "1");
        expect_text(dir, "hostd.conf", "1");
        _cleanup_(history_commit_freep) HistoryCommit *one = take_commit(dir, "a <b@c>", "later");
        if (run_commits(dir, one, NULL) != CONFDIR_NO_HISTORY || confdir_earlier(dir, "hostd.conf", 0))
                return 2;
        (void) umount("/usr/bin/git");
        return run_commits(dir, one, NULL) == 0 && log_lines(dir, NULL) == 2 ? 0 : 3;
}

// Something that is no program is in git's place.
static void test_no_git(void **state) {
        test_with_mount(&(OwnMount) {"/dev/null", "/usr/bin/git", NULL, MS_BIND, NULL}, run_no_git);
}

static void test_earlier(void **state) {
        static const char *const texts[] = {"3", "2", "1", NULL};
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();

        for (unsigned i = 1; i <= 3; i++) {
                char text[2] = {(char) ('0' + i)};
                write_or_fail(dir, "hostd.conf", text);
                commit_or_fail(dir, "m");
                write_or_fail(dir, "instances.d/a.conf", text);
                commit_or_fail(dir, "another file");
        }
        assert_int_equal(confdir_remove(dir, "hostd.conf", NULL), 0);
        commit_or_fail(dir, "removed");
        write_by_hand(dir, "hostd.conf", "not committed");
        for (unsigned i = 0; i < ELEMENTS(texts); i++) {
                _cleanup_free_ char *text = confdir_earlier(dir, "hostd.conf", i);
                assert_true(texts[i] ? text && strcmp(text, texts[i]) == 0 : !text);
        }
        assert_null(confdir_earlier(dir, "instances.d/b.conf", 0));
        // What was removed does not come back by a bad file of the same name.
        assert_int_equal(confdir_remove(dir, "instances.d/a.conf", NULL), 0);
        commit_or_fail(dir, "removed");
        write_by_hand(dir, "instances.d/a.conf", "not committed");
        assert_null(confdir_earlier(dir, "instances.d/a.conf", 0));
        write_or_fail(dir, "instances.d/a.conf", "again");
        commit_or_fail(dir, "made again");
        _cleanup_free_ char *again = confdir_earlier(dir, "instances.d/a.conf", 0);
        assert_string_equal(again, "again");
        _cleanup_free_ char *found = confdir_earlier(dir, "instances.d/a.conf", 1), *before = confdir_earlier(dir, "instances.d/a.conf", 2);
        assert_string_equal(found, "not committed"); // found by the commit after it
        assert_null(before);
        assert_null(confdir_earlier(dir, "../x", 0));
}

static void test_speed(void **state) {
        _cleanup_(confdir_freep) ConfDir *dir = open_or_fail();
        usec_t start = clock_monotonic(), called;
        HistoryCommit *first = NULL, **end = &first;
        _cleanup_close_ int pidfd = -EBADF;
        pid_t pid;
        int status;

        for (unsigned i = 0; i < 100; i++) {
                char path[48];
                snprintf(path, sizeof(path), "instances.d/i%u.conf", i % 10);
                char text[16];
                snprintf(text, sizeof(text), "%u", i);
                write_or_fail(dir, path, text);
                *end = take_commit(dir, "a <b@c>", text);
                end = &(*end)->next;
        }
        print_message("100 files: %llu us to write\n", (unsigned long long) (clock_monotonic() - start));
        start = clock_monotonic();
        assert_int_equal(confdir_commit(dir, first, &pid, &pidfd, NULL), 0);
        called = clock_monotonic() - start;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        print_message("100 commits: %llu us in the caller, %llu us until done\n", (unsigned long long) called,
                      (unsigned long long) (clock_monotonic() - start));
        assert_int_equal(confdir_commit_result(dir, status, NULL), 0);
        while (first) {
                HistoryCommit *next = first->next;
                (void) history_commit_free(first);
                first = next;
        }
        assert_int_equal(log_lines(dir, NULL), 100); // as many as it shows; the first one is not among them
}

int main(void) {
        if (access("/usr/bin/git", X_OK) < 0) {
                printf("SKIP: /usr/bin/git is not installed\n");
                return 77;
        }
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_history, setup, teardown),
                cmocka_unit_test_setup_teardown(test_checkout, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refused_revisions, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refused_paths, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refused_authors, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stale_lock, setup, teardown),
                cmocka_unit_test_setup_teardown(test_killed_git, setup, teardown),
                cmocka_unit_test_setup_teardown(test_links_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
                cmocka_unit_test_setup_teardown(test_foreign_files, setup, teardown),
                cmocka_unit_test_setup_teardown(test_exact, setup, teardown),
                cmocka_unit_test_setup_teardown(test_taken_back, setup, teardown),
                cmocka_unit_test_setup_teardown(test_other_commits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_broken_repository, setup, teardown),
                cmocka_unit_test_setup_teardown(test_cut_short, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_git, setup, teardown),
                cmocka_unit_test_setup_teardown(test_earlier, setup, teardown),
                cmocka_unit_test_setup_teardown(test_speed, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
