// SPDX-License-Identifier: GPL-2.0-or-later
// Server: Varlink wire (JSON and NUL) on a unix stream socket, with peer credentials, access levels and descriptors.
//
// Limits: a frame is at most 1 MiB, a call carries at most three descriptors, a uid has at most N connections, and a client that
// does not read is dropped when 4 MiB wait for it. The parser sees only clients that passed the socket's permissions.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/error.h"

#define WIRE_FRAME_MAX (1 << 20)
#define WIRE_FDS_MAX 3

typedef enum Access { ACCESS_NONE, ACCESS_VIEW, ACCESS_OPERATE, ACCESS_ADMIN, _ACCESS_MAX } Access;
const char *access_to_string(Access access);

typedef struct Peer { // filled at accept: SO_PEERCRED, SO_PEERGROUPS
        uid_t uid;
        gid_t gid;
        pid_t pid;
        char user[64]; // name of uid or its number
        Access access; // root and group hostd-admin: admin; hostd: operate; hostd-view: view; others none
} Peer;

typedef struct Server Server;
typedef struct Call Call; // one method call; lives until it is answered or its connection closes

// The handler must end each call by exactly one call_reply() or call_error(), now or later.
typedef void (*ServerHandler)(Call *call, void *userdata);
// listen_fd: from socket activation, or from server_listen(); owned.
int server_new(sd_event *event, int listen_fd, ServerHandler handler, void *userdata, Server **ret, Error *err);
Server *server_free(Server *server);
DEFINE_CLEANUP(Server, server_free)
int server_listen(const char *path, Error *err); // fd; 0666 socket in a 0755 directory (access is decided per call); stale ones replaced
void server_set_connections_max(Server *server, unsigned per_uid);

const char *call_method(const Call *call);
json_t *call_parameters(const Call *call); // borrowed, an object, never NULL
const Peer *call_peer(const Call *call);
bool call_wants_more(const Call *call);
bool call_is_oneway(const Call *call);
int call_take_fd(Call *call, unsigned index); // -EBADF if there is none; ownership passes
// Steals `parameters` (NULL: {}).
void call_reply(Call *call, json_t *parameters);
void call_reply_continues(Call *call, json_t *parameters); // only after call_wants_more()
// io.hostd.<Code> {message, field}; takes nothing over.
void call_error(Call *call, const Error *err, int r);
// Called once if the connection closes before the answer; the call is gone afterwards.
void call_set_closed(Call *call, void (*closed)(Call *call, void *userdata), void *userdata);
void call_set_userdata(Call *call, void *userdata);
void *call_userdata(const Call *call);
