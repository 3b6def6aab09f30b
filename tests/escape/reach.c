// SPDX-License-Identifier: GPL-2.0-or-later
// Attempts to reach what hostd itself holds: its sockets, to hand it a descriptor of ours, and the host's network namespace, to change
// its tables and interfaces.
#include "escape.h"

#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

// --- descriptors

static long send_descriptor(int socket_fd, int fd) {
        char byte = 0;
        struct iovec text = {&byte, 1};
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        return sendmsg(socket_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// NAME: a path, or "@" and the name of a socket without a file.
static long offer(const char *name, int type, int fd) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        size_t length = strnlen(name, sizeof(address.sun_path) - 1);
        socklen_t size = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + length + (name[0] != '@'));

        memcpy(address.sun_path, name, length);
        if (name[0] == '@')
                address.sun_path[0] = 0;
        int s = socket(AF_UNIX, type | SOCK_NONBLOCK, 0);
        long r = connect(s, (struct sockaddr *) &address, size);
        if (r == 0)
                r = send_descriptor(s, fd);
        int code = errno;
        close(s);
        errno = code;
        return r;
}

static void give_to(Doors *doors, const char *name, int fd) {
        static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};

        for (size_t i = 0; i < ELEMENTS(types); i++)
                door(doors, name, offer(name, types[i], fd));
}

// Open to all inside: the guest helper listens there, who lives there too. What is sent must not stay with it.
#define OWN_DOOR "/run/hostd/ask.sock"

// ARG: name of the file whose descriptor is offered: to every socket that has a name in this network namespace, to those of hostd
// and systemd by their usual paths, and to whatever we were given ourselves.
static int give(const char *arg) {
        static const char *const usual[] = {"/run/hostd/hostd.sock", "/run/hostd/build.sock", "/run/systemd/private", "/run/systemd/notify", "@hostd", "@hostd-instance"};
        char path[128], line[512], name[256];
        Doors doors = {-ENOENT};

        snprintf(path, sizeof(path), "%s/%s", scratch_dir(), arg);
        int file = open(path, O_RDWR | O_CREAT, 0600), named = 0;
        if (file < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(usual); i++)
                give_to(&doors, usual[i], file);
        FILE *f = fopen("/proc/net/unix", "r");
        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %255s", name) == 1 && strcmp(name, "Path") != 0) {
                        if (strcmp(name, OWN_DOOR) == 0)
                                say("own-door:%ld", offer(name, SOCK_SEQPACKET, file));
                        else
                                give_to(&doors, name, file);
                        named++;
                }
        if (f)
                fclose(f);
        for (int fd = 0; fd < 16; fd++) {
                snprintf(name, sizeof(name), "fd%d", fd);
                if (fd != file && fcntl(fd, F_GETFD) >= 0)
                        door(&doors, name, send_descriptor(fd, file));
        }
        say("sockets=%d", named);
        sleep(1); // so that whoever has it is seen with it
        return doors.result;
}

// --- the host's network namespace

typedef struct Request {
        union {
                struct nlmsghdr header;
                unsigned char bytes[1024];
        };
} Request;

static void *put(Request *r, const void *data, size_t size) {
        void *at = r->bytes + r->header.nlmsg_len;

        memset(at, 0, NLMSG_ALIGN(size));
        memcpy(at, data, size);
        r->header.nlmsg_len += (uint32_t) NLMSG_ALIGN(size);
        return at;
}

static struct nlattr *put_attr(Request *r, uint16_t type, const void *data, size_t size) {
        struct nlattr a = {.nla_type = type, .nla_len = (uint16_t) (NLA_HDRLEN + size)}, *at = put(r, &a, sizeof(a));

        if (size)
                (void) put(r, data, size);
        return at;
}

// What the kernel answers: 0, or -1 with errno. Each table that it lists goes into the detail.
static long answer(int fd) {
        struct timeval limit = {.tv_sec = 2};
        unsigned char buffer[16384];

        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        for (;;) {
                ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
                if (n < 0)
                        return -1;
                for (struct nlmsghdr *m = (struct nlmsghdr *) buffer; NLMSG_OK(m, n); m = NLMSG_NEXT(m, n)) {
                        if (m->nlmsg_type == NLMSG_ERROR) {
                                errno = -((struct nlmsgerr *) NLMSG_DATA(m))->error;
                                return errno ? -1 : 0;
                        }
                        if (m->nlmsg_type == NLMSG_DONE || m->nlmsg_type == RTM_NEWLINK)
                                return 0;
                        if (m->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE))
                                say("LISTED-%.32s", (char *) NLMSG_DATA(m) + sizeof(struct nfgenmsg) + NLA_HDRLEN);
                }
        }
}

static void nft_begin(Request *r, uint16_t type, uint16_t flags, uint8_t family) {
        struct nfgenmsg g = {.nfgen_family = family, .version = NFNETLINK_V0};

        *r = (Request) {.header = {.nlmsg_len = NLMSG_HDRLEN, .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags}};
        if (type == NFNL_MSG_BATCH_BEGIN || type == NFNL_MSG_BATCH_END)
                g.res_id = __builtin_bswap16(NFNL_SUBSYS_NFTABLES);
        (void) put(r, &g, sizeof(g));
}

// TABLE NULL: all of them.
static long nft_change(uint16_t type, uint16_t flags, const char *table) {
        Request begin, change, end;
        struct iovec parts[3];
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);

        nft_begin(&begin, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC);
        nft_begin(&change, (uint16_t) (NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_ACK | flags, table ? NFPROTO_INET : AF_UNSPEC);
        if (table)
                (void) put_attr(&change, NFTA_TABLE_NAME, table, strlen(table) + 1);
        nft_begin(&end, NFNL_MSG_BATCH_END, 0, AF_UNSPEC);
        parts[0] = (struct iovec) {begin.bytes, begin.header.nlmsg_len};
        parts[1] = (struct iovec) {change.bytes, change.header.nlmsg_len};
        parts[2] = (struct iovec) {end.bytes, end.header.nlmsg_len};
        long r = sendmsg(fd, &message, 0);
        r = r < 0 ? r : answer(fd);
        int code = errno;
        close(fd);
        errno = code;
        return r;
}

static long nft_list(void) {
        Request r;
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);

        nft_begin(&r, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE, NLM_F_DUMP, AF_UNSPEC);
        long n = send(fd, r.bytes, r.header.nlmsg_len, 0);
        n = n < 0 ? n : answer(fd);
        close(fd);
        return n;
}

// Root has tables of its own, and nothing but these: not the host's, by name, by a dump, or by a flush of everything.
static int tables(const char *arg) {
        int r = geteuid() == 0 ? 0 : own_userns(CLONE_NEWNET);
        Doors doors = {-ENOTSUP};

        if (r < 0)
                return r;
        door(&doors, "list", nft_list());
        door(&doors, "delete-hostd", nft_change(NFT_MSG_DELTABLE, 0, arg));
        door(&doors, "take-hostd", nft_change(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, arg)); // ours, by the same name
        door(&doors, "own", nft_change(NFT_MSG_DELTABLE, 0, arg));
        door(&doors, "flush", nft_change(NFT_MSG_DELTABLE, 0, NULL));
        return doors.result;
}

// The other end of our veth is in the host's network namespace, for which ours has a number.
static int target_namespace(const char *arg) {
        Doors doors = {-ENOTSUP};
        int r = geteuid() == 0 ? 0 : own_userns(CLONE_NEWNET), fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

        if (r < 0)
                return r;
        for (int32_t id = 0; id < 4; id++) {
                static const struct {
                        const char *name;
                        uint16_t type, flags;
                } calls[] = {{"look", RTM_GETLINK, 0}, {"create", RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK}, {"delete", RTM_DELLINK, NLM_F_ACK}};
                for (size_t i = 0; i < ELEMENTS(calls); i++) {
                        Request q = {.header = {.nlmsg_len = NLMSG_HDRLEN, .nlmsg_type = calls[i].type, .nlmsg_flags = NLM_F_REQUEST | calls[i].flags}};
                        (void) put(&q, &(struct ifinfomsg) {.ifi_family = AF_UNSPEC, .ifi_index = calls[i].type == RTM_NEWLINK ? 0 : 1}, sizeof(struct ifinfomsg));
                        (void) put_attr(&q, IFLA_TARGET_NETNSID, &id, sizeof(id));
                        if (calls[i].type == RTM_NEWLINK) {
                                (void) put_attr(&q, IFLA_IFNAME, "escape0", sizeof("escape0"));
                                struct nlattr *info = put_attr(&q, IFLA_LINKINFO, NULL, 0);
                                (void) put_attr(&q, IFLA_INFO_KIND, "dummy", sizeof("dummy"));
                                info->nla_len = (uint16_t) (q.bytes + q.header.nlmsg_len - (unsigned char *) info);
                        }
                        long n = send(fd, q.bytes, q.header.nlmsg_len, 0);
                        door(&doors, calls[i].name, n < 0 ? n : answer(fd));
                }
        }
        return doors.result;
}

const Attempt attempts_reach[] = {{"give", give}, {"tables", tables}, {"target-namespace", target_namespace}, {NULL}};
