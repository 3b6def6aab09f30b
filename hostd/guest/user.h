// SPDX-License-Identifier: GPL-2.0-or-later
// User: who a command runs as, read from the instance's /etc/passwd and /etc/group without NSS: a static program that loads the
// guest's libraries would run the guest's code.
#pragma once

#include <sys/types.h>

#include "base/error.h"

#define USER_GROUPS_MAX 256

typedef struct User {
        char *name, *home, *shell; // owned
        uid_t uid;
        gid_t gid;
        gid_t groups[USER_GROUPS_MAX];
        size_t n_groups;
} User;
void user_done(User *user);

// Pure: by name, or by decimal uid. A number without a line is a user all the same (gid = uid, home "/"), and returns 1.
int user_parse_passwd(const char *text, const char *who, User *ret);
// Adds the groups that list the user's name, and its own.
void user_parse_group(const char *text, User *user);
// Both files below `etc`: regular files of at most 1 MiB, not links. -ENOENT: no such user. "" is root.
int user_load(const char *etc, const char *who, User *ret);
