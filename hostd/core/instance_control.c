// SPDX-License-Identifier: GPL-2.0-or-later
// Instance, control socket: what hostd and hostd-instance say to each other while the instance lives.
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "base/io.h"
#include "base/log.h"
#include "core/border_link.h"
#include "core/console.h"
#include "core/guest_link.h"
#include "core/manager.h"
#include "core/sandbox.h"
#include "instance/netns.h"

#define CONNECT_EVERY (2 * USEC_PER_MSEC)


void instance_control_close(Instance *instance) {
        guest_link_down(instance);
        console_sessions_end(instance);
        instance->control_source = sd_event_source_disable_unref(instance->control_source);
        instance->control = close_fd(instance->control);
}

int instance_control_send(Instance *instance, ControlType type, const int *fds, size_t n_fds, Error *err) {
        ControlMessage message = {.version = CONTROL_VERSION, .type = type, .cookie = ++instance->cookie};
        ssize_t n;

        if (instance->control < 0)
                return error_set(err, ERR_UNAVAILABLE, "hostd-instance of %s does not answer", instance->record.name);
        n = io_send_fds(instance->control, &message, sizeof(message), fds, n_fds, MSG_DONTWAIT);
        if (n < 0)
                return error_set_errno(err, (int) n, "hostd-instance of %s does not answer", instance->record.name);
        return 0;
}

int instance_control_send_named(Instance *instance, ControlType type, const char *text, int fd, Error *err) {
        ControlMessage message = {.version = CONTROL_VERSION, .type = type, .cookie = ++instance->cookie};
        ssize_t n;

        if (instance->control < 0)
                return error_set(err, ERR_UNAVAILABLE, "hostd-instance of %s does not answer", instance->record.name);
        (void) snprintf(message.text, sizeof(message.text), "%s", text);
        n = io_send_fds(instance->control, &message, sizeof(message), &fd, fd >= 0, MSG_DONTWAIT);
        return n < 0 ? error_set_errno(err, (int) n, "hostd-instance of %s does not answer", instance->record.name) : 0;
}

static void instance_runs(Instance *instance) {
        Manager *m = instance->manager;
        bool first = instance->state == INSTANCE_STARTING;
        _cleanup_error_ Error err = ERROR_NULL;

        if (instance->state == INSTANCE_STOPPING)
                return;

        instance->deadline = sd_event_source_disable_unref(instance->deadline);
        instance_warm(instance, false);
        instance_set_state(instance, INSTANCE_RUNNING);
        if (first) {
                // liblxc has made the payload's group by now: its share of the limits can be written.
                if (instance_apply_limits(instance, true, &err) < 0)
                        manager_warn(m, "limits", instance->record.name, "%s", error_message(&err, -EIO));
                else
                        manager_unwarn(m, "limits", instance->record.name);
                error_done(&err);
                instance->record.started = clock_realtime();
                if (store_instance_update(m->store, &instance->record, &err) < 0)
                        manager_warn(m, "store", instance->record.name, "%s", error_message(&err, -EIO));
                else
                        manager_unwarn(m, "store", instance->record.name);
                instance->reported = false;
                instance_failure_over(instance);
                log_event(LOG_INFO, LOG_ID_INSTANCE_STARTED, instance->record.name, "started in %llu ms",
                          (unsigned long long) ((clock_monotonic() - instance->begun) / USEC_PER_MSEC));
        }
        instance_notify(instance, GOAL_RUNNING, 0, NULL);
}

// The guest's init waits for this, and so does nothing of it run yet. Policies are in force since before the start.
static int plug(Instance *instance, pid_t pid, Error *err) {
        Manager *m = instance->manager;
        _cleanup_close_ int netns = -EBADF;
        int r = netns_open(pid, idpool_slot_base(&m->pool, instance->record.slot), SLOT_IDS, &netns, err);

        if (r >= 0)
                r = network_plug(m->network, instance->record.slot, netns, err);
        border_link_changed(m, instance->record.slot);
        return r;
}

static void plug_wanted(Instance *instance, pid_t pid) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (instance->killed)
                return;
        r = plug(instance, pid, &err);
        if (r >= 0)
                r = instance_control_send(instance, CONTROL_PLUGGED, NULL, 0, &err);
        if (r < 0)
                instance_abort(instance, error_message(&err, r));
}

// An interface that somebody removed while no hostd was there.
static void plug_again(Instance *instance) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (!instance->config || instance->state == INSTANCE_STOPPING || network_is_plugged(instance->manager->network, instance->record.slot))
                return;
        if (plug(instance, instance->init, &err) < 0)
                manager_warn(instance->manager, "network", instance->record.name, "%s", error_message(&err, -EIO));
        else
                log_event(LOG_WARNING, NULL, instance->record.name, "its interface was gone and is made anew");
}

static void instance_control_message(Instance *instance, const ControlMessage *message, int *fd) {
        switch (message->type) {
        case CONTROL_STATE:
                if (message->init_pid > 0)
                        instance->init = message->init_pid;
                if (message->state == CONTROL_STATE_STARTING && instance->state == INSTANCE_RUNNING)
                        instance_set_state(instance, INSTANCE_STARTING); // adopted in the middle of its start
                if (message->state == CONTROL_STATE_RUNNING) {
                        plug_again(instance);
                        instance_runs(instance);
                }
                if (message->state == CONTROL_STATE_STOPPED) {
                        instance->again = instance->again || (message->target == CONTROL_TARGET_REBOOT && instance->state != INSTANCE_STOPPING);
                        instance->terminated = message->target == CONTROL_TARGET_TERMINATED;
                        instance->halted = message->target == CONTROL_TARGET_HALT || instance->terminated;
                        instance->told = true;
                }
                break;
        case CONTROL_GUEST:
                if (*fd >= 0)
                        guest_link_up(instance, TAKE_FD(*fd), message->guest_pid);
                break;
        case CONTROL_SANDBOX:
                sandbox_kept(instance, message->text, TAKE_FD(*fd));
                break;
        case CONTROL_PLUG:
                plug_wanted(instance, message->init_pid);
                break;
        case CONTROL_ERROR:
                free(instance->failure);
                instance->failure = strndup(message->text, sizeof(message->text) - 1);
                break;
        case CONTROL_CONSOLE_END:
                console_session_ended(instance, message->cookie);
                break;
        }
}

static int instance_control_readable(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Instance *instance = userdata;

        for (;;) {
                ControlMessage message;
                int fds[1] = {-EBADF};
                size_t n_fds = 1;
                ssize_t n = io_recv_fds(fd, &message, sizeof(message), fds, &n_fds, MSG_DONTWAIT);
                _cleanup_close_ int received = n_fds > 0 ? fds[0] : -EBADF;
                if (n == -EAGAIN)
                        return 0;
                if (n <= 0) {
                        instance_control_close(instance); // the exit of the process is seen through its pidfd
                        return 0;
                }
                if (n != sizeof(message) || message.version != CONTROL_VERSION)
                        continue;
                message.text[sizeof(message.text) - 1] = 0;
                instance_control_message(instance, &message, &received);
                if (instance->control < 0)
                        return 0;
        }
}

void instance_control_drain(Instance *instance) {
        if (instance->control >= 0)
                (void) instance_control_readable(NULL, instance->control, EPOLLIN, instance);
}

static int control_open(Instance *instance) {
        _cleanup_free_ char *run_dir = instance_run_dir(instance);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -EBADF;

        if (!run_dir || snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", run_dir) >= (int) sizeof(address.sun_path))
                return -ENAMETOOLONG;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        return TAKE_FD(fd);
}

static int control_ready(Instance *instance, int fd, Error *err) {
        int r;

        instance->control = fd;
        r = sd_event_add_io(instance->manager->event, &instance->control_source, fd, EPOLLIN, instance_control_readable, instance);
        if (r < 0)
                return error_set_errno(err, r, "cannot watch the control socket");
        return instance_control_send(instance, CONTROL_HELLO, NULL, 0, err);
}

static int control_retry(sd_event_source *source, uint64_t usec, void *userdata) {
        Instance *instance = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int fd = control_open(instance);

        if (fd < 0) { // it is still starting; its death would be seen through the pidfd
                (void) sd_event_source_set_time_relative(source, CONNECT_EVERY);
                (void) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
                return 0;
        }
        if (control_ready(instance, fd, &err) < 0)
                log_event(LOG_ERR, NULL, instance->record.name, "%s", error_message(&err, -EIO));
        instance->connect_timer = sd_event_source_disable_unref(instance->connect_timer);
        return 0;
}

int instance_control_connect(Instance *instance, Error *err) {
        int fd = control_open(instance), r;

        if (fd >= 0)
                return control_ready(instance, fd, err);
        r = sd_event_add_time_relative(instance->manager->event, &instance->connect_timer, CLOCK_MONOTONIC, CONNECT_EVERY, 1, control_retry, instance);
        return r < 0 ? error_set_errno(err, r, "cannot wait for hostd-instance") : 0;
}

int instance_adopt(Instance *instance, Error *err) {
        _cleanup_free_ char *prefix = instance_cgroup_prefix(instance), *template_dir = NULL;
        struct ucred peer = {0};
        socklen_t size = sizeof(peer);
        int fd = control_open(instance), r;

        if (fd < 0)
                return -ENOENT;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != 0) {
                (void) close_fd(fd);
                return error_set(err, ERR_DENIED, "the control socket of %s does not belong to root", instance->record.name);
        }
        instance->supervisor = peer.pid;
        instance->pidfd = (int) syscall(SYS_pidfd_open, peer.pid, 0);
        if (instance->pidfd < 0) {
                (void) close_fd(fd);
                return -ENOENT;
        }
        r = prefix ? cgroup_box_open(instance->manager->cgroup, prefix, &instance->box, err) : -ENOMEM;
        if (r < 0) {
                (void) close_fd(fd);
                return r;
        }
        instance->template_held = template_mount(instance->manager->templates, instance->record.template_digest, &template_dir, NULL) >= 0;
        instance->state = INSTANCE_RUNNING; // HELLO is answered by the real state
        instance->begun = clock_monotonic();
        instance_watch_oom(instance);
        r = instance_watch_exit(instance, err);
        if (r < 0) {
                (void) close_fd(fd);
                return r;
        }
        instance->paused = cgroup_box_froze(instance->box, true);
        if (!instance->paused)
                (void) cgroup_box_freeze(instance->box, false, NULL); // the last hostd may have died in the middle of a pause
        return control_ready(instance, fd, err);
}
