// SPDX-License-Identifier: GPL-2.0-or-later
// Link: see link.h.
#include "border/link.h"

#include <string.h>
#include <sys/socket.h>

#include "base/io.h"

#define READ_AT_ONCE 65536 // then the loop has its turn
#define FRAMES_AT_ONCE 64   // the same: a frame may cost far more than its bytes
#define FDS_MAX 4           // a helper trusts hostd, but has not room for everything

#define FRAME_WITH_FD_MAX 256

struct ControlLink {
        ControlLinkConfig config;
        sd_event_source *io, *later, *next;
        ControlReader reader;
        unsigned char *queue; // bytes that wait: queue[sent .. queued)
        size_t sent, queued, allocated;
        int fds[FDS_MAX]; // that came and belong to frames to come, the oldest first
        size_t n_fds;
        pid_t peer; // 0: not known
        int broken; // why nothing goes any more, 0: it does
        bool more;                // frames that wait for the next turn of the loop: nothing is read meanwhile
        bool dispatching, freed; // freed by the handler that is being called: the memory goes when it is back
};

static int link_gone(sd_event_source *source, void *userdata) {
        ControlLink *link = userdata;

        link->config.gone(link, link->broken, link->config.userdata);
        return 0;
}

// The owner hears of it from the loop and never from within a call of its own.
static void link_break(ControlLink *link, int r) {
        if (link->broken)
                return;
        link->broken = r;
        link->io = sd_event_source_disable_unref(link->io);
        link->next = sd_event_source_disable_unref(link->next);
        if (sd_event_add_defer(link->config.event, &link->later, link_gone, link) < 0)
                link->later = NULL; // out of memory at the wrong time: the owner learns it when it sends
}

static int link_watch(ControlLink *link) {
        uint32_t events = (link->more ? 0 : EPOLLIN) | (link->queued > link->sent ? EPOLLOUT : 0);

        return sd_event_source_set_io_events(link->io, events);
}

static int link_flush(ControlLink *link) {
        while (link->sent < link->queued) {
                ssize_t n = send(link->config.fd, link->queue + link->sent, link->queued - link->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno != EAGAIN)
                        return -errno;
                if (n < 0)
                        break;
                link->sent += (size_t) n;
        }
        if (link->sent == link->queued) {
                link->sent = link->queued = link->allocated = 0;
                free(TAKE_PTR(link->queue));
        }
        return link_watch(link);
}

static int link_queue(ControlLink *link, const void *data, size_t size) {
        size_t waiting = link->queued - link->sent;

        if (waiting + size > CONTROL_QUEUE_MAX)
                return -ENOBUFS;
        if (link->queued + size > link->allocated) {
                size_t room = MAX2(waiting + size, 4096);
                unsigned char *p = malloc(room);
                if (!p)
                        return -ENOMEM;
                if (waiting > 0)
                        memcpy(p, link->queue + link->sent, waiting);
                free(link->queue);
                link->queue = p;
                link->allocated = room;
                link->sent = 0;
                link->queued = waiting;
        }
        memcpy(link->queue + link->queued, data, size);
        link->queued += size;
        return 0;
}

int control_link_send(ControlLink *link, BorderType type, uint64_t cookie, const void *payload, size_t length) {
        ControlHeader header = {.type = (uint32_t) type, .length = (uint32_t) length, .cookie = cookie};
        int r;

        if (link->broken)
                return -ENOTCONN;
        if (length > CONTROL_TEXT_MAX || !control_header_valid(link->config.side == CONTROL_HOSTD ? CONTROL_HELPER : CONTROL_HOSTD, &header))
                return -EMSGSIZE;
        r = link_queue(link, &header, sizeof(header));
        if (r >= 0)
                r = link_queue(link, payload, length);
        if (r >= 0)
                r = link_flush(link);
        if (r < 0)
                link_break(link, r); // half a frame may be on its way
        return r < 0 ? r : 0;
}

int control_link_send_fd(ControlLink *link, BorderType type, uint64_t cookie, const void *payload, size_t length, int fd) {
        ControlHeader header = {.type = (uint32_t) type, .length = (uint32_t) length, .cookie = cookie};
        unsigned char frame[sizeof(header) + FRAME_WITH_FD_MAX];
        ssize_t n;

        if (link->broken)
                return -ENOTCONN;
        if (link->config.side != CONTROL_HOSTD || length > FRAME_WITH_FD_MAX || !control_header_valid(CONTROL_HELPER, &header))
                return -EMSGSIZE;
        // The kernel hands it over with the byte that it was sent with, so it cannot wait in the queue.
        if (link->queued > link->sent)
                return -EAGAIN;
        memcpy(frame, &header, sizeof(header));
        memcpy(frame + sizeof(header), payload, length);
        n = io_send_fds(link->config.fd, frame, sizeof(header) + length, &fd, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
                return (int) n;
        if ((size_t) n < sizeof(header) + length) { // never of so few bytes
                link_break(link, -EIO);
                return -EIO;
        }
        return 0;
}

int control_link_take_fd(ControlLink *link) {
        int fd;

        if (link->n_fds == 0)
                return -ENOENT;
        fd = link->fds[0];
        link->n_fds--;
        memmove(link->fds, link->fds + 1, link->n_fds * sizeof(int));
        return fd;
}

// hostd's end gives the kernel no room for descriptors, only for who sent it: what a helper sends is closed before anybody has it.
static ssize_t link_receive_hostd(ControlLink *link, void *place, size_t want) {
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(struct ucred))];
        } control;
        struct iovec part = {place, want};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(link->config.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
        struct ucred from;

        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len >= CMSG_LEN(sizeof(from))) {
                memcpy(&from, CMSG_DATA(c), sizeof(from));
                link->peer = from.pid;
        }
        return n < 0 ? -errno : n;
}

static ssize_t link_receive(ControlLink *link, void *place, size_t want) {
        size_t n_fds = FDS_MAX - link->n_fds;
        ssize_t n;

        if (link->config.side == CONTROL_HOSTD)
                return link_receive_hostd(link, place, want);
        if (n_fds == 0) {
                n = recv(link->config.fd, place, want, MSG_DONTWAIT);
                return n < 0 ? -errno : n;
        }
        n = io_recv_fds(link->config.fd, place, want, link->fds + link->n_fds, &n_fds, MSG_DONTWAIT);
        if (n >= 0)
                link->n_fds += n_fds;
        return n;
}

pid_t control_link_peer(const ControlLink *link) {
        return link->peer;
}

static int link_read(ControlLink *link) {
        size_t want = MIN2(MAX2(control_reader_missing(&link->reader), 4096), READ_AT_ONCE);
        void *place;
        ssize_t n;
        int r = control_reader_space(&link->reader, want, &place);

        if (r < 0)
                return r;
        n = link_receive(link, place, want);
        if (n < 0)
                return n == -EAGAIN || n == -EINTR ? 0 : (int) n;
        if (n == 0)
                return -ECONNRESET;
        control_reader_filled(&link->reader, (size_t) n);
        return 0;
}

// The descriptor of a query that was not taken must not be taken for that of the next one.
static void link_frame(ControlLink *link, const ControlFrame *frame) {
        size_t before = link->n_fds;
        bool has_fd = frame->header.type == BORDER_QUERY;

        link->config.frame(link, frame, link->config.userdata);
        if (!link->freed && has_fd && before > 0 && link->n_fds == before)
                (void) close_fd(control_link_take_fd(link));
}

static int link_dispatch_frames(ControlLink *link) {
        ControlFrame frame;
        int r = 0;

        link->dispatching = true;
        for (unsigned n = 0; n < FRAMES_AT_ONCE && !link->freed && !link->broken && (r = control_reader_next(&link->reader, &frame)) > 0; n++)
                link_frame(link, &frame);
        link->dispatching = false;
        if (link->freed) {
                free(link);
                return 0;
        }
        if (link->broken)
                return 0;
        link->more = r > 0;
        if (r >= 0)
                r = sd_event_source_set_enabled(link->next, link->more ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
        if (r >= 0)
                r = link_watch(link);
        if (r < 0)
                link_break(link, r);
        return 0;
}

static int link_next(sd_event_source *source, void *userdata) {
        return link_dispatch_frames(userdata);
}

static int link_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        ControlLink *link = userdata;
        int r = 0;

        if (events & EPOLLOUT)
                r = link_flush(link);
        if (r >= 0 && !link->more && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                r = link_read(link);
        if (r < 0) {
                link_break(link, r);
                return 0;
        }
        return link->more ? 0 : link_dispatch_frames(link);
}

int control_link_new(const ControlLinkConfig *config, ControlLink **ret) {
        _cleanup_(control_link_freep) ControlLink *link = calloc(1, sizeof(ControlLink));
        int r;

        if (!link) {
                (void) close_fd(config->fd);
                return -ENOMEM;
        }
        link->config = *config;
        link->reader = CONTROL_READER_INIT(config->side);
        r = io_set_nonblock(config->fd, true);
        if (r >= 0)
                r = sd_event_add_io(config->event, &link->io, config->fd, EPOLLIN, link_io, link);
        if (r >= 0)
                r = sd_event_add_defer(config->event, &link->next, link_next, link);
        if (r >= 0)
                r = sd_event_source_set_enabled(link->next, SD_EVENT_OFF);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(link);
        return 0;
}

ControlLink *control_link_free(ControlLink *link) {
        if (!link)
                return NULL;
        link->freed = true;
        sd_event_source_disable_unref(link->io);
        sd_event_source_disable_unref(link->later);
        sd_event_source_disable_unref(link->next);
        (void) close_fd(link->config.fd);
        while (link->n_fds > 0)
                (void) close_fd(control_link_take_fd(link));
        control_reader_done(&link->reader);
        free(link->queue);
        if (!link->dispatching)
                free(link);
        return NULL;
}
