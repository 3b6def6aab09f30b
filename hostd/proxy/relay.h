// SPDX-License-Identifier: GPL-2.0-or-later
// Relay: bytes between two sockets, both ways, by splice(2): they never come into this process, except where the end of a request's
// body must be found. One end's close is passed on to the other as a half close.
//
// Written for edge-triggered events: relay_pump() goes on until neither socket has or takes any more, or until what it may move is moved.
#pragma once

#include <errno.h>

#include "proxy/http_body.h"
#include "proxy/pipes.h"

typedef enum RelayGate {
        GATE_OPEN,
        GATE_BODY,    // only what belongs to the body of one request
        GATE_UPGRADE, // nothing until the other side has said that it changes the protocol
        GATE_SHUT,    // nothing any more
} RelayGate;

typedef struct RelayFlow {
        int from, to; // borrowed
        RelayGate gate;
        HttpBody body;
        char *pending;               // owned; goes first
        size_t pending_size, pending_sent;
        int pipe[2];
        size_t in_pipe;
        bool ended, shut; // `from` has said all; `to` knows
        uint64_t bytes;   // that `to` took
} RelayFlow;

typedef struct Relay {
        RelayFlow up, down; // from the client to the server, and back
} Relay;
#define RELAY_NULL ((Relay) {.up = {.from = -EBADF, .to = -EBADF, .pipe = {-EBADF, -EBADF}}, .down = {.from = -EBADF, .to = -EBADF, .pipe = {-EBADF, -EBADF}}})

void relay_begin(Relay *relay, int client, int server);
// Copies; what is there already goes before it.
int relay_flow_put(RelayFlow *flow, const void *data, size_t size);
// Bytes of the client that came behind a request's head: those of its body go on, all others are dropped.
int relay_put_body(Relay *relay, const char *data, size_t size);

typedef enum RelayState { RELAY_WAITS, RELAY_HAS_MORE, RELAY_OVER } RelayState;
// Moves at most about `allowance` bytes and says how many it did. Negative: a socket's error, -EBADMSG for a body that is none.
int relay_pump(Relay *relay, Pipes *pipes, size_t allowance, size_t *ret_moved);
bool relay_is_half_closed(const Relay *relay);
void relay_done(Relay *relay, Pipes *pipes);
