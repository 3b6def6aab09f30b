// SPDX-License-Identifier: GPL-2.0-or-later
// Session: see session.h.
//
// The record, not the end of the streams, ends the call: a child left in the background keeps the pipes open and must not hang us.
// What the command wrote before it ended is in the pipes when the record arrives, so exactly that much is still read. A pty passes
// bytes on by a kernel worker; there its end or SESSION_DRAIN_MSEC is waited for.
#include "cli/session.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/clock.h"
#include "cli/pump.h"
#include "cli/terminal.h"

#define SESSION_RETRY_USEC (100 * USEC_PER_MSEC)
#define SESSION_END_USEC (50 * USEC_PER_MSEC)

enum { SESSION_IN, SESSION_OUT, SESSION_ERR, _SESSION_PUMPS };

typedef struct Session {
        Cli *cli;
        SessionOptions options;
        char *id;
        int master, signals;
        Pump pumps[_SESSION_PUMPS];
        json_t *record;
        bool attached;     // the connection is a second one, after hostd was gone
        bool over;         // no record will come any more: `status` says what we return
        int status;
        int pending; // signal that came while hostd was away
        usec_t lost_since, retry_at, drain_until;
        usec_t end_input_at; // when to say again that there is no more input
        usec_t leave_at;     // a console without input: nobody can say that it is over
} Session;

static const int session_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};

static void session_done(Session *s) {
        terminal_restore();
        for (int i = 0; i < _SESSION_PUMPS; i++)
                pump_done(&s->pumps[i]);
        (void) close_fd(s->master);
        (void) close_fd(s->signals);
        json_decref(s->record);
        free(s->id);
}

int session_exit_status(const json_t *record) {
        const char *message = json_string_value(json_object_get(record, "message"));
        int signal_number = (int) json_integer_value(json_object_get(record, "signal"));
        const json_t *code = json_object_get(record, "exit");

        json_int_t redacted = json_integer_value(json_object_get(record, "redacted"));
        if (redacted > 0)
                cli_complain("in the output %lld times the value of a secret was replaced", (long long) redacted);
        if (json_is_true(json_object_get(record, "oom")))
                cli_complain("the command was killed: out of memory");
        if (json_is_true(json_object_get(record, "timed_out"))) {
                cli_complain("the command was killed: its time was over");
                return SESSION_EXIT_TIMEOUT;
        }
        if (message)
                cli_complain("%s", message);
        if (signal_number > 0)
                return 128 + (signal_number & 0x7f);
        if (json_integer_value(code) < 0) // nobody knows how it ended; the message said why. What is killed for memory is killed by that signal
                return json_is_true(json_object_get(record, "oom")) ? 128 + SIGKILL : SESSION_EXIT_OURS;
        if (!json_is_integer(code)) {
                cli_complain("hostd's record says neither how the command ended nor why");
                return SESSION_EXIT_OURS;
        }
        return (int) json_integer_value(code) & 0xff;
}

static int session_open_signals(Session *s) {
        sigset_t mask;

        sigemptyset(&mask);
        for (size_t i = 0; i < ELEMENTS(session_signals); i++)
                sigaddset(&mask, session_signals[i]);
        (void) signal(SIGPIPE, SIG_IGN);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);
        s->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
        return s->signals < 0 ? -errno : 0;
}

static int session_open_pty(Session *s, int guest[3], Error *err) {
        int r = terminal_pty(&s->master, &guest[0], err);

        if (r < 0)
                return r;
        for (int i = 1; i < 3; i++) {
                guest[i] = fcntl(guest[0], F_DUPFD_CLOEXEC, 3);
                if (guest[i] < 0)
                        return error_set_errno(err, errno, "cannot open the pty");
        }
        terminal_copy_size(STDIN_FILENO, s->master);
        int from = fcntl(s->master, F_DUPFD_CLOEXEC, 3), to = fcntl(s->master, F_DUPFD_CLOEXEC, 3);
        pump_init(&s->pumps[SESSION_IN], STDIN_FILENO, false, to, true);
        pump_init(&s->pumps[SESSION_OUT], from, true, STDOUT_FILENO, false);
        s->pumps[SESSION_IN].escape = s->options.escape;
        return from < 0 || to < 0 ? error_set_errno(err, errno, "cannot open the pty") : 0;
}

static int session_open_pipes(Session *s, int guest[3], Error *err) {
        for (int i = 0; i < 3; i++) {
                int p[2];
                if (pipe2(p, O_CLOEXEC) < 0)
                        return error_set_errno(err, errno, "cannot make a pipe");
                guest[i] = p[i > 0]; // reads its input, writes its output
                if (i == SESSION_IN)
                        pump_init(&s->pumps[i], STDIN_FILENO, false, p[1], true);
                else
                        pump_init(&s->pumps[i], p[0], true, i, false);
        }
        return 0;
}

static int session_start(Session *s, const Method *method, json_t *parameters, Error *err) {
        int guest[3] = {-EBADF, -EBADF, -EBADF};
        int r = method_check(method, parameters, err);

        // The connection last: hostd, which it wakes, then has the call at once.
        if (r >= 0)
                r = session_open_signals(s);
        if (r >= 0)
                r = s->options.tty ? session_open_pty(s, guest, err) : session_open_pipes(s, guest, err);
        if (r >= 0)
                r = cli_connect(s->cli, err);
        if (r >= 0)
                r = client_send(s->cli->client, method->name, parameters, true, guest, 3, err);
        for (int i = 0; i < 3; i++)
                (void) close_fd(guest[i]);
        if (r >= 0 && s->options.tty)
                (void) terminal_raw(STDIN_FILENO); // a terminal that cannot be raw still works
        return r;
}

static void session_fail(Session *s, const Error *err, int r) {
        terminal_restore();
        (void) cli_fail(err, r);
        s->over = true;
        s->status = SESSION_EXIT_OURS;
}

static void session_stop_input(Session *s) {
        pump_done(&s->pumps[SESSION_IN]);
}

static void session_finish(Session *s, json_t *record) {
        s->record = record;
        session_stop_input(s);
        if (s->options.tty)
                s->drain_until = clock_monotonic() + SESSION_DRAIN_MSEC * USEC_PER_MSEC;
        else
                for (int i = SESSION_OUT; i <= SESSION_ERR; i++)
                        pump_limit_to_present(&s->pumps[i]);
}

static void session_lost(Session *s) {
        s->cli->client = client_free(s->cli->client);
        if (s->lost_since == 0)
                s->lost_since = clock_monotonic();
        s->retry_at = clock_monotonic() + SESSION_RETRY_USEC;
}

// On a connection of its own, because ours waits for the record; bounded, so that a stuck hostd does not take our streams along.
static void session_forward(Session *s, int signal_number) {
        _cleanup_error_ Error err = ERROR_NULL;
        Cli second = {.socket = s->cli->socket};
        json_t *parameters = json_pack("{s:s, s:i}", "id", s->id, "signal", signal_number);
        struct timeval limit = {.tv_sec = 2};
        int r = cli_connect(&second, &err);

        if (r >= 0) {
                (void) setsockopt(client_fd(second.client), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
                r = cli_call(&second, method_get(METHOD_COMMAND_SIGNAL), parameters, NULL, &err);
        }
        if (r < 0)
                cli_complain("cannot pass SIG%s on: %s", sigabbrev_np(signal_number), error_message(&err, r));
        json_decref(parameters);
        client_free(second.client);
}

// hostd was restarted: the command lives on and its record is asked for again.
static void session_reconnect(Session *s) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *parameters = json_pack("{s:s}", "id", s->id);
        int r = cli_connect(s->cli, &err);

        if (r >= 0)
                r = client_send(s->cli->client, method_get(METHOD_COMMAND_ATTACH)->name, parameters, true, NULL, 0, &err);
        json_decref(parameters);
        s->attached = true;
        if (r >= 0 && s->pending)
                session_forward(s, s->pending);
        if (r >= 0) {
                s->pending = 0;
                return;
        }
        if (clock_monotonic() - s->lost_since > SESSION_RECONNECT_SEC * USEC_PER_SEC)
                session_fail(s, &err, r);
        else
                session_lost(s);
}

static bool session_may_retry(const Session *s, const Error *err) {
        if (!s->id)
                return false;
        if (s->cli->client && client_is_lost(s->cli->client))
                return true;
        // It is back but has not yet found its commands.
        return s->attached && (err->code == ERR_BUSY || err->code == ERR_UNAVAILABLE) &&
               clock_monotonic() - s->lost_since < SESSION_RECONNECT_SEC * USEC_PER_SEC;
}

static void session_receive(Session *s) {
        while (s->cli->client && !s->record && !s->over) {
                _cleanup_error_ Error err = ERROR_NULL;
                json_t *reply = NULL;
                int r = client_receive_ready(s->cli->client, &reply, &err);
                if (r == -EAGAIN && err.code == ERR_NONE)
                        return;
                if (r < 0 && session_may_retry(s, &err))
                        session_lost(s);
                else if (r < 0)
                        session_fail(s, &err, r);
                else if (r == 0)
                        session_finish(s, reply);
                else {
                        const char *id = json_string_value(json_object_get(reply, "id"));
                        if (id && !s->id)
                                s->id = strdup(id);
                        json_decref(reply);
                        s->lost_since = 0;
                }
        }
}

static void session_on_signals(Session *s) {
        struct signalfd_siginfo info;

        while (read(s->signals, &info, sizeof(info)) == (ssize_t) sizeof(info)) {
                int n = (int) info.ssi_signo;
                if (n == SIGWINCH) {
                        if (s->options.tty)
                                terminal_copy_size(STDIN_FILENO, s->master);
                } else if (!s->cli->client && !s->pending) {
                        s->pending = n; // for when hostd is back; a second one is for us
                } else if (s->options.tty || !s->id || !s->cli->client) {
                        // From a terminal keys arrive as bytes, so this came from elsewhere: we go, and hostd ends the command.
                        s->over = true;
                        s->status = 128 + n;
                } else {
                        session_forward(s, n);
                }
        }
}

// Input through a pty has no end of its own. Tried again until somebody is there to understand it.
static void session_end_pty_input(Session *s) {
        bool told = !s->options.tty || s->options.console || s->master < 0 || terminal_end_input(s->master);

        if (s->options.console)
                s->leave_at = clock_monotonic() + SESSION_LEAVE_MSEC * USEC_PER_MSEC;
        s->end_input_at = told ? 0 : clock_monotonic() + SESSION_END_USEC;
}

static bool session_is_drained(Session *s) {
        if (s->over)
                return true;
        if (!s->record)
                return false;
        if (s->options.tty && clock_monotonic() > s->drain_until)
                pump_limit_to_present(&s->pumps[SESSION_OUT]);
        return pump_is_done(&s->pumps[SESSION_OUT]) && pump_is_done(&s->pumps[SESSION_ERR]);
}

static int session_timeout(const Session *s) {
        usec_t now = clock_monotonic(), until = USEC_INFINITY;

        if (!s->cli->client && !s->record)
                until = s->retry_at;
        if (s->record && s->drain_until)
                until = s->drain_until;
        if (s->end_input_at && !s->record)
                until = MIN2(until, s->end_input_at);
        if (s->leave_at && !s->record)
                until = MIN2(until, s->leave_at);
        if (until == USEC_INFINITY || (s->record && until <= now))
                return -1; // nothing but what poll tells
        return until <= now ? 0 : (int) ((until - now) / 1000) + 1;
}

static void session_turn(Session *s) {
        enum { CLIENT = 2 * _SESSION_PUMPS, SIGNALS, _FDS };
        struct pollfd fds[_FDS];
        bool input_was_open = !pump_is_done(&s->pumps[SESSION_IN]);

        for (int i = 0; i < _SESSION_PUMPS; i++)
                pump_poll(&s->pumps[i], &fds[2 * i], &fds[2 * i + 1]);
        fds[CLIENT] = (struct pollfd) {.fd = s->cli->client && !s->record ? client_fd(s->cli->client) : -1, .events = POLLIN};
        fds[SIGNALS] = (struct pollfd) {.fd = s->signals, .events = POLLIN};
        if (poll(fds, _FDS, session_timeout(s)) < 0)
                return; // EINTR: look again
        if (fds[SIGNALS].revents)
                session_on_signals(s);
        for (int i = 0; i < _SESSION_PUMPS; i++)
                pump_turn(&s->pumps[i], &fds[2 * i], &fds[2 * i + 1]);
        if (!s->record && (input_was_open ? pump_is_done(&s->pumps[SESSION_IN]) : s->end_input_at && clock_monotonic() >= s->end_input_at))
                session_end_pty_input(s);
        if (s->pumps[SESSION_IN].escaped || (s->leave_at && clock_monotonic() >= s->leave_at))
                s->over = true;
        if (!s->cli->client && !s->record && !s->over && clock_monotonic() >= s->retry_at)
                session_reconnect(s);
}

int session_run(Cli *cli, const Method *method, json_t *parameters, const SessionOptions *options) {
        static Session session; // large buffers; one session in a process
        Session *s = &session;
        _cleanup_error_ Error err = ERROR_NULL;
        int r, status;

        *s = (Session) {.cli = cli, .options = *options, .master = -EBADF, .signals = -EBADF};
        for (int i = 0; i < _SESSION_PUMPS; i++)
                s->pumps[i].from = s->pumps[i].to = -EBADF;
        r = session_start(s, method, parameters, &err);
        if (r < 0) {
                session_done(s);
                (void) cli_fail(&err, r);
                return SESSION_EXIT_OURS;
        }
        for (;;) {
                session_receive(s);
                if (session_is_drained(s))
                        break;
                session_turn(s);
        }
        terminal_restore();
        status = s->over ? s->status : s->options.console ? 0 : session_exit_status(s->record);
        session_done(s);
        return status;
}
