// SPDX-License-Identifier: GPL-2.0-or-later
// Evidence: opening, binding and sizing of the sockets. What does not fit into a buffer is lost and counted by the reader: nothing
// that forwards packets ever waits for one.
#include "flow/evidence.h"

#include <netinet/in.h>

#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <libmnl/libmnl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"

#define COPY_BYTES 160           // of a packet: all headers that the reader looks at
#define KERNEL_BUFFER 16384      // several packets in one message
#define KERNEL_PACKETS 32        // so many,
#define KERNEL_DELAY 10          // or what came within this time, in 1/100 s
#define QUEUE_BYTES (8 << 20)    // used only while the reader is late

typedef struct Question {
        struct nlmsghdr head;
        struct nfgenmsg family;
        char attributes[128];
} Question;

static int evidence_socket(int *ret) {
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);
        struct sockaddr_nl self = {.nl_family = AF_NETLINK};
        int size = QUEUE_BYTES;

        if (fd < 0 || bind(fd, (struct sockaddr *) &self, sizeof(self)) < 0)
                return -errno;
        if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0)
                (void) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)); // smaller, and more is lost: counted all the same
        *ret = TAKE_FD(fd);
        return 0;
}

static struct nlmsghdr *question(Question *q, uint16_t type, uint16_t flags, uint16_t resource) {
        struct nlmsghdr *head = mnl_nlmsg_put_header(q);
        struct nfgenmsg *family;

        head->nlmsg_type = type;
        head->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | flags);
        family = mnl_nlmsg_put_extra_header(head, sizeof(*family));
        family->version = NFNETLINK_V0;
        family->res_id = htons(resource);
        return head;
}

static int question_send(int fd, const struct nlmsghdr *head) {
        return send(fd, head, head->nlmsg_len, 0) == (ssize_t) head->nlmsg_len ? 0 : -errno;
}

// The answer is there when send() returns: the kernel works on a question in the context of who asks. A packet of the group that was
// just bound may be in front of it, and is left out.
static int question_acknowledged(int fd, const struct nlmsghdr *head) {
        _Alignas(struct nlmsghdr) char buffer[KERNEL_BUFFER];
        int r = question_send(fd, head);

        while (r == 0) {
                ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
                const struct nlmsghdr *answer = (const struct nlmsghdr *) buffer;
                const struct nlmsgerr *error = mnl_nlmsg_get_payload(answer);
                if (n < 0)
                        return errno == EAGAIN ? -EPROTO : -errno;
                if (mnl_nlmsg_ok(answer, (int) n) && answer->nlmsg_type == NLMSG_ERROR && mnl_nlmsg_get_payload_len(answer) >= sizeof(error->error))
                        return error->error;
        }
        return r;
}

static int log_configure(int fd) {
        const uint16_t type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG;
        struct nfulnl_msg_config_cmd bind_command = {.command = NFULNL_CFG_CMD_BIND};
        struct nfulnl_msg_config_mode mode = {.copy_mode = NFULNL_COPY_PACKET, .copy_range = htonl(COPY_BYTES)};
        uint16_t flags = htons(NFULNL_CFG_F_SEQ);
        Question q = {0};
        struct nlmsghdr *head = question(&q, type, NLM_F_ACK, EVIDENCE_LOG_GROUP);
        int r;

        mnl_attr_put(head, NFULA_CFG_CMD, sizeof(bind_command), &bind_command);
        r = question_acknowledged(fd, head);
        if (r < 0)
                return r == -EEXIST || r == -EPERM ? -EBUSY : r;
        q = (Question) {0};
        head = question(&q, type, NLM_F_ACK, EVIDENCE_LOG_GROUP);
        mnl_attr_put(head, NFULA_CFG_MODE, sizeof(mode), &mode);
        mnl_attr_put_u32(head, NFULA_CFG_NLBUFSIZ, htonl(KERNEL_BUFFER));
        mnl_attr_put_u32(head, NFULA_CFG_QTHRESH, htonl(KERNEL_PACKETS));
        mnl_attr_put_u32(head, NFULA_CFG_TIMEOUT, htonl(KERNEL_DELAY));
        mnl_attr_put(head, NFULA_CFG_FLAGS, sizeof(flags), &flags);
        return question_acknowledged(fd, head);
}

int evidence_open_packets(int *ret) {
        _cleanup_close_ int fd = -EBADF;
        int r = evidence_socket(&fd);

        if (r == 0)
                r = log_configure(fd);
        if (r == 0)
                *ret = TAKE_FD(fd);
        return r;
}

int evidence_open_ends(int *ret) {
        _cleanup_close_ int fd = -EBADF;
        int group = NFNLGRP_CONNTRACK_DESTROY, r = evidence_socket(&fd);

        if (r < 0)
                return r;
        if (setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
                return -errno;
        *ret = TAKE_FD(fd);
        return 0;
}

int evidence_open_dump(int *ret) {
        return evidence_socket(ret);
}

int evidence_dump(int fd) {
        Question q = {0};
        struct nlmsghdr *head = question(&q, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET, NLM_F_DUMP, 0);

        return question_send(fd, head);
}
