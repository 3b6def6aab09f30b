// SPDX-License-Identifier: GPL-2.0-or-later
// Resolver: the objects of hostd-resolver and who owns whom. One thread, one event loop; nothing waits.
//
//   Resolver
//     Slot            an instance's or a sandbox's wire: listeners on its device, its view, limits and grants
//       TcpClient     a connection of that instance
//       Pending       a question of that instance (or of the proxy for it) that waits for an upstream, then for the kernel
//
// A question goes to question_ask() with its Origin. It is answered at once, or becomes a Pending that is answered later, or goes with what it
// belongs to. Each is told to hostd-flow.
#pragma once

#include <netinet/in.h>

#include "border/record.h"
#include "border/resolve.h"
#include "border/server.h"
#include "network/view_lists.h"
#include "resolver/grants.h"
#include "resolver/limit.h"
#include "resolver/lookup.h"
#include "resolver/verdict.h"

#define PENDING_MAX 64         // of a slot
#define PENDING_INSERTS_MAX (VERDICT_INSERTS_MAX * VERDICT_INSERT_ADDRESSES)
#define TCP_CLIENTS_MAX 8      // of a slot
#define TCP_CLIENTS_ALL 512
#define TCP_OUT_MAX 16384      // bytes that a client leaves unread
#define TCP_OUT_ALL (1u << 20)

typedef struct Resolver Resolver;
typedef struct Slot Slot;
typedef struct TcpClient TcpClient;
typedef struct Pending Pending;

struct Resolver {
        sd_event *event;
        Upstreams *upstreams;
        Cache *cache;
        Lookups *lookups;
        ControlServer *control; // NULL while it is being made
        ResolveServer *proxy;   // NULL where nobody may ask but guests
        FlowSender *flows;
        ViewLists lists;
        Slot *slots;
        sd_event_source *retry; // slots that could not listen though their device is there
        size_t n_tcp, tcp_out;
        uint64_t last_cookie;
        bool gathering; // answers
};

// Who asked, and where the answer goes.
typedef enum OriginKind { ORIGIN_UDP, ORIGIN_TCP, ORIGIN_PROXY } OriginKind;
typedef struct Origin {
        OriginKind kind;
        int fd; // UDP
        union {
                struct sockaddr any;
                struct sockaddr_in in;
                struct sockaddr_in6 in6;
        } peer; // UDP
        socklen_t peer_size;
        TcpClient *tcp;
        uint64_t connection, cookie; // PROXY
} Origin;

typedef enum Listen { LISTEN_UDP4, LISTEN_UDP6, LISTEN_TCP4, LISTEN_TCP6, _LISTEN_MAX } Listen;

struct Slot {
        Resolver *resolver;
        Slot *next;
        ViewSlot view; // owned
        int ifindex;   // of the device that the listeners are bound to; 0: there is none
        int fds[_LISTEN_MAX];
        sd_event_source *sources[_LISTEN_MAX];
        sd_event_source *resume; // accepting was paused
        Rate rate, refusals;     // refusals: of questions over the limit; above that nothing is read for a while
        Rate complaints;         // records of such questions, which else would be as many as these
        sd_event_source *flooded; // nothing is read until it fires
        Zones zones;
        Grants grants;
        Pending *pendings;
        size_t n_pending;
        TcpClient *clients;
        size_t n_clients;
};

// slot.c
Slot *slot_find(const Resolver *resolver, uint16_t number);
Slot *slot_free(Slot *slot);
// Takes what is in `view` over. The slot's device need not exist yet. -ENOMEM: the slot is not there at all.
int slot_apply(Resolver *resolver, ViewSlot *view);
void slot_link(Resolver *resolver, const char *ifname, int ifindex); // a device appeared, or went (0)
void slots_resync(Resolver *resolver); // looks at each slot's device
int slot_listen(Slot *slot); // listen.c: on the device as it is now
void slot_close(Slot *slot); // listen.c
void slot_pause(Slot *slot); // listen.c: what goes on coming is the kernel's to drop

// question.c
void question_ask(Slot *slot, const Origin *origin, const DnsQuery *query);
void question_malformed(Slot *slot, const Origin *origin, const DnsQuery *query, int rcode);
void question_proxy(Resolver *resolver, uint64_t connection, const ResolveQuestion *question);
void question_on_ack(Resolver *resolver, uint64_t cookie, int error);
void question_on_control_lost(Resolver *resolver);
Pending *pending_free(Pending *pending); // unanswered
void pending_free_of(Slot *slot, const TcpClient *client); // NULL: all of the slot

// answer.c: the reply goes out and is told
typedef struct Answered {
        const Verdict *verdict;
        DnsRcode rcode;
        DnsEde ede;
        const char *text;
        const uint8_t *records;
        size_t size;
        uint32_t ttl;
        int error; // what the proxy is told; 0 with addresses
        FlowVerdict flow;
        usec_t start;
        bool cached, quiet; // quiet: no record
} Answered;
void answer_send(Slot *slot, const Origin *origin, const DnsQuery *query, const Answered *answered);
// Between these two, replies by UDP are gathered for one system call. Records are not: their reader's queue may have room for ten.
#define BATCH_MAX 32
void answers_gather(Resolver *resolver);
void answers_flush(Resolver *resolver);

// tcp.c
int tcp_client_new(Slot *slot, int fd); // takes the descriptor in any case
TcpClient *tcp_client_free(TcpClient *client);
void tcp_client_update(TcpClient *client); // what it waits for
TcpClient *tcp_client_next(TcpClient *client);
void tcp_client_answer(TcpClient *client, const uint8_t *data, size_t size); // one that cannot take it ends later, from the loop

// links.c: devices that come and go
int links_open(void);
int links_watch(Resolver *resolver, int fd); // takes the descriptor
