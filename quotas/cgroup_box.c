// SPDX-License-Identifier: GPL-2.0-or-later
// CgroupBox: the life of one instance's groups: made, entered, found again, removed.
#include <poll.h>
#include <string.h>

#include "quotas/cgroup_private.h"

// A guest could nest groups until removal takes for ever; podman needs a handful of levels and a few per container.
#define BOX_DEPTH_MAX "16"
#define BOX_DESCENDANTS_MAX "4096"

CgroupBox *cgroup_box_free(CgroupBox *box) {
        if (!box)
                return NULL;
        for (int i = 0; i < _CGROUP_TREE_MAX; i++)
                (void) close_fd(box->fds[i]);
        free(box->prefix);
        free(box);
        return NULL;
}

// Whoever still runs in P itself (systemd put the unit's main process there) goes to P/run: a group with processes cannot
// hand controllers on. Moving hostd-instance is safe, since systemd looks for its processes in the whole subtree.
static int box_empty_prefix(int root, const char *prefix) {
        char run[CGROUP_PATH_MAX], text[4096], pid[32];
        int r = 0;

        (void) snprintf(run, sizeof(run), "%s/run", prefix);
        // Forks may slip in between read and write: a few rounds settle it.
        for (int round = 0; r == 0 && round < 8; round++) {
                char *save = NULL;
                int n = cgroup_read(root, prefix, "cgroup.procs", text, sizeof(text));
                if (n <= 0 || (r = cgroup_make(root, run)) < 0)
                        return n <= 0 ? n : r;
                for (char *p = strtok_r(text, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
                        (void) snprintf(pid, sizeof(pid), "%.30s", p);
                        int k = cgroup_write(root, run, "cgroup.procs", pid);
                        if (k < 0 && k != -ESRCH && k != -EINVAL) // gone meanwhile, or a piece of a number at the buffer's end
                                return k;
                }
        }
        return r;
}

// Makes each level of `prefix`, with the controllers handed on from level to level on v2.
static int box_make_prefix(CgroupHost *host, CgroupTree tree, const char *prefix) {
        unsigned mask = tree == CGROUP_V2 ? host->controllers : 0;
        int root = host->roots[tree];
        char path[CGROUP_PATH_MAX];
        int r;

        if (mask)
                (void) cgroup_delegate(root, "", mask); // refused in a delegated tree; what is missing shows at the end
        for (const char *p = prefix;; p++) {
                p += strcspn(p, "/");
                (void) snprintf(path, sizeof(path), "%.*s", (int) (p - prefix), prefix);
                r = cgroup_make(root, path);
                if (r < 0)
                        return r;
                if (!*p)
                        break;
                if (mask)
                        (void) cgroup_delegate(root, path, mask);
        }
        if (!mask)
                return 0;
        // First of all: with processes in it, the first controller that knows threads would turn the group into the root of a
        // threaded tree, which then refuses the others with EOPNOTSUPP.
        r = box_empty_prefix(root, prefix);
        if (r >= 0)
                r = cgroup_delegate(root, prefix, mask);
        // A process on its way out cannot be moved; until it is gone, its group is busy, or a threaded one (see above).
        return r == -EOPNOTSUPP ? -EBUSY : r;
}

static int box_open_trees(CgroupBox *box) {
        char path[CGROUP_PATH_MAX];

        (void) snprintf(path, sizeof(path), "%s/box", box->prefix);
        for (int i = 0; i < _CGROUP_TREE_MAX; i++) {
                if (box->host->roots[i] < 0)
                        continue;
                box->fds[i] = openat(box->host->roots[i], path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
                if (box->fds[i] < 0)
                        return -errno;
        }
        return 0;
}

static int box_new(CgroupHost *host, const char *prefix, CgroupBox **ret, Error *err) {
        CgroupBox *box;

        if (!cgroup_prefix_is_valid(prefix))
                return error_set(err, ERR_INVALID, "the cgroup prefix is not valid");
        box = calloc(1, sizeof(*box));
        if (!box)
                return -ENOMEM;
        box->host = host;
        box->common = "commands";
        for (int i = 0; i < _CGROUP_TREE_MAX; i++)
                box->fds[i] = -EBADF;
        box->prefix = strdup(prefix);
        if (!box->prefix) {
                cgroup_box_free(box);
                return -ENOMEM;
        }
        *ret = box;
        return 0;
}

static int box_make_tree(CgroupHost *host, CgroupTree tree, const char *prefix) {
        static const char *const parts[] = {"box", "box/guest", "box/commands", "box/" CGROUP_SANDBOXES};
        unsigned mask = tree == CGROUP_V2 ? host->controllers : 0;
        char path[CGROUP_PATH_MAX];
        int r = box_make_prefix(host, tree, prefix);

        for (size_t i = 0; i < ELEMENTS(parts) && r == 0; i++) {
                (void) snprintf(path, sizeof(path), "%s/%s", prefix, parts[i]);
                r = cgroup_make(host->roots[tree], path);
                if (r == 0 && mask && i != 1) // guest has no groups below
                        r = cgroup_delegate(host->roots[tree], path, mask);
        }
        return r;
}

// Protection against reclaim and the OOM behaviour: wanted, but no promise to anybody, so a kernel without is no failure.
static void box_tune(CgroupBox *box) {
        char text[32];

        (void) cgroup_write(box->fds[CGROUP_V2], "", "cgroup.max.depth", BOX_DEPTH_MAX);
        (void) cgroup_write(box->fds[CGROUP_V2], "", "cgroup.max.descendants", BOX_DESCENDANTS_MAX);
        if (!box->host->unified)
                return;
        (void) snprintf(text, sizeof(text), "%llu", CGROUP_GUEST_MEMORY);
        (void) cgroup_write(box->fds[CGROUP_V2], "guest", "memory.min", text);
        (void) cgroup_write(box->fds[CGROUP_V2], "", "memory.oom.group", "0");
}

int cgroup_box_create(CgroupHost *host, const char *prefix, CgroupBox **ret, Error *err) {
        _cleanup_(cgroup_box_freep) CgroupBox *box = NULL;
        int r = box_new(host, prefix, &box, err);

        for (int i = 0; i < _CGROUP_TREE_MAX && r == 0; i++)
                if (host->roots[i] >= 0 && (r = box_make_tree(host, i, prefix)) < 0)
                        (void) error_set_errno(err, r, "making control groups at %s", prefix);
        if (r == 0 && (r = box_open_trees(box)) < 0)
                (void) error_set_errno(err, r, "opening control groups at %s", prefix);
        if (r < 0) {
                if (box && r != -EBUSY)
                        (void) cgroup_host_sweep(host, prefix); // leaves alone what was populated before
                return r;
        }
        box_tune(box);
        *ret = TAKE_PTR(box);
        return 0;
}

int cgroup_box_open(CgroupHost *host, const char *prefix, CgroupBox **ret, Error *err) {
        _cleanup_(cgroup_box_freep) CgroupBox *box = NULL;
        int r = box_new(host, prefix, &box, err);

        if (r < 0)
                return r;
        r = box_open_trees(box);
        if (r == -ENOENT)
                return error_set(err, ERR_NOT_FOUND, "there are no control groups at %s", prefix);
        if (r < 0)
                return error_set_errno(err, r, "opening control groups at %s", prefix);
        *ret = TAKE_PTR(box);
        return 0;
}

int cgroup_host_kill(CgroupHost *host, const char *prefix) {
        int r = cgroup_prefix_is_valid(prefix) ? cgroup_write(host->roots[CGROUP_V2], prefix, "cgroup.kill", "1") : -EINVAL;

        return r == -ENOENT || r == -ENODEV ? 0 : r;
}

int cgroup_host_remove(CgroupHost *host, const char *prefix, Error *err) {
        int r;

        (void) cgroup_host_kill(host, prefix);
        (void) cgroup_wait_event(host->roots[CGROUP_V2], prefix, "populated", false, clock_monotonic() + USEC_PER_SEC);
        // After the last exit the kernel needs a moment to let go of a group.
        for (usec_t wait = 500, waited = 0;; waited += wait, wait = MIN2(wait * 2, 50 * USEC_PER_MSEC)) {
                r = cgroup_host_sweep(host, prefix);
                if (r != -EBUSY || waited >= USEC_PER_SEC)
                        break;
                (void) poll(NULL, 0, (int) MAX2(wait / USEC_PER_MSEC, 1ULL));
        }
        return r < 0 ? error_set_errno(err, r, "removing control groups at %s", prefix) : 0;
}

int cgroup_box_remove(CgroupBox *box, Error *err) {
        (void) cgroup_box_kill(box); // with its limit, which stops who would come in meanwhile
        return cgroup_host_remove(box->host, box->prefix, err);
}

int cgroup_box_attach(CgroupBox *box, CgroupPart part, pid_t pid, Error *err) {
        static const char *const groups[_CGROUP_PART_MAX] = {"box/payload", "box/guest", "box/payload/login", "run"};
        char path[CGROUP_PATH_MAX], text[16];
        int r = 0;

        if (part < 0 || part >= _CGROUP_PART_MAX || pid <= 0)
                return error_set(err, ERR_INTERNAL, "no such part of a box, or no process");
        (void) snprintf(path, sizeof(path), "%s/%s", box->prefix, groups[part]);
        (void) snprintf(text, sizeof(text), "%d", pid);
        for (int i = 0; i < _CGROUP_TREE_MAX && r == 0; i++) {
                if (box->host->roots[i] < 0)
                        continue;
                r = cgroup_make(box->host->roots[i], path);
                if (r == 0)
                        r = cgroup_write(box->host->roots[i], path, "cgroup.procs", text);
        }
        if (r == -ESRCH)
                return error_set(err, ERR_UNAVAILABLE, "the process that was to be moved to its group ended meanwhile");
        return r < 0 ? error_set_errno(err, r, "moving process %d to %s", pid, path) : 0;
}

bool cgroup_box_has(CgroupBox *box, pid_t pid) {
        _cleanup_free_ char *text = NULL;
        char path[32];
        size_t n = strlen(box->prefix);

        (void) snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
        if (io_read_file(AT_FDCWD, path, 1 << 16, &text, NULL) < 0)
                return false;
        for (char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
                if (strncmp(p, "0::/", 4) == 0)
                        return strncmp(p + 4, box->prefix, n) == 0 && (p[4 + n] == '/' || p[4 + n] == '\n');
        return false;
}
