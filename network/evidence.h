// SPDX-License-Identifier: GPL-2.0-or-later
// Evidence: the sockets by which the kernel tells of what instances do. hostd opens them, because that needs CAP_NET_ADMIN, and reads
// none: they go to hostd-flow, which has no rights and parses what comes.
//
// To read needs no privilege, so a descriptor is enough. To ask for a dump does, of whoever sends the question; hostd sends it, on its own
// copy of the descriptor, and the answer waits for the reader of the other one.
#pragma once

#include "base/error.h"

// Denials: NFLOG group LOG_GROUP. -EBUSY: another socket has that group; of one group there is one reader.
int evidence_open_log(int *ret);
// The ends of connections, with their bytes where nf_conntrack_acct is on.
int evidence_open_ends(int *ret);
// For evidence_dump(), which makes the kernel write all connections there are into it. -EBUSY: the last dump was not read yet.
int evidence_open_dump(int *ret);
int evidence_dump(int fd);
