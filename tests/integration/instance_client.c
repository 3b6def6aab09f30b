// SPDX-License-Identifier: GPL-2.0-or-later
// A hostd in miniature for instance.sh: instance_client RUN_DIR VERB [SECONDS]
//   watch    prints every message until the supervisor is gone      running  until init and the helper run
//   stop     asks to stop                                           guest    asks the helper what it sees ("quit" ends it)
//   console  relays descriptors 0 to 2
// When init waits for its interface, all of them run $INSTANCE_PLUG (a script for bash) with its process id.
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "instance/spec.h"

static int sock = -1;

static int connect_control(const char *run_dir, usec_t end) {
        struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "control"};

        if (chdir(run_dir) < 0)
                return -errno;
        sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        while (connect(sock, (struct sockaddr *) &address, sizeof(address)) < 0) {
                if (clock_monotonic() > end)
                        return -errno;
                (void) usleep(500);
        }
        return 0;
}

static int say(uint32_t type, const int *fds, size_t n_fds) {
        ControlMessage message = {.version = CONTROL_VERSION, .type = type, .cookie = 42};

        return io_send_fds(sock, &message, sizeof(message), fds, n_fds, 0) == sizeof(message) ? 0 : -EIO;
}

static int hear(ControlMessage *message, int *ret_fd, usec_t end) {
        struct pollfd fd = {.fd = sock, .events = POLLIN};
        usec_t now = clock_monotonic();
        size_t n = 1;

        *ret_fd = -EBADF;
        if (now >= end || poll(&fd, 1, (int) ((end - now) / 1000)) <= 0)
                return -ETIMEDOUT;
        return io_recv_fds(sock, message, sizeof(*message), ret_fd, &n, 0) == sizeof(*message) ? 0 : -ECONNRESET;
}

static void print_message(const ControlMessage *m, int fd) {
        static const char *const states[] = {"starting", "running", "stopped"};
        static const char *const targets[] = {"none", "halt", "reboot", "crash", "terminated"};

        if (m->type == CONTROL_STATE)
                printf("STATE %s target=%s init=%d\n", states[m->state], targets[m->target], m->init_pid);
        else if (m->type == CONTROL_GUEST)
                printf("GUEST pid=%d channel=%s\n", m->guest_pid, fd >= 0 ? "yes" : "no");
        else if (m->type == CONTROL_ERROR)
                printf("ERROR %s\n", m->text);
        else
                printf("TYPE %u cookie=%llu\n", m->type, (unsigned long long) m->cookie);
        (void) fflush(stdout);
}

static int plug(pid_t init) {
        const char *script = getenv("INSTANCE_PLUG");
        char text[16];
        pid_t pid;
        int status;

        if (!script)
                return -ENOENT;
        (void) snprintf(text, sizeof(text), "%d", (int) init);
        pid = fork();
        if (pid == 0) {
                (void) execlp("bash", "bash", script, text, NULL);
                _exit(127);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0)
                return -errno;
        return status == 0 ? say(CONTROL_PLUGGED, NULL, 0) : -EIO;
}

static int ask_guest(int channel, bool quit) {
        union {
                char buf[CMSG_SPACE(sizeof(struct ucred))];
                struct cmsghdr align;
        } control;
        char answer[2048];
        struct iovec iov = {answer, sizeof(answer) - 1};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control)};

        if (send(channel, quit ? "q" : "?", 1, 0) != 1 || quit)
                return 0;
        ssize_t n = recvmsg(channel, &msg, 0);
        if (n <= 0)
                return 1;
        answer[n] = 0;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        struct ucred peer = {0};
        if (c && c->cmsg_type == SCM_CREDENTIALS)
                memcpy(&peer, CMSG_DATA(c), sizeof(peer));
        printf("hostpid=%d hostuid=%u %s\n", peer.pid, peer.uid, answer);
        return 0;
}

int main(int argc, char *argv[]) {
        const char *verb = argc > 2 ? argv[2] : "";
        usec_t end = clock_monotonic() + (usec_t) (argc > 3 ? strtoul(argv[3], NULL, 10) : 60) * USEC_PER_SEC;
        const int stdio[] = {0, 1, 2};
        ControlMessage message;
        int fd, r;

        if (argc < 3 || connect_control(argv[1], end) < 0)
                return 2;
        if (say(CONTROL_HELLO, NULL, 0) < 0)
                return 2;
        if (strcmp(verb, "stop") == 0 && say(CONTROL_STOP, NULL, 0) < 0)
                return 2;
        if (strcmp(verb, "console") == 0 && say(CONTROL_CONSOLE, stdio, 3) < 0)
                return 2;
        while ((r = hear(&message, &fd, end)) == 0) {
                if (message.type == CONTROL_PLUG && plug(message.init_pid) < 0)
                        return 4;
                if (strcmp(verb, "console") == 0) {
                        if (message.type == CONTROL_CONSOLE_END)
                                return message.cookie != 42;
                        continue;
                }
                if (strcmp(verb, "guest") != 0 && strcmp(verb, "quit") != 0)
                        print_message(&message, fd);
                if (message.type == CONTROL_GUEST && fd >= 0) {
                        if (strcmp(verb, "running") == 0)
                                return 0;
                        if (strcmp(verb, "guest") == 0 || strcmp(verb, "quit") == 0)
                                return ask_guest(fd, verb[0] == 'q');
                        (void) close(fd);
                }
                if (strcmp(verb, "running") == 0 && message.type == CONTROL_STATE && message.state == CONTROL_STATE_STOPPED)
                        return 1;
        }
        return r == -ETIMEDOUT ? 3 : 0;
}
