// SPDX-License-Identifier: GPL-2.0-or-later
// Server: a helper's end of the control channel: takes hostd's connection, says HELLO, and hands on its frames.
//
// There is one hostd. A newer connection replaces the older one: hostd was started again and the old one's end is not read yet. Without
// hostd a helper goes on with the views it has; what it would have to ask hostd for fails.
#pragma once

#include "border/link.h"

// The loop of a helper, which SIGTERM and SIGINT end. A pipe that nobody reads any more is an error of write(2), not the helper's end.
int border_event_new(sd_event **ret);

typedef struct ControlServer ControlServer;

typedef struct ControlServerConfig {
        sd_event *event;
        int fd; // listening; from border_listen_fd(BORDER_FD_CONTROL)
        void (*frame)(ControlServer *server, const ControlFrame *frame, void *userdata); // VIEWS, ACK or QUERY
        void (*gone)(ControlServer *server, void *userdata); // may be NULL. What was not answered will not be
        void *userdata;
} ControlServerConfig;

int control_server_new(const ControlServerConfig *config, ControlServer **ret);
ControlServer *control_server_free(ControlServer *server);
DEFINE_CLEANUP(ControlServer, control_server_free)
bool control_server_is_connected(const ControlServer *server);
// -ENOTCONN without hostd.
int control_server_send(ControlServer *server, BorderType type, uint64_t cookie, const void *payload, size_t length);
int control_server_take_fd(ControlServer *server); // of a QUERY, while it is handled; -ENOENT
int control_server_answered(ControlServer *server, uint64_t cookie, int error);
int control_server_applied(ControlServer *server, uint64_t cookie, int error); // error: 0 or a negative errno
