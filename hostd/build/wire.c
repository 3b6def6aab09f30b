// SPDX-License-Identifier: GPL-2.0-or-later
// Wire: see wire.h.
#include "build/wire.h"

#include <string.h>
#include <sys/socket.h>

#include "base/valid.h"

static int ask(int socket, const WireQuestion *question, Error *err) {
        _cleanup_free_ char *shown = NULL;
        WireAnswer answer;
        ssize_t n;

        if (send(socket, question, sizeof(*question), MSG_NOSIGNAL) != sizeof(*question))
                return error_set(err, ERR_CANCELLED, "hostd, which makes the network of a build, is gone");
        do
                n = recv(socket, &answer, sizeof(answer), 0);
        while (n < 0 && errno == EINTR);
        if (n != sizeof(answer))
                return error_set(err, ERR_CANCELLED, "hostd, which makes the network of a build, is gone");
        answer.text[sizeof(answer.text) - 1] = 0;
        shown = valid_printable(answer.text);
        return answer.error < 0 ? error_set(err, ERR_UNAVAILABLE, "%s", shown ?: "the build gets no network") : 0;
}

int wire_ask(int socket, Error *err) {
        static const WireQuestion first = {.n = 0};

        return ask(socket, &first, err);
}

int wire_ask_for(int socket, char *const *hosts, Error *err) {
        _cleanup_free_ WireQuestion *question = calloc(1, sizeof(WireQuestion));

        if (!question)
                return error_set_errno(err, ENOMEM, "cannot ask for hosts");
        for (; hosts && *hosts && question->n < WIRE_HOSTS_MAX; hosts++) {
                WireHost *host = question->hosts + question->n;
                const char *colon = strrchr(*hosts, ':');
                size_t size = colon ? (size_t) (colon - *hosts) : 0;
                unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
                if (size == 0 || size >= sizeof(host->host) || port < 1 || port > UINT16_MAX)
                        continue;
                memcpy(host->host, *hosts, size);
                host->port = (uint16_t) port;
                question->n++;
        }
        return question->n == 0 ? 0 : ask(socket, question, err);
}
