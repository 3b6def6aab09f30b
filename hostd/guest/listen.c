// SPDX-License-Identifier: GPL-2.0-or-later
// Listen, lines: see listen.h.
#include "guest/listen.h"

#include <stdio.h>

#define LISTEN_STATE 0x0a // TCP_LISTEN, as the kernel writes it

// "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 …"
bool listen_line(const char *line, unsigned port) {
        unsigned found, state;

        return sscanf(line, " %*u: %*32[0-9A-Fa-f]:%4x %*32[0-9A-Fa-f]:%*4x %2x ", &found, &state) == 2 && found == port && state == LISTEN_STATE;
}
