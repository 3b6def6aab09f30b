// SPDX-License-Identifier: GPL-2.0-or-later
// hostctl's sessions from end to end against a fake hostd: streams, ptys, signals, the loss of hostd, the console.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/io.h"
#include "run_hostctl.h"

static void test_streams(void **state) {
        _cleanup_outcome_ Outcome o = run(exec_script("", "s1", "echo out; echo err >&2; cat; exit 3"));

        assert_int_equal(o.status, 3);
        assert_string_equal(o.out, "out\n");
        assert_string_equal(o.err, "err\n");
}

static void test_background_child(void **state) {
        usec_t start = clock_monotonic();
        _cleanup_outcome_ Outcome o = run(exec_script("", "s2", "sleep 8 & echo here; exit 0"));

        assert_int_equal(o.status, 0);
        assert_string_equal(o.out, "here\n");
        assert_true(clock_monotonic() - start < 5 * USEC_PER_SEC);
}

static void test_many_bytes(void **state) {
        size_t size = 64 << 20;
        _cleanup_free_ char *data = malloc(size);
        _cleanup_close_ int fd = scratch("big", O_WRONLY | O_CREAT | O_TRUNC);
        uint64_t x = 88172645463325252ULL;

        for (size_t i = 0; i < size; i += 8) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                memcpy(data + i, &x, 8);
        }
        assert_int_equal(io_write_all(fd, data, size), 0);
        _cleanup_outcome_ Outcome o = run_input("big", "exec one cat");
        assert_int_equal(o.status, 0);
        assert_int_equal(o.out_size, size);
        assert_memory_equal(o.out, data, size);
}

// Through a pty in raw mode, both ways. What is sent before the mode changes would be echoed, so the guest says when.
static void test_many_bytes_by_pty(void **state) {
        size_t size = 8 << 20, n;
        _cleanup_free_ char *data = malloc(size), *got = NULL, *shown = NULL;
        _cleanup_close_ int out = scratch("ptyout", O_RDWR | O_CREAT | O_TRUNC), in = -EBADF, feed = -EBADF;
        char path[256], *argv[] = {"hostctl", "exec", "-T", "one", "sh", path, NULL};
        int p[2];

        for (size_t i = 0; i < size; i++)
                data[i] = (char) (i * 7 + (i >> 8) + (i >> 16));
        script("s3", "cd $(dirname $0); stty raw -echo; echo go; head -c 8388608 > got; cat got");
        snprintf(path, sizeof(path), "%s/s3", fake_dir);
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        in = p[0];
        feed = p[1];
        pid_t pid = spawn(argv, in, out, 2);
        wait_for("ptyout", "go");
        assert_int_equal(io_write_all(feed, data, size), 0);
        assert_int_equal(wait_status(pid), 0);
        got = content("got", &n);
        assert_int_equal(n, size);
        assert_memory_equal(got, data, size);
        shown = content("ptyout", &n);
        assert_int_equal(n, size + 3);
        assert_memory_equal(shown + 3, data, size);
}

static void test_pty(void **state) {
        _cleanup_outcome_ Outcome o = run(exec_script("-T", "s4", "test -t 0 && test -t 1 && test -t 2 && echo tty; exit 5"));

        assert_int_equal(o.status, 5);
        assert_string_equal(o.out, "tty\r\n");
}

// The operator's own terminal: raw while the command runs, its size and keys passed on, and given back at the end and on a signal.
static int terminal_session(const char *text, const char *keys, int signal_number, bool *ret_restored) {
        int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
        struct winsize size = {.ws_row = 33, .ws_col = 77};
        struct termios before, after;
        char path[256], *argv[] = {"hostctl", "exec", "one", "sh", path, NULL};

        assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_true(slave >= 0 && ioctl(slave, TIOCSWINSZ, &size) == 0 && tcgetattr(slave, &before) == 0);
        script("s8", text);
        snprintf(path, sizeof(path), "%s/s8", fake_dir);
        unlinkat(AT_FDCWD, strcat(strcpy((char[160]) {0}, fake_dir), "/up"), 0);
        pid_t pid = spawn(argv, slave, slave, slave);
        wait_for("up", "33 77");
        if (keys)
                assert_int_equal(io_write_all(master, keys, strlen(keys)), 0);
        if (signal_number)
                kill(pid, signal_number);
        int status = wait_status(pid);
        assert_int_equal(tcgetattr(slave, &after), 0);
        *ret_restored = before.c_lflag == after.c_lflag && before.c_iflag == after.c_iflag && before.c_oflag == after.c_oflag;
        close(slave);
        close(master);
        return status;
}

static void test_terminal(void **state) {
        bool restored;

        assert_int_equal(terminal_session("cd $(dirname $0); trap 'exit 44' INT; stty size >up; while :; do sleep 0.1; done", "\003", 0, &restored), 44);
        assert_true(restored);
        assert_int_equal(terminal_session("cd $(dirname $0); stty size >up; sleep 20", NULL, SIGTERM, &restored), 128 + SIGTERM);
        assert_true(restored);
}

static void test_reader_goes_away(void **state) {
        usec_t start = clock_monotonic();
        int p[2];
        char *argv[] = {"hostctl", "exec", "one", "yes", NULL}, buf[16];

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        pid_t pid = spawn(argv, open("/dev/null", O_RDONLY | O_CLOEXEC), p[1], 2);
        close(p[1]);
        assert_true(read(p[0], buf, sizeof(buf)) > 0);
        close(p[0]);
        assert_int_equal(wait_status(pid), 128 + SIGPIPE); // yes(1) was told
        assert_true(clock_monotonic() - start < 5 * USEC_PER_SEC);
}

static pid_t spawn_script(const char *name, const char *text, int out) {
        char path[256], *argv[] = {"hostctl", "exec", "one", "sh", path, NULL};

        script(name, text);
        snprintf(path, sizeof(path), "%s/%s", fake_dir, name);
        return spawn(argv, open("/dev/null", O_RDONLY | O_CLOEXEC), out, 2);
}

static void test_signals_are_forwarded(void **state) {
        _cleanup_close_ int out = scratch("sigout", O_RDWR | O_CREAT | O_TRUNC);
        pid_t pid = spawn_script("s5", "trap 'echo got; exit 9' TERM; echo $$ > $(dirname $0)/pid; echo up; while :; do sleep 0.1; done", out);

        wait_for("sigout", "up");
        kill(pid, SIGTERM);
        assert_int_equal(wait_status(pid), 9);
        wait_for("sigout", "got");
}

static void test_killed_client_kills_command(void **state) {
        _cleanup_close_ int out = scratch("killout", O_RDWR | O_CREAT | O_TRUNC);
        pid_t pid = spawn_script("s6", "echo up; sleep 20", out);

        wait_for("killout", "up");
        kill(pid, SIGKILL);
        assert_int_equal(wait_status(pid), 1000 + SIGKILL);
        wait_for("calls", "gone");
}

// hostd dies and comes back: the streams go on and the record is asked for again.
static void test_restart_of_hostd(void **state) {
        _cleanup_close_ int out = scratch("restout", O_RDWR | O_CREAT | O_TRUNC);
        pid_t pid = spawn_script("s7", "echo before; sleep 0.5; echo after", out);

        wait_for("restout", "before");
        fake_hostd_stop();
        usleep(200000);
        fake_hostd_start();
        assert_int_equal(wait_status(pid), 7);
        wait_for("restout", "after");
        wait_for("calls", "attach");
}

static void test_signals_while_hostd_is_away(void **state) {
        _cleanup_close_ int out = scratch("awayout", O_RDWR | O_CREAT | O_TRUNC);
        pid_t pid = spawn_script("s9", "echo up; sleep 2", out);

        wait_for("awayout", "up");
        fake_hostd_stop();
        usleep(200000);
        kill(pid, SIGTERM); // kept for hostd
        usleep(200000);
        kill(pid, SIGINT); // insists
        assert_int_equal(wait_status(pid), 128 + SIGINT);
        fake_hostd_start();
}

static void forget_calls(void) {
        unlinkat(AT_FDCWD, strcat(strcpy((char[160]) {0}, fake_dir), "/calls"), 0);
}

static void test_console(void **state) {
        expect("console one", 0, "login: ", NULL);
}

// Nobody can type ^] any more: what the console still has to say is shown, and the session ends with success.
static void test_console_without_input(void **state) {
        usec_t start = clock_monotonic();

        forget_calls();
        expect("console stays", 0, "login: ", NULL);
        assert_true(clock_monotonic() - start < 5 * USEC_PER_SEC);
        wait_for("calls", "gone");
}

static void test_console_by_pipe(void **state) {
        script("lines", "one\ntwo\n");
        forget_calls();
        _cleanup_outcome_ Outcome o = run_input("lines", "console stays");
        assert_int_equal(o.status, 0);
        assert_non_null(strstr(o.out, "it was one"));
        assert_non_null(strstr(o.out, "it was two"));
        wait_for("calls", "gone");
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_streams), cmocka_unit_test(test_background_child), cmocka_unit_test(test_many_bytes),
                cmocka_unit_test(test_many_bytes_by_pty), cmocka_unit_test(test_pty), cmocka_unit_test(test_terminal),
                cmocka_unit_test(test_reader_goes_away), cmocka_unit_test(test_signals_are_forwarded), cmocka_unit_test(test_killed_client_kills_command),
                cmocka_unit_test(test_restart_of_hostd), cmocka_unit_test(test_signals_while_hostd_is_away), cmocka_unit_test(test_console),
                cmocka_unit_test(test_console_without_input), cmocka_unit_test(test_console_by_pipe),
        };

        return cmocka_run_group_tests_name("session", tests, fake_hostd_setup, fake_hostd_teardown);
}
