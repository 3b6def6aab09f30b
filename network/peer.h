// SPDX-License-Identifier: GPL-2.0-or-later
// Peer: the guest's end of a wire, set up by the host before anything of the guest runs.
#pragma once

#include "network/network.h"

#define PEER_IFNAME "eth0"

// Loopback and eth0 up, the slot's addresses, default routes to the gateways. All can be there already.
int peer_configure(const NetworkAddress *address, int netns, Error *err);
// Of who is to use the wire at once, when the other end has come up, too. What the kernel does in its own time else is done by the end of this:
// eth0 may send (since Linux 6.8, where somebody asks for its state), and the IPv6 address is taken for one's own. A first SYN or its answer
// would be lost, and with it a second.
int peer_settle(const NetworkAddress *address, int netns);
