// SPDX-License-Identifier: GPL-2.0-or-later
// Network, border: which slots are led to the resolver and the proxy, the addresses that the resolver found, and the helpers' own fence.
//
// An address is asked for by a program that reads what the network wrote, so nothing of it is believed: the rule must be one of the slot,
// and the list of rules is walked again for each port.
#include "network/network_internal.h"

#include <linux/netfilter.h> // after netinet/in.h, which it would contradict
#include <string.h>

#include "network/nft.h"

#define NAME_PORTS_MAX (POLICY_NAME_PORTS_MAX + 2)

static int border_load(Slot *slot, const NetworkBorder *border, Error *err) {
        _cleanup_(script_done) Script script = {0};
        int r = script_open(&script, err);

        if (r < 0)
                return r;
        ruleset_border(script.f, slot->slot, border);
        return script_apply(&script, "leading an instance to the border", err);
}

static int policy_load(Slot *slot, Error *err) {
        PolicyText text;
        int r;

        if (!slot->compiled) // network_set_policy() follows
                return 0;
        text = slot_policy(slot, slot->compiled);
        r = transact_policy(&text);
        return r < 0 ? error_set_errno(err, r, "leading network slot %u to the border", slot->slot) : 0;
}

// The door is open before anybody is led to it, and shut when nobody is any more.
int network_set_border(Network *network, uint16_t number, const NetworkBorder *border, Error *err) {
        Slot *slot = slot_find(network, number);
        NetworkBorder both, before;
        bool led;
        int r;

        if (!slot)
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not attached", number);
        led = slot->border_set && slot->border.resolver == border->resolver && slot->border.proxy == border->proxy;
        if (led && slot->border.resolver_shut == border->resolver_shut && slot->border.proxy_shut == border->proxy_shut)
                return 0;
        before = slot->border;
        both = *border;
        both.resolver = before.resolver || border->resolver;
        both.proxy = before.proxy || border->proxy;
        r = border_load(slot, &both, err);
        if (r < 0)
                return r;
        slot->border = *border;
        if (led) // there is only a door to open or to shut
                return 0;
        r = policy_load(slot, err);
        if (r < 0) {
                slot->border = before;
                return r;
        }
        slot->border_set = true;
        return slot->compiled ? border_load(slot, border, err) : 0;
}

int network_set_helpers(Network *network, const NetworkHelpers *helpers, Error *err) {
        _cleanup_(script_done) Script script = {0};
        int r;

        if (helpers->n_uids > NETWORK_HELPERS_MAX || helpers->n_upstreams > NETWORK_UPSTREAMS_MAX)
                return error_set_errno(err, EINVAL, "fencing in the border's programs");
        if (network->helpers_set && memcmp(&network->helpers, helpers, sizeof(*helpers)) == 0)
                return 0;
        r = script_open(&script, err);
        if (r < 0)
                return r;
        ruleset_helpers(script.f, &network->settings, helpers);
        r = script_apply(&script, "fencing in the border's programs", err);
        if (r < 0)
                return r;
        network->helpers = *helpers;
        network->helpers_set = true;
        return 0;
}

int network_helpers_denied(Network *network, uint64_t *ret_packets) {
        uint64_t bytes;

        return nft_counter(NFPROTO_INET, "helpers_denied", ret_packets, &bytes);
}

// ---- names

static const CompiledRule *rule_by_id(const Slot *slot, uint16_t id) {
        const Compiled *compiled = slot->compiled;

        for (size_t i = 0; compiled && id && i < compiled->n_names; i++) {
                const CompiledRule *rule = &compiled->rules[compiled->names[i].rule];
                if (rule->id == id && rule->action == POLICY_ALLOW)
                        return rule;
        }
        return NULL;
}

// A rule by address in front decides, whatever it says: if it denies, nothing may be put in, and if it allows, nothing need be.
static bool decided_in_front(const Compiled *compiled, const CompiledRule *rule, const Cidr *address, uint16_t port) {
        size_t place = (size_t) (rule - compiled->rules);

        for (size_t i = 0; i < compiled->n_addresses && compiled->addresses[i] < place; i++)
                if (compiled_rule_matches(&compiled->rules[compiled->addresses[i]], address, rule->protocol, port))
                        return true;
        return false;
}

// Elements for the ports that are asked for and not the proxy's.
static size_t elements_of(const Slot *slot, const CompiledRule *rule, const NetworkName *name, NameElement ret[NAME_PORTS_MAX]) {
        Cidr address = cidr_of_address(name->family, name->address);
        size_t n = 0;
        uint16_t port;

        for (unsigned i = 0; i < INSERT_PORTS_MAX && n < NAME_PORTS_MAX && compiled_rule_port(rule, i, &port); i++) {
                if (!(name->ports >> i & 1) || compiled_is_proxied(rule->protocol, port) || decided_in_front(slot->compiled, rule, &address, port))
                        continue;
                ret[n] = (NameElement) {
                        .slot = slot->slot, .port = port, .family = name->family,
                        .protocol = rule->protocol == POLICY_UDP ? IPPROTO_UDP : IPPROTO_TCP,
                        .mark = (uint32_t) slot->slot << 16 | rule->id,
                        .timeout_ms = ((uint64_t) name->ttl_s + NETWORK_NAME_GRACE) * 1000,
                };
                memcpy(ret[n++].address, name->address, name->family == AF_INET ? 4 : 16);
        }
        return n;
}

static bool element_equal(const NameElement *a, const NameElement *b) {
        return a->port == b->port && a->family == b->family && a->protocol == b->protocol && memcmp(a->address, b->address, sizeof(a->address)) == 0;
}

// The end of an element is forgotten when somebody looks for its place.
static void names_expire(Slot *slot, usec_t now) {
        size_t kept = 0;

        for (size_t i = 0; i < slot->n_names; i++)
                if (slot->names[i].until > now)
                        slot->names[kept++] = slot->names[i];
        slot->n_names = kept;
}

static int names_note(Slot *slot, const NameElement *element) {
        usec_t until = clock_monotonic() + element->timeout_ms * USEC_PER_MSEC;
        size_t i = 0;

        while (i < slot->n_names && !element_equal(&slot->names[i].element, element))
                i++;
        if (i == slot->n_names) {
                KeptName *names;
                if (slot->n_names % 64 == 0)
                        names_expire(slot, clock_monotonic());
                i = slot->n_names;
                names = reallocarray(slot->names, i + 64, sizeof(*names));
                if (!names)
                        return -ENOMEM;
                slot->names = names;
                slot->n_names++;
        }
        slot->names[i] = (KeptName) {*element, until};
        return 0;
}

int network_name_insert(Network *network, const NetworkName *name, Error *err) {
        NameElement elements[NAME_PORTS_MAX];
        Slot *slot = slot_find(network, name->slot);
        const CompiledRule *rule;
        Cidr address;
        size_t n;
        int r;

        if (!slot || !slot->border.resolver)
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not led to the resolver", name->slot);
        rule = rule_by_id(slot, name->rule_id);
        if (!rule || (name->family != AF_INET && name->family != AF_INET6))
                return error_set(err, ERR_DENIED, "network slot %u has no rule by name %u", name->slot, name->rule_id);
        address = cidr_of_address(name->family, name->address);
        if (!policy_may_answer(slot->compiled, &address))
                return error_set(err, ERR_DENIED, "an address that is denied by default is not opened for a name");
        if (denied_by_default(&address)) // a rule by address names it on purpose, and that one admits
                return 0;
        n = elements_of(slot, rule, name, elements);
        if (n == 0)
                return 0;
        r = transact_names(elements, n);
        if (r == -ENFILE || r == -ENOSPC)
                return error_set(err, ERR_QUOTA, "network slot %u has %d addresses of names", name->slot, NAMES_MAX);
        for (size_t i = 0; i < n && r >= 0; i++)
                r = names_note(slot, &elements[i]);
        return r < 0 ? error_set_errno(err, r, "opening an address for a name") : 0;
}

// After a flush, with the time that is left. What the kernel has already is left as it is.
int slot_restore_names(Slot *slot, Transaction *transaction) {
        usec_t now = clock_monotonic();
        int r = 0;

        names_expire(slot, now);
        for (size_t i = 0; i < slot->n_names && r >= 0; i++) {
                KeptName *name = &slot->names[i];
                name->element.timeout_ms = (name->until - now) / USEC_PER_MSEC + 1;
                r = transaction_name(transaction, &name->element);
        }
        return r;
}

static int recover_element(const NftNameElement *element, void *userdata) {
        Slot *slot = userdata;
        NameElement name = {.slot = slot->slot, .port = element->port, .family = element->family, .protocol = element->protocol, .mark = element->mark,
                            .timeout_ms = element->left_ms};

        memcpy(name.address, element->address, sizeof(name.address));
        return names_note(slot, &name);
}

int slot_recover_names(Slot *slot) {
        int r = 0;

        for (unsigned i = 0; i < 2 && r >= 0; i++) {
                char set[16];
                (void) snprintf(set, sizeof(set), "i%04x_names%d", slot->slot, i ? 6 : 4);
                r = nft_names_map(set, i ? AF_INET6 : AF_INET, recover_element, slot);
                r = r == -ENOENT ? 0 : r;
        }
        return r;
}
