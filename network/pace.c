// SPDX-License-Identifier: GPL-2.0-or-later
// Pace: rtnetlink for tbf, with fq_codel inside where the kernel has it, so that one download does not make all others wait.
#include "network/pace.h"

#include <errno.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include "base/cleanup.h"
#include "network/netlink.h"

enum { TBF = 0x10000, TBF_CLASS = 0x10001, FAIR = 0x20000 }; // 1:, 1:1, 2:
#define MESSAGE_SIZE 512
#define QUEUE_PER_SECOND 20 // a queue holds 50 ms of the rate

static struct nlmsghdr *queue_new(char *buffer, unsigned type, unsigned flags, const struct tcmsg *which) {
        struct nlmsghdr *message = mnl_nlmsg_put_header(buffer);

        message->nlmsg_type = (uint16_t) type;
        message->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | NLM_F_ACK | flags);
        *(struct tcmsg *) mnl_nlmsg_put_extra_header(message, sizeof(*which)) = *which;
        return message;
}

static uint32_t clamp(uint64_t value, uint32_t least, uint32_t most) {
        return (uint32_t) MAX2(least, MIN2(value, (uint64_t) most));
}

// Bursts hold several full frames at any rate; what is longer than a burst (GSO) tbf cuts into packets.
static int set_rate(unsigned index, uint64_t rate) {
        const struct tcmsg which = {.tcm_ifindex = (int) index, .tcm_handle = TBF, .tcm_parent = TC_H_ROOT};
        uint32_t burst = clamp(rate / QUEUE_PER_SECOND, 16 * 1024, 4 * 1024 * 1024);
        struct tc_tbf_qopt options = {
                .rate = {.rate = clamp(rate, 1, UINT32_MAX), .linklayer = TC_LINKLAYER_ETHERNET},
                .limit = burst + clamp(rate / QUEUE_PER_SECOND, 64 * 1024, 64 * 1024 * 1024),
        };
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = queue_new(buffer, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, &which);
        struct nlattr *nest;

        mnl_attr_put_strz(message, TCA_KIND, "tbf");
        nest = mnl_attr_nest_start(message, TCA_OPTIONS);
        mnl_attr_put(message, TCA_TBF_PARMS, sizeof(options), &options);
        mnl_attr_put_u32(message, TCA_TBF_BURST, burst);
        if (rate > UINT32_MAX)
                mnl_attr_put_u64(message, TCA_TBF_RATE64, rate);
        mnl_attr_nest_end(message, nest);
        return netlink_talk(NETLINK_ROUTE, message, NULL, NULL);
}

static int set_fair(unsigned index) {
        const struct tcmsg which = {.tcm_ifindex = (int) index, .tcm_handle = FAIR, .tcm_parent = TBF_CLASS};
        char buffer[MESSAGE_SIZE];
        struct nlmsghdr *message = queue_new(buffer, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, &which);

        mnl_attr_put_strz(message, TCA_KIND, "fq_codel");
        return netlink_talk(NETLINK_ROUTE, message, NULL, NULL);
}

static int set_none(unsigned index) {
        const struct tcmsg which = {.tcm_ifindex = (int) index, .tcm_handle = TBF, .tcm_parent = TC_H_ROOT};
        char buffer[MESSAGE_SIZE];
        int r = netlink_talk(NETLINK_ROUTE, queue_new(buffer, RTM_DELQDISC, 0, &which), NULL, NULL);

        return r == -ENOENT || r == -EINVAL ? 0 : r; // none, or not ours
}

int pace_set(const char *ifname, uint64_t bytes_per_second, PaceOutcome *ret) {
        unsigned index = if_nametoindex(ifname);
        int r;

        *ret = (PaceOutcome) {0};
        if (index == 0)
                return -ENODEV;
        if (bytes_per_second == UINT64_MAX)
                return set_none(index);
        r = set_rate(index, bytes_per_second);
        ret->no_rate = r == -ENOENT || r == -EOPNOTSUPP;
        if (r < 0)
                return ret->no_rate ? 0 : r;
        r = set_fair(index);
        ret->no_fair = r < 0;
        return 0;
}
