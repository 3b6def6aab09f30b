// SPDX-License-Identifier: GPL-2.0-or-later
// Nft: see the header. The context of libnftables is kept: when a netfilter socket is closed, the kernel first waits for everything
// that earlier transactions removed (some 4 to 20 ms of RCU), which is longer than the transaction itself. Its cache is checked by
// the kernel's generation number before each use; it is made anew after a while so that what it cached does not add up.
#include "network/nft.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <libnftnl/chain.h>
#include <libnftnl/expr.h>
#include <libnftnl/object.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/udata.h>
#include <nftables/libnftables.h>
#include <string.h>

#include "base/strv.h"
#include "network/netlink.h"

static void nft_ctx_freep(struct nft_ctx **ctx) {
        if (*ctx)
                nft_ctx_free(*ctx);
}

static int run(struct nft_ctx *ctx, const char *text, const char *purpose, Error *err) {
        const char *said;

        if (!ctx || nft_ctx_buffer_error(ctx) != 0 || nft_ctx_buffer_output(ctx) != 0)
                return error_set_errno(err, ENOMEM, "%s", purpose);
        if (nft_run_cmd_from_buffer(ctx, text) == 0)
                return 0;
        said = nft_ctx_get_error_buffer(ctx);
        return error_set(err, ERR_INTERNAL, "%s: nft refuses: %.*s", purpose, (int) strcspn(said ?: "", "\n"), said ?: "");
}

int nft_apply(const char *text, const char *purpose, Error *err) {
        enum { CONTEXT_USES = 256 };
        static struct nft_ctx *context; // hostd has one thread; so has each test
        static unsigned uses;
        int r;

        if (!context || uses >= CONTEXT_USES) {
                nft_ctx_freep(&context);
                context = nft_ctx_new(NFT_CTX_DEFAULT);
                uses = 0;
        }
        uses++;
        r = run(context, text, purpose, err);
        if (r < 0) {
                nft_ctx_freep(&context); // after an error its cache is not to be trusted
                context = NULL;
        }
        return r;
}

int nft_list(const char *commands, char **ret, Error *err) {
        _cleanup_(nft_ctx_freep) struct nft_ctx *ctx = nft_ctx_new(NFT_CTX_DEFAULT);
        int r;

        if (ctx)
                nft_ctx_output_set_flags(ctx, NFT_CTX_OUTPUT_NUMERIC_ALL);
        r = run(ctx, commands, "listing the firewall", err);
        if (r < 0)
                return r;
        *ret = strdup(nft_ctx_get_output_buffer(ctx) ?: "");
        return *ret ? 0 : error_set_errno(err, ENOMEM, "listing the firewall");
}

static struct nlmsghdr *request_new(char *buffer, unsigned subsystem, unsigned type, int family) {
        struct nlmsghdr *message = mnl_nlmsg_put_header(buffer);
        struct nfgenmsg *generic;

        message->nlmsg_type = (uint16_t) (subsystem << 8 | type);
        message->nlmsg_flags = NLM_F_REQUEST;
        generic = mnl_nlmsg_put_extra_header(message, sizeof(*generic));
        generic->nfgen_family = (uint8_t) family;
        generic->version = NFNETLINK_V0;
        return message;
}

// Two numbers of an object, and whether there is such a one.
typedef struct ObjectRead {
        uint32_t type; // NFT_OBJECT_*
        uint16_t attributes[2];
        uint64_t values[2];
        bool found;
} ObjectRead;

static int object_read(const struct nlmsghdr *message, void *userdata) {
        ObjectRead *read = userdata;
        struct nftnl_obj *object = nftnl_obj_alloc();

        if (!object)
                return -ENOMEM;
        if (nftnl_obj_nlmsg_parse(message, object) >= 0) {
                for (size_t i = 0; i < ELEMENTS(read->values); i++)
                        read->values[i] = nftnl_obj_get_u64(object, read->attributes[i]);
                read->found = true;
        }
        nftnl_obj_free(object);
        return 0;
}

static int object_get(int family, const char *name, ObjectRead *read) {
        char buffer[1024];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETOBJ, family);
        int r;

        message->nlmsg_flags |= NLM_F_ACK;
        mnl_attr_put_strz(message, NFTA_OBJ_TABLE, "hostd");
        mnl_attr_put_strz(message, NFTA_OBJ_NAME, name);
        mnl_attr_put_u32(message, NFTA_OBJ_TYPE, htonl(read->type));
        r = netlink_talk(NETLINK_NETFILTER, message, object_read, read);
        return r < 0 || read->found ? r : -ENOENT;
}

int nft_counter(int family, const char *name, uint64_t *ret_packets, uint64_t *ret_bytes) {
        ObjectRead read = {.type = NFT_OBJECT_COUNTER, .attributes = {NFTNL_OBJ_CTR_PKTS, NFTNL_OBJ_CTR_BYTES}};
        int r = object_get(family, name, &read);

        if (r < 0)
                return r;
        *ret_packets = read.values[0];
        *ret_bytes = read.values[1];
        return 0;
}

int nft_quota(const char *name, uint64_t *ret_used) {
        ObjectRead read = {.type = NFT_OBJECT_QUOTA, .attributes = {NFTNL_OBJ_QUOTA_CONSUMED, NFTNL_OBJ_QUOTA_BYTES}};
        int r = object_get(NFPROTO_INET, name, &read);

        if (r < 0)
                return r;
        *ret_used = read.values[0];
        return 0;
}

typedef struct ChainVisit { NftChainHandler fn; void *userdata; } ChainVisit;

static int chain_read(const struct nlmsghdr *message, void *userdata) {
        ChainVisit *visit = userdata;
        struct nftnl_chain *chain = nftnl_chain_alloc();
        NftChain seen = {0};
        int r = 0;

        if (!chain)
                return -ENOMEM;
        if (nftnl_chain_nlmsg_parse(message, chain) >= 0) {
                seen.family = (int) nftnl_chain_get_u32(chain, NFTNL_CHAIN_FAMILY);
                seen.table = nftnl_chain_get_str(chain, NFTNL_CHAIN_TABLE);
                seen.name = nftnl_chain_get_str(chain, NFTNL_CHAIN_NAME);
                if (nftnl_chain_is_set(chain, NFTNL_CHAIN_HOOKNUM)) {
                        seen.type = nftnl_chain_get_str(chain, NFTNL_CHAIN_TYPE);
                        seen.hook = nftnl_chain_get_u32(chain, NFTNL_CHAIN_HOOKNUM);
                        seen.policy = nftnl_chain_get_u32(chain, NFTNL_CHAIN_POLICY);
                }
                r = visit->fn(&seen, visit->userdata);
        }
        nftnl_chain_free(chain);
        return r;
}

int nft_chains(NftChainHandler fn, void *userdata) {
        char buffer[1024];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETCHAIN, NFPROTO_UNSPEC);
        ChainVisit visit = {fn, userdata};

        message->nlmsg_flags |= NLM_F_DUMP;
        return netlink_talk(NETLINK_NETFILTER, message, chain_read, &visit);
}

typedef struct CommentVisit { NftCommentHandler fn; void *userdata; } CommentVisit;

static int comment_find(const struct nftnl_udata *attr, void *userdata) {
        const char **comment = userdata;
        const char *value = nftnl_udata_get(attr);
        uint8_t size = nftnl_udata_len(attr);

        // Type 0 is the comment in nft's own layout of user data, a string with its NUL.
        if (nftnl_udata_type(attr) == NFTNL_UDATA_RULE_COMMENT && size > 0 && value[size - 1] == 0)
                *comment = value;
        return 0;
}

static int comment_read(const struct nlmsghdr *message, void *userdata) {
        CommentVisit *visit = userdata;
        struct nftnl_rule *rule = nftnl_rule_alloc();
        const char *comment = NULL;
        int r = 0;

        if (!rule)
                return -ENOMEM;
        if (nftnl_rule_nlmsg_parse(message, rule) >= 0 && nftnl_rule_is_set(rule, NFTNL_RULE_USERDATA)) {
                uint32_t size;
                const void *data = nftnl_rule_get_data(rule, NFTNL_RULE_USERDATA, &size);
                (void) nftnl_udata_parse(data, size, comment_find, &comment);
                if (comment)
                        r = visit->fn(comment, visit->userdata);
        }
        nftnl_rule_free(rule);
        return r;
}

int nft_comments(const char *chain, NftCommentHandler fn, void *userdata) {
        char buffer[1024];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETRULE, NFPROTO_INET);
        CommentVisit visit = {fn, userdata};

        message->nlmsg_flags |= NLM_F_DUMP;
        mnl_attr_put_strz(message, NFTA_RULE_TABLE, "hostd");
        mnl_attr_put_strz(message, NFTA_RULE_CHAIN, chain);
        return netlink_talk(NETLINK_NETFILTER, message, comment_read, &visit);
}

typedef struct MarkVisit { NftMarkHandler fn; void *userdata; } MarkVisit;

static int mark_visit(struct nftnl_set_elem *element, void *userdata) {
        MarkVisit *visit = userdata;
        const char *comment = NULL;
        const void *data;
        uint32_t size, mark;

        data = nftnl_set_elem_get(element, NFTNL_SET_ELEM_KEY, &size);
        if (!data || size != sizeof(mark))
                return 0;
        memcpy(&mark, data, sizeof(mark));
        data = nftnl_set_elem_is_set(element, NFTNL_SET_ELEM_USERDATA) ? nftnl_set_elem_get(element, NFTNL_SET_ELEM_USERDATA, &size) : NULL;
        if (data) // type 0 is the comment here as well
                (void) nftnl_udata_parse(data, size, comment_find, &comment);
        return comment ? visit->fn(mark, comment, visit->userdata) : 0;
}

// Elements of a set or a map, one after the other.
typedef struct ElementsVisit { int (*fn)(struct nftnl_set_elem *element, void *userdata); void *userdata; } ElementsVisit;

static int elements_read(const struct nlmsghdr *message, void *userdata) {
        const ElementsVisit *visit = userdata;
        struct nftnl_set *set = nftnl_set_alloc();
        int r = 0;

        if (!set)
                return -ENOMEM;
        if (nftnl_set_elems_nlmsg_parse(message, set) >= 0)
                r = nftnl_set_elem_foreach(set, visit->fn, visit->userdata);
        nftnl_set_free(set);
        return r;
}

static int elements_dump(const char *set, ElementsVisit visit) {
        char buffer[1024];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETSETELEM, NFPROTO_INET);

        message->nlmsg_flags |= NLM_F_DUMP;
        mnl_attr_put_strz(message, NFTA_SET_ELEM_LIST_TABLE, "hostd");
        mnl_attr_put_strz(message, NFTA_SET_ELEM_LIST_SET, set);
        return netlink_talk(NETLINK_NETFILTER, message, elements_read, &visit);
}

int nft_marks(const char *set, NftMarkHandler fn, void *userdata) {
        MarkVisit visit = {fn, userdata};

        return elements_dump(set, (ElementsVisit) {mark_visit, &visit});
}

typedef struct SourceVisit { NftSourceHandler fn; void *userdata; } SourceVisit;

static int source_visit(struct nftnl_set_elem *element, void *userdata) {
        SourceVisit *visit = userdata;
        char ifname[17] = "";
        uint32_t size;
        const void *key = nftnl_set_elem_get(element, NFTNL_SET_ELEM_KEY, &size);

        if (!key || size < 16)
                return 0;
        memcpy(ifname, key, 16);
        return visit->fn(ifname, visit->userdata);
}

int nft_sources(NftSourceHandler fn, void *userdata) {
        SourceVisit visit = {fn, userdata};

        return elements_dump("src4", (ElementsVisit) {source_visit, &visit});
}

typedef struct MapVisit {
        NftNameHandler name;
        NftExposedHandler exposed;
        void *userdata;
        size_t address; // bytes
} MapVisit;

// Keys are of whole registers: (address,) protocol, port.
static int name_visit(const unsigned char *key, struct nftnl_set_elem *element, const MapVisit *visit) {
        NftNameElement found = {.family = visit->address == 4 ? AF_INET : AF_INET6, .left_ms = nftnl_set_elem_get_u64(element, NFTNL_SET_ELEM_EXPIRATION)};
        const void *data;
        uint32_t n;

        memcpy(found.address, key, visit->address);
        found.protocol = key[visit->address];
        found.port = (uint16_t) (key[visit->address + 4] << 8 | key[visit->address + 5]);
        data = nftnl_set_elem_get(element, NFTNL_SET_ELEM_DATA, &n);
        if (!data || n != sizeof(found.mark))
                return 0;
        memcpy(&found.mark, data, sizeof(found.mark));
        return visit->name(&found, visit->userdata);
}

static int exposed_visit(const unsigned char *key, struct nftnl_set_elem *element, const MapVisit *visit) {
        NftExposed found = {.family = visit->address == 4 ? AF_INET : AF_INET6, .protocol = key[0], .port = (uint16_t) (key[4] << 8 | key[5])};
        const void *data;
        uint32_t n;

        data = nftnl_set_elem_get(element, NFTNL_SET_ELEM_DATA, &n);
        if (!data || n < visit->address)
                return 0;
        memcpy(found.address, data, visit->address);
        return visit->exposed(&found, visit->userdata);
}

static int map_visit(struct nftnl_set_elem *element, void *userdata) {
        const MapVisit *visit = userdata;
        const unsigned char *key;
        uint32_t n;

        key = nftnl_set_elem_get(element, NFTNL_SET_ELEM_KEY, &n);
        if (!key || n != (visit->name ? visit->address + 8 : 8))
                return 0;
        return visit->name ? name_visit(key, element, visit) : exposed_visit(key, element, visit);
}

int nft_names_map(const char *map, int family, NftNameHandler fn, void *userdata) {
        MapVisit visit = {.name = fn, .userdata = userdata, .address = family == AF_INET ? 4 : 16};

        return elements_dump(map, (ElementsVisit) {map_visit, &visit});
}

int nft_exposed(const char *map, int family, NftExposedHandler fn, void *userdata) {
        MapVisit visit = {.exposed = fn, .userdata = userdata, .address = family == AF_INET ? 4 : 16};

        return elements_dump(map, (ElementsVisit) {map_visit, &visit});
}

typedef struct RuleVisit { NftRuleHandler fn; void *userdata; } RuleVisit;

// Registers are followed no further than from one expression to the next: that is how nft and iptables write interfaces.
typedef struct RuleReader {
        NftRule rule;
        char *asked; // where the next comparison's name goes, NULL if it is none of an interface
        unsigned questions, names; // all, and those for interfaces
} RuleReader;

static void read_immediate(RuleReader *reader, const struct nftnl_expr *expr) {
        if (!nftnl_expr_is_set(expr, NFTNL_EXPR_IMM_VERDICT))
                return;
        int32_t verdict = (int32_t) nftnl_expr_get_u32(expr, NFTNL_EXPR_IMM_VERDICT);
        bool chain = verdict == NFT_JUMP || verdict == NFT_GOTO;

        reader->rule.verdict = verdict == NF_ACCEPT ? NFT_VERDICT_ACCEPT : verdict == NF_DROP ? NFT_VERDICT_DROP : chain ? NFT_VERDICT_CHAIN : NFT_VERDICT_OTHER;
        reader->rule.chain = chain ? nftnl_expr_get_str(expr, NFTNL_EXPR_IMM_CHAIN) : NULL;
}

static void read_meta(RuleReader *reader, const struct nftnl_expr *expr) {
        uint32_t key = nftnl_expr_get_u32(expr, NFTNL_EXPR_META_KEY);

        reader->asked = key == NFT_META_IIFNAME ? reader->rule.iif : key == NFT_META_OIFNAME ? reader->rule.oif : NULL;
        reader->names += reader->asked != NULL;
        reader->questions++;
}

static void read_compare(RuleReader *reader, const struct nftnl_expr *expr) {
        uint32_t size = 0;
        const char *data = nftnl_expr_get(expr, NFTNL_EXPR_CMP_DATA, &size);

        if (!reader->asked)
                return;
        if (nftnl_expr_get_u32(expr, NFTNL_EXPR_CMP_OP) == NFT_CMP_EQ && data && size <= 16)
                memcpy(reader->asked, data, strnlen(data, size)); // the rest is NULs
        else
                reader->questions++; // "not this one" and the like
        reader->asked = NULL;
}

static int read_expression(struct nftnl_expr *expr, void *userdata) {
        const char *name = nftnl_expr_get_str(expr, NFTNL_EXPR_NAME);
        RuleReader *reader = userdata;

        if (strcmp(name, "immediate") == 0)
                read_immediate(reader, expr);
        else if (strcmp(name, "reject") == 0)
                reader->rule.verdict = NFT_VERDICT_REJECT;
        else if (strcmp(name, "meta") == 0)
                read_meta(reader, expr);
        else if (strcmp(name, "cmp") == 0)
                read_compare(reader, expr);
        else if (strcmp(name, "counter") != 0 && strcmp(name, "log") != 0) {
                reader->questions++;
                reader->rule.states |= strcmp(name, "ct") == 0 && nftnl_expr_get_u32(expr, NFTNL_EXPR_CT_KEY) == NFT_CT_STATE;
        }
        return 0;
}

static int rule_read(const struct nlmsghdr *message, void *userdata) {
        struct nftnl_rule *rule = nftnl_rule_alloc();
        RuleVisit *visit = userdata;
        RuleReader reader = {0};
        int r = 0;

        if (!rule)
                return -ENOMEM;
        if (nftnl_rule_nlmsg_parse(message, rule) >= 0) {
                (void) nftnl_expr_foreach(rule, read_expression, &reader);
                reader.rule.always = reader.questions == 0;
                reader.rule.interfaces = reader.questions > 0 && reader.questions == reader.names;
                r = visit->fn(&reader.rule, visit->userdata);
        }
        nftnl_rule_free(rule);
        return r;
}

int nft_rules(const NftPlace *place, NftRuleHandler fn, void *userdata) {
        char buffer[1024];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETRULE, place->family);
        RuleVisit visit = {fn, userdata};

        message->nlmsg_flags |= NLM_F_DUMP;
        mnl_attr_put_strz(message, NFTA_RULE_TABLE, place->table);
        mnl_attr_put_strz(message, NFTA_RULE_CHAIN, place->chain);
        return netlink_talk(NETLINK_NETFILTER, message, rule_read, &visit);
}

static int generation_read(const struct nlmsghdr *message, void *userdata) {
        struct nlattr *attr;

        mnl_attr_for_each(attr, message, sizeof(struct nfgenmsg))
                if (mnl_attr_get_type(attr) == NFTA_GEN_PROC_PID)
                        *(uint32_t *) userdata = ntohl(mnl_attr_get_u32(attr));
        return 0;
}

int nft_own_pid(uint32_t *ret) {
        char buffer[256];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN, NFPROTO_UNSPEC);

        *ret = 0;
        message->nlmsg_flags |= NLM_F_ACK;
        return netlink_talk(NETLINK_NETFILTER, message, generation_read, ret);
}

int nft_forget_flows(uint32_t mark, uint32_t mask) {
        char buffer[256];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE, AF_UNSPEC);

        message->nlmsg_flags |= NLM_F_ACK;
        mnl_attr_put_u32(message, CTA_MARK, htonl(mark));
        mnl_attr_put_u32(message, CTA_MARK_MASK, htonl(mask));
        return netlink_talk(NETLINK_NETFILTER, message, NULL, NULL);
}

typedef struct FlowVisit {
        const NftFlows *flows;
        char *found; // attributes CTA_TUPLE_ORIG, one behind the other
        size_t size;
} FlowVisit;

static const struct nlattr *attr_in(const struct nlattr *nest, uint16_t type) {
        const struct nlattr *attr;

        mnl_attr_for_each_nested(attr, nest)
                if (mnl_attr_get_type(attr) == type)
                        return attr;
        return NULL;
}

static bool tuple_is_of(const struct nlattr *tuple, const NftFlows *flows) {
        bool four = flows->family == AF_INET;
        const struct nlattr *ip = attr_in(tuple, CTA_TUPLE_IP), *source = ip ? attr_in(ip, four ? CTA_IP_V4_SRC : CTA_IP_V6_SRC) : NULL;
        size_t size = four ? 4 : 16;

        return source && mnl_attr_get_payload_len(source) == size && memcmp(mnl_attr_get_payload(source), flows->address, size) == 0;
}

static int flow_read(const struct nlmsghdr *message, void *userdata) {
        FlowVisit *visit = userdata;
        const struct nlattr *attr;

        mnl_attr_for_each(attr, message, sizeof(struct nfgenmsg)) {
                size_t size = MNL_ALIGN(attr->nla_len);
                char *found;
                if (mnl_attr_get_type(attr) != CTA_TUPLE_ORIG || !tuple_is_of(attr, visit->flows))
                        continue;
                found = realloc(visit->found, visit->size + size);
                if (!found)
                        return -ENOMEM;
                memcpy(found + visit->size, attr, attr->nla_len);
                visit->found = found;
                visit->size += size;
        }
        return 0;
}

static int flow_delete(int family, const struct nlattr *tuple) {
        char buffer[1024];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE, (uint8_t) family);
        int r;

        if (tuple->nla_len > sizeof(buffer) / 2)
                return -EINVAL;
        message->nlmsg_flags |= NLM_F_ACK;
        mnl_attr_put(message, CTA_TUPLE_ORIG | NLA_F_NESTED, mnl_attr_get_payload_len(tuple), mnl_attr_get_payload(tuple));
        r = netlink_talk(NETLINK_NETFILTER, message, NULL, NULL);
        return r == -ENOENT ? 0 : r; // it ended meanwhile
}

// First all, then their deletions: in the middle of a dump they would interrupt it.
int nft_forget_flows_of(const NftFlows *flows) {
        char buffer[256];
        struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET, (uint8_t) flows->family);
        FlowVisit visit = {.flows = flows};
        int r;

        message->nlmsg_flags |= NLM_F_DUMP;
        mnl_attr_put_u32(message, CTA_MARK, htonl(flows->mark));
        mnl_attr_put_u32(message, CTA_MARK_MASK, htonl(flows->mask));
        r = netlink_talk(NETLINK_NETFILTER, message, flow_read, &visit);
        for (size_t at = 0; at < visit.size && r >= 0;) {
                const struct nlattr *tuple = (const struct nlattr *) (visit.found + at);
                at += MNL_ALIGN(tuple->nla_len);
                r = flow_delete(flows->family, tuple);
        }
        free(visit.found);
        return r;
}

typedef struct NameVisit { char ***names; uint16_t attribute; } NameVisit;

// Attribute 1 is the table's name in each of these messages.
static int name_read(const struct nlmsghdr *message, void *userdata) {
        NameVisit *visit = userdata;
        const char *table = NULL, *name = NULL;
        struct nlattr *attr;

        mnl_attr_for_each(attr, message, sizeof(struct nfgenmsg)) {
                if (mnl_attr_get_type(attr) == NFTA_SET_TABLE)
                        table = mnl_attr_get_str(attr);
                if (mnl_attr_get_type(attr) == visit->attribute)
                        name = mnl_attr_get_str(attr);
        }
        return table && name && strcmp(table, "hostd") == 0 ? strv_append(visit->names, name) : 0;
}

int nft_names(char ***names) {
        static const struct { unsigned type; uint16_t attribute; } kinds[] = {
                {NFT_MSG_GETCHAIN, NFTA_CHAIN_NAME}, {NFT_MSG_GETSET, NFTA_SET_NAME}, {NFT_MSG_GETOBJ, NFTA_OBJ_NAME},
        };

        for (size_t i = 0; i < ELEMENTS(kinds); i++) {
                char buffer[256];
                struct nlmsghdr *message = request_new(buffer, NFNL_SUBSYS_NFTABLES, kinds[i].type, NFPROTO_UNSPEC);
                NameVisit visit = {names, kinds[i].attribute};
                message->nlmsg_flags |= NLM_F_DUMP;
                int r = netlink_talk(NETLINK_NETFILTER, message, name_read, &visit);
                if (r < 0)
                        return r;
        }
        return 0;
}
