// SPDX-License-Identifier: GPL-2.0-or-later
// Trim: see trim.h. One timer, armed by the first call after it ran: an idle hostd does not wake up.
#include "core/trim.h"

#include <malloc.h>

#define TRIM_AFTER (2 * USEC_PER_SEC) // at most so often; what calls leave behind (answers, reconciling) is done by then

static int trim(sd_event_source *source, uint64_t usec, void *userdata) {
        (void) malloc_trim(0);
        return sd_event_source_set_enabled(source, SD_EVENT_OFF);
}

void trim_soon(Manager *m) {
        int on = SD_EVENT_OFF;

        if (!m->trim) {
                (void) sd_event_add_time_relative(m->event, &m->trim, CLOCK_MONOTONIC, TRIM_AFTER, USEC_PER_SEC, trim, m);
                return;
        }
        if (sd_event_source_get_enabled(m->trim, &on) < 0 || on != SD_EVENT_OFF)
                return;
        (void) sd_event_source_set_time_relative(m->trim, TRIM_AFTER);
        (void) sd_event_source_set_enabled(m->trim, SD_EVENT_ONESHOT);
}
