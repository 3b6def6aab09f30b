// SPDX-License-Identifier: GPL-2.0-or-later
// History: how changes of files below /etc/hostd become commits, each exactly one.
//
// A change carries the text of its file before and after it, taken when the file was written. So a commit holds what its caller did
// and nothing else, however many changes overlap and whatever a person edits meanwhile: the files are not looked at again. What a
// person did to a file before hostd changed it gets a commit of its own first. Many commits are one run of git fast-import.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "state/git.h"

typedef enum ChangeKind {
        CHANGE_EXACT, // where history has something else than `before`, that is committed first, as found
        CHANGE_FOUND, // whatever was there: `before` is not known
        CHANGE_LEAVE, // in a `whole` commit: what history has of it stays
} ChangeKind;

typedef struct HistoryChange {
        struct HistoryChange *next;
        ChangeKind kind;
        char *path;
        char *before, *after; // NULL: no such file
} HistoryChange;

typedef struct HistoryCommit {
        struct HistoryCommit *next; // borrowed; the next one of a list that is written together
        char *author;               // "NAME <uid@host>"
        char *message;
        int64_t when; // seconds of real time
        bool whole;   // `changes` name every file there is: what history has besides was removed
        HistoryChange *changes;
} HistoryCommit;

HistoryChange *history_changes_free(HistoryChange *changes); // the whole list
DEFINE_CLEANUP(HistoryChange, history_changes_free)
// Adds to the end of a list. Two changes of one path become one, and none if the second takes the first back.
int history_note(HistoryChange **changes, const char *path, const char *before, const char *after); // CHANGE_EXACT
int history_note_kind(HistoryChange **changes, ChangeKind kind, const char *path, const char *after);

// Takes the changes over when it succeeds. The message is one line (valid text).
int history_commit_new(const char *author, const char *message, HistoryChange **changes, HistoryCommit **ret, Error *err);
HistoryCommit *history_commit_free(HistoryCommit *commit);
DEFINE_CLEANUP(HistoryCommit, history_commit_free)

// Writes them in their order and sets git's index to the last. A commit without a difference is left out. Blocks. -EINTR: git was
// killed, and whether the commits are there is not known. Otherwise all of them are there or none is.
int history_write(const Git *git, const HistoryCommit *commits, Error *err);
