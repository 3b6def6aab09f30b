// SPDX-License-Identifier: GPL-2.0-or-later
// Commands with a terminal: the relay between a pty made here, as hostctl makes it, and one of the guest's own.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include "base/io.h"
#include "guest_run.h"

#define VOLUME ((size_t) 8 << 20)

typedef struct Term {
        Run run;
        int master;
        size_t used;
        char text[1 << 16];
} Term;

static void term_start_with(Term *t, GuestRequest request, const char *early) {
        struct winsize size = {.ws_row = 33, .ws_col = 77};
        struct termios raw;
        int slave, out;

        *t = (Term) {.run = {.request = request}};
        t->run.request.flags = GUEST_FLAG_TTY;
        if (openpty(&t->master, &slave, NULL, NULL, &size) < 0 || tcgetattr(slave, &raw) < 0)
                abort();
        cfmakeraw(&raw);
        if (tcsetattr(slave, TCSANOW, &raw) < 0 || io_set_nonblock(t->master, true) < 0 || io_write_all(t->master, early, strlen(early)) < 0)
                abort();
        t->run.tty = slave;
        CHECK(run_start(&t->run, &out) == 0);
        (void) close(slave);
        (void) close(out);
}

static void term_start(Term *t, const char *script, const char *early) {
        term_start_with(t, (GuestRequest) {.verb = GUEST_RUN, .user = "agent", .argv = SHELL(script)}, early);
}

static void term_read(Term *t) {
        ssize_t n;

        while (t->used < sizeof(t->text) - 1 && (n = read(t->master, t->text + t->used, sizeof(t->text) - 1 - t->used)) > 0)
                t->used += (size_t) n;
        t->text[t->used] = 0;
}

static bool term_shows(Term *t, const char *what) {
        for (int i = 0; i < 500; i++) {
                term_read(t);
                if (strstr(t->text, what))
                        return true;
                loop_for(10 * USEC_PER_MSEC);
        }
        fprintf(stderr, "no \"%s\" in: %.200s\n", what, t->text);
        return false;
}

static void term_end(Term *t) {
        loop_wait(&t->run.done, 10 * USEC_PER_SEC);
        CHECK(t->run.done);
        if (!t->run.done && t->run.command)
                command_detach(t->run.command);
        if (t->master >= 0) {
                term_read(t);
                t->master = close_fd(t->master);
        }
        run_free(&t->run);
}

static void term_finish(Term *t, int exit, const char *text) {
        usec_t end = clock_monotonic() + 10 * USEC_PER_SEC * slow();

        while (!t->run.done && clock_monotonic() < end) {
                term_read(t);
                loop_until(&t->run.done, USEC_PER_MSEC);
        }
        term_read(t);
        if (t->run.record.exit != exit || (text && strcmp(t->text, text) != 0))
                fprintf(stderr, "exit %d signal %d %s, terminal: %.200s\n", t->run.record.exit, t->run.record.signal, t->run.record.message ?: "", t->text);
        CHECK(t->run.record.exit == exit);
        CHECK(!text || strcmp(t->text, text) == 0);
        term_end(t);
}

static unsigned group_size_now(const Term *t) {
        _cleanup_free_ char *text = NULL;
        char path[128];
        unsigned n = 0;

        (void) snprintf(path, sizeof(path), "%s/cgroup.procs", command_id(t->run.command));
        if (io_read_file(box_dir, path, 4096, &text, NULL) == 0)
                for (char *p = text; *p; p++)
                        n += *p == '\n';
        return n;
}

// Of a shell that sleeps in a loop there is a moment without the sleep.
static bool group_size_is(const Term *t, unsigned n) {
        bool is = false;

        for (int i = 0; i < 20 && !is; i++, loop_for(10 * USEC_PER_MSEC))
                is = group_size_now(t) == n;
        return is;
}

static void test_terminal_keys(void) {
        static Term t;

        term_start(&t, "trap 'stty size' WINCH; stty size; while :; do sleep 0.1; done", "");
        CHECK(term_shows(&t, "33 77\r\n"));
        CHECK(group_size_is(&t, 3)); // with the relay
        CHECK(ioctl(t.master, TIOCSWINSZ, &(struct winsize) {.ws_row = 10, .ws_col = 20}) == 0);
        CHECK(term_shows(&t, "10 20\r\n"));
        CHECK(io_write_all(t.master, "\003", 1) == 0);
        loop_wait(&t.run.done, 5 * USEC_PER_SEC);
        CHECK(t.run.record.signal == SIGINT);
        term_end(&t);
        term_start(&t, "trap 'echo got; exit 9' TERM; echo up; exec 2>&-; while :; do sleep 0.1; done", "");
        CHECK(term_shows(&t, "up"));
        CHECK(command_signal(t.run.command, SIGSTOP, NULL) == 0);
        loop_for(100 * USEC_PER_MSEC);
        CHECK(command_signal(t.run.command, SIGTERM, NULL) == 0);
        loop_for(300 * USEC_PER_MSEC);
        CHECK(!t.run.done);
        CHECK(command_signal(t.run.command, SIGCONT, NULL) == 0);
        term_finish(&t, 9, "up\r\ngot\r\n");
}

void test_terminal(void) {
        static Term t;

        term_start(&t, "tty; stat -c '%U %a' $(tty); stty size; echo $TERM >/dev/tty; echo by path >$(tty); stty | grep -o -e -echo; exit 7", "");
        term_finish(&t, 7, "/dev/pts/0\r\nagent 620\r\n33 77\r\nxterm-256color\r\nby path\r\n");
        // What came before the relay is neither lost nor echoed twice, and the end of input is the terminal's own.
        term_start(&t, "cat", "early\npart");
        CHECK(term_shows(&t, "part"));
        CHECK(ioctl(t.master, TIOCSIG, SIGQUIT) == 0);
        term_finish(&t, 0, "early\r\npartearly\r\npart");
        // The end comes whenever: also while the command is about to leave the relay's process group.
        for (int i = 0; i < 100; i++) {
                struct termios modes = {0};
                term_start(&t, "cat", "x\n");
                while (!(modes.c_lflag & EXTPROC) && !t.run.done) {
                        (void) tcgetattr(t.master, &modes);
                        (void) sd_event_run(event, 0);
                }
                CHECK(ioctl(t.master, TIOCSIG, SIGQUIT) == 0);
                term_finish(&t, 0, "x\r\nx\r\n");
        }
        term_start(&t, "stty -icanon; echo raw; head -c 3 >/dev/null; sleep 0.3; stty icanon; cat", "");
        CHECK(term_shows(&t, "raw"));
        CHECK(io_write_all(t.master, "abc", 3) == 0 && ioctl(t.master, TIOCSIG, SIGQUIT) == 0);
        term_finish(&t, 0, "raw\r\nabc");
        term_start_with(&t, (GuestRequest) {.verb = GUEST_RUN, .user = "agent", .argv = (char *[]) {"no-such-program", NULL}}, "");
        term_finish(&t, 127, "");
        term_start(&t, "kill -SEGV $$", "");
        loop_wait(&t.run.done, 5 * USEC_PER_SEC);
        CHECK(t.run.record.signal == SIGSEGV);
        term_end(&t);
        test_terminal_keys();
}

static char volume_byte(size_t i) {
        return (char) (i * 7 + (i >> 8) + (i >> 16));
}

// Feeds and checks at once, in a process of its own: nobody else reads while this program's loop turns.
static void volume_pump(int master) {
        static char got[65536], sent[4096];
        size_t n_sent = 0, n_got = 0;

        while (n_got < VOLUME) {
                struct pollfd p = {.fd = master, .events = (short) (POLLIN | (n_sent < VOLUME ? POLLOUT : 0))};
                if (poll(&p, 1, 20000) <= 0)
                        _exit(2);
                if (p.revents & POLLIN) {
                        ssize_t n = read(master, got, sizeof(got));
                        for (ssize_t i = 0; i < n; i++)
                                if (got[i] != volume_byte(n_got++))
                                        _exit(3);
                } else if (p.revents & POLLHUP)
                        _exit(4);
                if (p.revents & POLLOUT) {
                        size_t want = MIN2(sizeof(sent), VOLUME - n_sent);
                        for (size_t i = 0; i < want; i++)
                                sent[i] = volume_byte(n_sent + i);
                        ssize_t n = write(master, sent, want);
                        n_sent += n > 0 ? (size_t) n : 0;
                }
        }
        _exit(read(master, got, 1) > 0 ? 5 : 0);
}

void test_terminal_volume(void) {
        static Term t;
        usec_t begin = clock_monotonic();
        int status = -1;

        term_start(&t, "stty raw -echo; printf go; exec head -c 8388608", "");
        CHECK(term_shows(&t, "go"));
        pid_t pid = fork();
        if (pid == 0)
                volume_pump(t.master);
        loop_wait(&t.run.done, 60 * USEC_PER_SEC);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (status != 0)
                fprintf(stderr, "volume: status %x\n", status);
        CHECK(t.run.record.exit == 0);
        term_end(&t);
        printf("8 MiB there and back through both ptys in %.1f s\n", (double) (clock_monotonic() - begin) / 1e6);
}

void test_terminal_ends(void) {
        static Term t;
        size_t total;

        // All that was written before the end, to a slow reader, and a child in the background keeps the terminal and writes on.
        term_start(&t, "stty -opost; (trap '' HUP; while echo .; do sleep 0.01; done) & head -c 60000 /dev/zero | tr '\\0' x; exit 4", "");
        loop_for(300 * USEC_PER_MSEC);
        CHECK(!t.run.done);
        term_finish(&t, 4, NULL);
        total = 0;
        for (size_t i = 0; i < t.used; i++)
                total += t.text[i] == 'x';
        CHECK(total == 60000);
        // hostctl dies while output flows: the session is hung up, and nothing waits for anybody.
        for (int i = 0; i < 5; i++) {
                term_start(&t, "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done", "");
                CHECK(term_shows(&t, "yyy"));
                t.master = close_fd(t.master);
                loop_wait(&t.run.done, 5 * USEC_PER_SEC);
                CHECK(t.run.done && t.run.record.signal == SIGHUP);
                term_end(&t);
        }
        // The same with a full pty and a command that does not care for a hang-up.
        term_start(&t, "trap '' HUP; head -c 300000 /dev/zero; exit 6", "");
        loop_for(200 * USEC_PER_MSEC);
        t.master = close_fd(t.master);
        loop_wait(&t.run.done, 5 * USEC_PER_SEC);
        CHECK(t.run.done && t.run.record.exit >= 0);
        term_end(&t);
        loop_for(200 * USEC_PER_MSEC);
}

void test_terminal_without_devpts(void) {
        static Term t;

        CHECK(shell_gives("mount -t tmpfs none /dev/pts && mount --bind /dev/null /dev/ptmx", NULL, ""));
        term_start(&t, "test -t 0 && stty size && tty; trap 'exit 3' TERM; echo up >/dev/tty; while :; do sleep 0.1; done", "");
        CHECK(term_shows(&t, "33 77\r\nnot a tty\r\nup\r\n"));
        CHECK(group_size_is(&t, 2));
        CHECK(command_signal(t.run.command, SIGTERM, NULL) == 0);
        term_finish(&t, 3, NULL);
        CHECK(shell_gives("umount /dev/pts /dev/ptmx", NULL, ""));
}
