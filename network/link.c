// SPDX-License-Identifier: GPL-2.0-or-later
// Link: rtnetlink by libmnl, no `ip`.
//
// The ip rules, in order (all behind "local", before everything else):
//    90  from the host itself to the pools: main
//    91  marked by our chains: main
//    92  to the pools: blackhole
//    93  in from hvNNNN: blackhole
//    100 and more: in from a sandbox's: blackhole. The later a sandbox's number, the further in front, because the kernel
//        walks past all rules in front of a new one
// A foreign "flush ruleset" takes the chains and with them the mark: nothing is forwarded to or from an instance any more.
// What it does not close is the host's own sockets (table local comes first); that is why the table is back within a second.
#include "network/link.h"

#include <arpa/inet.h>
#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>

#include "base/io.h"
#include "network/netlink.h"
#include "network/peer.h"
#include "network/ruleset.h"

enum { RULE_HOST = 90, RULE_MARKED = 91, RULE_POOL = 92, RULE_VETH = 93, RULE_SANDBOX = 100, RULE_LAST = RULE_SANDBOX + NETWORK_SANDBOX_LAST - NETWORK_SANDBOX_FIRST };
#define MESSAGE_SIZE 1024

static struct nlmsghdr *message_new(char *buffer, unsigned type, unsigned flags) {
        struct nlmsghdr *message = mnl_nlmsg_put_header(buffer);

        message->nlmsg_type = (uint16_t) type;
        message->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | NLM_F_ACK | flags);
        return message;
}

static int talk_new(struct nlmsghdr *message) {
        int r = netlink_talk(NETLINK_ROUTE, message, NULL, NULL);

        return r == -EEXIST ? 0 : r;
}

bool link_exists(const char *ifname) {
        return if_nametoindex(ifname) != 0;
}

int link_list(const char *prefix, char ***ret) {
        struct if_nameindex *list = if_nameindex();
        _cleanup_strv_ char **names = NULL;
        int r = list ? 0 : -errno;

        for (struct if_nameindex *i = list; r >= 0 && i->if_index; i++)
                if (strncmp(i->if_name, prefix, strlen(prefix)) == 0)
                        r = strv_append(&names, i->if_name);
        if (list)
                if_freenameindex(list);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(names);
        return 0;
}

// `flags`: of the host's end and of the guest's.
static int create(const NetworkAddress *address, int netns, const unsigned flags[2], Error *err) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = message_new(buffer, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
        struct ifinfomsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
        struct nlattr *info, *data, *peer;
        int r;

        header->ifi_flags = header->ifi_change = flags[0];
        mnl_attr_put_strz(message, IFLA_IFNAME, address->host_ifname);
        mnl_attr_put(message, IFLA_ADDRESS, sizeof(address->host_mac), address->host_mac);
        info = mnl_attr_nest_start(message, IFLA_LINKINFO);
        mnl_attr_put_strz(message, IFLA_INFO_KIND, "veth");
        data = mnl_attr_nest_start(message, IFLA_INFO_DATA);
        peer = mnl_attr_nest_start(message, VETH_INFO_PEER);
        header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
        header->ifi_flags = header->ifi_change = flags[1];
        mnl_attr_put_strz(message, IFLA_IFNAME, PEER_IFNAME);
        mnl_attr_put(message, IFLA_ADDRESS, sizeof(address->mac), address->mac);
        // Born there: moving a device to another namespace makes the kernel wait for all readers of its tables, several times.
        mnl_attr_put_u32(message, IFLA_NET_NS_FD, (uint32_t) netns);
        mnl_attr_nest_end(message, peer);
        mnl_attr_nest_end(message, data);
        mnl_attr_nest_end(message, info);
        r = netlink_talk(NETLINK_ROUTE, message, NULL, NULL);
        return r < 0 ? error_set_errno(err, r, "making the interface %s", address->host_ifname) : 0;
}

int link_create_veth(const NetworkAddress *address, int netns, Error *err) {
        return create(address, netns, (const unsigned[2]) {0, 0}, err);
}

int link_create_sandbox(const NetworkAddress *address, int netns, Error *err) {
        return create(address, netns, (const unsigned[2]) {IFF_NOARP, IFF_NOARP}, err);
}

int link_delete_index(unsigned index) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = message_new(buffer, RTM_DELLINK, 0);
        struct ifinfomsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
        int r;

        if (index == 0)
                return 0;
        header->ifi_index = (int) index;
        r = netlink_talk(NETLINK_ROUTE, message, NULL, NULL);
        return r == -ENODEV ? 0 : r;
}

int link_delete(const char *ifname) {
        return link_delete_index(if_nametoindex(ifname));
}

static int link_up(unsigned index) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = message_new(buffer, RTM_NEWLINK, 0);
        struct ifinfomsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));

        header->ifi_index = (int) index;
        header->ifi_flags = header->ifi_change = IFF_UP;
        return netlink_talk(NETLINK_ROUTE, message, NULL, NULL);
}

// IPv6 by `prefix`: with 64 the kernel adds routes of fe80::/64, on each wire the same, and walks past all of them at the next.
static int link_address(unsigned index, int family, const char *text, unsigned prefix) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = message_new(buffer, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
        struct ifaddrmsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
        unsigned char bytes[16];
        size_t size = family == AF_INET ? 4 : 16;

        if (inet_pton(family, text, bytes) != 1)
                return -EINVAL;
        header->ifa_family = (uint8_t) family;
        header->ifa_prefixlen = (uint8_t) prefix;
        header->ifa_scope = RT_SCOPE_LINK;
        header->ifa_flags = family == AF_INET ? 0 : IFA_F_NODAD; // the link has nobody else who could own it
        header->ifa_index = index;
        mnl_attr_put(message, IFA_LOCAL, size, bytes);
        mnl_attr_put(message, IFA_ADDRESS, size, bytes);
        return talk_new(message);
}

static int link_route(unsigned index, int family, const void *bytes) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = message_new(buffer, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
        struct rtmsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
        struct in_addr gateway;

        header->rtm_family = (uint8_t) family;
        header->rtm_dst_len = family == AF_INET ? 32 : 128;
        header->rtm_table = RT_TABLE_MAIN;
        header->rtm_protocol = RTPROT_STATIC;
        header->rtm_scope = family == AF_INET ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
        header->rtm_type = RTN_UNICAST;
        mnl_attr_put(message, RTA_DST, family == AF_INET ? 4 : 16, bytes);
        mnl_attr_put_u32(message, RTA_OIF, index);
        if (family == AF_INET && inet_pton(AF_INET, GATEWAY4, &gateway) == 1)
                mnl_attr_put(message, RTA_PREFSRC, sizeof(gateway), &gateway);
        return talk_new(message);
}

// The MAC is known: with a fixed entry a guest can neither poison nor fill the host's neighbour table.
static int link_neighbour(unsigned index, int family, const void *bytes, const unsigned char *mac) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = message_new(buffer, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
        struct ndmsg *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));

        header->ndm_family = (uint8_t) family;
        header->ndm_ifindex = (int) index;
        header->ndm_state = NUD_PERMANENT;
        mnl_attr_put(message, NDA_DST, family == AF_INET ? 4 : 16, bytes);
        mnl_attr_put(message, NDA_LLADDR, 6, mac);
        return talk_new(message);
}

typedef struct Sysctl { const char *family, *key, *value; bool needed; } Sysctl;

static const Sysctl veth_sysctls[] = {
        {"ipv6", "disable_ipv6", "0", true},
        {"ipv6", "addr_gen_mode", "1", false}, // no address of its own: the gateway's is enough
        {"ipv6", "accept_ra", "0", true},      // a guest must not give the host routes
        {"ipv6", "autoconf", "0", false},
        {"ipv6", "accept_redirects", "0", true},
        {"ipv4", "accept_redirects", "0", true},
        {"ipv4", "secure_redirects", "0", false},
        {"ipv4", "send_redirects", "0", false},
        {"ipv4", "accept_source_route", "0", true},
        {"ipv4", "rp_filter", "1", true},
        {"ipv4", "src_valid_mark", "1", true}, // the reverse lookup must see the mark too, else rule 92 makes each source invalid
        {"ipv4", "arp_ignore", "1", true},     // answers for the gateway address only, not for the host's others
        {"ipv4", "proxy_arp", "0", true},
        {"ipv4", "forwarding", "1", true},
        {"ipv6", "forwarding", "1", true},
};

static int sysctl_write(const char *ifname, const Sysctl *row, Error *err) {
        char path[128];
        int r;

        (void) snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", row->family, ifname, row->key);
        r = io_write_file(AT_FDCWD, path, row->value);
        return r < 0 && row->needed ? error_set_errno(err, r, "writing %s", path) : 0;
}

static int configure(const NetworkAddress *address, bool neighbours, Error *err) {
        unsigned index = if_nametoindex(address->host_ifname);
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(veth_sysctls) && r >= 0; i++)
                r = sysctl_write(address->host_ifname, &veth_sysctls[i], err);
        if (r < 0)
                return r;
        r = link_address(index, AF_INET, GATEWAY4, 32);
        if (r >= 0)
                r = link_address(index, AF_INET6, GATEWAY6, neighbours ? 64 : 128);
        if (r >= 0)
                r = link_up(index);
        if (r >= 0)
                r = link_route(index, AF_INET, &address->ipv4);
        if (r >= 0)
                r = link_route(index, AF_INET6, &address->ipv6);
        if (r >= 0 && neighbours)
                r = link_neighbour(index, AF_INET, &address->ipv4, address->mac);
        if (r >= 0 && neighbours)
                r = link_neighbour(index, AF_INET6, &address->ipv6, address->mac);
        return r < 0 ? error_set_errno(err, r, "configuring the interface %s", address->host_ifname) : 0;
}

int link_configure_veth(const NetworkAddress *address, Error *err) {
        return configure(address, true, err);
}

// Without ARP the kernel takes the interface's own MAC for the other end's, which it is.
int link_configure_sandbox(const NetworkAddress *address, Error *err) {
        return configure(address, false, err);
}

typedef struct LinkRule {
        int family;
        unsigned preference, mark; // mark 0: any
        const char *iif;           // NULL: any
        const Cidr *to;            // NULL: any
        bool blackhole;            // else: table main
        bool is_new;               // the caller knows that there is none
} LinkRule;

static int rule_change(const LinkRule *rule, bool add) {
        char buffer[MESSAGE_SIZE];
        // To find out whether there is such a rule already, the kernel compares all of them.
        struct nlmsghdr *message = message_new(buffer, add ? RTM_NEWRULE : RTM_DELRULE, add ? NLM_F_CREATE | (rule->is_new ? 0 : NLM_F_EXCL) : 0);
        struct fib_rule_hdr *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
        int r;

        header->family = (uint8_t) rule->family;
        header->action = rule->blackhole ? FR_ACT_BLACKHOLE : FR_ACT_TO_TBL;
        header->table = rule->blackhole ? RT_TABLE_UNSPEC : RT_TABLE_MAIN;
        mnl_attr_put_u32(message, FRA_PRIORITY, rule->preference);
        if (rule->iif)
                mnl_attr_put_strz(message, FRA_IIFNAME, rule->iif);
        if (rule->mark) {
                mnl_attr_put_u32(message, FRA_FWMARK, rule->mark);
                mnl_attr_put_u32(message, FRA_FWMASK, rule->mark);
        }
        if (rule->to) {
                header->dst_len = (uint8_t) rule->to->prefix;
                mnl_attr_put(message, FRA_DST, rule->family == AF_INET ? 4 : 16, rule->to->bytes);
        }
        r = netlink_talk(NETLINK_ROUTE, message, NULL, NULL);
        return (add && r == -EEXIST) || (!add && r == -ENOENT) ? 0 : r;
}

static const int families[] = {AF_INET, AF_INET6};

static Cidr pool_cidr(const NetworkSettings *settings, int family) {
        Cidr pool = {.family = family};

        if (family == AF_INET)
                memcpy(pool.bytes, &settings->ipv4_pool, sizeof(settings->ipv4_pool));
        else
                memcpy(pool.bytes, &settings->ipv6_pool, sizeof(settings->ipv6_pool));
        pool.prefix = family == AF_INET ? settings->ipv4_prefix : settings->ipv6_prefix;
        return pool;
}

typedef struct SeenRule {
        unsigned preference;
        const char *iif;
        Cidr to;
} SeenRule;

static SeenRule rule_parse(const struct nlmsghdr *message) {
        const struct fib_rule_hdr *header = mnl_nlmsg_get_payload(message);
        SeenRule seen = {.to = {.family = header->family, .prefix = header->dst_len}};
        struct nlattr *attr;

        mnl_attr_for_each(attr, message, sizeof(*header))
                switch (mnl_attr_get_type(attr)) {
                case FRA_PRIORITY: seen.preference = mnl_attr_get_u32(attr); break;
                case FRA_IIFNAME: seen.iif = mnl_attr_get_str(attr); break;
                case FRA_DST:
                        memcpy(seen.to.bytes, mnl_attr_get_payload(attr), MIN2(mnl_attr_get_payload_len(attr), 16));
                        break;
                default: break;
                }
        return seen;
}

static int rules_dump(int family, NetlinkHandler fn, void *userdata) {
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = message_new(buffer, RTM_GETRULE, NLM_F_DUMP);
        struct fib_rule_hdr *header = mnl_nlmsg_put_extra_header(message, sizeof(*header));

        header->family = (uint8_t) family;
        return netlink_talk(NETLINK_ROUTE, message, fn, userdata);
}

// Rules are collected first and deleted afterwards: a deletion in the middle would interrupt the dump.
typedef struct RulePrune {
        const Cidr *keep; // pool whose rules stay; NULL: all our rules go
        const char *iif;  // only the rules of this interface
        char *found;      // messages, one behind the other
        size_t size;
} RulePrune;

static bool is_sandbox_rule(const SeenRule *seen) {
        return seen->preference >= RULE_SANDBOX && seen->preference <= RULE_LAST && seen->iif && strncmp(seen->iif, SANDBOX_PREFIX, strlen(SANDBOX_PREFIX)) == 0;
}

static bool rule_doomed(const RulePrune *prune, const SeenRule *seen) {
        if (seen->preference > RULE_VETH && !is_sandbox_rule(seen)) // somebody else's
                return false;
        if (seen->preference < RULE_HOST)
                return false;
        if (prune->iif)
                return seen->preference == RULE_VETH && seen->iif && strcmp(seen->iif, prune->iif) == 0;
        if (!prune->keep)
                return true;
        return seen->to.prefix != 0 && !(cidr_contains(prune->keep, &seen->to) && seen->to.prefix == prune->keep->prefix);
}

static int rule_gather(const struct nlmsghdr *message, void *userdata) {
        RulePrune *prune = userdata;
        SeenRule seen = rule_parse(message);
        size_t size = MNL_ALIGN(message->nlmsg_len);
        char *found;

        if (!rule_doomed(prune, &seen))
                return 0;
        found = realloc(prune->found, prune->size + size);
        if (!found)
                return -ENOMEM;
        memcpy(found + prune->size, message, message->nlmsg_len);
        prune->found = found;
        prune->size += size;
        return 0;
}

static int rules_prune(int family, const Cidr *keep, const char *iif) {
        RulePrune prune = {.keep = keep, .iif = iif};
        int r = rules_dump(family, rule_gather, &prune);

        for (size_t at = 0; r >= 0 && at < prune.size;) {
                // A dumped rule is its own description for the deletion.
                struct nlmsghdr *request = (struct nlmsghdr *) (prune.found + at);
                at += MNL_ALIGN(request->nlmsg_len);
                request->nlmsg_type = RTM_DELRULE;
                request->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
                request->nlmsg_pid = 0;
                r = netlink_talk(NETLINK_ROUTE, request, NULL, NULL);
                r = r == -ENOENT ? 0 : r;
        }
        free(prune.found);
        return r;
}

int link_add_base_rules(const NetworkSettings *settings, Error *err) {
        for (size_t i = 0; i < ELEMENTS(families); i++) {
                Cidr pool = pool_cidr(settings, families[i]);
                const LinkRule rules[] = {
                        {families[i], RULE_HOST, 0, "lo", &pool, false, false},
                        {families[i], RULE_MARKED, ROUTE_MARK, NULL, NULL, false, false},
                        {families[i], RULE_POOL, 0, NULL, &pool, true, false},
                };
                int r = 0;
                for (size_t k = 0; k < ELEMENTS(rules) && r >= 0; k++)
                        r = rule_change(&rules[k], true);
                if (r >= 0)
                        r = rules_prune(families[i], &pool, NULL);
                if (r < 0)
                        return error_set_errno(err, r, "adding the routing rules that keep forwarding closed");
        }
        return 0;
}

int link_add_slot_rules(const char *ifname, Error *err) {
        for (size_t i = 0; i < ELEMENTS(families); i++) {
                int r = rule_change(&(LinkRule) {families[i], RULE_VETH, 0, ifname, NULL, true, false}, true);
                if (r < 0)
                        return error_set_errno(err, r, "adding the routing rule of %s", ifname);
        }
        return 0;
}

static int sandbox_rules(const char *ifname, uint16_t sandbox, bool add) {
        unsigned preference = RULE_SANDBOX + NETWORK_SANDBOX_LAST - (unsigned) sandbox;
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(families) && r >= 0; i++)
                r = rule_change(&(LinkRule) {families[i], preference, 0, ifname, NULL, true, true}, add);
        return r;
}

int link_add_sandbox_rules(const char *ifname, uint16_t sandbox, Error *err) {
        int r = sandbox_rules(ifname, sandbox, true);

        return r < 0 ? error_set_errno(err, r, "adding the routing rule of %s", ifname) : 0;
}

int link_delete_sandbox_rules(const char *ifname, uint16_t sandbox) {
        return sandbox_rules(ifname, sandbox, false);
}

static int rules_prune_all(const char *ifname) {
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(families) && r >= 0; i++)
                r = rules_prune(families[i], NULL, ifname);
        return r;
}

int link_delete_slot_rules(const char *ifname) {
        return rules_prune_all(ifname);
}

int link_delete_all_rules(void) {
        return rules_prune_all(NULL);
}

static int rule_collect(const struct nlmsghdr *message, void *userdata) {
        SeenRule seen = rule_parse(message);

        return (seen.preference == RULE_VETH && seen.iif) || is_sandbox_rule(&seen) ? strv_append(userdata, seen.iif) : 0;
}

int link_list_rules(char ***ret) {
        _cleanup_strv_ char **names = NULL;

        for (size_t i = 0; i < ELEMENTS(families); i++) {
                int r = rules_dump(families[i], rule_collect, &names);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(names);
        return 0;
}

typedef struct RuleCheck { Cidr pool; unsigned seen; } RuleCheck;

static int rule_check(const struct nlmsghdr *message, void *userdata) {
        RuleCheck *check = userdata;
        SeenRule seen = rule_parse(message);

        if (seen.preference == RULE_MARKED)
                check->seen |= 1;
        if (seen.preference == RULE_POOL && cidr_contains(&seen.to, &check->pool))
                check->seen |= 2;
        return 0;
}

bool link_base_rules_present(const NetworkSettings *settings) {
        for (size_t i = 0; i < ELEMENTS(families); i++) {
                RuleCheck check = {.pool = pool_cidr(settings, families[i])};
                if (rules_dump(families[i], rule_check, &check) < 0 || check.seen != 3)
                        return false;
        }
        return true;
}
