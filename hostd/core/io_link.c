// SPDX-License-Identifier: GPL-2.0-or-later
// IoLink: see io_link.h. Who asks is queued until hostd-io is there, and asked once more of the next one if it ends before it answers: it may do so
// whenever it has nothing to do.
//
// hostd-io has read what a guest wrote. It may say what it was asked for, and that an output ended; anything else closes the connection.
#include "core/io_link.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/io.h"
#include "core/io_files.h"
#include "core/io_start.h"

#define SIZE_DEFAULT (UINT64_C(8) << 20)
#define SIZE_SANDBOX (UINT64_C(1) << 20) // there may be many at once
#define START_PAUSE (20 * USEC_PER_MSEC)
#define START_TIMEOUT (15 * USEC_PER_SEC)
#define ANSWER_TIMEOUT (15 * USEC_PER_SEC)
#define TRIES_MAX 2

typedef struct IoAsk {
        struct IoAsk *next;
        IoMessage message;
        char owner[IO_ID_MAX];
        int fds[4];
        size_t n_fds;
        unsigned tries;
        bool sent, makes_file, only_if_there;
        IoDone done;
        void *userdata;
} IoAsk;

struct IoLink {
        IoLink *next;
        Manager *manager;
        char instance[33];
        uint16_t slot;
        int fd;
        sd_event_source *io, *timer, *kick;
        bool greeted, ready;
        IoStart *start;
        usec_t since; // monotonic, of the first attempt
        unsigned early; // how often in a row it ended before it was ready
        IoAsk *asks;  // in their order
        char live[IO_OUTPUTS_MAX][IO_ID_MAX];
        size_t n_live;
        uint64_t cookie;
};

static void go(IoLink *link);
static void arm(IoLink *link, usec_t span);

static IoPlace place_of(const IoLink *link) {
        return (IoPlace) {.manager = link->manager, .instance = link->instance, .slot = link->slot};
}

// ---- who asks ----

static void ask_free(IoAsk *ask) {
        for (size_t i = 0; i < ELEMENTS(ask->fds); i++)
                (void) close_fd(ask->fds[i]);
        free(ask);
}

static void ask_end(IoLink *link, IoAsk *ask, int r, Error *err) {
        const IoPlace place = place_of(link);

        if (r < 0 && ask->message.type == IO_NEW && !ask->makes_file) // it was made
                io_files_remove(&place, ask->message.id);
        if (ask->done)
                ask->done(ask->userdata, r, err);
        ask_free(ask);
}

static void ask_fail(IoLink *link, IoAsk *ask, const char *why) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = error_set(&err, ERR_UNAVAILABLE, "hostd-io, which keeps the output of commands, %s", why);

        ask_end(link, ask, r, &err);
}

static void fail_all(IoLink *link, const char *why) {
        IoAsk *asks = TAKE_PTR(link->asks);

        while (asks) {
                IoAsk *next = asks->next;
                ask_fail(link, asks, why);
                asks = next;
        }
}

// ---- the connection ----

static bool is_known(const IoLink *link, const char *name) {
        for (size_t i = 0; i < link->n_live; i++)
                if (strcmp(link->live[i], name) == 0)
                        return true;
        return false;
}

// Also what is on its way there: its file is made, and its command about to begin.
static bool is_live(const char *name, void *userdata) {
        const IoLink *link = userdata;

        for (const IoAsk *ask = link->asks; ask; ask = ask->next)
                if (ask->message.type == IO_NEW && !ask->makes_file && strcmp(ask->message.id, name) == 0)
                        return true;
        return is_known(link, name);
}

static bool live_add(IoLink *link, const char *name) {
        if (link->n_live >= IO_OUTPUTS_MAX || is_known(link, name))
                return false;
        memcpy(link->live[link->n_live++], name, IO_ID_MAX);
        return true;
}

static bool live_drop(IoLink *link, const char *name) {
        for (size_t i = 0; i < link->n_live; i++)
                if (strcmp(link->live[i], name) == 0) {
                        memcpy(link->live[i], link->live[--link->n_live], IO_ID_MAX);
                        return true;
                }
        return false;
}

static void link_close(IoLink *link) {
        link->io = sd_event_source_disable_unref(link->io);
        link->timer = sd_event_source_disable_unref(link->timer);
        link->fd = close_fd(link->fd);
        link->greeted = link->ready = false;
        link->n_live = 0;
}

// Of its own accord or not, but before it had said all: there may be another one. Not again and again.
static void link_ended_early(IoLink *link) {
        if (link->early++ < TRIES_MAX)
                arm(link, START_PAUSE);
        else
                fail_all(link, "ended before it had begun");
}

static void link_lost(IoLink *link, bool ended) {
        IoAsk *asks, **last = &link->asks;
        bool was_ready = link->ready;

        link_close(link);
        if (!was_ready) {
                if (ended)
                        link_ended_early(link);
                else
                        fail_all(link, "is of another version"); // it would be so again
                return;
        }
        asks = TAKE_PTR(link->asks);
        for (IoAsk *ask = asks, *next; ask; ask = next) {
                next = ask->next;
                ask->next = NULL;
                if (ask->sent && ask->tries >= TRIES_MAX) {
                        ask_fail(link, ask, "died");
                        continue;
                }
                ask->sent = false;
                *last = ask;
                last = &ask->next;
        }
        link->since = clock_monotonic();
        if (link->asks)
                go(link);
}

static int timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        IoLink *link = userdata;

        if (link->fd >= 0) {
                link_close(link);
                fail_all(link, "does not answer");
        } else
                go(link);
        return 0;
}

static void arm(IoLink *link, usec_t span) {
        link->timer = sd_event_source_disable_unref(link->timer);
        if (span != USEC_INFINITY)
                (void) sd_event_add_time_relative(link->manager->event, &link->timer, CLOCK_MONOTONIC, span, 1, timed_out, link);
}

// ---- what it says ----

static bool answered(IoLink *link, const IoMessage *m) {
        IoAsk *ask = link->asks;
        _cleanup_error_ Error err = ERROR_NULL;

        if (!ask || !ask->sent || ask->message.cookie != m->cookie || m->error > 0)
                return false;
        link->asks = ask->next;
        arm(link, link->asks && link->asks->sent ? ANSWER_TIMEOUT : USEC_INFINITY);
        if (m->error >= 0 && ask->message.type == IO_NEW)
                (void) live_add(link, ask->message.id);
        if (m->error >= 0 && ask->message.type == IO_FORGET)
                (void) live_drop(link, ask->message.id);
        if (m->error == -EDQUOT && ask->message.type == IO_FOLLOW)
                (void) error_set(&err, ERR_BUSY, "this user reads the output of %d commands of %s already", IO_FOLLOWERS_USER_MAX, link->instance);
        else if (m->error < 0)
                (void) error_set_errno(&err, m->error, "hostd-io, which keeps the output of commands, cannot do it");
        ask_end(link, ask, m->error, m->error < 0 ? &err : NULL);
        return true;
}

static bool ended(IoLink *link, const IoMessage *m) {
        if (!live_drop(link, m->id))
                return false;
        if (m->redacted > 0)
                event_publish(link->manager->bus, "secret-redacted", link->instance,
                              json_pack("{s:s, s:I}", "id", m->id, "count", (json_int_t) MIN2(m->redacted, (uint64_t) INT64_MAX)));
        return true;
}

// One that ended before it was told of is not known here: it ended while its NEW was under way.
static bool understood(IoLink *link, const IoMessage *m) {
        if (!link->greeted) {
                link->greeted = m->type == IO_HELLO && m->value == IO_VERSION;
                return link->greeted;
        }
        if (!link->ready && m->type == IO_READY) {
                link->ready = true;
                link->early = 0;
                arm(link, USEC_INFINITY);
                return true;
        }
        if (m->id[IO_ID_MAX - 1])
                return false;
        if (m->type == IO_LIVE)
                return !link->ready && live_add(link, m->id);
        return link->ready && (m->type == IO_ANSWER ? answered(link, m) : m->type == IO_ENDED && ended(link, m));
}

static int channel_ready(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        IoLink *link = userdata;
        IoMessage message;
        ssize_t n = recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n != sizeof(message) || message.magic != IO_MAGIC || !understood(link, &message))
                link_lost(link, n == 0 || (n < 0 && errno == ECONNRESET));
        else if (link->ready)
                go(link);
        return 0;
}

// ---- asking it ----

// Its file is made when it is known what is written at the moment.
static int prepare(IoLink *link, IoAsk *ask, Error *err) {
        const IoPlace place = place_of(link);
        const IoFilesSpec spec = {.owner = ask->owner, .name = ask->message.id, .is_live = is_live, .userdata = link};
        int fd;

        if (!ask->makes_file)
                return 0;
        fd = io_files_make(&place, &spec, &ask->message.value, err);
        if (fd < 0)
                return fd;
        ask->fds[0] = fd;
        ask->makes_file = false;
        return 0;
}

// False: not now.
static bool send_one(IoLink *link, IoAsk *ask) {
        ask->message.cookie = ++link->cookie;
        if (io_send_fds(link->fd, &ask->message, sizeof(ask->message), ask->fds, ask->n_fds, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                return false;
        ask->sent = true;
        ask->tries++;
        if (!link->timer)
                arm(link, ANSWER_TIMEOUT);
        return true;
}

// What cannot be sent for now is, with the next answer; a broken connection is told from the loop.
static void send_all(IoLink *link) {
        for (IoAsk **at = &link->asks; *at;) {
                _cleanup_error_ Error err = ERROR_NULL;
                IoAsk *ask = *at;
                int r = ask->sent ? 0 : prepare(link, ask, &err);
                if (r < 0) {
                        *at = ask->next;
                        ask_end(link, ask, r, &err);
                        continue;
                }
                if (!ask->sent && !send_one(link, ask))
                        return;
                at = &ask->next;
        }
}

static bool all_only_if_there(const IoLink *link) {
        for (const IoAsk *ask = link->asks; ask; ask = ask->next)
                if (!ask->only_if_there)
                        return false;
        return true;
}

static void connect_it(IoLink *link) {
        _cleanup_error_ Error err = ERROR_NULL;
        int fd = io_start_connect(link->manager, link->slot, &err), r = 0;

        if (fd < 0 && fd != -ENOENT && fd != -ECONNREFUSED) {
                fail_all(link, error_message(&err, fd));
                return;
        }
        if (fd >= 0) {
                link->start = io_start_free(link->start);
                link->fd = fd;
                r = sd_event_add_io(link->manager->event, &link->io, fd, EPOLLIN, channel_ready, link);
                if (r < 0) {
                        link_close(link);
                        fail_all(link, strerror(-r));
                } else
                        arm(link, ANSWER_TIMEOUT);
                return;
        }
        if (all_only_if_there(link)) {
                fail_all(link, "does not run");
                return;
        }
        if (!link->start)
                r = io_start_new(link->manager, link->slot, &link->start, &err);
        if (r < 0 || clock_monotonic() - link->since > START_TIMEOUT) {
                link->start = io_start_free(link->start);
                fail_all(link, r < 0 ? error_message(&err, r) : "did not start");
        } else
                arm(link, START_PAUSE);
}

static void go(IoLink *link) {
        if (link->ready)
                send_all(link);
        else if (link->fd < 0)
                connect_it(link);
}

static int kicked(sd_event_source *source, uint64_t usec, void *userdata) {
        IoLink *link = userdata;

        link->kick = sd_event_source_disable_unref(link->kick);
        go(link);
        return 0;
}

// From the loop, so that no `done` is called before who asked has its answer.
static void go_soon(IoLink *link) {
        if (link->fd < 0 && !link->start)
                link->since = clock_monotonic();
        if (!link->kick)
                (void) sd_event_add_time_relative(link->manager->event, &link->kick, CLOCK_MONOTONIC, 0, 1, kicked, link);
}

static IoLink *link_find(Manager *manager, uint16_t slot) {
        IoLink *link = manager->io;

        while (link && link->slot != slot)
                link = link->next;
        return link;
}

static IoLink *link_of(const IoPlace *place) {
        IoLink *link = link_find(place->manager, place->slot);

        if (link)
                return link;
        link = calloc(1, sizeof(IoLink));
        if (!link)
                return NULL;
        link->manager = place->manager;
        link->slot = place->slot;
        link->fd = -EBADF;
        (void) snprintf(link->instance, sizeof(link->instance), "%s", place->instance);
        link->next = place->manager->io;
        place->manager->io = link;
        return link;
}

static IoAsk *ask_new(IoType type, const char *owner, const char *id, IoDone done, void *userdata) {
        IoAsk *ask = calloc(1, sizeof(IoAsk));

        if (!ask)
                return NULL;
        *ask = (IoAsk) {.message = {.magic = IO_MAGIC, .type = type}, .fds = {-EBADF, -EBADF, -EBADF, -EBADF}, .done = done, .userdata = userdata};
        (void) snprintf(ask->owner, sizeof(ask->owner), "%s", owner);
        if (io_files_name(owner, id, ask->message.id) >= 0)
                return ask;
        ask_free(ask);
        return NULL;
}

static int ask_fd(IoAsk *ask, int fd) {
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        if (copy < 0)
                return -errno;
        ask->fds[ask->n_fds++] = copy;
        return 0;
}

static int enqueue(const IoPlace *place, IoAsk *ask, int r, Error *err) {
        IoLink *link = ask && r >= 0 ? link_of(place) : NULL;
        IoAsk **last;

        if (!link) {
                if (ask)
                        ask_free(ask);
                return error_set_errno(err, r < 0 ? r : -ENOMEM, "cannot ask hostd-io");
        }
        for (last = &link->asks; *last; last = &(*last)->next)
                continue;
        *last = ask;
        go_soon(link);
        return 0;
}

int io_link_keep(const IoPlace *place, const IoKeep *keep, IoDone done, void *userdata, Error *err) {
        IoAsk *ask = ask_new(IO_NEW, keep->owner, keep->id, done, userdata);
        int r = ask ? 0 : -EINVAL;

        if (ask) {
                ask->message.value = keep->size ?: (*keep->owner ? SIZE_SANDBOX : SIZE_DEFAULT);
                ask->makes_file = true;
                ask->n_fds = 1; // the file
                r = ask_fd(ask, keep->out);
                if (r >= 0)
                        r = ask_fd(ask, keep->errors);
                if (r >= 0 && keep->values >= 0)
                        r = ask_fd(ask, keep->values);
        }
        return enqueue(place, ask, r, err);
}

// With its file, for where it is not written any more.
static int ask_file(const IoPlace *place, IoAsk *ask, Error *err) {
        int fd = io_files_open(place, ask->message.id);

        if (fd == -ENOENT)
                return error_set(err, ERR_NOT_FOUND, "no output of such a command is kept");
        if (fd < 0)
                return error_set_errno(err, fd, "cannot open the output");
        ask->fds[ask->n_fds++] = fd;
        return 0;
}

int io_link_follow(const IoPlace *place, const IoFollow *follow, IoDone done, void *userdata, Error *err) {
        IoAsk *ask = ask_new(IO_FOLLOW, follow->owner, follow->id, done, userdata);
        int r = ask ? ask_fd(ask, follow->fd) : -EINVAL;

        if (r >= 0)
                r = ask_file(place, ask, err);
        if (ask) {
                ask->message.offset = follow->offset;
                ask->message.value = follow->uid;
                ask->message.flags = follow->wait ? IO_FLAG_WAIT : 0;
        }
        return enqueue(place, ask, r, err);
}

// Nobody waits for these, and where no hostd-io is there is nothing to be done.
static void tell(const IoPlace *place, IoType type, const char *owner, const char *id) {
        IoAsk *ask = ask_new(type, owner, id, NULL, NULL);

        if (ask)
                ask->only_if_there = true;
        (void) enqueue(place, ask, 0, NULL);
}

void io_link_end(const IoPlace *place, const char *owner, const char *id) {
        tell(place, IO_END, owner, id);
}

void io_link_forget(const IoPlace *place, const char *owner, const char *id) {
        char name[IO_ID_MAX];

        tell(place, IO_FORGET, owner, id);
        if (io_files_name(owner, id, name) >= 0)
                io_files_remove(place, name);
}

int io_link_forget_owner(const IoPlace *place, const char *owner) {
        _cleanup_strv_ char **ids = NULL;
        int n = io_files_list(place, owner, &ids);

        for (char **id = ids; id && *id; id++)
                io_link_forget(place, owner, *id);
        return n;
}

static void link_free(IoLink *link) {
        link_close(link);
        link->kick = sd_event_source_disable_unref(link->kick);
        fail_all(link, "is not asked any more");
        link->start = io_start_free(link->start);
        free(link);
}

// Nobody writes any more: the instance is gone.
void io_link_remove(const IoPlace *place) {
        for (IoLink **at = &place->manager->io; *at; at = &(*at)->next)
                if ((*at)->slot == place->slot) {
                        IoLink *link = *at;
                        *at = link->next;
                        if (link->ready) // else it does not run, or ends when it has had nothing to do
                                (void) send(link->fd, &(IoMessage) {.magic = IO_MAGIC, .type = IO_QUIT, .id = "-"}, sizeof(IoMessage), MSG_DONTWAIT | MSG_NOSIGNAL);
                        link_free(link);
                        break;
                }
        io_files_remove_all(place);
}

void io_links_free(Manager *manager) {
        while (manager->io) {
                IoLink *link = manager->io;
                manager->io = link->next;
                link_free(link);
        }
}
