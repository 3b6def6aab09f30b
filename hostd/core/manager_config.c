// SPDX-License-Identifier: GPL-2.0-or-later
// Manager, configuration: loading, swapping in, applying differences, committing.
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/log.h"
#include "core/lifecycle.h"
#include "core/manager.h"

// One commit at a time; those who asked meanwhile share the next one.
typedef struct CommitWaiter {
        struct CommitWaiter *next;
        char *author, *message;
        CommitDone done;
        void *userdata;
        bool running;
} CommitWaiter;

static void commit_start_next(Manager *m);

static void waiter_end(CommitWaiter *w, int r, Error *err) {
        if (w->done)
                w->done(w->userdata, r, err);
        free(w->author);
        free(w->message);
        free(w);
}

static void commit_ended(Manager *m, int r, Error *err) {
        CommitWaiter *ended = NULL, **p = &m->commit_waiters;

        m->commit_running = false;
        while (*p) {
                CommitWaiter *w = *p;
                if (!w->running) {
                        p = &w->next;
                        continue;
                }
                *p = w->next;
                w->next = ended;
                ended = w;
        }
        while (ended) {
                CommitWaiter *w = ended;
                Error copy = ERROR_NULL;
                ended = w->next;
                if (r < 0)
                        (void) error_set(&copy, err->code ?: ERR_INTERNAL, "%s", error_message(err, r));
                waiter_end(w, r, &copy);
                error_done(&copy);
        }
        commit_start_next(m);
}

typedef struct CommitChild { Manager *manager; pid_t pid; } CommitChild;

static int commit_exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        CommitChild *child = userdata;
        Manager *m = child->manager;
        _cleanup_error_ Error err = ERROR_NULL;
        int status = 0, r;

        (void) waitpid(child->pid, &status, 0);
        r = confdir_commit_result(status, &err);
        sd_event_source_disable_unref(source); // owns the pidfd
        free(child);
        if (r < 0)
                manager_warn(m, "commit", "host", "%s", error_message(&err, r));
        else
                manager_unwarn(m, "commit", "host");
        commit_ended(m, r, &err);
        return 0;
}

static int commit_spawn(Manager *m, const CommitWaiter *w, Error *err) {
        CommitChild *child = calloc(1, sizeof(CommitChild));
        sd_event_source *source;
        int pidfd = -EBADF, r;

        if (!child)
                return error_set_errno(err, ENOMEM, "cannot commit");
        child->manager = m;
        r = confdir_commit(m->confdir, w->author, w->message, &child->pid, &pidfd, err);
        if (r < 0) {
                free(child);
                return r;
        }
        r = sd_event_add_io(m->event, &source, pidfd, EPOLLIN, commit_exited, child);
        if (r < 0) {
                (void) close_fd(pidfd);
                free(child);
                return error_set_errno(err, r, "cannot watch git");
        }
        (void) sd_event_source_set_io_fd_own(source, true);
        return 0;
}

static void commit_start_next(Manager *m) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (m->commit_running || !m->commit_waiters)
                return;
        m->commit_running = true;
        // Whoever is here now has written its files already: one commit has them all. The first one names it.
        for (CommitWaiter *w = m->commit_waiters; w; w = w->next)
                w->running = true;
        r = commit_spawn(m, m->commit_waiters, &err);
        if (r < 0)
                commit_ended(m, r, &err);
}

void manager_commit(Manager *m, const char *author, const char *message, CommitDone done, void *userdata) {
        CommitWaiter *w = calloc(1, sizeof(CommitWaiter)), **p;
        Error err = ERROR_NULL;

        if (!w || !(w->author = strdup(author)) || !(w->message = strdup(message))) {
                if (w)
                        free(w->author);
                free(w);
                if (done)
                        done(userdata, error_set_errno(&err, ENOMEM, "cannot commit"), &err);
                error_done(&err);
                return;
        }
        w->done = done;
        w->userdata = userdata;
        for (p = &m->commit_waiters; *p; p = &(*p)->next)
                ;
        *p = w;
        commit_start_next(m);
}

static bool policies_changed(const Desired *old, const Desired *new, const InstanceConfig *config) {
        for (char **name = config->policies; name && *name; name++) {
                Policy *a = desired_find_policy(old, *name), *b = desired_find_policy(new, *name);
                if (!a || !b || !policy_equal(a, b))
                        return true;
        }
        return false;
}

// What a running instance must be told. Failures become warnings: the configuration is in force, the kernel is behind.
static void apply_one(Manager *m, Instance *instance, const Desired *old) {
        const InstanceConfig *before = desired_find_instance(old, instance->record.name);
        _cleanup_error_ Error err = ERROR_NULL;
        int r = 0;

        if (!instance_is_active(instance) || !before || !instance->config)
                return;
        if (!strv_equal(before->policies, instance->config->policies) || policies_changed(old, m->desired, instance->config) ||
            before->limits.value[LIMIT_UPLOAD] != instance->config->limits.value[LIMIT_UPLOAD])
                instance->wanted_network++;
        if (instance_config_diff(before, instance->config))
                instance->wanted_limits++;
        if (instance->wanted_network != instance->applied_network)
                r = instance_apply_network(instance, &err);
        if (r >= 0 && instance->wanted_limits != instance->applied_limits)
                r = instance_apply_limits(instance, false, &err);
        if (r < 0)
                manager_warn(m, "apply", instance->record.name, "%s", error_message(&err, r));
        else
                manager_unwarn(m, "apply", instance->record.name);
}

static void swap_in(Manager *m, Desired *fresh) {
        Desired *old = m->desired;

        m->desired = fresh;
        m->revision++;
        for (Instance *i = m->instances.first; i; i = i->next) {
                i->config = desired_find_instance(fresh, i->record.name);
                if (!i->config && instance_is_active(i) && !i->deleting) {
                        StopOptions options = {0};
                        manager_warn(m, "orphan", i->record.name, "instances.d/%s.conf is gone: stopped, data kept until \"hostctl delete %s\"",
                                     i->record.name, i->record.name);
                        (void) instance_stop(i, &options, NULL, NULL, NULL);
                }
        }
        for (Instance *i = m->instances.first; i; i = i->next)
                apply_one(m, i, old);
        (void) desired_free(old);
}

int manager_reload(Manager *m, bool dry_run, char ***ret_changes, Error *err) {
        _cleanup_(desired_freep) Desired *fresh = NULL;
        _cleanup_strv_ char **changes = NULL;
        int r;

        r = desired_reload(confdir_fd(m->confdir), m->desired, &fresh, err);
        if (r < 0) {
                if (!dry_run && err) {
                        free(m->config_error);
                        m->config_error = strdup(error_message(err, r));
                        log_event(LOG_ERR, LOG_ID_CONFIG_REFUSED, NULL, "configuration refused, the old one stays in force: %s", m->config_error ?: "");
                        manager_warn(m, "configuration", "host", "%s", m->config_error ?: "");
                }
                return r;
        }
        r = desired_diff(m->desired, fresh, &changes);
        if (r < 0)
                return error_set_errno(err, r, "cannot compare configurations");
        r = lifecycle_check_set(m, fresh, err);
        if (r < 0)
                return r;
        if (!dry_run) {
                free(TAKE_PTR(m->config_error));
                manager_unwarn(m, "configuration", "host");
                swap_in(m, TAKE_PTR(fresh));
                lifecycle_create_missing(m);
                manager_replan(m);
        }
        if (ret_changes)
                *ret_changes = TAKE_PTR(changes);
        return 0;
}
