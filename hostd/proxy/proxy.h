// SPDX-License-Identifier: GPL-2.0-or-later
// Proxy: the process as a whole: the slots it was told of, and what all connections share.
#pragma once

#include "border/record.h"
#include "border/resolve.h"
#include "border/server.h"
#include "network/view_lists.h"
#include "proxy/meter.h"
#include "proxy/pipes.h"
#include "proxy/slot.h"

#define PROXY_SLOT_CONNECTIONS 512 // of one slot
#define PROXY_CONNECTIONS 4096     // of all; fewer if there are not descriptors for so many
#define PROXY_CONNECTION_FDS 6     // two sockets and, while bytes are on their way, two pipes

typedef struct ProxyConfig {
        sd_event *event;
        int control;             // listening; the proxy's
        int meters;              // file of the budgets, or -EBADF; the proxy's
        const char *resolve;     // sockets
        const char *records;
        const char *interceptors; // directory: SLOT/front.sock
        size_t connections_max;
} ProxyConfig;

struct Proxy {
        sd_event *event;
        ControlServer *control;
        ResolveClient *resolver;
        FlowSender *records;
        Meters *meters;
        Pipes pipes;
        char *interceptors;
        ViewLists lists;
        Slot **slots; // sorted by nothing
        size_t n_slots;
        size_t n_connections, connections_max;
        sd_event_source *tick;
        usec_t saved;
        uint64_t dropped; // records, as far as it was told
};

int proxy_new(const ProxyConfig *config, Proxy **ret);
Proxy *proxy_free(Proxy *proxy);
Slot *proxy_find(const Proxy *proxy, uint16_t number); // NULL: there is none
DEFINE_CLEANUP(Proxy, proxy_free)
