// SPDX-License-Identifier: GPL-2.0-or-later
// Netlink: one request and its answers, on a socket that nobody else reads meanwhile, so that no answer can be taken for another's.
#pragma once

#include <libmnl/libmnl.h>

#define NETLINK_BUFFER 32768

// Sends and reads until the acknowledgement or the end of the dump. `fn` (may be NULL) sees each data message; a negative
// return of it ends the reading and is returned. 0 or -errno.
typedef int (*NetlinkHandler)(const struct nlmsghdr *message, void *userdata);
int netlink_talk(int bus, struct nlmsghdr *request, NetlinkHandler fn, void *userdata);

// A NETLINK_ROUTE socket that belongs to the network namespace `netns`. The caller closes it with netlink_closep().
int netlink_open_in(int netns, struct mnl_socket **ret);
int netlink_talk_on(struct mnl_socket *socket, struct nlmsghdr *request, NetlinkHandler fn, void *userdata);
void netlink_closep(struct mnl_socket **socket);
