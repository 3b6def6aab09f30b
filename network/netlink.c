// SPDX-License-Identifier: GPL-2.0-or-later
// Netlink: the exchange itself. Only the kernel (port 0) is listened to.
#include "network/netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <time.h>

#include "base/cleanup.h"

static void socket_closep(struct mnl_socket **socket) {
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

int netlink_talk(int bus, struct nlmsghdr *request, NetlinkHandler fn, void *userdata) {
        _cleanup_(socket_closep) struct mnl_socket *socket = mnl_socket_open2(bus, SOCK_CLOEXEC);
        Exchange exchange = {.fn = fn, .userdata = userdata};
        _cleanup_free_ char *buffer = malloc(NETLINK_BUFFER);
        unsigned port;
        int r;

        if (!buffer)
                return -ENOMEM;
        if (!socket || mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0)
                return -errno;
        port = mnl_socket_get_portid(socket);
        request->nlmsg_seq = (uint32_t) time(NULL);
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
