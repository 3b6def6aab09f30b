// SPDX-License-Identifier: GPL-2.0-or-later
// Helper: see helper.h.
#include "guest/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/io.h"
#include "guest/ask.h"
#include "guest/child.h"
#include "guest/denied.h"

// Children that wait for hostd are in the helper's own cgroup, which has room for few: the others queue here.
#define HELPER_BLOCKED_MAX 24

typedef enum HelperState {
        HELPER_STATE_FREE,
        HELPER_STATE_QUEUED,  // not forked yet
        HELPER_STATE_BLOCKED, // said READY, waits for RELEASE
        HELPER_STATE_RUNNING,
        HELPER_STATE_DONE, // kept until ACK
} HelperState;

typedef struct HelperCommand {
        HelperState state;
        char id[GUEST_ID_MAX + 3];
        uint64_t order;
        Request request; // while queued
        int fds[3];
        pid_t pid;
        int status;
        bool terminal; // a relay may be there, which takes signals as bytes on `status`
        bool tell_live, tell_end;
        uint16_t end_type; // GUEST_EXITED or GUEST_FAILED, and their numbers
        uint32_t end_value, end_flags;
} HelperCommand;

typedef struct Helper {
        int channel, signals;
        int binary;   // of this program; -EBADF: none
        bool asked;   // people inside may ask; not in a sandbox
        struct rlimit open_files;
        HelperCommand commands[GUEST_COMMANDS_MAX];
        unsigned n_queued, n_blocked;
        uint64_t order;
        bool tell_hello, gone, full; // full: the socket took no more
        DeniedList denied;
        AskServer ask;
        char packet[sizeof(GuestHeader) + GUEST_BODY_MAX + 1];
} Helper;

static HelperCommand *helper_find(Helper *helper, const char *id) {
        for (size_t i = 0; i < GUEST_COMMANDS_MAX; i++)
                if (helper->commands[i].state != HELPER_STATE_FREE && strcmp(helper->commands[i].id, id) == 0)
                        return &helper->commands[i];
        return NULL;
}

static HelperCommand *helper_slot(Helper *helper) {
        for (size_t i = 0; i < GUEST_COMMANDS_MAX; i++)
                if (helper->commands[i].state == HELPER_STATE_FREE)
                        return &helper->commands[i];
        return NULL;
}

static void helper_close_fds(int fds[3]) {
        for (int i = 0; i < 3; i++)
                fds[i] = close_fd(fds[i]);
}

static bool helper_tell(Helper *helper, GuestHeader h, const char *id) {
        ssize_t n;

        h.magic = GUEST_MAGIC;
        h.version = GUEST_VERSION;
        h.size = sizeof(h);
        if (id)
                memcpy(h.id, id, strlen(id));
        do
                n = send(helper->channel, &h, sizeof(h), MSG_DONTWAIT | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno != EAGAIN)
                helper->gone = true;
        return n >= 0;
}

// Sends what is due, in the order that a new hostd relies on: LIVE and ends first, HELLO last. What does not fit stays due.
static void helper_flush(Helper *helper) {
        helper->full = false;
        for (size_t i = 0; i < GUEST_COMMANDS_MAX && !helper->full; i++) {
                HelperCommand *c = &helper->commands[i];
                if (c->tell_live) {
                        helper->full = !helper_tell(helper, (GuestHeader) {.type = GUEST_LIVE}, c->id);
                        c->tell_live = helper->full;
                }
                if (c->tell_end && !helper->full) {
                        GuestHeader h = {.type = c->end_type, .value = c->end_value, .flags = c->end_flags};
                        helper->full = !helper_tell(helper, h, c->id);
                        c->tell_end = helper->full;
                }
        }
        if (helper->tell_hello && !helper->full) {
                helper->full = !helper_tell(helper, (GuestHeader) {.type = GUEST_HELLO, .value = GUEST_VERSION}, NULL);
                helper->tell_hello = helper->full;
        }
}

static void helper_finish(Helper *helper, HelperCommand *c, GuestHeader end) {
        if (c->state == HELPER_STATE_QUEUED)
                helper->n_queued--;
        if (c->state == HELPER_STATE_BLOCKED)
                helper->n_blocked--;
        request_done(&c->request);
        helper_close_fds(c->fds);
        c->status = close_fd(c->status);
        c->state = HELPER_STATE_DONE;
        c->pid = 0;
        c->tell_live = false;
        c->tell_end = true;
        c->end_type = end.type;
        c->end_value = end.value;
        c->end_flags = end.flags;
}

static void helper_fail(Helper *helper, HelperCommand *c, int errnum) {
        helper_finish(helper, c, (GuestHeader) {.type = GUEST_FAILED, .value = (uint32_t) abs(errnum), .flags = GUEST_STAGE_FORK});
}

// A fork that becomes a sandbox is open to the agent's user for a while: it knows of nobody's requests but its own.
static void helper_forget(Helper *helper, const HelperCommand *own) {
        for (size_t i = 0; i < GUEST_COMMANDS_MAX; i++)
                if (&helper->commands[i] != own)
                        request_done(&helper->commands[i].request);
        explicit_bzero(helper->packet, sizeof(helper->packet));
}

// False when the fork must wait for another child to leave.
static bool helper_fork(Helper *helper, HelperCommand *c) {
        int pair[2];
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
                helper_fail(helper, c, errno);
                return true;
        }
        pid = fork();
        if (pid == 0) {
                ChildSpec spec = {.request = &c->request, .channel = helper->channel, .status = pair[1], .open_files = helper->open_files, .binary = helper->binary};
                (void) close(pair[0]); // or its end of file would never come
                memcpy(spec.fds, c->fds, sizeof(spec.fds));
                if (c->request.header.value == GUEST_SANDBOX)
                        helper_forget(helper, c);
                child_run(&spec);
        }
        int errnum = errno;
        (void) close_fd(pair[1]);
        if (pid < 0) {
                (void) close_fd(pair[0]);
                if (errnum == EAGAIN && helper->n_blocked > 0)
                        return false;
                helper_fail(helper, c, errnum);
                return true;
        }
        c->state = HELPER_STATE_BLOCKED;
        helper->n_queued--;
        helper->n_blocked++;
        c->pid = pid;
        c->status = pair[0];
        c->terminal = child_has_terminal(&c->request);
        request_done(&c->request);
        helper_close_fds(c->fds);
        return true;
}

static void helper_start_queued(Helper *helper) {
        while (helper->n_queued > 0 && helper->n_blocked < HELPER_BLOCKED_MAX) {
                HelperCommand *first = NULL;
                for (size_t i = 0; i < GUEST_COMMANDS_MAX; i++) {
                        HelperCommand *c = &helper->commands[i];
                        if (c->state == HELPER_STATE_QUEUED && (!first || c->order < first->order))
                                first = c;
                }
                if (!helper_fork(helper, first))
                        return;
        }
}

static void helper_on_exec(Helper *helper, size_t size, int fds[3], size_t n_fds) {
        _cleanup_(request_done) Request request = {0};
        GuestHeader h;
        HelperCommand *c;
        int r = request_decode(helper->packet, size, &request);

        memcpy(&h, helper->packet, sizeof(h));
        if (n_fds == 3 && request_id_valid(h.id) && !helper_find(helper, h.id)) {
                c = helper_slot(helper);
                if (c) {
                        *c = (HelperCommand) {.state = HELPER_STATE_QUEUED, .order = helper->order++, .request = request, .status = -EBADF};
                        memcpy(c->id, h.id, GUEST_ID_MAX);
                        memcpy(c->fds, fds, sizeof(c->fds));
                        helper->n_queued++;
                        request = (Request) {0};
                        if (r < 0)
                                helper_fail(helper, c, r);
                        return;
                }
                GuestHeader full = {.type = GUEST_FAILED, .value = EAGAIN, .flags = GUEST_STAGE_FORK};
                (void) helper_tell(helper, full, h.id);
        }
        for (size_t i = 0; i < n_fds; i++)
                (void) close_fd(fds[i]);
}

static void helper_on_release(Helper *helper, HelperCommand *c, const GuestHeader *h) {
        if (c->state != HELPER_STATE_BLOCKED)
                return;
        c->state = HELPER_STATE_RUNNING;
        helper->n_blocked--;
        (void) send(c->status, "", 1, MSG_NOSIGNAL); // a child that died meanwhile is reaped all the same
}

static void helper_on_ack(Helper *helper, HelperCommand *c, const GuestHeader *h) {
        if (c->state == HELPER_STATE_DONE)
                *c = (HelperCommand) {.status = -EBADF};
}

static bool helper_signal_relay(const HelperCommand *c, int number) {
        unsigned char byte = (unsigned char) number;

        // Refused when there is none: whoever became the command has shut its end.
        return c->terminal && send(c->status, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

static void helper_on_signal(Helper *helper, HelperCommand *c, const GuestHeader *h) {
        int number = (int) h->value;

        if (number < 1 || number > 64)
                return;
        if (c->state == HELPER_STATE_QUEUED)
                helper_fail(helper, c, ECANCELED);
        else if (c->state == HELPER_STATE_BLOCKED)
                (void) kill(c->pid, SIGKILL);
        else if (c->state == HELPER_STATE_RUNNING && !helper_signal_relay(c, number) && kill(-c->pid, number) < 0)
                (void) kill(c->pid, number); // not yet the leader of its session. Unreaped, so the pid is its own
}

// A new hostd: what runs is told, what waits for a release of the old one is ended, what has ended is told again.
static void helper_on_hello(Helper *helper) {
        for (size_t i = 0; i < GUEST_COMMANDS_MAX; i++) {
                HelperCommand *c = &helper->commands[i];
                if (c->state == HELPER_STATE_QUEUED)
                        helper_fail(helper, c, ECANCELED);
                else if (c->state == HELPER_STATE_BLOCKED)
                        (void) kill(c->pid, SIGKILL);
                c->tell_live = c->state == HELPER_STATE_RUNNING;
                c->tell_end = c->state == HELPER_STATE_DONE;
        }
        helper->tell_hello = true;
}

static void (*const helper_table[_GUEST_TYPE_MAX])(Helper *, HelperCommand *, const GuestHeader *) = {
        [GUEST_RELEASE] = helper_on_release,
        [GUEST_ACK] = helper_on_ack,
        [GUEST_SIGNAL] = helper_on_signal,
};

static void helper_on_denied(Helper *helper, size_t size) {
        GuestDenied message;

        if (size != sizeof(message))
                return;
        memcpy(&message, helper->packet, sizeof(message));
        denied_add(&helper->denied, message.text, sizeof(message.text));
}

static void helper_on_answer(Helper *helper, size_t size) {
        GuestAnswer message;

        if (size != sizeof(message) || !helper->asked)
                return;
        memcpy(&message, helper->packet, sizeof(message));
        ask_server_answer(&helper->ask, &message);
}

// False when nothing is there.
static bool helper_receive(Helper *helper) {
        int fds[IO_FDS_MAX];
        size_t n_fds = IO_FDS_MAX;
        ssize_t n = io_recv_fds(helper->channel, helper->packet, sizeof(helper->packet), fds, &n_fds, MSG_DONTWAIT);
        HelperCommand *c;
        GuestHeader h;

        if (n <= 0) {
                helper->gone = n != -EAGAIN;
                return false;
        }
        if ((size_t) n < sizeof(h))
                h = (GuestHeader) {0};
        else
                memcpy(&h, helper->packet, sizeof(h));
        if (h.magic == GUEST_MAGIC && h.version == GUEST_VERSION && h.type == GUEST_EXEC) {
                helper_on_exec(helper, (size_t) n, fds, n_fds);
                return true;
        }
        for (size_t i = 0; i < n_fds; i++)
                (void) close_fd(fds[i]);
        if (h.magic != GUEST_MAGIC || h.version != GUEST_VERSION || h.size != (size_t) n || h.type >= _GUEST_TYPE_MAX)
                return true;
        if (h.type == GUEST_HELLO)
                helper_on_hello(helper);
        else if (h.type == GUEST_DENIED)
                helper_on_denied(helper, (size_t) n);
        else if (h.type == GUEST_ANSWER)
                helper_on_answer(helper, (size_t) n);
        else if (helper_table[h.type] && request_id_valid(h.id) && (c = helper_find(helper, h.id)))
                helper_table[h.type](helper, c, &h);
        return true;
}

static void helper_reap(Helper *helper) {
        struct signalfd_siginfo info;
        int wait_status;
        pid_t pid;

        while (read(helper->signals, &info, sizeof(info)) > 0)
                ;
        while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
                if (denied_reaped(&helper->denied, pid) || ask_server_reaped(&helper->ask, pid, wait_status))
                        continue;
                for (size_t i = 0; i < GUEST_COMMANDS_MAX; i++) {
                        HelperCommand *c = &helper->commands[i];
                        ChildFailure failure;
                        if (c->pid != pid || c->state == HELPER_STATE_FREE)
                                continue;
                        GuestHeader end = {.type = GUEST_EXITED, .value = (uint32_t) wait_status & 0xffff};
                        if (recv(c->status, &failure, sizeof(failure), MSG_DONTWAIT) != sizeof(failure))
                                failure.stage = 0;
                        else if (failure.stage == 0)
                                end.value = failure.errnum & 0xffff;
                        if (failure.stage != 0)
                                end = (GuestHeader) {.type = GUEST_FAILED, .value = failure.errnum, .flags = failure.stage};
                        helper_finish(helper, c, end);
                        break;
                }
        }
}

static int helper_open(Helper *helper) {
        struct rlimit raised;
        sigset_t mask;

        for (int s = 1; s < _NSIG; s++)
                (void) signal(s, SIG_DFL); // the children have them from here
        sigemptyset(&mask);
        sigaddset(&mask, SIGCHLD);
        if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0 || getrlimit(RLIMIT_NOFILE, &helper->open_files) < 0)
                return -errno;
        helper->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
        if (helper->signals < 0)
                return -errno;
        // One socket per command and three descriptors per queued one.
        raised = helper->open_files;
        raised.rlim_cur = raised.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &raised);
        if (!helper->asked) // in a sandbox: what process 1 began with is the most of all that it starts
                helper->open_files.rlim_max = helper->open_files.rlim_cur;
        return 0;
}

static Helper helper_object; // large, and the one object of this process

static int helper_loop(int channel, int binary, bool asked) {
        Helper *h = &helper_object;
        int r;

        h->channel = channel;
        h->signals = -EBADF;
        h->binary = binary;
        h->asked = asked;
        if (asked)
                ask_server_init(&h->ask, binary);
        r = helper_open(h);
        while (r >= 0 && !h->gone) {
                struct pollfd fds[2 + 1 + ASK_CLIENTS] = {
                        {.fd = channel, .events = (short) (POLLIN | (h->full ? POLLOUT : 0))},
                        {.fd = h->signals, .events = POLLIN},
                };
                int timeout = -1;
                size_t n = asked ? ask_server_poll(&h->ask, fds + 2, &timeout) : 0;
                if (poll(fds, 2 + n, timeout) < 0) {
                        r = errno == EINTR ? 0 : -errno;
                        continue;
                }
                if (fds[1].revents)
                        helper_reap(h);
                if (asked)
                        ask_server_dispatch(&h->ask, channel, fds + 2, n);
                for (int i = 0; i < 64 && !h->gone && helper_receive(h); i++)
                        ;
                helper_start_queued(h);
                helper_flush(h);
                if (asked)
                        denied_flush(&h->denied);
        }
        h->signals = close_fd(h->signals);
        return r;
}

int helper_run(int channel, int binary) {
        return helper_loop(channel, binary, true);
}

int helper_run_sandbox(int channel) {
        return helper_loop(channel, -EBADF, false);
}
