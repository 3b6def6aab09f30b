// SPDX-License-Identifier: GPL-2.0-or-later
// Log: see log.h. The journal is used exactly when stderr is connected to it ($JOURNAL_STREAM), as systemd defines it.
#include "base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-journal.h>

#include "base/valid.h"

static int log_max = LOG_INFO;

void log_set_max(int priority) {
        log_max = priority;
}

static bool log_to_journal(void) {
        static int known = -1;
        unsigned long long device, inode;
        const char *stream;
        struct stat st;

        if (known >= 0)
                return known;
        stream = getenv("JOURNAL_STREAM");
        known = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
                st.st_dev == device && st.st_ino == inode;
        return known;
}

void log_event(int priority, const char *message_id, const char *instance, const char *format, ...) {
        _cleanup_free_ char *text = NULL, *shown = NULL;
        va_list ap;

        if (priority > log_max)
                return;
        va_start(ap, format);
        if (vasprintf(&text, format, ap) < 0)
                text = NULL;
        va_end(ap);
        shown = text ? valid_printable(text) : NULL;
        if (!shown)
                return;
        if (log_to_journal())
                (void) sd_journal_send("PRIORITY=%d", priority, "MESSAGE=%s", shown,
                                       instance ? "HOSTD_INSTANCE=%s" : "HOSTD_SCOPE=host%s", instance ?: "",
                                       message_id ? "MESSAGE_ID=%s" : NULL, message_id, NULL);
        else
                fprintf(stderr, "%s%s%s\n", instance ?: "", instance ? ": " : "", shown);
}
