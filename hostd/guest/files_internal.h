// SPDX-License-Identifier: GPL-2.0-or-later
// Files, inside: what the verbs share. All run as the user, in a child of their own.
#pragma once

#include <stdbool.h>

#include "guest/request.h"

#define FILES_DEPTH_MAX 512 // each level holds a descriptor
#define FILES_TEMP_MAX 64

typedef struct FilesOwner { // -1: as it is
        uid_t uid;
        gid_t gid;
} FilesOwner;

// openat2, again when a rename came between and RESOLVE_BENEATH wants to be sure.
int files_open(int dir, const char *path, uint64_t flags, uint64_t resolve);
// The directory that holds the last component, and that component ("." for "/").
int files_parent(const char *path, int *ret_dir, const char **ret_name);
// The same on the way to a change: root follows no link that is somebody else's (-ELOOP).
int files_parent_to_change(const char *path, int *ret_dir, const char **ret_name);
int files_directory(int start, const char *path); // owned by the caller
int files_walk(int start, const char *path);      // the same, by that rule
// The words of a request are KEY=VALUE. NULL, or 0: it is not there, and *ret stays.
const char *files_option(const Request *request, const char *key);
int files_number(const Request *request, const char *key, uint64_t *ret);
// Only root may give a file away, and only root would otherwise take one that was somebody else's.
bool files_may_give(void);
// The words owner and group; -ENOKEY: nobody has that name.
int files_owner(const Request *request, FilesOwner *ret);
int files_give(int dir, const char *name, const FilesOwner *owner);
// All directories above the last component; those that it makes are the owner's.
int files_make_parents(const char *path, const FilesOwner *owner);
// A new file that is to replace another (files_new.c). finish: owner (may be NULL), mode, all of it on the disk; place: it has the name, and what had it is gone.
typedef struct FilesNew {
        int fd, dir; // dir: borrowed
        bool named;  // `temp` is there
        char temp[FILES_TEMP_MAX];
} FilesNew;
#define FILES_NEW_NULL ((FilesNew) {.fd = -EBADF})
int files_new_open(const Request *request, int dir, FilesNew *ret);
int files_new_finish(FilesNew *new, mode_t mode, const FilesOwner *owner);
int files_new_place(FilesNew *new, const char *name);
void files_new_done(FilesNew *new); // what was not placed is gone

int files_stat(const Request *request, Error *err);
int files_list(const Request *request, Error *err);
int files_search(const Request *request, Error *err);
int files_mkdir(const Request *request, Error *err);
int files_chmod(const Request *request, Error *err);
int files_chown(const Request *request, Error *err);
int files_move(const Request *request, Error *err);
int files_replace(const Request *request, Error *err);
int files_watch(const Request *request, Error *err);
