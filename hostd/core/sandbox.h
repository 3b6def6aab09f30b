// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox: a disposable place for untrusted work within an instance, with a lease. It is a small instance: a control group of its own in the
// instance's box, and a channel of its own to the hostd-guest that is process 1 inside, so that commands run in either by the same code.
//
//   creating -> running <-> paused -> ended -> forgotten
//
// From any state an end leads to "ended", whose cause stays known for the lease's grace. Its line in the store is there before anything of it is in the
// kernel and goes when nothing of it is any more: whatever a hostd that died had begun, the next one finds and ends. Deletion waits for nothing but
// the kernel.
#pragma once

#include <jansson.h>
#include <systemd/sd-event.h>

#include "core/guest.h"
#include "core/instance.h"
#include "core/sandbox_lease.h"

#define SANDBOX_ID_SIZE 12 // characters: "sb" and ten more
#define SANDBOX_GRACE (600 * USEC_PER_SEC)

typedef enum SandboxState { SANDBOX_CREATING, SANDBOX_RUNNING, SANDBOX_PAUSED, SANDBOX_ENDED, _SANDBOX_STATE_MAX, _SANDBOX_STATE_INVALID = -EINVAL } SandboxState;
const char *sandbox_state_to_string(SandboxState state);
SandboxState sandbox_state_from_string(const char *text);

// Why it ended.
typedef enum SandboxCause {
        SANDBOX_CAUSE_NONE,
        SANDBOX_CAUSE_DELETED,
        SANDBOX_CAUSE_DEADLINE,
        SANDBOX_CAUSE_IDLE,
        SANDBOX_CAUSE_OOM,      // it reached its memory limit
        SANDBOX_CAUSE_OOM_OUTSIDE, // it did not: what is around it had no more memory, and the kernel took it for that
        SANDBOX_CAUSE_EXITED,   // its process 1 or its runtime ended without being asked to
        SANDBOX_CAUSE_INSTANCE, // its instance was stopped or died
        SANDBOX_CAUSE_FAILED,   // it was never running
        SANDBOX_CAUSE_LOST,     // a restart of hostd did not find it again
        _SANDBOX_CAUSE_MAX,
        _SANDBOX_CAUSE_INVALID = -EINVAL,
} SandboxCause;
const char *sandbox_cause_to_string(SandboxCause cause);
SandboxCause sandbox_cause_from_string(const char *text);

typedef struct SandboxSettings { // borrowed by sandbox_create()
        const char *runtime, *workspace, *key, *caller; // workspace, key: NULL for none
        json_t *labels;
        bool root;
        Limits limits;
        usec_t run_time;              // of each command in it; 0: none
        usec_t deadline, idle, grace; // spans; 0: none
        const char *network;          // see sandbox_network_parse(); NULL: none
        const char *entry;            // a command for sh that begins with it and runs on, or NULL
        const char *probe;            // a command for sh, or NULL
        unsigned probe_port;          // on which something is to listen; 0: none. Before the command, if there are both
        usec_t probe_time;
} SandboxSettings;

typedef struct SandboxWaiter {
        struct SandboxWaiter *next;
        InstanceDone done;
        void *userdata;
        bool gone; // for its removal, else for the end of its creation
} SandboxWaiter;

typedef struct Sandbox {
        struct Sandbox *next;
        Manager *manager;
        char id[GUEST_ID_MAX], instance[33];
        char *runtime, *workspace, *key, *caller; // owned
        json_t *labels;                          // owned
        bool root;
        Limits limits;
        usec_t run_time;
        char *network; // as it was asked for; NULL: none; owned
        uint16_t number; // of its network, of the last one if it has none
        SandboxState state;
        SandboxCause cause;
        char *message; // a sentence about its end, or NULL; owned
        SandboxLease lease;
        usec_t created, ended; // realtime
        uint64_t memory_peak, cpu_usec; // at its end; UINT64_MAX: unknown
        // What is in the kernel.
        bool restoring; // of a former hostd, and not found yet
        bool verified;  // what answers on its channel is in its group
        bool has_group, forget; // forget: as soon as the group is gone
        CgroupBox *box; // its own
        GuestChannel *channel, *dying; // dying: cut off, and freed from the loop: its own handlers may be the cause
        GuestOwner owner;
        struct SandboxNetwork *wire; // NULL: none
        unsigned interface; // of a wire that is being removed
        usec_t wire_cut;    // monotonic
        char *entry, *probe; // owned; NULL: none, or it has begun
        unsigned probe_port; // 0: none, or something listens
        usec_t probe_time;
        int errors; // what its runtime has to say; read once, when it failed
        unsigned oom_looks;
        SandboxWaiter *waiters;
        struct SandboxPausing *pausing;
        sd_event_source *by_realtime, *by_boottime, *limit, *sweep, *oom, *oom_again, *probing;
} Sandbox;

// Rows of the runtimes that are there: a sentence for others. Pure.
int sandbox_runtime_check(const char *runtime, Error *err);

Sandbox *sandbox_find(const Manager *manager, const char *id); // NULL if absent
Sandbox *sandbox_find_key(const Manager *manager, const char *instance, const char *key);
unsigned sandbox_count(const Manager *manager, const char *instance); // that have not ended
bool sandbox_is_alive(const Sandbox *sandbox);
// The instance's name and the id, as commands know the place where they run. Caller frees; NULL on OOM.
char *sandbox_place(const Sandbox *sandbox);

// `done` is called later, once: it runs, or never will. ERR_QUOTA, ERR_BUSY without calling it.
int sandbox_create(Instance *instance, const SandboxSettings *settings, InstanceDone done, void *userdata, Sandbox **ret, Error *err);
void sandbox_wait(Sandbox *sandbox, InstanceDone done, void *userdata); // for one that is being created
// Everything of it is killed at once; the object stays for the lease's grace. In any state; the first cause counts.
void sandbox_end(Sandbox *sandbox, SandboxCause cause, const char *message);
// The same, and it is forgotten. `done` when nothing of it is left. In any state, as often as anybody likes.
void sandbox_delete(Sandbox *sandbox, InstanceDone done, void *userdata);
int sandbox_renew(Sandbox *sandbox, usec_t span, Error *err); // from now; may be shorter than before
int sandbox_pause(Sandbox *sandbox, bool paused, InstanceDone done, void *userdata, Error *err);
void sandbox_touch(Manager *manager, const char *place); // a command in it began or ended
void sandbox_oom(Manager *manager, const char *place);   // one in it was killed for memory: all of it goes
void sandbox_arm(Sandbox *sandbox);
unsigned sandbox_commands(const Sandbox *sandbox); // that run in it
void sandbox_hold(Sandbox *sandbox); // its idle clock, while commands run in it or it stands still
void sandbox_made(Sandbox *sandbox);  // all of it is there: it is probed, or ready
void sandbox_ready(Sandbox *sandbox); // it runs, and its maker is told
// sandbox_wire.c: its network.
#define SANDBOX_NETWORK_NONE "none"
#define SANDBOX_NETWORK_INSTANCE "instance"
// "none", "instance" or names of policies with commas between them. *ret: those, NULL for the words. Pure.
int sandbox_network_parse(const char *text, char ***ret, Error *err);
int sandbox_wire_check(const Manager *manager, const char *text, Error *err); // and these policies are there; NULL is none
int sandbox_wire_new(Sandbox *sandbox, Error *err);  // its number, and its policies in force; no wire yet
void sandbox_wire_begin(Sandbox *sandbox);           // its process 1 was verified
void sandbox_wire_adopt(Sandbox *sandbox);           // of an earlier hostd; its instance's network is there
void sandbox_wire_cut(Sandbox *sandbox);             // nothing passes from now on
void sandbox_wires_cut(Instance *instance);          // of all in it, which die; else its network's end would remove one after the other, in the loop
bool sandbox_wire_lingers(const Sandbox *sandbox);         // after that: the kernel still has it
void sandbox_wire_describe(const Sandbox *sandbox, json_t *object);
// sandbox_probe.c
void sandbox_probe_begin(Sandbox *sandbox);
// sandbox_pause.c
void sandbox_pause_forget(Sandbox *sandbox, const char *why);
void sandbox_pause_done(Sandbox *sandbox); // without a word
void sandbox_notify(Sandbox *sandbox, bool gone, int r, const Error *err);
void sandbox_event(Sandbox *sandbox, const char *type, json_t *detail);

// Its channel (the manager of commands tells).
bool sandbox_channel_synced(Manager *manager, GuestChannel *channel); // whether it is a sandbox's
bool sandbox_channel_gone(Manager *manager, GuestChannel *channel);

// Instances.
void sandbox_helper_up(Instance *instance);     // its helper answers: what it has of ours is no stray
void sandbox_forget_instance(Manager *manager, const char *name); // before its name is another's
void sandbox_instance_down(Instance *instance); // its box is about to go, and with it all that is in it

// sandbox_keep.c: over a restart of hostd.
int sandbox_load(Manager *manager, Error *err); // the store's lines, before instances are adopted
void sandbox_keep(Sandbox *sandbox);            // hostd-instance gets a copy of the channel
void sandbox_unkeep(Instance *instance, const char *id);
void sandbox_kept(Instance *instance, const char *id, int fd); // it hands one back; owns fd. Without an id: that was all
void sandbox_sweep(Manager *manager); // at start: those of instances that do not run
void sandbox_free_all(Manager *manager);

// sandbox_limit.c: pure. What its parameters ask for, by the names of the limits; no more than its instance has, or a sentence that names it.
int sandbox_limits_of(const json_t *parameters, const Limits *instance, Limits *ret, Error *err);
void sandbox_limits_describe(const Limits *limits, json_t *object);
// sandbox_record.c: pure. The end of what its runtime had to say, in one printable line; NULL: nothing. Caller frees.
#define SANDBOX_SAID_MAX 300 // bytes; more when some are escaped
char *sandbox_said(const char *bytes, size_t n);

// sandbox_record.c
int sandbox_save(Sandbox *sandbox, Error *err);
void sandbox_unsave(Sandbox *sandbox);
json_t *sandbox_json(const Sandbox *sandbox); // what the store has
int sandbox_parse(const char *text, Sandbox **ret); // pure. -EINVAL for what this program did not write
json_t *sandbox_describe(Sandbox *sandbox); // for people
Sandbox *sandbox_free(Sandbox *sandbox);
DEFINE_CLEANUP(Sandbox, sandbox_free)
