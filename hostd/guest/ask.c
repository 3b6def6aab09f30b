// SPDX-License-Identifier: GPL-2.0-or-later
// AskServer: see ask.h.
#include "guest/ask.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/valid.h"

#define CHILD_SECONDS 10
#define ASKED_WITHIN 5000 // ms from connecting
#define AGAIN_EVERY 5000  // ms: an answer, or hostd itself, may have been lost
#define LOOK_LAST 60000

enum { CHILD_FINE = 0, CHILD_BOUND = 1, CHILD_FAILED = 2 }; // exit statuses

static int64_t now_ms(void) {
        struct timespec t;

        (void) clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void ask_server_init(AskServer *server, int binary) {
        *server = (AskServer) {.listener = -EBADF, .fresh = -EBADF, .binary = binary};
        for (size_t i = 0; i < ASK_CLIENTS; i++)
                server->clients[i].fd = -EBADF;
}

// ---- the child

static int copy_program(int binary) {
        static const char fresh[] = ASK_PROGRAM ".new";
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        off_t at = 0;

        if (binary < 0 || lstat(ASK_PROGRAM, &st) == 0 || fstat(binary, &st) < 0)
                return 0;
        (void) unlink(fresh);
        fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0755);
        if (fd < 0 || fchmod(fd, 0755) < 0)
                return -errno;
        while (at < st.st_size) // the offset of the descriptor is shared with the host: not ours to move
                if (sendfile(fd, binary, &at, (size_t) (st.st_size - at)) <= 0)
                        return -EIO;
        return rename(fresh, ASK_PROGRAM) < 0 ? -errno : 0;
}

static bool somebody_listens(const struct sockaddr_un *address) {
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct stat st;

        if (lstat(ASK_SOCKET, &st) < 0 || !S_ISSOCK(st.st_mode) || st.st_uid != 0)
                return false;
        return fd >= 0 && (connect(fd, (const struct sockaddr *) address, sizeof(*address)) == 0 || errno == EAGAIN);
}

static int look(int fresh, int binary, bool bound) {
        struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ASK_SOCKET};

        if (mkdir("/run/hostd", 0755) < 0 && errno != EEXIST)
                return CHILD_FAILED;
        if (copy_program(binary) < 0)
                return CHILD_FAILED;
        if (bound && somebody_listens(&address))
                return CHILD_FINE;
        (void) unlink(ASK_SOCKET);
        if (bind(fresh, (struct sockaddr *) &address, sizeof(address)) < 0 || chmod(ASK_SOCKET, 0666) < 0 || listen(fresh, ASK_CLIENTS) < 0)
                return CHILD_FAILED;
        return CHILD_BOUND;
}

static void look_begin(AskServer *server) {
        pid_t pid;

        // Soon at first, while the guest's init still makes its /run.
        server->looks++;
        server->look = now_ms() + (server->looks < 10 ? 1000 : LOOK_LAST);
        if (server->child > 0)
                return;
        server->fresh = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        pid = server->fresh < 0 ? -1 : fork();
        if (pid == 0) {
                (void) alarm(CHILD_SECONDS);
                _exit(look(server->fresh, server->binary, server->listener >= 0));
        }
        if (pid < 0)
                server->fresh = close_fd(server->fresh);
        else
                server->child = pid;
}

bool ask_server_reaped(AskServer *server, pid_t pid, int status) {
        if (server->child <= 0 || pid != server->child)
                return false;
        server->child = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_BOUND) { // a socket is bound for all who have it
                (void) close_fd(server->listener);
                server->listener = TAKE_FD(server->fresh);
        }
        server->fresh = close_fd(server->fresh);
        return true;
}

// ---- clients

static void client_close(AskClient *client) {
        (void) close_fd(client->fd);
        *client = (AskClient) {.fd = -EBADF};
}

static void client_say(AskClient *client, GuestAnswer *answer) {
        memset(answer->header.id, 0, sizeof(answer->header.id));
        if (send(client->fd, answer, sizeof(*answer), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t) sizeof(*answer))
                client_close(client);
}

static void client_refuse(AskClient *client, const char *text) {
        GuestAnswer answer = {
                .header = {.magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = GUEST_ANSWER, .size = sizeof(answer), .value = GUEST_ASK_REFUSED}};

        (void) snprintf(answer.text, sizeof(answer.text), "%s", text);
        client_say(client, &answer);
        client_close(client);
}

static void client_accept(AskServer *server) {
        AskClient *client = NULL;
        struct ucred peer = {.uid = (uid_t) -1};
        socklen_t size = sizeof(peer);
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
                return;
        for (size_t i = 0; i < ASK_CLIENTS && !client; i++)
                if (server->clients[i].fd < 0)
                        client = &server->clients[i];
        if (!client) {
                (void) close(fd);
                return;
        }
        *client = (AskClient) {.fd = fd, .due = now_ms() + ASKED_WITHIN};
        (void) snprintf(client->ask.header.id, sizeof(client->ask.header.id), "ask%llu", (unsigned long long) ++server->counter);
        (void) getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
        client->ask.header.value = peer.uid;
}

static void client_forward(AskClient *client, int channel) {
        GuestAsk ask = client->ask;

        ask.header = (GuestHeader) {.magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = GUEST_ASK, .size = sizeof(ask), .value = client->ask.header.value,
                                    .flags = client->ask.header.flags};
        memcpy(ask.header.id, client->ask.header.id, sizeof(ask.header.id));
        client->due = now_ms() + AGAIN_EVERY;
        (void) send(channel, &ask, sizeof(ask), MSG_DONTWAIT | MSG_NOSIGNAL); // what does not fit is sent again
}

// What hostd would only throw away is answered here.
static void client_read(AskClient *client, int channel) {
        GuestAsk ask;
        ssize_t n = recv(client->fd, &ask, sizeof(ask), MSG_DONTWAIT | MSG_TRUNC);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0 || client->asked) { // it left, or says more than one thing
                client_close(client);
                return;
        }
        if (client->ask.header.value != 0 && client->ask.header.value != ASK_AGENT_UID) {
                client_refuse(client, "only root and the user with the id 1000 may ask");
                return;
        }
        if (n != sizeof(ask) || ask.header.magic != GUEST_MAGIC || ask.header.type != GUEST_ASK || ask.to[sizeof(ask.to) - 1] || ask.reason[sizeof(ask.reason) - 1]) {
                client_refuse(client, "this is no request");
                return;
        }
        if (ask.header.flags == 0 && !valid_is(VALID_REASON, ask.reason)) {
                client_refuse(client, "the reason must be UTF-8 text without control characters, 1 to 200 bytes");
                return;
        }
        client->asked = true;
        client->ask.header.flags = ask.header.flags;
        if (ask.header.flags == 0) {
                client->ask.port = ask.port;
                client->ask.protocol = ask.protocol;
                (void) snprintf(client->ask.to, sizeof(client->ask.to), "%s", ask.to);
                (void) snprintf(client->ask.reason, sizeof(client->ask.reason), "%s", ask.reason);
        }
        client_forward(client, channel);
}

// From here on it waits for what becomes of the number.
static void client_answered(AskClient *client, const GuestAnswer *answer) {
        GuestAnswer copy = *answer;

        if (answer->number != 0 && client->ask.header.flags == 0) {
                GuestHeader header = client->ask.header;
                header.flags = answer->number;
                client->ask = (GuestAsk) {.header = header};
        }
        client_say(client, &copy);
        if (answer->header.value != GUEST_ASK_PENDING && client->fd >= 0)
                client_close(client);
}

void ask_server_answer(AskServer *server, const GuestAnswer *answer) {
        for (size_t i = 0; i < ASK_CLIENTS; i++) {
                AskClient *client = &server->clients[i];
                bool its = answer->header.id[0] ? strncmp(answer->header.id, client->ask.header.id, sizeof(answer->header.id)) == 0
                                                : answer->number != 0 && client->ask.header.flags == answer->number;
                if (client->fd >= 0 && client->asked && its)
                        client_answered(client, answer);
        }
}

// ---- the loop

size_t ask_server_poll(const AskServer *server, struct pollfd *fds, int *ret_timeout) {
        int64_t next = server->look, left;
        size_t n = 0;

        fds[n++] = (struct pollfd) {.fd = server->listener, .events = POLLIN}; // negative: poll() leaves it
        for (size_t i = 0; i < ASK_CLIENTS; i++) {
                fds[n++] = (struct pollfd) {.fd = server->clients[i].fd, .events = POLLIN};
                if (server->clients[i].fd >= 0)
                        next = MIN2(next, server->clients[i].due);
        }
        left = next - now_ms();
        *ret_timeout = (int) MAX2(MIN2(left, (int64_t) LOOK_LAST), (int64_t) 0);
        return n;
}

void ask_server_dispatch(AskServer *server, int channel, const struct pollfd *fds, size_t n) {
        int64_t now = now_ms();

        for (size_t i = 0; i < ASK_CLIENTS && i + 1 < n; i++) {
                AskClient *client = &server->clients[i];
                if (client->fd >= 0 && fds[i + 1].fd == client->fd && fds[i + 1].revents)
                        client_read(client, channel);
                if (client->fd >= 0 && client->due <= now && !client->asked)
                        client_close(client);
                else if (client->fd >= 0 && client->due <= now)
                        client_forward(client, channel);
        }
        if (n > 0 && fds[0].revents && server->listener >= 0)
                client_accept(server);
        if (server->look <= now)
                look_begin(server);
}
