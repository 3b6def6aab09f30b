// SPDX-License-Identifier: GPL-2.0-or-later
// Limits around what is no instance's own: all instances together, on "hostd", which is ours, or on "hostd.slice", which is systemd's and
// only read; and, where systemd has no unit for it, the builds of templates, on "hostd-build".
#include <fcntl.h>
#include <unistd.h>

#include "quotas/cgroup_private.h"

#define GUARD_PIDS_PERCENT 85 // as TasksMax of hostd.slice
// As hostd-build@.service.
#define BUILD_MEMORY (2ULL << 30)
#define BUILD_PIDS 4096

static uint64_t guard_pids(void) {
        unsigned long long pids = 32768, threads = 32768;

        (void) io_read_u64(AT_FDCWD, "/proc/sys/kernel/pid_max", &pids);
        (void) io_read_u64(AT_FDCWD, "/proc/sys/kernel/threads-max", &threads);
        return MIN2(pids, threads) * GUARD_PIDS_PERCENT / 100;
}

// In the tree that has the controller: v2 where it is whole, else its own v1 mount. -ENOENT where nobody has it.
static int guard_write(CgroupHost *host, const char *group, const char *controller, const char *file, uint64_t value) {
        int root = host->roots[host->unified ? CGROUP_V2 : cgroup_tree(controller)];
        char text[24];
        int r;

        if (root < 0)
                return -ENOENT;
        r = cgroup_make(root, group);
        if (r == 0 && host->unified)
                (void) cgroup_delegate(root, "", host->controllers); // refused in a delegated tree; what is missing shows below
        (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) value);
        return r < 0 ? r : cgroup_write(root, group, file, text);
}

static int guard_limit(CgroupHost *host, const char *group, uint64_t memory, uint64_t pids) {
        int r = guard_write(host, group, "memory", host->unified ? "memory.max" : "memory.limit_in_bytes", memory);

        return r < 0 ? r : guard_write(host, group, "pids", "pids.max", pids);
}

int cgroup_host_guard(CgroupHost *host, uint64_t memory_bytes, Error *err) {
        int r = guard_limit(host, "hostd", memory_bytes, guard_pids());

        return r < 0 ? error_set_errno(err, r, "limiting all instances together") : 0;
}

int cgroup_host_build(CgroupHost *host, pid_t pid, Error *err) {
        int r = guard_limit(host, "hostd-build", BUILD_MEMORY, BUILD_PIDS);
        char text[16];

        (void) snprintf(text, sizeof(text), "%d", (int) pid);
        for (int i = 0; i < _CGROUP_TREE_MAX && r == 0; i++)
                if (host->roots[i] >= 0 && (host->unified || i != CGROUP_V2) && cgroup_exists(host->roots[i], "hostd-build"))
                        r = cgroup_write(host->roots[i], "hostd-build", "cgroup.procs", text);
        return r < 0 ? error_set_errno(err, r, "limiting the build") : 0;
}

void cgroup_host_build_done(CgroupHost *host) {
        for (int i = 0; i < _CGROUP_TREE_MAX; i++)
                if (host->roots[i] >= 0)
                        (void) unlinkat(host->roots[i], "hostd-build", AT_REMOVEDIR);
}

int cgroup_host_guard_read(CgroupHost *host, bool systemd, uint64_t *ret_memory) {
        const char *group = systemd ? "hostd.slice" : "hostd";
        int root = host->roots[host->unified ? CGROUP_V2 : CGROUP_MEMORY];

        if (root < 0 || !cgroup_exists(root, group))
                return -ENOENT;
        int r = cgroup_read_number(root, group, host->unified ? "memory.max" : "memory.limit_in_bytes", ret_memory);
        if (r == 0 && *ret_memory >= INT64_MAX / 2) // v1 says "none" by a large number
                *ret_memory = UINT64_MAX;
        return r;
}
