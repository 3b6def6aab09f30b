// SPDX-License-Identifier: GPL-2.0-or-later
// GuestChannel: see core/guest.h. The order in guest_channel_ready() is the security of exec: a pidfd first, then the checks on
// what has that pid, then the cgroup write, then the same process must still live; only then does the child get its byte.
#include "core/guest.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"

#define GUEST_SOCKET_BYTES (1 << 20)
#define GUEST_QUEUE_MAX 4096
#define GUEST_BATCH 64          // packets per turn of the loop, so that one guest does not starve the others
#define GUEST_WINDOW (10 * USEC_PER_MSEC)
#define GUEST_WINDOW_PACKETS 200 // 20000 a second

typedef struct GuestEntry {
        char id[GUEST_ID_MAX];
        bool login, ready, held;
        bool ended; // before HELLO: its end may be told once more
        const GuestOwner *owner;
} GuestEntry;

struct GuestChannel {
        int fd;
        bool gone, synced;
        CgroupBox *box;
        uint64_t userns_dev, userns_ino, ignored;
        pid_t helper;
        const GuestChannelHandlers *handlers;
        void *userdata;
        sd_event_source *io, *pause;
        GuestEntry *entries;
        size_t n_entries, room_entries;
        GuestHeader *queue; // answers that the socket did not take yet
        size_t n_queue, room_queue;
        usec_t window;
        unsigned window_packets;
};

static int guest_channel_grow(void **array, size_t n, size_t *room, size_t size) {
        size_t bigger = *room ? *room * 2 : 16;
        void *grown;

        if (n < *room)
                return 0;
        grown = reallocarray(*array, bigger, size);
        if (!grown)
                return -ENOMEM;
        *array = grown;
        *room = bigger;
        return 0;
}

static GuestEntry *guest_channel_find(GuestChannel *channel, const char *id) {
        for (size_t i = 0; i < channel->n_entries; i++)
                if (strcmp(channel->entries[i].id, id) == 0)
                        return &channel->entries[i];
        return NULL;
}

static int guest_channel_add(GuestChannel *channel, const char *id, bool login, bool ready) {
        int r = guest_channel_grow((void **) &channel->entries, channel->n_entries, &channel->room_entries, sizeof(GuestEntry));
        GuestEntry *e;

        if (r < 0)
                return r;
        e = &channel->entries[channel->n_entries++];
        *e = (GuestEntry) {.login = login, .ready = ready};
        memcpy(e->id, id, strlen(id)); // guest_id_valid(): shorter than the array
        return 0;
}

static void guest_channel_drop(GuestChannel *channel, GuestEntry *entry) {
        *entry = channel->entries[--channel->n_entries];
}

void guest_channel_forget(GuestChannel *channel, const char *id) {
        GuestEntry *e = guest_channel_find(channel, id);

        if (e && !e->ended)
                guest_channel_drop(channel, e);
}

// The helper repeats what it was not acknowledged when it hears of a new hostd: an end that lay in the socket when that
// one came is read twice, unless the acknowledgement overtakes it. HELLO comes after all that was repeated.
static void guest_channel_end(GuestChannel *channel, GuestEntry *entry) {
        if (channel->synced)
                guest_channel_drop(channel, entry);
        else
                entry->ended = true;
}

static void guest_channel_sync(GuestChannel *channel) {
        channel->synced = true;
        for (size_t i = channel->n_entries; i > 0; i--)
                if (channel->entries[i - 1].ended)
                        guest_channel_drop(channel, &channel->entries[i - 1]);
        if (channel->handlers->synced)
                channel->handlers->synced(channel, channel->userdata);
}

static int guest_channel_watch(GuestChannel *channel) {
        return sd_event_source_set_io_events(channel->io, channel->n_queue > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static int guest_channel_flush(GuestChannel *channel) {
        size_t sent = 0;

        while (sent < channel->n_queue) {
                ssize_t n = send(channel->fd, &channel->queue[sent], sizeof(GuestHeader), MSG_DONTWAIT | MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        break;
                sent++;
        }
        channel->n_queue -= sent;
        memmove(channel->queue, channel->queue + sent, channel->n_queue * sizeof(GuestHeader));
        return guest_channel_watch(channel);
}

// Never fails for a helper that is slow: what the socket does not take waits, and one that takes nothing at all is cut off.
static int guest_channel_send(GuestChannel *channel, GuestType type, const char *id, uint32_t value) {
        GuestHeader h = {
                .magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = (uint16_t) type, .size = sizeof(h), .value = value};

        if (channel->gone)
                return -EPIPE;
        if (id)
                memcpy(h.id, id, strnlen(id, GUEST_ID_MAX - 1));
        if (channel->n_queue >= GUEST_QUEUE_MAX) {
                (void) shutdown(channel->fd, SHUT_RDWR); // the loop then sees the end
                return -ENOBUFS;
        }
        int r = guest_channel_grow((void **) &channel->queue, channel->n_queue, &channel->room_queue, sizeof(GuestHeader));
        if (r < 0)
                return r;
        channel->queue[channel->n_queue++] = h;
        return guest_channel_flush(channel);
}

static bool guest_pidfd_alive(int pidfd) {
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) == 0;
}

// True if the process is one of this instance: same user namespace as its init, in its box.
static bool guest_channel_owns(GuestChannel *channel, pid_t pid) {
        char path[64];
        struct stat st;

        if (channel->userns_ino != 0) {
                (void) snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) pid);
                if (stat(path, &st) < 0 || st.st_dev != channel->userns_dev || st.st_ino != channel->userns_ino)
                        return false;
        }
        return cgroup_box_has(channel->box, pid);
}

typedef struct GuestListener { const GuestChannelHandlers *handlers; void *userdata; } GuestListener;

static GuestListener guest_channel_listener(const GuestChannel *channel, const GuestEntry *entry) {
        return entry->owner ? (GuestListener) {entry->owner->handlers, entry->owner->userdata} : (GuestListener) {channel->handlers, channel->userdata};
}

static void guest_channel_fail(GuestChannel *channel, GuestEntry *entry, GuestStage stage, int errnum) {
        GuestListener to = guest_channel_listener(channel, entry);
        char id[GUEST_ID_MAX];

        memcpy(id, entry->id, sizeof(id));
        guest_channel_end(channel, entry);
        if (to.handlers->failed)
                to.handlers->failed(channel, id, stage, errnum, to.userdata);
}

static void guest_channel_release(GuestChannel *channel, const GuestEntry *entry) {
        GuestListener to = guest_channel_listener(channel, entry);
        char id[GUEST_ID_MAX];

        memcpy(id, entry->id, sizeof(id));
        if (to.handlers->started)
                to.handlers->started(channel, id, to.userdata);
        (void) guest_channel_send(channel, GUEST_RELEASE, id, 0);
}

static int guest_channel_place(GuestChannel *channel, const GuestEntry *entry, pid_t pid) {
        if (entry->owner)
                return cgroup_sandbox_attach(entry->owner->sandbox, pid, NULL);
        return entry->login ? cgroup_box_attach(channel->box, CGROUP_LOGIN, pid, NULL) : cgroup_command_attach(channel->box, entry->id, pid, NULL);
}

static void guest_channel_ready(GuestChannel *channel, GuestEntry *entry, const GuestHeader *h, const struct ucred *ucred) {
        _cleanup_close_ int pidfd = -EBADF;
        char path[40];
        int r;

        if (entry->ready || ucred->pid <= 0) {
                channel->ignored++;
                return;
        }
        pidfd = (int) syscall(SYS_pidfd_open, ucred->pid, 0);
        if (pidfd < 0 || !guest_channel_owns(channel, ucred->pid) || !guest_pidfd_alive(pidfd)) {
                channel->ignored++;
                return;
        }
        r = guest_channel_place(channel, entry, ucred->pid);
        // The helper is protected from the OOM killer; what it starts must not be. From outside, because a process that is not
        // dumpable may not open its own file.
        (void) snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", ucred->pid);
        if (r >= 0)
                r = MIN2(io_write_file(AT_FDCWD, path, "0"), 0);
        if (!guest_pidfd_alive(pidfd)) {
                // It died under us; the write may have hit another process, which must not be killed for it.
                guest_channel_fail(channel, entry, GUEST_STAGE_SETUP, ESRCH);
                return;
        }
        if (r < 0) {
                (void) guest_channel_send(channel, GUEST_SIGNAL, h->id, SIGKILL);
                guest_channel_fail(channel, entry, GUEST_STAGE_SETUP, -r);
                return;
        }
        entry->ready = true;
        GuestListener to = guest_channel_listener(channel, entry);
        if (to.handlers->ready)
                to.handlers->ready(channel, h->id, ucred->pid, TAKE_FD(pidfd), to.userdata);
        if (!entry->held)
                guest_channel_release(channel, entry);
}

void guest_channel_permit(GuestChannel *channel, const char *id) {
        GuestEntry *entry = guest_channel_find(channel, id);

        if (!entry || !entry->held)
                return;
        entry->held = false;
        if (entry->ready)
                guest_channel_release(channel, entry);
}

static void guest_channel_ended(GuestChannel *channel, GuestEntry *entry, const GuestHeader *h) {
        (void) guest_channel_send(channel, GUEST_ACK, h->id, 0);
        if (entry->ended)
                return;
        if (h->type == GUEST_FAILED) {
                guest_channel_fail(channel, entry, (GuestStage) h->flags, (int) h->value);
                return;
        }
        GuestListener to = guest_channel_listener(channel, entry);
        guest_channel_end(channel, entry);
        if (to.handlers->exited)
                to.handlers->exited(channel, h->id, (int) h->value, to.userdata);
}

// Something that no hostd remembers: it is stopped (LIVE) or laid to rest (EXITED, FAILED).
static void guest_channel_stray(GuestChannel *channel, const GuestHeader *h) {
        channel->ignored++;
        if (h->type == GUEST_LIVE) {
                (void) cgroup_command_kill(channel->box, h->id);
                (void) guest_channel_send(channel, GUEST_SIGNAL, h->id, SIGKILL);
        } else if (h->type != GUEST_READY)
                (void) guest_channel_send(channel, GUEST_ACK, h->id, 0);
}

static void guest_channel_dispatch(GuestChannel *channel, const GuestHeader *h, const struct ucred *ucred) {
        GuestEntry *entry;

        if (h->type == GUEST_HELLO) {
                if (channel->helper) { // once: what it leads to is work
                        channel->ignored++;
                        return;
                }
                channel->helper = ucred->pid;
                guest_channel_sync(channel);
                return;
        }
        entry = guest_channel_find(channel, h->id);
        if (!entry || (entry->ended && h->type != GUEST_EXITED && h->type != GUEST_FAILED))
                guest_channel_stray(channel, h);
        else if (h->type == GUEST_READY)
                guest_channel_ready(channel, entry, h, ucred);
        else if (h->type != GUEST_LIVE)
                guest_channel_ended(channel, entry, h);
        else if (channel->handlers->live)
                channel->handlers->live(channel, h->id, channel->userdata);
}

// 1: one packet was taken; 0: nothing there; negative: the end.
static int guest_channel_receive(GuestChannel *channel) {
        union {
                char buf[CMSG_SPACE(sizeof(struct ucred))]; // no room for a descriptor: none can be installed
                struct cmsghdr align;
        } control;
        char data[sizeof(GuestAsk) + 1];
        struct iovec iov = {data, sizeof(data)};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
        struct ucred ucred = {0};
        struct cmsghdr *c;
        GuestHeader h;
        GuestAsk ask;
        ssize_t n = recvmsg(channel->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if (n < 0)
                return errno == EAGAIN ? 0 : errno == EINTR ? 1 : -errno;
        if (n == 0)
                return -EPIPE;
        c = CMSG_FIRSTHDR(&msg);
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof(ucred)))
                memcpy(&ucred, CMSG_DATA(c), sizeof(ucred));
        if (!(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && guest_ask_decode(data, (size_t) n, &ask) == 0) {
                if (channel->handlers->ask)
                        channel->handlers->ask(channel, &ask, channel->userdata);
        } else if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || guest_message_decode(data, (size_t) n, &h) < 0)
                channel->ignored++;
        else
                guest_channel_dispatch(channel, &h, &ucred);
        return 1;
}

static int guest_channel_resume(sd_event_source *source, uint64_t usec, void *userdata) {
        GuestChannel *channel = userdata;

        channel->window_packets = 0;
        return sd_event_source_set_enabled(channel->io, SD_EVENT_ON);
}

static int guest_channel_pause(GuestChannel *channel) {
        int r = sd_event_source_set_time_relative(channel->pause, GUEST_WINDOW);

        if (r >= 0)
                r = sd_event_source_set_enabled(channel->pause, SD_EVENT_ONESHOT);
        return r < 0 ? r : sd_event_source_set_enabled(channel->io, SD_EVENT_OFF);
}

static int guest_channel_io(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        GuestChannel *channel = userdata;
        usec_t now = clock_monotonic();
        int r = 1;

        if (now - channel->window >= GUEST_WINDOW) {
                channel->window = now;
                channel->window_packets = 0;
        }
        if (revents & EPOLLOUT)
                (void) guest_channel_flush(channel);
        for (int i = 0; i < GUEST_BATCH && channel->window_packets < GUEST_WINDOW_PACKETS && r > 0; i++) {
                r = guest_channel_receive(channel);
                channel->window_packets += r > 0;
        }
        if (r < 0) {
                channel->gone = true;
                (void) sd_event_source_set_enabled(channel->io, SD_EVENT_OFF);
                if (channel->handlers->gone)
                        channel->handlers->gone(channel, channel->userdata); // may free the channel
                return 0;
        }
        return channel->window_packets >= GUEST_WINDOW_PACKETS ? guest_channel_pause(channel) : 0;
}

pid_t guest_channel_helper(const GuestChannel *channel) {
        return channel->helper;
}

int guest_channel_fd(const GuestChannel *channel) {
        return channel->fd;
}

int guest_channel_expect(GuestChannel *channel, pid_t pid, Error *err) {
        GuestChannelConfig config = {0};
        int r = guest_channel_config_init(&config, pid, err);

        if (r < 0)
                return r;
        channel->userns_dev = config.userns_dev;
        channel->userns_ino = config.userns_ino;
        return 0;
}

int guest_channel_config_init(GuestChannelConfig *config, pid_t init_pid, Error *err) {
        char path[64];
        struct stat st;

        (void) snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) init_pid);
        if (stat(path, &st) < 0)
                return error_set_errno(err, errno, "cannot read the user namespace");
        config->userns_dev = st.st_dev;
        config->userns_ino = st.st_ino;
        return 0;
}

static void guest_channel_socket(int fd) {
        int size = GUEST_SOCKET_BYTES;

        // A request of GUEST_BODY_MAX must fit one packet. Without the capability the default has to do.
        if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
                (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

int guest_channel_new(const GuestChannelConfig *config, GuestChannel **ret, Error *err) {
        _cleanup_(guest_channel_freep) GuestChannel *channel = NULL;
        _cleanup_close_ int fd = config->fd;
        int on = 1, r;

        channel = calloc(1, sizeof(*channel));
        if (!channel)
                return error_set_errno(err, ENOMEM, "cannot talk to the instance's helper");
        channel->fd = TAKE_FD(fd);
        channel->box = config->box;
        channel->userns_dev = config->userns_dev;
        channel->userns_ino = config->userns_ino;
        channel->handlers = config->handlers;
        channel->userdata = config->userdata;
        guest_channel_socket(channel->fd);
        if (setsockopt(channel->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
                return error_set_errno(err, errno, "cannot ask for credentials on the helper's socket");
        r = sd_event_add_io(config->event, &channel->io, channel->fd, EPOLLIN, guest_channel_io, channel);
        if (r >= 0)
                r = sd_event_add_time_relative(config->event, &channel->pause, CLOCK_MONOTONIC, 0, 0, guest_channel_resume, channel);
        if (r >= 0)
                r = sd_event_source_set_enabled(channel->pause, SD_EVENT_OFF);
        if (r >= 0)
                r = guest_channel_send(channel, GUEST_HELLO, NULL, GUEST_VERSION);
        if (r < 0)
                return error_set_errno(err, r, "cannot talk to the instance's helper");
        *ret = TAKE_PTR(channel);
        return 0;
}

GuestChannel *guest_channel_free(GuestChannel *channel) {
        if (!channel)
                return NULL;
        sd_event_source_disable_unref(channel->io);
        sd_event_source_disable_unref(channel->pause);
        channel->fd = close_fd(channel->fd);
        free(channel->entries);
        free(channel->queue);
        free(channel);
        return NULL;
}

int guest_channel_exec(GuestChannel *channel, const GuestRequest *request, const int fds[3], Error *err) {
        _cleanup_free_ void *packet = NULL;
        size_t size;
        ssize_t n;
        int r;

        if (channel->gone)
                return error_set(err, ERR_UNAVAILABLE, "the helper in the instance is not running");
        r = guest_message_encode(request, &packet, &size, err);
        if (r < 0)
                return r;
        if (guest_channel_find(channel, request->id))
                return error_set(err, ERR_EXISTS, "a command %s runs already", request->id);
        if (channel->n_entries >= GUEST_COMMANDS_MAX)
                return error_set(err, ERR_BUSY, "the instance runs %d commands already", GUEST_COMMANDS_MAX);
        r = guest_channel_add(channel, request->id, request->verb == GUEST_LOGIN, false);
        if (r < 0)
                return error_set_errno(err, r, "cannot start a command");
        channel->entries[channel->n_entries - 1].held = request->held;
        channel->entries[channel->n_entries - 1].owner = request->owner;
        // Answers that wait go first: a request must not overtake them, and they wait because the helper is slow.
        n = channel->n_queue > 0 ? -EAGAIN : io_send_fds(channel->fd, packet, size, fds, 3, MSG_DONTWAIT);
        if (n < 0) {
                channel->n_entries--;
                if (n == -EAGAIN)
                        return error_set(err, ERR_BUSY, "the helper in the instance does not keep up");
                return error_set(err, ERR_UNAVAILABLE, "the helper in the instance does not answer");
        }
        return 0;
}

int guest_channel_adopt(GuestChannel *channel, const char *id, bool login) {
        if (!guest_id_valid(id) || guest_channel_find(channel, id))
                return -EINVAL;
        return guest_channel_add(channel, id, login, true);
}

int guest_channel_adopt_for(GuestChannel *channel, const char *id, const GuestOwner *owner) {
        int r = guest_channel_adopt(channel, id, false);

        if (r >= 0)
                channel->entries[channel->n_entries - 1].owner = owner;
        return r;
}

int guest_channel_signal(GuestChannel *channel, const char *id, int signal) {
        return guest_channel_send(channel, GUEST_SIGNAL, id, (uint32_t) signal);
}

void guest_channel_denied(GuestChannel *channel, const char *text) {
        GuestDenied message = {
                .header = {.magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = GUEST_DENIED, .size = sizeof(message)}};

        if (channel->gone || channel->n_queue > 0)
                return;
        (void) snprintf(message.text, sizeof(message.text), "%s", text);
        (void) send(channel->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void guest_channel_answer(GuestChannel *channel, const GuestReply *reply) {
        GuestAnswer message = {
                .header = {.magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = GUEST_ANSWER, .size = sizeof(message), .value = reply->state},
                .number = reply->number,
                .until = reply->until,
        };

        if (channel->gone || channel->n_queue > 0)
                return;
        if (reply->id)
                memcpy(message.header.id, reply->id, strnlen(reply->id, GUEST_ID_MAX - 1));
        (void) snprintf(message.text, sizeof(message.text), "%s", reply->text ?: "");
        (void) send(channel->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

CgroupBox *guest_channel_box(GuestChannel *channel) {
        return channel->box;
}

uint64_t guest_channel_ignored(const GuestChannel *channel) {
        return channel->ignored;
}
