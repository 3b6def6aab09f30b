// SPDX-License-Identifier: GPL-2.0-or-later
// Message: the netlink messages of one datagram, one after the other. libmnl's own walk takes a length above 2^31 for a negative one, and
// looks up to three bytes behind a message whose length is odd; the kernel sends neither, and neither is taken here.
#pragma once

#include <linux/netlink.h>
#include <stddef.h>

typedef struct MessageWalk {
        const char *at; // aligned for a struct nlmsghdr
        size_t left;
} MessageWalk;

// NULL: that was the last one that is whole.
static inline const struct nlmsghdr *message_next(MessageWalk *walk) {
        const struct nlmsghdr *message = (const struct nlmsghdr *) walk->at;

        if (walk->left < sizeof(*message) || message->nlmsg_len < sizeof(*message) || message->nlmsg_len > walk->left ||
            message->nlmsg_len % NLMSG_ALIGNTO != 0)
                return NULL;
        walk->at += message->nlmsg_len;
        walk->left -= message->nlmsg_len;
        return message;
}
