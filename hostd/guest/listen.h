// SPDX-License-Identifier: GPL-2.0-or-later
// Listen: whether anything listens on a TCP port of this network namespace, by the kernel's own list. Nothing is connected to: a service that is not ready
// for its first caller has not got one.
#pragma once

#include <stdbool.h>

#include "guest/request.h"

// Pure: a line of /proc/net/tcp or tcp6, of a socket that listens on that port, on whatever address.
bool listen_line(const char *line, unsigned port);
// Word: port. Returns when there is one; whoever asks has a limit of time.
int listen_run(const Request *request, Error *err);
