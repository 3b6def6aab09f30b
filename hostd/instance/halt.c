// SPDX-License-Identifier: GPL-2.0-or-later
// Halt: which signal makes this init shut down. The kernel drops without a trace what a namespace's init neither catches, blocks
// nor waits for, and systemd is deaf for some hundred milliseconds after its exec. So look each time, and ask again until it is
// gone. systemd blocks SIGRTMIN+3 for its signalfd, which /proc shows.
//
// Others show nothing while they sit in sigtimedwait() (busybox does), so they are asked blindly, in turn, by SIGUSR2 (power off:
// busybox, s6) and SIGPWR (sysvinit, runit, OpenRC); to a systemd that is still deaf both are lost or harmless. SIGTERM is never
// sent: to busybox it means reboot. An init that heeds none ends at hostd's deadline.
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
        const int others[] = {SIGUSR2, SIGPWR};
        _cleanup_free_ char *text = NULL;
        char path[300];

        (void) snprintf(path, sizeof(path), "%s/%d/status", proc, (int) init);
        if (io_read_file(AT_FDCWD, path, 64 * 1024, &text, NULL) < 0)
                return 0;
        if ((status_mask(text, "\nSigBlk:") | status_mask(text, "\nSigCgt:")) & (UINT64_C(1) << (HALT_SIGNAL_SYSTEMD - 1)))
                return HALT_SIGNAL_SYSTEMD;
        return others[attempt % ELEMENTS(others)];
}
