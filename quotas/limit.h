// SPDX-License-Identifier: GPL-2.0-or-later
// Limits: what an instance may use, one table row per limit.
//
// The table is the single place that knows a limit's configuration key, unit, bounds, kernel file on cgroup v2 and on v1 (for
// hybrid machines: memory, pids and cpu only), and what to say where it is inert. Parsing, display, writing and read-back
// all walk it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum LimitId {
        LIMIT_CPU,        // thousandths of a CPU (2500 = 2.5 CPUs); key "cpu", text "2.5"
        LIMIT_CPU_WEIGHT, // 1..10000
        LIMIT_CPU_PIN,    // a list of CPUs; the value lives in Limits.cpu_pin
        LIMIT_MEMORY,     // bytes
        LIMIT_SWAP,       // bytes, 0 by default
        LIMIT_PIDS,       // processes and threads
        LIMIT_IO_READ,    // bytes per second
        LIMIT_IO_WRITE,
        LIMIT_IO_READ_OPS, // operations per second
        LIMIT_IO_WRITE_OPS,
        LIMIT_IO_WEIGHT,  // 1..10000; inert without bfq or iocost
        LIMIT_DISK,       // bytes of root, data and snapshots together
        LIMIT_INODES,
        LIMIT_OPEN_FILES, // RLIMIT_NOFILE of init, hence of all below
        LIMIT_UPLOAD,     // bytes per second from the instance; also written "100Mbit"
        LIMIT_DOWNLOAD,
        LIMIT_CONNECTIONS,     // through the network, at once
        LIMIT_CONNECTION_RATE, // new ones per second
        LIMIT_DESTINATIONS,    // distinct ones per minute
        LIMIT_TRAFFIC,         // bytes per day (UTC), both ways
        _LIMIT_MAX,
        _LIMIT_INVALID = -EINVAL,
} LimitId;

#define LIMIT_UNSET UINT64_MAX // no limit

typedef struct Limits {
        uint64_t value[_LIMIT_MAX];
        char *cpu_pin; // owned, NULL when unset
} Limits;

typedef enum LimitUnit { LIMIT_UNIT_COUNT, LIMIT_UNIT_BYTES, LIMIT_UNIT_MILLICPU, LIMIT_UNIT_RATE, LIMIT_UNIT_CPUSET } LimitUnit;
typedef enum LimitWhere { LIMIT_WHERE_CGROUP, LIMIT_WHERE_DISK, LIMIT_WHERE_RLIMIT, LIMIT_WHERE_NETWORK } LimitWhere;

typedef struct LimitRow {
        const char *key; // in instances.d/NAME.conf and `hostctl set`: "memory"
        const char *name; // for tables: "memory"
        const char *doc;  // one line, for manual and --help
        LimitUnit unit;
        LimitWhere where;
        uint64_t min, max;
        const char *v2_controller, *v2_file; // "memory", "memory.max"; NULL: not a cgroup file
        const char *v1_controller, *v1_file; // NULL: cannot be enforced on a hybrid machine
        bool restart; // takes effect at the next start only
} LimitRow;

const LimitRow *limit_row(LimitId id);
bool limit_is_plain(LimitId id); // a number without a unit
LimitId limit_from_key(const char *key); // _LIMIT_INVALID if unknown
void limits_init(Limits *limits);        // everything unset
void limits_done(Limits *limits);
int limits_copy(Limits *to, const Limits *from);
// Text as people write it ("8GiB", "2.5", "max"); bounds from the row; the sentence names the key.
int limit_parse(LimitId id, const char *text, Limits *limits, Error *err);
char *limit_format(LimitId id, const Limits *limits); // "8GiB", "max"; NULL on OOM; caller frees
// A plain number in the row's own unit, with the same bounds; LIMIT_UNSET is "max". Not for LIMIT_CPU_PIN.
int limit_set(LimitId id, uint64_t value, Limits *limits, Error *err);
// "3,1,2" becomes "1-3", the form the kernel shows. -EINVAL for what is no list of CPUs.
int limit_cpuset_canonical(const char *text, char **ret);
