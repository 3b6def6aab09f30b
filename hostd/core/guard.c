// SPDX-License-Identifier: GPL-2.0-or-later
// Guard: see guard.h. Under systemd hostd.slice is systemd's, so it is told; elsewhere the group "hostd" is ours.
//
// An administrator may have set MemoryMax= of the slice. What hostd set itself is noted below RUN, which lives as long as a runtime
// property does; any other value is left alone.
#include "core/guard.h"

#include <string.h>
#include <systemd/sd-bus.h>

#include "base/io.h"
#include "base/log.h"
#include "base/size.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define SLICE_PATH "/org/freedesktop/systemd1/unit/hostd_2eslice"

static int slice_read(sd_bus *bus, uint64_t *ret, Error *err) {
        sd_bus_error bus_error = SD_BUS_ERROR_NULL;
        int r = sd_bus_get_property_trivial(bus, SYSTEMD, SLICE_PATH, SYSTEMD ".Slice", "MemoryMax", &bus_error, 't', ret);

        if (r < 0)
                r = error_set(err, ERR_UNAVAILABLE, "systemd does not tell of hostd.slice: %s", bus_error.message ?: strerror(-r));
        sd_bus_error_free(&bus_error);
        return r;
}

// For this run of the host: nothing of it stays in /etc.
static int slice_write(sd_bus *bus, uint64_t bytes, Error *err) {
        sd_bus_error bus_error = SD_BUS_ERROR_NULL;
        int r = sd_bus_call_method(bus, SYSTEMD, "/org/freedesktop/systemd1", SYSTEMD ".Manager", "SetUnitProperties", &bus_error, NULL, "sba(sv)",
                                   "hostd.slice", 1, 1, "MemoryMax", "t", bytes);

        if (r < 0)
                r = error_set(err, ERR_UNAVAILABLE, "systemd does not limit hostd.slice: %s", bus_error.message ?: strerror(-r));
        sd_bus_error_free(&bus_error);
        return r;
}

static int note_open(Manager *m) {
        return open(m->paths.run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static uint64_t note_read(Manager *m) {
        _cleanup_close_ int dir = note_open(m);
        unsigned long long noted;

        return dir < 0 || io_read_u64(dir, "guard", &noted) < 0 ? 0 : noted;
}

static void note_write(Manager *m, uint64_t bytes) {
        _cleanup_close_ int dir = note_open(m);
        char text[24];

        (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) bytes);
        if (dir < 0 || io_write_atomic(dir, "guard", text, strlen(text), 0600) < 0)
                log_warning("cannot note the limit of hostd.slice: the next hostd will take it for the administrator's");
}

static int apply_slice(Manager *m, uint64_t bytes, Error *err) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        char now_text[SIZE_TEXT_MAX];
        uint64_t now = UINT64_MAX;
        int r = sd_bus_open_system(&bus);

        if (r < 0)
                return error_set_errno(err, r, "cannot reach systemd");
        r = slice_read(bus, &now, err);
        if (r < 0)
                return r;
        if (now != UINT64_MAX && now != note_read(m)) {
                log_info("hostd.slice keeps the MemoryMax of %s that was set for it", size_format_short(now, now_text));
                return 0;
        }
        if (now == bytes)
                return 0;
        // Noted first: a value of ours that nobody knows as such would stay for ever.
        note_write(m, bytes);
        return slice_write(bus, bytes, err);
}

int guard_apply(Manager *m, Error *err) {
        Capacity capacity = manager_capacity(m);
        uint64_t bytes = admission_guard(&capacity);
        int r;

        if (bytes == m->guard_bytes)
                return 0;
        r = m->systemd ? apply_slice(m, bytes, err) : cgroup_host_guard(m->cgroup, bytes, err);
        if (r >= 0)
                m->guard_bytes = bytes;
        return r;
}

int guard_read(Manager *m, uint64_t *ret_memory) {
        return cgroup_host_guard_read(m->cgroup, m->systemd, ret_memory);
}
