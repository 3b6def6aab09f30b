// SPDX-License-Identifier: GPL-2.0-or-later
// Network: the object. It knows what each slot should have; ruleset.c writes it, nft.c and link.c put it there.
//
// Order, so that there is never a usable wire without its fence: ip rules and chains (attach), then the veth (down), its ingress
// chain, the guest's end, and only then the host's end up (plug). Order of a detach: wire first, fence last.
#include "network/network_internal.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <linux/netfilter.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/strv.h"
#include "base/valid.h"
#include "network/forwarding.h"
#include "network/link.h"
#include "network/nft.h"
#include "network/peer.h"

#define ID_MAX (EXPOSED_IDS - 1U)

typedef struct Policies { Policy *const *list; size_t n; } Policies;

void script_done(Script *script) {
        if (script->f)
                (void) fclose(script->f);
        free(script->text);
}

int script_open(Script *script, Error *err) {
        script->f = open_memstream(&script->text, &script->size);
        return script->f ? 0 : error_set_errno(err, ENOMEM, "writing a ruleset");
}

int script_apply(Script *script, const char *purpose, Error *err) {
        FILE *f = TAKE_PTR(script->f);

        if (fclose(f) != 0)
                return error_set_errno(err, ENOMEM, "%s", purpose);
        return nft_apply(script->text, purpose, err);
}

static Slot *slot_free(Slot *slot) {
        if (!slot)
                return NULL;
        compiled_free(slot->compiled);
        free(slot->known);
        free(slot->names);
        free(slot);
        return NULL;
}

Slot *slot_find(const Network *network, uint16_t number) {
        for (size_t i = 0; i < network->n_slots; i++)
                if (network->slots[i]->slot == number)
                        return network->slots[i];
        return NULL;
}

Slot *slot_add(Network *network, uint16_t number) {
        static const LimitsText unlimited = {.limits = NETWORK_LIMITS_NONE};
        Slot **slots = reallocarray(network->slots, network->n_slots + 1, sizeof(Slot *));
        Slot *slot;

        if (!slots)
                return NULL;
        network->slots = slots;
        slot = calloc(1, sizeof(Slot));
        if (!slot)
                return NULL;
        *slot = (Slot) {.slot = number, .next_id = 1, .limits = unlimited};
        slots[network->n_slots++] = slot;
        return slot;
}

void slot_remove(Network *network, uint16_t number) {
        for (size_t i = 0; i < network->n_slots; i++)
                if (network->slots[i]->slot == number) {
                        slot_free(network->slots[i]);
                        network->slots[i] = network->slots[--network->n_slots];
                        return;
                }
}

static bool hex_parse(const char *text, size_t digits, unsigned *ret) {
        char part[9] = "";

        if (strspn(text, "0123456789abcdef") < digits || digits > 8)
                return false;
        memcpy(part, text, digits);
        *ret = (unsigned) strtoul(part, NULL, 16);
        return true;
}

// "NNNN" (or "10000") is the next id. Anything else was not written by us.
static int slot_recover_next(const char *comment, void *userdata) {
        Slot *slot = userdata;
        size_t n = strlen(comment);
        unsigned id;

        if ((n == 4 || n == 5) && hex_parse(comment, n, &id))
                slot->next_id = MAX2(slot->next_id, id);
        return 0;
}

// A live mark and the digest of its rule.
static int slot_recover_mark(uint32_t mark, const char *digest, void *userdata) {
        Slot *slot = userdata;
        KnownId *known;

        if (mark >> 16 != slot->slot || strlen(digest) != COMPILED_DIGEST || strspn(digest, "0123456789abcdef") != COMPILED_DIGEST)
                return 0;
        known = reallocarray(slot->known, slot->n_known + 1, sizeof(KnownId));
        if (!known)
                return -ENOMEM;
        slot->known = known;
        known[slot->n_known].id = (uint16_t) mark;
        memcpy(known[slot->n_known++].digest, digest, COMPILED_DIGEST + 1);
        slot->next_id = MAX2(slot->next_id, (mark & 0xffff) + 1);
        return 0;
}

// Chains of slots have names "i0001_out", written by ruleset.c only.
static bool slot_of_chain(const NftChain *chain, uint16_t *ret) {
        unsigned number;

        if (chain->family != NFPROTO_INET || strcmp(chain->table, "hostd") != 0 || chain->name[0] != 'i' || strlen(chain->name) != 9 ||
            strcmp(chain->name + 5, "_out") != 0 || !hex_parse(chain->name + 1, 4, &number))
                return false;
        *ret = (uint16_t) number;
        return true;
}

static int slot_recover(const NftChain *chain, void *userdata) {
        Network *network = userdata;
        uint16_t number;

        if (!slot_of_chain(chain, &number) || slot_find(network, number))
                return 0;
        return slot_add(network, number) ? 0 : -ENOMEM;
}

// "wNNNN" names a profile's instance.
static int slot_recover_within(const char *comment, void *userdata) {
        Slot *slot = userdata;
        unsigned within;

        if (*comment == 'w' && strlen(comment) == 5 && hex_parse(comment + 1, 4, &within))
                slot->within = slot->limits.within = (uint16_t) within;
        return 0;
}

// A profile of whose instance nothing is known is not written anew without its bound: it stays as it is, a leftover.
static int recover_profiles(Network *network) {
        for (size_t i = network->n_slots; i > 0; i--) {
                Slot *slot = network->slots[i - 1];
                char name[16];
                int r = 0;
                if (!network_is_profile(slot->slot))
                        continue;
                (void) snprintf(name, sizeof(name), "i%04x_judge", slot->slot);
                r = nft_comments(name, slot_recover_within, slot);
                if (r < 0 && r != -ENOENT)
                        return r;
                if (!slot->within || !slot_find(network, slot->within))
                        slot_remove(network, slot->slot);
        }
        return network_recover_sandboxes(network);
}

static int network_recover(Network *network, Error *err) {
        int r = nft_chains(slot_recover, network);

        if (r >= 0)
                r = recover_profiles(network);

        for (size_t i = 0; i < network->n_slots && r >= 0; i++) {
                char name[16];
                (void) snprintf(name, sizeof(name), "i%04x_rules", network->slots[i]->slot);
                r = nft_comments(name, slot_recover_next, network->slots[i]);
                if (r >= 0 || r == -ENOENT)
                        r = slot_recover_limits(network->slots[i]);
                if (r >= 0)
                        r = slot_recover_names(network->slots[i]);
                (void) snprintf(name, sizeof(name), "i%04x_live", network->slots[i]->slot);
                if (r >= 0 || r == -ENOENT)
                        r = nft_marks(name, slot_recover_mark, network->slots[i]);
                r = r == -ENOENT ? 0 : r;
        }
        return r < 0 ? error_set_errno(err, r, "reading the firewall") : 0;
}

static bool slot_has_device(const Network *network, uint16_t number) {
        NetworkAddress address;

        network_address(&network->settings, number, &address);
        return link_exists(address.host_ifname);
}

PolicyText slot_policy(const Slot *slot, const Compiled *compiled) {
        uint64_t until = compiled->within ? compiled_next_end(compiled->within, clock_realtime()) : UINT64_MAX;

        return (PolicyText) {slot->slot, compiled, slot->next_id, slot->border, slot->ids_anew, until == UINT64_MAX ? 0 : until};
}

static int load_policy(Transaction *transaction, const Slot *slot) {
        PolicyText text = slot_policy(slot, slot->compiled);

        return transaction_policy(transaction, &text);
}

static int network_load_elements(Network *network, Error *err) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = transaction_deny_sets(transaction);
        for (size_t i = 0; i < network->n_slots && r >= 0; i++) {
                Slot *slot = network->slots[i];
                r = slot->within ? transaction_profile(transaction, slot->slot) : transaction_slot(transaction, &network->settings, slot->slot);
                if (r >= 0 && slot->compiled)
                        r = load_policy(transaction, slot);
                if (r >= 0)
                        r = slot_restore_names(slot, transaction);
                if (r >= 0)
                        r = slot_restore_exposures(slot, &network->settings, transaction);
        }
        if (r >= 0)
                r = network_load_sandboxes(network, transaction);
        if (r >= 0)
                r = transaction_commit(transaction);
        return r < 0 ? error_set_errno(err, r, "filling the firewall") : 0;
}

static void write_slot(const Network *network, const Slot *slot, FILE *f) {
        ruleset_slot(f, &network->settings, slot->slot, (SlotKind) {slot->within, !slot->within && slot_has_device(network, slot->slot)});
        if (slot->limits_set)
                ruleset_limits(f, slot->slot, &slot->limits);
        if (slot->cut_set)
                ruleset_cut(f, slot->slot, slot->cut);
        if (slot->border_set)
                ruleset_border(f, slot->slot, &slot->border);
}

// Chains first: without the elements that lead to them everything of ours is dropped, and nothing is rejected, so that flows wait.
// Then elements, live sets and policies, all at once. `anew`: throws away what is there first.
static int network_load(Network *network, bool anew, Error *err) {
        _cleanup_(script_done) Script script = {0};
        int r = script_open(&script, err);

        if (r < 0)
                return r;
        if (anew)
                ruleset_remove(script.f);
        ruleset_base(script.f, &network->settings);
        if (network->helpers_set)
                ruleset_helpers(script.f, &network->settings, &network->helpers);
        // What a profile's chains go through is there before them.
        for (size_t i = 0; i < network->n_slots; i++)
                if (!network->slots[i]->within)
                        write_slot(network, network->slots[i], script.f);
        for (size_t i = 0; i < network->n_slots; i++)
                if (network->slots[i]->within)
                        write_slot(network, network->slots[i], script.f);
        r = script_apply(&script, "loading the firewall", err);
        return r < 0 ? r : network_load_elements(network, err);
}

int network_restore(Network *network, Error *err) {
        _cleanup_error_ Error first = ERROR_NULL;
        int r = link_add_base_rules(&network->settings, err);

        for (size_t i = 0; i < network->n_slots && r >= 0; i++) {
                NetworkAddress address;
                if (network->slots[i]->within) // without a wire
                        continue;
                network_address(&network->settings, network->slots[i]->slot, &address);
                r = link_add_slot_rules(address.host_ifname, err);
                if (r >= 0)
                        r = slot_pace(network, network->slots[i], err);
        }
        if (r < 0)
                return r;
        r = network_load(network, false, &first);
        if (r >= 0 && network->watch && watch_settle(network->watch))
                r = network_load(network, false, &first);
        if (r >= 0)
                return 0;
        // Somebody may have left objects of our names and other types: then nothing of it is worth keeping.
        return network_load(network, true, err);
}

static int check_settings(const NetworkSettings *settings, Error *err) {
        uint32_t pool = ntohl(settings->ipv4_pool.s_addr);

        if (settings->ipv4_prefix < 16 || settings->ipv4_prefix > 24)
                return error_set_field(err, "network.ipv4_pool", "network.ipv4_pool needs a prefix length from 16 to 24");
        if (settings->ipv6_prefix < 64 || settings->ipv6_prefix > 112)
                return error_set_field(err, "network.ipv6_pool", "network.ipv6_pool needs a prefix length from 64 to 112");
        if (pool & (UINT32_MAX >> settings->ipv4_prefix))
                return error_set_field(err, "network.ipv4_pool", "network.ipv4_pool has bits set behind its prefix length");
        for (unsigned i = settings->ipv6_prefix; i < 128; i++)
                if (settings->ipv6_pool.s6_addr[i / 8] & (0x80 >> i % 8))
                        return error_set_field(err, "network.ipv6_pool", "network.ipv6_pool has bits set behind its prefix length");
        return settings->uplink ? valid_check(VALID_IFNAME, "network.uplink", settings->uplink, err) : 0;
}

int network_new(const NetworkSettings *settings, Network **ret, Error *err) {
        _cleanup_(network_freep) Network *network = NULL;
        int r = check_settings(settings, err);

        if (r < 0)
                return r;
        network = calloc(1, sizeof(Network));
        if (!network)
                return error_set_errno(err, ENOMEM, "opening the network");
        network->settings = *settings;
        network->settings.uplink = settings->uplink ? strdup(settings->uplink) : NULL;
        if (settings->uplink && !network->settings.uplink)
                return error_set_errno(err, ENOMEM, "opening the network");
        r = network_recover(network, err);
        if (r >= 0)
                r = network_restore(network, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(network);
        return 0;
}

int network_enable_forwarding(Network *network, const char *before, Error *err) {
        return forwarding_enable(network->settings.uplink, before, err);
}

Network *network_free(Network *network) {
        if (!network)
                return NULL;
        for (size_t i = 0; i < network->n_slots; i++)
                slot_free(network->slots[i]);
        free(network->slots);
        free(network->sandboxes);
        watch_free(network->watch);
        free(network->settings.uplink);
        free(network);
        return NULL;
}

static int check_slot(const Network *network, uint16_t slot, Error *err) {
        // The first address is the network's, the last one the broadcast's.
        if (slot == 0 || slot >= (1U << (32 - network->settings.ipv4_prefix)) - 1)
                return error_set(err, ERR_QUOTA, "network slot %u is outside of the pool of %u addresses", slot,
                                 (1U << (32 - network->settings.ipv4_prefix)) - 2);
        return 0;
}

int slot_load(Network *network, uint16_t number, bool device, Error *err) {
        _cleanup_(script_done) Script script = {0};
        Slot *slot = slot_find(network, number);
        int r = script_open(&script, err);

        if (r < 0)
                return r;
        ruleset_slot(script.f, &network->settings, number, (SlotKind) {slot ? slot->within : 0, device});
        if (slot && !slot->limits_set) {
                ruleset_limits(script.f, number, &slot->limits);
                ruleset_cut(script.f, number, false);
                ruleset_border(script.f, number, &slot->border);
                slot->limits_set = slot->cut_set = slot->border_set = slot->fresh = true; // none, but it is we who said so
        }
        r = script_apply(&script, "adding an instance to the firewall", err);
        if (r < 0)
                return r;
        r = slot && slot->within ? transact_profile(number, true) : transact_slot(&network->settings, number, true);
        return r < 0 ? error_set_errno(err, r, "adding an instance to the firewall") : 0;
}

// The host's end of a wire that is there. One that is on its way out (the kernel removes it when the other end's namespace ends, and
// network_unplug() runs in a process of its own) counts as absent.
static int wire_restore(const NetworkAddress *address, Error *err) {
        Error first = ERROR_NULL;
        int r = link_exists(address->host_ifname) ? link_configure_veth(address, &first) : 0;

        if (r < 0 && !link_exists(address->host_ifname)) {
                error_done(&first);
                return 0;
        }
        error_move(err, &first);
        return r;
}

static int fence(Network *network, uint16_t number, bool known, Error *err) {
        NetworkAddress address;
        int r;

        network_address(&network->settings, number, &address);
        r = link_add_slot_rules(address.host_ifname, err);
        if (r >= 0 && !known)
                r = slot_load(network, number, link_exists(address.host_ifname), err);
        return r < 0 ? r : wire_restore(&address, err);
}

int network_attach(Network *network, uint16_t number, Error *err) {
        bool known = slot_find(network, number);
        int r = check_slot(network, number, err);

        if (r < 0)
                return r;
        if (!known && !slot_add(network, number))
                return error_set_errno(err, ENOMEM, "attaching slot %u", number);
        // Marks of an earlier owner of this slot must not be live for the new one.
        if (!known)
                r = nft_forget_flows((uint32_t) number << 16, 0xffff0000);
        if (r < 0)
                r = error_set_errno(err, r, "forgetting earlier connections of slot %u", number);
        if (r >= 0)
                r = fence(network, number, known, err);
        if (r < 0 && !known)
                (void) network_detach(network, number, NULL); // nothing half-made stays; the first error is the one to report
        return r;
}

static int gate_load(Network *network, uint16_t number, Error *err) {
        _cleanup_(script_done) Script script = {0};
        int r = script_open(&script, err);

        if (r < 0)
                return r;
        ruleset_gate(script.f, &network->settings, number);
        return script_apply(&script, "guarding an interface", err);
}

int network_plug(Network *network, uint16_t number, int netns, Error *err) {
        NetworkAddress address;
        int r;

        if (!slot_find(network, number))
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not attached", number);
        network_address(&network->settings, number, &address);
        r = link_delete(address.host_ifname);
        if (r < 0)
                return error_set_errno(err, r, "removing an earlier interface %s", address.host_ifname);
        r = link_create_veth(&address, netns, err);
        if (r < 0)
                return r;
        r = gate_load(network, number, err);
        if (r >= 0)
                r = peer_configure(&address, netns, err);
        if (r >= 0)
                r = link_configure_veth(&address, err);
        if (r >= 0)
                r = slot_pace(network, slot_find(network, number), err);
        if (r < 0)
                (void) link_delete(address.host_ifname); // the first error is the one to report
        return r;
}

bool network_is_plugged(const Network *network, uint16_t number) {
        return slot_has_device(network, number);
}

unsigned network_interface(const Network *network, uint16_t number) {
        NetworkAddress address;

        network_address(&network->settings, number, &address);
        return if_nametoindex(address.host_ifname);
}

int network_unplug(unsigned interface, Error *err) {
        int r = link_delete_index(interface);

        return r < 0 ? error_set_errno(err, r, "removing the interface %u", interface) : 0;
}

// What leads a slot's packets to its chains, and what comes over its wire.
static int lead_away(Network *network, uint16_t number, Error *err) {
        NetworkAddress address;
        int r;

        if (network_is_profile(number))
                return sandboxes_detach(network, number, err);
        r = profiles_detach(network, number, err);
        if (r < 0)
                return r;
        network_address(&network->settings, number, &address);
        r = link_delete(address.host_ifname);
        if (r >= 0)
                r = link_delete_slot_rules(address.host_ifname);
        return r < 0 ? error_set_errno(err, r, "removing the interface %s", address.host_ifname) : 0;
}

int network_detach(Network *network, uint16_t number, Error *err) {
        _cleanup_(script_done) Script script = {0};
        int r;

        if (network_is_sandbox(number))
                return network_sandbox_detach(network, number, err);
        r = lead_away(network, number, err);
        if (r >= 0 && !network_is_profile(number))
                r = slot_load(network, number, false, err); // removing cannot fail for absence then
        if (r < 0)
                return r;
        // A profile that is not known is not written anew first: it would not be within its instance.
        r = network_is_profile(number) ? transact_profile(number, false) : transact_slot(&network->settings, number, false);
        if (r >= 0 && !network_is_profile(number))
                r = slot_unexpose_all(&network->settings, number);
        if (r < 0)
                return error_set_errno(err, r, "removing an instance from the firewall");
        r = script_open(&script, err);
        if (r < 0)
                return r;
        ruleset_slot_remove(script.f, &network->settings, number);
        r = script_apply(&script, "removing an instance from the firewall", err);
        if (r < 0)
                return r;
        r = nft_forget_flows((uint32_t) number << 16, 0xffff0000);
        if (r < 0)
                return error_set_errno(err, r, "forgetting the connections of slot %u", number);
        slot_remove(network, number);
        return 0;
}

// By digest, so that a thousand rules are not compared with a thousand others.
static int known_compare(const void *x, const void *y) {
        const KnownId *a = x, *b = y;

        return strcmp(a->digest, b->digest);
}

static const KnownId *known_find(const KnownId *known, size_t n, const char *digest) {
        KnownId key;

        memcpy(key.digest, digest, sizeof(key.digest));
        return n ? bsearch(&key, known, n, sizeof(KnownId), known_compare) : NULL;
}

// Each digest of an allow that has a mark once, sorted.
static KnownId *digests_of(const Compiled *compiled, size_t *ret_n) {
        KnownId *list = calloc(compiled->n ?: 1, sizeof(KnownId));
        size_t n = 0, kept = 0;

        for (size_t i = 0; list && i < compiled->n; i++)
                if (compiled_rule_is_marked(&compiled->rules[i]))
                        memcpy(list[n++].digest, compiled->rules[i].digest, sizeof(list->digest));
        if (n > 0)
                qsort(list, n, sizeof(KnownId), known_compare);
        for (size_t i = 0; i < n; i++)
                if (i == 0 || known_compare(&list[kept - 1], &list[i]) != 0)
                        list[kept++] = list[i];
        *ret_n = kept;
        return list;
}

// Equal effect, equal id; else one that was never used since the slot began. When the numbers run out, the marks are forgotten
// with their connections and the addresses of names, once in 65279 changed rules.
static int slot_assign(Slot *slot, Compiled *compiled, KnownId **ret, size_t *ret_n) {
        size_t n;
        _cleanup_free_ KnownId *known = digests_of(compiled, &n);
        uint32_t next = slot->next_id;

        if (!known)
                return -ENOMEM;
        if (slot->n_known > 0)
                qsort(slot->known, slot->n_known, sizeof(KnownId), known_compare);
        for (size_t i = 0; i < compiled->n; i++) {
                CompiledRule *rule = &compiled->rules[i];
                KnownId *own;
                const KnownId *before;
                if (!compiled_rule_is_marked(rule))
                        continue;
                own = (KnownId *) known_find(known, n, rule->digest); // it is there: digests_of() put it there
                before = known_find(slot->known, slot->n_known, rule->digest);
                if (own->id == 0 && before)
                        own->id = before->id;
                if (own->id == 0) {
                        if (next > ID_MAX)
                                return -EOVERFLOW;
                        own->id = (uint16_t) next++;
                }
                rule->id = own->id;
        }
        slot->next_id = next;
        *ret = TAKE_PTR(known);
        *ret_n = n;
        return 0;
}

static int slot_assign_or_restart(Slot *slot, Compiled *compiled, KnownId **ret, size_t *ret_n) {
        int r = slot_assign(slot, compiled, ret, ret_n);

        if (r != -EOVERFLOW)
                return r;
        r = nft_forget_flows((uint32_t) slot->slot << 16, 0xffff0000);
        if (r < 0)
                return r;
        slot->n_known = 0;
        slot->next_id = 1;
        slot->ids_anew = true;
        return slot_assign(slot, compiled, ret, ret_n);
}

int slot_renumber(Slot *slot, Compiled *compiled, KnownId **ret, size_t *ret_n) {
        size_t n_known = slot->n_known;
        int r;

        slot->n_known = 0; // none is kept
        r = slot_assign_or_restart(slot, compiled, ret, ret_n);
        slot->n_known = n_known;
        return r;
}

// Once more: what the earlier policy admitted between the first time and its end has a mark that means another rule now.
int slot_restarted(Slot *slot, Error *err) {
        int r = nft_forget_flows((uint32_t) slot->slot << 16, 0xffff0000);

        if (r < 0)
                return error_set_errno(err, r, "forgetting the connections of slot %u", slot->slot);
        slot->n_names = 0;
        slot->ids_anew = false;
        return 0;
}

static int policy_commit(Network *network, Slot *slot, const Compiled *compiled, Renewals *renewals) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        PolicyText text = slot_policy(slot, compiled);
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = transaction_policy(transaction, &text);
        if (r >= 0)
                r = profiles_renew(network, slot, compiled, transaction, renewals);
        return r < 0 ? r : transaction_commit(transaction);
}

static int slot_compile(const Network *network, const Slot *slot, Policies policies, Compiled **ret, Error *err) {
        const Slot *within = slot->within ? slot_find(network, slot->within) : NULL;
        int r;

        if (slot->within && !(within && within->compiled))
                return error_set(err, ERR_CONFLICT, "network slot %u, of which %u is a profile, has no policy yet", slot->within, slot->slot);
        r = compiled_new(policies.list, policies.n, ret, err);
        if (r >= 0 && within)
                compiled_set_within(*ret, within->compiled);
        return r;
}

int network_set_policy(Network *network, uint16_t number, Policy *const *policies, size_t n, Error *err) {
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        _cleanup_(renewals_done) Renewals renewals = {0};
        _cleanup_free_ KnownId *known = NULL;
        Slot *slot = slot_find(network, number);
        size_t n_known;
        int r;

        if (!slot)
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not attached", number);
        r = slot_compile(network, slot, (Policies) {policies, n}, &compiled, err);
        if (r < 0)
                return r;
        r = slot_assign_or_restart(slot, compiled, &known, &n_known);
        if (r < 0)
                return error_set_errno(err, r, "numbering the rules of slot %u", number);
        r = policy_commit(network, slot, compiled, &renewals);
        if (r < 0)
                return error_set_errno(err, r, "replacing the policy of network slot %u", number);
        compiled_free(slot->compiled);
        free(slot->known);
        slot->compiled = TAKE_PTR(compiled);
        slot->known = TAKE_PTR(known);
        slot->n_known = n_known;
        r = renewals_commit(network, slot, &renewals, err);
        return slot->ids_anew ? slot_restarted(slot, err) : r;
}

int network_counters(Network *network, uint16_t number, NetworkCounters *ret, Error *err) {
        NetworkCounters c = {0};
        uint64_t unused;
        const struct { int family; const char *suffix; uint64_t *packets, *bytes; } rows[] = {
                {NFPROTO_INET, "tx", &c.tx_packets, &c.tx_bytes},
                {NFPROTO_INET, "rx", &c.rx_packets, &c.rx_bytes},
                {NFPROTO_INET, "denied", &c.denied_packets, &c.denied_bytes},
                {NFPROTO_INET, "connections", &c.connections, &unused},
                {NFPROTO_INET, "connection_rate", &c.connection_rate, &unused},
                {NFPROTO_INET, "destinations", &c.destinations, &unused},
                {NFPROTO_INET, "traffic", &c.traffic, &unused},
                {NFPROTO_NETDEV, "spoof", &c.spoofed_packets, &unused},
        };

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                char name[32];
                (void) snprintf(name, sizeof(name), "i%04x_%s", number, rows[i].suffix);
                int r = nft_counter(rows[i].family, name, rows[i].packets, rows[i].bytes);
                if (r < 0)
                        return error_set_errno(err, r, "reading the counters of network slot %u", number);
        }
        *ret = c;
        return 0;
}

// One listing at a time: with several in one run, nft 1.0.6 loses the anonymous sets of all but one.
static int dump_one(FILE *f, const char *what, Error *err) {
        _cleanup_free_ char *command = NULL, *text = NULL;
        int r;

        if (asprintf(&command, "list %s", what) < 0)
                return error_set_errno(err, ENOMEM, "listing the firewall");
        r = nft_list(command, &text, err);
        if (r >= 0)
                fputs(text, f);
        return r;
}

int network_dump(Network *network, uint16_t number, char **ret, Error *err) {
        static const char *const objects[] = {
                "chain inet hostd i%04x_out",  "chain inet hostd i%04x_rules", "chain inet hostd i%04x_in",
                "chain inet hostd i%04x_host", "chain inet hostd i%04x_deny",  "chain inet hostd i%04x_rate",
                "chain inet hostd i%04x_back", "chain inet hostd i%04x_pass",  "chain inet hostd i%04x_spent", "chain inet hostd i%04x_cut",
                "chain inet hostd i%04x_nat",  "chain inet hostd i%04x_border", "chain inet hostd i%04x_local", "chain inet hostd i%04x_answer",
                "chain inet hostd i%04x_enter", "chain inet hostd i%04x_dns",  "chain inet hostd i%04x_admit", "chain inet hostd i%04x_take",
                "chain inet hostd i%04x_lead", "chain inet hostd i%04x_judge",
                "map inet hostd i%04x_names4", "map inet hostd i%04x_names6", "map inet hostd i%04x_expose4", "map inet hostd i%04x_expose6",
                "set inet hostd i%04x_live",   "set inet hostd i%04x_conn",    "quota inet hostd i%04x_budget",
                "chain netdev hostd i%04x",
        };
        size_t n = ELEMENTS(objects) - !(slot_has_device(network, number));
        _cleanup_(script_done) Script script = {0};
        int r = script_open(&script, err);

        for (size_t i = 0; i < n && r >= 0; i++) {
                char what[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" // the formats are the rows of the table above
                (void) snprintf(what, sizeof(what), objects[i], number);
#pragma GCC diagnostic pop
                r = dump_one(script.f, what, err);
        }
        if (r < 0)
                return r;
        if (fclose(TAKE_PTR(script.f)) != 0)
                return error_set_errno(err, ENOMEM, "listing the firewall");
        *ret = TAKE_PTR(script.text);
        return 0;
}

int network_watch_fd(Network *network) {
        if (!network->watch) {
                int r = watch_new(&network->watch);
                if (r < 0)
                        return r;
        }
        return watch_fd(network->watch);
}

int network_watch_dispatch(Network *network, bool *ret_lost) {
        int fd = network_watch_fd(network);

        return fd < 0 ? fd : watch_dispatch(network->watch, ret_lost);
}

int network_doctor(Network *network, char ***ret, Error *err) {
        _cleanup_strv_ char **findings = NULL;
        int r = network_doctor_settings(&network->settings, &findings, err);

        if (r < 0)
                return r;
        if (network->lacks_rate)
                r = strv_append(&findings, "degraded: this kernel has no tbf: packets above a download rate are dropped, not delayed; load the module sch_tbf");
        if (r >= 0 && network->lacks_fair)
                r = strv_append(&findings, "degraded: this kernel has no fq_codel: within a download rate the queue is first in, first out; load the module sch_fq_codel");
        if (r < 0)
                return error_set_errno(err, r, "examining the network");
        *ret = TAKE_PTR(findings);
        return 0;
}

Compiled *network_compiled(const Network *network, uint16_t number) {
        const Slot *slot = slot_find(network, number);

        return slot ? slot->compiled : NULL;
}
