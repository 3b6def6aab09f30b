// SPDX-License-Identifier: GPL-2.0-or-later
// Upstream: one question to the caching resolvers that the operator named, by UDP and, where an answer does not fit, by TCP. Each question
// goes out from a socket of its own, so that a forger must guess the port as well as the id and the case of the name's letters.
#pragma once

#include <systemd/sd-event.h>

#include "base/clock.h"
#include "resolver/dns.h"

#define UPSTREAMS_MAX 8

typedef struct Upstreams Upstreams;
typedef struct Ask Ask;

int upstreams_new(sd_event *event, Upstreams **ret);
Upstreams *upstreams_free(Upstreams *upstreams);
DEFINE_CLEANUP(Upstreams, upstreams_free)
// Addresses as text; those that are none, and those beyond UPSTREAMS_MAX, are passed over. What is known of one that stays is kept.
void upstreams_set(Upstreams *upstreams, char *const *addresses);

// 0: `answer` is what came, rcode NOERROR or NXDOMAIN, appended to what AskSpec had; it is good during the call. -ETIMEDOUT, -EREMOTEIO
// (they answered, with errors) or others: there is none. The Ask is gone by the time of the call.
typedef void (*AskDone)(void *userdata, int result, const DnsAnswer *answer);
typedef struct AskSpec {
        const DnsName *name;
        uint16_t type;
        const DnsAnswer *so_far; // the chain that led to this name, or NULL; the caller's, for as long as the Ask lives
        AskDone done;
        void *userdata;
} AskSpec;
// Does not call `done` before it returns.
int ask_new(Upstreams *upstreams, const AskSpec *spec, Ask **ret);
Ask *ask_free(Ask *ask); // without calling `done`
