// SPDX-License-Identifier: GPL-2.0-or-later
// ConfDir: /etc/hostd as a git repository. Each change made through hostd is one commit; the caller's name is the author.
//
// git runs as a child with a fixed argument vector, no hooks, no pager, no user or system configuration. Writing is synchronous
// (atomic rename) and notes what changed; committing is asynchronous: confdir_commit() starts a child and the caller waits on its
// pidfd, so the event loop never blocks. One child runs at a time; it may be given many commits.
//
// Without git, or with a repository that git refuses, there is no history: files are read and written all the same.
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "state/history.h"

typedef struct ConfDir ConfDir;

// Makes the folders (0755, files 0644) and the repository when missing. Synchronous (start-up). CONFDIR_NO_HISTORY: opened, but
// without a history; confdir_no_history() says why.
enum { CONFDIR_NO_HISTORY = 1 };
int confdir_open(const char *path, ConfDir **ret, Error *err);
ConfDir *confdir_free(ConfDir *dir);
DEFINE_CLEANUP(ConfDir, confdir_free)
int confdir_fd(const ConfDir *dir); // borrowed
const char *confdir_no_history(const ConfDir *dir); // NULL: there is one
bool confdir_path_is_ours(const char *path);

// Relative paths only: hostd.conf, {instances,policies,templates}.d/NAME.conf; anything else is refused.
int confdir_read(ConfDir *dir, const char *path, char **ret, Error *err); // ERR_NOT_FOUND
int confdir_write(ConfDir *dir, const char *path, const char *text, Error *err);
int confdir_remove(ConfDir *dir, const char *path, Error *err);

// What was written and removed since the last call, for a commit. The caller owns it.
HistoryChange *confdir_take_changes(ConfDir *dir);
bool confdir_has_changes(const ConfDir *dir); // NULL: no
// Every file as it is now, for a `whole` commit. Those in `except`, and what is no readable text, are left as history has them.
int confdir_snapshot(ConfDir *dir, char *const *except, HistoryChange **ret, Error *err);

// Writes the list of commits. ERR_BUSY while another child runs: try again when its pidfd says so. The child is the caller's to wait
// for; its status goes to confdir_commit_result(), which returns 0, CONFDIR_NO_HISTORY (nothing was committed), -EINTR if git was
// killed (so that nobody knows), or another error. What git says goes to standard error.
int confdir_commit(ConfDir *dir, const HistoryCommit *commits, pid_t *ret_pid, int *ret_pidfd, Error *err);
int confdir_commit_result(ConfDir *dir, int wait_status, Error *err);
// Synchronous readers, run in a forked job by the caller (they may take tens of milliseconds).
int confdir_log(ConfDir *dir, unsigned max, char **ret_text, Error *err); // "REV DATE AUTHOR SUBJECT" lines, newest first
// The full name of a commit. Revisions are 4..40 hex digits, "HEAD" or "HEAD~N"; ERR_NOT_FOUND if there is none.
int confdir_resolve(ConfDir *dir, const char *rev, char **ret, Error *err);
// The text of `path` after the n-th newest commit that wrote it, down to its last removal (hostd.conf: all of them). NULL: there is none,
// or history cannot be read. Caller frees.
char *confdir_earlier(ConfDir *dir, const char *path, unsigned n);
// What the commit `rev` changed; rev NULL: what the next commit would, new files included.
int confdir_diff(ConfDir *dir, const char *rev, char **ret_text, Error *err);
// Puts the files of `rev` in place, each whole, and removes those that it did not have (work tree only, no commit). What was not
// committed is overwritten: commit first.
int confdir_checkout(ConfDir *dir, const char *rev, Error *err);
