// SPDX-License-Identifier: GPL-2.0-or-later
// Slot: see slot.h.
#include "proxy/slot.h"

#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

#include "border/border.h"
#include "border/record.h"
#include "proxy/connection.h"
#include "proxy/proxy.h"

#define BACKLOG 128
#define ACCEPT_AT_ONCE 16
#define ACCEPT_PAUSE (100 * USEC_PER_MSEC)

static const struct { FlowKind kind; int family; uint16_t port; } ports[SLOT_LISTENERS] = {
        {FLOW_TLS, AF_INET, BORDER_TLS_PORT},
        {FLOW_TLS, AF_INET6, BORDER_TLS_PORT},
        {FLOW_HTTP, AF_INET, BORDER_HTTP_PORT},
        {FLOW_HTTP, AF_INET6, BORDER_HTTP_PORT},
        {FLOW_CONNECT, AF_INET, BORDER_CONNECT_PORT},
        {FLOW_CONNECT, AF_INET6, BORDER_CONNECT_PORT},
};

static void listener_done(Listener *listener) {
        listener->io = sd_event_source_disable_unref(listener->io);
        listener->pause = sd_event_source_disable_unref(listener->pause);
        listener->fd = close_fd(listener->fd);
}

static int listener_resume(sd_event_source *source, uint64_t usec, void *userdata) {
        Listener *listener = userdata;

        return sd_event_source_set_enabled(listener->io, SD_EVENT_ON);
}

// Out of descriptors or memory: whoever waits does so in the kernel's queue until some are free, and the loop does not spin meanwhile.
static void listener_pause(Listener *listener) {
        (void) sd_event_source_set_enabled(listener->io, SD_EVENT_OFF);
        if (sd_event_source_set_time_relative(listener->pause, ACCEPT_PAUSE) < 0 || sd_event_source_set_enabled(listener->pause, SD_EVENT_ONESHOT) < 0)
                (void) sd_event_source_set_enabled(listener->io, SD_EVENT_ON);
}

static int listener_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Listener *listener = userdata;

        for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
                struct sockaddr_storage from;
                socklen_t size = sizeof(from);
                int client = accept4(fd, (struct sockaddr *) &from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
                if (client < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
                        listener_pause(listener);
                if (client < 0)
                        break;
                connection_accept(listener->slot, (FlowKind) listener->kind, client, &from);
        }
        return 0;
}

static int listener_begin(Listener *listener, size_t which) {
        sd_event *event = listener->slot->proxy->event;
        int r;

        listener->kind = ports[which].kind;
        r = listener->fd = border_open_on((BorderWire) {listener->slot->ifname, listener->slot->ifindex}, ports[which].family, SOCK_STREAM, ports[which].port);
        if (r >= 0)
                r = listen(listener->fd, BACKLOG) < 0 ? -errno : 0;
        if (r >= 0)
                r = sd_event_add_io(event, &listener->io, listener->fd, EPOLLIN, listener_io, listener);
        if (r >= 0)
                r = sd_event_add_time(event, &listener->pause, CLOCK_MONOTONIC, UINT64_MAX, 0, listener_resume, listener);
        if (r >= 0)
                r = sd_event_source_set_enabled(listener->pause, SD_EVENT_OFF);
        if (r < 0)
                listener_done(listener);
        return r;
}

int slot_listen(Slot *slot) {
        unsigned ifindex = if_nametoindex(slot->ifname);
        int r = 0, first = 0;

        if (ifindex == slot->ifindex && ifindex != 0)
                for (size_t i = 0; i < SLOT_LISTENERS && r == 0; i++)
                        r = slot->listeners[i].fd < 0;
        if (ifindex != 0 && ifindex == slot->ifindex && r == 0)
                return 0;
        if (ifindex != slot->ifindex)
                for (size_t i = 0; i < SLOT_LISTENERS; i++)
                        listener_done(&slot->listeners[i]);
        slot->ifindex = ifindex;
        if (ifindex == 0)
                return -ENODEV;
        for (size_t i = 0; i < SLOT_LISTENERS; i++) {
                if (slot->listeners[i].fd >= 0)
                        continue;
                r = listener_begin(&slot->listeners[i], i);
                first = first ?: r;
        }
        return first;
}

int slot_update(Slot *slot, const ViewSlot *view) {
        char *instance = strdup(view->instance);

        if (!instance)
                return -ENOMEM;
        free(slot->instance);
        slot->instance = instance;
        slot->around = view->around;
        (void) snprintf(slot->sandbox, sizeof(slot->sandbox), "%s", view->sandbox ?: "");
        (void) snprintf(slot->ifname, sizeof(slot->ifname), "%s", view->ifname);
        (void) compiled_free(slot->compiled);
        slot->compiled = compiled_share(view->compiled);
        slot->destinations = view->destinations;
        slot->next_end = compiled_next_end(slot->compiled, clock_realtime());
        return 0;
}

void slot_look(Slot *slot) {
        usec_t now = clock_realtime();

        if (slot->next_end > now)
                return;
        slot->next_end = compiled_next_end(slot->compiled, now);
        connections_review(slot);
}

int slot_new(Proxy *proxy, const ViewSlot *view, Slot **ret) {
        _cleanup_(slot_freep) Slot *slot = calloc(1, sizeof(Slot));
        int r;

        if (!slot)
                return -ENOMEM;
        slot->proxy = proxy;
        slot->number = view->slot;
        for (size_t i = 0; i < SLOT_LISTENERS; i++)
                slot->listeners[i] = (Listener) {.slot = slot, .fd = -EBADF};
        r = slot_update(slot, view);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(slot);
        return 0;
}

Slot *slot_free(Slot *slot) {
        if (!slot)
                return NULL;
        for (size_t i = 0; i < SLOT_LISTENERS; i++)
                listener_done(&slot->listeners[i]);
        (void) compiled_free(slot->compiled);
        seen_done(&slot->seen);
        free(slot->instance);
        free(slot);
        return NULL;
}
