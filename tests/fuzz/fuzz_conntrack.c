// SPDX-License-Identifier: GPL-2.0-or-later
// Messages about connections: attributes three deep.
#include <string.h>
#include <sys/socket.h>

#include "flow/conntrack.h"
#include "flow/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct nlmsghdr *message) {
        ConntrackFlow flow = {0};

        if (conntrack_parse(message, &flow) < 0)
                return;
        if (flow.slot == 0 || (flow.family != AF_INET && flow.family != AF_INET6) || flow.start_usec < 0 || flow.stop_usec < 0)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ struct nlmsghdr *copy = malloc(size ?: 1); // exact, so that a read beyond is seen
        MessageWalk walk = {(const char *) copy, size};

        if (!copy)
                return 0;
        memcpy(copy, data, size);
        for (const struct nlmsghdr *message; (message = message_next(&walk));)
                look(message);
        return 0;
}
