// SPDX-License-Identifier: GPL-2.0-or-later
// Network, exposures: ports of the host that lead into an instance. The kernel ends them, so that they end when no hostd is there.
#include <string.h>

#include "network/network_internal.h"
#include "network/nft.h"

static bool same_place(const NetworkExposure *a, const NetworkExposure *b) {
        return a->protocol == b->protocol && a->host_port == b->host_port;
}

static bool same(const NetworkExposure *a, const NetworkExposure *b) {
        return same_place(a, b) && a->id == b->id && a->port == b->port && a->from_family == b->from_family && a->from_prefix == b->from_prefix &&
               memcmp(a->from, b->from, sizeof(a->from)) == 0;
}

static size_t find(const Slot *slot, const NetworkExposure *exposure) {
        size_t i = 0;

        while (i < slot->n_exposures && !same_place(&slot->exposures[i].exposure, exposure))
                i++;
        return i;
}

static void forget(Slot *slot, size_t i) {
        slot->n_exposures--;
        slot->exposures[i] = slot->exposures[slot->n_exposures];
}

static void expire(Slot *slot, usec_t now) {
        for (size_t i = slot->n_exposures; i > 0; i--)
                if (slot->exposures[i - 1].until <= now)
                        forget(slot, i - 1);
}

int network_expose(Network *network, const NetworkExposure *exposure, Error *err) {
        Slot *slot = slot_find(network, exposure->slot);
        size_t i;
        int r;

        if (!slot)
                return error_set(err, ERR_NOT_FOUND, "network slot %u is not attached", exposure->slot);
        expire(slot, clock_monotonic());
        i = find(slot, exposure);
        if (i < slot->n_exposures && same(&slot->exposures[i].exposure, exposure))
                return 0;
        if (i < slot->n_exposures || i == NETWORK_EXPOSURES_MAX || exposure->id >= NETWORK_EXPOSURES_MAX)
                return error_set(err, ERR_CONFLICT, "port %u is exposed already", exposure->host_port);
        r = transact_expose(&network->settings, exposure);
        if (r == -EEXIST || r == -EBUSY)
                return error_set(err, ERR_CONFLICT, "port %u of the host leads to another instance already", exposure->host_port);
        if (r < 0)
                return error_set_errno(err, r, "exposing port %u", exposure->port);
        slot->exposures[i].exposure = *exposure;
        slot->exposures[i].until = exposure->left_ms ? clock_monotonic() + exposure->left_ms * USEC_PER_MSEC : USEC_INFINITY;
        slot->n_exposures++;
        return 0;
}

int network_unexpose(Network *network, const NetworkExposure *exposure, Error *err) {
        Slot *slot = slot_find(network, exposure->slot);
        size_t i;
        int r;

        if (!slot)
                return 0;
        r = transact_unexpose(&network->settings, exposure);
        if (r >= 0) // another one may get this mark
                r = nft_forget_flows((uint32_t) exposure->slot << 16 | EXPOSED_IDS | exposure->id, UINT32_MAX);
        if (r < 0)
                return error_set_errno(err, r, "closing port %u", exposure->port);
        i = find(slot, exposure);
        if (i < slot->n_exposures)
                forget(slot, i);
        return 0;
}

int slot_restore_exposures(Slot *slot, const NetworkSettings *settings, Transaction *transaction) {
        usec_t now = clock_monotonic();
        int r = 0;

        expire(slot, now);
        for (size_t i = 0; i < slot->n_exposures && r >= 0; i++) {
                if (slot->exposures[i].until != USEC_INFINITY)
                        slot->exposures[i].exposure.left_ms = (slot->exposures[i].until - now) / USEC_PER_MSEC + 1;
                r = transaction_expose(transaction, settings, &slot->exposures[i].exposure);
        }
        return r;
}

typedef struct LeadsTo {
        const NetworkSettings *settings;
        NetworkAddress address;
        NetworkExposure found[NETWORK_EXPOSURES_MAX];
        size_t n;
} LeadsTo;

static int leads_to(const NftExposed *element, void *userdata) {
        LeadsTo *search = userdata;
        bool four = element->family == AF_INET;

        if (search->n < NETWORK_EXPOSURES_MAX &&
            memcmp(element->address, four ? (const void *) &search->address.ipv4 : &search->address.ipv6, four ? 4 : 16) == 0)
                search->found[search->n++] = (NetworkExposure) {.protocol = element->protocol, .host_port = element->port};
        return 0;
}

// By what the kernel has: of a slot that an earlier hostd left nothing else is known.
int slot_unexpose_all(const NetworkSettings *settings, uint16_t slot) {
        LeadsTo search = {.settings = settings};
        int r;

        network_address(settings, slot, &search.address);
        r = nft_exposed("expose4", AF_INET, leads_to, &search);
        if (r >= 0)
                r = nft_exposed("expose6", AF_INET6, leads_to, &search);
        for (size_t i = 0; i < search.n && r >= 0; i++) {
                search.found[i].slot = slot;
                r = transact_unexpose(settings, &search.found[i]);
        }
        return r == -ENOENT ? 0 : r;
}
