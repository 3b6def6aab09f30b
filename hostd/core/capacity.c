// SPDX-License-Identifier: GPL-2.0-or-later
// Manager, capacity: what this host has, and what it has promised already.
#include <string.h>
#include <sys/sysinfo.h>

#include "core/manager.h"

Capacity manager_capacity(Manager *m) {
        const HostConfig *host = &m->desired->host;
        uint64_t total = 0, available = 0;
        struct sysinfo info;
        Capacity c = {0};

        (void) sysinfo(&info);
        (void) disk_host_space(&m->disk, &total, &available);
        c.memory_bytes = (uint64_t) info.totalram * info.mem_unit;
        c.memory_reserve_bytes = host->memory_reserve_bytes != UINT64_MAX ? host->memory_reserve_bytes
                                                                           : MAX2(c.memory_bytes / 16, (uint64_t) 1 << 30);
        c.disk_bytes = total;
        c.disk_reserve_bytes = host->disk_reserve_bytes != UINT64_MAX ? host->disk_reserve_bytes : MAX2(total / 20, (uint64_t) 1 << 30);
        // Used by others = all that is used, less what the instances use of their own promises.
        uint64_t used = total - available, own = 0;
        for (Instance *i = m->instances.first; i; i = i->next) {
                _cleanup_free_ char *path = instance_disk_path(i);
                DiskUsage usage;
                if (path && disk_usage(&m->disk, path, i->record.slot, &usage, NULL) >= 0 && usage.bytes != UINT64_MAX)
                        own += usage.bytes;
        }
        c.disk_used_other_bytes = used > own ? used - own : 0;
        c.cpus = (unsigned) get_nprocs();
        return c;
}

Promise *manager_promises(Manager *m, const char *except, size_t *ret_n) {
        Promise *list = calloc(m->instances.n + 1, sizeof(Promise));
        size_t n = 0;

        for (Instance *i = m->instances.first; list && i; i = i->next)
                if (i->config && (!except || strcmp(i->record.name, except) != 0))
                        list[n++] = (Promise) {i->record.name, i->config->limits.value[LIMIT_MEMORY], i->config->limits.value[LIMIT_DISK]};
        *ret_n = n;
        return list;
}
