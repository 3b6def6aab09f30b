// SPDX-License-Identifier: GPL-2.0-or-later
// Generation: one HAProxy of an instance, in a directory of its own, RUN/haproxy/SLOT/NUMBER: its site (secret/site.h), its process, the values in its
// memory. What it was made from never changes; for another configuration there is another generation, and this one serves its connections to their end.
//
// The process is a unit of its own (hostd-haproxy@SLOT-NUMBER.service), or started by hostd where systemd is not process 1, and outlives hostd. The
// directory says what the next hostd has to know of it: "hosts" what it was made for, "filled" which versions of the values it has been given, "pid" whom hostd started, for one that never listened. Which
// process it is, the kernel says: the one that listens on its admin socket as its slot's user.
#pragma once

#include "core/secrets.h"
#include "secret/runtime_command.h"
#include "secret/site.h"

struct Interceptor;

typedef struct Generation {
        struct Generation *next; // older
        struct Interceptor *interceptor; // borrowed
        unsigned number;
        char *path;
        int directory;
        uid_t uid;
        pid_t pid; // 0: not known yet
        int pidfd;
        bool child;
        sd_event_source *exit, *again;
        struct ServiceUnit *unit; // systemd was asked for it
        struct Runtime *filling;
        RuntimeCommand *commands;
        bool filled;    // with the values of now
        bool overtaken; // a rotation came while the values before it were handed on
        bool closing;   // it takes no new connections, and is over when those that it has are
        char *config;
        SiteHost *hosts;
        size_t n_hosts;
        usec_t started; // monotonic
        usec_t renew;   // realtime; when its leaves are to be made anew
        char program[80]; // which HAProxy was installed when it was started
} Generation;

// All that a generation is made from; the caller's.
typedef struct GenerationPlan {
        Site site; // without its directory and path
        const Binding *const *grants;
        size_t n_grants;
} GenerationPlan;

// A new one, on its way. `interceptor_filled()` or `interceptor_ended()` (core/interceptor.h) says what became of it, from the loop.
int generation_new(struct Interceptor *interceptor, unsigned number, const GenerationPlan *plan, Generation **ret, Error *err);
// One that an earlier hostd left, if it lives, is this instance's, and can be understood. What is no such thing is ended and removed.
int generation_adopt(struct Interceptor *interceptor, unsigned number, Generation **ret);
// Ends the process, and with it its connections; removes its directory. Takes NULL.
Generation *generation_end(Generation *generation);
Generation *generation_forget(Generation *generation); // the process runs on
DEFINE_CLEANUP(Generation, generation_forget)

bool generation_is_as(const Generation *generation, const GenerationPlan *plan, const char *config);
// The values are handed on anew.
void generation_refill(Generation *generation);
// Requests for the host are refused by it from now on, and those under way end. When it cannot be told it is dead: -1.
int generation_retire(Generation *generation, const char *host);
void generation_close(Generation *generation); // see `closing`
