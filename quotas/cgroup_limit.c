// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup limits: written to the box, read back, compared.
//
// One row per kernel file says how a value becomes text and text a value, for v2 and v1. What does not fit a row is apart: memory and
// swap are one pair on v1, io.max is one file for four limits, and pids are divided among the parts.
#include <string.h>

#include "base/size.h"
#include "base/strv.h"
#include "quotas/cgroup_private.h"

#define LIMIT_TEXT_MAX 320

// v1 shows "no limit" as the largest multiple of the page size.
#define V1_UNLIMITED (INT64_MAX & ~0xffffULL)

CgroupPids cgroup_split_pids(uint64_t pids) {
        CgroupPids split = {LIMIT_UNSET, LIMIT_UNSET, LIMIT_UNSET};

        if (pids == LIMIT_UNSET)
                return split;
        split.guest = MIN2(pids / 8, 64ULL);
        split.commands = pids / 4 - split.guest;
        split.payload = pids - split.guest - split.commands;
        return split;
}

static uint64_t limit_page_round(uint64_t bytes) {
        uint64_t page = (uint64_t) sysconf(_SC_PAGESIZE);

        return bytes == LIMIT_UNSET ? bytes : bytes / page * page;
}

static void format_number(uint64_t value, char *buf) {
        if (value == LIMIT_UNSET)
                (void) snprintf(buf, LIMIT_TEXT_MAX, "max");
        else
                (void) snprintf(buf, LIMIT_TEXT_MAX, "%llu", (unsigned long long) value);
}

static int write_number(int fd, const char *group, const char *file, uint64_t value) {
        char text[LIMIT_TEXT_MAX];

        format_number(value, text);
        return cgroup_write(fd, group, file, text);
}

// --- cpu: thousandths of a CPU become microseconds in each period of 100 ms.

static int write_cpu_v2(CgroupBox *box, const Limits *limits) {
        char quota[LIMIT_TEXT_MAX], text[LIMIT_TEXT_MAX + 16];
        uint64_t millis = limits->value[LIMIT_CPU];

        format_number(millis == LIMIT_UNSET ? millis : millis * (CGROUP_PERIOD_USEC / 1000), quota);
        (void) snprintf(text, sizeof(text), "%s %d", quota, CGROUP_PERIOD_USEC);
        return cgroup_write(box->fds[CGROUP_V2], "", "cpu.max", text);
}

static int read_cpu_v2(CgroupBox *box, Limits *ret) {
        char text[64];
        unsigned long long quota, period;
        int r = cgroup_read(box->fds[CGROUP_V2], "", "cpu.max", text, sizeof(text));

        if (r < 0 || strncmp(text, "max ", 4) == 0)
                return r < 0 ? r : 0;
        if (sscanf(text, "%llu %llu", &quota, &period) != 2 || period == 0)
                return -EBADMSG;
        ret->value[LIMIT_CPU] = quota * 1000 / period;
        return 0;
}

static int write_cpu_v1(CgroupBox *box, const Limits *limits) {
        uint64_t millis = limits->value[LIMIT_CPU];
        int fd = box->fds[CGROUP_CPU];
        char text[32];
        int r;

        (void) snprintf(text, sizeof(text), "%d", CGROUP_PERIOD_USEC);
        r = cgroup_write(fd, "", "cpu.cfs_period_us", text);
        if (r < 0)
                return r;
        return millis == LIMIT_UNSET ? cgroup_write(fd, "", "cpu.cfs_quota_us", "-1")
                                     : write_number(fd, "", "cpu.cfs_quota_us", millis * (CGROUP_PERIOD_USEC / 1000));
}

static int read_cpu_v1(CgroupBox *box, Limits *ret) {
        uint64_t quota, period;
        int r = cgroup_read_number(box->fds[CGROUP_CPU], "", "cpu.cfs_quota_us", &quota);

        if (r == 0)
                r = cgroup_read_number(box->fds[CGROUP_CPU], "", "cpu.cfs_period_us", &period);
        if (r < 0 || quota == UINT64_MAX)
                return r;
        ret->value[LIMIT_CPU] = period ? quota * 1000 / period : 0;
        return 0;
}

// --- weights. The kernel has no "none": unset is its default of 100 (v1: 1024 shares).
//
// A weight counts among siblings, and the siblings of an instance are the groups above the boxes: there it must be. systemd thinks
// that those are its own and may write its default there (cgroup_box_keep_weights()). The box has it as well, for whoever looks there.

#define ABOVE ".."

static int write_weight_v2(CgroupBox *box, const Limits *limits) {
        uint64_t weight = limits->value[LIMIT_CPU_WEIGHT] == LIMIT_UNSET ? 100 : limits->value[LIMIT_CPU_WEIGHT];
        int r = write_number(box->fds[CGROUP_V2], ABOVE, "cpu.weight", weight);

        return r < 0 ? r : write_number(box->fds[CGROUP_V2], "", "cpu.weight", weight);
}

static int read_weight_v2(CgroupBox *box, Limits *ret) {
        uint64_t value;
        int r = cgroup_read_number(box->fds[CGROUP_V2], ABOVE, "cpu.weight", &value);

        if (r == 0)
                ret->value[LIMIT_CPU_WEIGHT] = value;
        return r;
}

static int write_weight_v1(CgroupBox *box, const Limits *limits) {
        uint64_t shares = limits->value[LIMIT_CPU_WEIGHT] == LIMIT_UNSET ? 1024 : limits->value[LIMIT_CPU_WEIGHT] * 1024 / 100;
        int r = write_number(box->fds[CGROUP_CPU], ABOVE, "cpu.shares", shares);

        return r < 0 ? r : write_number(box->fds[CGROUP_CPU], "", "cpu.shares", shares);
}

static int read_weight_v1(CgroupBox *box, Limits *ret) {
        uint64_t shares;
        int r = cgroup_read_number(box->fds[CGROUP_CPU], ABOVE, "cpu.shares", &shares);

        if (r == 0)
                ret->value[LIMIT_CPU_WEIGHT] = (shares * 100 + 1023) / 1024; // exact for what write_weight_v1() wrote
        return r;
}

// A group that has processes may not be left without a list (ENOSPC): then all that the group above has is none, too.
static int write_pin_v2(CgroupBox *box, const Limits *limits) {
        char all[1024];
        // An empty write reaches no handler: a newline clears.
        int r = cgroup_write(box->fds[CGROUP_V2], "", "cpuset.cpus", limits->cpu_pin ?: "\n");

        if (r != -ENOSPC || limits->cpu_pin)
                return r;
        r = cgroup_read(box->fds[CGROUP_V2], ABOVE, "cpuset.cpus.effective", all, sizeof(all));
        return r < 0 ? r : cgroup_write(box->fds[CGROUP_V2], "", "cpuset.cpus", all);
}

static bool pin_is_as_wanted(CgroupBox *box, const char *wanted, const char *have) {
        char all[1024];

        if (strcmp(wanted ?: "", have ?: "") == 0)
                return true;
        if (wanted || !have || cgroup_read(box->fds[CGROUP_V2], ABOVE, "cpuset.cpus.effective", all, sizeof(all)) < 0)
                return false;
        all[strcspn(all, "\n")] = 0;
        return strcmp(have, all) == 0;
}

static int read_pin_v2(CgroupBox *box, Limits *ret) {
        char text[1024];
        int r = cgroup_read(box->fds[CGROUP_V2], "", "cpuset.cpus", text, sizeof(text));

        if (r < 0)
                return r;
        text[strcspn(text, "\n")] = 0;
        free(ret->cpu_pin);
        ret->cpu_pin = *text ? strdup(text) : NULL;
        return *text && !ret->cpu_pin ? -ENOMEM : 0;
}

// --- memory and swap

static int write_memory_v2(CgroupBox *box, const Limits *limits) {
        return write_number(box->fds[CGROUP_V2], "", "memory.max", limits->value[LIMIT_MEMORY]);
}

static int read_memory_v2(CgroupBox *box, Limits *ret) {
        return cgroup_read_number(box->fds[CGROUP_V2], "", "memory.max", &ret->value[LIMIT_MEMORY]);
}

static int write_swap_v2(CgroupBox *box, const Limits *limits) {
        return write_number(box->fds[CGROUP_V2], "", "memory.swap.max", limits->value[LIMIT_SWAP]);
}

static int read_swap_v2(CgroupBox *box, Limits *ret) {
        return cgroup_read_number(box->fds[CGROUP_V2], "", "memory.swap.max", &ret->value[LIMIT_SWAP]);
}

static int write_v1_bytes(CgroupBox *box, const char *file, uint64_t bytes) {
        return bytes == LIMIT_UNSET ? cgroup_write(box->fds[CGROUP_MEMORY], "", file, "-1")
                                    : write_number(box->fds[CGROUP_MEMORY], "", file, bytes);
}

// v1 limits memory and memory + swap, and refuses at each write to have the first above the second: a rise begins with the sum, a
// fall with the memory.
static int write_memory_v1(CgroupBox *box, const Limits *limits) {
        uint64_t memory = limits->value[LIMIT_MEMORY], swap = limits->value[LIMIT_SWAP], both, now;
        int r;

        if (!box->host->swap)
                return write_v1_bytes(box, "memory.limit_in_bytes", memory);
        if (memory == LIMIT_UNSET || swap == LIMIT_UNSET || __builtin_add_overflow(memory, swap, &both))
                both = LIMIT_UNSET;
        r = cgroup_read_number(box->fds[CGROUP_MEMORY], "", "memory.memsw.limit_in_bytes", &now);
        if (r < 0)
                return r;
        bool rise = both >= now;
        r = write_v1_bytes(box, rise ? "memory.memsw.limit_in_bytes" : "memory.limit_in_bytes", rise ? both : memory);
        if (r < 0)
                return r;
        return write_v1_bytes(box, rise ? "memory.limit_in_bytes" : "memory.memsw.limit_in_bytes", rise ? memory : both);
}

static int read_memory_v1(CgroupBox *box, Limits *ret) {
        uint64_t memory, both;
        int r = cgroup_read_number(box->fds[CGROUP_MEMORY], "", "memory.limit_in_bytes", &memory);

        if (r < 0)
                return r;
        if (memory < V1_UNLIMITED)
                ret->value[LIMIT_MEMORY] = memory;
        if (!box->host->swap)
                return 0;
        r = cgroup_read_number(box->fds[CGROUP_MEMORY], "", "memory.memsw.limit_in_bytes", &both);
        if (r == 0 && both < V1_UNLIMITED && both >= memory)
                ret->value[LIMIT_SWAP] = both - memory;
        return r;
}

// --- pids: the whole on the box, shares on its parts. `payload` appears when liblxc has made it.

static int write_pids(CgroupBox *box, const Limits *limits) {
        int fd = box->fds[box->host->unified ? CGROUP_V2 : CGROUP_PIDS];
        CgroupPids split = cgroup_split_pids(limits->value[LIMIT_PIDS]);
        const struct {
                const char *group;
                uint64_t pids;
        } parts[] = {{"", limits->value[LIMIT_PIDS]}, {"guest", split.guest}, {"commands", split.commands},
                     {"payload", split.payload}, {CGROUP_SANDBOXES, split.payload}};
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(parts) && r == 0; i++) {
                uint64_t now;
                if (i >= 3 && !cgroup_exists(fd, parts[i].group))
                        continue;
                r = write_number(fd, parts[i].group, "pids.max", parts[i].pids);
                if (r == 0)
                        r = cgroup_read_number(fd, parts[i].group, "pids.max", &now);
                if (r == 0 && now != parts[i].pids)
                        r = -EBADMSG;
        }
        return r;
}

// Of a sandbox, which has no parts.
static int write_pids_plain(CgroupBox *box, const Limits *limits) {
        return write_number(box->fds[box->host->unified ? CGROUP_V2 : CGROUP_PIDS], "", "pids.max", limits->value[LIMIT_PIDS]);
}

static int read_pids(CgroupBox *box, Limits *ret) {
        return cgroup_read_number(box->fds[box->host->unified ? CGROUP_V2 : CGROUP_PIDS], "", "pids.max",
                                  &ret->value[LIMIT_PIDS]);
}

// --- io

static const struct {
        LimitId id;
        const char *key;
} io_keys[] = {
        {LIMIT_IO_READ, "rbps"}, {LIMIT_IO_WRITE, "wbps"}, {LIMIT_IO_READ_OPS, "riops"}, {LIMIT_IO_WRITE_OPS, "wiops"}};

static int write_io(CgroupBox *box, const Limits *limits) {
        char text[LIMIT_TEXT_MAX], value[LIMIT_TEXT_MAX];

        for (size_t d = 0; d < box->host->n_disks; d++) {
                int n = snprintf(text, sizeof(text), "%u:%u", box->host->disks[d][0], box->host->disks[d][1]), r;
                for (size_t i = 0; i < ELEMENTS(io_keys); i++) {
                        format_number(limits->value[io_keys[i].id], value);
                        n += snprintf(text + n, sizeof(text) - (size_t) n, " %s=%.20s", io_keys[i].key, value);
                }
                r = cgroup_write(box->fds[CGROUP_V2], "", "io.max", text);
                if (r < 0)
                        return r;
        }
        return 0;
}

// A disk without a line has no limit. With several disks the loosest counts, so that a missing line is seen.
static int read_io(CgroupBox *box, Limits *ret) {
        char text[4096], head[32], key[16];
        int r = cgroup_read(box->fds[CGROUP_V2], "", "io.max", text, sizeof(text));
        uint64_t found[ELEMENTS(io_keys)] = {0};

        for (size_t d = 0; r >= 0 && d < box->host->n_disks; d++) {
                int n = snprintf(head, sizeof(head), "%u:%u ", box->host->disks[d][0], box->host->disks[d][1]);
                const char *line = text, *end;
                while (line && strncmp(line, head, (size_t) n) != 0)
                        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
                end = line ? line + strcspn(line, "\n") : NULL;
                for (size_t i = 0; i < ELEMENTS(io_keys); i++) {
                        (void) snprintf(key, sizeof(key), " %s=", io_keys[i].key);
                        const char *at = line ? strstr(line, key) : NULL;
                        bool limited = at && at < end && strncmp(at + strlen(key), "max", 3) != 0;
                        found[i] = limited ? MAX2(found[i], strtoull(at + strlen(key), NULL, 10)) : LIMIT_UNSET;
                }
        }
        for (size_t i = 0; r >= 0 && box->host->n_disks > 0 && i < ELEMENTS(io_keys); i++)
                ret->value[io_keys[i].id] = found[i];
        return r < 0 ? r : 0;
}

// bfq knows 1..1000 only: the upper hundredfold is squeezed, as systemd does it.
static int write_io_weight(CgroupBox *box, const Limits *limits) {
        uint64_t weight = limits->value[LIMIT_IO_WEIGHT] == LIMIT_UNSET ? 100 : limits->value[LIMIT_IO_WEIGHT];
        bool bfq = box->host->io_weight == CGROUP_WEIGHT_BFQ;
        char text[48];

        if (bfq && weight > 100)
                weight = 100 + (weight - 100) / 11;
        (void) snprintf(text, sizeof(text), "default %llu", (unsigned long long) weight);
        return cgroup_write(box->fds[CGROUP_V2], ABOVE, bfq ? "io.bfq.weight" : "io.weight", text);
}

static int read_io_weight(CgroupBox *box, Limits *ret) {
        bool bfq = box->host->io_weight == CGROUP_WEIGHT_BFQ;
        char text[4096];
        uint64_t weight;
        int r = cgroup_read(box->fds[CGROUP_V2], ABOVE, bfq ? "io.bfq.weight" : "io.weight", text, sizeof(text));

        if (r >= 0)
                r = cgroup_find_number(text, "default", &weight);
        if (r < 0)
                return r;
        if (bfq && weight > 100)
                weight = 100 + (weight - 100) * 11;
        ret->value[LIMIT_IO_WEIGHT] = weight;
        return 0;
}

// What the kernel is expected to show for what was asked.
static uint64_t limit_expected(CgroupBox *box, LimitId id, const Limits *limits) {
        uint64_t value = limits->value[id];

        if (id == LIMIT_MEMORY || id == LIMIT_SWAP)
                value = limit_page_round(value);
        if ((id == LIMIT_CPU_WEIGHT || id == LIMIT_IO_WEIGHT) && value == LIMIT_UNSET)
                value = 100;
        if (id == LIMIT_SWAP && !box->host->unified && limits->value[LIMIT_MEMORY] == LIMIT_UNSET)
                value = LIMIT_UNSET; // v1 bounds swap by the sum with memory, which has no bound here
        if (id == LIMIT_IO_WEIGHT && box->host->io_weight == CGROUP_WEIGHT_BFQ && value > 100)
                value = 100 + (value - 100) / 11 * 11;
        return value;
}

void cgroup_box_keep_weights(CgroupBox *box, const Limits *limits) {
        static const struct {
                LimitId id;
                int (*read)(CgroupBox *box, Limits *ret), (*write)(CgroupBox *box, const Limits *limits);
        } weights[] = {{LIMIT_CPU_WEIGHT, read_weight_v2, write_weight_v2}, {LIMIT_IO_WEIGHT, read_io_weight, write_io_weight}};

        for (size_t i = 0; box->host->unified && i < ELEMENTS(weights); i++) {
                Limits have;
                limits_init(&have);
                if (cgroup_host_can(box->host, weights[i].id, NULL) && weights[i].read(box, &have) >= 0 &&
                    have.value[weights[i].id] != limit_expected(box, weights[i].id, limits))
                        (void) weights[i].write(box, limits); // the next time again
                limits_done(&have);
        }
}

// --- the table and its walkers

typedef int (*LimitWriteFn)(CgroupBox *box, const Limits *limits);
typedef int (*LimitReadFn)(CgroupBox *box, Limits *ret);

typedef struct LimitFile {
        LimitId id; // who can be enforced when this row can
        LimitWriteFn write_v2;
        LimitReadFn read_v2;
        LimitWriteFn write_v1;
        LimitReadFn read_v1;
} LimitFile;

static const LimitFile instance_rows[] = {
        {LIMIT_CPU, write_cpu_v2, read_cpu_v2, write_cpu_v1, read_cpu_v1},
        {LIMIT_CPU_WEIGHT, write_weight_v2, read_weight_v2, write_weight_v1, read_weight_v1},
        {LIMIT_CPU_PIN, write_pin_v2, read_pin_v2, NULL, NULL},
        {LIMIT_MEMORY, write_memory_v2, read_memory_v2, write_memory_v1, read_memory_v1},
        {LIMIT_SWAP, write_swap_v2, read_swap_v2, NULL, NULL}, // v1: with memory
        {LIMIT_PIDS, write_pids, read_pids, write_pids, read_pids},
        {LIMIT_IO_READ, write_io, read_io, NULL, NULL},
        {LIMIT_IO_WEIGHT, write_io_weight, read_io_weight, NULL, NULL},
};

// Of a sandbox: it has no weights and no list of processors.
static const LimitFile sandbox_rows[] = {
        {LIMIT_CPU, write_cpu_v2, read_cpu_v2, write_cpu_v1, read_cpu_v1},
        {LIMIT_MEMORY, write_memory_v2, read_memory_v2, write_memory_v1, read_memory_v1},
        {LIMIT_SWAP, write_swap_v2, read_swap_v2, NULL, NULL}, // v1: with memory
        {LIMIT_PIDS, write_pids_plain, read_pids, write_pids_plain, read_pids},
        {LIMIT_IO_READ, write_io, read_io, NULL, NULL},
};

typedef struct LimitFiles {
        const LimitFile *rows;
        size_t n;
} LimitFiles;
static const LimitFiles limit_files = {instance_rows, ELEMENTS(instance_rows)}, sandbox_files = {sandbox_rows, ELEMENTS(sandbox_rows)};

// Whether one of these rows is about the limit. The four of io.max have one row.
static bool limit_has_row(const LimitFiles *files, LimitId id) {
        const char *file = limit_row(id)->v2_file;

        for (size_t i = 0; file && i < files->n; i++)
                if (files->rows[i].id == id || strcmp(limit_row(files->rows[i].id)->v2_file, file) == 0)
                        return true;
        return false;
}

static int limit_write(CgroupBox *box, const LimitFiles *files, const Limits *limits, Error *err) {
        for (size_t i = 0; i < files->n; i++) {
                LimitWriteFn fn = box->host->unified ? files->rows[i].write_v2 : files->rows[i].write_v1;
                const LimitRow *row = limit_row(files->rows[i].id);
                int r = fn && cgroup_host_can(box->host, files->rows[i].id, NULL) ? fn(box, limits) : 0;
                if (r == -EBUSY)
                        return error_set(err, ERR_BUSY, "%s: the kernel could not reclaim enough for the new limit", row->key);
                if (r < 0)
                        return error_set_errno(err, r, "%s: writing %s", row->key,
                                               box->host->unified ? row->v2_file : row->v1_file);
        }
        return 0;
}

static int limit_read(CgroupBox *box, const LimitFiles *files, Limits *ret, Error *err) {
        Limits limits;
        int r = 0;

        limits_init(&limits);
        for (size_t i = 0; i < files->n && r == 0; i++) {
                LimitReadFn fn = box->host->unified ? files->rows[i].read_v2 : files->rows[i].read_v1;
                const LimitRow *row = limit_row(files->rows[i].id);
                r = fn && cgroup_host_can(box->host, files->rows[i].id, NULL) ? fn(box, &limits) : 0;
                if (r < 0)
                        (void) error_set_errno(err, r, "%s: reading %s", row->key,
                                               box->host->unified ? row->v2_file : row->v1_file);
        }
        if (r < 0) {
                limits_done(&limits);
                return r;
        }
        free(ret->cpu_pin);
        *ret = limits;
        return 0;
}

int cgroup_box_read(CgroupBox *box, Limits *ret, Error *err) {
        return limit_read(box, &limit_files, ret, err);
}

static int limit_compare(CgroupBox *box, const LimitFiles *files, const Limits *wanted, const Limits *have, Error *err) {
        for (int i = 0; i < _LIMIT_MAX; i++) {
                bool same;
                if (!limit_has_row(files, i) || !cgroup_host_can(box->host, i, NULL))
                        continue;
                same = i == LIMIT_CPU_PIN ? pin_is_as_wanted(box, wanted->cpu_pin, have->cpu_pin)
                                          : limit_expected(box, i, wanted) == have->value[i];
                if (same)
                        continue;
                _cleanup_free_ char *a = limit_format(i, wanted), *b = limit_format(i, have);
                return error_set(err, ERR_INTERNAL, "%s: %s was written, but the kernel has %s", limit_row(i)->key, a ?: "?", b ?: "?");
        }
        return 0;
}

// Written, and read back.
static int limit_put(CgroupBox *box, const LimitFiles *files, const Limits *limits, Error *err) {
        Limits after;
        int r = limit_write(box, files, limits, err);

        limits_init(&after);
        if (r == 0)
                r = limit_read(box, files, &after, err);
        if (r == 0)
                r = limit_compare(box, files, limits, &after, err);
        limits_done(&after);
        return r;
}

static int limit_check_possible(CgroupBox *box, const LimitFiles *files, const Limits *limits, char *const *allow_degraded, Error *err) {
        for (int i = 0; i < _LIMIT_MAX; i++) {
                const LimitRow *row = limit_row(i);
                const char *reason;
                bool asked = i == LIMIT_CPU_PIN ? limits->cpu_pin != NULL : limits->value[i] != LIMIT_UNSET;
                if (!limit_has_row(files, i) || !asked || cgroup_host_can(box->host, i, &reason) || strv_contains(allow_degraded, row->key))
                        continue;
                return error_set(err, ERR_DEGRADED, "%s cannot be enforced here: %s; or name \"%s\" in allow_degraded", row->key,
                                 reason, row->key);
        }
        return 0;
}

// Page cache can be taken back, so it is not what stands in the way of a lower limit.
static uint64_t limit_memory_held(CgroupBox *box) {
        bool v2 = box->host->unified;
        int fd = box->fds[v2 ? CGROUP_V2 : CGROUP_MEMORY];
        static const char *const names[2][2] = {{"total_active_file", "total_inactive_file"}, {"active_file", "inactive_file"}};
        uint64_t use, cache;
        char text[8192];

        if (cgroup_read_number(fd, "", v2 ? "memory.current" : "memory.usage_in_bytes", &use) < 0 ||
            cgroup_read(fd, "", "memory.stat", text, sizeof(text)) < 0)
                return 0;
        for (size_t i = 0; i < 2; i++)
                if (cgroup_find_number(text, names[v2][i], &cache) == 0)
                        use -= MIN2(use, cache);
        return use;
}

static int limit_check_memory(CgroupBox *box, const Limits *limits, Error *err) {
        uint64_t held, wanted = limits->value[LIMIT_MEMORY];
        char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX];

        if (wanted == LIMIT_UNSET || !cgroup_host_can(box->host, LIMIT_MEMORY, NULL))
                return 0;
        held = limit_memory_held(box);
        if (held <= wanted)
                return 0;
        return error_set(err, ERR_BUSY, "memory cannot be lowered to %s: %s are in use and cannot be reclaimed",
                         size_format_short(wanted, a), size_format_short(held, b));
}

int cgroup_box_apply(CgroupBox *box, const Limits *limits, char *const *allow_degraded, bool force, Error *err) {
        int r = limit_check_possible(box, &limit_files, limits, allow_degraded, err);
        Limits before;

        if (r == 0 && !force)
                r = limit_check_memory(box, limits, err);
        if (r < 0)
                return r;
        limits_init(&before);
        r = cgroup_box_read(box, &before, err);
        if (r < 0)
                return r;
        r = limit_put(box, &limit_files, limits, err);
        if (r < 0)
                (void) limit_write(box, &limit_files, &before, NULL); // nothing half changed stays
        limits_done(&before);
        return r;
}

// A sandbox is new, and nothing is in it: there is no use to be looked at before, and whoever is refused removes it.
int cgroup_sandbox_apply(CgroupBox *sandbox, const Limits *limits, char *const *allow_degraded, Error *err) {
        int r = limit_check_possible(sandbox, &sandbox_files, limits, allow_degraded, err);

        return r < 0 ? r : limit_put(sandbox, &sandbox_files, limits, err);
}
