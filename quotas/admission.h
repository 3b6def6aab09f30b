// SPDX-License-Identifier: GPL-2.0-or-later
// Admission: does what was promised fit this host? Pure: numbers in, yes or the exact shortfall out.
#pragma once

#include <stdint.h>

#include "quotas/limit.h"

typedef struct Capacity {
        uint64_t memory_bytes; // RAM
        uint64_t memory_reserve_bytes;
        uint64_t disk_bytes; // of the file system that holds the instances
        uint64_t disk_reserve_bytes;
        uint64_t disk_used_other_bytes; // used by what is not an instance's (templates, audit, trash)
        unsigned cpus;
} Capacity;

typedef struct Promise {
        const char *name; // borrowed
        uint64_t memory_bytes, disk_bytes; // UINT64_MAX (no limit) is never admitted
} Promise;

// 0, or ERR_QUOTA: "memory: 6 instances promise 60GiB and \"a\" asks for 8GiB, but 62.8GiB less a reserve of 4GiB leaves 58.8GiB: 9.2GiB short".
int admission_check(const Capacity *capacity, const Promise *promised, size_t n, const Promise *asked, Error *err);

// What all instances may have together. The sum of promises ends a whole reserve below RAM; what instances cost beside their boxes
// (hostd-instance, liblxc, commands on their way in) comes from one half of it, and the other half is what this keeps for the host.
uint64_t admission_guard(const Capacity *capacity);

// Sandboxes are capped and not promised, but each that lives keeps a little of its instance: what one costs that does nothing. Whether another has that.
int admission_check_sandbox(const Limits *instance, const char *name, unsigned live, Error *err);

typedef struct CarvePlan {
        unsigned count;
        uint64_t memory_bytes, disk_bytes, pids;
        unsigned cpu_millis;
} CarvePlan;
// Equal shares of what is left after reserve and `promised`; sizes rounded down to 64 MiB. ERR_QUOTA if a share would be below
// 512 MiB of memory or 4 GiB of disk.
int carve_plan(const Capacity *capacity, const Promise *promised, size_t n, unsigned count, CarvePlan *ret, Error *err);
