// SPDX-License-Identifier: GPL-2.0-or-later
// Server: the listening socket and who may join. Connections are in connection.c, calls in call.c.
#include "wire/server.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "wire/connection.h"

#define SERVER_PER_UID 256
#define SERVER_PER_STRANGER 8 // a uid without access

static int server_address(const char *path, struct sockaddr_un *ret, Error *err) {
        if (strlen(path) >= sizeof(ret->sun_path))
                return error_set_field(err, "socket", "the socket path %s is longer than %zu bytes", path,
                                       sizeof(ret->sun_path) - 1);
        *ret = (struct sockaddr_un) {.sun_family = AF_UNIX};
        memcpy(ret->sun_path, path, strlen(path) + 1);
        return 0;
}

// A socket that somebody listens on is not ours to replace.
static int server_remove_stale(const char *path, const struct sockaddr_un *address, Error *err) {
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        if (lstat(path, &st) < 0)
                return errno == ENOENT ? 0 : error_set_errno(err, errno, "cannot look at %s", path);
        if (!S_ISSOCK(st.st_mode))
                return error_set(err, ERR_EXISTS, "%s exists and is not a socket", path);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return error_set_errno(err, errno, "cannot make a socket");
        if (connect(fd, (const struct sockaddr *) address, sizeof(*address)) == 0 || errno == EAGAIN)
                return error_set(err, ERR_BUSY, "another hostd answers on %s", path);
        return unlink(path) < 0 && errno != ENOENT ? error_set_errno(err, errno, "cannot remove %s", path) : 0;
}

int server_listen(const char *path, Error *err) {
        _cleanup_close_ int fd = -EBADF;
        struct sockaddr_un address;
        int r = server_address(path, &address, err);

        if (r < 0)
                return r;
        r = server_remove_stale(path, &address, err);
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return error_set_errno(err, errno, "cannot make a socket");
        if (bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return error_set_errno(err, errno, "cannot bind %s", path);
        // After bind and before listen: nobody can connect with other permissions than these.
        if (chmod(path, 0666) < 0 || listen(fd, 128) < 0)
                return error_set_errno(err, errno, "cannot listen on %s", path);
        return TAKE_FD(fd);
}

static unsigned server_count(const Server *server, uid_t uid) {
        unsigned n = 0;

        for (const Connection *c = server->connections; c; c = c->next)
                n += c->peer.uid == uid;
        return n;
}

static void server_refuse(int fd, const Peer *peer) {
        static const char format[] = "{\"error\":\"io.hostd.Busy\",\"parameters\":{\"message\":\"uid %u has too many "
                                     "connections to hostd open; close some and try again\"}}";
        char text[256];
        int n = snprintf(text, sizeof(text), format, (unsigned) peer->uid);

        (void) send(fd, text, (size_t) n + 1, MSG_DONTWAIT | MSG_NOSIGNAL); // best effort: it is closed in any case
}

int server_add(Server *server, int fd, const Peer *peer, Error *err) {
        _cleanup_close_ int owned = fd;
        Connection *connection;
        Peer asked;
        int r;

        if (!peer) {
                r = peer_from_socket(&server->groups, fd, &asked);
                if (r < 0)
                        return error_set_errno(err, r, "cannot tell who connected");
                peer = &asked;
        }
        if (server_count(server, peer->uid) >=
            (peer->access == ACCESS_NONE ? MIN2(SERVER_PER_STRANGER, server->max_per_uid) : server->max_per_uid)) {
                server_refuse(fd, peer);
                return error_set(err, ERR_BUSY, "uid %u has too many connections", (unsigned) peer->uid);
        }
        r = connection_new(server, TAKE_FD(owned), peer, &connection);
        return r < 0 ? error_set_errno(err, r, "cannot take a connection") : 0;
}

// Out of descriptors: without this the socket would stay readable and the loop would spin. The spare one lets us accept and
// close, so that the client learns it now.
static void server_shed(Server *server) {
        server->spare_fd = close_fd(server->spare_fd);
        (void) close_fd(accept4(server->fd, NULL, NULL, SOCK_CLOEXEC));
        server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int server_on_accept(sd_event_source *source, int listen_fd, uint32_t revents, void *userdata) {
        Server *server = userdata;
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0)
                (void) server_add(server, fd, NULL, NULL); // the client was told
        else if (errno == EMFILE || errno == ENFILE)
                server_shed(server);
        return 0; // other failures concern that one client, who is gone
}

int server_new(sd_event *event, int listen_fd, ServerHandler handler, void *userdata, Server **ret, Error *err) {
        _cleanup_(server_freep) Server *server = calloc(1, sizeof(*server));
        int r;

        if (!server) {
                (void) close_fd(listen_fd);
                return error_set_errno(err, ENOMEM, "cannot start the server");
        }
        server->event = sd_event_ref(event);
        server->fd = listen_fd;
        server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        server->handler = handler;
        server->userdata = userdata;
        server->max_per_uid = SERVER_PER_UID;
        peer_groups_load(&server->groups);
        // Without a listening socket (tests) connections come by server_add() only.
        if (listen_fd >= 0) {
                r = sd_event_add_io(event, &server->listen, listen_fd, EPOLLIN, server_on_accept, server);
                if (r < 0)
                        return error_set_errno(err, r, "cannot watch the socket");
        }
        *ret = TAKE_PTR(server);
        return 0;
}

void server_set_connections_max(Server *server, unsigned per_uid) {
        server->max_per_uid = per_uid;
}

void server_set_description(Server *server, const ServerDescription *description) {
        server->description = description;
}

Server *server_free(Server *server) {
        if (!server)
                return NULL;
        while (server->connections)
                connection_free(server->connections);
        while (server->calls) // answered by nobody any more
                call_free(server->calls);
        sd_event_source_disable_unref(server->listen);
        sd_event_unref(server->event);
        (void) close_fd(server->fd);
        (void) close_fd(server->spare_fd);
        free(server);
        return NULL;
}
