// SPDX-License-Identifier: GPL-2.0-or-later
// Recorder: see recorder.h.
#include "flow/recorder.h"

#include <string.h>
#include <sys/socket.h>

#include "flow/answer.h"
#include "flow/message.h"

#define DATAGRAM_MAX 65536 // of netlink; the kernel's own are at most 32 KiB
#define READ_AT_ONCE 64    // datagrams, before others get their turn
#define TICK (10 * USEC_PER_SEC)
#define TIDY_TICKS 6
#define ANSWERS_MAX 8      // at the same time
#define DUMP_LATE (300 * USEC_PER_SEC) // behind the last one: the keeper is gone, or the kernel says nothing

typedef struct Asked {
        Answer *answer; // NULL: free
        uint64_t cookie;
} Asked;

struct Recorder {
        RecorderConfig config;
        FlowBook *book;
        ControlServer *server;
        sd_event_source *packets, *ends, *dump, *records, *tick;
        bool sequence_known;
        uint32_t sequence;        // of the next packet, if none is lost
        uint64_t lost_packets, lost_records, missed_records;
        bool lost_more_packets; // how many the next one that comes will tell
        bool lost_ends;
        bool dumping;             // the answer is being read
        bool late;                // and that was said
        usec_t dumped, dump_began; // when the last whole dump began, this one
        unsigned ticks;
        Asked asked[ANSWERS_MAX];
        _Alignas(struct nlmsghdr) char buffer[DATAGRAM_MAX];
};

// ---- the kernel

static void packet_message(Recorder *recorder, const struct nlmsghdr *message) {
        NflogPacket packet;

        if (nflog_parse(message, &packet) < 0)
                return;
        if (packet.has_sequence) {
                if (recorder->sequence_known)
                        recorder->lost_packets += packet.sequence - recorder->sequence;
                recorder->sequence_known = true;
                recorder->sequence = packet.sequence + 1;
        }
        (void) flow_book_packet(recorder->book, &packet, clock_realtime());
}

static void end_message(Recorder *recorder, const struct nlmsghdr *message) {
        ConntrackFlow flow;

        if (conntrack_parse(message, &flow) >= 0 && flow.ended)
                (void) flow_book_connection(recorder->book, &flow, 0, clock_realtime());
}

static void dump_message(Recorder *recorder, const struct nlmsghdr *message) {
        ConntrackFlow flow;

        if (!recorder->dumping)
                recorder->dump_began = clock_realtime();
        recorder->dumping = message->nlmsg_type != NLMSG_DONE && message->nlmsg_type != NLMSG_ERROR;
        if (message->nlmsg_type == NLMSG_DONE)
                recorder->dumped = recorder->dump_began;
        else if (conntrack_parse(message, &flow) >= 0 && !flow.ended)
                (void) flow_book_connection(recorder->book, &flow, recorder->dumped, recorder->dump_began);
}

typedef void (*MessageHandler)(Recorder *recorder, const struct nlmsghdr *message);

// Of the kernel's alone: anybody can send to a netlink socket. `ret_lost` is set if the kernel could not say all.
static void netlink_read(Recorder *recorder, int fd, MessageHandler handler, bool *ret_lost) {
        for (int i = 0; i < READ_AT_ONCE; i++) {
                struct sockaddr_nl from = {0};
                socklen_t size = sizeof(from);
                ssize_t n = recvfrom(fd, recorder->buffer, sizeof(recorder->buffer), MSG_DONTWAIT, (struct sockaddr *) &from, &size);
                MessageWalk walk = {recorder->buffer, n > 0 ? (size_t) n : 0};
                if (n < 0 && errno == ENOBUFS) {
                        *ret_lost = true;
                        continue;
                }
                if (n < 0)
                        return;
                if (size != sizeof(from) || from.nl_pid != 0)
                        continue;
                for (const struct nlmsghdr *message; (message = message_next(&walk));)
                        handler(recorder, message);
        }
}

static int packets_ready(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Recorder *recorder = userdata;

        netlink_read(recorder, fd, packet_message, &recorder->lost_more_packets);
        return 0;
}

static int ends_ready(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Recorder *recorder = userdata;

        netlink_read(recorder, fd, end_message, &recorder->lost_ends);
        return 0;
}

static int dump_ready(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        bool unused; // a dump waits for its reader

        netlink_read(userdata, fd, dump_message, &unused);
        return 0;
}

// ---- resolver and proxy

static bool may_write(const RecorderConfig *config, const struct msghdr *message) {
        for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR((struct msghdr *) message, c)) {
                struct ucred from;
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS || c->cmsg_len < CMSG_LEN(sizeof(from)))
                        continue;
                memcpy(&from, CMSG_DATA(c), sizeof(from));
                for (size_t i = 0; i < config->n_writers; i++)
                        if (from.uid == config->writers[i])
                                return true;
        }
        return false;
}

// No room for descriptors: what is sent along is closed by the kernel.
static int records_ready(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Recorder *recorder = userdata;

        for (int i = 0; i < READ_AT_ONCE; i++) {
                union {
                        struct cmsghdr align;
                        char bytes[CMSG_SPACE(sizeof(struct ucred))];
                } control;
                FlowRecord record;
                struct iovec part = {&record, sizeof(record)};
                struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
                bool right;
                ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                if (n < 0)
                        return 0;
                right = !(message.msg_flags & MSG_TRUNC) && may_write(&recorder->config, &message) && flow_record_valid(&record, (size_t) n);
                if (right)
                        recorder->missed_records += record.missed;
                if (!right || !flow_book_record(recorder->book, &record, clock_realtime()))
                        recorder->lost_records++;
        }
        return 0;
}

// ---- hostd

static void tell_denied(const FlowRecord *record, void *userdata) {
        Recorder *recorder = userdata;

        (void) control_server_send(recorder->server, BORDER_EVENT, 0, record, sizeof(*record)); // without hostd nobody waits for it
}

static void apply_views(Recorder *recorder, const ControlFrame *frame) {
        _cleanup_(view_freep) View *view = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = view_parse(frame->payload, frame->header.length, &view, &err);

        if (r < 0)
                fprintf(stderr, "hostd-flow: %s\n", error_message(&err, r));
        (void) control_server_applied(recorder->server, frame->header.cookie, MIN2(r, 0));
        if (r < 0)
                return;
        r = flow_book_apply(recorder->book, view, clock_realtime());
        if (r < 0) // no reason to hold a policy back; tried again each minute
                fprintf(stderr, "hostd-flow: a log cannot be written: %s\n", strerror(-r));
}

static void answered(Answer *answer, int r, void *userdata) {
        Recorder *recorder = userdata;

        for (size_t i = 0; i < ANSWERS_MAX; i++)
                if (recorder->asked[i].answer == answer) {
                        recorder->asked[i].answer = answer_free(answer); // the pipe is closed before hostd hears of it
                        (void) control_server_answered(recorder->server, recorder->asked[i].cookie, r);
                        return;
                }
}

// `fd` is taken in any case.
static int start_answer(Recorder *recorder, const BorderQuery *question, int fd, Answer **ret) {
        FlowFilter filter = {.since_usec = question->since_usec, .denied = question->denied, .limit = question->limit,
                             .kind = question->kind == BORDER_QUERY_ANY ? _FLOW_KIND_INVALID : (FlowKind) question->kind};
        AnswerConfig config = {.event = recorder->config.event, .fd = fd, .done = answered, .userdata = recorder};
        int r = flow_query_new(recorder->config.logs, question->instance, &filter, &config.query);

        if (r < 0) {
                (void) close_fd(fd);
                return r;
        }
        return answer_new(&config, ret);
}

static int answer_query(Recorder *recorder, const ControlFrame *frame, int fd) {
        BorderQuery question;
        Asked *asked = NULL;
        int r;

        memcpy(&question, frame->payload, sizeof(question)); // checked by the link
        for (size_t i = 0; i < ANSWERS_MAX; i++)
                if (!recorder->asked[i].answer)
                        asked = &recorder->asked[i];
        if (!asked) {
                (void) close_fd(fd);
                return -EBUSY;
        }
        r = start_answer(recorder, &question, fd, &asked->answer);
        if (r >= 0)
                asked->cookie = frame->header.cookie;
        return r;
}

static void control_frame(ControlServer *server, const ControlFrame *frame, void *userdata) {
        Recorder *recorder = userdata;
        int fd, r;

        if (frame->header.type == BORDER_VIEWS)
                apply_views(recorder, frame);
        if (frame->header.type != BORDER_QUERY)
                return;
        fd = control_server_take_fd(server);
        r = fd < 0 ? fd : answer_query(recorder, frame, fd);
        if (r < 0)
                (void) control_server_answered(server, frame->header.cookie, r);
}

// Whoever asked is gone with it.
static void control_gone(ControlServer *server, void *userdata) {
        Recorder *recorder = userdata;

        for (size_t i = 0; i < ANSWERS_MAX; i++)
                recorder->asked[i].answer = answer_free(recorder->asked[i].answer);
}

// ---- time

static void say_lost(Recorder *recorder, usec_t now) {
        if (recorder->lost_packets || recorder->lost_more_packets)
                flow_book_lost(recorder->book, recorder->lost_packets, "denied packets, of whatever instance, that could not be read in time", now);
        if (recorder->lost_ends)
                flow_book_lost(recorder->book, 0, "ends of connections, of whatever instance, that could not be read in time", now);
        if (recorder->lost_records)
                flow_book_lost(recorder->book, recorder->lost_records, "records of resolver and proxy that were not right", now);
        if (recorder->missed_records)
                flow_book_lost(recorder->book, recorder->missed_records, "records of resolver and proxy, of whatever instance, that were not read in time", now);
        recorder->lost_packets = recorder->lost_records = recorder->missed_records = 0;
        recorder->lost_ends = recorder->lost_more_packets = false;
        if (recorder->config.dump >= 0 && now > recorder->dumped + DUMP_LATE && !recorder->late)
                flow_book_lost(recorder->book, 0, "connections that live: the kernel does not tell of them any more", now);
        recorder->late = now > recorder->dumped + DUMP_LATE;
        if (recorder->config.blind && recorder->ticks % (360 * TIDY_TICKS) == 1)
                flow_book_lost(recorder->book, 0, recorder->config.blind, now);
}

static int recorder_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        Recorder *recorder = userdata;
        usec_t now = clock_realtime();

        recorder->ticks++;
        say_lost(recorder, now);
        if (recorder->ticks % TIDY_TICKS == 0)
                flow_book_tidy(recorder->book, now);
        (void) sd_event_source_set_time_relative(source, TICK);
        (void) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
        return 0;
}

// ---- all of it

static int watch(Recorder *recorder, sd_event_source **ret, int fd, sd_event_io_handler_t handler) {
        return fd < 0 ? 0 : sd_event_add_io(recorder->config.event, ret, fd, EPOLLIN, handler, recorder);
}

static int recorder_watch(Recorder *recorder) {
        const RecorderConfig *config = &recorder->config;
        int one = 1, r;

        if (setsockopt(config->records, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0)
                return -errno;
        r = watch(recorder, &recorder->packets, config->packets, packets_ready);
        if (r >= 0)
                r = watch(recorder, &recorder->ends, config->ends, ends_ready);
        if (r >= 0)
                r = watch(recorder, &recorder->dump, config->dump, dump_ready);
        if (r >= 0)
                r = watch(recorder, &recorder->records, config->records, records_ready);
        if (r >= 0)
                r = sd_event_add_time_relative(config->event, &recorder->tick, CLOCK_MONOTONIC, TICK, 0, recorder_tick, recorder);
        return r;
}

int recorder_new(const RecorderConfig *config, Recorder **ret) {
        _cleanup_(recorder_freep) Recorder *recorder = calloc(1, sizeof(Recorder));
        FlowBookConfig book = {.logs = config->logs, .settings = config->settings, .denied = tell_denied, .userdata = recorder};
        ControlServerConfig server = {.event = config->event, .fd = config->control, .frame = control_frame, .gone = control_gone, .userdata = recorder};
        int r;

        if (!recorder)
                return -ENOMEM;
        recorder->config = *config;
        recorder->dumped = clock_realtime();
        r = flow_book_new(&book, &recorder->book);
        if (r >= 0)
                r = control_server_new(&server, &recorder->server);
        if (r >= 0)
                r = recorder_watch(recorder);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(recorder);
        return 0;
}

Recorder *recorder_free(Recorder *recorder) {
        if (!recorder)
                return NULL;
        sd_event_source_disable_unref(recorder->packets);
        sd_event_source_disable_unref(recorder->ends);
        sd_event_source_disable_unref(recorder->dump);
        sd_event_source_disable_unref(recorder->records);
        sd_event_source_disable_unref(recorder->tick);
        control_gone(NULL, recorder);
        (void) control_server_free(recorder->server); // and its descriptor
        (void) flow_book_free(recorder->book);
        (void) close_fd(recorder->config.packets);
        (void) close_fd(recorder->config.ends);
        (void) close_fd(recorder->config.dump);
        (void) close_fd(recorder->config.records);
        (void) close_fd(recorder->config.logs);
        free(recorder);
        return NULL;
}
