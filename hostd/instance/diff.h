// SPDX-License-Identifier: GPL-2.0-or-later
// Diff: what an instance changed against its template, read from the overlay's upper directory without trusting it.
//
// Two processes. The walker has no privileges on the host: it is root of a user namespace with the instance's ids and of
// nothing else, keeps one capability there, sees the two trees through read-only mounts, and a syscall filter leaves it
// no more than looking at names. The keeper has CAP_SYS_ADMIN of the host and answers one question: whether a
// directory that the walker hands it is opaque, which the kernel tells nobody else (trusted.overlay.opaque).
#pragma once

#include "base/error.h"

typedef struct DiffWalk {
        int upper;  // directory; O_PATH
        int lower;  // the template's; -EBADF: not compared
        int out_fd; // the list of changes, see guest/tree.h
        int keeper; // SOCK_SEQPACKET
} DiffWalk;

// Walks and writes. Whatever cannot be read becomes a record that says so; an error means that the list is not whole.
int diff_walk(const DiffWalk *walk, Error *err);
// Gives up everything the walk does not need. For a single-threaded process that becomes a walker and exits.
int diff_confine(const DiffWalk *walk, int userns, Error *err);
