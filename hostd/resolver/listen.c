// SPDX-License-Identifier: GPL-2.0-or-later
// Listen: the four listeners of a slot, UDP and TCP of both families, and what comes in at them.
#include "resolver/resolver.h"

#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

#include "border/border.h"

#define ACCEPTS_AT_ONCE 8
#define TCP_BACKLOG 16
#define ACCEPT_PAUSE USEC_PER_SEC
#define FLOOD_PAUSE (50 * USEC_PER_MSEC)

static const struct { int family, type; } kinds[_LISTEN_MAX] = {
        [LISTEN_UDP4] = {AF_INET, SOCK_DGRAM}, [LISTEN_UDP6] = {AF_INET6, SOCK_DGRAM}, [LISTEN_TCP4] = {AF_INET, SOCK_STREAM}, [LISTEN_TCP6] = {AF_INET6, SOCK_STREAM},
};

static struct {
        struct mmsghdr messages[BATCH_MAX];
        struct iovec vectors[BATCH_MAX];
        struct sockaddr_in6 peers[BATCH_MAX]; // or sockaddr_in, which is smaller
        uint8_t data[BATCH_MAX][DNS_QUERY_MAX + 1];
} datagrams;

static bool receive_one(int fd, unsigned i) {
        socklen_t size = sizeof(datagrams.peers[i]);
        ssize_t n = recvfrom(fd, datagrams.data[i], sizeof(datagrams.data[i]), MSG_DONTWAIT, (struct sockaddr *) &datagrams.peers[i], &size);

        if (n < 0)
                return false;
        datagrams.messages[i].msg_len = (unsigned) n;
        datagrams.messages[i].msg_hdr.msg_namelen = size;
        return true;
}

// A single one comes by a call that is cheaper for it; where there are two there are many.
static unsigned receive_datagrams(int fd) {
        unsigned n = 0;
        int more;

        while (n < 2)
                if (!receive_one(fd, n++))
                        return n - 1;
        for (unsigned i = n; i < BATCH_MAX; i++) {
                datagrams.vectors[i] = (struct iovec) {datagrams.data[i], sizeof(datagrams.data[i])};
                datagrams.messages[i].msg_hdr = (struct msghdr) {
                        .msg_name = &datagrams.peers[i], .msg_namelen = sizeof(datagrams.peers[i]), .msg_iov = &datagrams.vectors[i], .msg_iovlen = 1,
                };
        }
        more = recvmmsg(fd, datagrams.messages + n, BATCH_MAX - n, MSG_DONTWAIT, NULL);
        return n + (more > 0 ? (unsigned) more : 0);
}

// One batch, then others have their turn. What is left of it when a flood is noticed is lost.
static int on_datagrams(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        static DnsQuery query;
        Slot *slot = userdata;
        unsigned n = receive_datagrams(fd);

        answers_gather(slot->resolver);
        for (unsigned i = 0; i < n && !slot->flooded; i++) {
                Origin origin = {.kind = ORIGIN_UDP, .fd = fd, .peer_size = datagrams.messages[i].msg_hdr.msg_namelen};
                int r = dns_query_read(datagrams.data[i], datagrams.messages[i].msg_len, &query);
                memcpy(&origin.peer, &datagrams.peers[i], sizeof(origin.peer));
                if (r == 0)
                        question_ask(slot, &origin, &query);
                else if (r > 0)
                        question_malformed(slot, &origin, &query, r);
        }
        answers_flush(slot->resolver);
        return 0;
}

static void slot_read(const Slot *slot, bool read) {
        for (Listen i = LISTEN_UDP4; i <= LISTEN_UDP6; i++)
                if (slot->sources[i])
                        (void) sd_event_source_set_enabled(slot->sources[i], read ? SD_EVENT_ON : SD_EVENT_OFF);
        for (TcpClient *client = slot->clients; client; client = tcp_client_next(client))
                tcp_client_update(client);
}

static int on_flood_over(sd_event_source *source, uint64_t usec, void *userdata) {
        Slot *slot = userdata;

        slot->flooded = sd_event_source_disable_unref(slot->flooded);
        slot_read(slot, true);
        return 0;
}

// The time that refusals take is everybody's. Where they become too many, the kernel does the rest at less cost.
void slot_pause(Slot *slot) {
        if (!slot->flooded &&
            sd_event_add_time_relative(slot->resolver->event, &slot->flooded, CLOCK_MONOTONIC, FLOOD_PAUSE, USEC_PER_MSEC, on_flood_over, slot) >= 0)
                slot_read(slot, false);
}

static int on_resume(sd_event_source *source, uint64_t usec, void *userdata) {
        Slot *slot = userdata;

        slot->resume = sd_event_source_disable_unref(slot->resume);
        for (Listen i = LISTEN_TCP4; i <= LISTEN_TCP6; i++)
                if (slot->sources[i])
                        (void) sd_event_source_set_enabled(slot->sources[i], SD_EVENT_ON);
        return 0;
}

// No descriptors are left: the connection stays in the queue, and without a pause the loop would run round it.
static void pause_accepting(Slot *slot) {
        if (sd_event_add_time_relative(slot->resolver->event, &slot->resume, CLOCK_MONOTONIC, ACCEPT_PAUSE, 0, on_resume, slot) < 0)
                return;
        for (Listen i = LISTEN_TCP4; i <= LISTEN_TCP6; i++)
                if (slot->sources[i])
                        (void) sd_event_source_set_enabled(slot->sources[i], SD_EVENT_OFF);
}

static int on_connections(sd_event_source *source, int listening, uint32_t events, void *userdata) {
        Slot *slot = userdata;

        for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
                int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                if (fd >= 0) {
                        (void) tcp_client_new(slot, fd); // one too many is closed
                        continue;
                }
                if ((errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) && !slot->resume)
                        pause_accepting(slot);
                return 0;
        }
        return 0;
}

void slot_close(Slot *slot) {
        while (slot->clients)
                tcp_client_free(slot->clients);
        slot->resume = sd_event_source_disable_unref(slot->resume);
        slot->flooded = sd_event_source_disable_unref(slot->flooded);
        for (Listen i = 0; i < _LISTEN_MAX; i++) {
                slot->sources[i] = sd_event_source_disable_unref(slot->sources[i]);
                slot->fds[i] = close_fd(slot->fds[i]);
        }
        // Answers to questions that came by UDP have nowhere to go, and their descriptor's number may soon be another's.
        pending_free_of(slot, NULL);
        slot->ifindex = 0;
}

int slot_listen(Slot *slot) {
        int ifindex = (int) if_nametoindex(slot->view.ifname), r = ifindex > 0 ? 0 : -ENODEV;

        for (Listen i = 0; r >= 0 && i < _LISTEN_MAX; i++) {
                r = slot->fds[i] = border_open_on((BorderWire) {slot->view.ifname, (unsigned) ifindex}, kinds[i].family, kinds[i].type, BORDER_DNS_PORT);
                if (r >= 0 && kinds[i].type == SOCK_STREAM)
                        r = listen(slot->fds[i], TCP_BACKLOG) < 0 ? -errno : 0;
                if (r >= 0)
                        r = sd_event_add_io(slot->resolver->event, &slot->sources[i], slot->fds[i], EPOLLIN, kinds[i].type == SOCK_DGRAM ? on_datagrams : on_connections, slot);
        }
        if (r < 0)
                slot_close(slot);
        else
                slot->ifindex = ifindex;
        return r < 0 ? r : 0;
}
