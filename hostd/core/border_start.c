// SPDX-License-Identifier: GPL-2.0-or-later
// Border, start: the table of helpers, their sockets, and their start where systemd is not process 1. See border.h.
//
// A listening socket is the helper's alone: hostd closes its end as soon as the process has it, so that a connection is refused when the
// helper is dead. A socket's file belongs to whoever may connect, with a mode that lets in nobody else.
#include <linux/capability.h>
#include <pwd.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/io.h"
#include "base/process.h"
#include "border/border.h"
#include "core/border.h"

#define SOCKETS_MAX 2
#define BACKLOG 64

typedef struct BorderSocket {
        const char *fd_name, *file;
        int type;
        const char *user, *group; // whose primary group; NULL: root
        mode_t mode;
} BorderSocket;

struct BorderRow {
        const char *name;
        bool views, inserts, events, queries;
        uint64_t capabilities; // that it starts with, and gives up before it reads anything
        const char *directory, *variable; // of its own, and where it reads of it: as of LogsDirectory= or StateDirectory= of its unit
        BorderSocket sockets[SOCKETS_MAX]; // the first is hostd's
};

// The same as in the units: hostd/units/*.socket; a test compares.
static const BorderRow rows[_BORDER_PART_MAX] = {
        [BORDER_PART_RESOLVER] = {BORDER_RESOLVER, .views = true, .inserts = true, .sockets = {
                {BORDER_FD_CONTROL, "resolver.sock", SOCK_STREAM, NULL, NULL, 0600},
                {BORDER_FD_RESOLVE, "resolve.sock", SOCK_SEQPACKET, BORDER_PROXY, NULL, 0600},
        }},
        [BORDER_PART_PROXY] = {BORDER_PROXY, .views = true, .directory = "/var/lib/hostd-proxy", .variable = "STATE_DIRECTORY", .sockets = {
                {BORDER_FD_CONTROL, "proxy.sock", SOCK_STREAM, NULL, NULL, 0600},
        }},
        [BORDER_PART_FLOW] = {BORDER_FLOW, .views = true, .events = true, .queries = true, .capabilities = UINT64_C(1) << CAP_NET_ADMIN, .directory = "/var/log/hostd", .variable = "LOGS_DIRECTORY", .sockets = {
                {BORDER_FD_CONTROL, "flow.sock", SOCK_STREAM, NULL, NULL, 0600},
                {BORDER_FD_RECORDS, "flow-records.sock", SOCK_DGRAM, BORDER_PROXY, BORDER_RESOLVER, 0660},
        }},
};

const BorderRow *border_row(BorderPart part) {
        return rows + part;
}

const char *border_part_to_string(BorderPart part) {
        return part >= 0 && part < _BORDER_PART_MAX ? rows[part].name : NULL;
}

const char *const *border_sockets(BorderPart part) {
        static const char *names[_BORDER_PART_MAX][SOCKETS_MAX + 1];

        for (size_t i = 0; i < SOCKETS_MAX; i++)
                names[part][i] = rows[part].sockets[i].file;
        return names[part];
}

bool border_part_has_views(BorderPart part) {
        return rows[part].views;
}

bool border_row_allows(const BorderRow *row, uint32_t type) {
        switch ((BorderType) type) {
        case BORDER_HELLO:
                return true;
        case BORDER_APPLIED:
                return row->views;
        case BORDER_INSERT:
                return row->inserts;
        case BORDER_EVENT:
                return row->events;
        case BORDER_ANSWERED:
                return row->queries;
        case BORDER_VIEWS:
        case BORDER_ACK:
        case BORDER_QUERY:
                break;
        }
        return false;
}

static char *program_path(const BorderConfig *config, BorderPart part) {
        char *path;

        return asprintf(&path, "%s/%s", config->programs, rows[part].name) < 0 ? NULL : path;
}

bool border_is_installed(const BorderConfig *config, BorderPart part) {
        _cleanup_free_ char *program = program_path(config, part);

        return program && access(program, X_OK) == 0;
}

// Both files are looked at, and no version is asked for: an upgrade replaces the file. What cannot be seen is not called old.
bool border_program_is(const BorderConfig *config, BorderPart part, pid_t pid) {
        _cleanup_free_ char *program = program_path(config, part);
        struct stat running, installed;
        char exe[32];

        (void) snprintf(exe, sizeof(exe), "/proc/%d/exe", (int) pid);
        if (pid <= 0 || !program || stat(exe, &running) < 0 || stat(program, &installed) < 0)
                return true;
        return running.st_dev == installed.st_dev && running.st_ino == installed.st_ino;
}

static int socket_address(const BorderConfig *config, const BorderSocket *s, struct sockaddr_un *ret) {
        *ret = (struct sockaddr_un) {.sun_family = AF_UNIX};
        return snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/%s", config->run, s->file) >= (int) sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

int border_connect(const BorderConfig *config, BorderPart part) {
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct sockaddr_un address;
        int one = 1, r = socket_address(config, rows[part].sockets, &address);

        if (fd < 0 || r < 0)
                return fd < 0 ? -errno : r;
        // Before anything can come: the peer of a listening socket is who made it, which is systemd.
        if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        return TAKE_FD(fd);
}

int border_account(const char *user, uid_t *ret_uid, gid_t *ret_gid) {
        const struct passwd *entry = getpwnam(user);

        if (!entry || entry->pw_uid == 0)
                return -ENOENT;
        *ret_uid = entry->pw_uid;
        *ret_gid = entry->pw_gid;
        return 0;
}

static int account(const BorderConfig *config, const char *user, uid_t *ret_uid, gid_t *ret_gid, Error *err) {
        int r = (config->account ?: border_account)(user, ret_uid, ret_gid);

        return r < 0 ? error_set(err, ERR_UNAVAILABLE, "the user %s is missing", user) : 0;
}

bool border_has_user(const BorderConfig *config, BorderPart part) {
        uid_t uid;
        gid_t gid;

        return (config->account ?: border_account)(border_part_to_string(part), &uid, &gid) >= 0;
}

// A name in place of an older one whose listener is gone: nobody was there when hostd looked.
static int socket_make(const BorderConfig *config, const BorderSocket *s, int *ret, Error *err) {
        _cleanup_close_ int fd = socket(AF_UNIX, s->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct sockaddr_un address;
        uid_t uid = 0, unused_uid;
        gid_t gid = 0, unused_gid;
        mode_t mask;
        int r = socket_address(config, s, &address);

        if (fd < 0 || r < 0)
                return error_set_errno(err, fd < 0 ? errno : -r, "cannot make the socket %s", s->file);
        if (s->user && (r = account(config, s->user, &uid, &unused_gid, err)) < 0)
                return r;
        if (s->group && (r = account(config, s->group, &unused_uid, &gid, err)) < 0)
                return r;
        (void) unlink(address.sun_path);
        mask = umask(0777);
        r = bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ? -errno : 0;
        (void) umask(mask);
        // From nobody's to its owner's to what the owner may do: in this order it is never open to others.
        if (r >= 0 && (chown(address.sun_path, uid, gid) < 0 || chmod(address.sun_path, s->mode) < 0))
                r = -errno;
        if (r >= 0 && s->type != SOCK_DGRAM && listen(fd, BACKLOG) < 0)
                r = -errno;
        if (r < 0)
                return error_set_errno(err, r, "cannot make the socket %s", s->file);
        *ret = TAKE_FD(fd);
        return 0;
}

typedef struct Sockets {
        int fds[SOCKETS_MAX];
        size_t n;
        char names[64]; // "control:resolve"
} Sockets;

static void sockets_done(Sockets *sockets) {
        for (size_t i = 0; i < sockets->n; i++)
                (void) close_fd(sockets->fds[i]);
}

static int sockets_make(const BorderConfig *config, BorderPart part, Sockets *sockets, Error *err) {
        for (size_t i = 0; i < SOCKETS_MAX && rows[part].sockets[i].file; i++) {
                const BorderSocket *s = rows[part].sockets + i;
                size_t used = strlen(sockets->names);
                int r = socket_make(config, s, &sockets->fds[i], err);
                if (r < 0)
                        return r;
                sockets->n++;
                (void) snprintf(sockets->names + used, sizeof(sockets->names) - used, "%s%s", i ? ":" : "", s->fd_name);
        }
        return 0;
}

// As systemd makes it: its user's alone.
int border_directory(const char *path, uid_t uid, gid_t gid, Error *err) {
        _cleanup_close_ int fd = -EBADF;

        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return error_set_errno(err, errno, "cannot make %s", path);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fchown(fd, uid, gid) < 0 || fchmod(fd, 0700) < 0)
                return error_set_errno(err, errno, "cannot make %s", path);
        return 0;
}

static char *own_directory(const BorderConfig *config, BorderPart part) {
        char *path;

        if (!config->data)
                return strdup(rows[part].directory);
        return asprintf(&path, "%s/%s", config->data, rows[part].name) < 0 ? NULL : path;
}

int border_spawn(const BorderConfig *config, BorderPart part, pid_t *ret_pid, int *ret_pidfd, Error *err) {
        _cleanup_(sockets_done) Sockets sockets = {0};
        _cleanup_free_ char *program = program_path(config, part);
        _cleanup_free_ char *directory = rows[part].directory ? own_directory(config, part) : NULL;
        char fds[32], names[96], run[160], data[160];
        char *const argv[] = {program, NULL}, *const env[] = {(char *) "PATH=/usr/bin:/bin", (char *) "LANG=C.UTF-8", fds, names, run,
                                                              directory ? data : NULL, NULL};
        ProcessSpec spec = PROCESS_SPEC_NULL;
        int r;

        if (!program || (rows[part].directory && !directory))
                return error_set_errno(err, ENOMEM, "cannot start %s", rows[part].name);
        r = account(config, rows[part].name, &spec.uid, &spec.gid, err);
        if (r >= 0)
                r = sockets_make(config, part, &sockets, err);
        if (r >= 0 && directory)
                r = border_directory(directory, spec.uid, spec.gid, err);
        if (r < 0)
                return r;
        (void) snprintf(fds, sizeof(fds), "LISTEN_FDS=%zu", sockets.n);
        (void) snprintf(names, sizeof(names), "LISTEN_FDNAMES=%s", sockets.names);
        (void) snprintf(run, sizeof(run), BORDER_RUN_VARIABLE "=%s", config->run);
        if (directory)
                (void) snprintf(data, sizeof(data), "%s=%s", rows[part].variable, directory);
        spec.ambient = rows[part].capabilities;
        spec.bounding = rows[part].capabilities | UINT64_C(1) << 63; // the last bit is no capability: 0 would leave all
        spec.argv = argv;
        spec.env = env;
        spec.extra_fds = sockets.fds;
        spec.n_extra_fds = sockets.n;
        spec.new_session = true; // a terminal's Ctrl-C is for hostd alone
        return process_spawn(&spec, ret_pid, ret_pidfd, err);
}
