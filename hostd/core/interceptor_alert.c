// SPDX-License-Identifier: GPL-2.0-or-later
// Interceptor, alerts: a placeholder on its way to where it does not belong was refused by HAProxy; here it is told to people: an event, a record in the
// audit log, one in hostd-flow's, as many as somebody can read. The instance decides how often it does so.
#include <string.h>

#include "border/record.h"
#include "core/border_link.h"
#include "core/interceptor.h"

#define ALERTS_MAX 10 // in a period
#define ALERTS_PERIOD (60 * USEC_PER_SEC)

static bool is_told(Interceptor *i) {
        usec_t now = clock_monotonic();

        if (i->alerts_since == 0 || now - i->alerts_since >= ALERTS_PERIOD) {
                i->alerts_since = now;
                i->alerts = 0;
        }
        if (i->alerts < ALERTS_MAX) {
                i->alerts++;
                return true;
        }
        i->alerts_untold++;
        return false;
}

static void tell_flow(Interceptor *i, const char *id, const char *host) {
        Secrets *s = i->secrets;
        char path[128];
        FlowRecord record;

        if (!s->records && (snprintf(path, sizeof(path), "%s/flow-records.sock", s->manager->paths.run) >= (int) sizeof(path) || flow_sender_new(path, &s->records) < 0))
                return;
        flow_record_init(&record, FLOW_HTTP, FLOW_DENY);
        record.slot = i->slot;
        record.protocol = 6;
        record.port = 443;
        record.flags = FLOW_FLAG_INTERCEPTED;
        record.realtime_usec = (int64_t) clock_realtime();
        flow_record_set_name(&record, host, strlen(host));
        flow_record_set_reason(&record, "alert: a placeholder of %s%s", *id ? "grant " : "no grant of this instance", id);
        flow_sender_send(s->records, &record);
}

static void tell(Interceptor *i, const char *id, const char *host) {
        const Binding *b = secrets_find(i->secrets, id);
        Manager *m = i->secrets->manager;
        json_t *detail = json_pack("{s:s, s:s, s:s, s:I}", "id", id, "secret", b ? b->secret : "", "host", host, "untold", (json_int_t) i->alerts_untold);
        AuditRecord record = {.user = "hostd", .method = "io.hostd.Secret.Alert", .target = i->instance, .result = "refused", .detail = detail};
        _cleanup_error_ Error err = ERROR_NULL;

        i->alerts_untold = 0;
        event_publish(m->bus, "secret-alert", i->instance, json_incref(detail));
        manager_note_audit(m, audit_append(m->audit, &record, &err), &err);
        json_decref(detail);
        tell_flow(i, id, host);
}

void interceptor_alert(void *userdata, const char *host, const char *ids) {
        Interceptor *i = userdata;
        char id[17];

        if (!is_told(i))
                return;
        // The first of them: a request that has many is one attempt.
        (void) snprintf(id, sizeof(id), "%.*s", (int) strcspn(ids, " "), ids);
        tell(i, id, host);
}
