// SPDX-License-Identifier: GPL-2.0-or-later
// Network, sandboxes: wires of their own within what their instance may do.
#pragma once

#include "network/network.h"
#include "network/number.h"

// Its interface is named after both, so that all interfaces of a profile have a beginning that no other has: the firewall asks for that.
void network_sandbox_address(const NetworkSettings *settings, uint16_t sandbox, uint16_t profile, NetworkAddress *ret);
bool network_sandbox_parse(const char *ifname, uint16_t *ret_profile, uint16_t *ret_sandbox); // of such a name, "hvs0800x1001", and of nothing else

// Sandboxes. A profile is a slot without a wire, within the one of an instance: what its policy allows is allowed if the instance's allows it
// too, the instance's limits and its switch hold over the sum, and a change of the instance's policy cuts what it does not allow any more.
// network_set_policy() and network_set_border() must follow as for a slot; network_detach() removes it with the wires of its sandboxes,
// and that of an instance all its profiles. Already so is success.
int network_profile_attach(Network *network, uint16_t profile, uint16_t instance, Error *err);
// A wire: its addresses in two sets of the firewall, nothing else. The other end is born in `netns` as eth0. On failure there is none.
int network_sandbox_plug(Network *network, uint16_t sandbox, uint16_t profile, int netns, Error *err);
bool network_sandbox_is_plugged(const Network *network, uint16_t sandbox);
unsigned network_sandbox_interface(const Network *network, uint16_t sandbox); // for network_unplug(); 0: it went, with its namespace perhaps
uint16_t network_sandbox_profile(const Network *network, uint16_t sandbox); // of one that is known, by this hostd or from an earlier one; else 0
// All but its interface, which takes long to remove and can do nothing any more: network_unplug() follows, in a job. Then the number is free.
int network_sandbox_leave(Network *network, uint16_t sandbox, Error *err);
// Whatever of it is there. Quick where the wire is gone already.
int network_sandbox_detach(Network *network, uint16_t sandbox, Error *err);
// Of one that is over, so that the next one with its number meets no connections of it. Looks through all of the host's: in a job.
int network_sandbox_forget(const NetworkSettings *settings, uint16_t sandbox, uint16_t profile, Error *err);
bool network_has_sandboxes(const NetworkSettings *settings); // the pool has addresses for them
