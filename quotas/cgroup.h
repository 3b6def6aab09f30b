// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup: one instance's control groups on whatever this machine offers.
//
// Layout below a prefix P (relative to each hierarchy's mount): P/{run (the supervisor), monitor (liblxc's own), box/{payload, guest, commands/ID, sandboxes/ID}}. Under systemd P is
// "hostd.slice/hostd-instance@NAME.service" and hostd also empties the unit's own group into P/run; elsewhere P is
// "hostd/iNNNN-gG" with a start generation, because liblxc leaves parents behind on v1. Limits live on `box` (never on P, which
// systemd rewrites). pids are split so that the helper and commands work in a bombed instance, see cgroup_split_pids().
// `monitor` and `payload` are made by liblxc, which refuses a group that exists: cgroup_box_create() leaves them out, and
// cgroup_box_apply() has to be called once more after the start, when `payload` can get its share.
// On a hybrid machine the same calls also write the v1 files of memory, pids and cpu; freeze, kill and CPU time are always v2.
// All functions are synchronous and short; every write is read back and compared.
#pragma once

#include "base/clock.h"
#include "quotas/limit.h"

typedef struct CgroupHost CgroupHost; // what the machine offers; immutable after the probe
typedef struct CgroupBox CgroupBox;   // one instance's tree, held by directory descriptors

// `root` is "/sys/fs/cgroup" (or a test's). ERR_UNAVAILABLE where there is no cgroup v2 at all.
int cgroup_host_new(const char *root, CgroupHost **ret, Error *err);
CgroupHost *cgroup_host_free(CgroupHost *host);
DEFINE_CLEANUP(CgroupHost, cgroup_host_free)
bool cgroup_host_is_unified(const CgroupHost *host); // cgroup v2 with controllers, no v1
// Names the disk whose io is limited: a descriptor of /var/lib/hostd. Without it io limits cannot be enforced.
int cgroup_host_set_disk(CgroupHost *host, int dirfd, Error *err);
// Keeps the next moves of processes fast for about one RCU grace period (3 ms and more), see cgroup_warm.c. The first call after a
// pause waits like any other move.
int cgroup_host_warm(CgroupHost *host);
// Whether a limit can be enforced here; *ret_reason (static) says why not.
bool cgroup_host_can(const CgroupHost *host, LimitId id, const char **ret_reason);

// Around all instances: no more memory than this together, and 85 % of the processes the kernel can have. Only where the group is ours
// (no systemd); the other function reads what is in force, -ENOENT while there is no group.
int cgroup_host_guard(CgroupHost *host, uint64_t memory_bytes, Error *err);
int cgroup_host_guard_read(CgroupHost *host, bool systemd, uint64_t *ret_memory);

// Moves a build's process to "hostd-build", where 2 GiB and 4096 processes are the most for all of them; elsewhere the unit's file says so.
int cgroup_host_build(CgroupHost *host, pid_t pid, Error *err);
void cgroup_host_build_done(CgroupHost *host); // removes the group when nobody is in it

// "Already there" is success. -EBUSY: a process in `prefix` is on its way out; to be tried again in a moment, what was made stays for that.
int cgroup_box_create(CgroupHost *host, const char *prefix, CgroupBox **ret, Error *err);
int cgroup_box_open(CgroupHost *host, const char *prefix, CgroupBox **ret, Error *err);   // ERR_NOT_FOUND if absent
CgroupBox *cgroup_box_free(CgroupBox *box); // forgets; removes nothing
DEFINE_CLEANUP(CgroupBox, cgroup_box_free)
// Kills what is left, removes all groups of all hierarchies. -EBUSY while something does not die.
int cgroup_box_remove(CgroupBox *box, Error *err);

// Writes all cgroup limits of `limits`, reads back, compares. Lowering memory below use is refused (ERR_BUSY, with both
// numbers) unless `force`. `allow_degraded` holds limit keys that may be skipped where the machine cannot enforce them;
// others give ERR_DEGRADED naming the key.
// A failure puts back what was there before. On v1 the kernel itself refuses what it cannot reclaim, `force` or not.
int cgroup_box_apply(CgroupBox *box, const Limits *limits, char *const *allow_degraded, bool force, Error *err);
// The limits as the kernel has them now (cgroup rows only).
int cgroup_box_read(CgroupBox *box, Limits *ret, Error *err);
// Now and then: systemd may have written its own default over the weights, which lie in a group that it manages.
void cgroup_box_keep_weights(CgroupBox *box, const Limits *limits);

// How `pids` is divided. 512 give payload 384, commands 64, guest 64.
typedef struct CgroupPids { uint64_t payload, commands, guest; } CgroupPids;
CgroupPids cgroup_split_pids(uint64_t pids);

typedef struct CgroupUsage {
        uint64_t memory_bytes, memory_peak_bytes, swap_bytes, pids, cpu_usec, throttled_usec, oom_kills;
        uint64_t oom_own; // times its own limit was what left no room; v1, which counts none: whether it ever came near it
        uint64_t io_read_bytes, io_write_bytes;
        // Each is UINT64_MAX where unknown: io on hybrid, the peak before Linux 5.19.
} CgroupUsage;
int cgroup_box_usage(CgroupBox *box, CgroupUsage *ret, Error *err);

// Which part of the box a pid is put into. CGROUP_LOGIN is a child of payload, from where the guest's systemd may move it on.
typedef enum CgroupPart { CGROUP_PAYLOAD, CGROUP_GUEST, CGROUP_LOGIN, CGROUP_MONITOR, _CGROUP_PART_MAX } CgroupPart;
int cgroup_box_attach(CgroupBox *box, CgroupPart part, pid_t pid, Error *err);
// True if `pid` is in this box (any part) according to /proc/PID/cgroup.
bool cgroup_box_has(CgroupBox *box, pid_t pid);

// A command's own group: commands/ID. `id` is [a-z0-9]{1,32}.
int cgroup_command_create(CgroupBox *box, const char *id, Error *err);
int cgroup_command_attach(CgroupBox *box, const char *id, pid_t pid, Error *err);
int cgroup_command_usage(CgroupBox *box, const char *id, CgroupUsage *ret, Error *err); // CPU, peak and OOM kills; no more is known
int cgroup_command_kill(CgroupBox *box, const char *id);   // cgroup.kill; absent is success
int cgroup_command_remove(CgroupBox *box, const char *id); // -EBUSY while populated
int cgroup_command_list(CgroupBox *box, char ***ret);

// A sandbox's own box, within its instance's: sandboxes/ID with main and commands/N. All functions of commands, cgroup_box_usage(), _has(), _kill(),
// _is_populated() and _oom_fd() serve it as well; none that knows payload or guest does.
int cgroup_sandbox_create(CgroupBox *box, const char *id, CgroupBox **ret, Error *err);
int cgroup_sandbox_open(CgroupBox *box, const char *id, CgroupBox **ret, Error *err); // ERR_NOT_FOUND if absent
// memory, swap, pids, cpu and io of `limits`, written, read back and compared; others are not looked at.
int cgroup_sandbox_apply(CgroupBox *sandbox, const Limits *limits, char *const *allow_degraded, Error *err);
int cgroup_sandbox_attach(CgroupBox *sandbox, pid_t pid, Error *err); // into main
int cgroup_sandbox_kill(CgroupBox *box, const char *id);   // absent is success
int cgroup_sandbox_remove(CgroupBox *box, const char *id); // all below it too; -EBUSY while populated, absent is success
int cgroup_sandbox_list(CgroupBox *box, char ***ret);
int cgroup_sandbox_freeze(CgroupBox *sandbox, bool frozen); // takes a moment: see cgroup_sandbox_events_fd(), as with a box
bool cgroup_sandbox_froze(CgroupBox *sandbox, bool frozen);
int cgroup_sandbox_events_fd(CgroupBox *sandbox); // polls EPOLLPRI when that or "populated" may have changed; owned by the caller

// Tells the kernel to stop payload, commands and sandboxes, or to let them go; either takes a moment.
int cgroup_box_freeze(CgroupBox *box, bool frozen, Error *err);
bool cgroup_box_froze(CgroupBox *box, bool frozen); // all of it is so by now
// Descriptors that poll EPOLLPRI each time that may have changed; negative: there is none. Read them (pread, from 0) before polling again.
#define CGROUP_FREEZE_GROUPS 3
int cgroup_box_freeze_fds(CgroupBox *box, int ret[CGROUP_FREEZE_GROUPS]);
int cgroup_box_kill(CgroupBox *box); // everything below box at once, after pids.max = 0
bool cgroup_box_is_populated(CgroupBox *box);
// A descriptor that polls ready (EPOLLPRI or EPOLLIN, see ret_events) when the box had an OOM kill; the caller then reads
// cgroup_box_usage() (the count may follow the event by some milliseconds) and, for the victim, oom.h. Read the descriptor
// empty each time (at most 4096 bytes per read; it is non-blocking). v1 tells of the box's own limit only. Owned by the caller.
int cgroup_box_oom_fd(CgroupBox *box, int *ret_fd, uint32_t *ret_events, Error *err);

// Below "hostd/" (or hostd.slice): prefixes that exist on any hierarchy. For leaks and the sweep at start.
int cgroup_host_list(CgroupHost *host, char ***ret_prefixes, Error *err);
int cgroup_host_kill(CgroupHost *host, const char *prefix); // everything below it, the supervisor too; absent is success
bool cgroup_host_is_populated(CgroupHost *host, const char *prefix);
// A descriptor that polls EPOLLPRI each time that may have changed. Read it (pread, from 0) before polling again.
int cgroup_host_events_fd(CgroupHost *host, const char *prefix);
// The same as cgroup_box_remove() for groups of which some may be missing: a creation or a removal was cut short.
int cgroup_host_remove(CgroupHost *host, const char *prefix, Error *err);
int cgroup_host_sweep(CgroupHost *host, const char *prefix); // removes an empty leftover; populated is -EBUSY
