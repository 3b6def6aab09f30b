// SPDX-License-Identifier: GPL-2.0-or-later
// Instance, starting: everything the host must have in place before the guest's init runs, in one order, undone as a whole.
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "core/approvals.h"
#include "core/border_link.h"
#include "core/build_wire.h"
#include "core/doctor.h"
#include "core/expose.h"
#include "core/launcher.h"
#include "core/manager.h"
#include "core/policy_set.h"
#include "core/sandbox_network.h"

#define START_TIMEOUT (60 * USEC_PER_SEC)
#define ENTER_PAUSE (5 * USEC_PER_MSEC)
#define ENTER_MAX 400

static int no_configuration(const Instance *instance, Error *err) {
        return error_set(err, ERR_BUSY, "%s has no valid configuration file: restore or correct instances.d/%s.conf, or delete it", instance->record.name,
                         instance->record.name);
}

int instance_apply_network(Instance *instance, Error *err) {
        _cleanup_(policy_set_done) PolicySet policies = POLICY_SET_NULL;
        Manager *m = instance->manager;
        uint16_t slot = instance->record.slot;
        int r;

        if (!instance->config)
                return no_configuration(instance, err);
        r = instance_policies(instance, &policies, err);
        if (r < 0)
                return r;
        r = network_attach(m->network, slot, err);
        if (r < 0)
                return error_wrap(err, "network");
        expose_review(instance);
        r = instance_network_apply(instance, err);
        if (r < 0)
                return error_wrap(err, "network");
        r = network_set_policy(m->network, slot, policies.list, policies.n, err);
        if (r < 0)
                return error_wrap(err, "network policy");
        border_link_changed(m, slot);
        sandbox_network_apply(instance);
        instance->applied_network = instance->wanted_network;
        return 0;
}

// The overlay writes into its work directory when it is mounted. Until the instance runs, a full disk has room for that, or what
// filled it could never be entered again to remove it.
#define DISK_START_ROOM (8ULL << 20)

static uint64_t disk_bytes(const Instance *instance, const Limits *limits) {
        bool runs = instance->state == INSTANCE_RUNNING || instance->state == INSTANCE_STOPPING;

        if (!instance->manager->disk.bytes)
                return UINT64_MAX;
        return limits->value[LIMIT_DISK] + (runs ? 0 : DISK_START_ROOM);
}

int instance_apply_limits(Instance *instance, bool force, Error *err) {
        _cleanup_free_ char *path = instance_disk_path(instance);
        _cleanup_strv_ char **allowed = NULL;
        Manager *m = instance->manager;
        const Limits *limits;
        int r;

        if (!instance->config)
                return no_configuration(instance, err);
        if (!path)
                return error_set_errno(err, ENOMEM, "cannot apply the limits");
        limits = &instance->config->limits;
        r = doctor_allowed(m, instance->config, &allowed, err);
        if (r < 0)
                return r;
        if (instance->box) {
                r = cgroup_box_apply(instance->box, limits, allowed, force, err);
                if (r < 0)
                        return r;
        }
        r = disk_set(&m->disk, path, instance->record.slot, disk_bytes(instance, limits),
                     m->disk.inodes ? limits->value[LIMIT_INODES] : UINT64_MAX, err);
        if (r >= 0)
                instance->applied_limits = instance->wanted_limits;
        return r;
}

static int spec_fill(Instance *instance, const char *run_dir, const char *template_dir, InstanceSpec *spec) {
        Manager *m = instance->manager;
        const char *profile = doctor_apparmor_profile(m);

        spec->slot = instance->record.slot;
        spec->id_base = idpool_slot_base(&m->pool, spec->slot);
        spec->id_count = SLOT_IDS;
        spec->name = strdup(instance->record.name);
        spec->run_dir = strdup(run_dir);
        spec->template_dir = strdup(template_dir);
        spec->cgroup_prefix = instance_cgroup_prefix(instance);
        spec->apparmor_profile = profile ? strdup(profile) : NULL;
        spec->open_files = doctor_open_files(instance->config->limits.value[LIMIT_OPEN_FILES]);
        spec->stop_seconds = (uint32_t) (instance->config->stop_timeout / USEC_PER_SEC);
        spec->read_only = instance->config->read_only;
        spec->unified_cgroup = cgroup_host_is_unified(m->cgroup);
        spec->network = true;
        spec->wait_for_hello = m->systemd;
        if (asprintf(&spec->root_dir, "%s/instances/%s", m->paths.state, instance->record.name) < 0)
                spec->root_dir = NULL;
        if (asprintf(&spec->log_file, "%s/instances/%s/console.log", m->paths.state, instance->record.name) < 0)
                spec->log_file = NULL;
        if (!spec->name || !spec->run_dir || !spec->template_dir || !spec->cgroup_prefix || !spec->root_dir || !spec->log_file)
                return -ENOMEM;
        return 0;
}

static int write_spec(Instance *instance, const char *run_dir, const char *template_dir, Error *err) {
        _cleanup_(instance_spec_done) InstanceSpec spec = {0};
        _cleanup_free_ char *path = NULL, *used = NULL;
        int r;

        r = spec_fill(instance, run_dir, template_dir, &spec);
        if (r < 0 || asprintf(&path, "%s/spec.json", run_dir) < 0) {
                path = NULL;
                return error_set_errno(err, ENOMEM, "cannot describe the instance");
        }
        if (asprintf(&used, "%s/started", run_dir) < 0) {
                used = NULL;
                return error_set_errno(err, ENOMEM, "cannot describe the instance");
        }
        (void) unlink(used); // of a start whose directory could not be removed
        if (spec.id_base == 0)
                return error_set(err, ERR_QUOTA, "the root line of /etc/subuid has no ids left for slot %u", spec.slot);
        return instance_spec_save(&spec, path, err);
}

// RUN/by-name/NAME -> ../instances/iNNNN: what the unit hostd-instance@NAME.service gives to hostd-instance.
static int name_run_dir(Instance *instance, Error *err) {
        _cleanup_free_ char *link = instance_name_link(instance), *target = NULL, *dir = NULL;

        if (!link || asprintf(&target, "../instances/i%04x", instance->record.slot) < 0) {
                target = NULL;
                return error_set_errno(err, ENOMEM, "cannot name the run directory");
        }
        if (asprintf(&dir, "%s/by-name", instance->manager->paths.run) < 0) {
                dir = NULL;
                return error_set_errno(err, ENOMEM, "cannot name the run directory");
        }
        (void) mkdir(dir, 0700);
        (void) unlink(link);
        return symlink(target, link) < 0 ? error_set_errno(err, errno, "cannot name the run directory") : 0;
}

static int prepare(Instance *instance, const char *run_dir, Error *err) {
        _cleanup_free_ char *prefix = NULL, *template_dir = NULL;
        Manager *m = instance->manager;
        int r;

        r = doctor_check_start(m, instance->config, err);
        if (r < 0)
                return r;
        if (build_wire_by_slot(m, instance->record.slot)) // of a pool with no room behind the instances
                return error_set(err, ERR_BUSY, "a template is built with the address of %s: try again when that is done", instance->record.name);
        instance->record.generation++;
        r = store_instance_update(m->store, &instance->record, err);
        if (r < 0)
                return r;
        if (!(prefix = instance_cgroup_prefix(instance)))
                return error_set_errno(err, ENOMEM, "cannot start");
        r = template_mount(m->templates, instance->record.template_digest, &template_dir, err);
        if (r < 0)
                return error_wrap(err, "template");
        instance->template_held = true;
        r = io_mkdir_p(AT_FDCWD, run_dir, 0700);
        if (r < 0)
                return error_set_errno(err, r, "cannot make %s", run_dir);
        if (!m->systemd) {
                r = cgroup_box_create(m->cgroup, prefix, &instance->box, err);
                if (r < 0)
                        return error_wrap(err, "cgroup");
                r = instance_apply_limits(instance, true, err);
                if (r < 0)
                        return error_wrap(err, "limits");
        }
        r = write_spec(instance, run_dir, template_dir, err);
        return r < 0 ? r : name_run_dir(instance, err);
}

static int watch(Instance *instance, Error *err) {
        int r;

        instance_watch_oom(instance);
        r = instance_watch_exit(instance, err);
        return r < 0 ? r : instance_control_connect(instance, err);
}

// Under systemd the group exists once the unit runs: the supervisor waits for the limits (it starts nothing before HELLO).
// -EBUSY: not yet, see cgroup_box_create().
static int enter(Instance *instance, Error *err) {
        _cleanup_free_ char *prefix = instance_cgroup_prefix(instance);
        int r = prefix ? cgroup_box_create(instance->manager->cgroup, prefix, &instance->box, err) : error_set_errno(err, ENOMEM, "cannot start");

        // systemd names a number; only the kernel knows whose it is by now.
        if (r >= 0 && !cgroup_box_has(instance->box, instance->supervisor))
                return error_set(err, ERR_UNAVAILABLE, "hostd-instance ended at once");
        if (r >= 0)
                r = instance_apply_limits(instance, true, err);
        if (r < 0) {
                (void) error_wrap(err, "limits");
                return r;
        }
        instance_watch_oom(instance);
        return instance_control_connect(instance, err);
}

static int enter_again(sd_event_source *source, uint64_t usec, void *userdata);

// What a process takes that is on its way out is the kernel's affair: nobody else waits for it.
static void enter_or_wait(Instance *instance) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = enter(instance, &err);

        if (r == -EBUSY && !instance->box && ++instance->entered < ENTER_MAX &&
            sd_event_add_time_relative(instance->manager->event, &instance->enter_timer, CLOCK_MONOTONIC, ENTER_PAUSE, 1, enter_again, instance) >= 0)
                return;
        if (r < 0)
                instance_abort(instance, error_message(&err, r));
}

static int enter_again(sd_event_source *source, uint64_t usec, void *userdata) {
        Instance *instance = userdata;

        instance->enter_timer = sd_event_source_disable_unref(instance->enter_timer);
        if (instance->state == INSTANCE_STARTING) // otherwise its end is under way
                enter_or_wait(instance);
        return 0;
}

static void launched(Instance *instance, int r, Error *err) {
        _cleanup_error_ Error later = ERROR_NULL;

        if (r < 0) {
                if (instance->state == INSTANCE_STARTING && !instance->failure)
                        instance->failure = strdup(error_message(err, r));
                instance_gone(instance);
                return;
        }
        r = instance_watch_exit(instance, &later);
        if (instance->state != INSTANCE_STARTING) { // it was stopped meanwhile
                if (r >= 0)
                        instance_kill(instance);
                else
                        instance_gone(instance);
        } else if (r >= 0)
                enter_or_wait(instance);
        else
                instance_abort(instance, error_message(&later, r));
}

// While the supervisor prepares itself; init waits for an interface, which is made behind all this.
static int fence(Instance *instance, Error *err) {
        Manager *m = instance->manager;
        // What is left of an earlier start may be on its way out in a job: it must not be taken for this one's.
        int r = network_unplug(network_interface(m->network, instance->record.slot), err);

        return r < 0 ? r : instance_apply_network(instance, err);
}

static int start_timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        Instance *instance = userdata;

        instance->deadline = sd_event_source_disable_unref(instance->deadline);
        if (!instance->failure)
                instance->failure = strdup("the guest's init did not run within 60 s");
        instance_kill(instance);
        return 0;
}

int instance_start(Instance *instance, InstanceDone done, void *userdata, Error *err) {
        _cleanup_free_ char *run_dir = instance_run_dir(instance);
        _cleanup_error_ Error later = ERROR_NULL;
        Error ignored = ERROR_NULL;
        int r;

        if (!instance->config)
                return no_configuration(instance, err);
        if (instance->deleting || instance->rebuilding || instance->state == INSTANCE_STOPPING)
                return error_set(err, ERR_BUSY, "%s is being %s", instance->record.name,
                                 instance->deleting ? "deleted" : instance->rebuilding ? "rebuilt" : "stopped");
        if (!run_dir)
                return error_set_errno(err, ENOMEM, "cannot start %s", instance->record.name);
        if (instance->state == INSTANCE_RUNNING || instance->state == INSTANCE_STARTING) {
                instance->record.wanted = true;
                instance_wait(instance, GOAL_RUNNING, done, userdata);
                if (instance->state == INSTANCE_RUNNING)
                        instance_notify(instance, GOAL_RUNNING, 0, NULL);
                return 0;
        }
        free(TAKE_PTR(instance->failure));
        instance->begun = clock_monotonic();
        instance->entered = 0;
        instance->again = instance->halted = instance->terminated = instance->told = instance->paused = instance->killed = instance->unplugged = false;
        instance_warm(instance, true);
        r = prepare(instance, run_dir, err);
        if (r >= 0)
                r = launcher_start(instance, run_dir, launched, err);
        if (r < 0) {
                (void) instance_clean(instance, &ignored);
                error_done(&ignored);
                return error_wrap(err, "cannot start %s", instance->record.name);
        }
        instance->record.wanted = true;
        instance_set_state(instance, INSTANCE_STARTING);
        instance_wait(instance, GOAL_RUNNING, done, userdata);
        (void) sd_event_add_time_relative(instance->manager->event, &instance->deadline, CLOCK_MONOTONIC, START_TIMEOUT, 0,
                                          start_timed_out, instance);
        r = r == LAUNCHER_STARTED ? watch(instance, &later) : 0;
        if (r >= 0)
                r = fence(instance, &later);
        if (r < 0)
                instance_abort(instance, error_message(&later, r));
        return 0;
}
