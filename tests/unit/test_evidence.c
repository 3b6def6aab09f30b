// SPDX-License-Identifier: GPL-2.0-or-later
// What the kernel says of packets and connections, read from messages made here and, in tests/fuzz, captured.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nfnetlink.h>
#include <endian.h>
#include <string.h>

#include "flow/conntrack.h"
#include "flow/evidence.h"
#include "flow/nflog.h"
#include "network/ruleset.h"

_Static_assert(EVIDENCE_LOG_GROUP == LOG_GROUP, "who writes and who reads name the same group");

static struct nlmsghdr *message_new(void *buffer, uint16_t type, uint8_t family) {
        struct nlmsghdr *head = mnl_nlmsg_put_header(buffer);
        struct nfgenmsg *generic;

        head->nlmsg_type = type;
        generic = mnl_nlmsg_put_extra_header(head, sizeof(*generic));
        generic->nfgen_family = family;
        return head;
}

static const uint8_t tcp4[] = {
        0x45, 0, 0, 60, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1, // 10.9.0.2 to 10.9.0.1
        0xc4, 0x84, 0x01, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0xa0, 2, 0xfa, 0xf0, 0, 0, 0, 0,
};

static const uint8_t udp6_options[] = {
        0x60, 0, 0, 0, 0, 24, 60, 64, // next: destination options
        0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        44, 0, 1, 4, 0, 0, 0, 0, // next: fragment
        17, 0, 0, 1, 0, 0, 0, 9, // the first one; next: UDP
        0x30, 0x39, 0, 53, 0, 10, 0, 0,
};

static void prefixes(void **state) {
        static const struct {
                const char *text;
                int slot; // 0: not ours
                const char *cause;
        } cases[] = {
                {"hostd:0001:deny ", 1, "deny"}, {"hostd:00ff:deny", 0xff, "deny"}, {"hostd:abcd:over-budget ", 0xabcd, "over-budget"},
                {"hostd:0000:deny ", 0, NULL},   {"hostd:ABCD:deny ", 0, NULL},     {"hostd:1:deny ", 0, NULL},
                {"hostd:0001:", 0, NULL},        {"hostd:0001deny ", 0, NULL},      {"hostd:0001:Deny ", 0, NULL},
                {"hostd:0001:d\033[m", 0, NULL}, {"other:0001:deny ", 0, NULL},     {"hostd:0001:aaaaaaaaaaaaaaaa", 0, NULL},
                {"hostd:0001:aaaaaaaaaaaaaaa", 1, "aaaaaaaaaaaaaaa"}, {"", 0, NULL},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _Alignas(8) char buffer[1024];
                struct nlmsghdr *head = message_new(buffer, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET, AF_INET);
                NflogPacket packet = {0};
                mnl_attr_put_strz(head, NFULA_PREFIX, cases[i].text);
                mnl_attr_put(head, NFULA_PAYLOAD, sizeof(tcp4), tcp4);
                assert_int_equal(nflog_parse(head, &packet), cases[i].slot ? 0 : -ENOMSG);
                assert_int_equal(packet.slot, cases[i].slot);
                if (cases[i].slot)
                        assert_string_equal(packet.cause, cases[i].cause);
        }
}

static void whole_message(void **state) {
        _Alignas(8) char buffer[1024];
        struct nlmsghdr *head = message_new(buffer, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET, AF_INET);
        struct nfulnl_msg_packet_timestamp stamp = {.sec = htobe64(1700000000), .usec = htobe64(123456)};
        NflogPacket packet = {0};

        mnl_attr_put_strz(head, NFULA_PREFIX, "hostd:0007:deny ");
        mnl_attr_put(head, NFULA_TIMESTAMP, sizeof(stamp), &stamp);
        mnl_attr_put_u32(head, NFULA_SEQ, htonl(77));
        mnl_attr_put(head, NFULA_PAYLOAD, sizeof(tcp4), tcp4);
        assert_int_equal(nflog_parse(head, &packet), 0);
        assert_int_equal(packet.slot, 7);
        assert_int_equal(packet.family, AF_INET);
        assert_int_equal(packet.protocol, IPPROTO_TCP);
        assert_memory_equal(packet.source, "\x0a\x09\x00\x02", 4);
        assert_memory_equal(packet.destination, "\x0a\x09\x00\x01", 4);
        assert_true(packet.has_ports);
        assert_int_equal(packet.source_port, 0xc484);
        assert_int_equal(packet.destination_port, 443);
        assert_true(packet.has_sequence);
        assert_int_equal(packet.sequence, 77);
        assert_true(packet.realtime_usec == 1700000000123456);
        head->nlmsg_type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG;
        assert_int_equal(nflog_parse(head, &packet), -ENOMSG);
}

// Cut anywhere, a packet is either told with what is whole or refused, and never read beyond its end (the sanitizers look).
static void packets_cut(void **state) {
        for (size_t size = 0; size <= sizeof(tcp4); size++) {
                _cleanup_free_ uint8_t *copy = malloc(size ?: 1);
                NflogPacket packet = {0};
                memcpy(copy, tcp4, size);
                assert_int_equal(nflog_parse_packet(AF_INET, copy, size, &packet), size < 20 ? -EBADMSG : 0);
                assert_int_equal(packet.has_ports, size >= 24);
        }
        for (size_t size = 0; size <= sizeof(udp6_options); size++) {
                _cleanup_free_ uint8_t *copy = malloc(size ?: 1);
                NflogPacket packet = {0};
                memcpy(copy, udp6_options, size);
                assert_int_equal(nflog_parse_packet(AF_INET6, copy, size, &packet), size < 40 ? -EBADMSG : 0);
                assert_int_equal(packet.has_ports, size >= 60);
                if (packet.has_ports)
                        assert_int_equal(packet.destination_port, 53);
        }
}

static void packets_odd(void **state) {
        uint8_t later[sizeof(tcp4)], options[sizeof(tcp4)], six[sizeof(udp6_options)];
        NflogPacket packet = {0};

        memcpy(later, tcp4, sizeof(later));
        later[7] = 5; // fragment offset
        assert_int_equal(nflog_parse_packet(AF_INET, later, sizeof(later), &packet), 0);
        assert_false(packet.has_ports);
        memcpy(options, tcp4, sizeof(options));
        options[0] = 0x4f; // a header longer than what is there
        assert_int_equal(nflog_parse_packet(AF_INET, options, sizeof(options), &packet), -EBADMSG);
        options[0] = 0x44;
        assert_int_equal(nflog_parse_packet(AF_INET, options, sizeof(options), &packet), -EBADMSG);
        options[0] = 0x65;
        assert_int_equal(nflog_parse_packet(AF_INET, options, sizeof(options), &packet), -EBADMSG);
        assert_int_equal(nflog_parse_packet(AF_INET6, tcp4, sizeof(tcp4), &packet), -EBADMSG);
        memcpy(six, udp6_options, sizeof(six));
        six[51] = 0x11; // offset of the fragment
        assert_int_equal(nflog_parse_packet(AF_INET6, six, sizeof(six), &packet), 0);
        assert_int_equal(packet.protocol, 17);
        assert_false(packet.has_ports);
}

static void put_tuple(struct nlmsghdr *head, uint16_t which, uint8_t protocol) {
        struct nlattr *tuple = mnl_attr_nest_start(head, which), *part = mnl_attr_nest_start(head, CTA_TUPLE_IP);

        mnl_attr_put_u32(head, CTA_IP_V4_SRC, htonl(0x0a090002));
        mnl_attr_put_u32(head, CTA_IP_V4_DST, htonl(0x5db8d822));
        mnl_attr_nest_end(head, part);
        part = mnl_attr_nest_start(head, CTA_TUPLE_PROTO);
        mnl_attr_put_u8(head, CTA_PROTO_NUM, protocol);
        mnl_attr_put_u16(head, CTA_PROTO_SRC_PORT, htons(40000));
        mnl_attr_put_u16(head, CTA_PROTO_DST_PORT, htons(22));
        mnl_attr_put_u8(head, CTA_PROTO_ICMP_TYPE, 8);
        mnl_attr_put_u8(head, CTA_PROTO_ICMP_CODE, 1);
        mnl_attr_nest_end(head, part);
        mnl_attr_nest_end(head, tuple);
}

static void put_bytes(struct nlmsghdr *head, uint16_t which, uint64_t bytes) {
        struct nlattr *part = mnl_attr_nest_start(head, which);

        mnl_attr_put_u64(head, CTA_COUNTERS_PACKETS, htobe64(3));
        mnl_attr_put_u64(head, CTA_COUNTERS_BYTES, htobe64(bytes));
        mnl_attr_nest_end(head, part);
}

static struct nlmsghdr *flow_message(void *buffer, uint16_t kind, uint32_t mark, uint8_t protocol) {
        struct nlmsghdr *head = message_new(buffer, (uint16_t) (NFNL_SUBSYS_CTNETLINK << 8 | kind), AF_INET);
        struct nlattr *part;

        put_tuple(head, CTA_TUPLE_ORIG, protocol);
        mnl_attr_put_u32(head, CTA_ID, htonl(12345));
        mnl_attr_put_u32(head, CTA_MARK, htonl(mark));
        put_bytes(head, CTA_COUNTERS_ORIG, 1000);
        put_bytes(head, CTA_COUNTERS_REPLY, 5000000000);
        part = mnl_attr_nest_start(head, CTA_TIMESTAMP);
        mnl_attr_put_u64(head, CTA_TIMESTAMP_START, htobe64(1700000000123456789));
        mnl_attr_put_u64(head, CTA_TIMESTAMP_STOP, htobe64(UINT64_MAX));
        mnl_attr_nest_end(head, part);
        return head;
}

static void flows(void **state) {
        _Alignas(8) char buffer[1024];
        ConntrackFlow flow = {0};

        assert_int_equal(conntrack_parse(flow_message(buffer, IPCTNL_MSG_CT_DELETE, 0x00120034, IPPROTO_TCP), &flow), 0);
        assert_true(flow.ended);
        assert_int_equal(flow.slot, 0x12);
        assert_int_equal(flow.rule_id, 0x34);
        assert_int_equal(flow.protocol, IPPROTO_TCP);
        assert_memory_equal(flow.destination, "\x5d\xb8\xd8\x22", 4);
        assert_int_equal(flow.source_port, 40000);
        assert_int_equal(flow.destination_port, 22);
        assert_true(flow.counted);
        assert_true(flow.sent == 1000 && flow.received == 5000000000);
        assert_true(flow.start_usec == 1700000000123456);
        assert_true(flow.stop_usec > 0); // nonsense of the kernel's stays a number
        assert_int_equal(conntrack_parse(flow_message(buffer, IPCTNL_MSG_CT_NEW, 0x00120034, IPPROTO_ICMP), &flow), 0);
        assert_false(flow.ended);
        assert_int_equal(flow.destination_port, 8 << 8 | 1);
        assert_int_equal(conntrack_parse(flow_message(buffer, IPCTNL_MSG_CT_NEW, 0x34, IPPROTO_TCP), &flow), -ENOMSG);
        assert_int_equal(conntrack_parse(flow_message(buffer, IPCTNL_MSG_CT_DELETE, 0x00120000, IPPROTO_TCP), &flow), -ENOMSG); // the proxy's
        assert_int_equal(conntrack_parse(flow_message(buffer, IPCTNL_MSG_CT_GET, 0x00120034, IPPROTO_TCP), &flow), -ENOMSG);
}

static void flows_not_whole(void **state) {
        _Alignas(8) char buffer[1024];
        struct nlmsghdr *head = message_new(buffer, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW, AF_INET6);
        ConntrackFlow flow = {0};

        mnl_attr_put_u32(head, CTA_MARK, htonl(0x00010001));
        assert_int_equal(conntrack_parse(head, &flow), -EBADMSG);
        put_tuple(head, CTA_TUPLE_ORIG, IPPROTO_TCP); // of the other family
        assert_int_equal(conntrack_parse(head, &flow), -EBADMSG);
        head = message_new(buffer, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW, AF_INET);
        mnl_attr_put_u32(head, CTA_MARK, htonl(0x00010001));
        put_tuple(head, CTA_TUPLE_ORIG, IPPROTO_UDP);
        assert_int_equal(conntrack_parse(head, &flow), 0);
        assert_false(flow.counted);
        assert_true(flow.start_usec == 0 && flow.sent == 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(prefixes),    cmocka_unit_test(whole_message), cmocka_unit_test(packets_cut),
                cmocka_unit_test(packets_odd), cmocka_unit_test(flows),         cmocka_unit_test(flows_not_whole),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
