// SPDX-License-Identifier: GPL-2.0-or-later
// IdPool: a table of subuid/subgid pairs, and what is said about each that is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "state/store.h"

#define POOL "root:1000000:1000000000\n"

static const struct {
        const char *what, *subuid, *subgid;
        IdPool pool;       // count 0: refused
        const char *wants; // part of the sentence
} cases[] = {
        {"plain", POOL, POOL, {1000000, 1000000000, 0}, NULL},
        {"numeric owner", "0:1000000:1000000000\n", POOL, {1000000, 1000000000, 0}, NULL},
        {"no newline at the end", "root:1000000:1000000000", POOL, {1000000, 1000000000, 0}, NULL},
        {"smallest", "root:65536:67108864\n", "root:65536:67108864\n", {65536, 67108864, 0}, NULL},
        {"others below", "agent:100000:65536\n" POOL, "agent:100000:65536\n" POOL, {1000000, 1000000000, 0}, NULL},
        {"touching below", "a:934464:65536\n" POOL, POOL, {1000000, 1000000000, 0}, NULL},
        {"touching above", "a:1001000000:65536\n" POOL, POOL, {1000000, 1000000000, 0}, NULL},
        {"small line of root's too", "root:100000:65536\n" POOL, POOL, {1000000, 1000000000, 0}, NULL},
        {"hexadecimal as newuidmap reads it", "root:0xf4240:1000000000\n", POOL, {1000000, 1000000000, 0}, NULL},
        {"broken lines", "# note\n\nx\na:b:c\na:1:0\n:1:2\na:1:2:3\na:-1:5\na: 1:5\n" POOL, POOL, {1000000, 1000000000, 7}, NULL},
        {"number beyond 32 bits", "a:99999999999:1\na:99999999999999999999999:1\n" POOL, POOL, {1000000, 1000000000, 2}, NULL},
        {"no line", "agent:100000:65536\n", POOL, {0}, "/etc/subuid has no line for root; add the line root:1000000:1000000000"},
        {"no line in subgid", POOL, "", {0}, "/etc/subgid has no line for root"},
        {"too small", "root:100000:65536\n", POOL, {0}, "line 1 gives root 65536 ids, at least 67108864"},
        {"base zero", "root:0:1000000000\n", "root:0:1000000000\n", {0}, "among the host's own users"},
        {"too far", "root:4000000000:294967296\n", "root:4000000000:294967296\n", {0}, "beyond the last host id"},
        {"differing base", POOL, "root:2000000:1000000000\n", {0}, "make line 1 of /etc/subgid root:1000000:1000000000"},
        {"differing count", POOL, "root:1000000:900000000\n", {0}, "1000000:900000000 in /etc/subgid"},
        {"overlap", "a:1:5\nmallory:999999:2\n" POOL, POOL, {0}, "/etc/subuid line 2 gives mallory the ids 999999 to 1000000"},
        {"overlap in subgid only", POOL, POOL "eve:1000999999:1\n", {0}, "/etc/subgid line 2 gives eve"},
        {"overlap that contains", "all:1:4294967295\n" POOL, POOL, {0}, "line 1 gives all the ids 1 to 4294967295"},
        {"overlap in hexadecimal", POOL "hex:0x1000000:65536\n", POOL, {0}, "line 2 gives hex"},
        {"overlap of root's own", POOL POOL, POOL, {0}, "/etc/subuid line 2 gives root"},
};

static char *make_root(const char *subuid, const char *subgid) {
        char *dir = strdup("/tmp/test-idpool-XXXXXX");
        _cleanup_close_ int fd = -EBADF;

        assert_non_null(mkdtemp(dir));
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        if (subuid)
                assert_int_equal(io_write_atomic(fd, "subuid", subuid, strlen(subuid), 0644), 0);
        if (subgid)
                assert_int_equal(io_write_atomic(fd, "subgid", subgid, strlen(subgid), 0644), 0);
        return dir;
}

static void drop_root(char *dir) {
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
        free(dir);
}

static void test_table(void **state) {
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error e = ERROR_NULL;
                IdPool pool = {7, 7, 7};
                char *dir = make_root(cases[i].subuid, cases[i].subgid);
                int r = idpool_load(dir, &pool, &e);

                drop_root(dir);
                if (cases[i].pool.count) {
                        if (r != 0 || memcmp(&pool, &cases[i].pool, sizeof(pool)) != 0)
                                fail_msg("%s: %d %s (%u:%u, %u ignored)", cases[i].what, r, error_message(&e, r), pool.base,
                                         pool.count, pool.ignored);
                } else if (r >= 0 || e.code != ERR_DEGRADED || !strstr(e.message, cases[i].wants) || pool.count != 7)
                        fail_msg("%s: %d %s", cases[i].what, r, error_message(&e, r));
        }
}

#define OURS "ours:70000:1024\n"
static const struct {
        const char *what, *subuid, *subgid;
        uint32_t base; // 0: refused
        const char *wants;
} ranges[] = {
        {"a range", POOL OURS, POOL OURS, 70000, NULL},
        {"the largest", POOL "ours:1000:5\n" OURS, POOL OURS, 70000, NULL},
        {"none", POOL, POOL, 0, "/etc/subuid gives ours no 1024 ids"},
        {"too small", "ours:70000:1023\n", "ours:70000:1023\n", 0, "gives ours no 1024 ids"},
        {"among the host's users", "ours:60000:1024\n", "ours:60000:1024\n", 0, "gives ours no 1024 ids"},
        {"beyond the last", "ours:4294966800:1024\n", "ours:4294966800:1024\n", 0, "gives ours no 1024 ids"},
        {"other groups", OURS, "ours:80000:1024\n", 0, "do not give ours the same ids"},
        {"not in subgid", OURS, POOL, 0, "do not give ours the same ids"},
        {"another's, too", OURS "you:71023:1\n", OURS, 0, "line 2 gives you the ids 71023 to 71023, which are part of ours's pool"},
        {"another's in subgid", OURS, "all:1:4294967295\n" OURS, 0, "/etc/subgid line 1 gives all"},
};

static void test_ranges(void **state) {
        for (size_t i = 0; i < ELEMENTS(ranges); i++) {
                _cleanup_error_ Error e = ERROR_NULL;
                char *dir = make_root(ranges[i].subuid, ranges[i].subgid);
                uint32_t base = 0;
                int r = idpool_load_range(dir, "ours", 1024, &base, &e);

                drop_root(dir);
                if (base != ranges[i].base || (r >= 0) != (base > 0) || (r < 0 && (e.code != ERR_DEGRADED || !strstr(e.message, ranges[i].wants))))
                        fail_msg("%s: %d %u %s", ranges[i].what, r, base, error_message(&e, r));
        }
}

static void refused(char *dir, const char *wants) {
        _cleanup_error_ Error e = ERROR_NULL;
        IdPool pool;
        int r = idpool_load(dir, &pool, &e);

        if (r >= 0 || !strstr(e.message, wants))
                fail_msg("wanted \"%s\": %d %s", wants, r, error_message(&e, r));
}

static void test_files(void **state) {
        char *dir = make_root(POOL, NULL), *path = NULL;
        _cleanup_free_ char *big = malloc((1 << 20) + 2);
        _cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        refused(dir, "/etc/subgid is missing; add the line");
        assert_int_equal(symlinkat("subuid", fd, "subgid"), 0);
        refused(dir, "/etc/subgid is a symbolic link");
        assert_int_equal(unlinkat(fd, "subgid", 0), 0);
        memset(big, '#', (1 << 20) + 1);
        assert_int_equal(io_write_atomic(fd, "subgid", big, (1 << 20) + 1, 0644), 0);
        refused(dir, "/etc/subgid is larger than 1 MiB");
        assert_true(asprintf(&path, "%s/none", dir) > 0);
        refused(path, "opening");
        free(path);
        drop_root(dir);
}

static void test_slot_base(void **state) {
        IdPool pool = {.base = 1000000, .count = 1000000000};

        assert_int_equal(idpool_slot_base(&pool, 0), 0);
        assert_int_equal(idpool_slot_base(&pool, 1), 1000000);
        assert_int_equal(idpool_slot_base(&pool, 2), 1000000 + SLOT_IDS);
        assert_int_equal(idpool_slot_base(&pool, 953), 1000000 + 952 * (uint64_t) SLOT_IDS);
        assert_int_equal(idpool_slot_base(&pool, 954), 0); // its last ids would be beyond the pool
        pool.count = UINT32_MAX - pool.base;
        assert_int_equal(idpool_slot_base(&pool, SLOT_MAX), 1000000 + 1022 * (uint64_t) SLOT_IDS);
        assert_int_equal(idpool_slot_base(&pool, SLOT_MAX + 1), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table), cmocka_unit_test(test_ranges),
                cmocka_unit_test(test_files),
                cmocka_unit_test(test_slot_base),
        };
        return cmocka_run_group_tests_name("idpool", tests, NULL, NULL);
}
