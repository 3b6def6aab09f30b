// SPDX-License-Identifier: GPL-2.0-or-later
// Transact: the one transaction that must be fast. libnftables reads every set, chain and object of the host and the elements of
// interval sets before each command; a policy of 100 rules took 10 to 30 ms with that, these messages take less than one.
//
// The rules are what nft makes of the text of ruleset_policy(), byte for byte, so that `nft list` shows them alike; the
// integration test compares both. The socket stays open, because the kernel waits for earlier removals when one is closed.
#include "network/transact.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>

#include "network/group.h"
#include "network/netlink.h"

typedef struct Batch {
        char *buffer;
        size_t size, used;
        uint32_t sequence;
        struct nlmsghdr *message; // the one being written
        char rules[16], live[16], deny[16], pass[16];
        uint16_t slot;
        uint32_t sets; // anonymous ones so far: their ids within the batch
} Batch;

enum {
        MESSAGE_MAX = 1536, // the longest rule has some 900 bytes
        CHUNK = 512,        // elements in one message; an attribute holds 64 KiB
        ELEMENT_MAX = 64,   // bytes of one
};

// Room for a message with `more` bytes besides what each may have.
static int batch_reserve(Batch *batch, size_t more) {
        size_t wanted = batch->used + 2 * MESSAGE_MAX + more;
        char *buffer;

        if (wanted <= batch->size)
                return 0;
        wanted += batch->size + 16 * MESSAGE_MAX;
        buffer = realloc(batch->buffer, wanted);
        if (!buffer)
                return -ENOMEM;
        batch->buffer = buffer;
        batch->size = wanted;
        return 0;
}

static int batch_begin(Batch *batch, unsigned type, unsigned flags) {
        struct nfgenmsg *generic;

        if (batch_reserve(batch, 0) < 0)
                return -ENOMEM;
        batch->message = mnl_nlmsg_put_header(batch->buffer + batch->used);
        batch->message->nlmsg_type = (uint16_t) type;
        batch->message->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | flags);
        batch->message->nlmsg_seq = ++batch->sequence;
        generic = mnl_nlmsg_put_extra_header(batch->message, sizeof(*generic));
        generic->version = NFNETLINK_V0;
        if (type < NLMSG_MIN_TYPE + 2) // begin and end of the batch name the subsystem
                generic->res_id = htons(NFNL_SUBSYS_NFTABLES);
        else
                generic->nfgen_family = NFPROTO_INET;
        return 0;
}

static void batch_end(Batch *batch) {
        batch->used += MNL_ALIGN(batch->message->nlmsg_len);
}

static int batch_marker(Batch *batch, unsigned type) {
        int r = batch_begin(batch, type, 0);

        if (r >= 0)
                batch_end(batch);
        return r;
}

static void put_u32(struct nlmsghdr *message, uint16_t type, uint32_t value) {
        mnl_attr_put_u32(message, type, htonl(value));
}

static void put_value(struct nlmsghdr *message, uint16_t type, const void *data, size_t size) {
        struct nlattr *nest = mnl_attr_nest_start(message, type);

        mnl_attr_put(message, NFTA_DATA_VALUE, size, data);
        mnl_attr_nest_end(message, nest);
}

typedef struct Expression { struct nlattr *element, *data; } Expression;

static Expression expression_begin(struct nlmsghdr *message, const char *name) {
        Expression e = {.element = mnl_attr_nest_start(message, NFTA_LIST_ELEM)};

        mnl_attr_put_strz(message, NFTA_EXPR_NAME, name);
        e.data = mnl_attr_nest_start(message, NFTA_EXPR_DATA);
        return e;
}

static void expression_end(struct nlmsghdr *message, Expression e) {
        mnl_attr_nest_end(message, e.data);
        mnl_attr_nest_end(message, e.element);
}

static void load_meta(struct nlmsghdr *message, uint32_t key) {
        Expression e = expression_begin(message, "meta");

        put_u32(message, NFTA_META_KEY, key);
        put_u32(message, NFTA_META_DREG, NFT_REG_1);
        expression_end(message, e);
}

static void load_original_to(struct nlmsghdr *message, uint32_t key, uint32_t to) {
        Expression e = expression_begin(message, "ct");

        put_u32(message, NFTA_CT_KEY, key);
        put_u32(message, NFTA_CT_DREG, to);
        mnl_attr_put_u8(message, NFTA_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
        expression_end(message, e);
}

static void load_original(struct nlmsghdr *message, uint32_t key) {
        load_original_to(message, key, NFT_REG_1);
}

static void compare(struct nlmsghdr *message, uint32_t operation, const void *data, size_t size) {
        Expression e = expression_begin(message, "cmp");

        put_u32(message, NFTA_CMP_SREG, NFT_REG_1);
        put_u32(message, NFTA_CMP_OP, operation);
        put_value(message, NFTA_CMP_DATA, data, size);
        expression_end(message, e);
}

static void compare_port(struct nlmsghdr *message, uint32_t operation, uint16_t port) {
        uint16_t wire = htons(port);

        compare(message, operation, &wire, sizeof(wire));
}

static void mask(struct nlmsghdr *message, unsigned prefix, size_t size) {
        static const unsigned char zero[16];
        unsigned char bits[16] = {0};
        Expression e = expression_begin(message, "bitwise");

        for (unsigned i = 0; i < prefix; i++)
                bits[i / 8] |= (unsigned char) (0x80 >> i % 8);
        put_u32(message, NFTA_BITWISE_SREG, NFT_REG_1);
        put_u32(message, NFTA_BITWISE_DREG, NFT_REG_1);
        put_u32(message, NFTA_BITWISE_LEN, (uint32_t) size);
        put_value(message, NFTA_BITWISE_MASK, bits, size);
        put_value(message, NFTA_BITWISE_XOR, zero, size);
        expression_end(message, e);
}

static void load_address(struct nlmsghdr *message, const Cidr *to) {
        load_original(message, to->family == AF_INET ? NFT_CT_DST_IP : NFT_CT_DST_IP6);
}

static void match_address(struct nlmsghdr *message, const CompiledRule *rule) {
        size_t size = rule->to.family == AF_INET ? 4 : 16;
        unsigned prefix = rule->to.prefix;

        if (prefix == 0)
                return;
        load_address(message, &rule->to);
        if (prefix % 8 != 0)
                mask(message, prefix, size);
        compare(message, NFT_CMP_EQ, rule->to.bytes, prefix % 8 ? size : prefix / 8);
}

static void match_not_denied(struct nlmsghdr *message, const CompiledRule *rule) {
        Expression e;

        if (!rule->spare_denied)
                return;
        load_address(message, &rule->to);
        e = expression_begin(message, "lookup");
        mnl_attr_put_strz(message, NFTA_LOOKUP_SET, rule->to.family == AF_INET ? "deny4" : "deny6");
        put_u32(message, NFTA_LOOKUP_SREG, NFT_REG_1);
        put_u32(message, NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
        expression_end(message, e);
}

static void match_ports(struct nlmsghdr *message, const RuleLine *line, bool in_key) {
        if (line->ports.first && !in_key) {
                load_original(message, NFT_CT_PROTO_DST);
                if (line->ports.first == line->ports.last) {
                        compare_port(message, NFT_CMP_EQ, line->ports.first);
                } else {
                        compare_port(message, NFT_CMP_GTE, line->ports.first);
                        compare_port(message, NFT_CMP_LTE, line->ports.last);
                }
        }
        if (line->port_not_smtp) {
                load_original(message, NFT_CT_PROTO_DST);
                compare_port(message, NFT_CMP_NEQ, SMTP_PORT);
        }
}

static void load_mark(struct nlmsghdr *message, uint32_t mark) {
        Expression e = expression_begin(message, "immediate");

        put_u32(message, NFTA_IMMEDIATE_DREG, NFT_REG_1);
        put_value(message, NFTA_IMMEDIATE_DATA, &mark, sizeof(mark)); // host order, as the kernel keeps marks
        expression_end(message, e);
}

static void set_mark(struct nlmsghdr *message) {
        Expression e = expression_begin(message, "ct");

        put_u32(message, NFTA_CT_KEY, NFT_CT_MARK);
        put_u32(message, NFTA_CT_SREG, NFT_REG_1);
        expression_end(message, e);
}

static void verdict(struct nlmsghdr *message, int32_t code, const char *chain) {
        Expression e = expression_begin(message, "immediate");
        struct nlattr *data, *nest;

        put_u32(message, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
        data = mnl_attr_nest_start(message, NFTA_IMMEDIATE_DATA);
        nest = mnl_attr_nest_start(message, NFTA_DATA_VERDICT);
        put_u32(message, NFTA_VERDICT_CODE, (uint32_t) code);
        if (chain)
                mnl_attr_put_strz(message, NFTA_VERDICT_CHAIN, chain);
        mnl_attr_nest_end(message, nest);
        mnl_attr_nest_end(message, data);
        expression_end(message, e);
}

// In nft's own layout, of rules and of elements: type, length, string with its NUL.
static void put_comment(struct nlmsghdr *message, uint16_t attribute, const char *comment) {
        unsigned char data[64];
        size_t size = strlen(comment) + 1;

        if (size > sizeof(data) - 2)
                return; // cannot be: comments are at most 16 hex digits
        data[0] = 0;
        data[1] = (unsigned char) size;
        memcpy(data + 2, comment, size);
        mnl_attr_put(message, attribute, size + 2, data);
}

static int rule_begin(Batch *batch, struct nlattr **ret) {
        int r = batch_begin(batch, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);

        if (r < 0)
                return r;
        mnl_attr_put_strz(batch->message, NFTA_RULE_TABLE, "hostd");
        mnl_attr_put_strz(batch->message, NFTA_RULE_CHAIN, batch->rules);
        *ret = mnl_attr_nest_start(batch->message, NFTA_RULE_EXPRESSIONS);
        return 0;
}

static uint32_t mark_of(const Batch *batch, const CompiledRule *rule) {
        return (uint32_t) batch->slot << 16 | rule->id;
}

// All that decides whether the rule is about a packet but what a group looks up.
static void match_line(Batch *batch, const RuleLine *line, const Group *key) {
        uint8_t family = line->rule->to.family == AF_INET ? NFPROTO_IPV4 : NFPROTO_IPV6;

        load_meta(batch->message, NFT_META_NFPROTO);
        compare(batch->message, NFT_CMP_EQ, &family, sizeof(family));
        if (!key)
                match_address(batch->message, line->rule);
        match_not_denied(batch->message, line->rule);
        if (line->protocol) {
                load_meta(batch->message, NFT_META_L4PROTO);
                compare(batch->message, line->protocol_not ? NFT_CMP_NEQ : NFT_CMP_EQ, &line->protocol, sizeof(line->protocol));
        }
        match_ports(batch->message, line, key && key->port_in_key);
}

static void verdict_of(Batch *batch, const CompiledRule *rule) {
        if (rule->action == POLICY_ALLOW) {
                set_mark(batch->message);
                verdict(batch->message, NFT_GOTO, batch->pass);
        } else {
                verdict(batch->message, NFT_GOTO, batch->deny);
        }
}

static int batch_line(Batch *batch, const RuleLine *line) {
        struct nlattr *list;
        int r = rule_begin(batch, &list);

        if (r < 0)
                return r;
        match_line(batch, line, NULL);
        if (line->rule->action == POLICY_ALLOW)
                load_mark(batch->message, mark_of(batch, line->rule));
        verdict_of(batch, line->rule);
        mnl_attr_nest_end(batch->message, list);
        batch_end(batch);
        return 0;
}

// ---- groups: an anonymous set or map, which goes with its rule

enum { TYPE_IPV4 = 7, TYPE_IPV6 = 8, TYPE_SERVICE = 13, TYPE_MARK = 19, TYPE_BITS = 6 }; // nft's own numbers: the kernel keeps them for listings

static const char *set_name(const Group *group) {
        return group->lines[0].rule->action == POLICY_ALLOW ? "__map%d" : "__set%d";
}

static size_t key_size(const Group *group) {
        return (group->lines[0].rule->to.family == AF_INET ? 4 : 16) + (group->port_in_key ? 4 : 0); // fields of whole registers
}

static int batch_set(Batch *batch, const Group *group) {
        bool allow = group->lines[0].rule->action == POLICY_ALLOW;
        uint32_t type = group->lines[0].rule->to.family == AF_INET ? TYPE_IPV4 : TYPE_IPV6;
        // For listings, in nft's own layout: the data are of the host's byte order, else marks would be shown backwards.
        unsigned char byte_order[6] = {1, sizeof(uint32_t)};
        const uint32_t host = 1;
        struct nlattr *description;
        struct nlmsghdr *m;
        int r = batch_begin(batch, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWSET, NLM_F_CREATE);

        if (r < 0)
                return r;
        m = batch->message;
        mnl_attr_put_strz(m, NFTA_SET_TABLE, "hostd");
        mnl_attr_put_strz(m, NFTA_SET_NAME, set_name(group));
        put_u32(m, NFTA_SET_FLAGS, NFT_SET_ANONYMOUS | NFT_SET_CONSTANT | (allow ? NFT_SET_MAP : 0));
        put_u32(m, NFTA_SET_KEY_TYPE, group->port_in_key ? type << TYPE_BITS | TYPE_SERVICE : type);
        put_u32(m, NFTA_SET_KEY_LEN, (uint32_t) key_size(group));
        if (allow) {
                put_u32(m, NFTA_SET_DATA_TYPE, TYPE_MARK);
                put_u32(m, NFTA_SET_DATA_LEN, sizeof(uint32_t));
        }
        put_u32(m, NFTA_SET_ID, ++batch->sets);
        description = mnl_attr_nest_start(m, NFTA_SET_DESC);
        put_u32(m, NFTA_SET_DESC_SIZE, (uint32_t) group->n); // known: a plain hash of that size
        mnl_attr_nest_end(m, description);
        memcpy(byte_order + 2, &host, sizeof(host));
        if (allow)
                mnl_attr_put(m, NFTA_SET_USERDATA, sizeof(byte_order), byte_order);
        batch_end(batch);
        return 0;
}

static void put_key(Batch *batch, const Group *group, const RuleLine *line) {
        unsigned char key[20] = {0};
        size_t size = key_size(group);
        uint16_t port = htons(line->ports.first);

        memcpy(key, line->rule->to.bytes, line->rule->to.family == AF_INET ? 4 : 16);
        if (group->port_in_key)
                memcpy(key + size - 4, &port, sizeof(port));
        put_value(batch->message, NFTA_SET_ELEM_KEY, key, size);
}

static int elements_begin(Batch *batch, const char *set, size_t n, struct nlattr **ret) {
        int r = batch_reserve(batch, n * ELEMENT_MAX);

        if (r >= 0)
                r = batch_begin(batch, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWSETELEM, NLM_F_CREATE);
        if (r < 0)
                return r;
        mnl_attr_put_strz(batch->message, NFTA_SET_ELEM_LIST_TABLE, "hostd");
        mnl_attr_put_strz(batch->message, NFTA_SET_ELEM_LIST_SET, set);
        if (strchr(set, '%'))
                put_u32(batch->message, NFTA_SET_ELEM_LIST_SET_ID, batch->sets);
        *ret = mnl_attr_nest_start(batch->message, NFTA_SET_ELEM_LIST_ELEMENTS);
        return 0;
}

static int batch_group_elements(Batch *batch, const Group *group, size_t from) {
        size_t n = MIN2(group->n - from, (size_t) CHUNK);
        struct nlattr *list, *element;
        int r = elements_begin(batch, set_name(group), n, &list);

        if (r < 0)
                return r;
        for (size_t i = from; i < from + n; i++) {
                const CompiledRule *rule = group->lines[i].rule;
                uint32_t mark = mark_of(batch, rule);
                element = mnl_attr_nest_start(batch->message, NFTA_LIST_ELEM);
                put_key(batch, group, &group->lines[i]);
                if (rule->action == POLICY_ALLOW)
                        put_value(batch->message, NFTA_SET_ELEM_DATA, &mark, sizeof(mark));
                mnl_attr_nest_end(batch->message, element);
        }
        mnl_attr_nest_end(batch->message, list);
        batch_end(batch);
        return 0;
}

static void look_up(Batch *batch, const Group *group) {
        const Cidr *to = &group->lines[0].rule->to;
        bool four = to->family == AF_INET;
        Expression e;

        load_address(batch->message, to);
        if (to->prefix < (four ? 32 : 128))
                mask(batch->message, to->prefix, four ? 4 : 16);
        if (group->port_in_key) // into the register behind the address
                load_original_to(batch->message, NFT_CT_PROTO_DST, four ? NFT_REG32_01 : NFT_REG_2);
        e = expression_begin(batch->message, "lookup");
        mnl_attr_put_strz(batch->message, NFTA_LOOKUP_SET, set_name(group));
        put_u32(batch->message, NFTA_LOOKUP_SREG, NFT_REG_1);
        if (group->lines[0].rule->action == POLICY_ALLOW)
                put_u32(batch->message, NFTA_LOOKUP_DREG, NFT_REG_1);
        put_u32(batch->message, NFTA_LOOKUP_SET_ID, batch->sets);
        expression_end(batch->message, e);
}

static int batch_map(Batch *batch, const Group *group) {
        struct nlattr *list;
        int r = batch_set(batch, group);

        for (size_t at = 0; at < group->n && r >= 0; at += CHUNK)
                r = batch_group_elements(batch, group, at);
        if (r >= 0)
                r = rule_begin(batch, &list);
        if (r < 0)
                return r;
        match_line(batch, &group->lines[0], group);
        look_up(batch, group);
        verdict_of(batch, group->lines[0].rule);
        mnl_attr_nest_end(batch->message, list);
        batch_end(batch);
        return 0;
}

static int batch_group(Batch *batch, const Group *group) {
        int r = 0;

        if (group->mapped)
                return batch_map(batch, group);
        for (size_t i = 0; i < group->n && r >= 0; i++)
                r = batch_line(batch, &group->lines[i]);
        return r;
}

static int batch_flush_set(Batch *batch, const char *set) {
        int r = batch_begin(batch, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELSETELEM, 0);

        if (r < 0)
                return r;
        mnl_attr_put_strz(batch->message, NFTA_SET_ELEM_LIST_TABLE, "hostd");
        mnl_attr_put_strz(batch->message, NFTA_SET_ELEM_LIST_SET, set);
        batch_end(batch);
        return 0;
}

static int batch_flush(Batch *batch) {
        int r = batch_begin(batch, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELRULE, 0);

        if (r < 0)
                return r;
        mnl_attr_put_strz(batch->message, NFTA_RULE_TABLE, "hostd");
        mnl_attr_put_strz(batch->message, NFTA_RULE_CHAIN, batch->rules);
        batch_end(batch);
        return batch_flush_set(batch, batch->live);
}

// The marks of up to CHUNK rules, from *at on, each with its rule's digest for the next hostd.
static int batch_live(Batch *batch, const Compiled *compiled, size_t *at) {
        struct nlattr *list;
        int r = elements_begin(batch, batch->live, CHUNK, &list);

        if (r < 0)
                return r;
        for (unsigned n = 0; n < CHUNK && *at < compiled->n; (*at)++) {
                const CompiledRule *rule = &compiled->rules[*at];
                uint32_t mark = mark_of(batch, rule);
                struct nlattr *element;
                if (rule->action != POLICY_ALLOW)
                        continue;
                element = mnl_attr_nest_start(batch->message, NFTA_LIST_ELEM);
                put_value(batch->message, NFTA_SET_ELEM_KEY, &mark, sizeof(mark));
                put_comment(batch->message, NFTA_SET_ELEM_USERDATA, rule->digest);
                mnl_attr_nest_end(batch->message, element);
                n++;
        }
        mnl_attr_nest_end(batch->message, list);
        batch_end(batch);
        return 0;
}

static int batch_next_id(Batch *batch, uint32_t next_id) {
        const uint32_t zero = 0;
        char comment[16];
        struct nlattr *list;
        Expression e;
        int r = rule_begin(batch, &list);

        if (r < 0)
                return r;
        e = expression_begin(batch->message, "ct");
        put_u32(batch->message, NFTA_CT_KEY, NFT_CT_MARK);
        put_u32(batch->message, NFTA_CT_DREG, NFT_REG_1);
        expression_end(batch->message, e);
        compare(batch->message, NFT_CMP_EQ, &zero, sizeof(zero));
        mnl_attr_nest_end(batch->message, list);
        (void) snprintf(comment, sizeof(comment), "%04x", next_id);
        put_comment(batch->message, NFTA_RULE_USERDATA, comment);
        batch_end(batch);
        return 0;
}

static int batch_policy(Batch *batch, const Compiled *compiled, uint32_t next_id) {
        _cleanup_(groups_done) Groups groups = {0};
        int r = groups_new(compiled, &groups);

        if (r >= 0)
                r = batch_flush(batch);
        for (size_t i = 0; i < groups.n && r >= 0; i++)
                r = batch_group(batch, &groups.groups[i]);
        for (size_t at = 0; at < compiled->n && r >= 0;)
                r = batch_live(batch, compiled, &at);
        return r < 0 ? r : batch_next_id(batch, next_id);
}

typedef struct Element {
        const char *set;
        unsigned char key[32];
        size_t size;
        bool interval_end;
        const char *chain; // of a verdict map, else NULL
} Element;

static int batch_element(Batch *batch, const Element *element, bool add) {
        int r = batch_begin(batch, NFNL_SUBSYS_NFTABLES << 8 | (add ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM), add ? NLM_F_CREATE : 0);
        struct nlattr *list, *item, *data, *nest;
        struct nlmsghdr *m;

        if (r < 0)
                return r;
        m = batch->message;
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, "hostd");
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, element->set);
        list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
        item = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
        if (element->interval_end)
                put_u32(m, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
        put_value(m, NFTA_SET_ELEM_KEY, element->key, element->size);
        if (element->chain) {
                data = mnl_attr_nest_start(m, NFTA_SET_ELEM_DATA);
                nest = mnl_attr_nest_start(m, NFTA_DATA_VERDICT);
                put_u32(m, NFTA_VERDICT_CODE, (uint32_t) NFT_GOTO);
                mnl_attr_put_strz(m, NFTA_VERDICT_CHAIN, element->chain);
                mnl_attr_nest_end(m, nest);
                mnl_attr_nest_end(m, data);
        }
        mnl_attr_nest_end(m, item);
        mnl_attr_nest_end(m, list);
        batch_end(batch);
        return 0;
}

// Batch markers apart, each part may be the last: batch->message is then the message to be acknowledged.
static int batch_slot(Batch *batch, const NetworkSettings *settings, uint16_t slot, bool add) {
        static const char *const maps[] = {"out", "in", "host"};
        Element source = {.set = "src4"};
        NetworkAddress address;
        int r;

        network_address(settings, slot, &address);
        memcpy(source.key, address.host_ifname, sizeof(address.host_ifname)); // 16 bytes, padded with NUL, as ifname is kept
        memcpy(source.key + 16, &address.ipv4, 4);
        source.size = 20;
        r = batch_element(batch, &source, add);
        source.set = "src6";
        memcpy(source.key + 16, &address.ipv6, 16);
        source.size = 32;
        if (r >= 0)
                r = batch_element(batch, &source, add);
        for (size_t i = 0; i < ELEMENTS(maps) && r >= 0; i++) {
                char set[16], chain[16];
                Element element = {.set = set, .size = 16, .chain = chain};
                (void) snprintf(set, sizeof(set), "%s_v", maps[i]);
                (void) snprintf(chain, sizeof(chain), "i%04x_%s", slot, maps[i]);
                memcpy(element.key, address.host_ifname, sizeof(address.host_ifname));
                r = batch_element(batch, &element, add);
        }
        return r;
}

// The first address behind the range ends it; the range that ends at the last address has no end.
static bool range_end(const Cidr *range, unsigned char *ret) {
        size_t size = range->family == AF_INET ? 4 : 16;
        unsigned at = range->prefix - 1;

        memcpy(ret, range->bytes, size);
        for (unsigned carry = 0x80U >> at % 8, i = at / 8;; carry = 1, i--) {
                carry += ret[i];
                ret[i] = (unsigned char) carry;
                if (carry < 256)
                        return true;
                if (i == 0)
                        return false;
        }
}

static int batch_deny_set(Batch *batch, int family) {
        const char *set = family == AF_INET ? "deny4" : "deny6";
        int r = batch_flush_set(batch, set);

        for (const char *const *p = denied_ranges(family); *p && r >= 0; p++) {
                Element start = {.set = set, .size = family == AF_INET ? 4 : 16}, end = start;
                Cidr range;
                r = cidr_parse(*p, &range);
                if (r < 0)
                        return r;
                memcpy(start.key, range.bytes, start.size);
                r = batch_element(batch, &start, true);
                end.interval_end = true;
                if (r >= 0 && range_end(&range, end.key))
                        r = batch_element(batch, &end, true);
        }
        return r;
}

static struct mnl_socket *socket_get(void) {
        static struct mnl_socket *kept; // see the head of this file
        int size = 32 * 1024 * 1024;

        if (kept)
                return kept;
        kept = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
        if (!kept)
                return NULL;
        // A batch is one datagram, and it must not block: 4096 rules have some 2 MiB.
        (void) setsockopt(mnl_socket_get_fd(kept), SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
        if (mnl_socket_bind(kept, 0, MNL_SOCKET_AUTOPID) < 0) {
                (void) mnl_socket_close(kept);
                kept = NULL;
        }
        return kept;
}

// Only the last message is acknowledged: an error of any other comes before its answer. What an earlier batch left unread has
// other sequence numbers.
static int batch_send(Batch *batch, uint32_t first) {
        struct mnl_socket *socket = socket_get();
        _cleanup_free_ char *buffer = malloc(NETLINK_BUFFER);
        int r;

        batch->message->nlmsg_flags |= NLM_F_ACK;
        r = batch_marker(batch, NFNL_MSG_BATCH_END);
        if (r < 0 || !buffer)
                return r < 0 ? r : -ENOMEM;
        if (!socket || mnl_socket_sendto(socket, batch->buffer, batch->used) < 0)
                return -errno;
        for (;;) {
                ssize_t got = mnl_socket_recvfrom(socket, buffer, NETLINK_BUFFER);
                int n = (int) got;
                if (got < 0)
                        return -errno;
                for (const struct nlmsghdr *m = (const struct nlmsghdr *) buffer; mnl_nlmsg_ok(m, n); m = mnl_nlmsg_next(m, &n))
                        if (m->nlmsg_type == NLMSG_ERROR && m->nlmsg_seq >= first && m->nlmsg_seq <= batch->sequence)
                                return ((const struct nlmsgerr *) mnl_nlmsg_get_payload(m))->error;
        }
}

struct Transaction {
        Batch batch;
        uint32_t first;
};

static uint32_t last_sequence; // hostd has one thread

int transaction_new(Transaction **ret) {
        _cleanup_(transaction_freep) Transaction *transaction = calloc(1, sizeof(Transaction));
        int r;

        if (!transaction)
                return -ENOMEM;
        transaction->batch.sequence = last_sequence;
        transaction->first = last_sequence + 1;
        r = batch_marker(&transaction->batch, NFNL_MSG_BATCH_BEGIN);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(transaction);
        return 0;
}

Transaction *transaction_free(Transaction *transaction) {
        if (!transaction)
                return NULL;
        free(transaction->batch.buffer);
        free(transaction);
        return NULL;
}

int transaction_deny_sets(Transaction *transaction) {
        int r = batch_deny_set(&transaction->batch, AF_INET);

        return r < 0 ? r : batch_deny_set(&transaction->batch, AF_INET6);
}

int transaction_slot(Transaction *transaction, const NetworkSettings *settings, uint16_t slot) {
        return batch_slot(&transaction->batch, settings, slot, true);
}

int transaction_policy(Transaction *transaction, uint16_t slot, const Compiled *compiled, uint32_t next_id) {
        Batch *batch = &transaction->batch;

        batch->slot = slot;
        (void) snprintf(batch->rules, sizeof(batch->rules), "i%04x_rules", slot);
        (void) snprintf(batch->live, sizeof(batch->live), "i%04x_live", slot);
        (void) snprintf(batch->deny, sizeof(batch->deny), "i%04x_deny", slot);
        (void) snprintf(batch->pass, sizeof(batch->pass), "i%04x_pass", slot);
        return batch_policy(batch, compiled, next_id);
}

int transaction_commit(Transaction *transaction) {
        int r = batch_send(&transaction->batch, transaction->first);

        last_sequence = transaction->batch.sequence;
        return r;
}

int transact_policy(uint16_t slot, const Compiled *compiled, uint32_t next_id) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = transaction_policy(transaction, slot, compiled, next_id);
        return r < 0 ? r : transaction_commit(transaction);
}

int transact_slot(const NetworkSettings *settings, uint16_t slot, bool add) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = batch_slot(&transaction->batch, settings, slot, true);
        if (r >= 0 && !add) // added first, so that removing cannot fail for absence
                r = batch_slot(&transaction->batch, settings, slot, false);
        return r < 0 ? r : transaction_commit(transaction);
}
