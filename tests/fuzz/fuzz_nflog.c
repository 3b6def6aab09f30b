// SPDX-License-Identifier: GPL-2.0-or-later
// What the kernel logs of a packet holds the packet's own first bytes, which an instance wrote.
#include <string.h>
#include <sys/socket.h>

#include "flow/message.h"
#include "flow/nflog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct nlmsghdr *message) {
        NflogPacket packet = {0};

        if (nflog_parse(message, &packet) < 0)
                return;
        if (packet.slot == 0 || (packet.family != AF_INET && packet.family != AF_INET6))
                abort();
        if (strnlen(packet.cause, sizeof(packet.cause)) == sizeof(packet.cause) || strspn(packet.cause, "abcdefghijklmnopqrstuvwxyz-") != strlen(packet.cause))
                abort();
        if (packet.has_ports && packet.protocol != 6 && packet.protocol != 17)
                abort();
}

static void look_packet(int family, const uint8_t *data, size_t size) {
        _cleanup_free_ uint8_t *copy = malloc(size ?: 1);
        NflogPacket packet = {0};

        if (!copy)
                return;
        memcpy(copy, data, size);
        (void) nflog_parse_packet(family, copy, size, &packet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ struct nlmsghdr *copy = malloc(size ?: 1); // exact, so that a read beyond is seen
        MessageWalk walk = {(const char *) copy, size};

        if (!copy)
                return 0;
        memcpy(copy, data, size);
        for (const struct nlmsghdr *message; (message = message_next(&walk));)
                look(message);
        look_packet(AF_INET, data, size);
        look_packet(AF_INET6, data, size);
        return 0;
}
