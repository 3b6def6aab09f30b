// SPDX-License-Identifier: GPL-2.0-or-later
// Relay: see relay.h. Never waits for one side only: a reader that has stopped must not keep a hang-up from being seen.
#include "guest/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>

#include "base/io.h"
#include "guest/child.h"
#include "guest/relay_pty.h"

#define RELAY_BUFFER 16384
// More than a pty's buffers hold: after the command's end a child in the background may write for ever, and is not waited for.
#define RELAY_PRESENT_MAX (128 * 1024)
#define RELAY_RETRY_MSEC 50

typedef struct RelayWay { // one direction
        size_t start, used;
        bool idle; // the last read found nothing
        char last; // byte that was written
        char buf[RELAY_BUFFER];
} RelayWay;

typedef struct Relay {
        int host, master, slave; // the slave is kept open, so that a command which closes its own for a while is no end
        int signals, status;
        pid_t pid;
        bool input_ended;
        RelayWay in, out;
} Relay;

static int relay_open_signals(Relay *relay) {
        sigset_t all;

        // Before the size is read and the command exists, so that nothing which happens meanwhile is missed.
        sigfillset(&all);
        if (sigprocmask(SIG_SETMASK, &all, NULL) < 0)
                return -errno;
        relay->signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
        return relay->signals < 0 ? -errno : 0;
}

static bool relay_is_open(const Relay *relay) {
        return relay->host >= 0;
}

// hostctl is gone: with the last descriptor of the inner master the session inside is hung up.
static void relay_hang_up(Relay *relay) {
        relay->host = close_fd(relay->host);
        relay->slave = close_fd(relay->slave);
        relay->master = close_fd(relay->master);
}

static void relay_kill(const Relay *relay, int number) {
        if (number > 0 && kill(-relay->pid, number) < 0)
                (void) kill(relay->pid, number); // not yet the leader of its session. Unreaped, so the pid is its own
}

static void relay_on_status(Relay *relay) {
        unsigned char number;
        ssize_t n = recv(relay->status, &number, 1, MSG_DONTWAIT);

        if (n == 1)
                relay_kill(relay, number);
        else if (n == 0)
                relay->status = close_fd(relay->status); // the helper died, and hostd is about to end this
}

// True when the command has ended.
static bool relay_on_signals(Relay *relay, int *ret_status) {
        struct signalfd_siginfo info;

        while (read(relay->signals, &info, sizeof(info)) == (ssize_t) sizeof(info)) {
                int number = (int) info.ssi_signo;
                if (number == SIGCHLD) {
                        if (waitpid(relay->pid, ret_status, WNOHANG) == relay->pid)
                                return true;
                } else if (info.ssi_code <= 0) // by a process
                        relay_kill(relay, number);
                else if (number == SIGWINCH)
                        relay_pty_copy_size(relay->host, relay->master);
                else if (number == SIGQUIT) {
                        relay->input_ended = true;
                        relay->in.idle = false;
                }
        }
        return false;
}

// False when the side that was read or written is gone.
static bool relay_read(RelayWay *way, int from) {
        ssize_t n = read(from, way->buf, sizeof(way->buf));

        way->idle = n < 0 && errno == EAGAIN;
        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        way->start = 0;
        way->used = (size_t) n;
        return n > 0;
}

static bool relay_write(RelayWay *way, int to) {
        while (way->start < way->used) {
                ssize_t n = write(to, way->buf + way->start, way->used - way->start);
                if (n < 0)
                        return errno == EAGAIN || errno == EINTR;
                way->start += (size_t) n;
                way->last = way->buf[way->start - 1];
        }
        return true;
}

static bool relay_way_empty(const RelayWay *way) {
        return way->start == way->used;
}

static void relay_move(Relay *relay, short host, short master) {
        bool alive = true;

        if (relay_way_empty(&relay->in) && (host & POLLIN))
                alive = relay_read(&relay->in, relay->host);
        // A master cannot hang up while the slave is held here; a write that fails all the same loses its bytes, not the session.
        if (alive && !relay_way_empty(&relay->in) && !relay_write(&relay->in, relay->master))
                relay->in.start = relay->in.used;
        if (relay_way_empty(&relay->out) && (master & POLLIN))
                (void) relay_read(&relay->out, relay->master);
        if (alive && !relay_way_empty(&relay->out))
                alive = relay_write(&relay->out, relay->host);
        if (!alive || (host & (POLLHUP | POLLERR)))
                relay_hang_up(relay);
}

// Only in line mode does a terminal have an end of input; a program that reads bytes is waited for.
static void relay_end_input(Relay *relay) {
        struct termios t;
        char end[2];

        // After the signal comes no more input: what was written before is read once a read finds nothing.
        if (!relay_is_open(relay) || !relay->input_ended || !relay_way_empty(&relay->in))
                return;
        if (!relay->in.idle && (!relay_read(&relay->in, relay->host) || !relay->in.idle))
                return;
        if (tcgetattr(relay->slave, &t) < 0 || !(t.c_lflag & ICANON))
                return;
        end[0] = end[1] = (char) t.c_cc[VEOF];
        // Behind an unfinished line the first one only delivers it.
        (void) !write(relay->master, end, relay->in.last && relay->in.last != '\n' ? 2 : 1);
        relay->input_ended = false;
}

static void relay_turn(Relay *relay, short *ret_signals) {
        short to_host = relay_way_empty(&relay->out) ? 0 : POLLOUT, to_master = relay_way_empty(&relay->in) ? 0 : POLLOUT;
        struct pollfd fds[] = {
                {.fd = relay->host, .events = (short) ((to_master ? 0 : POLLIN) | to_host)},
                {.fd = relay->master, .events = (short) ((to_host ? 0 : POLLIN) | to_master)},
                {.fd = relay->signals, .events = POLLIN},
                {.fd = relay->status, .events = POLLIN},
        };

        *ret_signals = 0;
        if (poll(fds, ELEMENTS(fds), relay_is_open(relay) && relay->input_ended ? RELAY_RETRY_MSEC : -1) < 0)
                return;
        if (fds[3].revents)
                relay_on_status(relay);
        if (relay_is_open(relay))
                relay_move(relay, fds[0].revents, fds[1].revents);
        *ret_signals = fds[2].revents;
}

// What the command wrote is in the inner pty when it has ended: a read that finds nothing has waited for the kernel's worker.
static void relay_drain(Relay *relay) {
        size_t left = RELAY_PRESENT_MAX;

        while (relay_is_open(relay)) {
                struct pollfd host = {.fd = relay->host, .events = POLLOUT};
                if (relay_way_empty(&relay->out)) {
                        bool alive = left > 0 && relay_read(&relay->out, relay->master);
                        if (!alive || relay->out.idle)
                                return;
                        left -= MIN2(left, relay->out.used);
                }
                if (!relay_write(&relay->out, relay->host))
                        return;
                if (!relay_way_empty(&relay->out) && poll(&host, 1, -1) > 0 && (host.revents & (POLLHUP | POLLERR)))
                        return;
        }
}

static void relay_run(Relay *relay) __attribute__((noreturn));
static void relay_run(Relay *relay) {
        ChildFailure end = {.stage = 0};
        int wait_status = 0;
        short signals;

        (void) close(STDOUT_FILENO);
        (void) close(STDERR_FILENO);
        (void) io_set_nonblock(relay->host, true);
        do {
                relay_turn(relay, &signals);
                if (signals && relay_on_signals(relay, &wait_status))
                        break;
                relay_end_input(relay);
        } while (true);
        relay_drain(relay);
        end.errnum = (uint32_t) wait_status;
        (void) send(relay->status, &end, sizeof(end), MSG_NOSIGNAL);
        _exit(0);
}

// The end of input may have been signalled while this process was still in the relay's group, which got it too. A signal to a group that
// comes during fork(2) loses its origin on the way into the child; one that the relay passes on has a sender.
static void relay_forget_end(void) {
        const struct timespec now = {0};
        siginfo_t info;
        sigset_t quit;

        sigemptyset(&quit);
        sigaddset(&quit, SIGQUIT);
        if (sigtimedwait(&quit, &info, &now) == SIGQUIT && info.si_code <= 0 && info.si_pid != 0)
                (void) raise(SIGQUIT); // meant for the command
}

static int relay_enter(const Relay *relay) {
        sigset_t none;

        sigemptyset(&none);
        // Where no cgroup is killed, that of a login, the death of the relay must be the end of both.
        if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
                return -errno;
        relay_forget_end();
        for (int i = 0; i < 3; i++)
                if (dup2(relay->slave, i) < 0)
                        return -errno;
        (void) close(relay->master);
        (void) close(relay->slave);
        (void) close(relay->signals);
        if (ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
                return -errno;
        return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

// The command takes the host's pty itself: a terminal without a name, but one. hostctl left it raw for a relay.
static int relay_give_up(Relay *relay) {
        unsigned char number;
        sigset_t none;

        relay->slave = close_fd(relay->slave);
        relay->master = close_fd(relay->master);
        relay->signals = close_fd(relay->signals);
        relay_pty_cook(relay->host);
        sigemptyset(&none);
        if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
                return -errno;
        // From here on the helper signals the process itself; what it sent before is not lost.
        (void) shutdown(relay->status, SHUT_RD);
        while (recv(relay->status, &number, 1, MSG_DONTWAIT) == 1)
                (void) raise(number);
        return 0;
}

int relay_start(int status, uid_t owner) {
        static Relay relay = {.host = STDIN_FILENO, .master = -EBADF, .slave = -EBADF, .signals = -EBADF};
        int r;

        relay.status = status;
        r = relay_pty_open(owner, &relay.master, &relay.slave);
        if (r >= 0)
                r = relay_open_signals(&relay);
        if (r >= 0)
                r = relay_pty_join(relay.host, relay.master, relay.slave);
        if (r < 0)
                return relay_give_up(&relay);
        relay.pid = fork();
        if (relay.pid == 0)
                return relay_enter(&relay);
        if (relay.pid < 0) // an instance at its limit of processes still gets its shell
                return relay_give_up(&relay);
        relay_run(&relay);
}
