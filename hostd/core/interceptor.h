// SPDX-License-Identifier: GPL-2.0-or-later
// Interceptor: the HAProxies of one instance that has grants and runs. hostd-proxy connects to RUN/haproxy/SLOT/front.sock, which leads to the newest
// generation (core/generation.h) that has its values.
//
// When the grants change, or what policies say of their hosts, or leaves get old, a new generation is started and filled, then takes the place at the
// front; those before it serve the connections that they have. Hosts of which something has changed are refused by those at once, and their connections
// end: nothing goes on by grants or rules of before. What no longer serves anybody ends.
//
// HAProxies run as a user that is their slot's alone, and outlive hostd: the next hostd takes them over, with their connections. One that dies is started again
// after growing delays; while there is none, connections are refused: closed, not open.
#pragma once

#include "core/generation.h"

typedef struct Interceptor {
        struct Interceptor *next;
        Secrets *secrets; // borrowed
        char instance[33];
        uint16_t slot;
        uid_t uid;  // and gid: its HAProxies'
        char *path; // RUN/haproxy/SLOT
        int directory;
        struct HaproxyLog *log;
        Generation *generations; // the newest first
        Generation *serving;     // among them, at the front; NULL: none
        bool outdated;           // the newest is not what is wanted, and another could not be made
        unsigned last;           // number
        unsigned failures;       // in a row
        usec_t served;           // monotonic, since when
        sd_event_source *again;
        usec_t alerts_since; // monotonic; see interceptor_alert.c
        unsigned alerts, alerts_untold;
        json_t *redacted; // {SECRET: COUNT}, not told yet; NULL: none; see interceptor_redacted.c
        usec_t redacted_told; // monotonic
        sd_event_source *telling;
} Interceptor;

// Brings all of them to what grants and instances say, from the loop. Idempotent. The first time it also takes over, or ends, what an earlier hostd left.
void interceptors_sync(Manager *manager);
void interceptors_free(Secrets *secrets); // the processes run on
// A grant is in force no more.
void interceptors_retire(Secrets *secrets, const Binding *binding);
// A value has changed: the new one is in force in milliseconds, without a reload.
void interceptors_refill(Secrets *secrets, const char *secret);
const Interceptor *interceptor_find(const Secrets *secrets, const char *instance); // NULL if there is none
const char *interceptor_state(const Interceptor *interceptor);                     // "starting", "ready", "failed"; NULL: "none"

// For its generations. Borrowed pointers to the instance's grants; caller frees the array.
const Binding **interceptor_grants(const Secrets *secrets, const char *instance, size_t *ret_n);
void interceptor_filled(Generation *generation);
void interceptor_alert(void *interceptor, const char *host, const char *ids); // for its log
void interceptor_redacted(void *interceptor, const char *counts); // for its log
void interceptor_redacted_end(Interceptor *interceptor); // tells what was not told yet
void interceptor_ended(Generation *generation, const char *why); // it is over, or is to be; `why` NULL: it ended by itself
