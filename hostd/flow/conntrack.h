// SPDX-License-Identifier: GPL-2.0-or-later
// Conntrack: one message about a connection as a struct: its end, or how it stands (an entry of a dump). The mark says which
// slot and which rule of it admitted the connection; see network/ruleset.h.
#pragma once

#include <linux/netlink.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

typedef struct ConntrackFlow {
        bool ended;
        uint16_t slot, rule_id;  // the halves of the mark
        int family;
        uint8_t protocol;
        uint8_t source[16], destination[16]; // of who began, before any translation
        uint16_t source_port, destination_port; // of ICMP: 0 and type << 8 | code
        bool counted;            // nf_conntrack_acct was on when it began
        uint64_t sent, received; // bytes with their IP headers, as seen from who began
        int64_t start_usec, stop_usec; // realtime; 0: not known (nf_conntrack_timestamp was off when it began), or not ended
} ConntrackFlow;

// 0; -ENOMSG: another kind of message, or no connection that a rule of ours admitted; -EBADMSG: not whole. `message` comes from
// message_next().
int conntrack_parse(const struct nlmsghdr *message, ConntrackFlow *ret);
