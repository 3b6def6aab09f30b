// SPDX-License-Identifier: GPL-2.0-or-later
// Transact, policy: the rules of a slot as messages. They are what nft makes of the text of ruleset_policy(), byte for byte, so that `nft list`
// shows them alike; the integration test compares both.
#include "network/transact_batch.h"

#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <linux/netfilter/nf_nat.h>
#include <string.h>

#include "network/group.h"

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

static void load_meta_to(struct nlmsghdr *message, uint32_t key, uint32_t to) {
        Expression e = expression_begin(message, "meta");

        put_u32(message, NFTA_META_KEY, key);
        put_u32(message, NFTA_META_DREG, to);
        expression_end(message, e);
}

static void load_meta(struct nlmsghdr *message, uint32_t key) {
        load_meta_to(message, key, NFT_REG_1);
}

static void load_mark_of_connection(struct nlmsghdr *message) {
        Expression e = expression_begin(message, "ct");

        put_u32(message, NFTA_CT_KEY, NFT_CT_MARK);
        put_u32(message, NFTA_CT_DREG, NFT_REG_1);
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

static void load_value(struct nlmsghdr *message, const void *data, size_t size) {
        Expression e = expression_begin(message, "immediate");

        put_u32(message, NFTA_IMMEDIATE_DREG, NFT_REG_1);
        put_value(message, NFTA_IMMEDIATE_DATA, data, size);
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
        int r = batch_begin_of(batch, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, batch->chain);

        if (r >= 0)
                *ret = mnl_attr_nest_start(batch->message, NFTA_RULE_EXPRESSIONS);
        return r;
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

static void look_up_set(struct nlmsghdr *message, const char *set, bool map) {
        Expression e = expression_begin(message, "lookup");

        mnl_attr_put_strz(message, NFTA_LOOKUP_SET, set);
        put_u32(message, NFTA_LOOKUP_SREG, NFT_REG_1);
        if (map)
                put_u32(message, NFTA_LOOKUP_DREG, NFT_REG_1);
        expression_end(message, e);
}

static void verdict_of(Batch *batch, const CompiledRule *rule) {
        if (rule->action == POLICY_ALLOW) {
                set_mark(batch->message);
                if (rule->until) {
                        load_mark_of_connection(batch->message);
                        look_up_set(batch->message, batch->live, false);
                }
                verdict(batch->message, NFT_GOTO, batch->pass);
        } else {
                verdict(batch->message, batch->denied ? NFT_GOTO : NFT_RETURN, batch->denied);
        }
}

static int batch_line(Batch *batch, const RuleLine *line) {
        uint32_t mark = mark_of(batch, line->rule);
        struct nlattr *list;
        int r = rule_begin(batch, &list);

        if (r < 0)
                return r;
        match_line(batch, line, NULL);
        if (line->rule->action == POLICY_ALLOW)
                load_value(batch->message, &mark, sizeof(mark)); // host order, as the kernel keeps marks
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
        int r = batch_begin_of(batch, NFT_MSG_NEWSET, NLM_F_CREATE, set_name(group));

        if (r < 0)
                return r;
        m = batch->message;
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
                r = batch_begin_of(batch, NFT_MSG_NEWSETELEM, NLM_F_CREATE, set);
        if (r < 0)
                return r;
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

// The marks of up to CHUNK rules, from *at on, each with its rule's digest for the next hostd.
static int batch_live(Batch *batch, const PolicyText *text, size_t *at) {
        const Compiled *compiled = text->compiled;
        struct nlattr *list;
        int r = elements_begin(batch, batch->live, CHUNK, &list);

        if (r < 0)
                return r;
        for (unsigned n = 0; n < CHUNK && *at < compiled->n; (*at)++) {
                const CompiledRule *rule = &compiled->rules[*at];
                uint32_t mark = mark_of(batch, rule);
                struct nlattr *element;
                if (!compiled_rule_is_marked(rule))
                        continue;
                element = mnl_attr_nest_start(batch->message, NFTA_LIST_ELEM);
                put_value(batch->message, NFTA_SET_ELEM_KEY, &mark, sizeof(mark));
                if (ruleset_live_until(text, rule))
                        mnl_attr_put_u64(batch->message, NFTA_SET_ELEM_TIMEOUT, htobe64(ruleset_left_ms(ruleset_live_until(text, rule))));
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
        int r = rule_begin(batch, &list);

        if (r < 0)
                return r;
        load_mark_of_connection(batch->message);
        compare(batch->message, NFT_CMP_EQ, &zero, sizeof(zero));
        mnl_attr_nest_end(batch->message, list);
        (void) snprintf(comment, sizeof(comment), "%04x", next_id);
        put_comment(batch->message, NFTA_RULE_USERDATA, comment);
        batch_end(batch);
        return 0;
}

static int batch_groups(Batch *batch, const Compiled *compiled) {
        _cleanup_(groups_done) Groups groups = {0};
        int r = groups_new(compiled, &groups);

        for (size_t i = 0; i < groups.n && r >= 0; i++)
                r = batch_group(batch, &groups.groups[i]);
        return r;
}

static void match_redirect(struct nlmsghdr *message, const Redirect *redirect) {
        load_meta(message, NFT_META_L4PROTO);
        compare(message, NFT_CMP_EQ, &redirect->protocol, sizeof(redirect->protocol));
        load_original(message, NFT_CT_PROTO_DST);
        compare_port(message, NFT_CMP_EQ, redirect->from);
}

// What the proxy should have got is not forwarded.
static int batch_not_forwarded(Batch *batch, const Redirect *redirect) {
        struct nlattr *list;
        int r = rule_begin(batch, &list);

        if (r < 0)
                return r;
        match_redirect(batch->message, redirect);
        verdict(batch->message, NFT_GOTO, batch->deny);
        mnl_attr_nest_end(batch->message, list);
        batch_end(batch);
        return 0;
}

// As policy_rules() of ruleset.c.
static int batch_rules(Batch *batch, const Compiled *compiled) {
        Redirect proxied[REDIRECTS_MAX];
        size_t n = redirects_of_policy(compiled, proxied);
        Compiled front, behind;
        int r;

        redirects_split(compiled, &front, &behind);
        r = batch_groups(batch, &front);
        for (size_t i = 0; i < n && r >= 0; i++)
                r = batch_not_forwarded(batch, &proxied[i]);
        return r < 0 ? r : batch_groups(batch, &behind);
}

static int batch_redirect(Batch *batch, const Redirect *redirect) {
        uint16_t to = htons(redirect->to);
        struct nlattr *list;
        Expression e;
        int r = rule_begin(batch, &list);

        if (r < 0)
                return r;
        match_redirect(batch->message, redirect);
        load_value(batch->message, &to, sizeof(to));
        e = expression_begin(batch->message, "redir");
        put_u32(batch->message, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
        put_u32(batch->message, NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
        expression_end(batch->message, e);
        mnl_attr_nest_end(batch->message, list);
        batch_end(batch);
        return 0;
}

static int batch_nat(Batch *batch, const PolicyText *text) {
        Redirect dns[REDIRECTS_MAX], names[REDIRECTS_MAX];
        size_t n_dns = redirects_dns(text, dns), n_names = redirects_names(text, names);
        Compiled front = {0};
        int r = redirects_in_front(text, &front);

        batch->chain = batch->nat;
        batch->denied = NULL;
        for (size_t i = 0; i < n_dns && r >= 0; i++)
                r = batch_redirect(batch, &dns[i]);
        if (r >= 0 && n_names > 0)
                r = batch_groups(batch, &front);
        for (size_t i = 0; i < n_names && r >= 0; i++)
                r = batch_redirect(batch, &names[i]);
        batch->chain = batch->rules;
        batch->denied = batch->deny;
        free(front.rules);
        return r;
}

// As policy_names() of ruleset.c. The key is of whole registers: address, protocol, port.
static int batch_names(Batch *batch, int family, uint8_t protocol) {
        bool four = family == AF_INET;
        uint8_t nfproto = four ? NFPROTO_IPV4 : NFPROTO_IPV6;
        struct nlattr *list;
        int r = rule_begin(batch, &list);

        if (r < 0)
                return r;
        load_meta(batch->message, NFT_META_NFPROTO);
        compare(batch->message, NFT_CMP_EQ, &nfproto, sizeof(nfproto));
        load_meta(batch->message, NFT_META_L4PROTO);
        compare(batch->message, NFT_CMP_EQ, &protocol, sizeof(protocol));
        load_original(batch->message, four ? NFT_CT_DST_IP : NFT_CT_DST_IP6);
        load_meta_to(batch->message, NFT_META_L4PROTO, four ? NFT_REG32_01 : NFT_REG_2);
        load_original_to(batch->message, NFT_CT_PROTO_DST, four ? NFT_REG32_02 : NFT_REG32_05);
        look_up_set(batch->message, four ? batch->names4 : batch->names6, true);
        set_mark(batch->message);
        load_mark_of_connection(batch->message);
        look_up_set(batch->message, batch->live, false);
        verdict(batch->message, NFT_GOTO, batch->pass);
        mnl_attr_nest_end(batch->message, list);
        batch_end(batch);
        return 0;
}

static int batch_all_names(Batch *batch) {
        int r = batch_names(batch, AF_INET, IPPROTO_TCP);

        if (r >= 0)
                r = batch_names(batch, AF_INET, IPPROTO_UDP);
        if (r >= 0)
                r = batch_names(batch, AF_INET6, IPPROTO_TCP);
        return r < 0 ? r : batch_names(batch, AF_INET6, IPPROTO_UDP);
}

static int batch_policy(Batch *batch, const PolicyText *text) {
        const Compiled *compiled = text->compiled;
        int r = batch_flush(batch, NFT_MSG_DELRULE, batch->rules);

        if (r >= 0)
                r = batch_flush(batch, NFT_MSG_DELRULE, batch->nat);
        if (r >= 0)
                r = batch_flush(batch, NFT_MSG_DELSETELEM, batch->live);
        if (r >= 0 && text->ids_anew)
                r = batch_flush(batch, NFT_MSG_DELSETELEM, batch->names4);
        if (r >= 0 && text->ids_anew)
                r = batch_flush(batch, NFT_MSG_DELSETELEM, batch->names6);
        if (r >= 0 && redirects_has_names_map(text))
                r = batch_all_names(batch);
        if (r >= 0)
                r = batch_rules(batch, compiled);
        if (r >= 0)
                r = batch_nat(batch, text);
        for (size_t at = 0; at < compiled->n && r >= 0;)
                r = batch_live(batch, text, &at);
        return r < 0 ? r : batch_next_id(batch, text->next_id);
}

int transaction_policy(Transaction *transaction, const PolicyText *text) {
        Batch *batch = &transaction->batch;

        batch->slot = text->slot;
        (void) snprintf(batch->rules, sizeof(batch->rules), "i%04x_rules", text->slot);
        (void) snprintf(batch->nat, sizeof(batch->nat), "i%04x_nat", text->slot);
        (void) snprintf(batch->live, sizeof(batch->live), "i%04x_live", text->slot);
        (void) snprintf(batch->deny, sizeof(batch->deny), "i%04x_deny", text->slot);
        (void) snprintf(batch->pass, sizeof(batch->pass), "i%04x_pass", text->slot);
        (void) snprintf(batch->names4, sizeof(batch->names4), "i%04x_names4", text->slot);
        (void) snprintf(batch->names6, sizeof(batch->names6), "i%04x_names6", text->slot);
        batch->chain = batch->rules;
        batch->denied = batch->deny;
        return batch_policy(batch, text);
}
