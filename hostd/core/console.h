// SPDX-License-Identifier: GPL-2.0-or-later
// Console sessions: descriptors of a caller's pty that hostd-instance relays to the guest's console.
#pragma once

#include "core/instance.h"

typedef struct Request Request;

int console_session_start(Instance *instance, Request *request, Error *err); // holds the request until it ends
void console_session_ended(Instance *instance, uint64_t cookie);
void console_sessions_end(Instance *instance); // the supervisor is gone
