// SPDX-License-Identifier: GPL-2.0-or-later
// Peer: the guest's end of a wire, set up by the host before anything of the guest runs.
#pragma once

#include "network/network.h"

#define PEER_IFNAME "eth0"

// Loopback and eth0 up, the slot's addresses, default routes to the gateways. All can be there already.
int peer_configure(const NetworkAddress *address, int netns, Error *err);
