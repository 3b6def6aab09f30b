// SPDX-License-Identifier: GPL-2.0-or-later
// CgroupHost: what this machine's control groups offer, found once at start.
//
// cgroup v2 is at the root itself, or (hybrid) at root/unified beside v1 mounts that hold the controllers. Which limits can be
// enforced is answered here, so that `doctor`, admission of a configuration and the writer give the same answer.
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/strv.h"
#include "quotas/blockdev.h"
#include "quotas/cgroup_private.h"

static const char *const host_parents[] = {"hostd", "hostd.slice"};

CgroupHost *cgroup_host_free(CgroupHost *host) {
        if (!host)
                return NULL;
        for (size_t i = 0; i < host->n_roots; i++)
                (void) close_fd(host->roots[i]);
        free(host->own);
        free(host);
        return NULL;
}

static int host_open(int root, const char *name) {
        int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd < 0 ? -EBADF : fd;
}

static unsigned host_read_controllers(int fd) {
        char buf[256], *save = NULL;
        unsigned mask = 0;

        if (cgroup_read(fd, "", "cgroup.controllers", buf, sizeof(buf)) < 0)
                return 0;
        for (char *p = strtok_r(buf, " \n", &save); p; p = strtok_r(NULL, " \n", &save))
                for (size_t i = 0; i < CGROUP_N_CONTROLLERS; i++)
                        if (strcmp(p, cgroup_controllers[i]) == 0)
                                mask |= 1u << i;
        return mask;
}

// The root group has no memory.swap.max: look at whatever group exists below it. None: assume a kernel as Debian's.
static bool host_has_swap_v2(int fd) {
        int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = copy < 0 ? NULL : fdopendir(copy);
        bool has = true;
        struct dirent *e;

        if (!d) {
                (void) close_fd(copy);
                return has;
        }
        while ((e = readdir(d))) {
                char path[NAME_MAX + 32];
                if (e->d_type != DT_DIR || e->d_name[0] == '.')
                        continue;
                (void) snprintf(path, sizeof(path), "%s/memory.max", e->d_name);
                if (faccessat(fd, path, F_OK, 0) < 0)
                        continue;
                (void) snprintf(path, sizeof(path), "%s/memory.swap.max", e->d_name);
                has = faccessat(fd, path, F_OK, 0) == 0;
                break;
        }
        (void) closedir(d);
        return has;
}

// v1 mounts that are not written, but where liblxc makes groups all the same.
static void host_add_others(CgroupHost *host, int root) {
        int copy = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *e;

        if (!d) {
                (void) close_fd(copy);
                return;
        }
        while ((e = readdir(d))) {
                if (e->d_type != DT_DIR || e->d_name[0] == '.' || cgroup_tree(e->d_name) != _CGROUP_TREE_MAX)
                        continue;
                int fd = host->n_roots < CGROUP_ROOTS_MAX ? host_open(root, e->d_name) : -EBADF;
                if (fd >= 0)
                        host->roots[host->n_roots++] = fd;
        }
        (void) closedir(d);
}

int cgroup_host_new(const char *root, CgroupHost **ret, Error *err) {
        _cleanup_(cgroup_host_freep) CgroupHost *host = calloc(1, sizeof(*host));
        _cleanup_close_ int fd = -EBADF;

        if (!host)
                return -ENOMEM;
        for (; host->n_roots < _CGROUP_TREE_MAX; host->n_roots++)
                host->roots[host->n_roots] = -EBADF;
        fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return error_set_errno(err, errno, "opening %s", root);
        host->unified = faccessat(fd, "cgroup.controllers", F_OK, 0) == 0;
        host->roots[CGROUP_V2] = host_open(fd, host->unified ? "." : "unified");
        if (host->roots[CGROUP_V2] < 0 || faccessat(host->roots[CGROUP_V2], "cgroup.controllers", F_OK, 0) < 0)
                return error_set(err, ERR_UNAVAILABLE, "there is no cgroup v2 at %s or %s/unified", root, root);
        if (host->unified) {
                host->controllers = host_read_controllers(host->roots[CGROUP_V2]);
                host->swap = host_has_swap_v2(host->roots[CGROUP_V2]);
        } else {
                host->roots[CGROUP_MEMORY] = host_open(fd, "memory");
                host->roots[CGROUP_PIDS] = host_open(fd, "pids");
                host->roots[CGROUP_CPU] = host_open(fd, "cpu");
                host->swap = faccessat(host->roots[CGROUP_MEMORY], "memory.memsw.limit_in_bytes", F_OK, 0) == 0;
                host_add_others(host, fd);
        }
        *ret = TAKE_PTR(host);
        return 0;
}

bool cgroup_host_is_unified(const CgroupHost *host) {
        return host->unified;
}

static void host_find_weight(CgroupHost *host, int sysfs, dev_t device) {
        char scheduler[32], qos[1024], line[64];

        host->io_weight = CGROUP_WEIGHT_NONE;
        if (blockdev_scheduler(sysfs, device, scheduler) == 0 && strcmp(scheduler, "bfq") == 0)
                host->io_weight = CGROUP_WEIGHT_BFQ;
        (void) snprintf(line, sizeof(line), "%u:%u enable=1", major(device), minor(device));
        if (cgroup_read(host->roots[CGROUP_V2], "", "io.cost.qos", qos, sizeof(qos)) > 0 && strstr(qos, line))
                host->io_weight = CGROUP_WEIGHT_COST;
}

int cgroup_host_set_disk(CgroupHost *host, int dirfd, Error *err) {
        _cleanup_close_ int sysfs = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        dev_t devices[CGROUP_DISKS_MAX], whole;
        int n = blockdev_of(dirfd, devices, ELEMENTS(devices));

        host->n_disks = 0;
        if (n == -ENODEV)
                return 0; // no block device: cgroup_host_can() says so
        if (n < 0)
                return error_set_errno(err, n, "finding the disk of the instances");
        for (int i = 0; i < n; i++) {
                int r = blockdev_whole(sysfs, devices[i], &whole);
                bool known = false;
                if (r < 0)
                        return error_set_errno(err, r, "finding the whole disk of %u:%u", major(devices[i]), minor(devices[i]));
                for (size_t k = 0; k < host->n_disks; k++)
                        known = known || (host->disks[k][0] == major(whole) && host->disks[k][1] == minor(whole));
                if (known)
                        continue;
                host->disks[host->n_disks][0] = major(whole);
                host->disks[host->n_disks++][1] = minor(whole);
                host_find_weight(host, sysfs, whole);
        }
        return 0;
}

static bool host_can_v2(const CgroupHost *host, const LimitRow *row) {
        for (size_t i = 0; i < CGROUP_N_CONTROLLERS; i++)
                if (strcmp(cgroup_controllers[i], row->v2_controller) == 0)
                        return host->controllers & 1u << i;
        return false;
}

static const char *host_refusal(const CgroupHost *host, LimitId id, const LimitRow *row) {
        if (host->unified && !host_can_v2(host, row))
                return "the kernel does not offer this cgroup controller";
        if (!host->unified && !row->v1_file)
                return "the cgroup tree is hybrid: boot with systemd.unified_cgroup_hierarchy=1";
        if (!host->unified && host->roots[cgroup_tree(row->v1_controller)] < 0)
                return "the kernel's cgroup v1 controller is not mounted";
        if (id == LIMIT_SWAP && !host->swap)
                return "the kernel does not account swap: boot with swapaccount=1";
        if (strcmp(row->v2_controller, "io") != 0)
                return NULL;
        if (host->n_disks == 0)
                return "the instances are not on a block device";
        if (id == LIMIT_IO_WEIGHT && host->io_weight == CGROUP_WEIGHT_NONE)
                return "inert: the disk has neither the bfq scheduler nor iocost";
        return NULL;
}

bool cgroup_host_can(const CgroupHost *host, LimitId id, const char **ret_reason) {
        const LimitRow *row = limit_row(id);
        const char *reason =
                row && row->where == LIMIT_WHERE_CGROUP ? host_refusal(host, id, row) : "it is not a limit of control groups";

        if (ret_reason)
                *ret_reason = reason;
        return !reason;
}

// The group of a unit is systemd's to remove: it learns from it that the unit is empty, and the kernel tells nothing of a group that
// was removed the moment before. Then the unit ends only with TimeoutStopSec, and nothing starts until then.
static bool prefix_is_unit(const char *prefix) {
        return strncmp(prefix, "hostd.slice/", 12) == 0;
}

// A unit's group in which nothing of ours is left.
static bool unit_is_bare(int root, const char *prefix) {
        char text[512];
        uint64_t populated;
        struct stat st;

        return fstatat(root, prefix, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 2 &&
               cgroup_read(root, prefix, "cgroup.events", text, sizeof(text)) > 0 &&
               cgroup_find_number(text, "populated", &populated) == 0 && !populated;
}

static int host_list_parent(int root, const char *parent, char ***v) {
        int fd = openat(root, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), r = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *e;

        if (!d) {
                (void) close_fd(fd);
                return 0;
        }
        while (r == 0 && (e = readdir(d))) {
                char path[CGROUP_PATH_MAX];
                if (e->d_type != DT_DIR || e->d_name[0] == '.')
                        continue;
                // hostd.slice also holds hostd's own units.
                if (strcmp(parent, "hostd.slice") == 0 && strncmp(e->d_name, "hostd-instance@", 15) != 0)
                        continue;
                (void) snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
                if (prefix_is_unit(path) && unit_is_bare(root, path))
                        continue;
                if (!strv_contains(*v, path))
                        r = strv_append(v, path);
        }
        (void) closedir(d);
        return r;
}

int cgroup_host_list(CgroupHost *host, char ***ret_prefixes, Error *err) {
        _cleanup_strv_ char **v = NULL;

        for (size_t i = 0; i < host->n_roots; i++)
                for (size_t k = 0; host->roots[i] >= 0 && k < ELEMENTS(host_parents); k++) {
                        int r = host_list_parent(host->roots[i], host_parents[k], &v);
                        if (r < 0)
                                return error_set_errno(err, r, "listing control groups");
                }
        *ret_prefixes = TAKE_PTR(v);
        return 0;
}

// What every instance has, from the bottom up. Most hierarchies hold nothing else, and then there is nothing to look for.
static int sweep_known(int root, const char *prefix) {
        static const char *const groups[] = {"/box/commands", "/box/guest", "/box/payload", "/box", "/run", "/monitor", ""};
        char path[CGROUP_PATH_MAX];
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(groups); i++) {
                (void) snprintf(path, sizeof(path), "%s%s", prefix, groups[i]);
                r = unlinkat(root, path, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
        }
        return r;
}

static int sweep_tree(CgroupHost *host, size_t tree, const char *prefix) {
        int root = host->roots[tree];

        if (root < 0)
                return 0;
        if (tree == CGROUP_V2 && prefix_is_unit(prefix))
                return cgroup_empty_tree(root, prefix);
        return sweep_known(root, prefix) < 0 ? cgroup_remove_tree(root, prefix) : 0;
}

int cgroup_host_sweep(CgroupHost *host, const char *prefix) {
        int result = 0;
        char text[512];
        uint64_t populated;

        if (!cgroup_prefix_is_valid(prefix))
                return -EINVAL;
        // Ask first: a walk would remove the empty groups of a living instance on its way.
        if (cgroup_read(host->roots[CGROUP_V2], prefix, "cgroup.events", text, sizeof(text)) > 0 &&
            cgroup_find_number(text, "populated", &populated) == 0 && populated)
                return -EBUSY;
        for (size_t i = 0; i < host->n_roots; i++) {
                int r = sweep_tree(host, i, prefix);
                if (r < 0 && result == 0)
                        result = r;
        }
        return result;
}
