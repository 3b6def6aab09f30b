// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup files: reads, writes and removals relative to a directory descriptor, without allocation, since each command pays for them.
#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "quotas/cgroup_private.h"

const char *const cgroup_controllers[CGROUP_N_CONTROLLERS] = {"cpuset", "cpu", "io", "memory", "pids"};

CgroupTree cgroup_tree(const char *name) {
        static const char *const names[_CGROUP_TREE_MAX] = {"unified", "memory", "pids", "cpu"};

        for (int i = 0; i < _CGROUP_TREE_MAX; i++)
                if (strcmp(names[i], name) == 0)
                        return i;
        return _CGROUP_TREE_MAX;
}

bool cgroup_prefix_is_valid(const char *prefix) {
        if (!prefix || !*prefix || strlen(prefix) > CGROUP_PREFIX_MAX)
                return false;
        for (const char *p = prefix;; p++) {
                size_t n = strcspn(p, "/");
                if (n == 0 || p[0] == '.')
                        return false;
                for (size_t i = 0; i < n; i++)
                        if (!isalnum((unsigned char) p[i]) && !strchr("@._-", p[i]))
                                return false;
                p += n;
                if (!*p)
                        return true;
        }
}

bool cgroup_id_is_valid(const char *id) {
        size_t n = id ? strlen(id) : 0;

        return n >= 1 && n <= 32 && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

static int cgroup_path(char buf[CGROUP_PATH_MAX], const char *group, const char *file) {
        int n = snprintf(buf, CGROUP_PATH_MAX, "%s%s%s", group, *group ? "/" : "", file);

        return n >= CGROUP_PATH_MAX ? -ENAMETOOLONG : 0;
}

int cgroup_write(int dirfd, const char *group, const char *file, const char *text) {
        char path[CGROUP_PATH_MAX];
        int r = cgroup_path(path, group, file);

        if (r < 0)
                return r;
        // O_TRUNC means nothing to cgroupfs; it lets the same code run on plain files.
        _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return -errno;
        ssize_t n = write(fd, text, strlen(text));
        return n < 0 ? -errno : (size_t) n < strlen(text) ? -EIO : 0;
}

int cgroup_read(int dirfd, const char *group, const char *file, char *buf, size_t size) {
        char path[CGROUP_PATH_MAX];
        size_t used = 0;
        ssize_t n;
        int r = cgroup_path(path, group, file);

        if (r < 0)
                return r;
        _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return -errno;
        while (used < size - 1) {
                n = read(fd, buf + used, size - 1 - used);
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                used += (size_t) n;
        }
        buf[used] = 0;
        return (int) used;
}

int cgroup_read_number(int dirfd, const char *group, const char *file, uint64_t *ret) {
        char buf[64], *end;
        int r = cgroup_read(dirfd, group, file, buf, sizeof(buf));

        if (r < 0)
                return r;
        if (strncmp(buf, "max", 3) == 0) {
                *ret = UINT64_MAX;
                return 0;
        }
        errno = 0;
        unsigned long long value = strtoull(buf, &end, 10); // "-1" becomes UINT64_MAX, which is what v1 means by it
        if (errno || end == buf)
                return -EBADMSG;
        *ret = value;
        return 0;
}

int cgroup_find_number(const char *text, const char *key, uint64_t *ret) {
        size_t n = strlen(key);

        for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
                if (strncmp(p, key, n) == 0 && p[n] == ' ') {
                        *ret = strtoull(p + n + 1, NULL, 10);
                        return 0;
                }
        return -ENODATA;
}

bool cgroup_exists(int dirfd, const char *group) {
        return faccessat(dirfd, *group ? group : ".", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int cgroup_make(int dirfd, const char *group) {
        if (mkdirat(dirfd, group, 0755) < 0)
                return errno == EEXIST ? 0 : -errno;
        // Whatever the umask: a guest mounts cgroup2 only if it may search every group from the top to its own (seen on 6.12).
        return fchmodat(dirfd, group, 0755, 0) < 0 ? -errno : 0;
}

static int cgroup_rmdir(int dirfd, const char *name) {
        if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
                return 0;
        return errno == ENOTEMPTY ? -EBUSY : -errno;
}

// Removes what can be removed directly below; the name of one that cannot goes to `busy`. 1: there is one, 0: nothing is left.
// `leaf` is the inode of a group that has none below: if it cannot be removed either, it is populated.
static int cgroup_thin(int fd, ino_t leaf, char busy[static NAME_MAX + 1]) {
        int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
        DIR *d = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *e;

        if (!d) {
                r = -errno;
                (void) close_fd(copy);
                return r;
        }
        while (r >= 0 && (e = readdir(d))) {
                if (e->d_type != DT_DIR || strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                int k = cgroup_rmdir(fd, e->d_name);
                if (k == -EBUSY && e->d_ino != leaf) {
                        (void) snprintf(busy, NAME_MAX + 1, "%s", e->d_name);
                        r = 1;
                } else if (k < 0)
                        r = k;
        }
        (void) closedir(d);
        return r;
}

static int cgroup_move(int *fd, const char *name) {
        int next = openat(*fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

        if (next < 0)
                return -errno;
        (void) close_fd(*fd);
        *fd = next;
        return 0;
}

#define EMPTY_ROUNDS 1000 // each of them lost a group to somebody else

static int cgroup_empty_once(int dirfd, const char *name) {
        _cleanup_close_ int fd = -EBADF;
        char busy[NAME_MAX + 1];
        unsigned depth = 0;
        struct stat st;
        ino_t leaf = 0;
        int r;

        fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        // A guest may nest groups as deep as it likes: walk with one descriptor and no recursion. Groups cannot be moved to
        // another parent, so ".." is where we came from.
        while ((r = cgroup_thin(fd, leaf, busy)) > 0 || (r == 0 && depth > 0)) {
                if (r == 0 && fstat(fd, &st) < 0)
                        return -errno;
                leaf = r == 0 ? st.st_ino : 0;
                depth += r > 0 ? 1U : -1U;
                r = cgroup_move(&fd, r > 0 ? busy : "..");
                if (r < 0)
                        return r;
        }
        return r;
}

int cgroup_empty_tree(int dirfd, const char *name) {
        int r = -ENOENT;

        // Groups of a unit that ends are removed by systemd at the same time: what vanishes under the walk is not the end of it.
        for (int round = 0; r == -ENOENT && round < EMPTY_ROUNDS; round++)
                r = cgroup_empty_once(dirfd, name);
        return r;
}

int cgroup_remove_tree(int dirfd, const char *name) {
        int r = cgroup_rmdir(dirfd, name);

        if (r == -EBUSY)
                r = cgroup_empty_tree(dirfd, name) ?: cgroup_rmdir(dirfd, name);
        return r;
}

int cgroup_delegate(int dirfd, const char *group, unsigned mask) {
        char have[256], text[32];
        int r = cgroup_read(dirfd, group, "cgroup.subtree_control", have, sizeof(have));

        if (r < 0)
                return r;
        // One by one: a combined write is refused as a whole because of a single controller.
        for (size_t i = 0; i < CGROUP_N_CONTROLLERS; i++) {
                bool there = false;
                char copy[256], *save = NULL;
                if (!(mask & 1u << i))
                        continue;
                (void) snprintf(copy, sizeof(copy), "%s", have);
                for (char *p = strtok_r(copy, " \n", &save); p; p = strtok_r(NULL, " \n", &save))
                        there = there || strcmp(p, cgroup_controllers[i]) == 0;
                if (there)
                        continue;
                (void) snprintf(text, sizeof(text), "+%s", cgroup_controllers[i]);
                int k = cgroup_write(dirfd, group, "cgroup.subtree_control", text);
                if (k < 0 && r >= 0)
                        r = k;
        }
        return r < 0 ? r : 0;
}
