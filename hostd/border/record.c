// SPDX-License-Identifier: GPL-2.0-or-later
// Record: see record.h.
#include "border/record.h"

#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"

#define RECONNECT_AFTER USEC_PER_SEC

static const char *const kinds[_FLOW_KIND_MAX] = {"dns", "tls", "http", "connect", "kernel"};
static const char *const verdicts[_FLOW_VERDICT_MAX] = {"allow", "deny", "error"};

const char *flow_kind_to_string(FlowKind kind) {
        return kind >= 0 && kind < _FLOW_KIND_MAX ? kinds[kind] : NULL;
}

FlowKind flow_kind_from_string(const char *text) {
        for (FlowKind i = 0; i < _FLOW_KIND_MAX; i++)
                if (strcmp(text, kinds[i]) == 0)
                        return i;
        return _FLOW_KIND_INVALID;
}

const char *flow_verdict_to_string(FlowVerdict verdict) {
        return verdict >= 0 && verdict < _FLOW_VERDICT_MAX ? verdicts[verdict] : NULL;
}

FlowVerdict flow_verdict_from_string(const char *text) {
        for (FlowVerdict i = 0; i < _FLOW_VERDICT_MAX; i++)
                if (strcmp(text, verdicts[i]) == 0)
                        return i;
        return _FLOW_VERDICT_INVALID;
}

void flow_record_init(FlowRecord *record, FlowKind kind, FlowVerdict verdict) {
        *record = (FlowRecord) {
                .version = FLOW_RECORD_VERSION, .size = sizeof(*record), .kind = (uint8_t) kind, .verdict = (uint8_t) verdict};
}

// What names and addresses are spelled with, and the mark of what was replaced. A guest chooses the name: nothing in it means anything to JSON,
// a line of words, a terminal, or a shell that it is pasted into, where '?' is at worst a pattern.
static bool name_byte(unsigned char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-_.:?", c));
}

static void set_word(char *to, size_t max, const char *from, size_t size) {
        size_t n = MIN2(size, max - 1);

        memset(to, 0, max);
        for (size_t i = 0; i < n; i++)
                to[i] = name_byte((unsigned char) from[i]) ? from[i] : '?';
}

void flow_record_set_name(FlowRecord *record, const char *name, size_t size) {
        set_word(record->name, sizeof(record->name), name, size);
}

void flow_record_set_policy(FlowRecord *record, const char *policy) {
        set_word(record->policy, sizeof(record->policy), policy, strlen(policy));
}

void flow_record_set_reason(FlowRecord *record, const char *format, ...) {
        va_list ap;

        memset(record->reason, 0, sizeof(record->reason));
        va_start(ap, format);
        (void) vsnprintf(record->reason, sizeof(record->reason), format, ap); // cut is cut
        va_end(ap);
        for (char *p = record->reason; *p; p++)
                if ((unsigned char) *p < ' ' || (unsigned char) *p >= 0x7f)
                        *p = '?'; // a cut might have split a character
}

// 0-terminated, zeros behind, each byte allowed (`spaces`: a sentence).
static bool text_valid(const char *text, size_t max, bool spaces) {
        size_t n = strnlen(text, max);

        if (n == max)
                return false;
        for (size_t i = 0; i < n; i++)
                if (spaces ? (unsigned char) text[i] < ' ' || (unsigned char) text[i] >= 0x7f : !name_byte((unsigned char) text[i]))
                        return false;
        for (size_t i = n; i < max; i++)
                if (text[i])
                        return false;
        return true;
}

static bool address_valid(const FlowRecord *record) {
        size_t from = record->family == 6 ? 16 : record->family == 4 ? 4 : 0;

        if (record->family != 0 && record->family != 4 && record->family != 6)
                return false;
        for (size_t i = from; i < sizeof(record->address); i++)
                if (record->address[i])
                        return false;
        return true;
}

bool flow_record_valid(const void *data, size_t size) {
        FlowRecord r;

        if (size != sizeof(r))
                return false;
        memcpy(&r, data, sizeof(r));
        return r.version == FLOW_RECORD_VERSION && r.size == sizeof(r) && r.slot > 0 && r.kind < _FLOW_KIND_MAX && r.verdict < _FLOW_VERDICT_MAX &&
               (r.flags & ~FLOW_FLAGS) == 0 && r.realtime_usec > 0 && address_valid(&r) &&
               text_valid(r.policy, sizeof(r.policy), false) && text_valid(r.name, sizeof(r.name), false) &&
               text_valid(r.reason, sizeof(r.reason), true);
}

struct FlowSender {
        struct sockaddr_un address;
        int fd; // connected, or -EBADF
        usec_t tried;
        uint64_t dropped, told; // told: of the dropped ones, by a record that was taken
};

int flow_sender_new(const char *path, FlowSender **ret) {
        FlowSender *sender = calloc(1, sizeof(FlowSender));

        if (!sender)
                return -ENOMEM;
        sender->fd = -EBADF;
        sender->address.sun_family = AF_UNIX;
        if (strlen(path) >= sizeof(sender->address.sun_path)) {
                free(sender);
                return -ENAMETOOLONG;
        }
        memcpy(sender->address.sun_path, path, strlen(path) + 1);
        *ret = sender;
        return 0;
}

FlowSender *flow_sender_free(FlowSender *sender) {
        if (!sender)
                return NULL;
        (void) close_fd(sender->fd);
        free(sender);
        return NULL;
}

// At most once a second: without hostd-flow a busy writer must not spend its time on looking for it.
static int sender_connect(FlowSender *sender) {
        usec_t now = clock_monotonic();
        int fd, room = 1 << 20;

        if (sender->tried && now - sender->tried < RECONNECT_AFTER)
                return -EAGAIN;
        sender->tried = now;
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *) &sender->address, sizeof(sender->address)) < 0) {
                int r = -errno;
                (void) close(fd);
                return r;
        }
        // What is not read yet counts here. All connections of an instance can end at once, which is more than the usual room.
        (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        sender->fd = fd;
        return 0;
}

void flow_sender_send(FlowSender *sender, const FlowRecord *record) {
        FlowRecord copy = *record;
        ssize_t n;

        if (sender->fd < 0 && sender_connect(sender) < 0) {
                sender->dropped++;
                return;
        }
        copy.missed = (uint8_t) MIN2(sender->dropped - sender->told, (uint64_t) UINT8_MAX);
        do
                n = send(sender->fd, &copy, sizeof(copy), MSG_DONTWAIT | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n == (ssize_t) sizeof(copy)) {
                sender->told += copy.missed;
                return;
        }
        sender->dropped++;
        if (n < 0 && errno != EAGAIN && errno != ENOBUFS)
                sender->fd = close_fd(sender->fd); // whoever was there is gone; the next record looks for a successor
}

uint64_t flow_sender_dropped(const FlowSender *sender) {
        return sender->dropped;
}
