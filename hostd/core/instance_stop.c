// SPDX-License-Identifier: GPL-2.0-or-later
// Instance, ending: stop, exit, out-of-memory, and what is cleaned when the supervisor is gone.
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/log.h"
#include "core/border_link.h"
#include "core/command.h"
#include "core/job.h"
#include "core/launcher.h"
#include "core/manager.h"
#include "core/sandbox.h"
#include "quotas/oom.h"

#define KILL_GRACE (5 * USEC_PER_SEC)

void instance_kill(Instance *instance) {
        _cleanup_free_ char *prefix = instance_cgroup_prefix(instance);

        if (instance->box)
                (void) cgroup_box_kill(instance->box); // with its limit of processes, which stops who would come in
        if (prefix)
                (void) cgroup_host_kill(instance->manager->cgroup, prefix);
        launcher_kill(instance);
}

void instance_abort(Instance *instance, const char *why) {
        char *copy = strdup(why);

        free(instance->failure);
        instance->failure = copy;
        instance_kill(instance);
        if (!instance->exit_source && !instance->launch)
                instance_gone(instance);
}

static int kill_timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        Instance *instance = userdata;

        instance->deadline = sd_event_source_disable_unref(instance->deadline);
        instance_kill(instance);
        return 0;
}

typedef struct Unplug {
        Manager *manager;
        unsigned interface;
        uint16_t slot;
        uint32_t generation;
} Unplug;

static int unplug_work(void *input, json_t **ret, Error *err) {
        return network_unplug(((const Unplug *) input)->interface, err);
}

// The rest of the network goes while the guest is still dying. If something failed, instance_clean() meets it again and says so.
static void unplug_done(void *userdata, int r, json_t *result, Error *err) {
        Unplug *unplug = userdata;
        Manager *m = unplug->manager;
        Instance *instance = m->stopping ? NULL : instance_list_by_slot(&m->instances, unplug->slot);

        if (r >= 0 && instance && instance->killed && instance->record.generation == unplug->generation && instance->state == INSTANCE_STOPPING) {
                instance_network_pause(instance);
                sandbox_wires_cut(instance);
                instance->unplugged = network_detach(m->network, unplug->slot, NULL) >= 0;
        }
        if (!m->stopping)
                border_link_changed(m, unplug->slot);
        free(unplug);
}

// The kernel takes 20 to 40 ms to remove a veth, in which hostd could do nothing else. In a job it happens while the guest dies;
// instance_clean() then finds it gone, or waits for the rest.
static void unplug_ahead(Instance *instance) {
        Manager *m = instance->manager;
        Unplug *unplug = calloc(1, sizeof(Unplug));
        JobSpec spec = {.work = unplug_work, .input = unplug, .done = unplug_done, .userdata = unplug};

        if (!unplug)
                return;
        *unplug = (Unplug) {m, network_interface(m->network, instance->record.slot), instance->record.slot, instance->record.generation};
        if (job_start(m->event, &spec, NULL) < 0)
                free(unplug);
}

// Everything at once: hostd removes what the supervisor and liblxc would have tidied up anyway, and the last of them takes long to die,
// since its mount namespace takes the guest's file systems with it.
static void stop_by_force(Instance *instance) {
        instance->killed = true;
        instance_pause_forget(instance, "it was stopped meanwhile");
        instance->paused = false; // a kill reaches what is frozen as well, and nothing of it runs once more
        instance->deadline = sd_event_source_disable_unref(instance->deadline);
        instance_kill(instance);
        unplug_ahead(instance);
        (void) sd_event_add_time_relative(instance->manager->event, &instance->deadline, CLOCK_MONOTONIC, KILL_GRACE, 0, kill_timed_out, instance);
}

static int stop_timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        Instance *instance = userdata;

        log_event(LOG_WARNING, NULL, instance->record.name, "did not stop in time and is killed");
        instance_event(instance, "instance-killed", json_pack("{s:s}", "reason", "stop timeout"));
        stop_by_force(instance);
        return 0;
}

int instance_stop(Instance *instance, const StopOptions *options, InstanceDone done, void *userdata, Error *err) {
        usec_t timeout = instance->config ? instance->config->stop_timeout : 30 * USEC_PER_SEC;
        bool force = options->force;
        Error ignored = ERROR_NULL;

        instance->record.wanted = options->again;
        (void) store_instance_update(instance->manager->store, &instance->record, &ignored); // the exit writes it again
        error_done(&ignored);
        if (!instance_is_active(instance)) {
                // Only this caller: a deletion that waits for the end of a rebuild waits on.
                if (done)
                        done(userdata, 0, &ignored);
                return 0;
        }
        if (options->timeout)
                timeout = options->timeout;
        instance->again = options->again;
        if (instance->state == INSTANCE_STARTING && instance->init == 0)
                force = true; // nothing of the guest runs that could lose anything
        if (!force)
                instance_thaw(instance);
        // Without somebody to pass the wish on there is no graceful way.
        if (!force)
                force = instance_control_send(instance, CONTROL_STOP, NULL, 0, &ignored) < 0;
        error_done(&ignored);
        instance_set_state(instance, INSTANCE_STOPPING);
        instance_notify(instance, GOAL_RUNNING, -ECANCELED, &(Error) {.code = ERR_CANCELLED, .message = (char *) "it was stopped meanwhile"});
        instance_wait(instance, GOAL_STOPPED, done, userdata);
        instance->deadline = sd_event_source_disable_unref(instance->deadline);
        if (force)
                stop_by_force(instance);
        else
                (void) sd_event_add_time_relative(instance->manager->event, &instance->deadline, CLOCK_MONOTONIC, timeout, 0, stop_timed_out, instance);
        return 0;
}

int instance_clean(Instance *instance, Error *err) {
        _cleanup_free_ char *run_dir = instance_run_dir(instance), *prefix = instance_cgroup_prefix(instance), *name_link = instance_name_link(instance);
        Manager *m = instance->manager;
        Error later = ERROR_NULL;
        int r = 0, k;

        instance_control_close(instance);
        instance_pause_forget(instance, "it stopped meanwhile");
        instance_warm(instance, false);
        instance->exit_source = sd_event_source_disable_unref(instance->exit_source);
        instance->oom_source = sd_event_source_disable_unref(instance->oom_source);
        instance->empty_source = sd_event_source_disable_unref(instance->empty_source);
        instance->deadline = sd_event_source_disable_unref(instance->deadline);
        instance->enter_timer = sd_event_source_disable_unref(instance->enter_timer);
        instance->connect_timer = sd_event_source_disable_unref(instance->connect_timer);
        instance->guest_deadline = sd_event_source_disable_unref(instance->guest_deadline);
        instance->pidfd = close_fd(instance->pidfd);
        instance->kmsg = close_fd(instance->kmsg);
        instance->supervisor = instance->init = instance->guest_pid = 0;
        instance->paused = false;
        if (!instance->box && prefix)
                (void) cgroup_box_open(m->cgroup, prefix, &instance->box, NULL);
        sandbox_instance_down(instance);
        if (instance->box) {
                if (m->commands)
                        command_manager_drop_box(m->commands, instance->box, "the instance was stopped");
                r = cgroup_box_remove(instance->box, err);
                instance->box = cgroup_box_free(instance->box);
        } else if (prefix)
                r = cgroup_host_remove(m->cgroup, prefix, err);
        instance_network_pause(instance);
        k = instance->unplugged ? 0 : network_detach(m->network, instance->record.slot, &later);
        border_link_changed(m, instance->record.slot);
        if (k < 0 && r >= 0) {
                r = k;
                error_move(err, &later);
        }
        error_done(&later);
        if (instance->template_held)
                (void) template_unmount(m->templates, instance->record.template_digest, NULL);
        instance->template_held = false;
        if (run_dir)
                (void) io_remove_tree(AT_FDCWD, run_dir);
        if (name_link)
                (void) unlink(name_link);
        if (r >= 0)
                manager_unwarn(m, "clean", instance->record.name);
        manager_unwarn(m, "guest-helper", instance->record.name); // nothing is left for one to be missing in
        return r;
}

// How it ended decides what follows: asked for, by itself, or badly.
static void judge_exit(Instance *instance, Error *err) {
        bool asked = instance->asked;

        if (instance->failure) {
                (void) error_set(err, ERR_UNAVAILABLE, "%s", instance->failure);
        } else if (!asked && !instance->again && !instance->halted) {
                instance->failure = strdup(instance->told ? "the instance ended unexpectedly" : "hostd-instance was killed");
                (void) error_set(err, ERR_UNAVAILABLE, "%s ended unexpectedly", instance->record.name);
        }
        if (!instance->failure && instance->terminated && !asked) {
                log_event(LOG_NOTICE, LOG_ID_INSTANCE_STOPPED, instance->record.name,
                          "stopped by a signal to hostd-instance (systemctl?), not through hostd; \"hostctl start %s\" starts it again", instance->record.name);
                instance_event(instance, "instance-terminated", NULL);
        } else if (!instance->failure)
                log_event(LOG_INFO, LOG_ID_INSTANCE_STOPPED, instance->record.name, "stopped");
        if (instance->halted && !asked && !instance->again)
                instance->record.wanted = false; // the guest switched itself off, or an operator did: the last state is off
}

static void instance_exited(Instance *instance) {
        Manager *m = instance->manager;
        _cleanup_error_ Error err = ERROR_NULL, clean_err = ERROR_NULL;
        bool again = instance->again && !instance->deleting && !m->stopping;

        judge_exit(instance, &err);
        if (instance_clean(instance, &clean_err) < 0)
                manager_warn(m, "clean", instance->record.name, "%s", error_message(&clean_err, -EIO));
        error_done(&clean_err);
        if (!m->stopping && store_instance_update(m->store, &instance->record, &clean_err) < 0)
                manager_warn(m, "store", instance->record.name, "%s", error_message(&clean_err, -EIO));
        instance->again = false;
        if (instance->failure)
                instance_failed(instance, instance->failure);
        else
                instance_set_state(instance, INSTANCE_STOPPED);
        if (again && !instance->failure && instance_start(instance, NULL, NULL, &err) < 0)
                instance_start_failed(instance, &err);
        if (err.code != ERR_NONE || instance->state == INSTANCE_FAILED)
                instance_notify(instance, GOAL_RUNNING, -EHOSTDOWN, &err);
        instance_notify(instance, GOAL_GUEST, -EHOSTDOWN, &(Error) {.code = ERR_UNAVAILABLE, .message = (char *) "the instance stopped"});
        instance_notify(instance, GOAL_STOPPED, 0, NULL); // a deletion frees the object here: nothing of it may be used below
        manager_replan(m);
}

static int exit_seen(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Instance *instance = userdata;

        // What it said last may still be in the socket.
        if (instance->control_source && instance->control >= 0)
                instance_control_drain(instance);
        (void) waitpid(instance->supervisor, NULL, WNOHANG); // ours only with the fork launcher
        instance_gone(instance);
        return 0;
}

static int rest_gone(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Instance *instance = userdata;
        _cleanup_free_ char *prefix = instance_cgroup_prefix(instance);
        char text[512];

        // Reading arms the poll again; of a group that systemd has removed nothing can be read.
        if (pread(fd, text, sizeof(text), 0) > 0 && prefix && cgroup_host_is_populated(instance->manager->cgroup, prefix))
                return 0;
        instance_exited(instance);
        return 0;
}

static int rest_stays(sd_event_source *source, uint64_t usec, void *userdata) {
        instance_exited(userdata); // what does not die is reported by the cleaning
        return 0;
}

// Most of a guest dies with the supervisor, but not at once: process 1 of systemd alone needs 30 ms and more to close what it watched.
static bool wait_for_rest(Instance *instance) {
        _cleanup_free_ char *prefix = instance_cgroup_prefix(instance);
        Manager *m = instance->manager;
        int fd = prefix ? cgroup_host_events_fd(m->cgroup, prefix) : -ENOMEM;

        if (fd < 0)
                return false;
        if (!cgroup_host_is_populated(m->cgroup, prefix) ||
            sd_event_add_io(m->event, &instance->empty_source, fd, EPOLLPRI, rest_gone, instance) < 0) {
                (void) close_fd(fd);
                return false;
        }
        (void) sd_event_source_set_io_fd_own(instance->empty_source, true);
        (void) sd_event_add_time_relative(m->event, &instance->deadline, CLOCK_MONOTONIC, KILL_GRACE, 0, rest_stays, instance);
        return true;
}

void instance_gone(Instance *instance) {
        instance->exit_source = sd_event_source_disable_unref(instance->exit_source);
        instance->deadline = sd_event_source_disable_unref(instance->deadline);
        instance->asked = instance->state == INSTANCE_STOPPING;
        instance_kill(instance);
        if (!wait_for_rest(instance)) {
                instance_exited(instance);
                return;
        }
        instance_control_close(instance);
        instance_set_state(instance, INSTANCE_STOPPING); // nothing else may begin
}

int instance_watch_exit(Instance *instance, Error *err) {
        int r = sd_event_add_io(instance->manager->event, &instance->exit_source, instance->pidfd, EPOLLIN, exit_seen, instance);

        return r < 0 ? error_set_errno(err, r, "cannot watch hostd-instance") : 0;
}

// The kernel names its victims; the names are the guest's and only shown.
static json_t *oom_victims(Instance *instance) {
        _cleanup_free_ char *prefix = instance_cgroup_prefix(instance), *group = NULL;
        json_t *list = json_array();
        OomVictim victim;

        if (instance->kmsg < 0 || !prefix || asprintf(&group, "/%s", prefix) < 0) {
                group = NULL;
                return list;
        }
        for (unsigned i = 0; i < 16 && oom_next(instance->kmsg, group, &victim) == 0; i++)
                (void) json_array_append_new(list, json_pack("{s:i, s:s, s:s}", "pid", (int) victim.pid, "process", victim.comm, "cgroup", victim.cgroup));
        return list;
}

static int oom_seen(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Instance *instance = userdata;
        CgroupUsage usage;
        char sink[4096];

        (void) !read(fd, sink, sizeof(sink)); // counter or inotify records: only the fact matters
        if (cgroup_box_usage(instance->box, &usage, NULL) < 0 || usage.oom_kills <= instance->oom_seen)
                return 0;
        log_event(LOG_WARNING, LOG_ID_OOM, instance->record.name, "%llu processes were killed because the memory limit was reached",
                  (unsigned long long) (usage.oom_kills - instance->oom_seen));
        instance_event(instance, "oom", json_pack("{s:o, s:I, s:I, s:I}", "victims", oom_victims(instance), "kills", (json_int_t) (usage.oom_kills - instance->oom_seen), "memory_peak",
                                                  (json_int_t) usage.memory_peak_bytes, "total", (json_int_t) usage.oom_kills));
        instance->oom_seen = usage.oom_kills;
        return 0;
}

void instance_watch_oom(Instance *instance) {
        CgroupUsage usage = {0};
        uint32_t events;
        int fd;

        if (cgroup_box_usage(instance->box, &usage, NULL) >= 0)
                instance->oom_seen = usage.oom_kills;
        if (instance->kmsg < 0 && oom_open(&instance->kmsg, NULL) < 0)
                instance->kmsg = -EBADF;
        if (cgroup_box_oom_fd(instance->box, &fd, &events, NULL) < 0)
                return; // the record of each command still tells
        (void) io_set_nonblock(fd, true);
        if (sd_event_add_io(instance->manager->event, &instance->oom_source, fd, events, oom_seen, instance) < 0)
                (void) close_fd(fd);
        else
                (void) sd_event_source_set_io_fd_own(instance->oom_source, true);
}
