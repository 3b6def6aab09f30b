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

#include "wire/frame.h"
#include "wire/peer.h"

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
// A connected socket joins as if it had been accepted from `peer` (NULL: asks the kernel); owned, also on failure.
int server_add(Server *server, int fd, const Peer *peer, Error *err);

// What org.varlink.service tells. Without one, only GetInfo is answered.
typedef struct ServerDescription {
        const char *vendor, *product, *version, *url;
        const char *const *interfaces;             // NULL-terminated, without org.varlink.service
        char *(*describe)(const char *interface);  // Varlink interface text, caller frees; NULL: no such interface
        bool (*has_method)(const char *method);    // calls of others are answered here: org.varlink.service.MethodNotFound
} ServerDescription;
void server_set_description(Server *server, const ServerDescription *description); // borrowed

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
// Called once if the connection closes before the answer; the call is gone afterwards. A call without it, and a oneway call,
// outlives its connection and must still be answered.
void call_set_closed(Call *call, void (*closed)(Call *call, void *userdata), void *userdata);
