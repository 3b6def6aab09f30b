// SPDX-License-Identifier: GPL-2.0-or-later
// Halt: which signal makes this init shut down. A signal that init neither blocks (and reads by signalfd) nor catches is lost
// without a trace, because the kernel ignores it for a namespace's init: systemd is deaf for some hundred milliseconds
// after its exec. So look each time, and ask again until it is gone.
//
// systemd takes SIGRTMIN+3. Others are asked in turn by SIGPWR (sysvinit, runit, OpenRC) and SIGUSR2 (busybox), as far as they
// listen. SIGTERM is never sent: to busybox it means reboot. An init that listens to none ends at hostd's deadline.
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "base/io.h"
#include "instance/supervisor.h"

static uint64_t status_mask(const char *text, const char *key) {
        const char *at = strstr(text, key);
        uint64_t mask = 0;

        return at && sscanf(at + strlen(key), "%" SCNx64, &mask) == 1 ? mask : 0;
}

int halt_signal(const char *proc, pid_t init, unsigned attempt) {
        const int systemd = 34 + 3, others[] = {SIGPWR, SIGUSR2}; // SIGRTMIN of the kernel ABI plus two that glibc keeps
        _cleanup_free_ char *text = NULL;
        char path[300];
        uint64_t mask;

        (void) snprintf(path, sizeof(path), "%s/%d/status", proc, (int) init);
        if (io_read_file(AT_FDCWD, path, 64 * 1024, &text, NULL) < 0)
                return 0;
        mask = status_mask(text, "\nSigBlk:") | status_mask(text, "\nSigCgt:");
        if (mask & (UINT64_C(1) << (systemd - 1)))
                return systemd;
        for (size_t i = 0; i < ELEMENTS(others); i++) {
                int number = others[(attempt + i) % ELEMENTS(others)];
                if (mask & (UINT64_C(1) << (number - 1)))
                        return number;
        }
        return 0;
}
