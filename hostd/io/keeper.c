// SPDX-License-Identifier: GPL-2.0-or-later
// Keeper: see keeper.h.
#include "io/keeper.h"

#include <string.h>
#include <sys/socket.h>

#include "base/io.h"
#include "io/follower.h"

// ---- hostd's end ----

static void link_close(Keeper *keeper) {
        if (keeper->link.fd < 0)
                return;
        loop_unwatch(keeper->outputs.loop, &keeper->link);
        keeper->link.fd = close_fd(keeper->link.fd);
}

// A hostd that does not read is one that has to begin anew: it is not waited for.
static void tell(Keeper *keeper, IoMessage *message) {
        message->magic = IO_MAGIC;
        if (keeper->link.fd >= 0 && send(keeper->link.fd, message, sizeof(*message), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(*message))
                link_close(keeper);
}

static void tell_of(Keeper *keeper, IoType type, const Output *output) {
        IoMessage message = {.type = type};

        memcpy(message.id, output_id(output), strlen(output_id(output)));
        output_stat(output, &message);
        tell(keeper, &message);
}

static void output_ended(Output *output, void *userdata) {
        tell_of(userdata, IO_ENDED, output);
}

// ---- what it asks ----

typedef struct Asked {
        Keeper *keeper;
        const IoMessage *message;
        int fds[IO_FDS_MAX]; // closed afterwards, but for those that were taken
        size_t n_fds;
        IoMessage answer;
} Asked;

static int ask_new(Asked *asked) {
        const IoMessage *m = asked->message;
        OutputConfig config = {.id = m->id, .file = asked->fds[0], .streams = {asked->fds[1], asked->fds[2]}, .values = asked->n_fds > 3 ? asked->fds[3] : -EBADF, .size = m->value};
        Output *output = output_find(&asked->keeper->outputs, m->id);
        int r;

        if (output)
                return -EEXIST;
        if (asked->keeper->outputs.n >= IO_OUTPUTS_MAX)
                return -EUSERS;
        r = output_new(&asked->keeper->outputs, &config, &output);
        asked->fds[0] = config.file;
        asked->fds[1] = config.streams[RING_OUT];
        asked->fds[2] = config.streams[RING_ERR];
        if (r >= 0)
                output_stat(output, &asked->answer);
        return r;
}

static int ask_end(Asked *asked) {
        Output *output = output_find(&asked->keeper->outputs, asked->message->id);

        if (!output || !output_is_live(output))
                return -ENOENT;
        output_limit_to_present(output);
        return 0;
}

// Of a live one, or of the file that was sent along; output_unused() afterwards.
static int look_at(Asked *asked, int *file, Output **ret) {
        OutputConfig config = {.id = asked->message->id, .file = file ? *file : -EBADF, .streams = {-EBADF, -EBADF}, .values = -EBADF};
        Output *output = output_find(&asked->keeper->outputs, asked->message->id);
        int r = 0;

        if (!output) {
                if (!file)
                        return -ENOENT;
                r = output_new(&asked->keeper->outputs, &config, &output);
                *file = config.file;
        }
        if (r >= 0) {
                output_stat(output, &asked->answer);
                *ret = output;
        }
        return r;
}

static int ask_follow(Asked *asked) {
        FollowerConfig config = {.fd = asked->fds[0], .offset = asked->message->offset, .uid = asked->message->value, .wait = asked->message->flags & IO_FLAG_WAIT};
        int r = look_at(asked, asked->n_fds > 1 ? &asked->fds[1] : NULL, &config.output);

        if (r < 0)
                return r;
        r = follower_new(&config);
        if (r >= 0)
                (void) TAKE_FD(asked->fds[0]);
        output_unused(config.output);
        return r;
}

static int ask_stat(Asked *asked) {
        Output *output;
        int r = look_at(asked, asked->n_fds > 0 ? &asked->fds[0] : NULL, &output);

        if (r >= 0)
                output_unused(output);
        return r;
}

static void forget(Output *output) {
        while (output && *output_followers(output))
                follower_dismiss(*output_followers(output));
        (void) output_free(output);
}

static int ask_forget(Asked *asked) {
        forget(output_find(&asked->keeper->outputs, asked->message->id)); // what it does not have is forgotten
        return 0;
}

static int ask_quit(Asked *asked) {
        while (asked->keeper->outputs.first)
                forget(asked->keeper->outputs.first);
        asked->keeper->over = true;
        return 0;
}

static const struct {
        size_t fds_min, fds_max;
        int (*ask)(Asked *asked);
} asks[_IO_TYPE_MAX] = {
        [IO_NEW] = {3, 4, ask_new}, [IO_END] = {0, 0, ask_end}, [IO_FOLLOW] = {1, 2, ask_follow}, [IO_STAT] = {0, 1, ask_stat}, [IO_FORGET] = {0, 0, ask_forget}, [IO_QUIT] = {0, 0, ask_quit},
};

static bool id_valid(const char id[IO_ID_MAX]) {
        size_t n = strnlen(id, IO_ID_MAX);

        if (n == 0 || n == IO_ID_MAX)
                return false;
        for (size_t i = n; i < IO_ID_MAX; i++)
                if (id[i])
                        return false;
        return true;
}

static bool is_asked(const IoMessage *m, ssize_t size, size_t n_fds) {
        return size == sizeof(*m) && m->magic == IO_MAGIC && m->type < _IO_TYPE_MAX && asks[m->type].ask && n_fds >= asks[m->type].fds_min &&
               n_fds <= asks[m->type].fds_max && id_valid(m->id);
}

static void link_ready(Source *source, uint32_t events) {
        Keeper *keeper = source->owner;
        IoMessage message;
        Asked asked = {.keeper = keeper, .message = &message, .n_fds = IO_FDS_MAX, .answer = {.type = IO_ANSWER}};
        ssize_t n = io_recv_fds(source->fd, &message, sizeof(message), asked.fds, &asked.n_fds, MSG_DONTWAIT);

        if (n == -EAGAIN || n == -EINTR)
                return;
        if (n <= 0 || !is_asked(&message, n, asked.n_fds))
                link_close(keeper); // gone, or of another version
        else {
                asked.answer.cookie = message.cookie;
                memcpy(asked.answer.id, message.id, IO_ID_MAX);
                asked.answer.error = asks[message.type].ask(&asked);
                tell(keeper, &asked.answer);
        }
        for (size_t i = 0; n > 0 && i < asked.n_fds; i++)
                (void) close_fd(asked.fds[i]);
}

// ---- connecting ----

// Root, or whoever runs this (a test). The directory's mode says the same.
static bool peer_is_hostd(int fd) {
        struct ucred peer;
        socklen_t size = sizeof(peer);

        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid());
}

static void greet(Keeper *keeper) {
        IoMessage hello = {.type = IO_HELLO, .value = IO_VERSION}, ready = {.type = IO_READY};

        tell(keeper, &hello);
        for (Output *o = keeper->outputs.first; o; o = output_next(o))
                if (output_is_live(o))
                        tell_of(keeper, IO_LIVE, o);
        tell(keeper, &ready);
}

// The newest is hostd: an older one is dead, or will be.
static void listening_ready(Source *source, uint32_t events) {
        Keeper *keeper = source->owner;
        int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
                return;
        if (!peer_is_hostd(fd)) {
                (void) close_fd(fd);
                return;
        }
        link_close(keeper);
        keeper->link = (Source) {.fd = fd, .ready = link_ready, .owner = keeper};
        if (loop_watch(keeper->outputs.loop, &keeper->link, EPOLLIN) < 0)
                keeper->link.fd = close_fd(fd);
        else
                greet(keeper);
}

int keeper_init(Keeper *keeper, int listening) {
        keeper->outputs = (Outputs) {.loop = loop_open(), .ended = output_ended, .userdata = keeper};
        keeper->listening = (Source) {.fd = listening, .ready = listening_ready, .owner = keeper};
        keeper->link = (Source) {.fd = -EBADF};
        keeper->idle_since = clock_monotonic();
        return keeper->outputs.loop < 0 ? keeper->outputs.loop : loop_watch(keeper->outputs.loop, &keeper->listening, EPOLLIN);
}

void keeper_run(Keeper *keeper) {
        while (!keeper->over) {
                usec_t until = outputs_flush(&keeper->outputs);
                if (keeper->outputs.n > 0)
                        keeper->idle_since = USEC_INFINITY;
                else if (keeper->idle_since == USEC_INFINITY)
                        keeper->idle_since = clock_monotonic();
                if (keeper->idle_since != USEC_INFINITY)
                        until = MIN2(until, keeper->idle_since + keeper->idle_after);
                if (loop_turn(keeper->outputs.loop, until) == 0 && keeper->idle_since != USEC_INFINITY && clock_monotonic() >= keeper->idle_since + keeper->idle_after)
                        return;
        }
}
