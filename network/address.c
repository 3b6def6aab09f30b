// SPDX-License-Identifier: GPL-2.0-or-later
// Address: a slot's names and addresses, by arithmetic alone. Nothing has to be remembered and nothing can collide.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "network/network.h"
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
        (void) snprintf(address.host_ifname, sizeof(address.host_ifname), "%s%04x", network_is_sandbox(slot) ? SANDBOX_PREFIX : HOST_PREFIX, slot);
        *ret = address;
}
