// SPDX-License-Identifier: GPL-2.0-or-later
// Limit: the one table of what an instance may use, and the parser and formatter that walk it.
#include "quotas/limit.h"

#include <ctype.h>
#include <string.h>

#include "base/size.h"
#include "base/valid.h"

#define KIB (1ULL << 10)
#define MIB (1ULL << 20)
#define TIB (1ULL << 40)

// Bounds refuse what cannot be meant or cannot work: the kernel's shortest CPU quota is 1 ms of a 100 ms period, below 32 MiB
// no init starts beside the helper, and below 64 pids the three shares of cgroup_split_pids() are too small to be of use.
static const LimitRow limit_table[_LIMIT_MAX] = {
        [LIMIT_CPU] = {"cpu", "cpu", "CPUs it may use at most, for example 2.5", LIMIT_UNIT_MILLICPU, LIMIT_WHERE_CGROUP, 10,
                       8192000, "cpu", "cpu.max", "cpu", "cpu.cfs_quota_us", false},
        [LIMIT_CPU_WEIGHT] = {"cpu_weight", "cpu weight", "share of the CPUs when they are contended, 100 is usual",
                              LIMIT_UNIT_COUNT, LIMIT_WHERE_CGROUP, 1, 10000, "cpu", "cpu.weight", "cpu", "cpu.shares", false},
        [LIMIT_CPU_PIN] = {"cpu_pin", "cpu pin", "CPUs it may run on, for example 0-3,7", LIMIT_UNIT_CPUSET, LIMIT_WHERE_CGROUP,
                           0, 0, "cpuset", "cpuset.cpus", NULL, NULL, false},
        [LIMIT_MEMORY] = {"memory", "memory", "memory, page cache included", LIMIT_UNIT_BYTES, LIMIT_WHERE_CGROUP, 32 * MIB,
                          64 * TIB, "memory", "memory.max", "memory", "memory.limit_in_bytes", false},
        [LIMIT_SWAP] = {"swap", "swap", "swap space on top of memory", LIMIT_UNIT_BYTES, LIMIT_WHERE_CGROUP, 0, 64 * TIB,
                        "memory", "memory.swap.max", "memory", "memory.memsw.limit_in_bytes", false},
        [LIMIT_PIDS] = {"pids", "pids", "processes and threads", LIMIT_UNIT_COUNT, LIMIT_WHERE_CGROUP, 64, 4194304, "pids",
                        "pids.max", "pids", "pids.max", false},
        [LIMIT_IO_READ] = {"io_read", "io read", "bytes per second read from the disk", LIMIT_UNIT_RATE, LIMIT_WHERE_CGROUP,
                           64 * KIB, TIB, "io", "io.max", NULL, NULL, false},
        [LIMIT_IO_WRITE] = {"io_write", "io write", "bytes per second written to the disk", LIMIT_UNIT_RATE, LIMIT_WHERE_CGROUP,
                            64 * KIB, TIB, "io", "io.max", NULL, NULL, false},
        [LIMIT_IO_READ_OPS] = {"io_read_ops", "io read ops", "read operations per second", LIMIT_UNIT_COUNT, LIMIT_WHERE_CGROUP,
                               10, 1000000000, "io", "io.max", NULL, NULL, false},
        [LIMIT_IO_WRITE_OPS] = {"io_write_ops", "io write ops", "write operations per second", LIMIT_UNIT_COUNT,
                                LIMIT_WHERE_CGROUP, 10, 1000000000, "io", "io.max", NULL, NULL, false},
        [LIMIT_IO_WEIGHT] = {"io_weight", "io weight", "share of a contended disk; needs the bfq scheduler or iocost",
                             LIMIT_UNIT_COUNT, LIMIT_WHERE_CGROUP, 1, 10000, "io", "io.weight", NULL, NULL, false},
        [LIMIT_DISK] = {"disk", "disk", "disk space of root, data and snapshots together", LIMIT_UNIT_BYTES, LIMIT_WHERE_DISK,
                        16 * MIB, 8192 * TIB, NULL, NULL, NULL, NULL, false},
        [LIMIT_INODES] = {"inodes", "inodes", "files and directories", LIMIT_UNIT_COUNT, LIMIT_WHERE_DISK, 64, 1ULL << 40, NULL,
                          NULL, NULL, NULL, false},
        [LIMIT_OPEN_FILES] = {"open_files", "open files", "open files of one process", LIMIT_UNIT_COUNT, LIMIT_WHERE_RLIMIT, 64,
                              1048576, NULL, NULL, NULL, NULL, true},
        [LIMIT_UPLOAD] = {"upload", "upload", "bytes per second sent by the instance, also 100Mbit", LIMIT_UNIT_RATE,
                          LIMIT_WHERE_NETWORK, 1 * KIB, TIB, NULL, NULL, NULL, NULL, false},
        [LIMIT_DOWNLOAD] = {"download", "download", "bytes per second sent to the instance, also 100Mbit", LIMIT_UNIT_RATE,
                            LIMIT_WHERE_NETWORK, 1 * KIB, TIB, NULL, NULL, NULL, NULL, false},
        [LIMIT_CONNECTIONS] = {"connections", "connections", "network connections at once", LIMIT_UNIT_COUNT, LIMIT_WHERE_NETWORK,
                               1, 65536, NULL, NULL, NULL, NULL, false},
        [LIMIT_CONNECTION_RATE] = {"connection_rate", "connection rate", "new network connections per second; twice as many at once",
                                   LIMIT_UNIT_COUNT, LIMIT_WHERE_NETWORK, 1, 10000, NULL, NULL, NULL, NULL, false},
        [LIMIT_DESTINATIONS] = {"destinations", "destinations", "distinct destinations (address and port) per minute", LIMIT_UNIT_COUNT,
                                LIMIT_WHERE_NETWORK, 1, 65536, NULL, NULL, NULL, NULL, false},
        [LIMIT_TRAFFIC] = {"traffic", "traffic", "bytes per day (UTC) through the network, both ways together", LIMIT_UNIT_BYTES,
                           LIMIT_WHERE_NETWORK, MIB, 8192 * TIB, NULL, NULL, NULL, NULL, false},
};

const LimitRow *limit_row(LimitId id) {
        return id >= 0 && id < _LIMIT_MAX ? &limit_table[id] : NULL;
}

bool limit_is_plain(LimitId id) {
        const LimitRow *row = limit_row(id);

        return row && (row->unit == LIMIT_UNIT_COUNT || row->unit == LIMIT_UNIT_MILLICPU);
}

LimitId limit_from_key(const char *key) {
        for (int i = 0; i < _LIMIT_MAX; i++)
                if (key && strcmp(limit_table[i].key, key) == 0)
                        return i;
        return _LIMIT_INVALID;
}

void limits_init(Limits *limits) {
        for (int i = 0; i < _LIMIT_MAX; i++)
                limits->value[i] = LIMIT_UNSET;
        limits->cpu_pin = NULL;
}

void limits_done(Limits *limits) {
        if (!limits)
                return;
        free(limits->cpu_pin);
        limits_init(limits);
}

int limits_copy(Limits *to, const Limits *from) {
        char *pin = NULL;

        if (from->cpu_pin && !(pin = strdup(from->cpu_pin)))
                return -ENOMEM;
        memcpy(to->value, from->value, sizeof(to->value));
        free(to->cpu_pin);
        to->cpu_pin = pin;
        return 0;
}

static int limit_parse_count(const char *text, uint64_t *ret) {
        uint64_t value = 0;

        if (!*text)
                return -EINVAL;
        for (; *text; text++) {
                if (!isdigit((unsigned char) *text))
                        return -EINVAL;
                if (__builtin_mul_overflow(value, (uint64_t) 10, &value) ||
                    __builtin_add_overflow(value, (uint64_t) (*text - '0'), &value))
                        return -ERANGE;
        }
        *ret = value;
        return 0;
}

// "2", "2.5", "0.125": at most three decimals, since the unit is a thousandth.
static int limit_parse_millicpu(const char *text, uint64_t *ret) {
        const char *dot = strchr(text, '.');
        size_t decimals = dot ? strlen(dot + 1) : 0;
        char whole[24], fraction[4] = "000";
        uint64_t cpus, millis;
        int r;

        size_t n = dot ? (size_t) (dot - text) : strlen(text);
        if (n >= sizeof(whole))
                return -ERANGE;
        if (dot && (decimals < 1 || decimals > 3))
                return -EINVAL;
        memcpy(whole, text, n);
        whole[n] = 0;
        if (dot)
                memcpy(fraction, dot + 1, decimals);
        r = limit_parse_count(whole, &cpus);
        if (r < 0)
                return r;
        r = limit_parse_count(fraction, &millis);
        if (r < 0)
                return r;
        if (__builtin_mul_overflow(cpus, (uint64_t) 1000, &cpus) || __builtin_add_overflow(cpus, millis, &cpus))
                return -ERANGE;
        *ret = cpus;
        return 0;
}

// Bytes per second as a size, with or without "/s", or bits as network people write them.
static int limit_parse_rate(const char *text, uint64_t *ret) {
        static const struct {
                const char *unit;
                uint64_t bytes; // per second
        } bits[] = {{"kbit", 1000 / 8}, {"Mbit", 1000000 / 8}, {"Gbit", 1000000000 / 8}};
        _cleanup_free_ char *copy = strdup(text);
        uint64_t value;
        size_t n;
        int r;

        if (!copy)
                return -ENOMEM;
        n = strlen(copy);
        if (n > 2 && strcmp(copy + n - 2, "/s") == 0)
                copy[n -= 2] = 0;
        for (size_t i = 0; i < ELEMENTS(bits); i++) {
                if (n <= 4 || strcmp(copy + n - 4, bits[i].unit) != 0)
                        continue;
                copy[n - 4] = 0;
                r = limit_parse_count(copy, &value);
                if (r < 0)
                        return r;
                return __builtin_mul_overflow(value, bits[i].bytes, ret) ? -ERANGE : 0;
        }
        return size_parse(copy, ret);
}

typedef struct LimitUnitRow {
        int (*parse)(const char *text, uint64_t *ret);
        const char *wanted; // completes "must be …"
} LimitUnitRow;

static const LimitUnitRow limit_units[] = {
        [LIMIT_UNIT_COUNT] = {limit_parse_count, "a whole number"},
        [LIMIT_UNIT_BYTES] = {size_parse, "a size such as \"8GiB\""},
        [LIMIT_UNIT_MILLICPU] = {limit_parse_millicpu, "a number of CPUs such as \"2.5\", with at most three decimals"},
        [LIMIT_UNIT_RATE] = {limit_parse_rate, "bytes per second such as \"100MiB\""},
        [LIMIT_UNIT_CPUSET] = {NULL, "a list of CPUs such as \"0-3,7\""},
};

static char *limit_format_value(LimitUnit unit, uint64_t value) {
        char size[SIZE_TEXT_MAX], *text = NULL;
        int n, width = 3;
        unsigned millis;

        if (value == LIMIT_UNSET)
                return strdup("max");
        switch (unit) {
        case LIMIT_UNIT_BYTES:
                return strdup(size_format(value, size));
        case LIMIT_UNIT_RATE:
                n = asprintf(&text, "%s/s", size_format(value, size));
                break;
        case LIMIT_UNIT_MILLICPU:
                millis = (unsigned) (value % 1000);
                for (; width > 1 && millis % 10 == 0; width--)
                        millis /= 10;
                n = millis ? asprintf(&text, "%llu.%0*u", (unsigned long long) value / 1000, width, millis)
                           : asprintf(&text, "%llu", (unsigned long long) value / 1000);
                break;
        default:
                n = asprintf(&text, "%llu", (unsigned long long) value);
        }
        return n < 0 ? NULL : text;
}

int limit_set(LimitId id, uint64_t value, Limits *limits, Error *err) {
        const LimitRow *row = limit_row(id);
        _cleanup_free_ char *low = NULL, *high = NULL, *shown = NULL;

        if (value == LIMIT_UNSET || (value >= row->min && value <= row->max)) {
                limits->value[id] = value;
                return 0;
        }
        low = limit_format_value(row->unit, row->min);
        high = limit_format_value(row->unit, row->max);
        shown = limit_format_value(row->unit, value);
        return error_set_field(err, row->key, "%s %s is out of range: it must be between %s and %s, or max", row->key,
                               shown ?: "?", low ?: "?", high ?: "?");
}

static int limit_refuse(const LimitRow *row, const char *text, int r, Error *err) {
        _cleanup_free_ char *shown = valid_printable(text);

        if (shown && strlen(shown) > 80)
                memcpy(shown + 77, "...", 4);
        if (r == -ERANGE)
                return error_set_field(err, row->key, "%s \"%s\" is too large", row->key, shown ?: "");
        return error_set_field(err, row->key, "%s \"%s\" is not valid: it must be %s, or max", row->key, shown ?: "",
                               limit_units[row->unit].wanted);
}

int limit_parse(LimitId id, const char *text, Limits *limits, Error *err) {
        const LimitRow *row = limit_row(id);
        uint64_t value;
        int r;

        if (!row)
                return error_set(err, ERR_INVALID, "no such limit");
        if (!text)
                return error_set_field(err, row->key, "%s is missing", row->key);
        bool unset = strcmp(text, "max") == 0;
        if (row->unit == LIMIT_UNIT_CPUSET) {
                _cleanup_free_ char *pin = NULL;
                r = unset ? 0 : limit_cpuset_canonical(text, &pin);
                if (r == -ENOMEM)
                        return r;
                if (r < 0)
                        return limit_refuse(row, text, r, err);
                free(limits->cpu_pin);
                limits->cpu_pin = TAKE_PTR(pin);
                return 0;
        }
        if (unset)
                return limit_set(id, LIMIT_UNSET, limits, err);
        r = limit_units[row->unit].parse(text, &value);
        if (r == 0 && value == LIMIT_UNSET)
                r = -ERANGE; // written as a number it is no way to say "max"
        return r < 0 ? limit_refuse(row, text, r, err) : limit_set(id, value, limits, err);
}

char *limit_format(LimitId id, const Limits *limits) {
        const LimitRow *row = limit_row(id);

        if (!row)
                return NULL;
        if (row->unit == LIMIT_UNIT_CPUSET)
                return strdup(limits->cpu_pin ?: "max");
        return limit_format_value(row->unit, limits->value[id]);
}

int limit_cpuset_canonical(const char *text, char **ret) {
        enum { CPUS = 8192 }; // as VALID_CPUSET bounds them
        bool set[CPUS + 1] = {false};
        _cleanup_free_ char *out = NULL;
        size_t used = 0;

        if (!valid_is(VALID_CPUSET, text))
                return -EINVAL;
        // A list of at most 255 bytes has at most 128 pieces of at most "8190-8191,": merging never makes it longer.
        out = malloc(strlen(text) * 2 + 16);
        if (!out)
                return -ENOMEM;
        for (const char *p = text; *p;) {
                char *end;
                unsigned long a = strtoul(p, &end, 10), b = a;
                if (*end == '-')
                        b = strtoul(end + 1, &end, 10);
                for (; a <= b && a < CPUS; a++)
                        set[a] = true;
                p = *end == ',' ? end + 1 : end;
        }
        for (unsigned a = 0, b; a < CPUS; a = b + 1) {
                for (b = a; set[b]; b++)
                        ;
                if (b == a)
                        continue;
                used += (size_t) snprintf(out + used, 16, "%s%u", used ? "," : "", a);
                if (b > a + 1)
                        used += (size_t) snprintf(out + used, 16, "-%u", b - 1);
        }
        *ret = TAKE_PTR(out);
        return 0;
}
