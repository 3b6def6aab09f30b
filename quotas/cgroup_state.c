// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup state: freeze, kill and the watch for OOM kills. Always cgroup v2, except that v1's memory tells of its own OOM.
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

#include "quotas/cgroup_private.h"

static int state_event(CgroupBox *box, const char *group, const char *key, uint64_t *ret) {
        char text[512];
        int r = cgroup_read(box->fds[CGROUP_V2], group, "cgroup.events", text, sizeof(text));

        return r < 0 ? r : cgroup_find_number(text, key, ret);
}

bool cgroup_sandbox_froze(CgroupBox *sandbox, bool frozen) {
        uint64_t value;

        return state_event(sandbox, "", "frozen", &value) == 0 && (value != 0) == frozen;
}

int cgroup_wait_event(int root, const char *group, const char *key, bool value, usec_t deadline) {
        char path[CGROUP_PATH_MAX], text[512];
        uint64_t now;

        (void) snprintf(path, sizeof(path), "%s/cgroup.events", group);
        _cleanup_close_ int fd = openat(root, path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        for (;;) {
                struct pollfd p = {fd, POLLPRI, 0};
                ssize_t n = pread(fd, text, sizeof(text) - 1, 0); // also arms the poll
                if (n < 0)
                        return -errno;
                text[n] = 0;
                if (cgroup_find_number(text, key, &now) == 0 && (now != 0) == value)
                        return 0;
                usec_t t = clock_monotonic();
                if (t >= deadline)
                        return -ETIMEDOUT;
                (void) poll(&p, 1, (int) MIN2((deadline - t) / USEC_PER_MSEC + 1, 1000ULL));
        }
}

// The last is missing in a box that an earlier hostd made.
static const char *const freeze_groups[CGROUP_FREEZE_GROUPS] = {"payload", "commands", CGROUP_SANDBOXES};

int cgroup_box_freeze(CgroupBox *box, bool frozen, Error *err) {
        int r = 0;

        if (!cgroup_exists(box->fds[CGROUP_V2], "payload"))
                return error_set(err, ERR_BUSY, "the instance is not running");
        for (size_t i = 0; i < CGROUP_FREEZE_GROUPS && r == 0; i++) {
                r = cgroup_write(box->fds[CGROUP_V2], freeze_groups[i], "cgroup.freeze", frozen ? "1" : "0");
                r = r == -ENOENT && i == CGROUP_FREEZE_GROUPS - 1 ? 0 : r;
        }
        if (r == 0)
                return 0;
        // Half frozen is the worst of all states: go back to running.
        for (size_t i = 0; i < CGROUP_FREEZE_GROUPS; i++)
                (void) cgroup_write(box->fds[CGROUP_V2], freeze_groups[i], "cgroup.freeze", "0");
        return error_set_errno(err, r, "%s", frozen ? "freezing" : "thawing");
}

bool cgroup_box_froze(CgroupBox *box, bool frozen) {
        uint64_t value;

        for (size_t i = 0; i < CGROUP_FREEZE_GROUPS; i++) {
                int r = state_event(box, freeze_groups[i], "frozen", &value);
                if (r == -ENOENT && i == CGROUP_FREEZE_GROUPS - 1)
                        continue;
                if (r < 0 || (value != 0) != frozen)
                        return false;
        }
        return true;
}

int cgroup_events_fd(int dirfd, const char *group) {
        _cleanup_close_ int fd = -EBADF;
        char path[CGROUP_PATH_MAX], text[512];

        (void) snprintf(path, sizeof(path), "%s%scgroup.events", group, *group ? "/" : "");
        fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        return fd < 0 || pread(fd, text, sizeof(text), 0) < 0 ? -errno : TAKE_FD(fd); // the reading arms the poll
}

int cgroup_box_freeze_fds(CgroupBox *box, int ret[CGROUP_FREEZE_GROUPS]) {
        for (size_t i = 0; i < CGROUP_FREEZE_GROUPS; i++) {
                ret[i] = cgroup_events_fd(box->fds[CGROUP_V2], freeze_groups[i]);
                if (ret[i] >= 0 || (ret[i] == -ENOENT && i == CGROUP_FREEZE_GROUPS - 1))
                        continue;
                int r = ret[i];
                while (i-- > 0)
                        (void) close_fd(ret[i]);
                return r;
        }
        return 0;
}

bool cgroup_box_is_populated(CgroupBox *box) {
        uint64_t populated;

        return state_event(box, "", "populated", &populated) == 0 && populated;
}

bool cgroup_host_is_populated(CgroupHost *host, const char *prefix) {
        char text[512];
        uint64_t populated;

        return cgroup_prefix_is_valid(prefix) && cgroup_read(host->roots[CGROUP_V2], prefix, "cgroup.events", text, sizeof(text)) > 0 &&
               cgroup_find_number(text, "populated", &populated) == 0 && populated;
}

int cgroup_host_events_fd(CgroupHost *host, const char *prefix) {
        return cgroup_prefix_is_valid(prefix) ? cgroup_events_fd(host->roots[CGROUP_V2], prefix) : -EINVAL;
}

int cgroup_box_kill(CgroupBox *box) {
        int pids = box->host->unified ? box->fds[CGROUP_V2] : box->fds[CGROUP_PIDS];
        int r;

        // cgroup.kill also catches who is just being forked; the limit stops those who would come in by attach.
        if (pids >= 0)
                (void) cgroup_write(pids, "", "pids.max", "0");
        r = cgroup_write(box->fds[CGROUP_V2], "", "cgroup.kill", "1");
        return r == -ENOENT || r == -ENODEV ? 0 : r; // the group is gone, and nobody is in it
}

static int state_watch_v1(CgroupBox *box, Error *err) {
        _cleanup_close_ int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), control = -EBADF;
        char text[48];
        int r;

        if (event < 0)
                return error_set_errno(err, errno, "watching for OOM");
        control = openat(box->fds[CGROUP_MEMORY], "memory.oom_control", O_RDONLY | O_CLOEXEC);
        if (control < 0)
                return error_set_errno(err, errno, "watching for OOM: memory.oom_control");
        (void) snprintf(text, sizeof(text), "%d %d", event, control);
        r = cgroup_write(box->fds[CGROUP_MEMORY], "", "cgroup.event_control", text);
        if (r < 0)
                return error_set_errno(err, r, "watching for OOM: cgroup.event_control");
        return TAKE_FD(event);
}

static int state_watch_v2(CgroupBox *box, Error *err) {
        _cleanup_close_ int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        char path[64];

        if (fd < 0)
                return error_set_errno(err, errno, "watching for OOM");
        // inotify has no "at" form; the magic link of our own descriptor is one.
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d/memory.events", box->fds[CGROUP_V2]);
        if (inotify_add_watch(fd, path, IN_MODIFY) < 0)
                return error_set_errno(err, errno, "watching for OOM: memory.events");
        return TAKE_FD(fd);
}

int cgroup_box_oom_fd(CgroupBox *box, int *ret_fd, uint32_t *ret_events, Error *err) {
        int fd;

        if (!box->host->unified && box->fds[CGROUP_MEMORY] < 0)
                return error_set(err, ERR_DEGRADED, "there is no memory controller to watch");
        fd = box->host->unified ? state_watch_v2(box, err) : state_watch_v1(box, err);
        if (fd < 0)
                return fd;
        *ret_fd = fd;
        *ret_events = EPOLLIN;
        return 0;
}
