// SPDX-License-Identifier: GPL-2.0-or-later
// Jail: the namespaces a job runs in, made by a user without privileges who owns a range of subids.
//
// Two of them, one in the other:
//  * outer: user (our own id and all subids, each mapped to itself), pid, mount, ipc and net namespace. The network is empty, unless a wire
//    was asked for. Its first process dies with hostd-build and takes everything with it, whatever the job started.
//    Its ids are mapped by newuidmap and newgidmap, the only set-uid programs of a job, or under systemd by a keeper (serve.h): inside, no_new_privs is set, and the
//    capabilities over the subids (ambient, valid in this namespace only) replace them; mmdebstrap makes its own
//    namespace with them.
//  * inner: user namespace in which the subids are 0..65535, for unpacking, customising and packing: ids of files in
//    the image are 0-based without a chown, and root there is nobody elsewhere.
#pragma once

#include <stdbool.h>

#include "base/error.h"

typedef int (*JailMain)(void *data, Error *err);

// What the outer namespaces have of the network.
//  * JAIL_ALONE: nothing.
//  * JAIL_WIRED: what hostd puts there, see wire.h. Sockets of the host's programs below /run are hidden, since whoever looks up names for
//    others (nscd, systemd-resolved) would do so for the job, too, and /etc/resolv.conf names the resolver at the other end of the wire.
//  * JAIL_HOST: the network of whoever calls: for builds by hand, without hostd.
typedef enum JailNetwork { JAIL_ALONE, JAIL_WIRED, JAIL_HOST } JailNetwork;
typedef struct JailPlan {
        JailNetwork network;
        int wire; // JAIL_WIRED: the socket to ask at; borrowed. Programs that the job runs do not have it
} JailPlan;

// Runs `fn` as the first process of the outer namespaces and waits for it. The current directory is bound to JAIL_WORK
// there, on a tmpfs that hides /tmp. The child's error comes back in `err`.
#define JAIL_WORK "/tmp/work"
int jail_run_outer(JailMain fn, void *data, const JailPlan *plan, Error *err);
// From within the outer one; in the child all ids are 0. `ret_pid` and no waiting: jail_wait() does that.
typedef struct JailChild {
        pid_t pid;
        int error_fd; // the child's error, one message
} JailChild;
// No namespace at all: a helper that must see what we see.
int jail_start_plain(JailMain fn, void *data, JailChild *ret, Error *err);
int jail_start_inner(JailMain fn, void *data, bool network, JailChild *ret, Error *err); // network: the outer one's, if it has one
int jail_wait(JailChild *child, Error *err);
// Host id that is 0 in the inner namespace.
typedef struct JailIds {
        unsigned uid_start, gid_start, count;
} JailIds;
// Who maps the ids instead of newuidmap: a 32-bit pid goes to `socket`, and a result comes back.
void jail_map_by(int socket);
int jail_ids(JailIds *ret, Error *err);
