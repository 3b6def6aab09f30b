// SPDX-License-Identifier: GPL-2.0-or-later
// Command: what its two files share; nobody else includes this.
#pragma once

#include "core/command.h"

typedef enum CommandState {
        COMMAND_STATE_STARTING, // sent; the child is not yet in its cgroup, or waits there
        COMMAND_STATE_RUNNING,
        COMMAND_STATE_ENDED, // the record is final; the cgroup goes, or a restored client may still fetch the record
} CommandState;

struct Command {
        CommandManager *manager;
        Command *prev, *next;
        CommandState state;
        char id[GUEST_ID_MAX];
        char *instance, *caller, *user, *text;
        char *word, *place; // for sentences: argv[0]; the path or the working directory
        GuestVerb verb;
        GuestChannel *channel; // NULL once it is gone
        CgroupBox *box;
        pid_t pid;
        int pidfd;
        bool has_group;   // commands/ID exists
        bool stubborn;    // which could not be removed: something in it does not die
        bool foreign;     // something that is not ours may be in it: removed, never killed
        bool unconfirmed; // restored, and the helper has not said that it lives
        bool orphan;      // restored, and no client came yet
        bool delivered;   // the record was handed out
        bool detached;    // nobody need wait for it
        usec_t begun, started_at;                // monotonic, realtime
        usec_t deadline, start_by, orphan_until, abandon_at; // monotonic
        usec_t report_by;                        // the process is dead: when we stop waiting for the helper's word
        usec_t kill_at;                          // of a login: when TERM was not enough
        sd_event_source *timer, *watch, *deliver;
        CommandDoneFn done;
        void (*started)(Command *command, void *userdata);
        void *userdata;
        CommandRecord record;
};

void command_record_exit(CommandRecord *record, int wait_status);
void command_record_failed(CommandRecord *record, const Command *command, GuestStage stage, int errnum);
char *command_summary(char *const *argv);
int command_describe(Command *command, const CommandRequest *request);
