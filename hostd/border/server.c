// SPDX-License-Identifier: GPL-2.0-or-later
// Server: see server.h.
#include "border/server.h"

#include <signal.h>
#include <sys/socket.h>

int border_event_new(sd_event **ret) {
        static const int ends[] = {SIGTERM, SIGINT};
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        sigset_t mask;
        int r = sd_event_new(&event);

        (void) signal(SIGPIPE, SIG_IGN);
        (void) sigemptyset(&mask);
        for (size_t i = 0; i < ELEMENTS(ends); i++)
                (void) sigaddset(&mask, ends[i]);
        if (r >= 0 && sigprocmask(SIG_BLOCK, &mask, NULL) < 0)
                r = -errno;
        for (size_t i = 0; r >= 0 && i < ELEMENTS(ends); i++)
                r = sd_event_add_signal(event, NULL, ends[i], NULL, NULL);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(event);
        return 0;
}

struct ControlServer {
        ControlServerConfig config;
        sd_event_source *io;
        ControlLink *link;
};

static void server_frame(ControlLink *link, const ControlFrame *frame, void *userdata) {
        ControlServer *server = userdata;

        server->config.frame(server, frame, server->config.userdata);
}

static void server_gone(ControlLink *link, int r, void *userdata) {
        ControlServer *server = userdata;

        server->link = control_link_free(server->link);
        if (server->config.gone)
                server->config.gone(server, server->config.userdata);
}

// Root, or whoever runs the helper (a test). The socket's mode says the same; this does not depend on who made it.
static bool peer_is_hostd(int fd) {
        struct ucred peer;
        socklen_t size = sizeof(peer);

        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid());
}

static int server_accept(sd_event_source *source, int listening, uint32_t events, void *userdata) {
        ControlServer *server = userdata;
        ControlLinkConfig config = {.event = server->config.event, .side = CONTROL_HELPER, .frame = server_frame, .gone = server_gone, .userdata = server};
        BorderHello hello = {.version = BORDER_PROTOCOL};

        config.fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (config.fd < 0)
                return 0;
        if (!peer_is_hostd(config.fd)) {
                (void) close_fd(config.fd);
                return 0;
        }
        if (server->link)
                server_gone(server->link, -ECONNRESET, server);
        if (control_link_new(&config, &server->link) >= 0)
                (void) control_link_send(server->link, BORDER_HELLO, 0, &hello, sizeof(hello)); // a failure is a broken link, told from the loop
        return 0;
}

int control_server_new(const ControlServerConfig *config, ControlServer **ret) {
        _cleanup_(control_server_freep) ControlServer *server = calloc(1, sizeof(ControlServer));
        int r;

        if (!server)
                return -ENOMEM;
        server->config = *config;
        r = sd_event_add_io(config->event, &server->io, config->fd, EPOLLIN, server_accept, server);
        if (r < 0) {
                server->config.fd = -EBADF; // the caller's still
                return r;
        }
        *ret = TAKE_PTR(server);
        return 0;
}

ControlServer *control_server_free(ControlServer *server) {
        if (!server)
                return NULL;
        sd_event_source_disable_unref(server->io);
        (void) control_link_free(server->link);
        (void) close_fd(server->config.fd);
        free(server);
        return NULL;
}

bool control_server_is_connected(const ControlServer *server) {
        return server->link;
}

int control_server_send(ControlServer *server, BorderType type, uint64_t cookie, const void *payload, size_t length) {
        return server->link ? control_link_send(server->link, type, cookie, payload, length) : -ENOTCONN;
}

int control_server_take_fd(ControlServer *server) {
        return server->link ? control_link_take_fd(server->link) : -ENOENT;
}

int control_server_answered(ControlServer *server, uint64_t cookie, int error) {
        BorderResult result = {.error = error};

        return control_server_send(server, BORDER_ANSWERED, cookie, &result, sizeof(result));
}

int control_server_applied(ControlServer *server, uint64_t cookie, int error) {
        BorderResult result = {.error = error};

        return control_server_send(server, BORDER_APPLIED, cookie, &result, sizeof(result));
}
