// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup, warm: keeps moves between groups from waiting for the kernel.
//
// Moving a process takes cgroup_threadgroup_rwsem for writing. When nobody did so for a moment, the kernel first waits for an RCU
// grace period (kernel/rcu/sync.c): 7 to 15 ms here, on the way of every command. As long as writers follow each other within a
// grace period there is nothing to wait for (0.2 ms). The mount option favordynmods makes that permanent for a whole host; a
// move of ourselves to where we are every few milliseconds does it while commands are coming, and for no longer.
#include <string.h>

#include "quotas/cgroup_private.h"

int cgroup_host_warm(CgroupHost *host) {
        if (!host->own) {
                _cleanup_free_ char *text = NULL;
                const char *line;
                int r = io_read_file(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &text, NULL);

                if (r < 0)
                        return r;
                line = strncmp(text, "0::/", 4) == 0 ? text + 3 : strstr(text, "\n0::/");
                if (!line)
                        return -EOPNOTSUPP;
                line += *line == '\n' ? 5 : 1;
                host->own = strndup(line, strcspn(line, "\n"));
                if (!host->own)
                        return -ENOMEM;
        }
        if (host->roots[CGROUP_V2] < 0)
                return -EOPNOTSUPP;
        return cgroup_write(host->roots[CGROUP_V2], *host->own ? host->own : ".", "cgroup.procs", "0");
}
