// SPDX-License-Identifier: GPL-2.0-or-later
// Commits: the queue between what changes files below /etc/hostd and git, which may take its time.
//
// One git child runs at a time; what is asked for meanwhile waits, and the next child writes all of it, each as a commit of its own.
// What failed stays in the queue and is tried again with what comes next, or by commits_retry(). Who asked is told at the first try.
#pragma once

#include <systemd/sd-event.h>

#include "state/confdir.h"

typedef struct Commits Commits;
typedef void (*CommitDone)(void *userdata, int r, Error *err);

typedef struct CommitAsk {
        const char *author; // "NAME <uid@host>"
        const char *message;
        bool whole;          // every file as it is now, instead of what was written through the ConfDir since the last commit
        char *const *except; // of a whole one: paths that are left as history has them
        CommitDone done;     // may be NULL, may be called at once; success also where there is no history
        void *userdata;
} CommitAsk;

// The end of each child: 0, CONFDIR_NO_HISTORY or an error. For warnings.
typedef void (*CommitsReport)(void *userdata, int r, const Error *err);

// Event and directory must outlive it.
int commits_new(sd_event *event, ConfDir *dir, CommitsReport report, void *userdata, Commits **ret);
void commits_add(Commits *commits, const CommitAsk *ask);
void commits_retry(Commits *commits);
// Tells all who wait that hostd ends. A child that runs goes on by itself.
void commits_stop(Commits *commits);
Commits *commits_free(Commits *commits);
DEFINE_CLEANUP(Commits, commits_free)
