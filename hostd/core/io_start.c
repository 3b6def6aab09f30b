// SPDX-License-Identifier: GPL-2.0-or-later
// IoStart: see io_start.h.
#include "core/io_start.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/process.h"
#include "core/border.h"
#include "core/service_unit.h"
#include "io/proto.h"

#define USER "hostd-io"

struct IoStart {
        ServiceUnit *unit;
};

IoStart *io_start_free(IoStart *start) {
        if (!start)
                return NULL;
        (void) service_unit_free(start->unit);
        free(start);
        return NULL;
}

static int directory_of(Manager *manager, uint16_t slot, char *ret, size_t size) {
        return snprintf(ret, size, "%s/io/%u", manager->paths.run, slot) >= (int) size ? -ENAMETOOLONG : 0;
}

static int account(uid_t *ret_uid, gid_t *ret_gid, Error *err) {
        return border_account(USER, ret_uid, ret_gid) < 0 ? error_set(err, ERR_UNAVAILABLE, "has no user " USER " on this host") : 0;
}

// The directory is its own; what is above is root's, to go through.
static int make_directory(Manager *manager, const char *path, uid_t uid, gid_t gid, Error *err) {
        char above[256];

        if (snprintf(above, sizeof(above), "%s/io", manager->paths.run) >= (int) sizeof(above))
                return error_set_errno(err, ENAMETOOLONG, "cannot be started");
        if ((mkdir(above, 0711) < 0 && errno != EEXIST) || chmod(above, 0711) < 0)
                return error_set_errno(err, errno, "cannot be started: %s", above);
        return border_directory(path, uid, gid, err);
}

static int exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        (void) waitpid((pid_t) (intptr_t) userdata, NULL, WNOHANG); // ours
        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) sd_event_source_set_floating(source, false); // was its last reference
        return 0;
}

static int fork_it(Manager *manager, char *path, uid_t uid, gid_t gid, Error *err) {
        _cleanup_free_ char *program = NULL;
        sd_event_source *source = NULL;
        ProcessSpec spec = PROCESS_SPEC_NULL;
        char *argv[] = {NULL, path, NULL};
        int r, pidfd;
        pid_t pid;

        if (asprintf(&program, "%s/hostd-io", getenv("HOSTD_BORDER_PROGRAMS") ?: HOSTD_LIBEXECDIR) < 0) {
                program = NULL;
                return error_set_errno(err, ENOMEM, "cannot be started");
        }
        argv[0] = program;
        spec.argv = argv;
        spec.new_session = true; // a terminal's Ctrl-C is for hostd alone
        spec.uid = uid;
        spec.gid = gid;
        r = process_spawn(&spec, &pid, &pidfd, err);
        if (r < 0)
                return r;
        // A failure leaves a zombie until hostd ends.
        if (sd_event_add_io(manager->event, &source, pidfd, EPOLLIN, exited, (void *) (intptr_t) pid) < 0) {
                (void) close_fd(pidfd);
                return 0;
        }
        (void) sd_event_source_set_io_fd_own(source, true);
        (void) sd_event_source_set_floating(source, true);
        (void) sd_event_source_unref(source);
        return 0;
}

int io_start_new(Manager *manager, uint16_t slot, IoStart **ret, Error *err) {
        _cleanup_(io_start_freep) IoStart *start = calloc(1, sizeof(IoStart));
        char path[256], unit[64];
        uid_t uid;
        gid_t gid;
        int r = start ? directory_of(manager, slot, path, sizeof(path)) : -ENOMEM;

        if (r < 0)
                return error_set_errno(err, r, "cannot be started");
        r = account(&uid, &gid, err);
        if (r < 0)
                return r;
        r = make_directory(manager, path, uid, gid, err);
        if (r < 0)
                return r;
        (void) snprintf(unit, sizeof(unit), "hostd-io@%u.service", slot);
        r = manager->systemd ? service_unit_start(manager->event, unit, &start->unit, err) : fork_it(manager, path, uid, gid, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(start);
        return 0;
}

// The directory is hostd-io's, so what its socket is may be anything's: who listens there is looked at before anything is sent.
int io_start_connect(Manager *manager, uint16_t slot, Error *err) {
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct ucred peer;
        socklen_t size = sizeof(peer);
        uid_t uid;
        gid_t gid;
        char path[256];
        int r = fd < 0 ? -errno : directory_of(manager, slot, path, sizeof(path));

        if (r >= 0 && snprintf(address.sun_path, sizeof(address.sun_path), "%s/" IO_SOCKET, path) >= (int) sizeof(address.sun_path))
                r = -ENAMETOOLONG;
        if (r < 0)
                return error_set_errno(err, r, "cannot be reached");
        if (account(&uid, &gid, err) < 0)
                return -EHOSTUNREACH;
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                return error_set_errno(err, errno, "cannot be reached");
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != uid) {
                (void) error_set(err, ERR_DENIED, "is somebody else");
                return -EPERM;
        }
        return TAKE_FD(fd);
}
