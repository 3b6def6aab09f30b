// SPDX-License-Identifier: GPL-2.0-or-later
// Proxy: see proxy.h.
#include "proxy/proxy.h"

#include <string.h>

#include "base/log.h"
#include "proxy/connection.h"

#define TICK (2 * USEC_PER_SEC) // how long an interface that was made anew can be without listeners if nobody says so

// ---- slots

Slot *proxy_find(const Proxy *proxy, uint16_t number) {
        for (size_t i = 0; i < proxy->n_slots; i++)
                if (proxy->slots[i]->number == number)
                        return proxy->slots[i];
        return NULL;
}

static void proxy_remove(Proxy *proxy, size_t place) {
        connections_cut(proxy->slots[place], "the instance is gone");
        (void) slot_free(proxy->slots[place]);
        proxy->slots[place] = proxy->slots[--proxy->n_slots];
}

static int proxy_add(Proxy *proxy, const ViewSlot *view, Slot **ret) {
        Slot **grown = reallocarray(proxy->slots, proxy->n_slots + 1, sizeof(Slot *));
        int r;

        if (!grown)
                return -ENOMEM;
        proxy->slots = grown;
        r = slot_new(proxy, view, ret);
        if (r < 0)
                return r;
        proxy->slots[proxy->n_slots++] = *ret;
        return 0;
}

static void proxy_drop(Proxy *proxy, uint16_t number) {
        for (size_t i = proxy->n_slots; i > 0; i--)
                if (proxy->slots[i - 1]->number == number)
                        proxy_remove(proxy, i - 1);
}

static int proxy_apply_slot(Proxy *proxy, const ViewSlot *view) {
        Slot *slot = proxy_find(proxy, view->slot);
        int r;

        // Another instance under the number of the last one: nothing of that one's is this one's.
        if (slot && (strcmp(slot->instance, view->instance) != 0 || strcmp(slot->sandbox, view->sandbox ?: "") != 0)) {
                connections_cut(slot, "the instance is gone");
                seen_done(&slot->seen);
        }
        r = slot ? slot_update(slot, view) : proxy_add(proxy, view, &slot);
        if (r < 0) {
                proxy_drop(proxy, view->slot); // rather none than with the rules that it had
                return r;
        }
        connections_review(slot);
        if (view->offline) // the kernel lets nothing new through; what was on its way to the other end is not sent either
                connections_cut(slot, "the instance is cut off");
        // One that cannot listen is closed until it can, which is no older policy in force: nobody else waits for it. Without a wire there
        // is nobody to let through; it will come.
        r = slot_listen(slot);
        if (r < 0 && r != -ENODEV)
                log_warning("%s: cannot listen on %s: %s", slot->instance, slot->ifname, strerror(-r));
        return 0;
}

// No older rules are in force when this returns. -ENOMEM: a slot is not there, and hostd is to send it again.
static int proxy_apply(Proxy *proxy, View *view) {
        int result = view_lists_apply(&proxy->lists, view);

        for (size_t i = proxy->n_slots; i > 0; i--)
                if (result < 0 || view_ends(view, proxy->slots[i - 1]->number)) // rather none than with the rules that it had
                        proxy_remove(proxy, i - 1);
        for (size_t i = 0; i < view->n_slots && result >= 0; i++)
                if (!view->slots[i].within) // a profile has no wire
                        result = proxy_apply_slot(proxy, &view->slots[i]) < 0 ? -ENOMEM : result;
        return result;
}

// ---- hostd

static void proxy_frame(ControlServer *server, const ControlFrame *frame, void *userdata) {
        _cleanup_(view_freep) View *view = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        Proxy *proxy = userdata;
        int r;

        if (frame->header.type != BORDER_VIEWS)
                return; // it asks for nothing, so nothing is answered
        r = view_parse(frame->payload, frame->header.length, &view, &err);
        if (r < 0)
                log_warning("The rules that hostd sent cannot be used, those before stay in force: %s", error_message(&err, r));
        else
                r = proxy_apply(proxy, view);
        (void) control_server_applied(server, frame->header.cookie, r);
}

// Where nobody keeps records, or not fast enough, an operator should know that some are missing.
static void proxy_tell_drops(Proxy *proxy) {
        uint64_t dropped = flow_sender_dropped(proxy->records);

        if (dropped > proxy->dropped)
                log_warning("%llu records of connections were not taken by " BORDER_FLOW, (unsigned long long) (dropped - proxy->dropped));
        proxy->dropped = dropped;
}

static int proxy_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        Proxy *proxy = userdata;
        usec_t now = clock_monotonic();

        for (size_t i = 0; i < proxy->n_slots; i++) {
                (void) slot_listen(proxy->slots[i]); // not yet: it is tried again
                slot_look(proxy->slots[i]);
        }
        if (now >= proxy->saved + METERS_SAVE) {
                meters_save(proxy->meters);
                proxy_tell_drops(proxy);
                proxy->saved = now;
        }
        (void) sd_event_source_set_time(source, now + TICK);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int proxy_new(const ProxyConfig *config, Proxy **ret) {
        _cleanup_(proxy_freep) Proxy *proxy = calloc(1, sizeof(Proxy));
        ControlServerConfig control = {.event = config->event, .fd = config->control, .frame = proxy_frame, .userdata = proxy};
        int r;

        if (!proxy)
                return -ENOMEM;
        proxy->event = sd_event_ref(config->event);
        proxy->connections_max = config->connections_max;
        proxy->interceptors = strdup(config->interceptors);
        r = meters_new(config->meters, &proxy->meters);
        if (r >= 0 && !proxy->interceptors)
                r = -ENOMEM;
        if (r >= 0)
                r = resolve_client_new(config->event, config->resolve, &proxy->resolver);
        if (r >= 0)
                r = flow_sender_new(config->records, &proxy->records);
        if (r >= 0)
                r = control_server_new(&control, &proxy->control);
        if (r >= 0)
                r = sd_event_add_time(config->event, &proxy->tick, CLOCK_MONOTONIC, 0, USEC_PER_SEC / 4, proxy_tick, proxy);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(proxy);
        return 0;
}

Proxy *proxy_free(Proxy *proxy) {
        if (!proxy)
                return NULL;
        while (proxy->n_slots > 0)
                proxy_remove(proxy, proxy->n_slots - 1);
        view_lists_done(&proxy->lists);
        (void) control_server_free(proxy->control);
        sd_event_source_disable_unref(proxy->tick);
        (void) resolve_client_free(proxy->resolver);
        (void) flow_sender_free(proxy->records);
        (void) meters_free(proxy->meters);
        pipes_done(&proxy->pipes);
        sd_event_unref(proxy->event);
        free(proxy->interceptors);
        free(proxy->slots);
        free(proxy);
        return NULL;
}
