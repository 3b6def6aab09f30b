// SPDX-License-Identifier: GPL-2.0-or-later
// Warm: see warm.h. A timer that runs for a few seconds after a command and then stops: an idle hostd does nothing. A start has some
// moves at its beginning, when hostd flushes files and makes groups itself, and some later by liblxc: there a child does it.
#include "core/warm.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "core/job.h"

#define WARM_EVERY (3 * USEC_PER_MSEC) // well below an RCU grace period
#define WARM_FOR (3 * USEC_PER_SEC)

static int warm_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = userdata;

        if (clock_monotonic() >= m->warm_until || cgroup_host_warm(m->cgroup) < 0)
                return sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) sd_event_source_set_time_relative(source, WARM_EVERY);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

#define HOLD_MAX (2 * USEC_PER_SEC) // a start that takes longer has other reasons

typedef struct Hold {
        CgroupHost *cgroup;
        int released; // an eventfd: nobody holds any more. Whoever has ended already cannot be hurt by it, nor hurt us, as with a pipe
} Hold;

static int hold_work(void *input, json_t **ret, Error *err) {
        Hold *hold = input;
        usec_t end = clock_monotonic() + HOLD_MAX;
        struct pollfd released = {.fd = hold->released, .events = POLLIN};

        while (clock_monotonic() < end && cgroup_host_warm(hold->cgroup) >= 0)
                if (poll(&released, 1, WARM_EVERY / USEC_PER_MSEC) != 0)
                        break;
        return 0;
}

static void hold_done(void *userdata, int r, json_t *result, Error *err) {
        // Without it the moves only take longer.
}

void warm_hold(Manager *m) {
        Hold hold = {.cgroup = m->cgroup};
        JobSpec spec = {hold_work, &hold, hold_done, NULL};

        if (m->warm_holds++ > 0)
                return;
        hold.released = m->warm_released = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (hold.released >= 0)
                (void) job_start(m->event, &spec, NULL);
}

void warm_release(Manager *m) {
        if (m->warm_holds == 0 || --m->warm_holds > 0 || m->warm_released < 0)
                return;
        (void) eventfd_write(m->warm_released, 1);
        m->warm_released = close_fd(m->warm_released);
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
