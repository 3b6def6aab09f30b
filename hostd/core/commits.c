// SPDX-License-Identifier: GPL-2.0-or-later
// Commits: see commits.h.
#include "core/commits.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#define COMMITS_KEPT_MAX 256 // of failed ones; what older ones did is found by "apply" or the next start
#define COMMIT_MESSAGE_MAX 1000

typedef struct Waiter {
        struct Waiter *next;
        HistoryCommit *commit; // owned
        CommitDone done;       // NULL once it was told
        void *userdata;
        bool running, failed;
} Waiter;

struct Commits {
        sd_event *event;
        ConfDir *dir;
        CommitsReport report;
        void *userdata;
        Waiter *waiters; // in the order they asked
        sd_event_source *child; // NULL: none runs
        pid_t pid;
        bool stopped;
};

static void waiter_free(Waiter *w) {
        (void) history_commit_free(w->commit);
        free(w);
}

// The callback may ask for another commit.
static void waiter_tell(Waiter *w, int r, const Error *err) {
        CommitDone done = TAKE_PTR(w->done);
        Error copy = ERROR_NULL;

        if (!done)
                return;
        if (r < 0)
                (void) error_set(&copy, err->code ?: ERR_INTERNAL, "%s", error_message(err, r));
        done(w->userdata, MIN2(r, 0), &copy);
        error_done(&copy);
}

static void waiters_append(Waiter **list, Waiter *w) {
        while (*list)
                list = &(*list)->next;
        *list = w;
}

// Those that run were the first of the queue when they began, and nothing is ever put before them.
static Waiter *waiters_take_running(Commits *c) {
        Waiter *first = c->waiters, **p = &c->waiters;

        while (*p && (*p)->running)
                p = &(*p)->next;
        if (p == &c->waiters)
                return NULL;
        c->waiters = *p;
        *p = NULL;
        return first;
}

// What all of these did; git was killed, so that nobody knows which of them are in history.
static char *found_message(const Waiter *waiters) {
        char *text = strdup("found after git was killed: "), *longer;

        for (const Waiter *w = waiters; text && w && strlen(text) < COMMIT_MESSAGE_MAX; w = w->next) {
                int n = asprintf(&longer, "%s%s%s (%.*s)", text, w == waiters ? "" : "; ", w->commit->message, (int) strcspn(w->commit->author, " "),
                                 w->commit->author);
                free(text);
                text = n < 0 ? NULL : longer;
        }
        if (text && strlen(text) > COMMIT_MESSAGE_MAX) {
                size_t end = COMMIT_MESSAGE_MAX;
                while (end > 0 && ((unsigned char) text[end] & 0xc0) == 0x80) // not within a character
                        end--;
                text[end] = 0;
        }
        return text;
}

// One commit of what they wrote last to each file; it is left out if history has it already.
static Waiter *waiters_merge(const Waiter *waiters) {
        _cleanup_(history_changes_freep) HistoryChange *changes = NULL;
        _cleanup_free_ char *message = found_message(waiters);
        Waiter *merged = calloc(1, sizeof(Waiter));
        int r = message && merged ? 0 : -ENOMEM;

        for (const Waiter *w = waiters; r >= 0 && w; w = w->next)
                for (const HistoryChange *change = w->commit->changes; r >= 0 && change; change = change->next)
                        if (change->kind != CHANGE_LEAVE)
                                r = history_note_kind(&changes, CHANGE_FOUND, change->path, change->after);
        if (r >= 0)
                r = history_commit_new("root <0@host>", message, &changes, &merged->commit, NULL);
        if (r < 0) {
                free(merged);
                return NULL;
        }
        return merged;
}

static void commits_keep(Commits *c, Waiter *failed) {
        size_t n = 0;

        for (Waiter *w = failed; w; w = w->next, n++) {
                w->running = false;
                w->failed = true;
        }
        waiters_append(&failed, c->waiters);
        c->waiters = failed;
        for (; n > COMMITS_KEPT_MAX; n--) {
                Waiter *oldest = c->waiters;
                c->waiters = oldest->next;
                waiter_free(oldest);
        }
}

static void commits_start(Commits *c, bool again);

static void commits_ended(Commits *c, int r, const Error *err) {
        Waiter *ended = waiters_take_running(c), *again = NULL;

        c->report(c->userdata, r, err);
        for (Waiter *w = ended; w; w = w->next)
                waiter_tell(w, r, err);
        if (r == -EINTR) {
                if ((again = waiters_merge(ended))) { // before what was asked for later
                        again->next = c->waiters;
                        c->waiters = again;
                }
        } else if (r != 0)
                commits_keep(c, TAKE_PTR(ended));
        while (ended) {
                Waiter *next = ended->next;
                waiter_free(ended);
                ended = next;
        }
        commits_start(c, false);
}

static int commits_exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        _cleanup_error_ Error err = ERROR_NULL;
        Commits *c = userdata;
        int status = 0, r;

        (void) waitpid(c->pid, &status, 0);
        c->child = sd_event_source_disable_unref(c->child); // owns the pidfd
        r = confdir_commit_result(c->dir, status, &err);
        commits_ended(c, r, &err);
        return 0;
}

static int commits_spawn(Commits *c, Error *err) {
        int pidfd = -EBADF, r = confdir_commit(c->dir, c->waiters->commit, &c->pid, &pidfd, err);

        if (r < 0)
                return r;
        r = sd_event_add_io(c->event, &c->child, pidfd, EPOLLIN, commits_exited, c);
        if (r < 0) {
                (void) waitpid(c->pid, NULL, 0); // milliseconds
                (void) close_fd(pidfd);
                return error_set_errno(err, r, "cannot watch git");
        }
        (void) sd_event_source_set_io_fd_own(c->child, true);
        return 0;
}

// `again`: also if there is nothing but what failed before.
static void commits_start(Commits *c, bool again) {
        _cleanup_error_ Error err = ERROR_NULL;
        bool fresh = again;
        int r;

        for (Waiter *w = c->waiters; w && !fresh; w = w->next)
                fresh = !w->failed;
        if (c->child || !c->waiters || c->stopped || !fresh)
                return;
        for (Waiter *w = c->waiters; w; w = w->next) {
                w->running = true;
                w->failed = false;
                w->commit->next = w->next ? w->next->commit : NULL;
        }
        r = commits_spawn(c, &err);
        if (r < 0)
                commits_ended(c, r, &err);
}

static int ask_commit(Commits *c, const CommitAsk *ask, HistoryCommit **ret, Error *err) {
        _cleanup_(history_changes_freep) HistoryChange *changes = confdir_take_changes(c->dir);
        int r = 0;

        if (ask->whole) {
                changes = history_changes_free(changes); // part of the whole
                r = confdir_snapshot(c->dir, ask->except, &changes, err);
        } else if (!changes) // nothing differs
                return 0;
        if (r >= 0)
                r = history_commit_new(ask->author, ask->message, &changes, ret, err);
        if (r >= 0)
                (*ret)->whole = ask->whole;
        return r;
}

void commits_add(Commits *c, const CommitAsk *ask) {
        _cleanup_(history_commit_freep) HistoryCommit *commit = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = ask_commit(c, ask, &commit, &err);
        Waiter *w = r >= 0 && commit ? calloc(1, sizeof(Waiter)) : NULL;

        if (commit && !w)
                r = error_set_errno(&err, ENOMEM, "cannot commit");
        if (!w) {
                if (ask->done)
                        ask->done(ask->userdata, r, &err);
                return;
        }
        *w = (Waiter) {.commit = TAKE_PTR(commit), .done = ask->done, .userdata = ask->userdata};
        waiters_append(&c->waiters, w);
        commits_start(c, false);
}

void commits_retry(Commits *c) {
        commits_start(c, true);
}

void commits_stop(Commits *c) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = error_set(&err, ERR_CANCELLED, "the files are in force, but hostd ended before the change was in the configuration's history");

        c->stopped = true;
        c->child = sd_event_source_disable_unref(c->child);
        while (c->waiters) {
                Waiter *w = c->waiters;
                c->waiters = w->next;
                waiter_tell(w, r, &err);
                waiter_free(w);
        }
}

int commits_new(sd_event *event, ConfDir *dir, CommitsReport report, void *userdata, Commits **ret) {
        Commits *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        *c = (Commits) {.event = event, .dir = dir, .report = report, .userdata = userdata};
        *ret = c;
        return 0;
}

Commits *commits_free(Commits *c) {
        if (!c)
                return NULL;
        commits_stop(c);
        free(c);
        return NULL;
}
