// SPDX-License-Identifier: GPL-2.0-or-later
// Request: one decoded EXEC packet. hostd is trusted, yet every size is checked: a slip there must not become a crash here.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "guest/proto.h"

typedef struct Request {
        GuestHeader header;
        char *data;                      // owned; all strings point into it
        const char *user, *cwd, *path;   // "" when not given
        char **argv, **env;              // owned arrays, NULL-terminated
} Request;

// -EBADMSG for anything but a well-formed EXEC.
int request_decode(const void *packet, size_t size, Request *ret);
void request_done(Request *request);
bool request_id_valid(const char id[GUEST_ID_MAX + 3]);
