// SPDX-License-Identifier: GPL-2.0-or-later
// Wire: how a build comes to its network. The first process of the jail, in a network namespace that is empty, asks at a socket that hostd
// handed in; the kernel tells hostd which process that is. hostd makes a wire with its border into that namespace, with a policy of
// its own, and answers when all of it is in force. Asked once, before anything of a package is there.
#pragma once

#include <stdint.h>

#include "base/error.h"

typedef struct WireAnswer { // one SOCK_SEQPACKET message; the question is one byte
        int32_t error; // 0 or a negative errno
        char text[1020];
} WireAnswer;

// Returns when the wire is there; `socket` is closed then.
int wire_ask(int socket, Error *err);
