// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox: see core/sandbox.h. The order of its making is that of a command (core/guest.c): line in the store, group with limits, then the helper's
// child, which waits until it is in the group. Everything that goes wrong ends in sandbox_end(), and everything that ends in its sweep.
#include "core/sandbox.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/digest.h"
#include "base/io.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/valid.h"
#include "core/background.h"
#include "core/command.h"
#include "core/command_link.h"
#include "core/manager.h"
#include "core/warm.h"

#define START_LIMIT (15 * USEC_PER_SEC)
#define REASON_GRACE (500 * USEC_PER_MSEC) // from the end of its channel to what its maker says of that
#define SWEEP_FIRST (2 * USEC_PER_MSEC)
#define SWEEP_MAX USEC_PER_SEC
#define ERRORS_MAX 4096
#define ENDED_MAX 256 // that are remembered of an instance
#define OOM_LOOKS 50
#define OOM_EVERY (20 * USEC_PER_MSEC)

static const struct {
        const char *name;
        bool there;
} runtimes[] = {
        {"bwrap", true}, {"podman", false}, {"microvm", false}, {"gpu", false}, {"kata", false}, {"gvisor", false}, {"wasm", false},
};

int sandbox_runtime_check(const char *runtime, Error *err) {
        for (size_t i = 0; i < ELEMENTS(runtimes); i++)
                if (strcmp(runtimes[i].name, runtime) == 0)
                        return runtimes[i].there ? 0 : error_set_field(err, "runtime", "the runtime \"%s\" is not there in this version; \"bwrap\" is", runtime);
        return error_set_field(err, "runtime", "there is no runtime \"%s\"; \"bwrap\" is there", runtime);
}

bool sandbox_is_alive(const Sandbox *s) {
        return s->state != SANDBOX_ENDED;
}

Sandbox *sandbox_find(const Manager *m, const char *id) {
        for (Sandbox *s = m->sandboxes; s; s = s->next)
                if (strcmp(s->id, id) == 0)
                        return s;
        return NULL;
}

Sandbox *sandbox_find_key(const Manager *m, const char *instance, const char *key) {
        for (Sandbox *s = m->sandboxes; s; s = s->next)
                if (sandbox_is_alive(s) && s->key && strcmp(s->key, key) == 0 && strcmp(s->instance, instance) == 0)
                        return s;
        return NULL;
}

unsigned sandbox_count(const Manager *m, const char *instance) {
        unsigned n = 0;

        for (const Sandbox *s = m->sandboxes; s; s = s->next)
                n += sandbox_is_alive(s) && strcmp(s->instance, instance) == 0;
        return n;
}

char *sandbox_place(const Sandbox *s) {
        char *place;

        return asprintf(&place, "%s/%s", s->instance, s->id) < 0 ? NULL : place;
}

static Instance *sandbox_instance(const Sandbox *s) {
        return instance_list_find(&s->manager->instances, s->instance);
}

static SandboxNow sandbox_now(void) {
        return (SandboxNow) {clock_realtime(), clock_boottime()};
}

void sandbox_event(Sandbox *s, const char *type, json_t *detail) {
        (void) json_object_set_new(detail, "id", json_string(s->id));
        event_publish(s->manager->bus, type, s->instance, detail);
}

// --- waiting

static void sandbox_add_waiter(Sandbox *s, bool gone, InstanceDone done, void *userdata) {
        SandboxWaiter *waiter = calloc(1, sizeof(*waiter)), **at = &s->waiters;
        _cleanup_error_ Error err = ERROR_NULL;

        if (!waiter) {
                done(userdata, error_set_errno(&err, ENOMEM, "waiting for sandbox %s", s->id), &err);
                return;
        }
        *waiter = (SandboxWaiter) {.done = done, .userdata = userdata, .gone = gone};
        while (*at)
                at = &(*at)->next;
        *at = waiter;
}

void sandbox_wait(Sandbox *s, InstanceDone done, void *userdata) {
        sandbox_add_waiter(s, false, done, userdata);
}

void sandbox_notify(Sandbox *s, bool gone, int r, const Error *err) {
        SandboxWaiter *told = NULL, **at = &s->waiters, **last = &told;

        while (*at) {
                SandboxWaiter *w = *at;
                if (w->gone != gone) {
                        at = &w->next;
                        continue;
                }
                *at = w->next;
                w->next = NULL;
                *last = w;
                last = &w->next;
        }
        while (told) { // the list is not the sandbox's any more: whoever is told may delete it
                SandboxWaiter *w = told;
                Error copy = ERROR_NULL;
                told = w->next;
                if (r < 0 && err)
                        (void) error_set(&copy, err->code, "%s", error_message(err, r));
                w->done(w->userdata, r, &copy);
                error_done(&copy);
                free(w);
        }
}

// --- clocks

static void sandbox_look(Sandbox *s);

static int clock_rings(sd_event_source *source, uint64_t usec, void *userdata) {
        sandbox_look(userdata);
        return 0;
}

static void clock_set(Sandbox *s, sd_event_source **source, clockid_t id, usec_t at) {
        if (!*source && at != USEC_INFINITY && sd_event_add_time(s->manager->event, source, id, at, 1000, clock_rings, s) < 0)
                return; // out of memory: the next change of the lease tries again
        if (!*source)
                return;
        (void) sd_event_source_set_time(*source, at);
        (void) sd_event_source_set_enabled(*source, at == USEC_INFINITY ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

void sandbox_arm(Sandbox *s) {
        SandboxVerdict verdict;

        if (s->restoring)
                return; // a limit of its own
        verdict = sandbox_lease_judge(&s->lease, sandbox_now());
        clock_set(s, &s->by_realtime, CLOCK_REALTIME, verdict.realtime);
        clock_set(s, &s->by_boottime, CLOCK_BOOTTIME, verdict.boottime);
}

static void sandbox_look(Sandbox *s) {
        switch (sandbox_lease_judge(&s->lease, sandbox_now()).due) {
        case SANDBOX_CLOCK_DEADLINE:
                sandbox_end(s, SANDBOX_CAUSE_DEADLINE, "its deadline was over");
                return;
        case SANDBOX_CLOCK_IDLE:
                sandbox_end(s, SANDBOX_CAUSE_IDLE, "no command had run in it for its idle time");
                return;
        case SANDBOX_CLOCK_GRACE:
                sandbox_delete(s, NULL, NULL);
                return;
        default:
                sandbox_arm(s);
        }
}

unsigned sandbox_commands(const Sandbox *s) {
        _cleanup_free_ char *place = sandbox_place(s);
        unsigned n = 0;

        for (Command *c = command_next(s->manager->commands, NULL); place && c; c = command_next(s->manager->commands, c))
                n += strcmp(command_instance(c), place) == 0;
        return n;
}

void sandbox_hold(Sandbox *s) {
        s->lease.busy = sandbox_commands(s) + (s->state == SANDBOX_PAUSED);
}

void sandbox_touch(Manager *m, const char *place) {
        const char *id = strchr(place, '/');
        Sandbox *s = id ? sandbox_find(m, id + 1) : NULL;

        if (!s || !sandbox_is_alive(s) || s->state == SANDBOX_CREATING) // a probe's commands are nobody's
                return;
        sandbox_hold(s);
        s->lease.active = clock_boottime();
        // Only who has that clock needs it after a restart.
        if (s->lease.idle != 0)
                (void) sandbox_save(s, NULL);
        sandbox_arm(s);
}

int sandbox_renew(Sandbox *s, usec_t span, Error *err) {
        SandboxLease before = s->lease;
        SandboxNow now = sandbox_now();
        int r;

        // Between its deadline and the moment when hostd gets to it: it is dead already.
        if (!sandbox_is_alive(s) || sandbox_lease_judge(&s->lease, now).due != SANDBOX_CLOCK_NONE)
                return error_set(err, ERR_CONFLICT, "sandbox %s has ended", s->id);
        s->lease.deadline = span > USEC_INFINITY - 1 - now.realtime ? USEC_INFINITY - 1 : now.realtime + span;
        r = sandbox_save(s, err);
        if (r < 0)
                s->lease = before;
        sandbox_arm(s);
        return r;
}

// --- the end

static void sandbox_usage(Sandbox *s, SandboxCause *cause, char **message) {
        CgroupUsage usage;

        s->memory_peak = s->cpu_usec = UINT64_MAX;
        if (!s->box || cgroup_box_usage(s->box, &usage, NULL) < 0)
                return;
        s->memory_peak = usage.memory_peak_bytes;
        s->cpu_usec = usage.cpu_usec;
        if ((*cause != SANDBOX_CAUSE_EXITED && *cause != SANDBOX_CAUSE_OOM) || usage.oom_kills == 0 || usage.oom_kills == UINT64_MAX)
                return;
        *cause = usage.oom_own > 0 ? SANDBOX_CAUSE_OOM : SANDBOX_CAUSE_OOM_OUTSIDE;
        free(*message);
        if (asprintf(message, "%s: its peak was %llu KiB", usage.oom_own > 0 ? "it reached its memory limit" : "memory ran out around it, in its instance or on the host, and the kernel chose it",
                     (unsigned long long) usage.memory_peak_bytes / 1024) < 0)
                *message = NULL;
}

static void sandbox_forget_commands(Sandbox *s) {
        _cleanup_free_ char *place = sandbox_place(s);

        if (place)
                command_link_lose(s->manager, place);
}

static int sandbox_sweep_again(sd_event_source *source, uint64_t usec, void *userdata);

// Nothing in it lives; the kernel may need a moment to let go.
static void sandbox_remove(Sandbox *s, usec_t wait) {
        Instance *instance = sandbox_instance(s);
        int r = 0;

        s->dying = guest_channel_free(s->dying);
        if (s->has_group && instance && instance->box) {
                (void) cgroup_sandbox_kill(instance->box, s->id); // again: something may have been forked into it by what died
                r = cgroup_sandbox_remove(instance->box, s->id);
        }
        if (r != -EBUSY && sandbox_wire_lingers(s))
                r = -EBUSY;
        if (r == -EBUSY) {
                s->sweep = sd_event_source_disable_unref(s->sweep);
                wait = MIN2(wait * 2, SWEEP_MAX);
                if (sd_event_add_time_relative(s->manager->event, &s->sweep, CLOCK_MONOTONIC, wait, 100, sandbox_sweep_again, s) >= 0)
                        return;
        }
        s->has_group = false; // any other failure will be the same next time
        s->sweep = sd_event_source_disable_unref(s->sweep);
        if (s->forget)
                background_remove_sandbox(s->manager, s->instance, s->id); // before its line: a hostd that dies between finds both
        sandbox_notify(s, true, 0, NULL);
        if (s->forget) {
                sandbox_unsave(s);
                sandbox_free(s);
        }
}

static int sandbox_sweep_again(sd_event_source *source, uint64_t usec, void *userdata) {
        sandbox_remove(userdata, 8 * USEC_PER_MSEC);
        return 0;
}

static int sandbox_sweep_now(sd_event_source *source, void *userdata) {
        Sandbox *s = userdata;

        s->sweep = sd_event_source_disable_unref(s->sweep);
        sandbox_remove(s, SWEEP_FIRST);
        return 0;
}

// What in hostd hangs on it, before its group goes.
static void sandbox_cut(Sandbox *s) {
        Manager *m = s->manager;
        Instance *instance = sandbox_instance(s);

        sandbox_pause_forget(s, "it ended meanwhile");
        s->limit = sd_event_source_disable_unref(s->limit);
        s->oom = sd_event_source_disable_unref(s->oom);
        s->oom_again = sd_event_source_disable_unref(s->oom_again);
        s->probing = sd_event_source_disable_unref(s->probing);
        if (instance && instance->guest) {
                (void) guest_channel_signal(instance->guest, s->id, SIGKILL); // queued or blocked it is in no group of ours, and has one of the helper's few places
                guest_channel_forget(instance->guest, s->id);
        }
        if (s->channel)
                command_manager_drop_channel(m->commands, s->channel, "the sandbox ended");
        if (s->box)
                command_manager_drop_box(m->commands, s->box, "the sandbox ended");
        s->dying = s->dying ?: TAKE_PTR(s->channel);
        s->box = cgroup_box_free(s->box);
        s->errors = close_fd(s->errors);
        sandbox_wire_cut(s);
        if (instance)
                sandbox_unkeep(instance, s->id);
}

// Of one instance; those that were the first to end are forgotten first.
static void sandbox_bound_ended(Manager *m, const char *instance) {
        Sandbox *oldest = NULL;
        unsigned n = 0;

        for (Sandbox *s = m->sandboxes; s; s = s->next) {
                if (s->state != SANDBOX_ENDED || s->forget || strcmp(s->instance, instance) != 0)
                        continue;
                n++;
                if (!oldest || s->lease.ended < oldest->lease.ended)
                        oldest = s;
        }
        if (n > ENDED_MAX)
                sandbox_delete(oldest, NULL, NULL); // from the loop
}

void sandbox_end(Sandbox *s, SandboxCause cause, const char *message) {
        Instance *instance = sandbox_instance(s);
        _cleanup_free_ char *text = strdup(message);
        bool creating = s->state == SANDBOX_CREATING;
        Error err = ERROR_NULL;

        if (s->state == SANDBOX_ENDED)
                return;
        if (s->restoring)
                sandbox_forget_commands(s);
        sandbox_usage(s, &cause, &text);
        if (s->has_group && instance && instance->box)
                (void) cgroup_sandbox_kill(instance->box, s->id);
        s->state = SANDBOX_ENDED; // before what hangs on it goes: that tells of itself, and nothing may begin again
        sandbox_cut(s);
        s->restoring = false;
        s->cause = creating && cause == SANDBOX_CAUSE_EXITED ? SANDBOX_CAUSE_FAILED : cause;
        s->message = TAKE_PTR(text);
        s->ended = clock_realtime();
        s->lease.busy = 0;
        s->lease.ended = clock_boottime();
        (void) sandbox_save(s, NULL);
        sandbox_event(s, creating ? "sandbox-failed" : "sandbox-ended", json_pack("{s:s, s:s, s:o}", "cause", sandbox_cause_to_string(s->cause), "message", s->message ?: "",
                                                  "memory_peak", json_integer((json_int_t) MIN2(s->memory_peak, (uint64_t) INT64_MAX))));
        if (creating)
                sandbox_notify(s, false, error_set(&err, s->cause == SANDBOX_CAUSE_DELETED ? ERR_CANCELLED : ERR_UNAVAILABLE, "sandbox %s did not start: %s", s->id, s->message ?: ""), &err);
        error_done(&err);
        sandbox_arm(s);
        // From the loop: whoever caused this may still hold on to the object.
        if (sd_event_add_defer(s->manager->event, &s->sweep, sandbox_sweep_now, s) < 0)
                log_event(LOG_ERR, NULL, s->instance, "out of memory: the group of sandbox %s is removed when its instance stops", s->id);
        sandbox_bound_ended(s->manager, s->instance);
}

void sandbox_delete(Sandbox *s, InstanceDone done, void *userdata) {
        if (done)
                sandbox_add_waiter(s, true, done, userdata);
        s->forget = true;
        if (s->state != SANDBOX_ENDED)
                sandbox_end(s, SANDBOX_CAUSE_DELETED, "it was deleted");
        else if (!s->sweep && sd_event_add_defer(s->manager->event, &s->sweep, sandbox_sweep_now, s) < 0)
                sandbox_notify(s, true, -ENOMEM, &(Error) {.code = ERR_INTERNAL, .message = (char *) "out of memory"});
}

// --- the beginning

static char *sandbox_errors(Sandbox *s) {
        char text[ERRORS_MAX];
        size_t n = 0;
        ssize_t got;

        while (s->errors >= 0 && n < sizeof(text) && (got = read(s->errors, text + n, sizeof(text) - n)) > 0)
                n += (size_t) got;
        return sandbox_said(text, n);
}

static void sandbox_failed(GuestChannel *channel, const char *id, GuestStage stage, int errnum, void *userdata) {
        Sandbox *s = userdata;
        const char *why = strerror(errnum);
        char text[512];

        if (stage == GUEST_STAGE_EXEC && errnum == ENOENT)
                (void) snprintf(text, sizeof(text), "the instance has no /usr/bin/bwrap: its template lacks the package bubblewrap");
        else if (stage == GUEST_STAGE_EXEC)
                (void) snprintf(text, sizeof(text), "the instance's /usr/bin/bwrap cannot be run: %s", why);
        else if (stage == GUEST_STAGE_USER)
                (void) snprintf(text, sizeof(text), "the instance has no user 1000, to whom its sandboxes belong");
        else if (stage == GUEST_STAGE_IDS)
                (void) snprintf(text, sizeof(text), "the instance's user 1000 has no range of 65535 ids in /etc/subuid and /etc/subgid");
        else if (stage == GUEST_STAGE_CWD)
                (void) snprintf(text, sizeof(text), "its workspace %.200s is no directory of the instance's user 1000: %s", s->workspace ?: "", why);
        else
                (void) snprintf(text, sizeof(text), "the instance could not set it up: %s", why);
        sandbox_end(s, SANDBOX_CAUSE_EXITED, text);
}

static void sandbox_exited(GuestChannel *channel, const char *id, int status, void *userdata) {
        Sandbox *s = userdata;
        _cleanup_free_ char *errors = s->state == SANDBOX_CREATING ? sandbox_errors(s) : NULL;
        _cleanup_free_ char *text = NULL;
        int n;

        if (s->state != SANDBOX_CREATING)
                n = asprintf(&text, "its first process ended");
        else if (WIFSIGNALED(status))
                n = asprintf(&text, "%s was killed by signal %d%s%s", s->runtime, WTERMSIG(status), errors ? ", and said: " : "", errors ?: "");
        else
                n = asprintf(&text, "%s ended with status %d%s%s", s->runtime, WEXITSTATUS(status), errors ? ", and said: " : "", errors ?: "");
        if (n < 0)
                text = NULL;
        sandbox_end(s, SANDBOX_CAUSE_EXITED, text ?: "it ended");
}

static const GuestChannelHandlers sandbox_handlers = {.failed = sandbox_failed, .exited = sandbox_exited};

static int sandbox_timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        sandbox_end(userdata, SANDBOX_CAUSE_FAILED, "it did not start in time");
        return 0;
}

static int sandbox_unverified(sd_event_source *source, uint64_t usec, void *userdata) {
        sandbox_end(userdata, SANDBOX_CAUSE_EXITED, "what answered as its first process was none of it");
        return 0;
}

static int sandbox_unexplained(sd_event_source *source, uint64_t usec, void *userdata) {
        sandbox_end(userdata, SANDBOX_CAUSE_EXITED, "its first process ended, and the instance's helper did not say how");
        return 0;
}

static Sandbox *sandbox_of(Manager *m, const GuestChannel *channel) {
        for (Sandbox *s = m->sandboxes; s; s = s->next)
                if (s->channel == channel)
                        return s;
        return NULL;
}

static int sandbox_oom_again(sd_event_source *source, uint64_t usec, void *userdata);

// The count of kills may follow the event.
static void sandbox_look_oom(Sandbox *s) {
        CgroupUsage usage;

        s->oom_again = sd_event_source_disable_unref(s->oom_again);
        if (cgroup_box_usage(s->box, &usage, NULL) >= 0 && usage.oom_kills > 0 && usage.oom_kills != UINT64_MAX)
                sandbox_end(s, SANDBOX_CAUSE_OOM, "it reached its memory limit");
        else if (s->oom_looks++ < OOM_LOOKS)
                (void) sd_event_add_time_relative(s->manager->event, &s->oom_again, CLOCK_MONOTONIC, OOM_EVERY, 1000, sandbox_oom_again, s);
}

static int sandbox_oom_again(sd_event_source *source, uint64_t usec, void *userdata) {
        sandbox_look_oom(userdata);
        return 0;
}

void sandbox_oom(Manager *m, const char *place) {
        const char *id = strchr(place, '/');
        Sandbox *s = id ? sandbox_find(m, id + 1) : NULL;

        if (s && sandbox_is_alive(s))
                sandbox_end(s, SANDBOX_CAUSE_OOM, "it reached its memory limit");
}

// v1 kills one process of it only, and the rest would go on as if nothing had happened.
static int sandbox_oom_seen(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Sandbox *s = userdata;
        char sink[4096];

        (void) !read(fd, sink, sizeof(sink));
        s->oom_looks = 0;
        sandbox_look_oom(s);
        return 0;
}

static void sandbox_watch_oom(Sandbox *s) {
        uint32_t events;
        int fd;

        // On v2 the kernel kills all of it, and its end tells; each such watch would cost one of root's few inotify instances.
        if (cgroup_host_is_unified(s->manager->cgroup) || cgroup_box_oom_fd(s->box, &fd, &events, NULL) < 0)
                return;
        (void) io_set_nonblock(fd, true);
        if (sd_event_add_io(s->manager->event, &s->oom, fd, events, sandbox_oom_seen, s) < 0)
                (void) close_fd(fd);
        else
                (void) sd_event_source_set_io_fd_own(s->oom, true);
}

// Process 1 answers: is it what we made? Where it runs is the kernel's word; only hostd puts anything there.
static int sandbox_verify(Sandbox *s, Error *err) {
        pid_t pid = guest_channel_helper(s->channel);

        if (pid <= 0 || !cgroup_box_has(s->box, pid))
                return error_set(err, ERR_DENIED, "what answers is not in the sandbox");
        return guest_channel_expect(s->channel, pid, err);
}

void sandbox_made(Sandbox *s) {
        if (s->entry || s->probe || s->probe_port)
                sandbox_probe_begin(s);
        else
                sandbox_ready(s);
}

void sandbox_ready(Sandbox *s) {
        s->state = SANDBOX_RUNNING;
        s->lease.active = clock_boottime();
        sandbox_hold(s);
        (void) sandbox_save(s, NULL);
        sandbox_keep(s);
        sandbox_event(s, "sandbox-created", json_pack("{s:s, s:s}", "runtime", s->runtime, "caller", s->caller));
        sandbox_arm(s);
        sandbox_notify(s, false, 0, NULL);
}

bool sandbox_channel_synced(Manager *m, GuestChannel *channel) {
        Sandbox *s = sandbox_of(m, channel);
        _cleanup_error_ Error err = ERROR_NULL;
        bool created;
        int r;

        if (!s)
                return false;
        if (!sandbox_is_alive(s) || s->verified)
                return true;
        created = s->state == SANDBOX_CREATING;
        r = sandbox_verify(s, &err);
        s->limit = sd_event_source_disable_unref(s->limit);
        if (r < 0) { // later: this is the channel's own turn
                log_event(LOG_WARNING, NULL, s->instance, "sandbox %s: %s", s->id, error_message(&err, r));
                (void) sd_event_add_time_relative(m->event, &s->limit, CLOCK_MONOTONIC, 0, 0, sandbox_unverified, s);
                return true;
        }
        s->verified = true;
        s->errors = close_fd(s->errors);
        s->restoring = false;
        sandbox_watch_oom(s);
        if (!created) {
                sandbox_hold(s);
                sandbox_arm(s);
        }
        sandbox_wire_begin(s);
        return true;
}

bool sandbox_channel_gone(Manager *m, GuestChannel *channel) {
        Sandbox *s = sandbox_of(m, channel);
        const Instance *instance;

        if (!s)
                return false;
        instance = sandbox_instance(s);
        s->channel = guest_channel_free(s->channel);
        if (!instance || instance->state != INSTANCE_RUNNING || instance->killed)
                sandbox_end(s, SANDBOX_CAUSE_INSTANCE, "its instance was stopped");
        else if (s->state == SANDBOX_CREATING) { // its maker knows more
                s->limit = sd_event_source_disable_unref(s->limit);
                if (sd_event_add_time_relative(m->event, &s->limit, CLOCK_MONOTONIC, REASON_GRACE, 0, sandbox_unexplained, s) < 0)
                        sandbox_end(s, SANDBOX_CAUSE_EXITED, "its first process ended");
        } else
                sandbox_end(s, SANDBOX_CAUSE_EXITED, "its first process ended");
        return true;
}

static int sandbox_new(Manager *m, const Instance *instance, const SandboxSettings *settings, Sandbox **ret) {
        const bool networked = settings->network && strcmp(settings->network, SANDBOX_NETWORK_NONE) != 0;
        _cleanup_(sandbox_freep) Sandbox *s = calloc(1, sizeof(*s));
        char random[33];

        if (!s)
                return -ENOMEM;
        s->errors = -EBADF;
        s->runtime = strdup(settings->runtime);
        s->caller = strdup(settings->caller);
        s->workspace = settings->workspace ? strdup(settings->workspace) : NULL;
        s->key = settings->key ? strdup(settings->key) : NULL;
        s->labels = settings->labels ? json_deep_copy(settings->labels) : json_object();
        s->entry = settings->entry ? strdup(settings->entry) : NULL;
        s->probe = settings->probe ? strdup(settings->probe) : NULL;
        s->probe_port = settings->probe_port;
        s->probe_time = settings->probe_time;
        s->network = networked ? strdup(settings->network) : NULL;
        if (!s->runtime || !s->caller || !s->labels || (settings->entry && !s->entry) || (settings->probe && !s->probe) || (networked && !s->network) || (settings->workspace && !s->workspace) || (settings->key && !s->key))
                return -ENOMEM;
        do {
                (void) digest_random(16, random);
                (void) snprintf(s->id, sizeof(s->id), "sb%.10s", random);
        } while (sandbox_find(m, s->id) || instance_list_find(&m->instances, s->id)); // either may be named where a place is
        (void) snprintf(s->instance, sizeof(s->instance), "%s", instance->record.name);
        s->root = settings->root;
        s->limits = settings->limits;
        s->run_time = settings->run_time;
        s->created = clock_realtime();
        s->lease = (SandboxLease) {.deadline = settings->deadline ? s->created + settings->deadline : 0, .idle = settings->idle, .grace = settings->grace, .active = clock_boottime(), .busy = 1}; // not idle until it is there
        s->memory_peak = s->cpu_usec = UINT64_MAX;
        s->manager = m;
        s->next = m->sandboxes;
        m->sandboxes = s;
        *ret = TAKE_PTR(s);
        return 0;
}

static int sandbox_make_group(Sandbox *s, Instance *instance, Error *err) {
        int r = cgroup_sandbox_create(instance->box, s->id, &s->box, err);

        if (r < 0)
                return r;
        s->has_group = true;
        return cgroup_sandbox_apply(s->box, &s->limits, instance->config ? instance->config->allow_degraded : NULL, err);
}

// What its maker in the instance is told: see GUEST_SANDBOX.
static int sandbox_words(const Sandbox *s, char ***ret) {
        static const struct {
                const char *key;
                LimitId id;
        } limits[] = {{GUEST_WORD_DISK, LIMIT_DISK}, {GUEST_WORD_OPEN_FILES, LIMIT_OPEN_FILES}};
        int r = strv_append(ret, s->runtime);

        if (r >= 0)
                r = strv_append(ret, s->id);
        for (size_t i = 0; i < ELEMENTS(limits) && r >= 0; i++)
                if (s->limits.value[limits[i].id] != LIMIT_UNSET)
                        r = strv_append_format(ret, "%s=%llu", limits[i].key, (unsigned long long) s->limits.value[limits[i].id]);
        return r;
}

static int sandbox_start(Sandbox *s, Instance *instance, Error *err) {
        GuestChannelConfig config = {.event = s->manager->event, .fd = -EBADF, .box = s->box, .handlers = &command_guest_handlers, .userdata = s->manager->commands};
        _cleanup_strv_ char **argv = NULL;
        _cleanup_close_ int inside = -EBADF, errors = -EBADF;
        GuestRequest request = {.id = s->id, .verb = GUEST_SANDBOX, .flags = s->root ? GUEST_FLAG_ROOT : 0, .path = s->workspace ?: "/", .owner = &s->owner};
        int pair[2], on = 1, r = sandbox_words(s, &argv);

        if (r < 0)
                return error_set_errno(err, r, "making sandbox %s", s->id);
        request.argv = argv;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set_errno(err, errno, "making the channel of sandbox %s", s->id);
        config.fd = pair[0];
        inside = pair[1];
        // From birth, so that no message can come without its sender's pid.
        if (setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 || pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0) {
                r = error_set_errno(err, errno, "making the channel of sandbox %s", s->id);
                (void) close_fd(config.fd);
                return r;
        }
        s->errors = pair[0];
        errors = pair[1];
        r = guest_channel_new(&config, &s->channel, err);
        if (r < 0)
                return r;
        s->owner = (GuestOwner) {.sandbox = s->box, .handlers = &sandbox_handlers, .userdata = s};
        const int fds[3] = {inside, errors, errors};
        r = guest_channel_exec(instance->guest, &request, fds, err);
        if (r < 0)
                return r;
        r = sd_event_add_time_relative(s->manager->event, &s->limit, CLOCK_MONOTONIC, START_LIMIT, 0, sandbox_timed_out, s);
        return r < 0 ? error_set_errno(err, r, "watching sandbox %s", s->id) : 0;
}

// Nothing of it was ever told to anybody.
static void sandbox_undo(Sandbox *s, Instance *instance) {
        s->message = strdup("it did not start");
        s->state = SANDBOX_ENDED;
        sandbox_cut(s);
        if (s->has_group)
                (void) cgroup_sandbox_kill(instance->box, s->id);
        s->forget = true;
        sandbox_remove(s, SWEEP_FIRST);
}

int sandbox_create(Instance *instance, const SandboxSettings *settings, InstanceDone done, void *userdata, Sandbox **ret, Error *err) {
        Manager *m = instance->manager;
        uint64_t most = instance->config ? instance->config->sandboxes : 0;
        Sandbox *s;
        int r;

        if (sandbox_count(m, instance->record.name) >= most)
                return error_set(err, ERR_QUOTA, "%s has %llu sandboxes, and its limit \"sandboxes\" allows no more", instance->record.name, (unsigned long long) most);
        r = instance->config ? admission_check_sandbox(&instance->config->limits, instance->record.name, sandbox_count(m, instance->record.name), err) : 0;
        if (r < 0)
                return r;
        if (!instance->guest || !instance->box)
                return error_set(err, ERR_UNAVAILABLE, "the guest helper of %s is gone again", instance->record.name);
        r = sandbox_new(m, instance, settings, &s);
        if (r < 0)
                return error_set_errno(err, r, "making a sandbox");
        warm_begin(m);
        r = sandbox_wire_new(s, err);
        if (r >= 0)
                r = sandbox_save(s, err);
        if (r >= 0)
                r = sandbox_make_group(s, instance, err);
        if (r >= 0)
                r = sandbox_start(s, instance, err);
        if (r < 0) {
                sandbox_undo(s, instance);
                return r;
        }
        sandbox_wait(s, done, userdata);
        sandbox_arm(s);
        *ret = s;
        return 0;
}

// --- instances

void sandbox_helper_up(Instance *instance) {
        Manager *m = instance->manager;

        for (Sandbox *s = m->sandboxes; s; s = s->next)
                if (sandbox_is_alive(s) && s->state != SANDBOX_CREATING && strcmp(s->instance, instance->record.name) == 0) {
                        s->owner = (GuestOwner) {.sandbox = s->box, .handlers = &sandbox_handlers, .userdata = s};
                        (void) guest_channel_adopt_for(instance->guest, s->id, &s->owner);
                }
}

void sandbox_instance_down(Instance *instance) {
        Manager *m = instance->manager;

        for (Sandbox *s = m->sandboxes, *next; s; s = next) {
                next = s->next;
                if (strcmp(s->instance, instance->record.name) != 0)
                        continue;
                sandbox_end(s, SANDBOX_CAUSE_INSTANCE, "its instance was stopped");
                s->has_group = false; // goes with the box
        }
}

void sandbox_forget_instance(Manager *m, const char *name) {
        for (Sandbox *s = m->sandboxes, *next; s; s = next) {
                next = s->next;
                if (strcmp(s->instance, name) == 0)
                        sandbox_delete(s, NULL, NULL);
        }
}
