// SPDX-License-Identifier: GPL-2.0-or-later
// Dial: a connection to the first of several addresses that takes it. The next one is tried when one fails, or does not answer at once;
// what answers first is taken, the others are given up.
#pragma once

#include <systemd/sd-event.h>

#include "base/clock.h"
#include "proxy/proxy_header.h"

#define DIAL_ADDRESSES_MAX 6
#define DIAL_NEXT (250 * USEC_PER_MSEC)
#define DIAL_TIMEOUT (15 * USEC_PER_SEC)

typedef struct Dial Dial;
// Once, from the loop: a connected socket, which is the callee's, or a negative errno. The callee may free the dial.
typedef void (*DialDone)(int fd, const ProxyAddress *address, void *userdata);

int dial_new(sd_event *event, const ProxyAddress *addresses, size_t n_addresses, DialDone done, void *userdata, Dial **ret);
Dial *dial_free(Dial *dial);
DEFINE_CLEANUP(Dial, dial_free)
// As connect(2) wants it. Returns the size.
socklen_t proxy_sockaddr(const ProxyAddress *address, struct sockaddr_storage *ret);
ProxyAddress proxy_address(const struct sockaddr_storage *from);
