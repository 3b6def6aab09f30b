// SPDX-License-Identifier: GPL-2.0-or-later
// The first bytes of a client, cut into reads: however they are cut, the outcome is the same, and a name that is accepted is one.
// The first byte says how long the pieces are.
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proxy/clienthello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        ClientHello whole = CLIENTHELLO_NULL, pieces = CLIENTHELLO_NULL;
        HelloResult want, got = HELLO_MORE;
        size_t step = size > 0 ? data[0] + 1 : 1;

        if (size < 1 || size > CLIENTHELLO_MAX + 1024)
                return 0;
        data++;
        size--;
        want = clienthello_parse(&whole, data, size);
        for (size_t n = step; got == HELLO_MORE; n += step) {
                got = clienthello_parse(&pieces, data, MIN2(n, size));
                if (n >= size)
                        break;
        }
        if (got != want || strcmp(whole.host.name, pieces.host.name) != 0 || whole.ech != pieces.ech)
                abort();
        if (whole.host.kind != (want == HELLO_NAMED ? HOST_NAME : want == HELLO_ADDRESS ? HOST_ADDRESS : HOST_BAD))
                abort();
        if (want == HELLO_NAMED && host_parse(whole.host.name, strlen(whole.host.name)).kind != HOST_NAME)
                abort();
        return 0;
}
