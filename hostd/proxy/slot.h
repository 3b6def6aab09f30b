// SPDX-License-Identifier: GPL-2.0-or-later
// Slot: one instance as the proxy sees it: its wire with the listeners on it, its rules, and the connections it has.
//
// Listeners are bound to the interface itself: whatever comes in there is this instance's, whatever address it claims. An interface that
// was made anew under the same name is another one, so its index is looked at again and again.
#pragma once

#include <systemd/sd-event.h>

#include "base/clock.h"
#include "network/view.h"
#include "proxy/seen.h"

typedef struct Proxy Proxy;
typedef struct Connection Connection;
typedef struct Slot Slot;

#define SLOT_LISTENERS 6 // TLS, HTTP and CONNECT, IPv4 and IPv6

typedef struct Listener {
        Slot *slot;
        int fd;
        int kind; // FlowKind
        sd_event_source *io, *pause;
} Listener;

struct Slot {
        Proxy *proxy;
        uint16_t number;
        char ifname[16];
        char *instance;
        char sandbox[33];   // its id; "": none
        uint16_t around;    // of a sandbox: the slot of its instance, with which it shares what is counted; else 0
        Compiled *compiled; // owned share
        usec_t next_end;    // of its grants, by the wall clock; USEC_INFINITY: none
        uint32_t destinations; // different ones a minute; 0: any number
        Seen seen;
        unsigned ifindex;   // that the listeners are bound to; 0: none
        Listener listeners[SLOT_LISTENERS];
        Connection *connections; // first of the list
        size_t n_connections;
};

int slot_new(Proxy *proxy, const ViewSlot *view, Slot **ret);
Slot *slot_free(Slot *slot); // its connections must be gone
DEFINE_CLEANUP(Slot, slot_free)
int slot_update(Slot *slot, const ViewSlot *view);
// Listens where it does not yet. -ENODEV: there is no such wire; it is tried again.
int slot_listen(Slot *slot);
void slot_look(Slot *slot); // cuts what only a grant allowed that has ended since
