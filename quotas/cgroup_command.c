// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup commands: a group for each command, made and removed with it, so that its end, its use and its OOM are its own.
//
// On a hybrid machine only v2 (kill, CPU time) and memory (peak, OOM) have a group per command; pids and cpu are bounded by the
// common `commands` group. That keeps a command's price at two directories.
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strv.h"
#include "quotas/cgroup_private.h"

#define COMMAND_GROUP_MAX 48

static const bool command_has_group[_CGROUP_TREE_MAX] = {[CGROUP_V2] = true, [CGROUP_MEMORY] = true};

static int command_group(const char *id, char group[static COMMAND_GROUP_MAX]) {
        if (!cgroup_id_is_valid(id))
                return -EINVAL;
        (void) snprintf(group, COMMAND_GROUP_MAX, "commands/%s", id);
        return 0;
}

static int command_rmdir(CgroupBox *box, const char *group) {
        int result = 0;

        for (int i = 0; i < _CGROUP_TREE_MAX; i++) {
                if (box->fds[i] < 0 || !command_has_group[i])
                        continue;
                int r = cgroup_remove_tree(box->fds[i], group);
                if (r < 0 && result == 0)
                        result = r;
        }
        return result;
}

int cgroup_command_create(CgroupBox *box, const char *id, Error *err) {
        char group[COMMAND_GROUP_MAX];
        int r = command_group(id, group);

        if (r < 0)
                return error_set(err, ERR_INVALID, "a command id must be 1 to 32 lower-case letters and digits");
        for (int i = 0; i < _CGROUP_TREE_MAX && r == 0; i++)
                if (box->fds[i] >= 0 && command_has_group[i] && mkdirat(box->fds[i], group, 0755) < 0)
                        r = errno == EEXIST && i != CGROUP_V2 ? 0 : -errno; // v2 decides who exists
        if (r == -EEXIST) // somebody's running command: not ours to remove
                return error_set(err, ERR_EXISTS, "command %s has a control group already", id);
        // One process of a command killed for memory leaves a pipeline that waits for ever: all or nothing.
        if (r == 0 && box->host->unified && (box->host->controllers & 1u << 3))
                r = cgroup_write(box->fds[CGROUP_V2], group, "memory.oom.group", "1");
        if (r == 0)
                return 0;
        (void) command_rmdir(box, group);
        return error_set_errno(err, r, "making the control group of command %s", id);
}

int cgroup_command_attach(CgroupBox *box, const char *id, pid_t pid, Error *err) {
        char group[COMMAND_GROUP_MAX], text[16];
        int r = command_group(id, group);

        if (r < 0 || pid <= 0)
                return error_set(err, ERR_INVALID, "no such command, or no process");
        (void) snprintf(text, sizeof(text), "%d", pid);
        for (int i = 0; i < _CGROUP_TREE_MAX && r == 0; i++)
                if (box->fds[i] >= 0)
                        r = cgroup_write(box->fds[i], command_has_group[i] ? group : box->common, "cgroup.procs", text);
        return r < 0 ? error_set_errno(err, r, "moving process %d to command %s", pid, id) : 0;
}

int cgroup_command_kill(CgroupBox *box, const char *id) {
        char group[COMMAND_GROUP_MAX];
        int r = command_group(id, group);

        if (r < 0)
                return r;
        if (box->host->unified)
                (void) cgroup_write(box->fds[CGROUP_V2], group, "pids.max", "0");
        r = cgroup_write(box->fds[CGROUP_V2], group, "cgroup.kill", "1");
        return r == -ENOENT || r == -ENODEV ? 0 : r;
}

int cgroup_command_remove(CgroupBox *box, const char *id) {
        char group[COMMAND_GROUP_MAX];
        uint64_t kills;
        int r = command_group(id, group);

        if (r < 0)
                return r;
        kills = box->host->unified ? 0 : cgroup_oom_kills(box, group);
        r = command_rmdir(box, group);
        if (r == 0)
                box->oom_removed += kills; // v1 forgets them with the group
        return r;
}

int cgroup_list_ids(int dirfd, const char *group, char ***ret) {
        int fd = openat(dirfd, group, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), r = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        _cleanup_strv_ char **v = NULL;
        struct dirent *e;

        if (!d) {
                r = -errno;
                (void) close_fd(fd);
                return r;
        }
        while (r == 0 && (e = readdir(d)))
                if (e->d_type == DT_DIR && cgroup_id_is_valid(e->d_name))
                        r = strv_append(&v, e->d_name);
        (void) closedir(d);
        if (r == 0)
                *ret = TAKE_PTR(v);
        return r;
}

int cgroup_command_list(CgroupBox *box, char ***ret) {
        return cgroup_list_ids(box->fds[CGROUP_V2], "commands", ret);
}
