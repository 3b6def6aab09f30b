// SPDX-License-Identifier: GPL-2.0-or-later
// Slot: one instance's wire. Its listeners are bound to the device, so that the kernel says whose question it is.
#include "resolver/resolver.h"

#include <net/if.h>
#include <string.h>

#include "base/log.h"

#define RETRY_AFTER (2 * USEC_PER_SEC)

Slot *slot_find(const Resolver *resolver, uint16_t number) {
        Slot *slot = resolver->slots;

        while (slot && slot->view.slot != number)
                slot = slot->next;
        return slot;
}

Slot *slot_free(Slot *slot) {
        Slot **p;

        if (!slot)
                return NULL;
        for (p = &slot->resolver->slots; *p && *p != slot; p = &(*p)->next)
                ;
        if (*p)
                *p = slot->next;
        slot_close(slot);
        pending_free_of(slot, NULL);
        zones_done(&slot->zones);
        grants_done(&slot->grants);
        view_slot_done(&slot->view);
        free(slot);
        return NULL;
}

static Slot *slot_new(Resolver *resolver) {
        Slot *slot = calloc(1, sizeof(Slot));

        if (!slot)
                return NULL;
        slot->resolver = resolver;
        slot->refusals = (Rate) {.rate = 500, .burst = 500};
        slot->complaints = (Rate) {.rate = 5, .burst = 20};
        for (size_t i = 0; i < _LISTEN_MAX; i++)
                slot->fds[i] = -EBADF;
        slot->next = resolver->slots;
        resolver->slots = slot;
        return slot;
}

static int slots_on_retry(sd_event_source *source, uint64_t usec, void *userdata) {
        Resolver *resolver = userdata;

        resolver->retry = sd_event_source_disable_unref(resolver->retry);
        slots_resync(resolver);
        return 0;
}

// As slot_listen(); what may get better by itself (no descriptors, an address in use) is tried again.
static int slot_try_listen(Slot *slot) {
        Resolver *resolver = slot->resolver;
        int r = slot_listen(slot);

        if (r == -ENODEV) // it will come, and the kernel will say so
                return 0;
        if (r < 0 && !resolver->retry)
                (void) sd_event_add_time_relative(resolver->event, &resolver->retry, CLOCK_MONOTONIC, RETRY_AFTER, 0, slots_on_retry, resolver);
        return r;
}

int slot_apply(Resolver *resolver, ViewSlot *view) {
        Slot *slot = slot_find(resolver, view->slot);
        bool moved = !slot || strcmp(slot->view.ifname, view->ifname) != 0;
        int r;

        if (!slot)
                slot = slot_new(resolver);
        if (!slot)
                return -ENOMEM;
        view_slot_done(&slot->view);
        slot->view = *view;
        *view = (ViewSlot) {0};
        rate_change(&slot->rate, slot->view.dns.rate, slot->view.dns.burst, clock_monotonic());
        // With the policy the kernel's maps may have been made anew, and rules have other numbers.
        grants_done(&slot->grants);
        if (moved) {
                slot_close(slot);
                pending_free_of(slot, NULL);
                zones_done(&slot->zones);
        }
        // One that cannot listen is without names until it can, which is no older policy in force: nobody else waits for it.
        r = slot->ifindex == 0 ? slot_try_listen(slot) : 0;
        if (r < 0)
                log_event(LOG_WARNING, NULL, slot->view.instance, "cannot listen on %s: %s", slot->view.ifname, strerror(-r));
        return 0;
}

void slot_link(Resolver *resolver, const char *ifname, int ifindex) {
        for (Slot *slot = resolver->slots; slot; slot = slot->next) {
                int r;
                if (strcmp(slot->view.ifname, ifname) != 0 || slot->ifindex == ifindex)
                        continue;
                // Listeners are bound to the device that is gone, though its successor has the same name.
                slot_close(slot);
                r = ifindex > 0 ? slot_try_listen(slot) : 0;
                if (r < 0)
                        log_event(LOG_WARNING, NULL, slot->view.instance, "cannot listen on %s: %s", ifname, strerror(-r));
        }
}

void slots_resync(Resolver *resolver) {
        for (Slot *slot = resolver->slots; slot; slot = slot->next)
                slot_link(resolver, slot->view.ifname, (int) if_nametoindex(slot->view.ifname));
}
