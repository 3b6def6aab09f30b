// SPDX-License-Identifier: GPL-2.0-or-later
// Wire: how a build comes to its network. The first process of the jail, in a network namespace that is empty, asks at a socket that hostd
// handed in; the kernel tells hostd which process that is. hostd makes a wire with its border into that namespace, with a policy of
// its own, and answers when all of it is in force. Asked before anything of a package is there.
//
// Once more at the most, when the packages are installed: for the hosts that the template's own package clients named, so that an index among them
// can be asked where it has its downloads (clients.h). They come from programs that may be anything; hostd takes names alone.
#pragma once

#include <stdint.h>

#include "base/error.h"

#define WIRE_HOSTS_MAX 64

typedef struct WireHost {
        char host[254]; // with its NUL
        uint16_t port;
} WireHost;

typedef struct WireQuestion { // one SOCK_SEQPACKET message
        uint32_t n; // 0: the first question
        WireHost hosts[WIRE_HOSTS_MAX];
} WireQuestion;

typedef struct WireAnswer {
        int32_t error; // 0 or a negative errno
        char text[1020];
} WireAnswer;

// Returns when the wire is there.
int wire_ask(int socket, Error *err);
// Returns when these are reached as well. "HOST:PORT" each; what is not is left out.
int wire_ask_for(int socket, char *const *hosts, Error *err);
