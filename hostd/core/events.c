// SPDX-License-Identifier: GPL-2.0-or-later
// EventBus: see events.h.
#include "core/events.h"

#include <string.h>

#include "base/clock.h"

typedef struct Follower {
        struct Follower *next;
        EventBus *bus;
        Call *call;
        char *instance;
} Follower;

struct EventBus {
        json_t *ring[EVENT_RING];
        unsigned next;
        Follower *followers;
};

EventBus *event_bus_new(void) {
        return calloc(1, sizeof(EventBus));
}

EventBus *event_bus_free(EventBus *bus) {
        if (!bus)
                return NULL;
        for (unsigned i = 0; i < EVENT_RING; i++)
                json_decref(bus->ring[i]);
        while (bus->followers) {
                Follower *f = bus->followers;
                bus->followers = f->next;
                // The server outlives nobody's call: it frees what is still open.
                call_set_closed(f->call, NULL, NULL);
                free(f->instance);
                free(f);
        }
        free(bus);
        return NULL;
}

static bool event_matches(const json_t *event, const char *instance) {
        const char *name = json_string_value(json_object_get(event, "name"));

        return !instance || (name && strcmp(name, instance) == 0);
}

void event_publish(EventBus *bus, const char *type, const char *instance, json_t *detail) {
        char when[CLOCK_TEXT_MAX];
        json_t *event = json_pack("{s:s, s:s, s:s?}", "time", clock_format(clock_realtime(), when), "type", type, "name", instance);

        if (event && detail)
                (void) json_object_update_missing(event, detail);
        json_decref(detail);
        if (!event || !bus) { // hostd ends: nobody follows any more
                json_decref(event);
                return;
        }
        json_decref(bus->ring[bus->next]);
        bus->ring[bus->next] = event;
        bus->next = (bus->next + 1) % EVENT_RING;
        for (Follower *f = bus->followers, *next; f; f = next) {
                next = f->next; // a reply may close the connection and free the follower
                if (event_matches(event, f->instance))
                        call_reply_continues(f->call, json_pack("{s:O}", "event", event));
        }
}

static void follower_closed(Call *call, void *userdata) {
        Follower *gone = userdata;

        for (Follower **p = &gone->bus->followers; *p; p = &(*p)->next) {
                if (*p != gone)
                        continue;
                *p = gone->next;
                break;
        }
        free(gone->instance);
        free(gone);
}

void event_follow(EventBus *bus, Call *call, const char *instance) {
        Follower *f = calloc(1, sizeof(Follower));
        Error err = ERROR_NULL;

        if (!f || (instance && !(f->instance = strdup(instance)))) {
                free(f);
                call_error(call, &err, error_set_errno(&err, ENOMEM, "cannot follow events"));
                error_done(&err);
                return;
        }
        f->bus = bus;
        f->call = call;
        f->next = bus->followers;
        bus->followers = f;
        call_set_closed(call, follower_closed, f);
        call_reply_continues(call, json_pack("{s:o}", "events", event_recent(bus, instance)));
}

json_t *event_recent(EventBus *bus, const char *instance) {
        json_t *list = json_array();

        for (unsigned i = 0; list && i < EVENT_RING; i++) {
                json_t *event = bus->ring[(bus->next + i) % EVENT_RING];
                if (event && event_matches(event, instance))
                        (void) json_array_append(list, event);
        }
        return list;
}
