// SPDX-License-Identifier: GPL-2.0-or-later
// Nflog: one message of the kernel's packet log (NFLOG) as a struct. The first bytes of a packet that an instance sent are in it, so
// this runs where there are no privileges, and every length is checked again: the kernel vouches for the frame, not for the packet.
#pragma once

#include <linux/netlink.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

#define NFLOG_CAUSE_MAX 16 // with its NUL

typedef struct NflogPacket {
        uint16_t slot;               // from the prefix "hostd:SLOT:CAUSE", four hex digits
        char cause[NFLOG_CAUSE_MAX]; // lower case and dashes: "deny"
        int family;                  // AF_INET or AF_INET6
        uint8_t protocol;            // IPPROTO_*; of IPv6 what follows the extension headers
        uint8_t source[16], destination[16];
        bool has_ports;              // of a TCP or UDP packet that is no later fragment
        uint16_t source_port, destination_port;
        bool has_sequence;
        uint32_t sequence;           // counts what the kernel wanted to say: a gap is what was lost
        int64_t realtime_usec;       // 0: the kernel did not say
} NflogPacket;

// 0; -ENOMSG: no packet of a slot (another program's prefix, another kind of message); -EBADMSG: one that is cut off or contradicts
// itself. `message` comes from message_next().
int nflog_parse(const struct nlmsghdr *message, NflogPacket *ret);
// The part that reads the packet itself; `family` AF_INET or AF_INET6. Fills the fields from family to destination_port.
int nflog_parse_packet(int family, const void *data, size_t size, NflogPacket *ret);
