// SPDX-License-Identifier: GPL-2.0-or-later
// Resolve: how hostd-proxy asks hostd-resolver for the addresses of a name, so that there is one view, one cache and one vetting.
//
// One packet each way on a SOCK_SEQPACKET socket that only the proxy's user may connect to. Each end checks what it gets: both read
// what the network sends.
#pragma once

#include <systemd/sd-event.h>

#include "base/clock.h"
#include "border/border.h"

#define RESOLVE_ADDRESSES_MAX 16

typedef struct ResolveQuestion {
        uint64_t cookie; // the asker's
        uint16_t slot;
        uint8_t family; // 4 or 6
        char name[BORDER_NAME_MAX + 1]; // border_name_valid(), zeros behind
        uint8_t pad[7]; // zero
} ResolveQuestion;

typedef struct ResolveAddress {
        uint8_t family; // 4 or 6
        uint8_t address[16]; // a v4 address is the first four; zeros behind
} ResolveAddress;

typedef struct ResolveAnswer {
        uint64_t cookie;
        // 0; -EACCES: no rule of the slot allows the name, or all addresses are in denied ranges; -ENOENT: there is no such name;
        // -ENODATA: it has no address of this family; -EBUSY: a limit; -ETIMEDOUT, -EIO: the upstreams.
        int32_t error;
        uint32_t ttl_s, n; // n > 0 if and only if error is 0
        ResolveAddress addresses[RESOLVE_ADDRESSES_MAX]; // zeros behind the n-th
        uint8_t pad[4]; // zero
} ResolveAnswer;

_Static_assert(sizeof(ResolveQuestion) == 272, "a layout without holes");
_Static_assert(sizeof(ResolveAnswer) == 296, "a layout without holes");

bool resolve_question_valid(const void *data, size_t size);
bool resolve_answer_valid(const void *data, size_t size);

// The asking end. Never waits; connects when there is something to ask. What is on its way when the resolver dies ends with -ECONNRESET, what
// gets no answer in RESOLVE_TIMEOUT with -ETIMEDOUT.
#define RESOLVE_TIMEOUT (10 * USEC_PER_SEC)
#define RESOLVE_WAITING_MAX 4096

typedef struct ResolveClient ResolveClient;
// Called once for each question, from the loop; `answer` only for this call. Its error is as above, or -ECONNRESET.
typedef void (*ResolveDone)(const ResolveAnswer *answer, void *userdata);

int resolve_client_new(sd_event *event, const char *path, ResolveClient **ret);
ResolveClient *resolve_client_free(ResolveClient *client); // tells nobody
DEFINE_CLEANUP(ResolveClient, resolve_client_free)
// `ret_cookie` is never 0. -EINVAL: no such name; -EBUSY: too many wait; -ECONNREFUSED, -ENOENT: no resolver.
int resolve_client_ask(ResolveClient *client, const ResolveQuestion *question, ResolveDone done, void *userdata, uint64_t *ret_cookie);
void resolve_client_cancel(ResolveClient *client, uint64_t cookie); // `done` is not called any more
// Fills slot, family and name; -EINVAL if it is no name.
int resolve_question_init(ResolveQuestion *question, uint16_t slot, uint8_t family, const char *name);

// The answering end.
typedef struct ResolveServer ResolveServer;
// A question, checked. It is answered now or later with resolve_server_answer(), with this `connection` and the question's cookie.
typedef void (*ResolveAsked)(ResolveServer *server, uint64_t connection, const ResolveQuestion *question, void *userdata);

int resolve_server_new(sd_event *event, int listen_fd, ResolveAsked asked, void *userdata, ResolveServer **ret); // takes the descriptor
ResolveServer *resolve_server_free(ResolveServer *server);
DEFINE_CLEANUP(ResolveServer, resolve_server_free)
// -ENOTCONN: that connection is gone; -EAGAIN: it does not read, and the answer is lost.
int resolve_server_answer(ResolveServer *server, uint64_t connection, const ResolveAnswer *answer);
