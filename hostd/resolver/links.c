// SPDX-License-Identifier: GPL-2.0-or-later
// Links: the kernel's notices of devices. A wire is made anew with each start of its instance, under the same name.
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include "resolver/resolver.h"

typedef struct LinkMessage { int ifindex; const char *name; } LinkMessage;

int links_open(void) {
        struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

        if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        return TAKE_FD(fd);
}

static bool message_read(struct nlmsghdr *header, LinkMessage *ret) {
        struct ifinfomsg *info = NLMSG_DATA(header);
        struct rtattr *attr = IFLA_RTA(info);
        int left = (int) header->nlmsg_len - (int) NLMSG_LENGTH(sizeof(*info));

        // Of another family: a port leaves its bridge, say, and the device stays.
        if ((header->nlmsg_type != RTM_NEWLINK && header->nlmsg_type != RTM_DELLINK) || left < 0 || info->ifi_family != AF_UNSPEC)
                return false;
        *ret = (LinkMessage) {.ifindex = header->nlmsg_type == RTM_NEWLINK ? info->ifi_index : 0};
        for (; RTA_OK(attr, left); attr = RTA_NEXT(attr, left))
                if (attr->rta_type == IFLA_IFNAME)
                        ret->name = RTA_DATA(attr);
        return ret->name;
}

static int links_on_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        static char data[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
        Resolver *resolver = userdata;

        for (;;) {
                struct sockaddr_nl from;
                socklen_t from_size = sizeof(from);
                ssize_t n = recvfrom(fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *) &from, &from_size);
                int left = (int) n;
                LinkMessage message;
                if (n < 0 && errno == ENOBUFS) { // notices were lost
                        slots_resync(resolver);
                        continue;
                }
                if (n < 0)
                        return 0;
                if (from.nl_pid != 0) // not the kernel
                        continue;
                for (struct nlmsghdr *h = (struct nlmsghdr *) data; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
                        if (message_read(h, &message))
                                slot_link(resolver, message.name, message.ifindex);
        }
}

int links_watch(Resolver *resolver, int fd) {
        int r = sd_event_add_io(resolver->event, NULL, fd, EPOLLIN, links_on_io, resolver);

        return r < 0 ? r : 0;
}
