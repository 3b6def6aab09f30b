// SPDX-License-Identifier: GPL-2.0-or-later
// Link: veths, their addresses, routes and neighbours, and the ip rules that keep forwarding closed without the firewall.
#pragma once

#include <stdbool.h>

#include "base/strv.h"
#include "network/network_sandbox.h"

bool link_exists(const char *ifname);
// Names of interfaces that begin with `prefix`.
int link_list(const char *prefix, char ***ret);
// Both ends down, with their MAC addresses; the guest's end in the namespace `netns`.
int link_create_veth(const NetworkAddress *address, int netns, Error *err);
// The same of a sandbox: without ARP and neighbour discovery.
int link_create_sandbox(const NetworkAddress *address, int netns, Error *err);
int link_delete(const char *ifname);
int link_delete_index(unsigned index); // absent is success
// Sysctls, gateway addresses, up, host routes, fixed neighbours; all can be there already.
int link_configure_veth(const NetworkAddress *address, Error *err);
int link_configure_sandbox(const NetworkAddress *address, Error *err);

// The rules of all slots, by the pools; rules of other pools at our preferences go.
int link_add_base_rules(const NetworkSettings *settings, Error *err);
int link_add_slot_rules(const char *ifname, Error *err);
int link_add_sandbox_rules(const char *ifname, uint16_t sandbox, Error *err); // of a name that has none: added once more they would be there twice
int link_delete_slot_rules(const char *ifname); // all of this name, however many
int link_delete_sandbox_rules(const char *ifname, uint16_t sandbox); // the one of each family, without a look at the others
int link_delete_all_rules(void);
// Interfaces that our blackhole rules name; each once per family.
int link_list_rules(char ***ret);
bool link_base_rules_present(const NetworkSettings *settings);
