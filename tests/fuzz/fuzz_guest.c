// SPDX-License-Identifier: GPL-2.0-or-later
// What a guest may send to hostd, and what hostd may send to a guest, over arbitrary bytes.
#include <assert.h>
#include <string.h>

#include "base/valid.h"
#include "core/guest.h"
#include "guest/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        GuestHeader h;
        GuestAsk ask;
        Request request;

        if (guest_ask_decode(data, size, &ask) == 0) {
                assert(size == sizeof(ask) && guest_id_valid(ask.header.id) && memchr(ask.to, 0, sizeof(ask.to)) && memchr(ask.reason, 0, sizeof(ask.reason)));
                assert(ask.header.flags ? !ask.to[0] : ask.port && valid_is(VALID_REASON, ask.reason) && valid_is(VALID_DESTINATION, ask.to));
        }
        if (guest_message_decode(data, size, &h) == 0) {
                assert(size == sizeof(h) && memchr(h.id, 0, sizeof(h.id)));
                assert(h.type == GUEST_HELLO || guest_id_valid(h.id));
                assert(h.type == GUEST_HELLO || h.type == GUEST_READY || h.type == GUEST_FAILED || h.type == GUEST_EXITED || h.type == GUEST_LIVE);
        }
        if (request_decode(data, size, &request) == 0) {
                size_t n = strlen(request.user) + strlen(request.cwd) + strlen(request.path) + 3;
                assert(request_id_valid(request.header.id));
                for (char **v = request.argv; *v; v++)
                        n += strlen(*v) + 1;
                for (char **v = request.env; *v; v++)
                        n += strlen(*v) + 1;
                assert(n == size - sizeof(h)); // every byte belongs to one string
                request_done(&request);
        }
        return 0;
}
