// SPDX-License-Identifier: GPL-2.0-or-later
// Interceptor, responses: HAProxy has put names in the place of values in the heads of responses (secret/haproxy_lua.c), and says how often. It is told as what is
// replaced in the output of a command is: an event and a record with counts by name. How often it happens the instance decides, and hosts: so it is told in sums.
#include <string.h>

#include "core/interceptor.h"

#define TELL_EVERY (10 * USEC_PER_SEC)

static void tell(Interceptor *i) {
        Manager *m = i->secrets->manager;
        json_t *detail = json_pack("{s:s, s:o}", "in", "responses", "replaced", i->redacted);
        AuditRecord record = {.user = "hostd", .method = "io.hostd.Secret.Redact", .target = i->instance, .result = "ok", .detail = detail};
        _cleanup_error_ Error err = ERROR_NULL;

        i->redacted = NULL;
        i->redacted_told = clock_monotonic();
        event_publish(m->bus, "secret-redacted", i->instance, json_incref(detail));
        manager_note_audit(m, audit_append(m->audit, &record, &err), &err);
        json_decref(detail);
}

static int tell_due(sd_event_source *source, uint64_t usec, void *userdata) {
        Interceptor *i = userdata;

        i->telling = sd_event_source_disable_unref(i->telling);
        tell(i);
        return 0;
}

void interceptor_redacted_end(Interceptor *i) {
        i->telling = sd_event_source_disable_unref(i->telling);
        if (i->redacted)
                tell(i);
}

// A grant that has ended meanwhile has no name any more.
static void add(Interceptor *i, const char *id, unsigned count) {
        const Binding *b = secrets_find(i->secrets, id);
        json_int_t sum;

        if (!b || strcmp(b->instance, i->instance) != 0 || (!i->redacted && !(i->redacted = json_object())))
                return;
        sum = json_integer_value(json_object_get(i->redacted, b->secret));
        (void) json_object_set_new(i->redacted, b->secret, json_integer(sum + (json_int_t) count));
}

void interceptor_redacted(void *userdata, const char *counts) {
        usec_t now = clock_monotonic(), wait;
        Interceptor *i = userdata;
        unsigned count;
        char id[17];

        for (int n = 0; sscanf(counts, "%16s %5u %n", id, &count, &n) == 2 && n > 0; counts += n, n = 0)
                add(i, id, count);
        if (!i->redacted || i->telling)
                return;
        wait = i->redacted_told > 0 && now - i->redacted_told < TELL_EVERY ? TELL_EVERY - (now - i->redacted_told) : 0;
        if (sd_event_add_time_relative(i->secrets->manager->event, &i->telling, CLOCK_MONOTONIC, wait, 1, tell_due, i) < 0)
                tell(i);
}
