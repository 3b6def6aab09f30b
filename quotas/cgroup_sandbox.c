// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup sandboxes: a small box for each sandbox within its instance's box: sandboxes/ID, and below it "main" (what started it and its
// process 1) and "commands/N".
//
// It is a CgroupBox itself, so that usage, kill, OOM watch and the groups of commands are the same functions for both. Its limits stand on
// sandboxes/ID and hold over all of it; what it may take at most is still bounded by the box around it. On a hybrid machine v1 needs
// fewer groups, since there a group may have both processes and groups below.
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strv.h"
#include "quotas/cgroup_private.h"

#define SANDBOX_GROUP_MAX 48
#define SANDBOX_BELOW (1u << 3) // memory: of each command its peak and its OOM kills are wanted, and nothing else

static int sandbox_group(const char *id, char group[static SANDBOX_GROUP_MAX]) {
        if (!cgroup_id_is_valid(id))
                return -EINVAL;
        (void) snprintf(group, SANDBOX_GROUP_MAX, CGROUP_SANDBOXES "/%s", id);
        return 0;
}

static int sandbox_new(CgroupBox *box, const char *group, CgroupBox **ret) {
        CgroupBox *sandbox = calloc(1, sizeof(*sandbox));

        if (!sandbox)
                return -ENOMEM;
        sandbox->host = box->host;
        sandbox->common = "";
        for (int i = 0; i < _CGROUP_TREE_MAX; i++)
                sandbox->fds[i] = -EBADF;
        if (asprintf(&sandbox->prefix, "%s/box/%s", box->prefix, group) < 0) {
                sandbox->prefix = NULL;
                cgroup_box_free(sandbox);
                return -ENOMEM;
        }
        *ret = sandbox;
        return 0;
}

static int sandbox_open_trees(CgroupBox *box, CgroupBox *sandbox, const char *group) {
        for (int i = 0; i < _CGROUP_TREE_MAX; i++) {
                if (box->fds[i] < 0)
                        continue;
                sandbox->fds[i] = openat(box->fds[i], group, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
                if (sandbox->fds[i] < 0)
                        return -errno;
        }
        return 0;
}

// The one around all sandboxes. A box that an earlier hostd made has none yet.
static int sandbox_make_parent(CgroupBox *box, CgroupTree tree) {
        int r = cgroup_make(box->fds[tree], CGROUP_SANDBOXES);

        return r < 0 || tree != CGROUP_V2 || box->host->controllers == 0 ? r : cgroup_delegate(box->fds[tree], CGROUP_SANDBOXES, box->host->controllers);
}

static int sandbox_make_tree(CgroupBox *box, CgroupTree tree, const char *group) {
        unsigned mask = box->host->controllers & SANDBOX_BELOW;
        char path[SANDBOX_GROUP_MAX + 16];
        int fd = box->fds[tree], r = mkdirat(fd, group, 0755) < 0 ? -errno : 0;

        if (r == -ENOENT) {
                r = sandbox_make_parent(box, tree);
                if (r >= 0)
                        r = mkdirat(fd, group, 0755) < 0 ? -errno : 0;
        }
        if (r == -EEXIST && tree != CGROUP_V2) // v2 decides who exists
                r = 0;
        if (r < 0 || (tree != CGROUP_V2 && tree != CGROUP_MEMORY))
                return r;
        (void) snprintf(path, sizeof(path), "%s/commands", group);
        if (mkdirat(fd, path, 0755) < 0 && errno != EEXIST)
                return -errno;
        if (tree != CGROUP_V2)
                return 0;
        if (mask)
                r = cgroup_delegate(fd, group, mask);
        if (r >= 0 && mask)
                r = cgroup_delegate(fd, path, mask);
        (void) snprintf(path, sizeof(path), "%s/main", group);
        return r < 0 || mkdirat(fd, path, 0755) == 0 ? r : -errno;
}

static int sandbox_rmdir(CgroupBox *box, const char *group) {
        int result = 0;

        for (int i = 0; i < _CGROUP_TREE_MAX; i++) {
                if (box->fds[i] < 0)
                        continue;
                int r = cgroup_remove_tree(box->fds[i], group);
                if (r < 0 && result == 0)
                        result = r;
        }
        return result;
}

int cgroup_sandbox_create(CgroupBox *box, const char *id, CgroupBox **ret, Error *err) {
        _cleanup_(cgroup_box_freep) CgroupBox *sandbox = NULL;
        char group[SANDBOX_GROUP_MAX];
        int r = sandbox_group(id, group);

        if (r < 0)
                return error_set(err, ERR_INVALID, "a sandbox's id must be 1 to 32 lower-case letters and digits");
        r = sandbox_new(box, group, &sandbox);
        for (int i = 0; i < _CGROUP_TREE_MAX && r == 0; i++)
                if (box->fds[i] >= 0)
                        r = sandbox_make_tree(box, i, group);
        if (r == -EEXIST) // somebody's sandbox: not ours to remove
                return error_set(err, ERR_EXISTS, "sandbox %s has control groups already", id);
        if (r == 0)
                r = sandbox_open_trees(box, sandbox, group);
        // One process of it killed for memory leaves a sandbox of which nobody knows what it still does: all or nothing.
        if (r == 0 && box->host->unified && (box->host->controllers & SANDBOX_BELOW))
                r = cgroup_write(sandbox->fds[CGROUP_V2], "", "memory.oom.group", "1");
        if (r < 0) {
                (void) sandbox_rmdir(box, group);
                return error_set_errno(err, r, "making the control groups of sandbox %s", id);
        }
        *ret = TAKE_PTR(sandbox);
        return 0;
}

int cgroup_sandbox_open(CgroupBox *box, const char *id, CgroupBox **ret, Error *err) {
        _cleanup_(cgroup_box_freep) CgroupBox *sandbox = NULL;
        char group[SANDBOX_GROUP_MAX];
        int r = sandbox_group(id, group);

        if (r >= 0)
                r = sandbox_new(box, group, &sandbox);
        if (r >= 0)
                r = sandbox_open_trees(box, sandbox, group);
        if (r == -ENOENT)
                return error_set(err, ERR_NOT_FOUND, "sandbox %s has no control groups", id);
        if (r < 0)
                return error_set_errno(err, r, "opening the control groups of sandbox %s", id);
        *ret = TAKE_PTR(sandbox);
        return 0;
}

int cgroup_sandbox_attach(CgroupBox *sandbox, pid_t pid, Error *err) {
        char text[16];
        int r = pid > 0 ? 0 : -EINVAL;

        (void) snprintf(text, sizeof(text), "%d", pid);
        for (int i = 0; i < _CGROUP_TREE_MAX && r == 0; i++)
                if (sandbox->fds[i] >= 0)
                        r = cgroup_write(sandbox->fds[i], i == CGROUP_V2 ? "main" : "", "cgroup.procs", text);
        return r < 0 ? error_set_errno(err, r, "moving process %d to its sandbox", pid) : 0;
}

int cgroup_sandbox_kill(CgroupBox *box, const char *id) {
        char group[SANDBOX_GROUP_MAX];
        int r = sandbox_group(id, group);

        if (r >= 0)
                r = cgroup_write(box->fds[CGROUP_V2], group, "cgroup.kill", "1");
        return r == -ENOENT || r == -ENODEV ? 0 : r;
}

int cgroup_sandbox_remove(CgroupBox *box, const char *id) {
        char group[SANDBOX_GROUP_MAX];
        uint64_t before, after;
        int r = sandbox_group(id, group);

        if (r < 0)
                return r;
        // v1 forgets kills with the group, and each attempt may remove some of those below.
        before = box->host->unified ? 0 : cgroup_oom_kills(box, group);
        r = sandbox_rmdir(box, group);
        after = before == 0 ? 0 : cgroup_oom_kills(box, group);
        box->oom_removed += before - MIN2(before, after);
        return r;
}

int cgroup_sandbox_list(CgroupBox *box, char ***ret) {
        return cgroup_list_ids(box->fds[CGROUP_V2], CGROUP_SANDBOXES, ret);
}

int cgroup_sandbox_freeze(CgroupBox *sandbox, bool frozen) {
        return cgroup_write(sandbox->fds[CGROUP_V2], "", "cgroup.freeze", frozen ? "1" : "0");
}

int cgroup_sandbox_events_fd(CgroupBox *sandbox) {
        return cgroup_events_fd(sandbox->fds[CGROUP_V2], "");
}
