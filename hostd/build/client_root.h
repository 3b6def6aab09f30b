// SPDX-License-Identifier: GPL-2.0-or-later
// ClientRoot: the template's root as its package clients see it: read-only, with a /proc, /dev, /tmp and /run of their own, and who they are there.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

typedef struct ClientUser {
        uid_t uid;
        gid_t gid;
        char *home; // owned; NULL: nobody's
} ClientUser;

// The user with uid 1000, whose configuration counts; without one `ret` is left alone.
int client_root_user(int root, ClientUser *ret);
// In a mount and pid namespace of the caller's own, as root of the user namespace. `network`: with the name servers of whoever has one here, which
// are not those of an instance.
int client_root_enter(int root, bool network);
// In the root: the variables of /etc/environment, as logins have them, and ours. `cargo_home`: where cargo may write.
int client_environment(const ClientUser *user, const char *cargo_home, char ***ret);
const char *client_variable(char *const *env, const char *name); // NULL if absent
int client_proxies(char *const *env, char ***mirrors); // of http_proxy and the like

// client_cargo.c. In the client's own /tmp.
#define CLIENT_PROJECT "/tmp/ask"
int client_project(char *const *env, char ***mirrors); // made; what cargo's configuration names is added
int client_indices(char ***mirrors); // what cargo, run there, learnt from the network
