// SPDX-License-Identifier: GPL-2.0-or-later
// Confine: see confine.h.
#include "instance/confine.h"

#include <linux/keyctl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/io.h"

#define AWAIT_USEC (500 * USEC_PER_MSEC)

// "NAME (enforce)" and nothing else: "NAME (complain)" forbids nothing, "NAME//&other (mixed)" or "NAME//child" is not what was asked for.
static bool label_is_enforced(const char *label, const char *profile) {
        size_t n = strlen(profile), end = strcspn(label, "\n");

        return strncmp(label, profile, n) == 0 && end - n == strlen(" (enforce)") && strncmp(label + n, " (enforce)", end - n) == 0;
}

int confine_verify(const char *proc, pid_t pid, const char *profile, const char *who, Error *err) {
        _cleanup_free_ char *status = NULL, *label = NULL;
        char path[300];
        int r;

        (void) snprintf(path, sizeof(path), "%s/%d/status", proc, (int) pid);
        r = io_read_file(AT_FDCWD, path, 64 * 1024, &status, NULL);
        if (r < 0)
                return error_set_errno(err, r, "reading the status of %s", who);
        if (!strstr(status, "\nSeccomp:\t2\n"))
                return error_set(err, ERR_DEGRADED, "%s runs without the seccomp filter", who);
        if (!profile)
                return 0;
        (void) snprintf(path, sizeof(path), "%s/%d/attr/current", proc, (int) pid);
        r = io_read_file(AT_FDCWD, path, 4096, &label, NULL);
        if (r < 0 || !label_is_enforced(label, profile))
                return error_set(err, ERR_DEGRADED, "%s runs without the AppArmor profile %s in enforce mode", who, profile);
        return 0;
}

int confine_await(const char *proc, pid_t pid, const char *profile, const char *who, Error *err) {
        usec_t end = clock_monotonic() + AWAIT_USEC;

        while (confine_verify(proc, pid, profile, who, NULL) < 0 && clock_monotonic() < end)
                (void) usleep(USEC_PER_MSEC);
        return confine_verify(proc, pid, profile, who, err);
}

int confine_session_keyring(void) {
        // A kernel without keys has none to leave.
        return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS ? -errno : 0;
}
