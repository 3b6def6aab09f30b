// SPDX-License-Identifier: GPL-2.0-or-later
// Watch: the kernel announces each change of each table, and behind the changes of one transaction the process that made it.
//
// Changes to a table named hostd are remembered until that last message; if the process is not this one, our table was touched.
// Our own pid is asked from the kernel: in a pid namespace getpid() is another number, and each own change would look foreign.
#include "network/watch.h"

#include <arpa/inet.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdint.h>
#include <string.h>

#include "network/netlink.h"
#include "network/nft.h"

struct Watch {
        struct mnl_socket *socket;
        uint32_t pid;
        bool touched; // by the transaction whose end was not read yet
        bool lost, overflow;
        bool spent;
};

int watch_new(Watch **ret) {
        _cleanup_(watch_freep) Watch *watch = calloc(1, sizeof(Watch));
        int group = NFNLGRP_NFTABLES, size = 64 * 1024 * 1024, r;

        if (!watch)
                return -ENOMEM;
        r = nft_own_pid(&watch->pid);
        if (r < 0)
                return r;
        watch->socket = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (!watch->socket || mnl_socket_bind(watch->socket, 0, MNL_SOCKET_AUTOPID) < 0 ||
            mnl_socket_setsockopt(watch->socket, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
                return -errno;
        // A large ruleset that is flushed or restored is a burst of some megabytes, and memory is used only as long as that lasts. What
        // does not fit is reported as lost, so that a refusal here is harmless.
        (void) setsockopt(watch_fd(watch), SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
        *ret = TAKE_PTR(watch);
        return 0;
}

Watch *watch_free(Watch *watch) {
        if (!watch)
                return NULL;
        if (watch->socket)
                (void) mnl_socket_close(watch->socket);
        free(watch);
        return NULL;
}

int watch_fd(const Watch *watch) {
        return mnl_socket_get_fd(watch->socket);
}

static void watch_generation(Watch *watch, const struct nlmsghdr *message) {
        struct nlattr *attr;

        mnl_attr_for_each(attr, message, sizeof(struct nfgenmsg))
                if (mnl_attr_get_type(attr) == NFTA_GEN_PROC_PID && ntohl(mnl_attr_get_u32(attr)) != watch->pid)
                        watch->lost = watch->lost || watch->touched;
        watch->touched = false;
}

// Every kind of message about tables, chains, rules, sets, elements and objects has the table's name as attribute 1.
static int watch_message(const struct nlmsghdr *message, void *userdata) {
        Watch *watch = userdata;
        struct nlattr *attr;

        if (NFNL_MSG_TYPE(message->nlmsg_type) == NFT_MSG_NEWGEN) {
                watch_generation(watch, message);
                return MNL_CB_OK;
        }
        if (message->nlmsg_pid == 0) { // nobody's change: the kernel tells that a quota is used up
                watch->spent = watch->spent || NFNL_MSG_TYPE(message->nlmsg_type) == NFT_MSG_NEWOBJ;
                return MNL_CB_OK;
        }
        mnl_attr_for_each(attr, message, sizeof(struct nfgenmsg))
                if (mnl_attr_get_type(attr) == NFTA_TABLE_NAME && mnl_attr_validate(attr, MNL_TYPE_NUL_STRING) >= 0 &&
                    strcmp(mnl_attr_get_str(attr), "hostd") == 0)
                        watch->touched = true;
        return MNL_CB_OK;
}

static int watch_read(Watch *watch) {
        _cleanup_free_ char *buffer = malloc(NETLINK_BUFFER);

        if (!buffer)
                return -ENOMEM;
        for (;;) {
                ssize_t n = mnl_socket_recvfrom(watch->socket, buffer, NETLINK_BUFFER);
                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0 && (errno == ENOBUFS || errno == ENOSPC)) // notices were lost or too long
                        watch->overflow = true;
                else if (n < 0)
                        return -errno;
                else if (mnl_cb_run(buffer, (size_t) n, 0, 0, watch_message, watch) < 0)
                        watch->lost = true;
        }
        return 0;
}

int watch_dispatch(Watch *watch, bool *ret_lost) {
        int r = watch_read(watch);

        if (r < 0)
                return r;
        *ret_lost = watch->lost || watch->overflow;
        watch->lost = watch->overflow = false;
        return 0;
}

bool watch_is_spent(Watch *watch) {
        bool spent = watch->spent;

        watch->spent = false;
        return spent;
}

bool watch_settle(Watch *watch) {
        bool lost = watch_read(watch) < 0 || watch->lost;

        watch->lost = watch->overflow = false;
        return lost;
}
