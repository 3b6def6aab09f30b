// SPDX-License-Identifier: GPL-2.0-or-later
// Command: one running exec or file operation in an instance, from the request to the record of how it ended.
//
// The record separates what the guest claims (exit, signal) from what the host saw (oom, timeout, cpu, memory). A command ends
// once: by exit, failure to start, deadline, its client's death, or loss of the helper; then its cgroup is killed and removed,
// retried while something in it does not die. Knows no wire: callers give callbacks.
#pragma once

#include "core/guest.h"

typedef struct CommandManager CommandManager;
typedef struct Command Command;

typedef struct CommandRecord {
        int exit;       // 0..255 by the guest's claim, 126/127 when it did not start; -1: killed by a signal, or unknown
        int signal;     // by the guest's claim, or 0
        bool started, oom, timed_out, cancelled;
        uint64_t cpu_usec, memory_peak_bytes; // UINT64_MAX: unknown
        usec_t duration;
        GuestStage stage; // where it failed to start, or 0
        int errnum;       // why, or 0
        char *message;    // a sentence when it did not run to an end of its own, or NULL
} CommandRecord;
void command_record_done(CommandRecord *record);

// Called once, from the event loop (never from within command_start()). The record is valid during the call. The command may
// not be freed in it; it goes by itself when its cgroup is gone.
typedef void (*CommandDoneFn)(Command *command, const CommandRecord *record, void *userdata);

typedef struct CommandRequest {
        const char *instance, *caller; // for lists and the audit
        GuestChannel *channel;
        GuestRequest guest; // id is chosen here when NULL; held: command_permit() lets it go
        const int *fds;     // three, borrowed
        usec_t timeout;     // 0 or USEC_INFINITY: none
        CommandDoneFn done; // may be NULL
        void (*started)(Command *command, void *userdata); // it runs; may be NULL
        bool detached;      // needs no client: goes on without one, also after a restart of hostd
        void *userdata;
} CommandRequest;

typedef struct CommandManagerConfig {
        sd_event *event;
        usec_t kill_retry;   // between attempts to remove a cgroup; 0: 20 ms
        usec_t start_limit;  // from the request until it runs; 0: 30 s
        usec_t orphan_limit; // how long a restored command waits for its client; 0: 30 s
        // After its commands were ended, for the instance's owner; may be NULL.
        void (*channel_gone)(GuestChannel *channel, void *userdata);
        void (*synced)(GuestChannel *channel, void *userdata); // its helper has told of all that it has; may be NULL
        void (*ask)(GuestChannel *channel, const GuestAsk *ask, void *userdata); // no command's, but the channel has one owner; may be NULL
        void (*ready)(Command *command, void *userdata); // all that is missing is the word: store its line; may be NULL
        // Every command that was started or restored, once, whether a client waits or not: audit it, drop its line; may be NULL.
        void (*ended)(Command *command, const CommandRecord *record, void *userdata);
        void *userdata;
} CommandManagerConfig;

int command_manager_new(const CommandManagerConfig *config, CommandManager **ret);
CommandManager *command_manager_free(CommandManager *manager); // forgets; commands run on for the next hostd
DEFINE_CLEANUP(CommandManager, command_manager_free)
// What to put into GuestChannelConfig, with the manager as userdata.
extern const GuestChannelHandlers command_guest_handlers;
// Call before freeing a channel whose instance was stopped: ends its commands ("the instance was stopped").
void command_manager_drop_channel(CommandManager *manager, GuestChannel *channel, const char *why);
// Call before freeing a box, and before it is removed: commands that have ended hold on to it until their group is gone.
void command_manager_drop_box(CommandManager *manager, CgroupBox *box, const char *why);

int command_start(CommandManager *manager, const CommandRequest *request, Command **ret, Error *err);
void command_permit(Command *command);
// NULL if absent or ended; one that ended before its client came back is still found until orphan_limit.
Command *command_find(CommandManager *manager, const char *id);
Command *command_next(CommandManager *manager, Command *after);  // NULL: the first; in order of start; only running ones
int command_signal(Command *command, int signal, Error *err);    // SIGKILL kills the whole cgroup
void command_detach(Command *command); // its client died: no callback any more, all of it is killed
// Its client died, but wants the record all the same: after `grace`, in which what reads from the client may take back what is not whole.
void command_abandon(Command *command, usec_t grace);
void command_leave(Command *command); // of a detached one: its client wants nothing more, and the command goes on
bool command_is_detached(const Command *command);
bool command_is_awaited(const Command *command); // somebody gets its record
// A client (again) waits for a restored command, or for a detached one; -EBUSY if somebody does.
int command_attach(Command *command, CommandDoneFn done, void *userdata);

// One line without a newline, to be stored while the command runs; freed by the caller.
int command_serialize(const Command *command, char **ret);
// After a restart of hostd, between guest_channel_new() and the next turn of the loop.
int command_restore(CommandManager *manager, const char *line, GuestChannel *channel, Command **ret, Error *err);
// The instance's name in such a line, to find its channel; freed by the caller.
int command_line_instance(const char *line, char **ret);

const char *command_id(const Command *command);
const char *command_instance(const Command *command);
const char *command_caller(const Command *command);
const char *command_user(const Command *command);
const char *command_text(const Command *command); // the words, shortened, printable
GuestVerb command_verb(const Command *command);
pid_t command_pid(const Command *command); // 0 before it runs
usec_t command_started_at(const Command *command); // CLOCK_REALTIME
