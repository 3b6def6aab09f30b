// SPDX-License-Identifier: GPL-2.0-or-later
// Border: see border.h.
#include "border/border.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/io.h"

#define FIRST_FD 3
#define FDS_MAX 16

static int number(const char *text, long max, long *ret) {
        char *end;

        if (!text || *text < '0' || *text > '9')
                return -ENOENT;
        errno = 0;
        *ret = strtol(text, &end, 10);
        return errno || *end || *ret > max ? -ENOENT : 0;
}

// systemd names the process that it means, so that a descriptor is not taken for ours that an ancestor was given. hostd cannot know the
// number before the process is there; what it starts inherits no other descriptors.
int border_listen_fd(const char *name) {
        const char *pid = getenv("LISTEN_PID"), *names = getenv("LISTEN_FDNAMES");
        size_t length = strlen(name);
        long n, own;

        if (number(getenv("LISTEN_FDS"), FDS_MAX, &n) < 0 || (pid && (number(pid, INT32_MAX, &own) < 0 || own != (long) getpid())))
                return -ENOENT;
        for (int i = 0; i < n && names; i++) {
                const char *end = strchrnul(names, ':');
                if ((size_t) (end - names) == length && memcmp(names, name, length) == 0) {
                        int fd = FIRST_FD + i, r = io_set_nonblock(fd, true);
                        if (r < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
                                return -ENOENT;
                        return fd;
                }
                names = *end ? end + 1 : NULL;
        }
        return -ENOENT;
}

// First the device: without it the address would be taken from all others. It may not have its addresses yet (FREEBIND).
static int bind_on(int fd, BorderWire wire, int family, uint16_t port) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = wire.ifindex};
        bool six = family == AF_INET6;
        int one = 1;

        (void) inet_pton(AF_INET, BORDER_ADDRESS_V4, &in.sin_addr);
        (void) inet_pton(AF_INET6, BORDER_ADDRESS_V6, &in6.sin6_addr);
        if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, wire.ifname, (socklen_t) strlen(wire.ifname) + 1) < 0 ||
            setsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_FREEBIND : IP_FREEBIND, &one, sizeof(one)) < 0 ||
            (six && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0) ||
            bind(fd, six ? (const struct sockaddr *) &in6 : (const struct sockaddr *) &in, six ? sizeof(in6) : sizeof(in)) < 0)
                return -errno;
        return 0;
}

int border_open_on(BorderWire wire, int family, int type, uint16_t port) {
        _cleanup_close_ int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int one = 1, r;

        if (fd < 0 || (type == SOCK_STREAM && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0))
                return -errno;
        r = bind_on(fd, wire, family, port);
        return r < 0 ? r : TAKE_FD(fd);
}

const char *border_socket_path(const char *path, char *buf, size_t size) {
        const char *run = secure_getenv(BORDER_RUN_VARIABLE);

        if (!run || snprintf(buf, size, "%s%s", run, path + strlen(BORDER_RUN)) >= (int) size)
                return path;
        return buf;
}

bool border_name_valid(const char *name) {
        size_t size = strnlen(name, BORDER_NAME_MAX + 1);
        bool digits = true; // of the last label
        size_t label = 0;

        if (size == 0 || size > BORDER_NAME_MAX)
                return false;
        for (size_t i = 0; i < size; i++) {
                char c = name[i];
                bool last = i + 1 == size || name[i + 1] == '.';
                if (c == '.') {
                        if (label == 0)
                                return false;
                        label = 0;
                        digits = true;
                        continue;
                }
                if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || (c == '-' && label > 0 && !last)) || ++label > 63)
                        return false;
                digits = digits && c >= '0' && c <= '9';
        }
        return label > 0 && !digits; // no top-level domain is a number: what looks like one is an address
}
