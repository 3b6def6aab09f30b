// SPDX-License-Identifier: GPL-2.0-or-later
// Wire: see wire.h.
#include "build/wire.h"

#include <sys/socket.h>

#include "base/io.h"
#include "base/valid.h"

int wire_ask(int socket, Error *err) {
        _cleanup_close_ int fd = socket; // nothing that comes later has it
        _cleanup_free_ char *shown = NULL;
        WireAnswer answer;
        ssize_t n;

        if (send(fd, "w", 1, MSG_NOSIGNAL) != 1)
                return error_set(err, ERR_CANCELLED, "hostd, which makes the network of a build, is gone");
        do
                n = recv(fd, &answer, sizeof(answer), 0);
        while (n < 0 && errno == EINTR);
        if (n != sizeof(answer))
                return error_set(err, ERR_CANCELLED, "hostd, which makes the network of a build, is gone");
        answer.text[sizeof(answer.text) - 1] = 0;
        shown = valid_printable(answer.text);
        return answer.error < 0 ? error_set(err, ERR_UNAVAILABLE, "%s", shown ?: "the build gets no network") : 0;
}
