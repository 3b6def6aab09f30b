// SPDX-License-Identifier: GPL-2.0-or-later
// Network, limits: what a slot may use of the wire, brought into force and read back.
#include <string.h>

#include "network/link.h"
#include "network/network_internal.h"
#include "network/nft.h"
#include "network/pace.h"

// "cHEX" and "dHEX", from limits.c: the limits that the counting sets were made with.
static int recover_comment(const char *comment, void *userdata) {
        Slot *slot = userdata;

        if ((*comment != 'c' && *comment != 'd') || strspn(comment + 1, "0123456789abcdef") != strlen(comment + 1) || strlen(comment) > 17)
                return 0;
        *(*comment == 'c' ? &slot->kernel_connections : &slot->kernel_destinations) = strtoull(comment + 1, NULL, 16);
        return 0;
}

int slot_recover_limits(Slot *slot) {
        char name[16];
        int r;

        (void) snprintf(name, sizeof(name), "i%04x_take", slot->slot);
        r = nft_comments(name, recover_comment, slot);
        (void) snprintf(name, sizeof(name), "i%04x_admit", slot->slot);
        if (r >= 0 || r == -ENOENT)
                r = nft_comments(name, recover_comment, slot);
        return r == -ENOENT ? 0 : r;
}

static bool has_profile(const Network *network, uint16_t number) {
        for (size_t i = 0; i < network->n_slots; i++)
                if (network->slots[i]->within == number)
                        return true;
        return false;
}

int slot_forget_flows(const Network *network, const Slot *slot) {
        int r = nft_forget_flows((uint32_t) slot->slot << 16, 0xffff0000);

        for (size_t i = 0; i < network->n_slots && r >= 0; i++)
                if (network->slots[i]->within == slot->slot)
                        r = nft_forget_flows((uint32_t) network->slots[i]->slot << 16, 0xffff0000);
        return r;
}

int slot_pace(Network *network, Slot *slot, Error *err) {
        NetworkAddress address;
        PaceOutcome outcome;
        int r;

        network_address(&network->settings, slot->slot, &address);
        if (!slot->limits_set || !link_exists(address.host_ifname))
                return 0;
        r = pace_set(address.host_ifname, slot->limits.limits.download, &outcome);
        if (r == -ENODEV) // it went meanwhile
                return 0;
        if (r < 0)
                return error_set_errno(err, r, "setting the download rate of %s", address.host_ifname);
        network->lacks_rate = network->lacks_rate || outcome.no_rate;
        network->lacks_fair = network->lacks_fair || outcome.no_fair;
        slot->limits.police_download = outcome.no_rate || has_profile(network, slot->slot);
        return 0;
}

static int limits_load(Slot *slot, Error *err) {
        _cleanup_(script_done) Script script = {0};
        int r = script_open(&script, err);

        if (r < 0)
                return r;
        ruleset_limits(script.f, slot->slot, &slot->limits);
        r = script_apply(&script, "setting the limits of the network", err);
        slot->limits.connections_anew = slot->limits.destinations_anew = slot->limits.traffic_anew = false;
        return r;
}

// The wire's own queue shapes what goes over it alone: of several wires the sum is held by dropping.
int limits_share(Network *network, Slot *slot, Error *err) {
        bool before = slot->limits.police_download;
        int r = slot_pace(network, slot, err);

        if (r < 0 || !slot->limits_set || before == slot->limits.police_download)
                return r;
        return limits_load(slot, err);
}

int network_set_limits(Network *network, uint16_t number, const NetworkLimits *limits, Error *err) {
        Slot *slot = slot_find(network, number);
        LimitsText before;
        int r;

        if (!slot)
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not attached", number);
        if (slot->limits_set && memcmp(&slot->limits.limits, limits, sizeof(*limits)) == 0)
                return 0;
        before = slot->limits;
        slot->limits.limits = *limits;
        slot->limits.connections_anew = slot->kernel_connections && slot->kernel_connections != limits->connections;
        slot->limits.destinations_anew = slot->kernel_destinations != limits->destinations;
        slot->limits_set = true;
        r = slot_pace(network, slot, err); // first: whether packets must be dropped for the lack of it is written by the next step
        if (r >= 0)
                r = limits_load(slot, err);
        if (r < 0) {
                slot->limits = before;
                slot->limits_set = false;
                return r;
        }
        slot->kernel_connections = limits->connections;
        slot->kernel_destinations = limits->destinations;
        return 0;
}

static bool has_traffic(const Slot *slot) {
        return slot && slot->limits_set && slot->limits.limits.traffic != NETWORK_UNLIMITED;
}

int network_traffic(Network *network, uint16_t number, uint64_t *ret_used, Error *err) {
        Slot *slot = slot_find(network, number);
        char name[16];
        int r;

        if (!has_traffic(slot))
                return -ENOENT;
        (void) snprintf(name, sizeof(name), "i%04x_budget", number);
        r = nft_quota(name, &slot->limits.traffic_used); // kept: what a foreign flush takes away is put back from here
        if (r < 0)
                return error_set_errno(err, r, "reading the traffic of network slot %u", number);
        *ret_used = slot->limits.traffic_used;
        return 0;
}

// Before the limits are set it is kept for when they are.
static int count_anew(Network *network, uint16_t number, uint64_t used, Error *err) {
        Slot *slot = slot_find(network, number);

        if (!slot)
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not attached", number);
        slot->limits.traffic_used = used;
        slot->limits.traffic_anew = true;
        slot->fresh = false;
        return has_traffic(slot) ? limits_load(slot, err) : 0;
}

int network_traffic_begin(Network *network, uint16_t number, Error *err) {
        return count_anew(network, number, 0, err);
}

int network_traffic_resume(Network *network, uint16_t number, uint64_t used, Error *err) {
        Slot *slot = slot_find(network, number);

        return slot && !slot->fresh ? 0 : count_anew(network, number, used, err);
}

bool network_is_spent(Network *network) {
        return network->watch && watch_is_spent(network->watch);
}

static int cut_load(Slot *slot, bool cut, Error *err) {
        _cleanup_(script_done) Script script = {0};
        int r = script_open(&script, err);

        if (r < 0)
                return r;
        ruleset_cut(script.f, slot->slot, cut);
        return script_apply(&script, cut ? "cutting an instance off" : "giving an instance its network back", err);
}

// What was established must not come back to life with the network, so it is forgotten behind the closed door; at the end once more, for
// what a foreign flush let the kernel see meanwhile.
int network_set_cut(Network *network, uint16_t number, bool cut, Error *err) {
        Slot *slot = slot_find(network, number);
        int r = 0;

        if (!slot)
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not attached", number);
        if (slot->cut_set && slot->cut == cut)
                return 0;
        if (cut)
                r = cut_load(slot, true, err);
        if (r < 0)
                return r;
        if (cut || slot->cut) // not of a slot that an earlier hostd left open
                r = slot_forget_flows(network, slot);
        if (r < 0)
                return error_set_errno(err, r, "forgetting the connections of slot %u", number);
        if (!cut)
                r = cut_load(slot, false, err);
        if (r < 0)
                return r;
        slot->cut = cut;
        slot->cut_set = true;
        return 0;
}
