// SPDX-License-Identifier: GPL-2.0-or-later
// EventBus: what happened, told to whoever follows. Events are not state: they are sent once and the newest are kept in a ring.
#pragma once

#include <jansson.h>

#include "wire/server.h"

#define EVENT_RING 256

typedef struct EventBus EventBus;
EventBus *event_bus_new(void);
EventBus *event_bus_free(EventBus *bus);
DEFINE_CLEANUP(EventBus, event_bus_free)
// {"time", "type", "name", …detail}; `instance` and `detail` may be NULL; detail is stolen.
void event_publish(EventBus *bus, const char *type, const char *instance, json_t *detail);
// Sends the ring and then follows; the call lives until its connection closes. `instance` NULL: all.
void event_follow(EventBus *bus, Call *call, const char *instance);
json_t *event_recent(EventBus *bus, const char *instance); // new reference
