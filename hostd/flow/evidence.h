// SPDX-License-Identifier: GPL-2.0-or-later
// Evidence: the sockets by which the kernel tells of what instances do. To open them needs CAP_NET_ADMIN, to read them nothing; to ask
// for a dump needs it again, of whoever sends the question, and the answer waits for the reader: see keeper.h.
#pragma once

#include "base/error.h"

#define EVIDENCE_LOG_GROUP 10 // as LOG_GROUP in network/ruleset.h; a test compares

// Denials: NFLOG group EVIDENCE_LOG_GROUP. -EBUSY: another socket has that group; of one group there is one reader.
int evidence_open_packets(int *ret);
// The ends of connections, with their bytes where nf_conntrack_acct is on.
int evidence_open_ends(int *ret);
// For evidence_dump(), which makes the kernel write all connections there are into it. -EBUSY: the last dump was not read yet.
int evidence_open_dump(int *ret);
int evidence_dump(int fd);
