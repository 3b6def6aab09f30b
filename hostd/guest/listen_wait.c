// SPDX-License-Identifier: GPL-2.0-or-later
// Listen, waiting: see listen.h. The list has those who listen first, so that many connections cost nothing.
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "guest/files_internal.h"
#include "guest/listen.h"

#define LISTEN_EVERY (20 * USEC_PER_MSEC)

static int listen_look(const char *path, unsigned port) {
        FILE *f = fopen(path, "re");
        char line[512];
        int found = 0;

        if (!f)
                return -errno;
        while (found == 0 && fgets(line, sizeof(line), f))
                found = listen_line(line, port);
        (void) fclose(f);
        return found;
}

int listen_run(const Request *request, Error *err) {
        uint64_t port = 0;
        int r = files_number(request, GUEST_WORD_PORT, &port);

        if (r <= 0 || port == 0 || port > UINT16_MAX)
                return -EINVAL;
        for (;;) {
                int four = listen_look("/proc/net/tcp", (unsigned) port), six = listen_look("/proc/net/tcp6", (unsigned) port);
                if (four > 0 || six > 0)
                        return 0;
                if (four < 0 && six < 0) // either may be missing
                        return four;
                (void) usleep(LISTEN_EVERY);
        }
}
