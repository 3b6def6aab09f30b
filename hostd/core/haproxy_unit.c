// SPDX-License-Identifier: GPL-2.0-or-later
// HaproxyUnit: a start of hostd-haproxy@SLOT-NUMBER.service, asked for through the bus. Whether it came up is seen by its admin socket, and that it ended by
// its process; systemd's answer is only looked at to say why there is none.
#include <string.h>
#include <systemd/sd-bus.h>

#include "base/log.h"
#include "core/generation.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"

struct HaproxyUnit {
        sd_bus *bus;
        sd_bus_slot *call;
        char name[64];
};

HaproxyUnit *haproxy_unit_free(HaproxyUnit *unit) {
        if (!unit)
                return NULL;
        sd_bus_slot_unref(unit->call);
        if (unit->bus)
                (void) sd_bus_detach_event(unit->bus);
        sd_bus_close_unref(unit->bus);
        free(unit);
        return NULL;
}
DEFINE_CLEANUP(HaproxyUnit, haproxy_unit_free)

static int answered(sd_bus_message *reply, void *userdata, sd_bus_error *unused) {
        const sd_bus_error *error = sd_bus_message_get_error(reply);
        HaproxyUnit *unit = userdata;

        if (error)
                log_warning("%s is not started: %s", unit->name, error->message ?: error->name);
        return 0;
}

int haproxy_unit_start(sd_event *event, const char *name, HaproxyUnit **ret, Error *err) {
        _cleanup_(haproxy_unit_freep) HaproxyUnit *unit = calloc(1, sizeof(HaproxyUnit));
        int r;

        if (!unit)
                return error_set_errno(err, ENOMEM, "cannot ask systemd");
        (void) snprintf(unit->name, sizeof(unit->name), "hostd-haproxy@%s.service", name);
        r = sd_bus_open_system(&unit->bus);
        if (r >= 0)
                r = sd_bus_attach_event(unit->bus, event, 0);
        if (r >= 0)
                r = sd_bus_call_method_async(unit->bus, &unit->call, SYSTEMD, SYSTEMD_PATH, SYSTEMD ".Manager", "StartUnit", answered, unit, "ss", unit->name, "replace");
        if (r < 0)
                return error_set_errno(err, r, "cannot ask systemd");
        *ret = TAKE_PTR(unit);
        return 0;
}

// As with an instance: systemd is told, and whether it hears is its affair. What comes up in spite of it finds no directory.
void haproxy_unit_stop(const char *name) {
        sd_bus *bus = NULL;
        char unit[64];

        (void) snprintf(unit, sizeof(unit), "hostd-haproxy@%s.service", name);
        if (sd_bus_open_system(&bus) >= 0)
                (void) sd_bus_call_method_async(bus, NULL, SYSTEMD, SYSTEMD_PATH, SYSTEMD ".Manager", "StopUnit", NULL, NULL, "ss", unit, "replace");
        sd_bus_flush_close_unref(bus);
}
