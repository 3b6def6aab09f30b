// SPDX-License-Identifier: GPL-2.0-or-later
// Answer: the last step of each question: the reply to whoever asked, and the record for hostd-flow. Neither waits: a client that does not
// read loses its reply, and a record that nobody takes is counted and gone.
#include "resolver/resolver.h"

#include <string.h>
#include <sys/socket.h>

static uint8_t buffer[DNS_REPLY_MAX]; // one thread, one reply at a time

// What was gathered. The replies are all for one socket.
static struct {
        int fd;
        unsigned n;
        struct mmsghdr messages[BATCH_MAX];
        struct iovec vectors[BATCH_MAX];
        struct sockaddr_in6 peers[BATCH_MAX]; // or sockaddr_in, which is smaller
        uint8_t data[BATCH_MAX][DNS_UDP_SIZE];
} replies;

static void replies_flush(void) {
        unsigned at = 0;

        if (replies.n == 1) { // cheaper than the same by sendmmsg()
                (void) sendmsg(replies.fd, &replies.messages[0].msg_hdr, MSG_DONTWAIT | MSG_NOSIGNAL);
                at = 1;
        }
        while (at < replies.n) {
                int n = sendmmsg(replies.fd, replies.messages + at, replies.n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
                // As by the network, a lost reply is the client's to ask for again. An error is the first one's only.
                at += n > 0 ? (unsigned) n : 1;
        }
        replies.n = 0;
}

void answers_gather(Resolver *resolver) {
        resolver->gathering = true;
}

void answers_flush(Resolver *resolver) {
        resolver->gathering = false;
        replies_flush();
}

static size_t reply_gather(const Origin *origin, const DnsQuery *query, const DnsReply *reply) {
        size_t size;

        if (replies.n == BATCH_MAX || (replies.n > 0 && replies.fd != origin->fd))
                replies_flush();
        size = dns_reply_write(query, reply, MIN2(query->udp_size, DNS_UDP_SIZE), replies.data[replies.n]);
        replies.fd = origin->fd;
        memcpy(&replies.peers[replies.n], &origin->peer, sizeof(replies.peers[0]));
        replies.vectors[replies.n] = (struct iovec) {replies.data[replies.n], size};
        replies.messages[replies.n].msg_hdr = (struct msghdr) {
                .msg_name = &replies.peers[replies.n], .msg_namelen = origin->peer_size, .msg_iov = &replies.vectors[replies.n], .msg_iovlen = 1,
        };
        replies.n++;
        return size;
}

// With what to say to get it, if there is room: half a command is none.
static const char *refusal_text(const DnsQuery *query, const Answered *answered, char buf[DNS_EDE_TEXT_MAX + 1]) {
        char name[DNS_TEXT_MAX];
        int n;

        if (answered->ede != DNS_EDE_BLOCKED || !answered->text || strncmp(answered->text, "denied", 6) != 0)
                return answered->text;
        n = snprintf(buf, DNS_EDE_TEXT_MAX + 1, "%s; to ask for it: " BORDER_ASK " %s --reason WHY", answered->text, dns_name_to_text(&query->name, name));
        return n > DNS_EDE_TEXT_MAX ? answered->text : buf;
}

static size_t send_message(Resolver *resolver, const Origin *origin, const DnsQuery *query, const Answered *answered) {
        char text[DNS_EDE_TEXT_MAX + 1];
        DnsReply reply = {
                .rcode = answered->rcode, .bytes = answered->records, .size = answered->size, .ttl = answered->ttl, .ede = answered->ede,
                .ede_text = refusal_text(query, answered, text),
        };
        size_t size;

        if (origin->kind == ORIGIN_TCP) {
                size = dns_reply_write(query, &reply, DNS_REPLY_MAX, buffer);
                tcp_client_answer(origin->tcp, buffer, size);
                return size;
        }
        size = reply_gather(origin, query, &reply);
        if (!resolver->gathering)
                replies_flush();
        return size;
}

static void send_to_proxy(Resolver *resolver, const Origin *origin, const Answered *answered) {
        ResolveAnswer answer = {.cookie = origin->cookie, .error = answered->error, .ttl_s = answered->ttl};
        size_t offset = 0;
        DnsRecord record;

        while (answered->error == 0 && answer.n < RESOLVE_ADDRESSES_MAX && dns_record_next(answered->records, answered->size, &offset, &record)) {
                if (record.type != DNS_A && record.type != DNS_AAAA)
                        continue;
                answer.addresses[answer.n].family = record.type == DNS_A ? 4 : 6;
                memcpy(answer.addresses[answer.n++].address, record.data, record.size);
        }
        if (answered->error == 0 && answer.n == 0)
                answer.error = answered->rcode == DNS_NXDOMAIN ? -ENOENT : -ENODATA;
        if (answer.error)
                answer.ttl_s = 0;
        (void) resolve_server_answer(resolver->proxy, origin->connection, &answer); // the proxy went: so did who asked it
}

static void record_address(FlowRecord *record, const Answered *answered) {
        size_t offset = 0;
        DnsRecord r;

        while (dns_record_next(answered->records, answered->size, &offset, &r))
                if (r.type == DNS_A || r.type == DNS_AAAA) {
                        record->family = r.type == DNS_A ? 4 : 6;
                        memcpy(record->address, r.data, r.size);
                        return;
                }
}

// The policy and the operator's rule, counted in that policy from 1.
static void record_rule(FlowRecord *record, const PolicyDecision *decision) {
        if (!decision->policy || !decision->rule)
                return;
        flow_record_set_policy(record, decision->policy);
        record->rule = (uint16_t) compiled_rule_number(decision->of, decision->rule);
}

static void record_reason(FlowRecord *record, const DnsQuery *query, const Answered *answered) {
        static const char *const outcomes[] = {
                [DNS_NOERROR] = "", [DNS_FORMERR] = ": malformed", [DNS_SERVFAIL] = ": no answer", [DNS_NXDOMAIN] = ": no such name",
                [DNS_NOTIMP] = ": not implemented", [DNS_REFUSED] = ": refused",
        };
        char type[DNS_TYPE_TEXT_MAX];

        (void) dns_type_to_text(query->type, type);
        if (answered->text && *answered->text)
                flow_record_set_reason(record, "%s: %s", type, answered->text);
        else if (answered->rcode == DNS_NOERROR && answered->size == 0)
                flow_record_set_reason(record, "%s: no such record", type);
        else
                flow_record_set_reason(record, "%s%s", type, (size_t) answered->rcode < ELEMENTS(outcomes) ? outcomes[answered->rcode] : "");
}

static void record_send(Slot *slot, const Origin *origin, const DnsQuery *query, const Answered *answered, size_t size) {
        char name[DNS_TEXT_MAX];
        FlowRecord record;

        flow_record_init(&record, FLOW_DNS, answered->flow);
        record.slot = slot->view.slot;
        record.protocol = origin->kind == ORIGIN_UDP ? IPPROTO_UDP : IPPROTO_TCP;
        record.port = 53;
        record.flags = answered->cached ? FLOW_FLAG_CACHED : 0;
        record.duration_usec = clock_monotonic() - answered->start;
        record.realtime_usec = (int64_t) (clock_realtime() - record.duration_usec);
        record.tx = query->question_size + DNS_HEADER_SIZE;
        record.rx = size;
        record_address(&record, answered);
        if (answered->verdict)
                record_rule(&record, &answered->verdict->decision);
        if (query->name.size > 0) {
                (void) dns_name_to_text(&query->name, name);
                flow_record_set_name(&record, name, strlen(name));
        }
        record_reason(&record, query, answered);
        flow_sender_send(slot->resolver->flows, &record);
}

void answer_send(Slot *slot, const Origin *origin, const DnsQuery *query, const Answered *answered) {
        size_t size;

        if (origin->kind == ORIGIN_PROXY) { // which tells of the connection itself
                send_to_proxy(slot->resolver, origin, answered);
                return;
        }
        size = send_message(slot->resolver, origin, query, answered);
        if (!answered->quiet)
                record_send(slot, origin, query, answered, size);
}
