// SPDX-License-Identifier: GPL-2.0-or-later
// Interceptor: the HAProxy of one instance that has grants and runs: its site (secret/site.h) at RUN/haproxy/SLOT, its process, and the values in
// its memory. hostd-proxy connects to RUN/haproxy/SLOT/front.sock.
//
// The process is a child of hostd with a user of its own and no privileges, and ends with hostd: what it served is closed then, not open. One that
// dies is started again after growing delays. Values are filled in after each start and each rotation; until then requests that need one are
// answered with 503.
#pragma once

#include "core/secrets.h"

typedef struct Interceptor {
        struct Interceptor *next;
        Secrets *secrets; // borrowed
        char instance[33];
        uint16_t slot;
        char *path; // of the site
        int directory;
        pid_t pid;
        int pidfd;
        sd_event_source *exit, *again;
        struct HaproxyLog *log; // of the process
        struct Runtime *filling;
        bool filled;       // since the last start or rotation
        bool overtaken;    // a rotation came while the values before it were handed on
        char *config;      // what it was started with
        bool stale;        // grants, or what policies say of their hosts, have changed since then
        unsigned failures; // in a row
        usec_t started;    // monotonic
        usec_t renew;      // realtime; when its leaves are to be made anew
} Interceptor;

// Brings all of them to what grants and instances say, from the loop. Idempotent.
void interceptors_sync(Manager *manager);
void interceptors_sweep(Manager *manager); // what the last hostd left; its processes ended with it
void interceptors_free(Secrets *secrets); // ends them all
// A grant of the instance is in force no more: nothing is served until the next sync, which makes what is left.
void interceptors_end(Secrets *secrets, const char *instance);
// A value has changed: the new one is in force in milliseconds, without a reload.
void interceptors_refill(Secrets *secrets, const char *secret);
const Interceptor *interceptor_find(const Secrets *secrets, const char *instance); // NULL if there is none
const char *interceptor_state(const Interceptor *interceptor);                     // "starting", "ready", "failed"; NULL: "none"
