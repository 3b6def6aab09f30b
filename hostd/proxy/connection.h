// SPDX-License-Identifier: GPL-2.0-or-later
// Connection: one connection of an instance, from accept(2) to its record. It frees itself when it is over.
//
//   READING     what the client says first: a ClientHello or a request head; once more after CONNECT, of the TLS in the tunnel
//   RESOLVING   the name's addresses, from the resolver
//   DIALING     a server, or the interceptor of the slot
//   RELAYING    for as long as both ends live
//   LINGERING   the refusal is on its way: a close with unread bytes would throw it away
//
// Each but RELAYING has its time.
#pragma once

#include <sys/socket.h>

#include "border/record.h"
#include "proxy/slot.h"

void connection_accept(Slot *slot, FlowKind kind, int client, const struct sockaddr_storage *from); // takes the descriptor
void connections_review(Slot *slot);                    // the slot's rules are other ones: ends what they do not allow any more
void connections_cut(Slot *slot, const char *reason);
