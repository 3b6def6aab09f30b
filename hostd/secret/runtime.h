// SPDX-License-Identifier: GPL-2.0-or-later
// Runtime: puts values into a running HAProxy over its admin socket, as a whole and at once: requests see all of the old ones or all of the new.
// Nothing is reloaded and no request waits.
//
// HAProxy is not trusted to answer: nothing blocks, answers are small, and the whole has a deadline.
#pragma once

#include <systemd/sd-event.h>

#include "base/clock.h"
#include "secret/seal.h"

#define RUNTIME_TIMEOUT_SEC 5

typedef struct RuntimeEntry {
        char key[24];
        Value *value; // owned
} RuntimeEntry;

typedef void (*RuntimeDone)(void *userdata, int r, Error *err);

typedef struct RuntimeSpec {
        const char *socket; // HAPROXY_ADMIN
        const char *map;    // the map's name
        uid_t uid;          // whose socket it must be
        RuntimeEntry *entries; // taken, whatever becomes of it
        size_t n_entries;
        usec_t timeout; // 0: RUNTIME_TIMEOUT_SEC
        RuntimeDone done; // called once, from the loop, unless runtime_free() comes before
        void *userdata;
} RuntimeSpec;

typedef struct Runtime Runtime;
// A failure here calls no `done`. ERR_UNAVAILABLE: nobody listens (yet).
int runtime_fill(sd_event *event, const RuntimeSpec *spec, Runtime **ret, Error *err);
Runtime *runtime_free(Runtime *runtime); // gives up; HAProxy keeps what it had
DEFINE_CLEANUP(Runtime, runtime_free)
void runtime_entries_free(RuntimeEntry *entries, size_t n);
// A connection to an admin socket, which must be `uid`'s; of the process that listens there, whose id `ret_pid` (may be NULL) gets. The descriptor, or
// ERR_UNAVAILABLE, ERR_DENIED.
int runtime_dial(const char *path, uid_t uid, pid_t *ret_pid, Error *err);
