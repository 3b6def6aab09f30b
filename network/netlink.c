// SPDX-License-Identifier: GPL-2.0-or-later
// Netlink: the exchange itself. Only the kernel (port 0) is listened to.
#include "network/netlink.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"

void netlink_closep(struct mnl_socket **socket) {
        if (*socket)
                (void) mnl_socket_close(*socket);
}

typedef struct Exchange {
        NetlinkHandler fn;
        void *userdata;
        int result;
} Exchange;

static int exchange_data(const struct nlmsghdr *message, void *userdata) {
        Exchange *exchange = userdata;

        if (exchange->fn && exchange->result >= 0)
                exchange->result = exchange->fn(message, exchange->userdata);
        return MNL_CB_OK; // read to the end: a half-read dump would be the next reader's answer
}

// A netfilter socket is kept for the next exchange: when one is closed, the kernel first waits for everything that earlier
// transactions removed (4 to 30 ms). Only a socket whose last answer was read to the end is kept, and only by the process that
// opened it: a forked job must not read its parent's answers.
static struct mnl_socket *kept;
static pid_t kept_by;

static struct mnl_socket *socket_take(int bus) {
        struct mnl_socket *socket = NULL;

        if (bus == NETLINK_NETFILTER && kept && kept_by == getpid())
                return TAKE_PTR(kept);
        socket = mnl_socket_open2(bus, SOCK_CLOEXEC);
        if (socket && mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0) {
                int saved = errno;
                (void) mnl_socket_close(TAKE_PTR(socket));
                errno = saved;
        }
        return socket;
}

static void socket_keep(int bus, struct mnl_socket **socket) {
        if (bus != NETLINK_NETFILTER || kept)
                return;
        kept = TAKE_PTR(*socket);
        kept_by = getpid();
}

int netlink_talk_on(struct mnl_socket *socket, struct nlmsghdr *request, NetlinkHandler fn, void *userdata) {
        static uint32_t sequence;
        Exchange exchange = {.fn = fn, .userdata = userdata};
        _cleanup_free_ char *buffer = malloc(NETLINK_BUFFER);
        unsigned port = mnl_socket_get_portid(socket);
        int r;

        if (!buffer)
                return -ENOMEM;
        request->nlmsg_seq = ++sequence;
        if (mnl_socket_sendto(socket, request, request->nlmsg_len) < 0)
                return -errno;
        do {
                ssize_t n = mnl_socket_recvfrom(socket, buffer, NETLINK_BUFFER);
                if (n < 0)
                        return -errno;
                r = mnl_cb_run(buffer, (size_t) n, request->nlmsg_seq, port, exchange_data, &exchange);
        } while (r > 0);
        if (r < 0)
                return -errno;
        return exchange.result < 0 ? exchange.result : 0;
}

int netlink_talk(int bus, struct nlmsghdr *request, NetlinkHandler fn, void *userdata) {
        _cleanup_(netlink_closep) struct mnl_socket *socket = socket_take(bus);
        int r;

        if (!socket)
                return -errno;
        r = netlink_talk_on(socket, request, fn, userdata);
        if (r >= 0)
                socket_keep(bus, &socket);
        return r;
}

// A socket belongs to the namespace in which it was made. All of hostd is one thread, so nothing else happens in there meanwhile; a
// process that cannot come back would work on the guest's network instead of the host's, and ends.
int netlink_open_in(int netns, struct mnl_socket **ret) {
        _cleanup_close_ int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        struct mnl_socket *socket;
        int saved;

        if (own < 0 || setns(netns, CLONE_NEWNET) < 0)
                return -errno;
        socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
        saved = errno;
        if (setns(own, CLONE_NEWNET) < 0)
                abort();
        if (!socket)
                return -saved;
        if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0) {
                saved = errno;
                (void) mnl_socket_close(socket);
                return -saved;
        }
        *ret = socket;
        return 0;
}
