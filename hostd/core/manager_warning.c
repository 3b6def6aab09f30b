// SPDX-License-Identifier: GPL-2.0-or-later
// Manager, warnings: what needs a look by a person stays in the store until its cause is gone, and is told to followers of events and to
// the journal. A kind has a row here when the operator must act on it and the journal's catalog says how.
#include <stdarg.h>
#include <string.h>

#include "base/log.h"
#include "core/manager.h"

typedef struct WarningRow {
        const char *kind; // the word in the store, in events and in `hostctl warning list`
        int priority;
        const char *message_id;
} WarningRow;

static const WarningRow rows[] = {
        {"audit", LOG_ERR, LOG_ID_AUDIT_BROKEN},
        {"audit-write", LOG_ERR, LOG_ID_AUDIT_UNWRITABLE},
        {"configuration", LOG_ERR, LOG_ID_CONFIG_REFUSED},
        {"disk-full", LOG_WARNING, LOG_ID_DISK_FULL},
        {"guest-helper", LOG_WARNING, LOG_ID_GUEST_HELPER},
        {"instance-failed", LOG_ERR, LOG_ID_INSTANCE_FAILED},
        {"leak", LOG_WARNING, LOG_ID_LEAK},
        {"network", LOG_ERR, LOG_ID_NETWORK_CLOSED},
        {"network-table", LOG_ERR, LOG_ID_TABLE_LOST},
        {"orphan", LOG_WARNING, LOG_ID_ORPHAN},
        {"start-refused", LOG_ERR, LOG_ID_START_REFUSED},
        {"storage", LOG_ERR, LOG_ID_STORAGE_LOST},
        {"store", LOG_ERR, LOG_ID_STORE},
};

static const WarningRow *warning_row(const char *kind) {
        static const WarningRow plain = {"", LOG_WARNING, LOG_ID_WARNING};

        for (size_t i = 0; i < ELEMENTS(rows); i++)
                if (strcmp(rows[i].kind, kind) == 0)
                        return &rows[i];
        return &plain;
}

void manager_warn(Manager *m, const char *kind, const char *entity, const char *format, ...) {
        const WarningRow *row = warning_row(kind);
        _cleanup_free_ char *text = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&text, format, ap) < 0)
                text = NULL;
        va_end(ap);
        log_event(row->priority, row->message_id, strcmp(entity, "host") == 0 ? NULL : entity, "%s", text ?: kind);
        if (m->store)
                (void) store_warning_note(m->store, kind, entity, text ?: kind, NULL);
        if (m->bus)
                event_publish(m->bus, "warning", strcmp(entity, "host") == 0 ? NULL : entity,
                              json_pack("{s:s, s:s}", "kind", kind, "text", text ?: kind));
}

void manager_unwarn(Manager *m, const char *kind, const char *entity) {
        if (m->store)
                (void) store_warning_clear(m->store, kind, entity, NULL);
}

// NULL: any.
static void unwarn_where(Manager *m, const char *kind, const char *entity) {
        StoreWarning *warnings = NULL;
        size_t n = 0;

        if (store_warning_list(m->store, &warnings, &n, NULL) < 0)
                return;
        for (size_t i = 0; i < n; i++)
                if ((!entity || strcmp(warnings[i].entity, entity) == 0) && (!kind || strcmp(warnings[i].kind, kind) == 0))
                        manager_unwarn(m, warnings[i].kind, warnings[i].entity);
        store_warnings_free(warnings, n);
}

void manager_unwarn_kind(Manager *m, const char *kind) {
        unwarn_where(m, kind, NULL);
}

void manager_unwarn_all(Manager *m, const char *entity) {
        unwarn_where(m, NULL, entity);
}

void manager_note_audit(Manager *m, int r, const Error *err) {
        if (r < 0)
                manager_warn(m, "audit-write", "host", "the audit log cannot be written: %s", error_message(err, r));
        else if (m->audit_failed)
                manager_unwarn(m, "audit-write", "host");
        m->audit_failed = r < 0;
}
