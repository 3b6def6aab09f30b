// SPDX-License-Identifier: GPL-2.0-or-later
// Disk limits on real file systems: images on loop devices, mounted in a mount namespace of this process, so nothing stays behind.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/process.h"
#include "base/strv.h"
#include "quotas/blockdev.h"
#include "quotas/cgroup.h"
#include "quotas/disk.h"
#include "tests/integration/report.h"

#pragma GCC diagnostic ignored "-Wformat-nonliteral"

#define MIB (1ULL << 20)

static char directory[] = "/tmp/hostd-test-quotas-XXXXXX";
static char mountpoint[128], image[128];
static DiskHost host;
static int root_fd = -EBADF;

static int run(const char *a, const char *b, const char *c, const char *d, const char *e) {
        char *argv[] = {(char *) a, (char *) b, (char *) c, (char *) d, (char *) e, NULL};

        return process_run(argv, NULL, NULL);
}

// ext4 lets this capability over every limit; the root of a guest never has it.
static int drop_resource(void) {
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

        if (syscall(SYS_capget, &header, data) < 0)
                return -errno;
        data[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective &= ~CAP_TO_MASK(CAP_SYS_RESOURCE);
        return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

// Runs fn(directory) in a child as `uid`; its result is the exit status.
static int as(uid_t uid, int (*fn)(int dirfd), const char *path) {
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                int fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (drop_resource() < 0 || (uid && (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0)))
                        _exit(98);
                _exit(fd < 0 ? 97 : fn(fd));
        }
        (void) waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool is_full(void) {
        return errno == EDQUOT || errno == ENOSPC;
}

static int fill(int fd, uint64_t bytes) {
        static char block[256 << 10];
        uint64_t n = 0;

        memset(block, 'x', sizeof(block));
        for (; n < bytes; n += sizeof(block))
                if (write(fd, block, sizeof(block)) < 0)
                        return is_full() ? 1 : 2;
        return fsync(fd) < 0 ? is_full() ? 1 : 2 : 0;
}

// Each returns 1 if the limit stopped it, 0 if it went through.
static int write_file(int dirfd) {
        int fd = openat(dirfd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        return fd < 0 ? is_full() ? 1 : 3 : fill(fd, 64 * MIB);
}

static int write_small_file(int dirfd) {
        int fd = openat(dirfd, "small", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        return fd < 0 ? 3 : fill(fd, MIB);
}

static int write_sparse(int dirfd) {
        int fd = openat(dirfd, "sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0)
                return is_full() ? 1 : 3;
        if (ftruncate(fd, 1LL << 40) < 0)
                return 4; // size is not space
        for (int i = 0; i < 16384; i++)
                if (pwrite(fd, "x", 1, (off_t) i << 22) < 0 || (i % 512 == 0 && fsync(fd) < 0))
                        return is_full() ? 1 : 2;
        return fsync(fd) < 0 ? is_full() ? 1 : 2 : 0;
}

static int write_many(int dirfd) {
        char name[32];
        static char text[3000];

        memset(text, 'y', sizeof(text));
        for (int i = 0; i < 40000; i++) {
                (void) snprintf(name, sizeof(name), "m%d", i);
                int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                if (fd < 0 || write(fd, text, sizeof(text)) < 0)
                        return is_full() ? 1 : 2;
                (void) close(fd);
                if (i % 4096 == 4095 && syncfs(dirfd) < 0)
                        return is_full() ? 1 : 2;
        }
        return 0;
}

static int write_tmpfile(int dirfd) {
        int fd = openat(dirfd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

        return fd < 0 ? is_full() ? 1 : 3 : fill(fd, 64 * MIB);
}

// Renames within the directory free nothing and cost nothing.
static int write_rename(int dirfd) {
        char name[32];

        for (int i = 0; i < 64; i++) {
                int fd = openat(dirfd, "new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                (void) snprintf(name, sizeof(name), "r%d", i);
                int r = fd < 0 ? is_full() ? 1 : 3 : fill(fd, MIB);
                if (r)
                        return r;
                (void) close(fd);
                if (renameat(dirfd, "new", dirfd, name) < 0)
                        return is_full() ? 1 : 2;
        }
        return 0;
}

static int make_deep(int dirfd) {
        int fd = dup(dirfd);

        for (int i = 0; i < 3000; i++) {
                if (mkdirat(fd, "d", 0700) < 0)
                        return 2;
                int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                (void) close(fd);
                fd = next;
        }
        return 0;
}

static int make_subvolume(int dirfd) {
        struct btrfs_ioctl_vol_args_v2 args = {.name = "nested"};

        if (ioctl(dirfd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
                return 2;
        args = (struct btrfs_ioctl_vol_args_v2) {.name = "inner"};
        int fd = openat(dirfd, "nested", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 || ioctl(fd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0 ? 2 : write_small_file(fd);
}

static uint64_t space_free(void) {
        uint64_t total, left = 0;

        (void) syncfs(root_fd);
        (void) disk_host_space(&host, &total, &left);
        return left;
}

static bool make_instance(uint32_t id, uint64_t bytes, uint64_t inodes) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = disk_create(&host, "instances/a", id, bytes, inodes, &err);

        if (r < 0)
                printf("create: %s\n", error_message(&err, r));
        int fd = openat(root_fd, "instances/a", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool ok = r == 0 && fchown(fd, 1000, 1000) == 0;
        (void) close_fd(fd);
        return ok;
}

static bool drop_instance(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = disk_remove(&host, "instances/a", "a-1", &err);

        if (r == 0)
                r = disk_purge(&host, "a-1", &err);
        if (r < 0)
                printf("drop: %s\n", error_message(&err, r));
        return r == 0;
}

static void test_limits(void) {
        static const struct {
                const char *name;
                int (*fn)(int);
        } ways[] = {{"one file", write_file},       {"a sparse file", write_sparse}, {"many small files", write_many},
                    {"an O_TMPFILE", write_tmpfile}, {"renames", write_rename}};

        for (unsigned u = 0; u < 2; u++)
                for (size_t i = 0; i < ELEMENTS(ways); i++) {
                        uid_t uid = u ? 1000 : 0;
                        DiskUsage usage = {0};
                        uint64_t before = space_free();
                        bool ok = make_instance(4711, 16 * MIB, UINT64_MAX);
                        int r = ok ? as(uid, ways[i].fn, "instances/a") : -1;
                        (void) syncfs(root_fd);
                        int k = disk_usage(&host, "instances/a", 4711, &usage, NULL);
                        CHECK(r == 1, "uid %u, %s: stopped (%d)", uid, ways[i].name, r);
                        CHECK(k == 0 && usage.bytes <= 17 * MIB && usage.bytes_max == 16 * MIB, "used %llu of %llu KiB",
                              (unsigned long long) usage.bytes / 1024, (unsigned long long) usage.bytes_max / 1024);
                        usec_t t = clock_monotonic();
                        ok = drop_instance();
                        t = clock_monotonic() - t;
                        uint64_t after = space_free();
                        // xfs gives the blocks of removed files back in the background.
                        for (int w = 0; w < 100 && after + 2 * MIB < before; w++) {
                                (void) poll(NULL, 0, 50);
                                after = space_free();
                        }
                        CHECK(ok && after + 2 * MIB >= before, "removed in %llu ms, the space is back (%lld KiB)",
                              (unsigned long long) t / 1000, ((long long) after - (long long) before) / 1024);
                }
}

static void test_change(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        DiskUsage usage;

        CHECK(make_instance(4712, 16 * MIB, UINT64_MAX), "made");
        CHECK(disk_create(&host, "instances/a", 4712, 16 * MIB, UINT64_MAX, &err) == -EEXIST, "twice is an error: %s",
              error_message(&err, 0));
        CHECK(as(1000, write_file, "instances/a") == 1, "full");
        CHECK(disk_set(&host, "instances/a", 4712, 128 * MIB, UINT64_MAX, NULL) == 0, "raised");
        CHECK(as(1000, write_file, "instances/a") == 0, "there is room");
        CHECK(disk_set(&host, "instances/a", 4712, 16 * MIB, UINT64_MAX, NULL) == 0, "lowered below use");
        CHECK(as(1000, write_rename, "instances/a") == 1, "nothing more can be written");
        _cleanup_error_ Error clear = ERROR_NULL;
        int r = disk_set(&host, "instances/a", 4712, UINT64_MAX, UINT64_MAX, &clear);
        CHECK(r == 0 && disk_usage(&host, "instances/a", 4712, &usage, NULL) == 0 && usage.bytes_max == UINT64_MAX,
              "no limit: %s", error_message(&clear, r));
        CHECK(as(1000, write_rename, "instances/a") == 0, "and none is felt");
        if (host.inodes) {
                CHECK(disk_set(&host, "instances/a", 4712, UINT64_MAX, 500, NULL) == 0, "inodes limited");
                CHECK(as(1000, write_many, "instances/a") == 1, "inodes stop it");
        } else {
                _cleanup_error_ Error e = ERROR_NULL;
                r = disk_set(&host, "instances/a", 4712, UINT64_MAX, 500, &e);
                CHECK(r == -EOPNOTSUPP, "inodes: %s", error_message(&e, r));
        }
        CHECK(drop_instance(), "removed");
        CHECK(make_instance(4713, 512 * MIB, UINT64_MAX) && as(1000, make_deep, "instances/a") == 0, "a tree of 3000 levels");
        CHECK(drop_instance(), "removed");
        CHECK(drop_instance(), "absent is success");
        CHECK(disk_remove(&host, "../x", "a", NULL) == -EINVAL && disk_remove(&host, "instances/a", "../a", NULL) == -EINVAL &&
                      disk_create(&host, "/etc/x", 1, MIB, UINT64_MAX, NULL) == -EINVAL,
              "paths that lead out are refused");
}

static size_t count_qgroups(void) {
        struct btrfs_ioctl_search_args args = {
                .key = {.tree_id = BTRFS_QUOTA_TREE_OBJECTID, .max_objectid = 0, .min_type = BTRFS_QGROUP_INFO_KEY,
                        .max_type = BTRFS_QGROUP_INFO_KEY, .max_offset = UINT64_MAX, .max_transid = UINT64_MAX, .nr_items = 4096}};

        return ioctl(root_fd, BTRFS_IOC_TREE_SEARCH, &args) < 0 ? 9999 : args.key.nr_items;
}

static void test_cycles(void) {
        usec_t t = clock_monotonic();
        size_t before = count_qgroups();
        _cleanup_strv_ char **trash = NULL;
        int failures = 0;

        for (unsigned i = 0; i < 50; i++)
                failures += !make_instance(5000 + i, 16 * MIB, UINT64_MAX) || as(1000, write_small_file, "instances/a") != 0 ||
                            !drop_instance();
        CHECK(failures == 0, "50 instances made, filled and removed, %llu ms each",
              (unsigned long long) (clock_monotonic() - t) / 50000);
        if (host.kind == DISK_BTRFS)
                CHECK(count_qgroups() == before, "no qgroup is left (%zu before, %zu after)", before, count_qgroups());
        (void) syncfs(root_fd);
        CHECK(disk_host_probe(root_fd, &host, NULL) == 0 && host.bytes, "still enforced: %s", host.reason);
        CHECK(disk_trash_list(&host, &trash) == 0 && !trash, "the trash is empty");
}

static void bench_usage(void) {
        char path[32];
        int failures = 0;
        DiskUsage usage;

        for (unsigned i = 0; i < 50; i++) {
                (void) snprintf(path, sizeof(path), "instances/u%u", i);
                failures += disk_create(&host, path, 6000 + i, 16 * MIB, UINT64_MAX, NULL) < 0;
        }
        usec_t t = clock_monotonic();
        for (unsigned i = 0; i < 50; i++) {
                (void) snprintf(path, sizeof(path), "instances/u%u", i);
                failures += disk_usage(&host, path, 6000 + i, &usage, NULL) < 0;
        }
        t = clock_monotonic() - t;
        CHECK(failures == 0 && t < 20000 * report_slow(), "the usage of 50 takes %llu us", (unsigned long long) t);
        for (unsigned i = 0; i < 50; i++) {
                char trash[32];
                (void) snprintf(path, sizeof(path), "instances/u%u", i);
                (void) snprintf(trash, sizeof(trash), "u%u", i);
                failures += disk_remove(&host, path, trash, NULL) < 0 || disk_purge(&host, trash, NULL) < 0;
        }
        CHECK(failures == 0, "removed");
}

static void test_btrfs(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        size_t before = count_qgroups();

        CHECK(make_instance(4714, 16 * MIB, UINT64_MAX), "made");
        CHECK(as(1000, make_subvolume, "instances/a") == 0, "a guest can nest subvolumes unless seccomp refuses the ioctl");
        CHECK(drop_instance() && count_qgroups() == before, "they go with the instance");
        CHECK(mkdirat(root_fd, "instances/a", 0755) == 0 && as(0, write_small_file, "instances/a") == 0 && drop_instance(),
              "a plain directory can be removed, too");
        dev_t devices[4];
        CHECK(blockdev_of(root_fd, devices, 4) == 1 && devices[0] != 0, "the disk below is found");
}

static bool set_up(const char *type, uint64_t size, const char *options) {
        char path[32];

        (void) snprintf(image, sizeof(image), "%s/%s.img", directory, type);
        (void) snprintf(path, sizeof(path), "/sbin/mkfs.%s", type);
        int fd = open(image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, (off_t) size) < 0)
                return false;
        (void) close(fd);
        if (access(path, X_OK) < 0) {
                SKIP("%s: there is no %s", type, path);
                return false;
        }
        int r = strcmp(type, "ext4") == 0 ? run(path, "-qO", "project,quota", "-Eroot_owner=0:0,quotatype=prjquota", image)
                                          : run(path, "-q", image, NULL, NULL);
        if (r == 0)
                r = run("/bin/mount", "-oloop", options, image, mountpoint);
        if (r != 0) {
                SKIP("%s: this kernel does not mount it with %s (status %d): no project quotas", type, options + 2, r);
                return false;
        }
        root_fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return root_fd >= 0 && mkdirat(root_fd, "instances", 0755) == 0;
}

static void tear_down(void) {
        root_fd = close_fd(root_fd);
        CHECK(umount2(mountpoint, 0) == 0, "unmounted");
        (void) unlink(image);
}

static void test_kind(const char *type, uint64_t size, const char *options) {
        _cleanup_error_ Error err = ERROR_NULL;

        printf("--- %s\n", type);
        if (!set_up(type, size, options)) {
                (void) unlink(image);
                return;
        }
        usec_t t = clock_monotonic();
        CHECK(disk_host_probe(root_fd, &host, &err) == 0, "probe");
        if (host.kind == DISK_BTRFS) {
                CHECK(!host.bytes, "quotas are off: %s", host.reason);
                int r = disk_host_enable(root_fd, &err);
                CHECK(r == 0, "switched on: %s", error_message(&err, r));
                t = clock_monotonic();
                CHECK(disk_host_probe(root_fd, &host, &err) == 0 && host.bytes, "enforced now: %s", host.reason);
        }
        t = clock_monotonic() - t;
        if (!host.bytes)
                SKIP("%s: %s", type, host.reason);
        else {
                printf("the probe took %llu ms\n", (unsigned long long) t / 1000);
                test_limits();
                test_change();
                test_cycles();
                bench_usage();
                if (host.kind == DISK_BTRFS)
                        test_btrfs();
        }
        tear_down();
}

static void test_plain(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        printf("--- without quotas\n");
        root_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(mkdirat(root_fd, "instances", 0755) == 0 && disk_host_probe(root_fd, &host, &err) == 0, "probe");
        if (host.bytes)
                SKIP("the file system of %s has quotas", directory);
        else {
                r = disk_create(&host, "instances/a", 7000, 16 * MIB, UINT64_MAX, &err);
                CHECK(r == -EOPNOTSUPP && err.code == ERR_DEGRADED, "refused: %s", error_message(&err, r));
                CHECK(make_instance(7000, UINT64_MAX, UINT64_MAX), "allowed without a limit");
                CHECK(as(1000, make_deep, "instances/a") == 0 && drop_instance(), "and removed");
        }
        (void) unlinkat(root_fd, ".trash", AT_REMOVEDIR);
        (void) unlinkat(root_fd, "instances", AT_REMOVEDIR);
        root_fd = close_fd(root_fd);
}

int main(void) {
        if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
                SKIP("disk quotas need root and a mount namespace");
                (void) report_end();
                return 77;
        }
        if (!mkdtemp(directory))
                return 1;
        (void) snprintf(mountpoint, sizeof(mountpoint), "%s/mnt", directory);
        (void) mkdir(mountpoint, 0700);
        test_plain();
        test_kind("btrfs", 2048 * MIB, "-onoatime");
        test_kind("ext4", 512 * MIB, "-oprjquota");
        test_kind("xfs", 512 * MIB, "-oprjquota");
        (void) rmdir(mountpoint);
        CHECK(rmdir(directory) == 0, "nothing is left");
        return report_end();
}
