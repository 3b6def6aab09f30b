// SPDX-License-Identifier: GPL-2.0-or-later
// Confine: what a helper of the border does to itself before it reads the first byte of anybody's: no rights, no dumps, no programs, and
// only the system calls that a network server on sd-event makes. The unit says much of this again; where hostd forks, only this does.
//
// Whatever needs more (looking up users, loading libraries, reading configuration) is done before. What the filter does not know is ENOSYS.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct BorderConfine {
        uint64_t files_max;    // RLIMIT_NOFILE; 0: as it is
        uint64_t memory_bytes; // RLIMIT_DATA; 0: as it is
        uint64_t file_bytes;   // RLIMIT_FSIZE, of each file that it writes; 0: as it is
        bool netlink;          // AF_NETLINK sockets (hostd-flow)
        bool write_files;      // makes, renames, removes files below directories that it has (hostd-flow)
        bool given;            // opens nothing and makes no socket: it works on what it is given, files that it may write among it (hostd-io)
        bool allow_root;       // for tests only: otherwise a helper that is root is refused
} BorderConfine;

int border_confine(const BorderConfine *confine, Error *err);
