// SPDX-License-Identifier: GPL-2.0-or-later
// Disk on btrfs: a subvolume whose qgroup 0/ID has the limit, by ioctl.
//
// Danger: whoever may write in a btrfs directory may make subvolumes there, and a nested one has a qgroup of its own, without limit.
// Overlay passes no such ioctl on, but a bind mount (`data`) does: the instance's seccomp filter has to refuse them. Purge
// removes nested ones all the same.
#include <endian.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "quotas/disk_private.h"

#define BTRFS_NESTED_MAX 64
#define BTRFS_DROP_USEC (300 * USEC_PER_SEC)

typedef struct BtrfsKey {
        uint64_t tree, objectid, offset;
        uint32_t type;
} BtrfsKey;

// The first item with the key's objectid and type at `offset` or above. Returns its size (cut to `size`), or -ENOENT.
static int btrfs_search(int fd, BtrfsKey *key, void *item, size_t size) {
        struct btrfs_ioctl_search_args args = {
                .key = {.tree_id = key->tree, .min_objectid = key->objectid, .max_objectid = key->objectid,
                        .min_type = key->type, .max_type = key->type, .min_offset = key->offset, .max_offset = UINT64_MAX,
                        .max_transid = UINT64_MAX, .nr_items = 1}};
        struct btrfs_ioctl_search_header header;

        if (ioctl(fd, BTRFS_IOC_TREE_SEARCH, &args) < 0)
                return -errno;
        if (args.key.nr_items == 0)
                return -ENOENT;
        memcpy(&header, args.buf, sizeof(header));
        key->offset = header.offset;
        size = MIN2(size, (size_t) header.len);
        memcpy(item, args.buf + sizeof(header), size);
        return (int) size;
}

static int btrfs_search_exact(int fd, const BtrfsKey *key, void *item, size_t size) {
        BtrfsKey found = *key;
        int r = btrfs_search(fd, &found, item, size);

        if (r >= 0 && found.offset != key->offset)
                return -ENOENT;
        return r < 0 ? r : (size_t) r < size ? -EBADMSG : 0;
}

static int btrfs_id(int fd, uint64_t *ret) {
        struct btrfs_ioctl_ino_lookup_args args = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
        struct stat st;

        // Only a subvolume's root has this inode number: a plain directory must not pass for one.
        if (fstat(fd, &st) < 0)
                return -errno;
        if (st.st_ino != BTRFS_FIRST_FREE_OBJECTID)
                return -EMEDIUMTYPE;
        if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
                return -errno;
        *ret = args.treeid;
        return 0;
}

static uint64_t btrfs_status(int fd) {
        struct btrfs_qgroup_status_item status;
        const BtrfsKey key = {.tree = BTRFS_QUOTA_TREE_OBJECTID, .type = BTRFS_QGROUP_STATUS_KEY};
        int r = btrfs_search_exact(fd, &key, &status, offsetof(struct btrfs_qgroup_status_item, rescan));

        return r < 0 ? 0 : le64toh(status.flags);
}

static bool btrfs_is_on(DiskHost *host) {
        uint64_t flags = btrfs_status(host->root_fd);

        if (!(flags & BTRFS_QGROUP_STATUS_FLAG_ON)) {
                (void) snprintf(host->reason, sizeof(host->reason),
                                "btrfs quotas are off: run \"hostd --enable-disk-quotas\" or \"btrfs quota enable\"");
                return false;
        }
        if (flags & BTRFS_QGROUP_STATUS_FLAG_INCONSISTENT) {
                (void) snprintf(host->reason, sizeof(host->reason),
                                "btrfs quotas are inconsistent: run \"btrfs quota rescan -w\" on the file system");
                return false;
        }
        return true;
}

static int btrfs_enable(int root_fd) {
        struct btrfs_ioctl_quota_ctl_args args = {.cmd = BTRFS_QUOTA_CTL_ENABLE};
        struct btrfs_ioctl_quota_rescan_args rescan = {0};

        if (ioctl(root_fd, BTRFS_IOC_QUOTA_CTL, &args) < 0 && errno != EEXIST)
                return -errno;
        // Enabling starts a count of what exists; after an inconsistency it has to be asked for.
        if (ioctl(root_fd, BTRFS_IOC_QUOTA_RESCAN, &rescan) < 0 && errno != EINPROGRESS)
                return -errno;
        return ioctl(root_fd, BTRFS_IOC_QUOTA_RESCAN_WAIT) < 0 ? -errno : 0;
}

static int btrfs_create(const DiskHost *host, int parent_fd, const char *name, uint32_t project_id) {
        struct btrfs_ioctl_vol_args_v2 args = {0};

        if (strlen(name) >= sizeof(args.name))
                return -ENAMETOOLONG;
        memcpy(args.name, name, strlen(name));
        if (ioctl(parent_fd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
                return -errno;
        return fchmodat(parent_fd, name, 0711, 0) < 0 ? -errno : 0;
}

static int btrfs_read_limit(int fd, uint64_t id, uint64_t *ret) {
        struct btrfs_qgroup_limit_item limit;
        const BtrfsKey key = {.tree = BTRFS_QUOTA_TREE_OBJECTID, .type = BTRFS_QGROUP_LIMIT_KEY, .offset = id};
        int r = btrfs_search_exact(fd, &key, &limit, sizeof(limit));

        if (r < 0)
                return r;
        *ret = le64toh(limit.flags) & BTRFS_QGROUP_LIMIT_MAX_RFER ? le64toh(limit.max_rfer) : UINT64_MAX;
        return 0;
}

static int btrfs_set(const DiskHost *host, int fd, uint32_t project_id, const DiskUsage *limits) {
        uint64_t id, have;
        int r = btrfs_id(fd, &id);

        if (r < 0)
                return r;
        // The value that clears is the one that means "no limit" here.
        struct btrfs_ioctl_qgroup_limit_args args = {
                .qgroupid = id, .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = limits->bytes_max}};
        // By the descriptor of the root: the call reserves metadata in the subvolume it is made on, and that one may be full.
        if (ioctl(host->root_fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0) {
                bool off = errno == ENOTCONN || errno == EINVAL || errno == ENOENT;
                return off && limits->bytes_max == UINT64_MAX ? 0 : -errno; // quotas are off: there is no limit to take away
        }
        r = btrfs_read_limit(fd, id, &have);
        return r < 0 ? r : have == limits->bytes_max ? 0 : -EBADMSG;
}

static int btrfs_usage(const DiskHost *host, int fd, uint32_t project_id, DiskUsage *ret) {
        DiskUsage usage = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
        struct btrfs_qgroup_info_item info;
        BtrfsKey key = {.tree = BTRFS_QUOTA_TREE_OBJECTID, .type = BTRFS_QGROUP_INFO_KEY};
        int r = btrfs_id(fd, &key.offset);

        if (r < 0)
                return r;
        // As of the last commit (at most 30 s ago); asking for a commit would make `list` slow for everybody.
        if (btrfs_search_exact(fd, &key, &info, sizeof(info)) == 0) {
                usage.bytes = le64toh(info.rfer);
                (void) btrfs_read_limit(fd, key.offset, &usage.bytes_max);
        }
        *ret = usage;
        return 0;
}

typedef struct BtrfsNested {
        uint64_t ids[BTRFS_NESTED_MAX];
        size_t n;
} BtrfsNested;

// Subvolumes directly below `id`, at most BTRFS_NESTED_MAX of them: the caller comes again.
static int btrfs_find_nested(int fd, uint64_t id, BtrfsNested *ret) {
        BtrfsKey key = {.tree = BTRFS_ROOT_TREE_OBJECTID, .objectid = id, .type = BTRFS_ROOT_REF_KEY};
        char item[1];

        for (ret->n = 0; ret->n < BTRFS_NESTED_MAX; key.offset++) {
                int r = btrfs_search(fd, &key, item, sizeof(item));
                if (r == -ENOENT)
                        return 0;
                if (r < 0)
                        return r;
                ret->ids[ret->n++] = key.offset;
        }
        return 0;
}

// Danger: removing a qgroup whose last blocks are not yet accounted makes the kernel call *all* qgroups inconsistent and stop
// enforcing them. Accounting is done by a commit, so it may take one more after the subvolume is gone.
static int btrfs_remove_qgroup(int fd, uint64_t id, usec_t deadline) {
        struct btrfs_ioctl_qgroup_create_args qgroup = {.create = 0, .qgroupid = id};
        const BtrfsKey key = {.tree = BTRFS_QUOTA_TREE_OBJECTID, .type = BTRFS_QGROUP_INFO_KEY, .offset = id};
        struct btrfs_qgroup_info_item info;

        for (;;) {
                if (ioctl(fd, BTRFS_IOC_SYNC) < 0)
                        return -errno;
                int r = btrfs_search_exact(fd, &key, &info, sizeof(info));
                if (r == -ENOENT)
                        return 0; // no quotas, or a kernel that removes the qgroup with its subvolume
                if (r < 0)
                        return r;
                if (info.rfer == 0 && info.excl == 0)
                        break;
                if (clock_monotonic() > deadline)
                        return -EBUSY;
                (void) poll(NULL, 0, 5);
        }
        if (ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &qgroup) < 0 && errno != ENOENT && errno != ENOTCONN && errno != EINVAL)
                return -errno;
        return 0;
}

static int btrfs_wait_dropped(int fd, uint64_t id) {
        const BtrfsKey key = {.tree = BTRFS_ROOT_TREE_OBJECTID, .objectid = id, .type = BTRFS_ROOT_ITEM_KEY};
        usec_t start = clock_monotonic();
        BtrfsKey found;
        char item[1];
        int r;

        // A commit hands the subvolume to the cleaner, the next one gives its blocks back. The cleaner does not begin while
        // anybody has a file of it open.
        for (int wait = 1;; wait = MIN2(wait * 2, 100)) {
                found = key;
                r = btrfs_search(fd, &found, item, sizeof(item));
                if (r == -ENOENT)
                        break;
                if (r < 0)
                        return r;
                if (clock_monotonic() - start > BTRFS_DROP_USEC)
                        return -EBUSY;
                if (ioctl(fd, BTRFS_IOC_SYNC) < 0)
                        return -errno;
                (void) poll(NULL, 0, wait);
        }
        return btrfs_remove_qgroup(fd, id, start + BTRFS_DROP_USEC);
}

static int btrfs_destroy(int fd, uint64_t id) {
        struct btrfs_ioctl_vol_args_v2 args = {.flags = BTRFS_SUBVOL_SPEC_BY_ID, .subvolid = id};

        if (ioctl(fd, BTRFS_IOC_SNAP_DESTROY_V2, &args) < 0 && errno != ENOENT)
                return -errno;
        return btrfs_wait_dropped(fd, id);
}

// Innermost first, without recursion: a guest may nest as deep as it likes.
static int btrfs_destroy_all(int fd, uint64_t top) {
        BtrfsNested nested;

        for (;;) {
                uint64_t id = top;
                for (;;) {
                        int r = btrfs_find_nested(fd, id, &nested);
                        if (r < 0)
                                return r;
                        if (nested.n == 0)
                                break;
                        id = nested.ids[0];
                }
                int r = btrfs_destroy(fd, id);
                if (r < 0 || id == top)
                        return r;
        }
}

static int btrfs_purge(const DiskHost *host, int trash_fd, const char *name) {
        _cleanup_close_ int fd = openat(trash_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        uint64_t id;
        int r;

        if (fd < 0)
                return errno == ENOENT ? 0 : errno == ENOTDIR ? disk_remove_tree(trash_fd, name) : -errno;
        r = btrfs_id(fd, &id);
        fd = close_fd(fd);
        if (r == -EMEDIUMTYPE) // made before the file system had quotas, or by somebody else
                return disk_remove_tree(trash_fd, name);
        if (r == 0)
                r = btrfs_destroy_all(trash_fd, id);
        if (r == 0 && ioctl(trash_fd, BTRFS_IOC_SYNC) < 0)
                r = -errno;
        // Newer kernels give up counting when a large subvolume is dropped (drop_subtree_threshold), and then nothing is enforced
        // for anybody: count again at once.
        if (r == 0 && (btrfs_status(trash_fd) & BTRFS_QGROUP_STATUS_FLAG_INCONSISTENT))
                (void) btrfs_enable(trash_fd);
        return r;
}

const DiskOps disk_btrfs_ops = {
        .is_on = btrfs_is_on,
        .enable = btrfs_enable,
        .create = btrfs_create,
        .set = btrfs_set,
        .usage = btrfs_usage,
        .purge = btrfs_purge,
};
