// SPDX-License-Identifier: GPL-2.0-or-later
// Serve: see serve.h.
//
// The kernel lets a process write any map that has CAP_SETUID and CAP_SETGID and the user id that owns the user namespace. So the keeper
// needs no newuidmap, and nothing here a set-uid program: the unit has no_new_privs.
#include "build/serve.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "build/jail.h"

#define SERVE_FDS 3 // at least
#define SERVE_FDS_MAX 4

typedef struct Keeper {
        pid_t job;
        int pidfd, connection, requests;
        bool wired;
} Keeper;

static int split(char *text, size_t size, int *argc, char *argv[static SERVE_WORDS_MAX]) {
        static char name[] = "hostd-build";
        int n = 0;

        argv[n++] = name;
        for (char *p = text; p < text + size; p += strlen(p) + 1) {
                if (n == SERVE_WORDS_MAX - 1 || !memchr(p, 0, (size_t) (text + size - p)))
                        return -EINVAL;
                argv[n++] = p;
        }
        argv[n] = NULL;
        *argc = n;
        return 0;
}

// The connection goes out of the way of what comes in; what comes in goes to 3, 4, stdout and 5.
static int place(const int *fds, size_t n, int *connection) {
        static const int places[SERVE_FDS_MAX] = {3, 4, STDOUT_FILENO, 5};
        int up[SERVE_FDS_MAX], null = open("/dev/null", O_RDWR | O_CLOEXEC);

        *connection = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
        if (null < 0 || *connection < 0)
                return -errno;
        for (size_t i = 0; i < n; i++)
                if ((up[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 10)) < 0)
                        return -errno;
        for (size_t i = 0; i < n; i++)
                (void) close(fds[i]); // what nobody knows of nobody closes
        if (dup2(null, STDIN_FILENO) < 0)
                return -errno;
        for (size_t i = 0; i < n; i++) {
                if (dup2(up[i], places[i]) < 0)
                        return -errno;
                (void) close_fd(up[i]);
        }
        return 0;
}

static int write_map(pid_t pid, const char *file, unsigned own, unsigned start, unsigned count) {
        char path[64];

        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        return io_write_filef(AT_FDCWD, path, "%u %u 1\n%u %u %u\n", own, own, start, start, count);
}

// Whichever process the job names: the kernel takes a map only for a namespace of this user, and it is always this user's ids.
static void answer(const Keeper *keeper) {
        _cleanup_error_ Error err = ERROR_NULL;
        JailIds ids;
        int32_t request, result;

        if (recv(keeper->requests, &request, sizeof(request), MSG_DONTWAIT) != sizeof(request))
                return;
        result = jail_ids(&ids, &err);
        if (result >= 0)
                result = write_map(request, "uid_map", getuid(), ids.uid_start, ids.count);
        if (result >= 0)
                result = write_map(request, "gid_map", getgid(), ids.gid_start, ids.count);
        (void) !send(keeper->requests, &result, sizeof(result), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void keep(Keeper *keeper) __attribute__((noreturn));
static void keep(Keeper *keeper) {
        struct pollfd fds[] = {{.fd = keeper->pidfd, .events = POLLIN}, {.fd = keeper->connection, .events = POLLIN}, {.fd = keeper->requests, .events = POLLIN}};

        // Only the job holds the pipe to hostd from here on: its end is the end of the lines.
        (void) close(3);
        (void) close(4);
        if (keeper->wired)
                (void) close(5); // where nobody of the jail asks any more hostd is to see
        (void) close(STDOUT_FILENO);
        do {
                if (poll(fds, ELEMENTS(fds), -1) < 0)
                        continue;
                if (fds[2].revents & POLLIN)
                        answer(keeper);
                else if (fds[2].revents)
                        fds[2].fd = -1; // the job has it no more
        } while (!fds[0].revents && !fds[1].revents);
        (void) kill(keeper->job, SIGKILL); // not reaped, so it is no other; its jail dies with it
        while (waitpid(keeper->job, NULL, 0) < 0 && errno == EINTR)
                ;
        _exit(0); // what went wrong is in the pipe, and no failure of the unit
}

// Nothing of the keeper's: neither its capabilities nor its connection.
static int become_job(pid_t parent, int connection, int requests, Error *err) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {{0}};

        (void) close_fd(connection);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                return error_set(err, ERR_CANCELLED, "the parent is gone");
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &head, none) < 0 ||
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return error_set_errno(err, errno, "cannot give up capabilities");
        jail_map_by(requests);
        return 0;
}

int serve(int *argc, char *argv[static SERVE_WORDS_MAX], Error *err) {
        static char text[SERVE_MESSAGE_MAX];
        int fds[SERVE_FDS_MAX] = {-EBADF, -EBADF, -EBADF, -EBADF}, pair[2];
        Keeper keeper = {.pidfd = -EBADF, .connection = -EBADF};
        size_t n_fds = SERVE_FDS_MAX;
        pid_t parent = getpid();
        ssize_t n = io_recv_fds(STDIN_FILENO, text, sizeof(text), fds, &n_fds, 0);

        if (n <= 0 || n_fds < SERVE_FDS || split(text, (size_t) n, argc, argv) < 0)
                return error_set(err, ERR_INVALID, "\"served\" is for systemd: stdin is no connection of hostd's");
        if (place(fds, n_fds, &keeper.connection) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set_errno(err, errno, "cannot take over the descriptors");
        keeper.wired = n_fds > SERVE_FDS;
        keeper.requests = pair[0];
        keeper.job = fork();
        if (keeper.job == 0) {
                (void) close_fd(pair[0]);
                return become_job(parent, keeper.connection, pair[1], err);
        }
        (void) close_fd(pair[1]);
        keeper.pidfd = keeper.job > 0 ? (int) syscall(SYS_pidfd_open, keeper.job, 0) : -1;
        if (keeper.pidfd < 0)
                return error_set_errno(err, errno, "cannot fork");
        keep(&keeper);
}
