// SPDX-License-Identifier: GPL-2.0-or-later
// Peer: see peer.h. Groups are those the process had when it connected, not what /etc/group says now.
#include "wire/peer.h"

#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/socket.h>

static const struct {
        const char *name;
        const char *group;
} access_table[_ACCESS_MAX] = {
        [ACCESS_NONE] = {"none", NULL},
        [ACCESS_VIEW] = {"view", "hostd-view"},
        [ACCESS_OPERATE] = {"operate", "hostd"},
        [ACCESS_ADMIN] = {"admin", "hostd-admin"},
};

const char *access_to_string(Access access) {
        return access >= 0 && access < _ACCESS_MAX ? access_table[access].name : "unknown";
}

void peer_groups_load(PeerGroups *ret) {
        for (int i = 0; i < _ACCESS_MAX; i++) {
                const struct group *g = access_table[i].group ? getgrnam(access_table[i].group) : NULL;
                // gid 0 never gives a level: root's group is not a grant.
                ret->gids[i] = g && g->gr_gid != 0 ? g->gr_gid : PEER_NO_GROUP;
        }
        endgrent();
}

Access peer_access(const PeerGroups *groups, uid_t uid, const gid_t *gids, size_t n_gids) {
        if (uid == 0)
                return ACCESS_ADMIN;
        for (int level = _ACCESS_MAX - 1; level > ACCESS_NONE; level--)
                for (size_t i = 0; i < n_gids; i++)
                        if (groups->gids[level] != PEER_NO_GROUP && gids[i] == groups->gids[level])
                                return level;
        return ACCESS_NONE;
}

// Only /etc/passwd: a name service on the network would block the loop. The name is for people; the uid is what counts.
static void peer_name(uid_t uid, char *buf, size_t size) {
        _cleanup_(fclosep) FILE *f = fopen("/etc/passwd", "re");
        const struct passwd *p;

        snprintf(buf, size, "%u", (unsigned) uid);
        while (f && (p = fgetpwent(f)))
                if (p->pw_uid == uid) {
                        snprintf(buf, size, "%s", p->pw_name);
                        return;
                }
}

static int peer_read_groups(int sock, gid_t **ret, size_t *ret_n) {
        socklen_t size = 64 * sizeof(gid_t);

        for (;;) {
                _cleanup_free_ gid_t *gids = malloc(size + sizeof(gid_t)); // room for the primary one
                if (!gids)
                        return -ENOMEM;
                if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, gids, &size) == 0) {
                        *ret_n = size / sizeof(gid_t);
                        *ret = TAKE_PTR(gids);
                        return 0;
                }
                if (errno != ERANGE) // then `size` says how much is needed
                        return -errno;
        }
}

int peer_from_socket(const PeerGroups *groups, int sock, Peer *ret) {
        _cleanup_free_ gid_t *gids = NULL;
        struct ucred cred;
        socklen_t size = sizeof(cred);
        size_t n = 0;
        int r;

        if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
                return -errno;
        r = peer_read_groups(sock, &gids, &n);
        if (r < 0)
                return r;
        gids[n++] = cred.gid;
        *ret = (Peer) {.uid = cred.uid, .gid = cred.gid, .pid = cred.pid};
        ret->access = peer_access(groups, cred.uid, gids, n);
        peer_name(cred.uid, ret->user, sizeof(ret->user));
        return 0;
}
