// SPDX-License-Identifier: GPL-2.0-or-later
// Address: a slot's names and addresses, by arithmetic alone. Nothing has to be remembered and nothing can collide.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "network/network_sandbox.h"
#include "network/ruleset.h"

void network_address(const NetworkSettings *settings, uint16_t slot, NetworkAddress *ret) {
        NetworkAddress address = {
                // 02: locally administered, unicast. The host's end differs in the third byte.
                .mac = {0x02, 0x00, 0x00, 0x00, (unsigned char) (slot >> 8), (unsigned char) slot},
                .host_mac = {0x02, 0x00, 0x01, 0x00, (unsigned char) (slot >> 8), (unsigned char) slot},
                .ipv4.s_addr = htonl(ntohl(settings->ipv4_pool.s_addr) + slot),
                .ipv6 = settings->ipv6_pool,
        };

        address.ipv6.s6_addr[14] |= (unsigned char) (slot >> 8);
        address.ipv6.s6_addr[15] |= (unsigned char) slot;
        (void) snprintf(address.host_ifname, sizeof(address.host_ifname), HOST_PREFIX "%04x", slot);
        *ret = address;
}

// Both ends have one MAC: the wire has no ARP and no neighbour discovery, and who does not ask takes his own for the other's.
void network_sandbox_address(const NetworkSettings *settings, uint16_t sandbox, uint16_t profile, NetworkAddress *ret) {
        network_address(settings, sandbox, ret);
        memcpy(ret->host_mac, ret->mac, sizeof(ret->mac));
        (void) snprintf(ret->host_ifname, sizeof(ret->host_ifname), SANDBOX_PREFIX "%04x" SANDBOX_MIDDLE "%04x", profile, sandbox);
}

bool network_sandbox_parse(const char *ifname, uint16_t *ret_profile, uint16_t *ret_sandbox) {
        unsigned profile, sandbox;
        char again[24];

        if (sscanf(ifname, SANDBOX_PREFIX "%4x" SANDBOX_MIDDLE "%4x", &profile, &sandbox) != 2 || !network_is_profile((uint16_t) profile) ||
            !network_is_sandbox((uint16_t) sandbox))
                return false;
        (void) snprintf(again, sizeof(again), SANDBOX_PREFIX "%04x" SANDBOX_MIDDLE "%04x", profile, sandbox);
        *ret_profile = (uint16_t) profile;
        *ret_sandbox = (uint16_t) sandbox;
        return strcmp(again, ifname) == 0;
}
