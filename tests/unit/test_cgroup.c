// SPDX-License-Identifier: GPL-2.0-or-later
// The cgroup v2 side on plain files: what is written where, in which form, and what a kernel that answers otherwise leads to.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/strv.h"
#include "quotas/blockdev.h"
#include "quotas/cgroup_private.h"

#define MIB (1ULL << 20)
#define PREFIX "hostd.slice/hostd-instance@a.service"
#define BOX PREFIX "/box"

static char root[64];

static void put(const char *path, const char *text) {
        _cleanup_free_ char *full = NULL;

        assert_true(asprintf(&full, "%s/%s", root, path) > 0);
        _cleanup_close_ int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
}

static void expect(const char *path, const char *text) {
        _cleanup_free_ char *full = NULL, *have = NULL;

        assert_true(asprintf(&full, "%s/%s", root, path) > 0);
        assert_int_equal(io_read_file(AT_FDCWD, full, 4096, &have, NULL), 0);
        assert_string_equal(have, text);
}

static int set_up(void **state) {
        static const char *const groups[] = {"", "hostd.slice/", PREFIX "/", BOX "/", BOX "/commands/", BOX "/guest/", BOX "/payload/", BOX "/sandboxes/"};
        static const char *const files[] = {"cpu.max", "cpu.weight", "cpuset.cpus", "memory.max", "memory.swap.max", "pids.max", "io.max",
                                            "io.weight", "memory.min", "memory.oom.group", "memory.current", "memory.stat",
                                            "cgroup.max.depth", "cgroup.max.descendants", "cgroup.freeze", "cgroup.events", "cgroup.kill"};

        (void) snprintf(root, sizeof(root), "/tmp/hostd-test-cgroup-XXXXXX");
        assert_non_null(mkdtemp(root));
        for (size_t i = 0; i < ELEMENTS(groups); i++) {
                char path[256];
                (void) snprintf(path, sizeof(path), "%s/%s", root, groups[i]);
                assert_int_equal(io_mkdir_p(AT_FDCWD, path, 0755), 0);
                (void) snprintf(path, sizeof(path), "%scgroup.subtree_control", groups[i]);
                put(path, i == 5 ? "" : "cpuset cpu io memory pids");
                for (size_t k = 0; i >= 3 && k < ELEMENTS(files); k++) {
                        (void) snprintf(path, sizeof(path), "%s%s", groups[i], files[k]);
                        put(path, "");
                }
        }
        put("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma\n");
        put(PREFIX "/cgroup.procs", "");
        put(BOX "/cpu.max", "max 100000\n");
        put(BOX "/cpu.weight", "100\n");
        put(PREFIX "/cpu.weight", "100\n");
        put(BOX "/memory.max", "max\n");
        put(BOX "/memory.swap.max", "max\n");
        put(BOX "/pids.max", "max\n");
        put(BOX "/memory.current", "0\n");
        return 0;
}

static int tear_down(void **state) {
        return io_remove_tree(AT_FDCWD, root);
}

static CgroupBox *open_box(CgroupHost **ret_host) {
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupBox *box = NULL;

        assert_int_equal(cgroup_host_new(root, ret_host, &err), 0);
        (*ret_host)->disks[0][0] = 259;
        (*ret_host)->n_disks = 1;
        if (cgroup_box_create(*ret_host, PREFIX, &box, &err) != 0)
                fail_msg("%s", err.message);
        return box;
}

static void make_levels(int dirfd) {
        static const char *const levels[] = {"unit", "unit/run", "unit/box", "unit/box/guest", "unit/box/commands", "unit/box/commands/1",
                                             "unit/box/payload", "unit/box/payload/a", "unit/box/payload/a/b", "unit/box/payload/a/b/c"};

        for (size_t i = 0; i < ELEMENTS(levels); i++)
                assert_int_equal(mkdirat(dirfd, levels[i], 0700), 0);
}

// systemd removes the groups of a unit that ended, and so does hostd. Four at once, so that they meet on a busy machine, too.
static void test_remove_together(void **state) {
        _cleanup_close_ int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pid_t pids[4];

        for (int round = 0; round < 200; round++) {
                make_levels(fd);
                for (size_t i = 0; i < ELEMENTS(pids); i++) {
                        pids[i] = fork();
                        if (pids[i] == 0)
                                _exit(-cgroup_remove_tree(fd, "unit"));
                }
                for (size_t i = 0; i < ELEMENTS(pids); i++) {
                        int status = -1;
                        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
                        assert_int_equal(status, 0);
                }
                assert_false(cgroup_exists(fd, "unit"));
        }
}

static void test_write(void **state) {
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupHost *host;
        CgroupBox *box = open_box(&host);
        Limits limits, have;

        limits_init(&limits);
        limits_init(&have);
        assert_true(cgroup_host_is_unified(host));
        expect(BOX "/guest/memory.min", "16777216");
        limits.value[LIMIT_CPU] = 2500;
        limits.value[LIMIT_CPU_WEIGHT] = 300;
        limits.value[LIMIT_MEMORY] = 8192 * MIB + 1; // the kernel rounds down to pages
        limits.value[LIMIT_SWAP] = 0;
        limits.value[LIMIT_PIDS] = 512;
        limits.value[LIMIT_IO_READ] = 100 * MIB;
        limits.value[LIMIT_IO_WRITE_OPS] = 1000;
        assert_int_equal(limit_parse(LIMIT_CPU_PIN, "0-3,7", &limits, NULL), 0);
        // Plain files do not round: the difference must be noticed.
        assert_int_equal(cgroup_box_apply(box, &limits, NULL, false, &err), -EIO);
        assert_string_equal(err.message, "memory: 8589934593B was written, but the kernel has 8589934593B");
        limits.value[LIMIT_MEMORY] = 8192 * MIB;
        error_done(&err);
        if (cgroup_box_apply(box, &limits, NULL, false, &err) != 0)
                fail_msg("%s", err.message);
        expect(BOX "/cpu.max", "250000 100000");
        expect(PREFIX "/cpu.weight", "300"); // where the other instances are its siblings
        expect(BOX "/cpu.weight", "300");
        put(PREFIX "/cpu.weight", "100\n");
        cgroup_box_keep_weights(box, &limits);
        expect(PREFIX "/cpu.weight", "300");
        expect(BOX "/cpuset.cpus", "0-3,7");
        expect(BOX "/memory.max", "8589934592");
        expect(BOX "/memory.swap.max", "0");
        expect(BOX "/pids.max", "512");
        expect(BOX "/payload/pids.max", "384");
        expect(BOX "/commands/pids.max", "64");
        expect(BOX "/guest/pids.max", "64");
        expect(BOX "/io.max", "259:0 rbps=104857600 wbps=max riops=max wiops=1000");
        assert_int_equal(cgroup_box_read(box, &have, NULL), 0);
        assert_int_equal(have.value[LIMIT_CPU], 2500);
        assert_int_equal(have.value[LIMIT_IO_WRITE], LIMIT_UNSET);
        assert_int_equal(have.value[LIMIT_IO_WRITE_OPS], 1000);
        limits_done(&limits);
        assert_int_equal(cgroup_box_apply(box, &limits, NULL, false, NULL), 0);
        expect(BOX "/cpu.max", "max 100000");
        expect(BOX "/cpu.weight", "100");
        assert_int_equal(cgroup_box_read(box, &have, NULL), 0);
        assert_int_equal(have.value[LIMIT_CPU_WEIGHT], 100); // unset is a number all the same, and no reason to write it again
        expect(BOX "/cpuset.cpus", "\n");
        expect(BOX "/memory.max", "max");
        limits_done(&have);
        cgroup_box_free(box);
        cgroup_host_free(host);
}

static void test_refuse(void **state) {
        _cleanup_error_ Error a = ERROR_NULL, b = ERROR_NULL, c = ERROR_NULL;
        char *allow[] = {(char *) "io_weight", NULL};
        CgroupHost *host;
        CgroupBox *box = open_box(&host);
        const char *reason;
        Limits limits;

        limits_init(&limits);
        limits.value[LIMIT_MEMORY] = 64 * MIB;
        put(BOX "/memory.current", "209715200\n");
        put(BOX "/memory.stat", "anon 1\nactive_file 1048576\ninactive_file 1048576\n");
        assert_int_equal(cgroup_box_apply(box, &limits, NULL, false, &a), -EBUSY);
        assert_string_equal(a.message, "memory cannot be lowered to 64.0MiB: 198MiB are in use and cannot be reclaimed");
        expect(BOX "/memory.max", "max\n");
        assert_int_equal(cgroup_box_apply(box, &limits, NULL, true, NULL), 0);
        limits.value[LIMIT_MEMORY] = LIMIT_UNSET;
        limits.value[LIMIT_IO_WEIGHT] = 200;
        assert_int_equal(cgroup_box_apply(box, &limits, NULL, false, &b), -EOPNOTSUPP);
        assert_int_equal(b.code, ERR_DEGRADED);
        assert_string_equal(b.message, "io_weight cannot be enforced here: inert: the disk has neither the bfq scheduler nor iocost; or "
                                       "name \"io_weight\" in allow_degraded");
        assert_int_equal(cgroup_box_apply(box, &limits, allow, false, NULL), 0);
        host->io_weight = CGROUP_WEIGHT_COST;
        put(PREFIX "/io.weight", "default 100\n");
        assert_int_equal(cgroup_box_apply(box, &limits, NULL, false, NULL), 0);
        expect(PREFIX "/io.weight", "default 200");
        cgroup_box_free(box);
        cgroup_host_free(host);

        put("cgroup.controllers", "cpu memory\n");
        assert_int_equal(cgroup_host_new(root, &host, &c), 0);
        assert_false(cgroup_host_can(host, LIMIT_PIDS, &reason));
        assert_string_equal(reason, "the kernel does not offer this cgroup controller");
        assert_true(cgroup_host_can(host, LIMIT_CPU, &reason));
        assert_null(reason);
        assert_false(cgroup_host_can(host, LIMIT_DISK, &reason));
        cgroup_host_free(host);
}

static void test_names(void **state) {
        static const char *const bad[] = {"", "/a", "a/", "a//b", "../a", "a/..", ".a", "a b", "a\nb", "a/b;c"};
        CgroupHost *host;
        CgroupBox *box = open_box(&host), *other = NULL;
        _cleanup_strv_ char **v = NULL;

        for (size_t i = 0; i < ELEMENTS(bad); i++)
                assert_int_equal(cgroup_box_create(host, bad[i], &other, NULL), -EINVAL);
        assert_int_equal(cgroup_box_open(host, "hostd/i1-g1", &other, NULL), -ENOENT);
        assert_int_equal(cgroup_command_create(box, "A", NULL), -EINVAL);
        assert_int_equal(cgroup_command_create(box, "a/b", NULL), -EINVAL);
        assert_int_equal(cgroup_command_create(box, "012345678901234567890123456789012", NULL), -EINVAL);
        assert_int_equal(cgroup_command_remove(box, ".."), -EINVAL);
        assert_int_equal(cgroup_host_list(host, &v, NULL), 0);
        assert_int_equal(strv_length(v), 1);
        assert_string_equal(v[0], PREFIX);
        cgroup_box_free(box);
        cgroup_host_free(host);
}

static void test_split(void **state) {
        for (uint64_t pids = 64; pids < 10000; pids++) {
                CgroupPids split = cgroup_split_pids(pids);
                assert_int_equal(split.payload + split.commands + split.guest, pids);
                assert_true(split.guest >= 8 && split.commands >= 8 && split.payload >= pids / 2);
        }
        assert_int_equal(cgroup_split_pids(LIMIT_UNSET).guest, LIMIT_UNSET);
}

static void test_partition(void **state) {
        char path[160];
        dev_t whole = 0;

        (void) snprintf(path, sizeof(path), "%s/devices/sda/sda1", root);
        assert_int_equal(io_mkdir_p(AT_FDCWD, path, 0755), 0);
        (void) snprintf(path, sizeof(path), "%s/dev/block", root);
        assert_int_equal(io_mkdir_p(AT_FDCWD, path, 0755), 0);
        (void) snprintf(path, sizeof(path), "%s/dev/block/8:1", root);
        assert_int_equal(symlink("../../devices/sda/sda1", path), 0);
        put("devices/sda/sda1/partition", "1\n");
        put("devices/sda/dev", "8:0\n");
        _cleanup_close_ int fd = open(root, O_RDONLY | O_DIRECTORY);
        assert_int_equal(blockdev_whole(fd, 8 << 8 | 1, &whole), 0);
        assert_int_equal(whole, 8 << 8);
        assert_int_equal(blockdev_whole(fd, 9 << 8 | 2, &whole), 0); // md2: whole already
        assert_int_equal(whole, 9 << 8 | 2);
}

static void test_guard(void **state) {
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupHost *host = NULL;
        uint64_t memory = 0;
        char path[256];

        assert_int_equal(cgroup_host_new(root, &host, &err), 0);
        // The slice is systemd's: only read, "max" and a number.
        put("hostd.slice/memory.max", "max\n");
        assert_int_equal(cgroup_host_guard_read(host, true, &memory), 0);
        assert_true(memory == UINT64_MAX);
        put("hostd.slice/memory.max", "1073741824\n");
        assert_int_equal(cgroup_host_guard_read(host, true, &memory), 0);
        assert_true(memory == 1024 * MIB);
        // Our own group: absent, then made and written.
        assert_int_equal(cgroup_host_guard_read(host, false, &memory), -ENOENT);
        (void) snprintf(path, sizeof(path), "%s/hostd", root);
        assert_int_equal(io_mkdir_p(AT_FDCWD, path, 0755), 0);
        put("hostd/memory.max", "");
        put("hostd/pids.max", "");
        assert_int_equal(cgroup_host_guard(host, 3000 * MIB, &err), 0);
        expect("hostd/memory.max", "3145728000");
        _cleanup_free_ char *pids = NULL;
        (void) snprintf(path, sizeof(path), "%s/hostd/pids.max", root);
        assert_int_equal(io_read_file(AT_FDCWD, path, 64, &pids, NULL), 0);
        assert_true(strtoull(pids, NULL, 10) > 1000);
        assert_int_equal(cgroup_host_guard_read(host, false, &memory), 0);
        assert_true(memory == 3000 * MIB);
        (void) cgroup_host_free(host);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_remove_together, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_write, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_refuse, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_guard, set_up, tear_down),
                cmocka_unit_test(test_split),
                cmocka_unit_test_setup_teardown(test_partition, set_up, tear_down),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
