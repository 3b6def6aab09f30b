// SPDX-License-Identifier: GPL-2.0-or-later
// Interceptor: see interceptor.h.
#include "core/interceptor.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/log.h"
#include "base/process.h"
#include "border/border.h"
#include "core/border.h"
#include "core/policy_rules.h"
#include "secret/haproxy_log.h"
#include "secret/site.h"

#define HAPROXY_PROGRAM "/usr/sbin/haproxy"
#define DIRECTORY "haproxy" // below the run directory, as hostd-proxy knows it
#define FILL_PAUSE (20 * USEC_PER_MSEC)
#define FILL_TIMEOUT (15 * USEC_PER_SEC) // from a start to its values
#define RESTART_MAX (60 * USEC_PER_SEC)
#define LOOK_EVERY (60 * USEC_PER_SEC) // at the age of its leaves

static void start(Interceptor *i);
static void fill(Interceptor *i);

static Manager *manager_of(const Interceptor *i) {
        return i->secrets->manager;
}

const char *interceptor_state(const Interceptor *i) {
        if (!i)
                return "none";
        return i->pid <= 0 ? "failed" : i->filled ? "ready" : "starting";
}

const Interceptor *interceptor_find(const Secrets *s, const char *instance) {
        for (const Interceptor *i = s->interceptors; i; i = i->next)
                if (strcmp(i->instance, instance) == 0)
                        return i;
        return NULL;
}

// Borrowed pointers to the instance's grants; caller frees the array.
static const Binding **grants_of(const Secrets *s, const char *instance, size_t *ret_n) {
        const Binding **list = calloc(s->n + 1, sizeof(Binding *));
        size_t n = 0;

        for (size_t k = 0; list && k < s->n; k++)
                if (strcmp(s->bindings[k]->instance, instance) == 0)
                        list[n++] = s->bindings[k];
        *ret_n = n;
        return list;
}

// ---- time ----

static int again_due(sd_event_source *source, uint64_t usec, void *userdata);

static void again_in(Interceptor *i, usec_t span) {
        i->again = sd_event_source_disable_unref(i->again);
        (void) sd_event_add_time_relative(manager_of(i)->event, &i->again, CLOCK_MONOTONIC, span, 1, again_due, i);
}

static void trouble(Interceptor *i, const Error *err, int r) {
        manager_warn(manager_of(i), "interceptor", i->instance, "HAProxy for its secrets: %s", error_message(err, r));
        i->failures++;
        again_in(i, MIN2(USEC_PER_SEC << MIN2(i->failures, 7u), RESTART_MAX));
}

// ---- process ----

static int buried(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        (void) waitpid((pid_t) (intptr_t) userdata, NULL, WNOHANG); // ours
        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) sd_event_source_set_floating(source, false); // was its last reference
        return 0;
}

// One that is killed dies in milliseconds, but not while it waits for a disk: hostd's loop does not wait with it.
static void bury(Interceptor *i) {
        sd_event_source *source = NULL;

        if (waitpid(i->pid, NULL, WNOHANG) != 0 ||
            sd_event_add_io(manager_of(i)->event, &source, i->pidfd, EPOLLIN, buried, (void *) (intptr_t) i->pid) < 0) // out of memory: it stays a zombie
                return;
        (void) sd_event_source_set_io_fd_own(source, true);
        i->pidfd = -EBADF;
        (void) sd_event_source_set_floating(source, true);
        (void) sd_event_source_unref(source);
}

// It holds nothing that has to be said to anybody, so it is killed; its connections end with it.
static void end(Interceptor *i) {
        i->filling = runtime_free(i->filling);
        i->exit = sd_event_source_disable_unref(i->exit);
        i->again = sd_event_source_disable_unref(i->again);
        if (i->pidfd >= 0)
                (void) syscall(SYS_pidfd_send_signal, i->pidfd, SIGKILL, NULL, 0);
        if (i->pid > 0)
                bury(i);
        i->pid = 0;
        i->pidfd = close_fd(i->pidfd);
        i->log = haproxy_log_free(i->log);
        i->filled = false;
}

static int exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Interceptor *i = userdata;
        _cleanup_error_ Error err = ERROR_NULL;

        end(i);
        // One that ran for a while has not failed in a row.
        if (clock_monotonic() - i->started > RESTART_MAX)
                i->failures = 0;
        trouble(i, &err, error_set(&err, ERR_UNAVAILABLE, "it ended; see %s/" HAPROXY_LOG_FILE, i->path));
        return 0;
}

static int accounts(Site *site, Error *err) {
        uid_t proxy;

        if (border_account(BORDER_HAPROXY, &site->uid, &site->gid) < 0)
                return error_set(err, ERR_UNAVAILABLE, "there is no user " BORDER_HAPROXY);
        if (border_account(BORDER_PROXY, &proxy, &site->front_gid) < 0)
                return error_set(err, ERR_UNAVAILABLE, "there is no user " BORDER_PROXY);
        return 0;
}

// Set from outside, before it has been told anything. The limit keeps the kernel from writing a file; a program that core files are piped to
// (core_pattern) gets one in spite of it, which then has none of its memory in it.
static void no_core_of(pid_t pid) {
        char path[64];

        (void) prlimit(pid, RLIMIT_CORE, &(struct rlimit) {0, 0}, NULL);
        (void) snprintf(path, sizeof(path), "/proc/%d/coredump_filter", pid);
        (void) io_write_file(AT_FDCWD, path, "0");
}

// No set-uid program below it gains anything.
static int spawn(Interceptor *i, const Site *site, Error *err) {
        _cleanup_close_ int log = -EBADF;
        _cleanup_free_ char *config = NULL;
        ProcessSpec spec = PROCESS_SPEC_NULL;
        int r = haproxy_log_new(manager_of(i)->event, i->directory, &i->log, &log, err);

        if (r < 0)
                return r;
        if (asprintf(&config, "%s/conf/haproxy.cfg", i->path) < 0) {
                config = NULL;
                return error_set_errno(err, ENOMEM, "cannot start");
        }
        if (access(HAPROXY_PROGRAM, X_OK) < 0)
                return error_set(err, ERR_UNAVAILABLE, HAPROXY_PROGRAM " is not installed");
        char *argv[] = {(char *) "/usr/bin/setpriv", (char *) "--no-new-privs", (char *) HAPROXY_PROGRAM, (char *) "-db", (char *) "-f", config, NULL};
        spec.argv = argv;
        spec.stdout_fd = spec.stderr_fd = log;
        spec.die_with_parent = spec.new_session = true;
        spec.uid = site->uid;
        spec.gid = site->gid;
        r = process_spawn(&spec, &i->pid, &i->pidfd, err);
        if (r < 0)
                return r;
        no_core_of(i->pid);
        r = sd_event_add_io(manager_of(i)->event, &i->exit, i->pidfd, EPOLLIN, exited, i);
        if (r >= 0)
                return 0;
        end(i);
        return error_set_errno(err, r, "cannot watch it");
}

// All that a site is made of.
typedef struct Plan {
        Site site;
        const Binding **grants; // borrowed pointers
        size_t n;
        PolicyRules *rules;
} Plan;

static void plan_done(Plan *plan) {
        free(plan->grants);
        (void) policy_rules_free(plan->rules);
}

static int plan_fill(const Interceptor *i, Plan *plan, Error *err) {
        const Instance *instance = instance_list_find(&manager_of(i)->instances, i->instance);
        int r = accounts(&plan->site, err);

        if (r < 0)
                return r;
        plan->site.directory = i->directory;
        plan->site.path = i->path;
        plan->site.instance = i->instance;
        plan->site.log = "stdout";
        plan->grants = grants_of(i->secrets, i->instance, &plan->n);
        if (!plan->grants)
                return error_set_errno(err, ENOMEM, "cannot start");
        if (!instance || !instance->config)
                return 0; // hostd-proxy knows no rules of it either, and sends nothing
        r = policy_rules_new(instance, plan->grants, plan->n, &plan->rules, err);
        if (r < 0)
                return r;
        plan->site.with_rules = true;
        plan->site.rules = policy_rules_list(plan->rules, &plan->site.n_rules);
        return 0;
}

static int try_start(Interceptor *i, Error *err) {
        _cleanup_(plan_done) Plan plan = {.n = 0};
        int r = plan_fill(i, &plan, err);

        free(TAKE_PTR(i->config));
        if (r >= 0)
                r = site_config(&plan.site, plan.grants, plan.n, &i->config, err);
        if (r >= 0)
                r = site_write(&plan.site, &i->secrets->vault, plan.grants, plan.n, &i->renew, err);
        return r < 0 ? r : spawn(i, &plan.site, err);
}

// 1: it has changed. Grants of an instance that is not there any more are compared with nothing: it ends anyway.
static int compare(const Interceptor *i, Error *err) {
        _cleanup_(plan_done) Plan plan = {.n = 0};
        _cleanup_free_ char *config = NULL;
        int r = i->config ? plan_fill(i, &plan, err) : 0;

        if (i->config && r >= 0)
                r = site_config(&plan.site, plan.grants, plan.n, &config, err);
        return r < 0 ? r : config && strcmp(config, i->config) != 0;
}

static void start(Interceptor *i) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        end(i);
        i->stale = false;
        i->started = clock_monotonic();
        r = try_start(i, &err);
        if (r < 0)
                trouble(i, &err, r);
        else
                again_in(i, FILL_PAUSE);
}

// ---- values ----

static void filled(void *userdata, int r, Error *err) {
        Interceptor *i = userdata;

        i->filling = runtime_free(i->filling);
        if (r < 0) {
                trouble(i, err, r);
                return;
        }
        if (i->overtaken) {
                again_in(i, 0);
                return;
        }
        i->filled = true;
        manager_unwarn(manager_of(i), "interceptor", i->instance);
        again_in(i, LOOK_EVERY);
}

static int try_fill(Interceptor *i, Error *err) {
        Site site = {.path = i->path, .instance = i->instance};
        _cleanup_free_ char *admin = site_admin(&site), *map = site_map(&site);
        _cleanup_free_ const Binding **grants = NULL;
        RuntimeSpec spec = {.socket = admin, .map = map, .done = filled, .userdata = i};
        int r = accounts(&site, err);

        if (r < 0)
                return r;
        grants = grants_of(i->secrets, i->instance, &spec.n_entries);
        if (!grants || !admin || !map)
                return error_set_errno(err, ENOMEM, "cannot hand values on");
        r = site_entries(&i->secrets->vault, grants, spec.n_entries, &spec.entries, err);
        if (r < 0)
                return r;
        spec.uid = site.uid;
        no_core_of(i->pid); // again: the exec might have gone on with the old filter
        i->overtaken = false;
        i->filling = runtime_free(i->filling);
        return runtime_fill(manager_of(i)->event, &spec, &i->filling, err);
}

static void fill(Interceptor *i) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = try_fill(i, &err);

        if (r >= 0)
                return;
        // It is not listening yet.
        if (err.code == ERR_UNAVAILABLE && clock_monotonic() - i->started < FILL_TIMEOUT) {
                again_in(i, FILL_PAUSE);
                return;
        }
        trouble(i, &err, r);
}

static int again_due(sd_event_source *source, uint64_t usec, void *userdata) {
        Interceptor *i = userdata;

        i->again = sd_event_source_disable_unref(i->again);
        if (i->pid <= 0 || i->stale || clock_realtime() >= i->renew)
                start(i);
        else if (!i->filled)
                fill(i);
        else
                again_in(i, LOOK_EVERY);
        return 0;
}

// What is on its way is not cut short: HAProxy might still put it in force, after what follows.
static void refill(Interceptor *i) {
        i->filled = false;
        i->overtaken = true;
        if (!i->filling)
                again_in(i, 0);
}

void interceptors_refill(Secrets *s, const char *secret) {
        for (Interceptor *i = s->interceptors; i; i = i->next)
                for (size_t k = 0; k < s->n; k++)
                        if (strcmp(s->bindings[k]->secret, secret) == 0 && strcmp(s->bindings[k]->instance, i->instance) == 0 && i->pid > 0) {
                                refill(i);
                                break;
                        }
}

void interceptors_end(Secrets *s, const char *instance) {
        for (Interceptor *i = s->interceptors; i; i = i->next)
                if (strcmp(i->instance, instance) == 0) {
                        end(i);
                        i->stale = true;
                }
}

// ---- which there are ----

static int open_site(Interceptor *i, Error *err) {
        Manager *m = manager_of(i);
        _cleanup_close_ int run = open(m->paths.run, O_RDONLY | O_DIRECTORY | O_CLOEXEC), parent = -EBADF;
        char name[16];

        if (asprintf(&i->path, "%s/" DIRECTORY "/%u", m->paths.run, i->slot) < 0) {
                i->path = NULL;
                return error_set_errno(err, ENOMEM, "cannot start");
        }
        (void) snprintf(name, sizeof(name), "%u", i->slot);
        if (run < 0 || (mkdirat(run, DIRECTORY, 0711) < 0 && errno != EEXIST))
                return error_set_errno(err, errno, "cannot make %s", i->path);
        parent = openat(run, DIRECTORY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (parent < 0 || fchmod(parent, 0711) < 0 || (mkdirat(parent, name, 0711) < 0 && errno != EEXIST))
                return error_set_errno(err, errno, "cannot make %s", i->path);
        i->directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return i->directory >= 0 && fchmod(i->directory, 0711) == 0 ? 0 : error_set_errno(err, errno, "cannot open %s", i->path);
}

// What is left is made over by the next. HAProxy owns some of it, and one that was conquered may have made it hard to remove.
static void tell_left(const char *path, int r) {
        if (r < 0)
                log_warning("%s cannot be removed: %s", path, strerror(-r));
}

static Interceptor *interceptor_free(Interceptor *i) {
        if (!i)
                return NULL;
        end(i);
        i->directory = close_fd(i->directory);
        if (i->path)
                tell_left(i->path, io_remove_tree(AT_FDCWD, i->path));
        free(i->path);
        free(i->config);
        free(i);
        return NULL;
}

static void add(Secrets *s, const Instance *instance) {
        Interceptor *i = calloc(1, sizeof(Interceptor));
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!i)
                return; // the next sync
        i->secrets = s;
        i->directory = i->pidfd = -EBADF;
        i->slot = instance->record.slot;
        (void) snprintf(i->instance, sizeof(i->instance), "%s", instance->record.name);
        r = open_site(i, &err);
        if (r < 0) {
                manager_warn(s->manager, "interceptor", i->instance, "%s", error_message(&err, r));
                (void) interceptor_free(i);
                return;
        }
        i->next = s->interceptors;
        s->interceptors = i;
        start(i);
}

static bool has_grants(const Secrets *s, const char *instance) {
        for (size_t k = 0; k < s->n; k++)
                if (strcmp(s->bindings[k]->instance, instance) == 0)
                        return true;
        return false;
}

static bool is_wanted(const Secrets *s, const char *name) {
        const Instance *instance = instance_list_find(&s->manager->instances, name);

        return instance && instance_is_live(instance) && has_grants(s, name);
}

static void remove_unwanted(Secrets *s) {
        Interceptor **p = &s->interceptors;

        while (*p) {
                Interceptor *i = *p;
                if (is_wanted(s, i->instance)) {
                        p = &i->next;
                        continue;
                }
                *p = i->next;
                manager_unwarn(s->manager, "interceptor", i->instance);
                (void) interceptor_free(i);
        }
}

// Where nobody can say what the rules are now, those from before are not held to be them. What does not run is tried again by its own clock.
static void renew(Interceptor *i) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = i->stale ? 1 : compare(i, &err);

        if (r > 0)
                start(i);
        else if (r < 0 && i->pid > 0) {
                end(i);
                trouble(i, &err, r);
        }
}

void interceptors_sync(Manager *m) {
        Secrets *s = m->secrets;

        if (!s || m->stopping)
                return;
        remove_unwanted(s);
        for (Interceptor *i = s->interceptors; i; i = i->next)
                renew(i);
        for (const Instance *instance = m->instances.first; instance; instance = instance->next)
                if (is_wanted(s, instance->record.name) && !interceptor_find(s, instance->record.name))
                        add(s, instance);
}

void interceptors_sweep(Manager *m) {
        _cleanup_close_ int run = m->paths.run ? open(m->paths.run, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -EBADF;

        if (run >= 0)
                tell_left(DIRECTORY, io_remove_tree(run, DIRECTORY));
}

void interceptors_free(Secrets *s) {
        while (s->interceptors) {
                Interceptor *i = s->interceptors;
                s->interceptors = i->next;
                (void) interceptor_free(i);
        }
}
