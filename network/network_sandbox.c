// SPDX-License-Identifier: GPL-2.0-or-later
// Network, sandboxes: profiles, which are slots within an instance's slot, and wires, which are addresses in two sets.
//
// A packet of a sandbox is for its profile's chains by the beginning of its interface's name. There it is judged twice (see slot_judge() in
// ruleset.c): by the instance's rules and by the profile's. The mark that stays is the profile's, so a change of the instance's rules gives
// all of the profile's rules new ids: each connection is judged again at its next packet, and loses nothing if both still allow it.
#include "network/network_internal.h"

#include <net/if.h>
#include <string.h>

#include "base/strv.h"
#include "network/link.h"
#include "network/nft.h"
#include "network/peer.h"

static SandboxWire *wire_find(const Network *network, uint16_t sandbox) {
        for (size_t i = 0; i < network->n_sandboxes; i++)
                if (network->sandboxes[i].sandbox == sandbox)
                        return &network->sandboxes[i];
        return NULL;
}

static int wire_note(Network *network, SandboxWire wire) {
        SandboxWire *list;

        if (wire_find(network, wire.sandbox))
                return 0;
        list = reallocarray(network->sandboxes, network->n_sandboxes + 1, sizeof(SandboxWire));
        if (!list)
                return -ENOMEM;
        network->sandboxes = list;
        list[network->n_sandboxes++] = wire;
        return 0;
}

static void wire_forget(Network *network, uint16_t sandbox) {
        SandboxWire *wire = wire_find(network, sandbox);

        if (wire)
                *wire = network->sandboxes[--network->n_sandboxes];
}

bool network_has_sandboxes(const NetworkSettings *settings) {
        return 1U << (32 - settings->ipv4_prefix) > NETWORK_SANDBOX_LAST + 1U;
}

// ---- what an earlier hostd left, and what a foreign flush took

static int recover_source(const char *ifname, void *userdata) {
        Network *network = userdata;
        SandboxWire wire = {0};

        return network_sandbox_parse(ifname, &wire.profile, &wire.sandbox) && slot_find(network, wire.profile) ? wire_note(network, wire) : 0;
}

int network_recover_sandboxes(Network *network) {
        int r = nft_sources(recover_source, network);

        return r == -ENOENT ? 0 : r;
}

int network_load_sandboxes(Network *network, Transaction *transaction) {
        int r = 0;

        for (size_t i = 0; i < network->n_sandboxes && r >= 0; i++) {
                NetworkAddress address;
                network_sandbox_address(&network->settings, network->sandboxes[i].sandbox, network->sandboxes[i].profile, &address);
                r = transaction_sandbox(transaction, &address);
        }
        return r;
}

// ---- profiles

static int profile_load(Network *network, uint16_t profile, Slot *instance, Error *err) {
        int r = slot_load(network, profile, false, err);
        return r < 0 ? r : limits_share(network, instance, err);
}

int network_profile_attach(Network *network, uint16_t profile, uint16_t instance, Error *err) {
        Slot *slot = slot_find(network, profile), *around = slot_find(network, instance);
        int r;

        if (!network_is_profile(profile) || !around || around->within)
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not attached, or %u no profile", instance, profile);
        if (slot && slot->within != instance)
                return error_set(err, ERR_CONFLICT, "profile %u is another instance's", profile);
        if (slot && slot->limits_set)
                return 0;
        if (!slot) {
                r = nft_forget_flows((uint32_t) profile << 16, 0xffff0000); // marks of an earlier profile of this number
                slot = r < 0 ? NULL : slot_add(network, profile);
                if (!slot)
                        return error_set_errno(err, r < 0 ? r : ENOMEM, "attaching profile %u", profile);
                slot->within = slot->limits.within = instance;
        }
        r = profile_load(network, profile, around, err);
        if (r < 0)
                (void) network_detach(network, profile, NULL); // nothing half-made stays; the first error is the one to report
        return r;
}

int profiles_detach(Network *network, uint16_t within, Error *err) {
        int r = 0;

        for (size_t i = network->n_slots; i > 0 && r >= 0; i--)
                if (network->slots[i - 1]->within == within)
                        r = network_detach(network, network->slots[i - 1]->slot, err);
        return r;
}

int sandboxes_detach(Network *network, uint16_t profile, Error *err) {
        int r = 0;

        for (size_t i = network->n_sandboxes; i > 0 && r >= 0; i--)
                if (network->sandboxes[i - 1].profile == profile)
                        r = network_sandbox_detach(network, network->sandboxes[i - 1].sandbox, err);
        return r;
}

// ---- the instance's policy changes

// Rules without a mark have no digest.
static bool same_rule(const CompiledRule *a, const CompiledRule *b) {
        if (a->action != b->action || strcmp(a->digest, b->digest) != 0)
                return false;
        if (a->digest[0])
                return true;
        return a->kind == b->kind && a->protocol == b->protocol && text_equal(a->name, b->name) && a->until == b->until && a->n_ports == b->n_ports &&
               memcmp(a->ports, b->ports, a->n_ports * sizeof(PortRange)) == 0;
}

static bool same_effect(const Compiled *a, const Compiled *b) {
        if (!a || a->n != b->n)
                return false;
        for (size_t i = 0; i < a->n; i++)
                if (!same_rule(&a->rules[i], &b->rules[i]))
                        return false;
        return true;
}

static uint16_t id_after(const Renewal *renewal, uint16_t before) {
        const Compiled *compiled = renewal->slot->compiled;

        for (size_t i = 0; i < compiled->n && before; i++)
                if (renewal->ids[i] == before)
                        return compiled->rules[i].id;
        return 0;
}

// Addresses that were found for names stay, by their rules' new ids.
static int renew_names(const Renewal *renewal, Transaction *transaction) {
        const Slot *slot = renewal->slot;
        usec_t now = clock_monotonic();
        int r = 0;

        for (size_t i = 0; i < slot->n_names && !slot->ids_anew && r >= 0; i++) {
                NameElement element = slot->names[i].element;
                uint16_t id = id_after(renewal, (uint16_t) element.mark);
                if (!id || slot->names[i].until <= now)
                        continue;
                element.mark = (uint32_t) slot->slot << 16 | id;
                element.timeout_ms = (slot->names[i].until - now) / USEC_PER_MSEC + 1;
                r = transaction_name(transaction, &element);
        }
        return r;
}

static int profile_renew(Slot *slot, const Compiled *within, Transaction *transaction, Renewal *renewal) {
        uint64_t until = compiled_next_end(within, clock_realtime());
        PolicyText text;
        int r;

        renewal->ids = calloc(slot->compiled->n + 1, sizeof(uint16_t));
        if (!renewal->ids)
                return -ENOMEM;
        renewal->slot = slot;
        for (size_t i = 0; i < slot->compiled->n; i++)
                renewal->ids[i] = slot->compiled->rules[i].id;
        r = slot_renumber(slot, slot->compiled, &renewal->known, &renewal->n_known);
        if (r < 0)
                return r;
        text = slot_policy(slot, slot->compiled);
        text.until = until == UINT64_MAX ? 0 : until;
        text.ids_anew = true;
        r = transaction_policy(transaction, &text);
        return r < 0 ? r : renew_names(renewal, transaction);
}

int profiles_renew(Network *network, const Slot *instance, const Compiled *compiled, Transaction *transaction, Renewals *ret) {
        int r = 0;

        if (same_effect(instance->compiled, compiled))
                return 0;
        ret->list = calloc(network->n_slots, sizeof(Renewal));
        if (!ret->list)
                return -ENOMEM;
        for (size_t i = 0; i < network->n_slots && r >= 0; i++)
                if (network->slots[i]->within == instance->slot && network->slots[i]->compiled)
                        r = profile_renew(network->slots[i], compiled, transaction, &ret->list[ret->n++]);
        return r;
}

int renewals_commit(Network *network, const Slot *instance, Renewals *renewals, Error *err) {
        int result = 0;

        for (size_t i = 0; i < renewals->n; i++) {
                Renewal *renewal = &renewals->list[i];
                Slot *slot = renewal->slot;
                for (size_t k = 0; k < slot->n_names; k++)
                        slot->names[k].element.mark = (uint32_t) slot->slot << 16 | id_after(renewal, (uint16_t) slot->names[k].element.mark);
                free(slot->known);
                slot->known = TAKE_PTR(renewal->known);
                slot->n_known = renewal->n_known;
                if (slot->ids_anew)
                        result = slot_restarted(slot, err);
        }
        for (size_t i = 0; i < network->n_slots; i++) // also where nothing had to be renewed
                if (network->slots[i]->within == instance->slot && network->slots[i]->compiled)
                        compiled_set_within(network->slots[i]->compiled, instance->compiled);
        return result;
}

void renewals_done(Renewals *renewals) {
        for (size_t i = 0; i < renewals->n; i++) {
                Renewal *renewal = &renewals->list[i];
                for (size_t k = 0; renewal->known && k < renewal->slot->compiled->n; k++)
                        renewal->slot->compiled->rules[k].id = renewal->ids[k];
                free(renewal->known);
                free(renewal->ids);
        }
        free(renewals->list);
        *renewals = (Renewals) {0};
}

// ---- wires

static int wire_make(const NetworkAddress *address, uint16_t sandbox, int netns, Error *err) {
        int r = link_delete(address->host_ifname); // whoever holds its other end, it is not this namespace

        if (r < 0)
                return error_set_errno(err, r, "removing an earlier interface %s", address->host_ifname);
        r = link_add_sandbox_rules(address->host_ifname, sandbox, err);
        if (r >= 0)
                r = link_create_sandbox(address, netns, err);
        if (r >= 0)
                r = peer_configure(address, netns, err);
        if (r >= 0)
                r = link_configure_sandbox(address, err);
        if (r < 0)
                return r;
        r = peer_settle(address, netns);
        return r < 0 ? error_set_errno(err, r, "looking at the sandbox's end of %s", address->host_ifname) : 0;
}

static int wire_remove(const Network *network, SandboxWire wire, bool keep_link, Error *err) {
        NetworkAddress address;
        int r;

        network_sandbox_address(&network->settings, wire.sandbox, wire.profile, &address);
        r = transact_sandbox(&address, false);
        if (r >= 0 && !keep_link)
                r = link_delete(address.host_ifname);
        if (r >= 0)
                r = link_delete_sandbox_rules(address.host_ifname, wire.sandbox);
        return r < 0 ? error_set_errno(err, r, "removing the interface %s", address.host_ifname) : 0;
}

int network_sandbox_plug(Network *network, uint16_t sandbox, uint16_t profile, int netns, Error *err) {
        Slot *slot = slot_find(network, profile);
        SandboxWire wire = {sandbox, profile};
        NetworkAddress address;
        int r;

        if (!network_is_sandbox(sandbox) || !slot || !slot->within || !slot->compiled)
                return error_set(err, ERR_NOT_FOUND, "profile %u has no policy yet, or %u is no sandbox's number", profile, sandbox);
        if (!network_has_sandboxes(&network->settings))
                return error_set(err, ERR_QUOTA, "network.ipv4_pool has no addresses for sandboxes: that needs a prefix length of at most 18");
        if (wire_find(network, sandbox))
                return error_set(err, ERR_CONFLICT, "sandbox %u has a wire already", sandbox);
        network_sandbox_address(&network->settings, sandbox, profile, &address);
        r = transact_sandbox(&address, true);
        if (r >= 0)
                r = wire_note(network, wire);
        if (r < 0)
                r = error_set_errno(err, r, "adding a sandbox to the firewall");
        else
                r = wire_make(&address, sandbox, netns, err);
        if (r < 0) {
                (void) wire_remove(network, wire, false, NULL); // the first error is the one to report
                wire_forget(network, sandbox);
        }
        return r;
}

uint16_t network_sandbox_profile(const Network *network, uint16_t sandbox) {
        const SandboxWire *wire = wire_find(network, sandbox);

        return wire ? wire->profile : 0;
}

unsigned network_sandbox_interface(const Network *network, uint16_t sandbox) {
        const SandboxWire *wire = wire_find(network, sandbox);
        NetworkAddress address;

        if (!wire)
                return 0;
        network_sandbox_address(&network->settings, sandbox, wire->profile, &address);
        return if_nametoindex(address.host_ifname);
}

bool network_sandbox_is_plugged(const Network *network, uint16_t sandbox) {
        return network_sandbox_interface(network, sandbox) != 0;
}

typedef struct Search { uint16_t sandbox; char **names; } Search;

static int search_source(const char *ifname, void *userdata) {
        Search *search = userdata;
        SandboxWire wire = {0};

        return network_sandbox_parse(ifname, &wire.profile, &wire.sandbox) && wire.sandbox == search->sandbox ? strv_append(&search->names, ifname) : 0;
}

// One that is nobody's: whichever profiles it has been of.
static int leftovers_remove(const Network *network, uint16_t sandbox, Error *err) {
        _cleanup_strv_ char **links = NULL, **rules = NULL;
        Search search = {.sandbox = sandbox};
        int r = link_list(SANDBOX_PREFIX, &links);

        if (r >= 0)
                r = link_list_rules(&rules);
        for (char **p = links; r >= 0 && p && *p; p++)
                r = search_source(*p, &search);
        for (char **p = rules; r >= 0 && p && *p; p++)
                r = search_source(*p, &search);
        if (r >= 0)
                r = nft_sources(search_source, &search);
        if (r < 0)
                r = error_set_errno(err, r, "looking for what is left of a sandbox");
        for (char **p = search.names; r >= 0 && p && *p; p++) {
                SandboxWire wire = {0};
                if (network_sandbox_parse(*p, &wire.profile, &wire.sandbox))
                        r = wire_remove(network, wire, false, err);
        }
        strv_free(search.names);
        return r;
}

int network_sandbox_detach(Network *network, uint16_t sandbox, Error *err) {
        const SandboxWire *wire = wire_find(network, sandbox);
        int r = wire ? wire_remove(network, *wire, false, err) : leftovers_remove(network, sandbox, err);

        if (r >= 0)
                wire_forget(network, sandbox);
        return r;
}

int network_sandbox_leave(Network *network, uint16_t sandbox, Error *err) {
        const SandboxWire *wire = wire_find(network, sandbox);
        int r = wire ? wire_remove(network, *wire, true, err) : 0;

        if (r >= 0)
                wire_forget(network, sandbox);
        return r;
}

int network_sandbox_forget(const NetworkSettings *settings, uint16_t sandbox, uint16_t profile, Error *err) {
        NftFlows flows = {.mark = (uint32_t) profile << 16, .mask = 0xffff0000, .family = AF_INET};
        NetworkAddress address;
        int r;

        network_address(settings, sandbox, &address);
        flows.address = &address.ipv4;
        r = nft_forget_flows_of(&flows);
        if (r >= 0) {
                flows.family = AF_INET6;
                flows.address = &address.ipv6;
                r = nft_forget_flows_of(&flows);
        }
        return r < 0 ? error_set_errno(err, r, "forgetting the connections of sandbox %u", sandbox) : 0;
}
