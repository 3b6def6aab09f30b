// SPDX-License-Identifier: GPL-2.0-or-later
// Attempts by sockets: families that no namespace divides, the host's netlink, sockets without a file, the host's own addresses.
#include "escape.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

// Each family can have a module of its own loaded by whoever asks for a socket. Said is which open.
static int families(const char *arg) {
        static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
        static const int usual[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};
        int unusual = 0;

        if (geteuid() != 0) // raw sockets of its own
                (void) own_userns(CLONE_NEWNET);
        for (int family = 0; family < 64; family++) {
                bool open = false, known = false;
                for (size_t i = 0; i < ELEMENTS(types) && !open; i++) {
                        int pair[2], fd = socket(family, types[i], family == AF_PACKET ? htons(ETH_P_ALL) : 0);
                        open = fd >= 0;
                        close(fd);
                        if (!open && socketpair(family, types[i], 0, pair) == 0)
                                open = true;
                }
                // The upper half of the register is not looked at by the kernel.
                if (!open)
                        open = syscall(SYS_socket, 0x7fffffff00000000L | family, SOCK_DGRAM, 0) >= 0;
                for (size_t i = 0; i < ELEMENTS(usual); i++)
                        known = known || usual[i] == family;
                if (open && !known) {
                        say("%d", family);
                        unusual++;
                }
        }
        return unusual ? 0 : -EAFNOSUPPORT;
}

// ARG: port, on which the host listens.
static int vsock(const char *arg) {
        static const unsigned cids[] = {VMADDR_CID_LOCAL, VMADDR_CID_HOST, VMADDR_CID_HYPERVISOR, 3};
        Doors doors = {-ENOTSUP};

        for (size_t i = 0; i < ELEMENTS(cids); i++) {
                struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_port = (unsigned) atoi(arg), .svm_cid = cids[i]};
                struct timeval limit = {.tv_sec = 2};
                int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
                if (fd < 0)
                        return -errno;
                (void) setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &limit, sizeof(limit));
                door(&doors, "connect", connect(fd, (struct sockaddr *) &address, sizeof(address)));
                close(fd);
        }
        return doors.result;
}

// ARG: the name of a socket of the host's that is in no file system.
static int abstract(const char *arg) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        socklen_t size = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + strlen(arg));
        static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
        Doors doors = {-ENOTSUP};

        memcpy(address.sun_path + 1, arg, strlen(arg));
        for (size_t i = 0; i < ELEMENTS(types); i++)
                door(&doors, "connect", connect(socket(AF_UNIX, types[i], 0), (struct sockaddr *) &address, size));
        FILE *f = fopen("/proc/net/unix", "r");
        char line[512];
        while (f && fgets(line, sizeof(line), f))
                if (strstr(line, arg))
                        say("LISTED"), doors.result = 0;
        if (f)
                fclose(f);
        return doors.result;
}

// ARG: port, on which the host listens at all of its addresses.
static int host_port(const char *arg) {
        static const char *const addresses[] = {"127.0.0.1", "169.254.0.1", "0.0.0.0", "127.0.0.53"};
        Doors doors = {-ENOTSUP};

        for (size_t i = 0; i < ELEMENTS(addresses); i++) {
                struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t) atoi(arg))};
                struct timeval limit = {.tv_sec = 2};
                int fd = socket(AF_INET, SOCK_STREAM, 0);
                inet_pton(AF_INET, addresses[i], &address.sin_addr);
                (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
                door(&doors, addresses[i], connect(fd, (struct sockaddr *) &address, sizeof(address)));
                close(fd);
        }
        return doors.result;
}

// Asks the kernel's end for what the host's root alone may do. Where there is none in our network namespace, sending says so.
static long netlink_ask(int fd, uint16_t type) {
        struct {
                struct nlmsghdr header;
                unsigned char body[36];
        } m = {.header = {.nlmsg_len = sizeof(m), .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
               .body = {1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1}};
        struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
        struct timeval limit = {.tv_sec = 2};
        struct {
                struct nlmsghdr header;
                struct nlmsgerr error;
                unsigned char rest[1024];
        } answer;

        if (sendto(fd, &m, sizeof(m), 0, (struct sockaddr *) &kernel, sizeof(kernel)) < 0)
                return -1;
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        if (recv(fd, &answer, sizeof(answer), 0) < 0)
                return 0; // it was taken without a word
        if (answer.header.nlmsg_type != NLMSG_ERROR || answer.error.error == 0)
                return 0;
        errno = -answer.error.error;
        return -1;
}

// Kinds of netlink that belong to the machine: births and deaths of processes, audit, devices, ciphers.
static int netlink(const char *arg) {
        static const struct {
                const char *name;
                int protocol;
                unsigned groups;
                uint16_t type;
        } kinds[] = {{"connector", NETLINK_CONNECTOR, 1, NLMSG_DONE}, {"audit", NETLINK_AUDIT, 1, 1001 /* AUDIT_SET */},
                     {"scsi", NETLINK_SCSITRANSPORT, 1, NLMSG_DONE},  {"selinux", NETLINK_SELINUX, 1, NLMSG_DONE},
                     {"rdma", NETLINK_RDMA, 1, 5 << 10 | 4 /* RDMA_NLDEV_CMD_DELLINK */}, {"crypto", NETLINK_CRYPTO, 0, 0x14 /* CRYPTO_MSG_DELRNG */},
                     {"iscsi", NETLINK_ISCSI, 0, 10}, {"ecryptfs", NETLINK_ECRYPTFS, 0, NLMSG_DONE}};
        Doors doors = {-ENOTSUP};

        for (size_t i = 0; i < ELEMENTS(kinds); i++) {
                struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = kinds[i].groups};
                int fd = socket(AF_NETLINK, SOCK_RAW, kinds[i].protocol);
                if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                        door(&doors, kinds[i].name, -1);
                else
                        door(&doors, kinds[i].name, netlink_ask(fd, kinds[i].type));
                if (fd >= 0)
                        close(fd);
        }
        return doors.result;
}

// ARG: what the host sends on its loopback meanwhile. Two seconds of all that a packet socket gets.
static int sniff(const char *arg) {
        int r = geteuid() == 0 ? 0 : own_userns(CLONE_NEWNET), fd;
        static char packet[65536];

        if (r < 0)
                return r;
        fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
        if (fd < 0)
                return -errno;
        int seen = 0;
        for (int i = 0; i < 200; i++) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                if (poll(&p, 1, 10) <= 0)
                        continue;
                ssize_t n = recv(fd, packet, sizeof(packet), 0);
                if (n > 0 && memmem(packet, (size_t) n, arg, strlen(arg)))
                        seen++;
        }
        return seen ? 0 : -ENOENT;
}

const Attempt attempts_network[] = {
        {"families", families}, {"vsock", vsock}, {"abstract", abstract}, {"host-port", host_port}, {"netlink", netlink}, {"sniff", sniff}, {NULL},
};
