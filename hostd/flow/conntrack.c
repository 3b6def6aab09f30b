// SPDX-License-Identifier: GPL-2.0-or-later
// Conntrack: attributes nested three deep, each looked for by its number and copied only if it is as long as it must be.
#include "flow/conntrack.h"

#include <netinet/in.h>

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <endian.h>
#include <libmnl/libmnl.h>
#include <string.h>

// The last attribute of that type among the children of `parent`, NULL if there is none (or no parent).
static const struct nlattr *child(const struct nlattr *parent, uint16_t type) {
        const struct nlattr *attr, *found = NULL;

        if (!parent)
                return NULL;
        mnl_attr_for_each_nested(attr, parent)
                if (mnl_attr_get_type(attr) == type)
                        found = attr;
        return found;
}

static bool get(const struct nlattr *attr, void *ret, size_t size) {
        if (!attr || mnl_attr_get_payload_len(attr) < size)
                return false;
        memcpy(ret, mnl_attr_get_payload(attr), size);
        return true;
}

static uint64_t get_be64(const struct nlattr *attr) {
        uint64_t value;

        return get(attr, &value, sizeof(value)) ? be64toh(value) : 0;
}

static uint16_t get_be16(const struct nlattr *attr) {
        uint16_t value;

        return get(attr, &value, sizeof(value)) ? be16toh(value) : 0;
}

static int64_t get_usec(const struct nlattr *attr) {
        return (int64_t) (get_be64(attr) / 1000); // below 2^63: it was divided
}

static uint16_t icmp_kind(const struct nlattr *protocol, uint16_t type, uint16_t code) {
        uint8_t t = 0, c = 0;

        (void) get(child(protocol, type), &t, 1);
        (void) get(child(protocol, code), &c, 1);
        return (uint16_t) (t << 8 | c);
}

static int parse_tuple(const struct nlattr *tuple, ConntrackFlow *flow) {
        const struct nlattr *ip = child(tuple, CTA_TUPLE_IP), *protocol = child(tuple, CTA_TUPLE_PROTO);
        bool four = flow->family == AF_INET;
        size_t size = four ? 4 : 16;

        if (!get(child(ip, four ? CTA_IP_V4_SRC : CTA_IP_V6_SRC), flow->source, size) ||
            !get(child(ip, four ? CTA_IP_V4_DST : CTA_IP_V6_DST), flow->destination, size) ||
            !get(child(protocol, CTA_PROTO_NUM), &flow->protocol, 1))
                return -EBADMSG;
        if (flow->protocol == IPPROTO_ICMP)
                flow->destination_port = icmp_kind(protocol, CTA_PROTO_ICMP_TYPE, CTA_PROTO_ICMP_CODE);
        else if (flow->protocol == IPPROTO_ICMPV6)
                flow->destination_port = icmp_kind(protocol, CTA_PROTO_ICMPV6_TYPE, CTA_PROTO_ICMPV6_CODE);
        else {
                flow->source_port = get_be16(child(protocol, CTA_PROTO_SRC_PORT));
                flow->destination_port = get_be16(child(protocol, CTA_PROTO_DST_PORT));
        }
        return 0;
}

static void parse_counters(const struct nlattr *sent, const struct nlattr *received, ConntrackFlow *flow) {
        flow->counted = sent && received;
        flow->sent = get_be64(child(sent, CTA_COUNTERS_BYTES));
        flow->received = get_be64(child(received, CTA_COUNTERS_BYTES));
}

static int parse_kind(const struct nlmsghdr *message, ConntrackFlow *flow) {
        const struct nfgenmsg *head = mnl_nlmsg_get_payload(message);

        if (message->nlmsg_type != (NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE) &&
            message->nlmsg_type != (NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW))
                return -ENOMSG;
        if (mnl_nlmsg_get_payload_len(message) < sizeof(*head))
                return -EBADMSG;
        flow->ended = NFNL_MSG_TYPE(message->nlmsg_type) == IPCTNL_MSG_CT_DELETE;
        flow->family = head->nfgen_family;
        return flow->family == AF_INET || flow->family == AF_INET6 ? 0 : -ENOMSG;
}

int conntrack_parse(const struct nlmsghdr *message, ConntrackFlow *ret) {
        const struct nlattr *attr, *parts[CTA_MAX + 1] = {0};
        ConntrackFlow flow = {0};
        uint32_t mark = 0;
        int r = parse_kind(message, &flow);

        if (r < 0)
                return r;
        mnl_attr_for_each(attr, message, sizeof(struct nfgenmsg))
                if (mnl_attr_get_type(attr) <= CTA_MAX)
                        parts[mnl_attr_get_type(attr)] = attr;
        (void) get(parts[CTA_MARK], &mark, sizeof(mark));
        mark = be32toh(mark);
        flow.slot = (uint16_t) (mark >> 16);
        flow.rule_id = (uint16_t) mark;
        if (flow.slot == 0 || flow.rule_id == 0) // not an instance's, or the proxy's, which tells of it itself
                return -ENOMSG;
        r = parse_tuple(parts[CTA_TUPLE_ORIG], &flow);
        if (r < 0)
                return r;
        parse_counters(parts[CTA_COUNTERS_ORIG], parts[CTA_COUNTERS_REPLY], &flow);
        flow.start_usec = get_usec(child(parts[CTA_TIMESTAMP], CTA_TIMESTAMP_START));
        flow.stop_usec = get_usec(child(parts[CTA_TIMESTAMP], CTA_TIMESTAMP_STOP));
        *ret = flow;
        return 0;
}
