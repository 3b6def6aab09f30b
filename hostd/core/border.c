// SPDX-License-Identifier: GPL-2.0-or-later
// Border: see border.h.
#include "core/border.h"

#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/strv.h"
#include "border/link.h"
#include "network/network_sandbox.h"

#define RETRY_FIRST (100 * USEC_PER_MSEC)
#define RETRY_LAST (30 * USEC_PER_SEC)
#define RETRY_FORGET (60 * USEC_PER_SEC) // so long up, and the delays begin anew
#define RETRY_INSTALLED (30 * USEC_PER_SEC)
#define HELLO_TIMEOUT (10 * USEC_PER_SEC)
#define REFUSED_AGAIN (5 * USEC_PER_SEC)

#define INSERTS_PER_SEC 2000
#define INSERTS_SHARE 50 // of a slot by itself: what the others take from the 2000 is no loss of it
#define EVENTS_PER_SEC 100
#define QUERIES_MAX 16

// Messages of a kind: twice a second's worth at once, and then as many as come back in time.
typedef struct Bucket {
        uint64_t per_sec, left;
        usec_t filled;
} Bucket;

typedef struct BorderHelper {
        Border *border;
        BorderPart part;
        BorderState state;
        ControlLink *link;
        pid_t pid; // our child, or 0
        int pidfd;
        sd_event_source *exit, *retry, *hello;
        usec_t delay, since;
        uint64_t applied; // generation
        uint64_t told;    // views that were sent and not answered yet
        uint64_t stale;   // of these, the first that prove nothing: something before or among them was refused
        bool refused;     // until all is sent again, nothing does
        Bucket inserts, events;
        uint64_t dropped;
        bool unsure; // down for hostd, which ended the connection: it may live on with the views it had
        char reason[256];
} BorderHelper;

typedef struct BorderAsked {
        uint64_t cookie; // 0: a free place
        BorderAnswered done;
        void *userdata;
} BorderAsked;

typedef struct BorderWaiter {
        struct BorderWaiter *next;
        Border *border;
        uint64_t generation;
        BorderDone done;
        void *userdata;
        sd_event_source *timer;
        bool timed_out;
} BorderWaiter;

struct Border {
        BorderConfig config;
        char *run, *programs, *data;
        BorderHelper helpers[_BORDER_PART_MAX];
        BorderWaiter *waiters;
        BorderAsked asked[QUERIES_MAX];
        Bucket shares[NETWORK_PROFILE_LAST + 1]; // of inserts, by what has a list of rules
        uint64_t cookie; // of the last query
        sd_event_source *settle; // looks at the waiters, from the loop
        bool started;
};

static void helper_try(BorderHelper *helper);

static bool bucket_take(Bucket *bucket) {
        usec_t now = clock_monotonic();
        uint64_t more = (now - bucket->filled) * bucket->per_sec / USEC_PER_SEC;

        if (bucket->filled == 0 || more >= 2 * bucket->per_sec) {
                bucket->left = 2 * bucket->per_sec;
                bucket->filled = now;
        } else if (more > 0) {
                bucket->left = MIN2(bucket->left + more, 2 * bucket->per_sec);
                bucket->filled += more * USEC_PER_SEC / bucket->per_sec;
        }
        if (bucket->left == 0)
                return false;
        bucket->left--;
        return true;
}

// ---- waiting -----------------------------------------------------------------------------------------------------------------

// Whether traffic might pass it under an older view.
static bool helper_is_late(const BorderHelper *helper, uint64_t generation) {
        bool there = helper->state == BORDER_CALLING || helper->state == BORDER_UP || (helper->state == BORDER_DOWN && helper->unsure);

        return border_part_has_views(helper->part) && there && helper->applied < generation;
}

static BorderPart border_late(const Border *border, uint64_t generation) {
        for (BorderPart part = 0; part < _BORDER_PART_MAX; part++)
                if (helper_is_late(border->helpers + part, generation))
                        return part;
        return _BORDER_PART_INVALID;
}

static BorderWaiter *waiter_free(BorderWaiter *waiter) {
        sd_event_source_disable_unref(waiter->timer);
        free(waiter);
        return NULL;
}

// `done` may wait again: each round takes one off the list and begins anew.
static int border_settle(sd_event_source *source, void *userdata) {
        Border *border = userdata;
        BorderWaiter **place = &border->waiters;

        while (*place) {
                BorderWaiter *waiter = *place;
                BorderPart late = border_late(border, waiter->generation);
                if (late >= 0 && !waiter->timed_out) {
                        place = &waiter->next;
                        continue;
                }
                *place = waiter->next;
                waiter->done(waiter->userdata, late);
                (void) waiter_free(waiter);
                place = &border->waiters;
        }
        return 0;
}

static void border_look(Border *border) {
        if (border->settle)
                (void) sd_event_source_set_enabled(border->settle, SD_EVENT_ONESHOT);
}

static int waiter_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        BorderWaiter *waiter = userdata;

        waiter->timed_out = true;
        border_look(waiter->border);
        return 0;
}

int border_wait(Border *border, uint64_t generation, usec_t timeout, BorderDone done, void *userdata) {
        BorderWaiter *waiter = calloc(1, sizeof(BorderWaiter)), **end = &border->waiters;
        int r;

        if (!waiter)
                return -ENOMEM;
        *waiter = (BorderWaiter) {.border = border, .generation = generation, .done = done, .userdata = userdata};
        r = sd_event_add_time_relative(border->config.event, &waiter->timer, CLOCK_MONOTONIC, timeout, 1, waiter_timer, waiter);
        if (r < 0) {
                free(waiter);
                return r;
        }
        while (*end)
                end = &(*end)->next;
        *end = waiter;
        border_look(border);
        return 0;
}

// ---- queries -----------------------------------------------------------------------------------------------------------------

static void asked_end(BorderAsked *asked, int r) {
        BorderAsked a = *asked;

        *asked = (BorderAsked) {0}; // `done` may ask again
        a.done(a.userdata, r);
}

// 0: all of them. How many there were.
static unsigned border_answered(Border *border, uint64_t cookie, int r) {
        unsigned n = 0;

        for (size_t i = 0; i < QUERIES_MAX; i++)
                if (border->asked[i].cookie && (cookie == 0 || border->asked[i].cookie == cookie)) {
                        n++;
                        asked_end(border->asked + i, r);
                }
        return n;
}

int border_query(Border *border, const BorderQuery *query, int fd, BorderAnswered done, void *userdata) {
        BorderHelper *helper = border->helpers + BORDER_PART_FLOW;
        int r;

        if (helper->state != BORDER_UP)
                return -ENOTCONN;
        for (size_t i = 0; i < QUERIES_MAX; i++) {
                if (border->asked[i].cookie)
                        continue;
                r = control_link_send_fd(helper->link, BORDER_QUERY, ++border->cookie, query, sizeof(*query), fd);
                if (r < 0)
                        return r == -EAGAIN ? -EBUSY : r;
                border->asked[i] = (BorderAsked) {border->cookie, done, userdata};
                return 0;
        }
        return -EBUSY;
}

// ---- one helper --------------------------------------------------------------------------------------------------------------

static void helper_set(BorderHelper *helper, BorderState state, const char *format, ...) _printf_(3, 4);
static void helper_set(BorderHelper *helper, BorderState state, const char *format, ...) {
        Border *border = helper->border;
        va_list ap;

        helper->state = state;
        va_start(ap, format);
        (void) vsnprintf(helper->reason, sizeof(helper->reason), format, ap);
        va_end(ap);
        border->config.handlers->changed(border->config.userdata, helper->part);
        border_look(border);
}

static int helper_retry(sd_event_source *source, uint64_t usec, void *userdata) {
        helper_try(userdata);
        return 0;
}

static void helper_later(BorderHelper *helper, usec_t after) {
        helper->retry = sd_event_source_disable_unref(helper->retry);
        (void) sd_event_add_time_relative(helper->border->config.event, &helper->retry, CLOCK_MONOTONIC, after, 0, helper_retry, helper);
}

static void helper_unlink(BorderHelper *helper) {
        helper->hello = sd_event_source_disable_unref(helper->hello);
        helper->link = control_link_free(helper->link);
        helper->applied = helper->told = helper->stale = 0;
        helper->refused = false;
}

static void helper_lost(BorderHelper *helper, const char *why) {
        usec_t now = clock_monotonic();

        if (helper->state == BORDER_UP && now - helper->since >= RETRY_FORGET)
                helper->delay = 0;
        helper->unsure = helper->link; // who knows better says so
        helper->delay = helper->delay ? MIN2(helper->delay * 2, RETRY_LAST) : RETRY_FIRST;
        helper_unlink(helper);
        if (helper->part == BORDER_PART_FLOW)
                (void) border_answered(helper->border, 0, -ECONNRESET);
        helper_later(helper, helper->delay);
        helper_set(helper, BORDER_DOWN, "%s", why);
}

// The generation is that of the last part: what answers one in front of it proves no more than what was in force before.
static void helper_send(BorderHelper *helper, char *const *views, uint64_t generation) {
        int r = 0;

        for (; r >= 0 && *views; views++) {
                helper->told++;
                r = control_link_send(helper->link, BORDER_VIEWS, views[1] ? 0 : generation, *views, strlen(*views));
        }
        if (r == -EMSGSIZE) // any other failure breaks the link, which is told from the loop
                helper_lost(helper, "its views are too large");
}

static void helper_send_all(BorderHelper *helper) {
        const BorderConfig *config = &helper->border->config;
        _cleanup_strv_ char **views = NULL;
        uint64_t generation;

        if (!border_part_has_views(helper->part))
                return;
        if (config->handlers->views(config->userdata, &views, &generation) < 0)
                helper_lost(helper, "its views cannot be made");
        else {
                helper->stale = helper->told;
                helper->refused = false;
                helper_send(helper, views, generation);
        }
}

static void helper_hello(BorderHelper *helper, const ControlFrame *frame) {
        BorderHello hello;

        memcpy(&hello, frame->payload, sizeof(hello));
        if (helper->state != BORDER_CALLING || hello.version != BORDER_PROTOCOL) {
                helper_lost(helper, "it is of another version: restart it");
                return;
        }
        helper->hello = sd_event_source_disable_unref(helper->hello);
        helper->since = clock_monotonic();
        helper_set(helper, BORDER_UP, "%s", "");
        helper_send_all(helper);
}

static int helper_again(sd_event_source *source, uint64_t usec, void *userdata) {
        BorderHelper *helper = userdata;

        helper->retry = sd_event_source_disable_unref(helper->retry);
        if (helper->state == BORDER_UP)
                helper_send_all(helper);
        return 0;
}

// An answer more than there were views is a lie: what hostd does about one (a warning, the store, where traffic is led to) costs far more
// than saying it, and so only hostd decides how often. Nor does it do so for what it knows.
static void helper_applied(BorderHelper *helper, const ControlFrame *frame) {
        char reason[sizeof(helper->reason)] = "";
        BorderResult result;
        bool more = false, stale;

        memcpy(&result, frame->payload, sizeof(result));
        if (helper->told == 0) {
                helper_lost(helper, "it said more than it was asked for");
                return;
        }
        helper->told--;
        stale = helper->stale > 0;
        helper->stale -= stale;
        if (result.error < 0 && !stale)
                helper->refused = true;
        if (result.error < 0) { // what it has, it keeps; all of it again, a little later
                helper->retry = sd_event_source_disable_unref(helper->retry);
                (void) sd_event_add_time_relative(helper->border->config.event, &helper->retry, CLOCK_MONOTONIC, REFUSED_AGAIN, 0, helper_again, helper);
                (void) snprintf(reason, sizeof(reason), "it could not apply the policies: %s", strerror(-result.error));
        } else if (helper->refused || stale) {
                return;
        } else if (frame->header.cookie > helper->applied) {
                helper->applied = frame->header.cookie;
                more = true;
        }
        if (more || strcmp(reason, helper->reason) != 0)
                helper_set(helper, BORDER_UP, "%s", reason);
}

static void helper_answered(BorderHelper *helper, const ControlFrame *frame) {
        BorderResult result;

        memcpy(&result, frame->payload, sizeof(result));
        if (frame->header.cookie == 0 || border_answered(helper->border, frame->header.cookie, result.error) == 0)
                helper_lost(helper, "it said more than it was asked for");
}

// The rate is there to keep hostd from being busy with nothing else, not to let one instance silence the names of all.
static bool border_share(Border *border, uint16_t slot) {
        Bucket *share = slot < ELEMENTS(border->shares) ? border->shares + slot : NULL;

        if (!share)
                return false;
        share->per_sec = INSERTS_SHARE;
        return bucket_take(share);
}

static void helper_insert(BorderHelper *helper, const ControlFrame *frame) {
        const BorderConfig *config = &helper->border->config;
        BorderResult result = {.error = -EBUSY};
        BorderInsert insert;

        memcpy(&insert, frame->payload, sizeof(insert));
        if (border_share(helper->border, insert.slot) || bucket_take(&helper->inserts))
                result.error = MIN2(config->handlers->insert(config->userdata, &insert), 0);
        else
                helper->dropped++;
        (void) control_link_send(helper->link, BORDER_ACK, frame->header.cookie, &result, sizeof(result));
}

static void helper_event(BorderHelper *helper, const ControlFrame *frame) {
        const BorderConfig *config = &helper->border->config;
        FlowRecord record;

        if (!bucket_take(&helper->events)) {
                helper->dropped++;
                return;
        }
        memcpy(&record, frame->payload, sizeof(record));
        config->handlers->event(config->userdata, &record);
}

static void helper_frame(ControlLink *link, const ControlFrame *frame, void *userdata) {
        BorderHelper *helper = userdata;

        if (!border_row_allows(border_row(helper->part), frame->header.type) || (frame->header.type != BORDER_HELLO && helper->state != BORDER_UP))
                helper_lost(helper, "it said what it may not say");
        else if (frame->header.type == BORDER_HELLO)
                helper_hello(helper, frame);
        else if (frame->header.type == BORDER_APPLIED)
                helper_applied(helper, frame);
        else if (frame->header.type == BORDER_ANSWERED)
                helper_answered(helper, frame);
        else if (frame->header.type == BORDER_INSERT)
                helper_insert(helper, frame);
        else
                helper_event(helper, frame);
}

static void helper_gone(ControlLink *link, int r, void *userdata) {
        BorderHelper *helper = userdata;

        helper_lost(helper, r == -EPROTO ? "it said what it may not say" : r == -ENOBUFS ? "it does not read what it is told" : "it is gone");
        helper->unsure = r == -EPROTO || r == -ENOBUFS;
        border_look(helper->border);
}

static int helper_silent(sd_event_source *source, uint64_t usec, void *userdata) {
        helper_lost(userdata, "it does not answer");
        return 0;
}

static int helper_exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        BorderHelper *helper = userdata;

        helper->exit = sd_event_source_disable_unref(helper->exit);
        helper->pidfd = close_fd(helper->pidfd);
        (void) waitpid(helper->pid, NULL, WNOHANG);
        helper->pid = 0;
        if (helper->state == BORDER_CALLING || helper->state == BORDER_UP)
                helper_lost(helper, "it ended");
        helper->unsure = false;
        border_look(helper->border);
        return 0;
}

static int helper_spawn(BorderHelper *helper, Error *err) {
        const BorderConfig *config = &helper->border->config;
        int r = border_spawn(config, helper->part, &helper->pid, &helper->pidfd, err);

        if (r >= 0 && (r = sd_event_add_io(config->event, &helper->exit, helper->pidfd, EPOLLIN, helper_exited, helper)) < 0)
                (void) error_set_errno(err, r, "cannot watch it");
        return r;
}

static int helper_link(BorderHelper *helper, int fd) {
        const BorderConfig *config = &helper->border->config;
        ControlLinkConfig link = {.event = config->event, .fd = fd, .side = CONTROL_HOSTD, .frame = helper_frame, .gone = helper_gone, .userdata = helper};
        int r = control_link_new(&link, &helper->link);

        if (r >= 0)
                r = sd_event_add_time_relative(config->event, &helper->hello, CLOCK_MONOTONIC, HELLO_TIMEOUT, 0, helper_silent, helper);
        return r;
}

// One that listens is taken as it is. A child of ours that lives and does not listen is not joined by a second one.
static int helper_reach(BorderHelper *helper, Error *err) {
        const BorderConfig *config = &helper->border->config;
        int fd = border_connect(config, helper->part), r;

        if ((fd == -ECONNREFUSED || fd == -ENOENT) && !config->systemd && helper->pid == 0) {
                r = helper_spawn(helper, err);
                if (r < 0)
                        return r;
                fd = border_connect(config, helper->part);
        }
        if (fd < 0)
                return error_set_errno(err, fd, "nobody answers at its socket");
        r = helper_link(helper, fd);
        return r < 0 ? error_set_errno(err, r, "cannot watch its connection") : 0;
}

static void helper_try(BorderHelper *helper) {
        const BorderConfig *config = &helper->border->config;
        _cleanup_error_ Error err = ERROR_NULL;

        helper->retry = sd_event_source_disable_unref(helper->retry);
        if (!border_is_installed(config, helper->part)) {
                helper_later(helper, RETRY_INSTALLED); // it may come with an upgrade
                if (helper->state != BORDER_NOT_INSTALLED || !helper->border->started)
                        helper_set(helper, BORDER_NOT_INSTALLED, "not installed");
                return;
        }
        if (helper_reach(helper, &err) < 0)
                helper_lost(helper, error_message(&err, -EIO));
        else
                helper_set(helper, BORDER_CALLING, "it was started and has not answered yet");
}

// ---- all of them -------------------------------------------------------------------------------------------------------------

void border_send(Border *border, char *const *views, uint64_t generation) {
        for (BorderPart part = 0; part < _BORDER_PART_MAX; part++) {
                BorderHelper *helper = border->helpers + part;
                if (border_part_has_views(part) && helper->state == BORDER_UP)
                        helper_send(helper, views, generation);
        }
}

BorderState border_state(const Border *border, BorderPart part) {
        return border->helpers[part].state;
}

bool border_can_run(const Border *border, BorderPart part) {
        return border_is_installed(&border->config, part) && border_has_user(&border->config, part);
}

const char *border_reason(const Border *border, BorderPart part) {
        return border->helpers[part].reason;
}

bool border_is_old(const Border *border, BorderPart part) {
        const BorderHelper *helper = border->helpers + part;

        return helper->state == BORDER_UP && !border_program_is(&border->config, part, control_link_peer(helper->link));
}

bool border_has_applied(const Border *border, BorderPart part, uint64_t generation) {
        return border->helpers[part].state == BORDER_UP && border->helpers[part].applied >= generation;
}

bool border_is_late(const Border *border, BorderPart part, uint64_t generation) {
        return helper_is_late(border->helpers + part, generation);
}

uint64_t border_dropped(const Border *border, BorderPart part) {
        return border->helpers[part].dropped;
}

int border_new(const BorderConfig *config, Border **ret, Error *err) {
        _cleanup_(border_freep) Border *border = calloc(1, sizeof(Border));

        if (!border)
                return error_set_errno(err, ENOMEM, "cannot look after the border");
        border->config = *config;
        border->config.run = border->run = strdup(config->run);
        border->config.programs = border->programs = strdup(config->programs);
        border->config.data = border->data = config->data ? strdup(config->data) : NULL;
        for (BorderPart part = 0; part < _BORDER_PART_MAX; part++)
                border->helpers[part] = (BorderHelper) {.border = border, .part = part, .pidfd = -EBADF, .inserts.per_sec = INSERTS_PER_SEC,
                                                        .events.per_sec = EVENTS_PER_SEC};
        if (!border->run || !border->programs || (config->data && !border->data) || sd_event_add_defer(config->event, &border->settle, border_settle, border) < 0 ||
            sd_event_source_set_enabled(border->settle, SD_EVENT_OFF) < 0)
                return error_set_errno(err, ENOMEM, "cannot look after the border");
        *ret = TAKE_PTR(border);
        return 0;
}

void border_start(Border *border) {
        for (BorderPart part = 0; part < _BORDER_PART_MAX; part++)
                helper_try(border->helpers + part);
        border->started = true;
}

Border *border_free(Border *border) {
        if (!border)
                return NULL;
        for (BorderPart part = 0; part < _BORDER_PART_MAX; part++) {
                BorderHelper *helper = border->helpers + part;
                helper_unlink(helper);
                sd_event_source_disable_unref(helper->exit);
                sd_event_source_disable_unref(helper->retry);
                (void) close_fd(helper->pidfd);
        }
        while (border->waiters) {
                BorderWaiter *next = border->waiters->next;
                (void) waiter_free(border->waiters);
                border->waiters = next;
        }
        sd_event_source_disable_unref(border->settle);
        free(border->run);
        free(border->programs);
        free(border->data);
        free(border);
        return NULL;
}
