// SPDX-License-Identifier: GPL-2.0-or-later
// Instance: the runtime side of one instance: slot, processes, cgroup, control socket, state. What is wanted of it is in the
// configuration (borrowed) and in the store (record.wanted).
//
//   stopped -> starting -> running <-> paused -> stopping -> stopped
//
// A verb takes a `done` that is called once, later or at once, with 0 or an error. Verbs on the same goal join each other.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <systemd/sd-event.h>

#include "instance/spec.h"
#include "model/desired.h"
#include "quotas/cgroup.h"
#include "state/store.h"

typedef struct Manager Manager;
typedef struct GuestChannel GuestChannel;

typedef enum InstanceState {
        INSTANCE_STOPPED,
        INSTANCE_STARTING,
        INSTANCE_RUNNING,
        INSTANCE_STOPPING,
        INSTANCE_FAILED, // stopped, and the last start or run ended badly
        _INSTANCE_STATE_MAX,
        _INSTANCE_STATE_INVALID = -EINVAL,
} InstanceState;
const char *instance_state_to_string(InstanceState state);

typedef void (*InstanceDone)(void *userdata, int r, Error *err);

typedef enum InstanceGoal { GOAL_RUNNING, GOAL_STOPPED, GOAL_GUEST, GOAL_PAUSED, _INSTANCE_GOAL_MAX } InstanceGoal;
typedef struct InstanceWaiter {
        struct InstanceWaiter *next;
        InstanceGoal goal;
        InstanceDone done;
        void *userdata;
} InstanceWaiter;

typedef struct Instance {
        struct Instance *next;
        Manager *manager;
        StoreInstance record;
        InstanceConfig *config; // borrowed from manager->desired; NULL: its file is gone ("orphan")
        InstanceState state;
        bool paused, again;     // again: start once more when it has stopped (restart, reboot from inside)
        bool halted;            // the guest shut itself down,
        bool terminated;        // or hostd-instance was told to by somebody else than hostd
        bool told;              // hostd-instance said that init is gone
        bool killed;            // by force: whatever it still says does not count
        bool asked;             // its end was asked for; known when the supervisor is gone
        bool unplugged;         // its network is removed already
        bool warm;              // holds the moves between groups warm
        bool deleting;   // from the request until the object is freed: nothing else may begin
        bool rebuilding; // its root is being emptied by a job
        bool template_held; // a reference to the mounted template
        char *failure;          // why it is in INSTANCE_FAILED
        pid_t supervisor, init, guest_pid;
        int pidfd;              // of the supervisor
        struct Pausing *pausing; // or resuming; NULL: neither is under way
        struct UnitStart *launch; // systemd was asked for the supervisor, which is not there yet
        int control;
        bool guest_ready;
        bool disk_full; // warned of
        CgroupBox *box;
        GuestChannel *guest;
        struct ConsoleSession *consoles;
        uint64_t oom_seen;
        int kmsg; // names of OOM victims; -EBADF where it cannot be read
        unsigned entered;       // how often this start found its group busy
        // For the planner.
        unsigned attempts;      // starts that ended badly
        usec_t window, since;   // monotonic; see plan.h
        bool reported;
        uint64_t wanted_network, applied_network, wanted_limits, applied_limits; // revisions
        usec_t begun;           // monotonic, of the present start
        int64_t traffic_day;    // since 1970; 0: not known yet
        bool exposed;           // what is exposed of it was, in this start
        unsigned traffic_told;  // percent of the day's traffic of which somebody was told
        uint64_t cookie;
        InstanceWaiter *waiters;
        sd_event_source *control_source, *exit_source, *oom_source, *empty_source, *deadline, *enter_timer, *connect_timer, *guest_deadline;
} Instance;

typedef struct InstanceList { Instance *first; size_t n; } InstanceList;
Instance *instance_list_find(const InstanceList *list, const char *name); // NULL if absent
Instance *instance_list_by_slot(const InstanceList *list, uint16_t slot);
// New object in the list; state stopped. NULL on OOM.
Instance *instance_new(Manager *manager, const StoreInstance *record, InstanceConfig *config);
// Forgets the object (the kernel's state stays); unlinks itself.
Instance *instance_free(Instance *instance);

bool instance_is_active(const Instance *instance); // starting, running or stopping
// Starting or running: what is changed is told to the kernel at once. What is stopping loses its interface and group meanwhile.
bool instance_is_live(const Instance *instance);
void instance_wait(Instance *instance, InstanceGoal goal, InstanceDone done, void *userdata);
// After GOAL_STOPPED the instance may be gone: its deletion waits for that.
void instance_notify(Instance *instance, InstanceGoal goal, int r, const Error *err);
void instance_set_state(Instance *instance, InstanceState state);
char *instance_run_dir(const Instance *instance); // caller frees; NULL on OOM
char *instance_name_link(const Instance *instance); // RUN/by-name/NAME
char *instance_disk_path(const Instance *instance); // "instances/NAME"
char *instance_cgroup_prefix(const Instance *instance);
void instance_failed(Instance *instance, const char *why); // state, warning, count for the back-off
void instance_start_failed(Instance *instance, const Error *err); // the same, of a start that nobody waits for
void instance_failure_over(Instance *instance); // takes the warnings of both back
void instance_event(Instance *instance, const char *type, json_t *detail);

// Storage: directories with their quota; all or nothing.
int instance_disk_create(Instance *instance, Error *err);
// Fresh upper and work; on failure the old ones are in place. Slow: in a job.
int instance_disk_rebuild(const Instance *instance, const char *digest, Error *err);
void instance_disk_repair(Instance *instance); // at start: after a rebuild that was cut short the root is the old one or the new one
int instance_disk_remove(Instance *instance, Error *err); // to the trash; the space comes back in a job

void instance_disk_watch(Manager *manager); // warns of instances that have used up what they may
bool instance_disk_is_in_trash(Manager *manager, uint16_t slot); // files of this slot's ids are still there
void instance_disk_purge_leftovers(Manager *manager); // at start and now and then: what is still in the trash

// Verbs. They return 0 when the request was taken (then `done` will be called), or fail at once without calling it.
int instance_start(Instance *instance, InstanceDone done, void *userdata, Error *err);
typedef struct StopOptions { bool force, again; usec_t timeout; } StopOptions; // timeout 0: the configuration's
int instance_stop(Instance *instance, const StopOptions *options, InstanceDone done, void *userdata, Error *err);
int instance_pause(Instance *instance, bool paused, InstanceDone done, void *userdata, Error *err);
void instance_thaw(Instance *instance); // a frozen guest hears nothing
void instance_pause_forget(Instance *instance, const char *why);
// Reconnects to a supervisor that outlived the last hostd. -ENOENT if there is none.
int instance_adopt(Instance *instance, Error *err);
// Kernel state of an instance that does not run: cgroups, veth, rules, run directory. Idempotent.
int instance_clean(Instance *instance, Error *err);
// Live application of what the configuration says.
int instance_apply_limits(Instance *instance, bool force, Error *err);
int instance_apply_network(Instance *instance, Error *err);

// Network (instance_network.c).
int instance_network_apply(Instance *instance, Error *err); // all but the policies, and before them
int instance_network_cut(Instance *instance, bool cut, Error *err); // stays so until taken back, whatever stops meanwhile
int instance_network_lead(Instance *instance, Error *err); // to the border, as far as it is there
bool instance_network_is_cut(const Instance *instance);
void instance_network_look(Manager *manager); // writes down the traffic used, begins days, tells of what is used up
void instance_network_pause(Instance *instance); // before its slot is detached: what was used is written down
// What is kept by its name: before that is free, and before it is its own. An error keeps it from being either.
int instance_network_forget(Instance *instance, Error *err);

// Control socket (instance_control.c).
int instance_control_connect(Instance *instance, Error *err); // retries by timer while the supervisor starts
int instance_control_send(Instance *instance, ControlType type, const int *fds, size_t n_fds, Error *err);
int instance_control_send_named(Instance *instance, ControlType type, const char *text, int fd, Error *err); // fd: -EBADF for none
void instance_control_drain(Instance *instance); // handles what has arrived
void instance_control_close(Instance *instance);
int instance_watch_exit(Instance *instance, Error *err);
void instance_watch_oom(Instance *instance);
void instance_gone(Instance *instance); // the supervisor is gone: ends the rest, cleans, then tells everybody
void instance_warm(Instance *instance, bool warm); // from the beginning of a start until it runs or has failed
void instance_kill(Instance *instance); // all its processes at once, the supervisor's too
// A start that fails when something of it runs already: ends like any other end, and whoever waits is told `why`.
void instance_abort(Instance *instance, const char *why);
