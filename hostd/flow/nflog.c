// SPDX-License-Identifier: GPL-2.0-or-later
// Nflog: attributes first, then the packet: IPv4, or IPv6 and its extension headers, and ports where there are some.
#include "flow/nflog.h"

#include <netinet/in.h>

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <endian.h>
#include <libmnl/libmnl.h>
#include <string.h>

#define PREFIX "hostd:"
#define EXTENSIONS_MAX 8 // more of them is nobody's honest packet

typedef struct Bytes {
        const uint8_t *data;
        size_t size;
} Bytes;

static uint16_t get_u16(const uint8_t *data) {
        return (uint16_t) (data[0] << 8 | data[1]);
}

static void packet_ports(Bytes rest, NflogPacket *packet) {
        if ((packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP) || rest.size < 4)
                return;
        packet->has_ports = true;
        packet->source_port = get_u16(rest.data);
        packet->destination_port = get_u16(rest.data + 2);
}

static int packet_ipv4(Bytes ip, NflogPacket *packet) {
        size_t header = ip.size >= 20 ? (size_t) (ip.data[0] & 15) * 4 : 0;

        if (header < 20 || header > ip.size || ip.data[0] >> 4 != 4)
                return -EBADMSG;
        packet->protocol = ip.data[9];
        memcpy(packet->source, ip.data + 12, 4);
        memcpy(packet->destination, ip.data + 16, 4);
        if ((get_u16(ip.data + 6) & 0x1fff) == 0) // the first fragment, or whole
                packet_ports((Bytes) {ip.data + header, ip.size - header}, packet);
        return 0;
}

// Bytes of the extension header at the start of `rest`, 0: `protocol` is none.
static size_t extension_size(uint8_t protocol, Bytes rest) {
        switch (protocol) {
        case IPPROTO_HOPOPTS:
        case IPPROTO_ROUTING:
        case IPPROTO_DSTOPTS:
                return rest.size < 2 ? SIZE_MAX : ((size_t) rest.data[1] + 1) * 8;
        case IPPROTO_FRAGMENT:
                return 8;
        case IPPROTO_AH:
                return rest.size < 2 ? SIZE_MAX : ((size_t) rest.data[1] + 2) * 4;
        default:
                return 0;
        }
}

// A packet whose extension headers are cut off is told with what is known: the addresses and the header where it ended.
static int packet_ipv6(Bytes ip, NflogPacket *packet) {
        Bytes rest;

        if (ip.size < 40 || ip.data[0] >> 4 != 6)
                return -EBADMSG;
        packet->protocol = ip.data[6];
        memcpy(packet->source, ip.data + 8, 16);
        memcpy(packet->destination, ip.data + 24, 16);
        rest = (Bytes) {ip.data + 40, ip.size - 40};
        for (int i = 0; i < EXTENSIONS_MAX; i++) {
                size_t size = extension_size(packet->protocol, rest);
                if (size == 0) {
                        packet_ports(rest, packet);
                        return 0;
                }
                if (size > rest.size)
                        return 0;
                if (packet->protocol == IPPROTO_FRAGMENT && get_u16(rest.data + 2) >> 3 != 0) {
                        packet->protocol = rest.data[0];
                        return 0; // a later fragment: what follows is the middle of something
                }
                packet->protocol = rest.data[0];
                rest = (Bytes) {rest.data + size, rest.size - size};
        }
        return 0;
}

int nflog_parse_packet(int family, const void *data, size_t size, NflogPacket *ret) {
        NflogPacket packet = *ret;
        int r;

        packet.family = family;
        packet.has_ports = false;
        packet.source_port = packet.destination_port = 0;
        memset(packet.source, 0, sizeof(packet.source));
        memset(packet.destination, 0, sizeof(packet.destination));
        r = family == AF_INET ? packet_ipv4((Bytes) {data, size}, &packet) : packet_ipv6((Bytes) {data, size}, &packet);
        if (r == 0)
                *ret = packet;
        return r;
}

static int hex_digit(char c) {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "hostd:0001:deny", with or without the space that nft's users put at the end; `size` counts a NUL if there is one.
static int parse_prefix(const char *text, size_t size, NflogPacket *packet) {
        size_t at = strlen(PREFIX), n = 0;

        size = strnlen(text, size);
        if (size > 0 && text[size - 1] == ' ')
                size--;
        if (size < at + 6 || memcmp(text, PREFIX, at) != 0 || text[at + 4] != ':')
                return -ENOMSG;
        packet->slot = 0;
        for (size_t i = at; i < at + 4; i++) {
                if (hex_digit(text[i]) < 0)
                        return -ENOMSG;
                packet->slot = (uint16_t) (packet->slot << 4 | hex_digit(text[i]));
        }
        for (at += 5; at < size; at++) {
                if (n == sizeof(packet->cause) - 1 || !((text[at] >= 'a' && text[at] <= 'z') || text[at] == '-'))
                        return -ENOMSG;
                packet->cause[n++] = text[at];
        }
        packet->cause[n] = 0;
        return packet->slot ? 0 : -ENOMSG;
}

static void parse_time(const struct nlattr *attr, NflogPacket *packet) {
        struct nfulnl_msg_packet_timestamp stamp;
        uint64_t sec, usec;

        if (mnl_attr_get_payload_len(attr) < sizeof(stamp))
                return;
        memcpy(&stamp, mnl_attr_get_payload(attr), sizeof(stamp));
        sec = be64toh(stamp.sec);
        usec = be64toh(stamp.usec);
        if (sec < (uint64_t) INT64_MAX / 1000000 && usec < 1000000)
                packet->realtime_usec = (int64_t) (sec * 1000000 + usec);
}

static void parse_sequence(const struct nlattr *attr, NflogPacket *packet) {
        uint32_t value;

        if (mnl_attr_get_payload_len(attr) < sizeof(value))
                return;
        memcpy(&value, mnl_attr_get_payload(attr), sizeof(value));
        packet->has_sequence = true;
        packet->sequence = be32toh(value);
}

int nflog_parse(const struct nlmsghdr *message, NflogPacket *ret) {
        const struct nlattr *attr, *prefix = NULL, *payload = NULL;
        const struct nfgenmsg *head = mnl_nlmsg_get_payload(message);
        NflogPacket packet = {0};
        int family, r;

        if (message->nlmsg_type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET))
                return -ENOMSG;
        if (mnl_nlmsg_get_payload_len(message) < sizeof(*head))
                return -EBADMSG;
        family = head->nfgen_family; // NFPROTO_IPV4 and NFPROTO_IPV6 are the same numbers
        mnl_attr_for_each(attr, message, sizeof(*head)) {
                uint16_t type = mnl_attr_get_type(attr);
                if (type == NFULA_PREFIX)
                        prefix = attr;
                else if (type == NFULA_PAYLOAD)
                        payload = attr;
                else if (type == NFULA_TIMESTAMP)
                        parse_time(attr, &packet);
                else if (type == NFULA_SEQ)
                        parse_sequence(attr, &packet);
        }
        if (!prefix || (family != AF_INET && family != AF_INET6))
                return -ENOMSG;
        r = parse_prefix(mnl_attr_get_payload(prefix), mnl_attr_get_payload_len(prefix), &packet);
        if (r == 0)
                r = payload ? nflog_parse_packet(family, mnl_attr_get_payload(payload), mnl_attr_get_payload_len(payload), &packet) : -EBADMSG;
        if (r == 0)
                *ret = packet;
        return r;
}
