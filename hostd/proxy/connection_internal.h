// SPDX-License-Identifier: GPL-2.0-or-later
// Connection, as its three files know it: connection.c (beginning, reading, end), connection_route.c (where to), connection_relay.c.
#pragma once

#include "proxy/clienthello.h"
#include "proxy/connection.h"
#include "proxy/dial.h"
#include "proxy/http_head.h"
#include "proxy/proxy.h"
#include "proxy/relay.h"
#include "proxy/route.h"

#define READ_TIMEOUT (10 * USEC_PER_SEC)
#define RESOLVE_LIMIT (12 * USEC_PER_SEC)
#define LINGER_TIMEOUT (2 * USEC_PER_SEC)
#define HALF_CLOSED_TIMEOUT (600 * USEC_PER_SEC)
#define SECOND_REQUEST_TIMEOUT (5 * USEC_PER_SEC)

typedef enum ConnectionState { CONNECTION_READING, CONNECTION_RESOLVING, CONNECTION_DIALING, CONNECTION_RELAYING, CONNECTION_LINGERING } ConnectionState;

typedef struct Found { // what the resolver said of one family
        uint64_t cookie; // 0: nothing is asked
        int error;
        ProxyAddress addresses[DIAL_ADDRESSES_MAX];
        size_t n;
} Found;

struct Connection {
        Slot *slot;
        Connection *next, *previous;
        FlowKind kind;
        ConnectionState state;
        int client, server;
        sd_event_source *client_io, *server_io, *timer, *more;

        ProxyAddress from, wanted; // wanted.family 0: the client named no address
        char *data;                // what the client said, as far as it was not passed on
        size_t size, room;
        ClientHello hello;
        HttpHead head;
        const char *said; // why there is no name, for people; NULL: there is one
        Host host;        // kind HOST_NAME: the name that decides
        uint16_t port;
        char *path;      // of a plain request
        bool in_tunnel;  // CONNECT was answered, and the TLS in it is read
        bool request;    // what is relayed is one plain HTTP request

        Found found[2]; // IPv4, IPv6
        Dial *dial;
        ProxyAddress target; // that a rule admitted; family 0: not yet
        bool by_name, intercepted, names_denied;
        uint16_t rule;
        char policy[64];
        Meter *meters[2]; // of the rule, and of the one around that allowed it too, where it is another

        Relay relay;
        size_t header; // bytes of the relay that are not the client's
        usec_t begun, idle_since;
        int64_t realtime;
};

typedef struct Refusal {
        FlowVerdict verdict;
        unsigned status; // of HTTP
        unsigned alert;  // of TLS; 0: the connection is reset
        const char *reason;
} Refusal;
#define ALERT_ACCESS_DENIED 49
#define ALERT_INTERNAL_ERROR 80
#define ALERT_UNRECOGNIZED_NAME 112

// ---- connection.c
// All of these may free the connection: nothing is to be done with it afterwards.
void connection_refuse(Connection *c, const Refusal *refusal);
void connection_end(Connection *c, FlowVerdict verdict, uint8_t flags, const char *reason); // a reason other than "" resets both ends
void connection_read_tunnel(Connection *c);
bool connection_is_http(const Connection *c); // that it understands an answer of HTTP now
int connection_set_timer(Connection *c, usec_t from_now);

// ---- connection_route.c
void connection_route(Connection *c); // it is known what the client wants
void connection_resolve_timeout(Connection *c);
void connection_stop_asking(Connection *c); // the resolver's answers are not wanted any more
bool connection_still_allowed(Connection *c, char *reason, size_t size);

// ---- connection_relay.c
void connection_relay(Connection *c); // client and server are there, `data` goes first
void connection_pump(Connection *c);
