// SPDX-License-Identifier: GPL-2.0-or-later
// Control: RUN_DIR/control. Peers are root on this host; their messages have one size and one version. A peer that does not
// read is dropped rather than waited for: nothing that hostd does or fails to do may stop the supervisor.
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "base/io.h"
#include "base/log.h"
#include "base/process.h"
#include "instance/container.h"
#include "instance/supervisor.h"
#include "redact/proto.h"

#define CLIENT_BYTES (4 << 20) // room for a message about each sandbox
#define REDACT_ID 65534 // nobody's, inside as well

int control_listen(Supervisor *s, Error *err) {
        struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "control"};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        // Relative, because a socket's address is short and a path may be long.
        if (fd < 0 || fchdir(s->run_fd) < 0)
                return error_set_errno(err, errno, "making the control socket");
        if (unlink("control") < 0 && errno != ENOENT)
                return error_set_errno(err, errno, "removing an old control socket");
        mode_t old = umask(0177);
        int r = bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, CLIENTS_MAX) < 0 ? -errno : 0;
        (void) umask(old);
        if (chdir("/") < 0 || r < 0)
                return error_set_errno(err, r < 0 ? r : -errno, "binding the control socket");
        s->listen_fd = TAKE_FD(fd);
        return 0;
}

static void client_close(Supervisor *s, Client *client) {
        for (size_t i = 0; i < CONSOLES_MAX; i++)
                if (s->consoles[i].pid > 0 && s->consoles[i].client_fd == client->fd) {
                        (void) kill(s->consoles[i].pid, SIGKILL); // our unreaped child: the pid cannot be another's
                        s->consoles[i].client_fd = -EBADF;
                }
        client->fd = close_fd(client->fd);
        client->greeted = false;
}

void control_accept(Supervisor *s) {
        _cleanup_close_ int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct ucred peer;
        socklen_t size = sizeof(peer);

        if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != 0)
                return;
        int bytes = CLIENT_BYTES;
        (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)); // without it fewer sandboxes survive a restart of hostd
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                if (s->clients[i].fd < 0) {
                        s->clients[i] = (Client) {.fd = TAKE_FD(fd)};
                        return;
                }
}

static void client_send(Supervisor *s, Client *client, const ControlMessage *message, int fd) {
        ssize_t n = io_send_fds(client->fd, message, sizeof(*message), &fd, fd >= 0 ? 1 : 0, MSG_DONTWAIT);

        if (n != (ssize_t) sizeof(*message))
                client_close(s, client);
}

static void send_to(Supervisor *s, Client *client, const ControlMessage *message, int fd) {
        if (client) {
                client_send(s, client, message, fd);
                return;
        }
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                if (s->clients[i].fd >= 0 && s->clients[i].greeted)
                        client_send(s, &s->clients[i], message, fd);
}

static ControlMessage message_new(const Supervisor *s, ControlType type) {
        return (ControlMessage) {.version = CONTROL_VERSION, .type = type, .state = s->state, .target = s->target,
                                 .init_pid = s->init, .guest_pid = s->guest};
}

void control_send_state(Supervisor *s, Client *client) {
        ControlMessage message = message_new(s, CONTROL_STATE);

        send_to(s, client, &message, -EBADF);
}

void control_send_guest(Supervisor *s, Client *client) {
        ControlMessage message = message_new(s, CONTROL_GUEST);

        send_to(s, client, &message, s->guest_channel);
}

void control_send_plug(Supervisor *s, Client *client) {
        ControlMessage message = message_new(s, CONTROL_PLUG);

        message.init_pid = s->plug_pid;
        send_to(s, client, &message, -EBADF);
}

void control_send_error(Supervisor *s, Client *client) {
        ControlMessage message = message_new(s, CONTROL_ERROR);

        memcpy(message.text, s->failure, sizeof(message.text));
        send_to(s, client, &message, -EBADF);
}

static void console_end(Supervisor *s, int client_fd, uint64_t cookie) {
        ControlMessage message = message_new(s, CONTROL_CONSOLE_END);

        message.cookie = cookie;
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                if (client_fd >= 0 && s->clients[i].fd == client_fd)
                        client_send(s, &s->clients[i], &message, -EBADF);
}

void control_console_ended(Supervisor *s, pid_t pid) {
        for (size_t i = 0; i < CONSOLES_MAX; i++)
                if (s->consoles[i].pid == pid) {
                        s->consoles[i].pid = 0;
                        console_end(s, s->consoles[i].client_fd, s->consoles[i].cookie);
                }
}

static void console_start(Supervisor *s, Client *client, const ControlMessage *message, const int fds[3]) {
        pid_t parent = getpid(), pid = -1;
        size_t slot = 0;

        while (slot < CONSOLES_MAX && s->consoles[slot].pid != 0)
                slot++;
        if (slot < CONSOLES_MAX && s->state == CONTROL_STATE_RUNNING)
                pid = fork();
        if (pid == 0) {
                sigset_t none;
                (void) sigemptyset(&none);
                (void) sigprocmask(SIG_SETMASK, &none, NULL);
                container_console(&s->spec, parent, fds[0], fds[1]);
        }
        if (pid < 0)
                console_end(s, client->fd, message->cookie);
        else
                s->consoles[slot] = (Console) {.pid = pid, .client_fd = client->fd, .cookie = message->cookie};
}

// As a user of the instance's range, of whom there is nobody else on the host; inside, nobody sees the process. It outlives hostd, not us.
static void redact_start(const Supervisor *s, const int *fds) {
        const char *program = secure_getenv("HOSTD_REDACT") ?: HOSTD_LIBEXECDIR "/hostd-redact";
        char *const argv[] = {(char *) program, NULL};
        _cleanup_error_ Error err = ERROR_NULL;
        ProcessSpec spec = PROCESS_SPEC_NULL;
        pid_t pid;

        spec.argv = argv;
        spec.extra_fds = fds;
        spec.n_extra_fds = REDACT_FDS;
        spec.die_with_parent = spec.new_session = true;
        spec.uid = spec.gid = s->spec.id_base + REDACT_ID;
        if (process_spawn(&spec, &pid, NULL, &err) < 0)
                log_error("%s", error_message(&err, -EIO)); // hostd sees the end of the channel
}

static Kept *kept_find(Supervisor *s, const char *id) {
        for (size_t i = 0; i < s->n_kept; i++)
                if (strcmp(s->kept[i].id, id) == 0)
                        return &s->kept[i];
        return NULL;
}

static void kept_add(Supervisor *s, const char *id, int fd) {
        Kept *kept = kept_find(s, id);
        int copy;

        if (!*id || strlen(id) >= sizeof(kept->id) || (!kept && s->n_kept == KEPT_MAX) || (copy = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0) {
                log_event(LOG_WARNING, NULL, s->spec.name, "the channel of sandbox %.35s cannot be kept: it will not survive a restart of hostd", id);
                return;
        }
        if (!kept) {
                kept = &s->kept[s->n_kept++];
                *kept = (Kept) {.fd = -EBADF};
                memcpy(kept->id, id, strlen(id) + 1);
        }
        (void) close_fd(kept->fd);
        kept->fd = copy;
}

static void kept_drop(Supervisor *s, const char *id) {
        Kept *kept = kept_find(s, id);

        if (!kept)
                return;
        (void) close_fd(kept->fd);
        *kept = s->kept[--s->n_kept];
}

static void kept_send(Supervisor *s, Client *client) {
        for (size_t i = 0; i <= s->n_kept && client->fd >= 0; i++) {
                ControlMessage message = message_new(s, CONTROL_SANDBOX);
                if (i < s->n_kept)
                        memcpy(message.text, s->kept[i].id, sizeof(s->kept[i].id));
                client_send(s, client, &message, i < s->n_kept ? s->kept[i].fd : -EBADF);
        }
}

static void message_handle(Supervisor *s, Client *client, const ControlMessage *message, int *fds, size_t n_fds) {
        switch (message->type) {
        case CONTROL_HELLO:
                client->greeted = true;
                control_send_state(s, client);
                if (client->fd >= 0 && s->failure[0])
                        control_send_error(s, client);
                if (client->fd >= 0 && s->plug_pid > 0 && !s->plugged)
                        control_send_plug(s, client);
                kept_send(s, client);
                if (client->fd >= 0 && s->guest > 0)
                        control_send_guest(s, client);
                return;
        case CONTROL_SANDBOX:
                if (n_fds == 1)
                        kept_add(s, message->text, fds[0]);
                return;
        case CONTROL_SANDBOX_GONE:
                kept_drop(s, message->text);
                return;
        case CONTROL_STOP:
                supervisor_request_stop(s);
                return;
        case CONTROL_PLUGGED:
                supervisor_plugged(s);
                return;
        case CONTROL_CONSOLE:
                if (n_fds == 3)
                        console_start(s, client, message, fds);
                return;
        case CONTROL_REDACT:
                if (n_fds == REDACT_FDS)
                        redact_start(s, fds);
                return;
        default: // a newer hostd may say what this build does not know
                return;
        }
}

void control_receive(Supervisor *s, Client *client) {
        int fds[REDACT_FDS];
        size_t n_fds = ELEMENTS(fds);
        ControlMessage message;
        ssize_t n = io_recv_fds(client->fd, &message, sizeof(message), fds, &n_fds, MSG_DONTWAIT);

        if (n == -EAGAIN)
                return;
        if (n == (ssize_t) sizeof(message))
                message.text[sizeof(message.text) - 1] = 0;
        if (n != (ssize_t) sizeof(message) || message.version != CONTROL_VERSION)
                client_close(s, client);
        else
                message_handle(s, client, &message, fds, n_fds);
        for (size_t i = 0; i < n_fds; i++)
                (void) close_fd(fds[i]);
}

bool control_has_client(const Supervisor *s) {
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                if (s->clients[i].fd >= 0 && s->clients[i].greeted)
                        return true;
        return false;
}

void control_notify(const char *format, ...) {
        char text[128];
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        (void) sd_notify(0, text); // without systemd there is nobody to tell
}
