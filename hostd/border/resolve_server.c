// SPDX-License-Identifier: GPL-2.0-or-later
// ResolveServer: the resolver's end of its socket. See resolve.h.
#include <string.h>
#include <sys/socket.h>

#include "border/resolve.h"

#define CONNECTIONS_MAX 4 // one proxy, and its successors while the resolver has not read the older ones' ends
#define QUESTIONS_AT_ONCE 64

typedef struct ResolvePeer {
        ResolveServer *server;
        uint64_t id; // 0: nobody
        int fd;
        sd_event_source *io;
} ResolvePeer;

struct ResolveServer {
        sd_event *event;
        int fd;
        sd_event_source *io;
        ResolveAsked asked;
        void *userdata;
        uint64_t next_id;
        ResolvePeer peers[CONNECTIONS_MAX];
};

static void peer_close(ResolvePeer *peer) {
        peer->io = sd_event_source_disable_unref(peer->io);
        if (peer->id)
                peer->fd = close_fd(peer->fd);
        peer->id = 0;
}

static int peer_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        ResolvePeer *peer = userdata;
        uint64_t id = peer->id;

        for (int i = 0; i < QUESTIONS_AT_ONCE && peer->id == id; i++) {
                ResolveQuestion question;
                ssize_t n = recv(fd, &question, sizeof(question), MSG_DONTWAIT | MSG_TRUNC);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return 0;
                if (n <= 0 || !resolve_question_valid(&question, (size_t) n)) {
                        peer_close(peer);
                        return 0;
                }
                peer->server->asked(peer->server, id, &question, peer->server->userdata);
        }
        return 0;
}

// The oldest goes where there is no place.
static ResolvePeer *peer_place(ResolveServer *server) {
        ResolvePeer *oldest = server->peers;

        for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
                if (server->peers[i].id == 0)
                        return server->peers + i;
                if (server->peers[i].id < oldest->id)
                        oldest = server->peers + i;
        }
        peer_close(oldest);
        return oldest;
}

static int server_accept(sd_event_source *source, int listening, uint32_t events, void *userdata) {
        ResolveServer *server = userdata;
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        ResolvePeer *peer;

        if (fd < 0)
                return 0;
        peer = peer_place(server);
        if (sd_event_add_io(server->event, &peer->io, fd, EPOLLIN, peer_io, peer) < 0) {
                (void) close_fd(fd);
                return 0;
        }
        peer->server = server;
        peer->fd = fd;
        peer->id = ++server->next_id;
        return 0;
}

int resolve_server_answer(ResolveServer *server, uint64_t connection, const ResolveAnswer *answer) {
        if (!resolve_answer_valid(answer, sizeof(*answer)))
                return -EINVAL;
        for (size_t i = 0; i < CONNECTIONS_MAX; i++)
                if (connection && server->peers[i].id == connection)
                        return send(server->peers[i].fd, answer, sizeof(*answer), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
        return -ENOTCONN;
}

int resolve_server_new(sd_event *event, int listen_fd, ResolveAsked asked, void *userdata, ResolveServer **ret) {
        _cleanup_(resolve_server_freep) ResolveServer *server = calloc(1, sizeof(ResolveServer));
        int r;

        if (!server) {
                (void) close_fd(listen_fd);
                return -ENOMEM;
        }
        server->event = event;
        server->fd = listen_fd;
        server->asked = asked;
        server->userdata = userdata;
        r = sd_event_add_io(event, &server->io, listen_fd, EPOLLIN, server_accept, server);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(server);
        return 0;
}

ResolveServer *resolve_server_free(ResolveServer *server) {
        if (!server)
                return NULL;
        for (size_t i = 0; i < CONNECTIONS_MAX; i++)
                peer_close(server->peers + i);
        sd_event_source_disable_unref(server->io);
        (void) close_fd(server->fd);
        free(server);
        return NULL;
}
