// SPDX-License-Identifier: GPL-2.0-or-later
// Peer: who is at the other end of a connection, as the kernel says, and what that makes them.
#pragma once

#include <sys/types.h>

#include "base/error.h"

typedef enum Access { ACCESS_NONE, ACCESS_VIEW, ACCESS_OPERATE, ACCESS_ADMIN, _ACCESS_MAX } Access;
const char *access_to_string(Access access);

typedef struct Peer { // filled at accept: SO_PEERCRED, SO_PEERGROUPS
        uid_t uid;
        gid_t gid;
        pid_t pid;
        char user[64]; // name of uid or its number
        Access access; // root and group hostd-admin: admin; hostd: operate; hostd-view: view; others none
} Peer;

#define PEER_NO_GROUP ((gid_t) -1)
typedef struct PeerGroups { // gid that gives each level, PEER_NO_GROUP where the group does not exist
        gid_t gids[_ACCESS_MAX];
} PeerGroups;

void peer_groups_load(PeerGroups *ret);
// Pure: the highest level that uid, its primary group or one of its other groups has.
Access peer_access(const PeerGroups *groups, uid_t uid, const gid_t *gids, size_t n_gids);
int peer_from_socket(const PeerGroups *groups, int sock, Peer *ret);
