// SPDX-License-Identifier: GPL-2.0-or-later
// Admission: what was promised must fit this host, and what is left can be carved into equal shares. Pure.
#include "quotas/admission.h"

#include "base/cleanup.h"
#include "base/size.h"

#define CARVE_ROUND (64ULL << 20)
#define CARVE_MEMORY_MIN (512ULL << 20)
#define CARVE_DISK_MIN (4ULL << 30)
#define CARVE_COUNT_MAX 1000
// Threads of builds and browsers come in hundreds; one pid for each MiB is generous, and the bounds keep the sum below pid_max.
#define CARVE_PIDS_MIN 1024
#define CARVE_PIDS_MAX 32768
#define CARVE_CPU_MIN 100

typedef struct AdmissionSide {
        const char *name, *whole; // "memory"; what the total is
        uint64_t total, reserve, other, promised, asked;
} AdmissionSide;

// Sums stick at the top instead of wrapping: absurd promises must not look small.
static uint64_t admission_add(uint64_t a, uint64_t b) {
        uint64_t sum;

        return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t admission_left(const AdmissionSide *side) {
        uint64_t gone = admission_add(side->reserve, side->other);

        return side->total > gone ? side->total - gone : 0;
}

static int admission_check_side(const AdmissionSide *side, size_t n, const char *name, Error *err) {
        char promised[SIZE_TEXT_MAX], asked[SIZE_TEXT_MAX], total[SIZE_TEXT_MAX], reserve[SIZE_TEXT_MAX], left[SIZE_TEXT_MAX],
                other[SIZE_TEXT_MAX + 16] = "", text[SIZE_TEXT_MAX], shortfall[SIZE_TEXT_MAX];
        uint64_t wanted = admission_add(side->promised, side->asked);

        if (side->asked == UINT64_MAX)
                return error_set(err, ERR_QUOTA, "%s: \"%s\" asks for no limit, and that cannot be promised", side->name, name);
        if (wanted <= admission_left(side))
                return 0;
        if (side->other > 0)
                (void) snprintf(other, sizeof(other), " and %s in other use", size_format_short(side->other, text));
        return error_set(err, ERR_QUOTA,
                         "%s: %zu instance%s promise%s %s and \"%s\" asks for %s, but %s less a reserve of %s%s leaves %s: %s short",
                         side->name, n, n == 1 ? "" : "s", n == 1 ? "s" : "", size_format_short(side->promised, promised), name,
                         size_format_short(side->asked, asked), size_format_short(side->total, total),
                         size_format_short(side->reserve, reserve), other, size_format_short(admission_left(side), left),
                         size_format_short(wanted - admission_left(side), shortfall));
}

static void admission_sides(const Capacity *capacity, const Promise *promised, size_t n, AdmissionSide ret[static 2]) {
        ret[0] = (AdmissionSide) {"memory", "RAM", capacity->memory_bytes, capacity->memory_reserve_bytes, 0, 0, 0};
        ret[1] = (AdmissionSide) {"disk", "space", capacity->disk_bytes, capacity->disk_reserve_bytes,
                                  capacity->disk_used_other_bytes, 0, 0};
        for (size_t i = 0; i < n; i++) {
                ret[0].promised = admission_add(ret[0].promised, promised[i].memory_bytes);
                ret[1].promised = admission_add(ret[1].promised, promised[i].disk_bytes);
        }
}

int admission_check(const Capacity *capacity, const Promise *promised, size_t n, const Promise *asked, Error *err) {
        AdmissionSide sides[2];

        admission_sides(capacity, promised, n, sides);
        sides[0].asked = asked->memory_bytes;
        sides[1].asked = asked->disk_bytes;
        for (size_t i = 0; i < ELEMENTS(sides); i++) {
                int r = admission_check_side(&sides[i], n, asked->name, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

// Measured: its process 1, what the kernel has for its namespaces and groups, and a shell.
static const struct {
        LimitId id;
        uint64_t reserve;
} sandbox_reserves[] = {{LIMIT_MEMORY, 4ULL << 20}, {LIMIT_PIDS, 4}};

int admission_check_sandbox(const Limits *instance, const char *name, unsigned live, Error *err) {
        for (size_t i = 0; i < ELEMENTS(sandbox_reserves); i++) {
                LimitId id = sandbox_reserves[i].id;
                Limits reserve;
                if (sandbox_reserves[i].reserve * (live + 1ULL) <= instance->value[id])
                        continue;
                limits_init(&reserve);
                reserve.value[id] = sandbox_reserves[i].reserve;
                _cleanup_free_ char *each = limit_format(id, &reserve), *has = limit_format(id, instance);
                return error_set(err, ERR_QUOTA, "%s: each sandbox keeps %s of the %s that %s has, and with %u of them there is no room for another", limit_row(id)->key, each ?: "?",
                                 has ?: "?", name, live);
        }
        return 0;
}

uint64_t admission_guard(const Capacity *capacity) {
        return capacity->memory_bytes - MIN2(capacity->memory_reserve_bytes, capacity->memory_bytes) / 2;
}

static int carve_share(const AdmissionSide *side, unsigned count, uint64_t least, uint64_t *ret, Error *err) {
        char left[SIZE_TEXT_MAX], each[SIZE_TEXT_MAX], min[SIZE_TEXT_MAX];
        uint64_t all = admission_left(side), share;

        all = all > side->promised ? all - side->promised : 0;
        share = all / count / CARVE_ROUND * CARVE_ROUND;
        if (share < least)
                return error_set(err, ERR_QUOTA, "%s: %s left for %u instance%s is %s each, below the least of %s", side->name,
                                 size_format_short(all, left), count, count == 1 ? "" : "s", size_format_short(share, each),
                                 size_format_short(least, min));
        *ret = share;
        return 0;
}

int carve_plan(const Capacity *capacity, const Promise *promised, size_t n, unsigned count, CarvePlan *ret, Error *err) {
        CarvePlan plan = {.count = count};
        AdmissionSide sides[2];
        int r;

        if (count < 1 || count > CARVE_COUNT_MAX)
                return error_set_field(err, "count", "count %u is out of range: it must be between 1 and %d", count,
                                       CARVE_COUNT_MAX);
        admission_sides(capacity, promised, n, sides);
        r = carve_share(&sides[0], count, CARVE_MEMORY_MIN, &plan.memory_bytes, err);
        if (r == 0)
                r = carve_share(&sides[1], count, CARVE_DISK_MIN, &plan.disk_bytes, err);
        if (r < 0)
                return r;
        plan.pids = MIN2(MAX2(plan.memory_bytes >> 20, (uint64_t) CARVE_PIDS_MIN), (uint64_t) CARVE_PIDS_MAX);
        // CPUs may be promised twice, unlike memory: an instance alone may use twice its share, but one CPU stays for the others.
        unsigned share = capacity->cpus * 1000 / count, most = capacity->cpus > 1 ? (capacity->cpus - 1) * 1000 : 1000;
        plan.cpu_millis = MIN2(MAX2(share * 2, (unsigned) CARVE_CPU_MIN), most);
        if (count == 1)
                plan.cpu_millis = MAX2(capacity->cpus, 1u) * 1000;
        plan.cpu_millis = plan.cpu_millis / CARVE_CPU_MIN * CARVE_CPU_MIN;
        *ret = plan;
        return 0;
}
