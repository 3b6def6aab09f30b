// SPDX-License-Identifier: GPL-2.0-or-later
// ServiceUnit: see service_unit.h.
#include "core/service_unit.h"

#include <systemd/sd-bus.h>

#include "base/log.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"

struct ServiceUnit {
        sd_bus *bus;
        sd_bus_slot *call;
        char name[64];
};

ServiceUnit *service_unit_free(ServiceUnit *unit) {
        if (!unit)
                return NULL;
        sd_bus_slot_unref(unit->call);
        if (unit->bus)
                (void) sd_bus_detach_event(unit->bus);
        sd_bus_close_unref(unit->bus);
        free(unit);
        return NULL;
}
DEFINE_CLEANUP(ServiceUnit, service_unit_free)

static int answered(sd_bus_message *reply, void *userdata, sd_bus_error *unused) {
        const sd_bus_error *error = sd_bus_message_get_error(reply);
        ServiceUnit *unit = userdata;

        if (error)
                log_warning("%s is not started: %s", unit->name, error->message ?: error->name);
        return 0;
}

int service_unit_start(sd_event *event, const char *name, ServiceUnit **ret, Error *err) {
        _cleanup_(service_unit_freep) ServiceUnit *unit = calloc(1, sizeof(ServiceUnit));
        int r;

        if (!unit)
                return error_set_errno(err, ENOMEM, "cannot ask systemd");
        (void) snprintf(unit->name, sizeof(unit->name), "%s", name);
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

// As with an instance: systemd is told, and whether it hears is its affair.
void service_unit_stop(const char *name) {
        sd_bus *bus = NULL;

        if (sd_bus_open_system(&bus) >= 0)
                (void) sd_bus_call_method_async(bus, NULL, SYSTEMD, SYSTEMD_PATH, SYSTEMD ".Manager", "StopUnit", NULL, NULL, "ss", name, "replace");
        sd_bus_flush_close_unref(bus);
}
