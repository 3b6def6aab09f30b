// SPDX-License-Identifier: GPL-2.0-or-later
// Trim: see trim.h. One timer, armed by the first call after it ran: an idle hostd does not wake up.
#include "core/trim.h"

#include <malloc.h>

#define TRIM_AFTER (2 * USEC_PER_SEC) // at most so often; what calls leave behind (answers, reconciling) is done by then

static int trim(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = userdata;

        m->trim = sd_event_source_disable_unref(m->trim);
        (void) malloc_trim(0);
        return 0;
}

void trim_soon(Manager *m) {
        if (!m->trim)
                (void) sd_event_add_time_relative(m->event, &m->trim, CLOCK_MONOTONIC, TRIM_AFTER, USEC_PER_SEC, trim, m);
}
