// SPDX-License-Identifier: GPL-2.0-or-later
// Connection: one client of the server. Inside the wire library only; others see server.h.
//
// Calls of a connection are answered one after the other. While one is open, or while answers wait to be read, nothing more is
// read from the client, so that what a client makes us hold is bounded by one frame and its backlog.
// A failure never frees a connection below its caller's feet: it is marked dead and goes at its next turn of the event loop.
#pragma once

#include "wire/server.h"

#define WIRE_BACKLOG_MAX (4 << 20)
#define WIRE_STRANGER_FRAME_MAX 4096 // of peers without any access: enough to be told so

typedef struct Connection Connection;

struct Call {
        Server *server;
        Connection *connection; // NULL once it is gone
        Peer peer;
        json_t *parameters;
        char *method;
        bool more, oneway;
        int fds[WIRE_FDS_MAX];
        void (*closed)(Call *call, void *userdata);
        void *closed_userdata;
        Call *next, *previous; // of the server's calls
};

struct Connection {
        Server *server;
        int fd;
        Peer peer;
        sd_event_source *io, *turn;
        FrameReader reader;
        char *out;
        size_t out_used, out_sent;
        Call *current;
        bool eof, dead;
        Connection *next, *previous; // of the server's connections
};

struct Server {
        sd_event *event;
        sd_event_source *listen;
        int fd, spare_fd;
        ServerHandler handler;
        void *userdata;
        const ServerDescription *description;
        PeerGroups groups;
        unsigned max_per_uid;
        Connection *connections;
        Call *calls;
};

int connection_new(Server *server, int fd, const Peer *peer, Connection **ret);
Connection *connection_free(Connection *connection);
// Queues and sends what can be sent; over the backlog the connection is marked dead.
void connection_send(Connection *connection, const json_t *message);
void connection_call_done(Connection *connection);

Call *call_new(Connection *connection, json_t *message, Frame *frame);
Call *call_free(Call *call);
// An error that has a full name: {"error": name, "parameters": parameters}; steals `parameters`.
void call_error_name(Call *call, const char *name, json_t *parameters);
// The connection is gone: tells the owner or leaves the call to be answered into nothing.
void call_disconnect(Call *call);
// Answers org.varlink.service and unknown methods; false: not ours.
bool service_dispatch(Server *server, Call *call);
