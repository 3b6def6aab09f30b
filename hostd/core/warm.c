// SPDX-License-Identifier: GPL-2.0-or-later
// Warm: see warm.h. A timer that runs for a few seconds after a command and then stops: an idle hostd does nothing.
#include "core/warm.h"

#define WARM_EVERY (3 * USEC_PER_MSEC) // well below an RCU grace period
#define WARM_FOR (3 * USEC_PER_SEC)

static int warm_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = userdata;

        if (clock_monotonic() >= m->warm_until || cgroup_host_warm(m->cgroup) < 0)
                return sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) sd_event_source_set_time_relative(source, WARM_EVERY);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

void warm_begin(Manager *m) {
        m->warm_until = clock_monotonic() + WARM_FOR;
        if (!m->warm) {
                (void) sd_event_add_time_relative(m->event, &m->warm, CLOCK_MONOTONIC, WARM_EVERY, 1, warm_tick, m);
                return;
        }
        int on = SD_EVENT_OFF;
        if (sd_event_source_get_enabled(m->warm, &on) >= 0 && on != SD_EVENT_OFF)
                return;
        (void) sd_event_source_set_time_relative(m->warm, WARM_EVERY);
        (void) sd_event_source_set_enabled(m->warm, SD_EVENT_ONESHOT);
}
