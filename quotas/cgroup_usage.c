// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup usage: what a group uses and used, from either kind of hierarchy.
#include <dirent.h>
#include <string.h>

#include "quotas/cgroup_private.h"

#define USAGE_TEXT_MAX 4096
#define USAGE_DEPTH_MAX 8
#define USAGE_NEAR (1ULL << 20) // charges come in portions

static uint64_t usage_number(int fd, const char *group, const char *file) {
        uint64_t value;

        return fd >= 0 && cgroup_read_number(fd, group, file, &value) == 0 ? value : UINT64_MAX;
}

static uint64_t usage_key(int fd, const char *group, const char *file, const char *key) {
        char text[USAGE_TEXT_MAX];
        uint64_t value;

        if (fd < 0 || cgroup_read(fd, group, file, text, sizeof(text)) < 0 || cgroup_find_number(text, key, &value) < 0)
                return UINT64_MAX;
        return value;
}

// io.stat: one line per device, "8:0 rbytes=1 wbytes=2 …".
static void usage_io(int fd, CgroupUsage *ret) {
        char text[USAGE_TEXT_MAX];
        int r = cgroup_read(fd, "", "io.stat", text, sizeof(text));

        ret->io_read_bytes = ret->io_write_bytes = r < 0 ? UINT64_MAX : 0;
        for (const char *p = r < 0 ? NULL : text; p && *p; p = strchr(p, ' ') ? strchr(p, ' ') + 1 : NULL) {
                if (strncmp(p, "rbytes=", 7) == 0)
                        ret->io_read_bytes += strtoull(p + 7, NULL, 10);
                if (strncmp(p, "wbytes=", 7) == 0)
                        ret->io_write_bytes += strtoull(p + 7, NULL, 10);
        }
}

// v1 counts a kill in the victim's own group only, and the guest may have made groups below its own: add them up.
static uint64_t usage_oom_v1(int dirfd, const char *group, unsigned depth) {
        uint64_t sum = usage_key(dirfd, group, "memory.oom_control", "oom_kill");
        int fd;
        DIR *d;
        struct dirent *e;

        if (sum == UINT64_MAX)
                return 0;
        fd = openat(dirfd, *group ? group : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        d = fd < 0 ? NULL : fdopendir(fd);
        if (!d) {
                (void) close_fd(fd);
                return sum;
        }
        while (depth < USAGE_DEPTH_MAX && (e = readdir(d)))
                if (e->d_type == DT_DIR && e->d_name[0] != '.')
                        sum += usage_oom_v1(fd, e->d_name, depth + 1);
        (void) closedir(d);
        return sum;
}

uint64_t cgroup_oom_kills(CgroupBox *box, const char *group) {
        if (!box->host->unified)
                return box->fds[CGROUP_MEMORY] < 0 ? 0 : usage_oom_v1(box->fds[CGROUP_MEMORY], group, 0);
        uint64_t kills = usage_key(box->fds[CGROUP_V2], group, "memory.events", "oom_kill");
        return kills == UINT64_MAX ? 0 : kills;
}

static uint64_t usage_divide(uint64_t value, uint64_t by) {
        return value == UINT64_MAX ? value : value / by;
}

static void usage_v1(CgroupBox *box, CgroupUsage *ret) {
        int memory = box->fds[CGROUP_MEMORY];
        uint64_t both, limit;

        ret->memory_bytes = usage_number(memory, "", "memory.usage_in_bytes");
        ret->memory_peak_bytes = usage_number(memory, "", "memory.max_usage_in_bytes");
        both = usage_number(memory, "", "memory.memsw.usage_in_bytes");
        // Two files are not read at the same instant: never below nothing.
        ret->swap_bytes = both == UINT64_MAX ? both : both > ret->memory_bytes ? both - ret->memory_bytes : 0;
        ret->pids = usage_number(box->fds[CGROUP_PIDS], "", "pids.current");
        ret->throttled_usec = usage_divide(usage_key(box->fds[CGROUP_CPU], "", "cpu.stat", "throttled_time"), 1000);
        limit = usage_number(memory, "", "memory.limit_in_bytes");
        ret->oom_own = limit == UINT64_MAX || ret->memory_peak_bytes == UINT64_MAX ? UINT64_MAX : ret->memory_peak_bytes + USAGE_NEAR >= limit;
        ret->io_read_bytes = ret->io_write_bytes = UINT64_MAX;
}

static void usage_v2(CgroupBox *box, CgroupUsage *ret) {
        int fd = box->fds[CGROUP_V2];

        ret->memory_bytes = usage_number(fd, "", "memory.current");
        ret->memory_peak_bytes = usage_number(fd, "", "memory.peak");
        ret->swap_bytes = usage_number(fd, "", "memory.swap.current");
        ret->pids = usage_number(fd, "", "pids.current");
        ret->throttled_usec = usage_key(fd, "", "cpu.stat", "throttled_usec");
        ret->oom_own = usage_key(fd, "", "memory.events", "oom");
        usage_io(fd, ret);
}

static int box_usage(CgroupBox *box, CgroupUsage *ret) {
        CgroupUsage usage = {0};

        if (!cgroup_exists(box->fds[CGROUP_V2], ""))
                return -ENOENT;
        // The v2 tree accounts CPU time whether or not it has the controller.
        usage.cpu_usec = usage_key(box->fds[CGROUP_V2], "", "cpu.stat", "usage_usec");
        if (box->host->unified)
                usage_v2(box, &usage);
        else
                usage_v1(box, &usage);
        usage.oom_kills = cgroup_oom_kills(box, "");
        *ret = usage;
        return 0;
}

// No more files than its record has numbers: these reads are on the way of each command's answer.
int cgroup_command_usage(CgroupBox *box, const char *id, CgroupUsage *ret, Error *err) {
        bool unified = box->host->unified;
        CgroupUsage usage;
        char group[48];

        if (!cgroup_id_is_valid(id))
                return error_set(err, ERR_INVALID, "a command id must be 1 to 32 lower-case letters and digits");
        memset(&usage, 0xff, sizeof(usage)); // unknown
        (void) snprintf(group, sizeof(group), "commands/%s", id);
        usage.cpu_usec = usage_key(box->fds[CGROUP_V2], group, "cpu.stat", "usage_usec");
        if (usage.cpu_usec == UINT64_MAX)
                return error_set_errno(err, ENOENT, "reading the usage of command %s", id);
        usage.memory_peak_bytes = usage_number(box->fds[unified ? CGROUP_V2 : CGROUP_MEMORY], group, unified ? "memory.peak" : "memory.max_usage_in_bytes");
        usage.oom_kills = cgroup_oom_kills(box, group);
        *ret = usage;
        return 0;
}

int cgroup_box_usage(CgroupBox *box, CgroupUsage *ret, Error *err) {
        int r = box_usage(box, ret);

        if (r < 0)
                return error_set_errno(err, r, "reading the usage of %s", box->prefix);
        ret->oom_kills += box->oom_removed;
        return 0;
}
