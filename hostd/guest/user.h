// SPDX-License-Identifier: GPL-2.0-or-later
// User: who a command runs as, read from the instance's /etc/passwd and /etc/group without NSS: a static program that loads the
// guest's libraries would run the guest's code.
#pragma once

#include <stdbool.h>
#include <stdint.h>
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

// Pure: a group by name, or by number, which needs no line. -ENOENT: none has the name.
int user_parse_group_id(const char *text, const char *who, gid_t *ret);
int user_find_group(const char *etc, const char *who, gid_t *ret); // the same of the file below `etc`
// Pure: the first range of at least `least` ids that /etc/subuid or /etc/subgid gives to the user, by name or number. -ENOENT.
int user_parse_subids(const char *text, const User *user, uint32_t least, uint32_t *ret);

// Names for the numbers of a listing.
#define USER_NAME_MAX 64
typedef enum UserNamesFile { USER_NAMES_PASSWD, USER_NAMES_GROUP, _USER_NAMES_FILE_MAX } UserNamesFile;

typedef struct UserNames {
        char *text[_USER_NAMES_FILE_MAX]; // owned; NULL: nobody has a name
        struct {
                uint32_t id;
                char name[USER_NAME_MAX + 1];
                bool known;
        } last[_USER_NAMES_FILE_MAX]; // neighbours in a directory mostly have one owner
} UserNames;
void user_names_load(const char *etc, UserNames *ret); // files that cannot be read have no names
void user_names_done(UserNames *names);
const char *user_names_find(UserNames *names, UserNamesFile file, uint32_t id); // "" when it has none; valid until the next call
// Pure: the first name of the number in either file. False when there is none, or none of visible ASCII that fits.
bool user_parse_name(const char *text, UserNamesFile file, uint32_t id, char ret[USER_NAME_MAX + 1]);
