// SPDX-License-Identifier: GPL-2.0-or-later
// Peer: rtnetlink on a socket of the guest's namespace. Only the kernel answers on it, whoever else is in there.
#include "network/peer.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>

#include "network/netlink.h"
#include "network/ruleset.h"

#define MESSAGE_SIZE 512
#define LOOPBACK_INDEX 1 // of every namespace

static struct nlmsghdr *request_new(char *buffer, unsigned type, unsigned flags) {
        struct nlmsghdr *message = mnl_nlmsg_put_header(buffer);

        message->nlmsg_type = (uint16_t) type;
        message->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | NLM_F_ACK | flags);
        return message;
}

static int read_index(const struct nlmsghdr *message, void *userdata) {
        const struct ifinfomsg *header = mnl_nlmsg_get_payload(message);

        *(unsigned *) userdata = (unsigned) header->ifi_index;
        return 0;
}

static int peer_index(struct mnl_socket *socket, unsigned *ret) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = request_new(buffer, RTM_GETLINK, 0);
        unsigned index = 0;
        int r;

        mnl_nlmsg_put_extra_header(message, sizeof(struct ifinfomsg));
        mnl_attr_put_strz(message, IFLA_IFNAME, PEER_IFNAME);
        r = netlink_talk_on(socket, message, read_index, &index);
        if (r < 0 || index == 0)
                return r < 0 ? r : -ENODEV;
        *ret = index;
        return 0;
}

static int peer_up(struct mnl_socket *socket, unsigned index) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = request_new(buffer, RTM_NEWLINK, 0);
        struct ifinfomsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));

        header->ifi_index = (int) index;
        header->ifi_flags = header->ifi_change = IFF_UP;
        return netlink_talk_on(socket, message, NULL, NULL);
}

static int peer_address(struct mnl_socket *socket, unsigned index, int family, const void *bytes) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = request_new(buffer, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE);
        struct ifaddrmsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
        size_t size = family == AF_INET ? 4 : 16;

        header->ifa_family = (uint8_t) family;
        header->ifa_prefixlen = family == AF_INET ? 32 : 128;
        header->ifa_scope = RT_SCOPE_UNIVERSE;
        header->ifa_flags = family == AF_INET ? 0 : IFA_F_NODAD; // the host alone gives addresses away, and each once
        header->ifa_index = index;
        mnl_attr_put(message, IFA_LOCAL, size, bytes);
        mnl_attr_put(message, IFA_ADDRESS, size, bytes);
        return netlink_talk_on(socket, message, NULL, NULL);
}

// To the gateway itself with `on_link`, which IPv4 needs before it takes a route through it; else the default route.
static int peer_route(struct mnl_socket *socket, unsigned index, int family, bool on_link) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = request_new(buffer, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
        struct rtmsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
        unsigned char gateway[16];
        size_t size = family == AF_INET ? 4 : 16;

        if (inet_pton(family, family == AF_INET ? GATEWAY4 : GATEWAY6, gateway) != 1)
                return -EINVAL;
        header->rtm_family = (uint8_t) family;
        header->rtm_dst_len = on_link ? (unsigned char) (size * 8) : 0;
        header->rtm_table = RT_TABLE_MAIN;
        header->rtm_protocol = RTPROT_BOOT;
        header->rtm_scope = on_link ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
        header->rtm_type = RTN_UNICAST;
        mnl_attr_put(message, on_link ? RTA_DST : RTA_GATEWAY, size, gateway);
        mnl_attr_put_u32(message, RTA_OIF, index);
        return netlink_talk_on(socket, message, NULL, NULL);
}

int peer_configure(const NetworkAddress *address, int netns, Error *err) {
        _cleanup_(netlink_closep) struct mnl_socket *socket = NULL;
        unsigned index = 0;
        int r = netlink_open_in(netns, &socket);

        if (r >= 0)
                r = peer_up(socket, LOOPBACK_INDEX);
        if (r >= 0)
                r = peer_index(socket, &index);
        if (r >= 0)
                r = peer_address(socket, index, AF_INET, &address->ipv4);
        if (r >= 0)
                r = peer_address(socket, index, AF_INET6, &address->ipv6);
        if (r >= 0)
                r = peer_up(socket, index);
        if (r >= 0)
                r = peer_route(socket, index, AF_INET, true);
        if (r >= 0)
                r = peer_route(socket, index, AF_INET, false);
        if (r >= 0)
                r = peer_route(socket, index, AF_INET6, false);
        return r < 0 ? error_set_errno(err, r, "configuring the guest's end of %s", address->host_ifname) : 0;
}

static int peer_local(struct mnl_socket *socket, unsigned index, const struct in6_addr *own) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = request_new(buffer, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
        struct rtmsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));

        header->rtm_family = AF_INET6;
        header->rtm_dst_len = 128;
        header->rtm_table = RT_TABLE_LOCAL;
        header->rtm_protocol = RTPROT_BOOT;
        header->rtm_scope = RT_SCOPE_HOST;
        header->rtm_type = RTN_LOCAL;
        mnl_attr_put(message, RTA_DST, sizeof(*own), own);
        mnl_attr_put_u32(message, RTA_OIF, index);
        return netlink_talk_on(socket, message, NULL, NULL);
}

int peer_settle(const NetworkAddress *address, int netns) {
        _cleanup_(netlink_closep) struct mnl_socket *socket = NULL;
        unsigned index;
        int r = netlink_open_in(netns, &socket);

        if (r >= 0)
                r = peer_index(socket, &index);
        return r < 0 ? r : peer_local(socket, index, &address->ipv6);
}
