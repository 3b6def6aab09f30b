// SPDX-License-Identifier: GPL-2.0-or-later
// What the cgroup_*.c files share. Nobody else includes it.
#pragma once

#include "base/cleanup.h"
#include "base/io.h"
#include "quotas/cgroup.h"

#define CGROUP_PERIOD_USEC 100000
#define CGROUP_GUEST_MEMORY (16ULL << 20)
#define CGROUP_ROOTS_MAX 20
#define CGROUP_DISKS_MAX 8
#define CGROUP_PREFIX_MAX 200
#define CGROUP_PATH_MAX 512

// The hierarchies that are written. More v1 mounts may follow in CgroupHost.roots: liblxc makes groups there, which are removed.
typedef enum CgroupTree { CGROUP_V2, CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, _CGROUP_TREE_MAX } CgroupTree;

struct CgroupHost {
        int roots[CGROUP_ROOTS_MAX]; // -EBADF where not mounted; the first _CGROUP_TREE_MAX as in CgroupTree
        size_t n_roots;
        bool unified;
        char *own; // our own group in the v2 tree, relative; read when first needed
        unsigned controllers; // bits as in cgroup_controllers[]
        bool swap;            // swap is accounted
        uint32_t disks[CGROUP_DISKS_MAX][2]; // major, minor of whole block devices
        size_t n_disks;
        enum { CGROUP_WEIGHT_NONE, CGROUP_WEIGHT_BFQ, CGROUP_WEIGHT_COST } io_weight;
};

struct CgroupBox {
        CgroupHost *host; // borrowed
        char *prefix;
        int fds[_CGROUP_TREE_MAX]; // P/box in each written hierarchy; of a sandbox P/box/sandboxes/ID
        const char *common; // where processes of commands are that have no group of their own in a hierarchy
        uint64_t oom_removed;      // v1: kills counted in command groups that are gone
};

#define CGROUP_N_CONTROLLERS 5
extern const char *const cgroup_controllers[CGROUP_N_CONTROLLERS];

// The hierarchy that holds v1 controller `name`; _CGROUP_TREE_MAX if none is written.
CgroupTree cgroup_tree(const char *name);
bool cgroup_prefix_is_valid(const char *prefix);
bool cgroup_id_is_valid(const char *id);

#define CGROUP_SANDBOXES "sandboxes"

// Control files. `group` is relative to the box ("", "payload", "commands/ID").
int cgroup_write(int dirfd, const char *group, const char *file, const char *text);
// Waits until `key` of the group's cgroup.events is `value` (0 or not); -ETIMEDOUT.
int cgroup_wait_event(int root, const char *group, const char *key, bool value, usec_t deadline);
int cgroup_read(int dirfd, const char *group, const char *file, char *buf, size_t size); // NUL-terminated; bytes
int cgroup_read_number(int dirfd, const char *group, const char *file, uint64_t *ret);   // "max" is UINT64_MAX
// Value of "key N" in a flat-keyed text.
int cgroup_find_number(const char *text, const char *key, uint64_t *ret);
bool cgroup_exists(int dirfd, const char *group);
int cgroup_make(int dirfd, const char *group); // one level; existing is success
// Removes `name` and all below, deepest first. -EBUSY while populated; absent is success.
int cgroup_empty_tree(int dirfd, const char *name); // all that is below it
int cgroup_remove_tree(int dirfd, const char *name);
// Adds the controllers of `mask` to cgroup.subtree_control of `group`.
int cgroup_delegate(int dirfd, const char *group, unsigned mask);
uint64_t cgroup_oom_kills(CgroupBox *box, const char *group);
int cgroup_list_ids(int dirfd, const char *group, char ***ret); // groups below that are named by an id
int cgroup_events_fd(int dirfd, const char *group); // of its cgroup.events, armed
