// SPDX-License-Identifier: GPL-2.0-or-later
// Child: see child.h. Order matters: descriptors before the working directory (so that no magic link of ours can be entered), ids
// before the working directory and exec (so that both are checked as the user), the failure report last of all.
#include "guest/child.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "base/strv.h"
#include "guest/deliver.h"
#include "guest/files.h"
#include "guest/login.h"
#include "guest/relay.h"
#include "guest/sandbox.h"

#define CHILD_STATUS_FD 3

static void child_fail(int status, GuestStage stage, int errnum) __attribute__((noreturn));
static void child_fail(int status, GuestStage stage, int errnum) {
        ChildFailure failure = {.stage = stage, .errnum = (uint32_t) abs(errnum)};

        (void) send(status, &failure, sizeof(failure), MSG_NOSIGNAL);
        _exit(stage == GUEST_STAGE_FILE || stage == GUEST_STAGE_TARGET ? 1 : 126);
}

static void child_say_ready(const ChildSpec *spec) {
        GuestHeader h = {.magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = GUEST_READY, .size = sizeof(h)};
        struct ucred ucred = {.pid = getpid(), .uid = getuid(), .gid = getgid()};
        union {
                char buf[CMSG_SPACE(sizeof(ucred))];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {&h, sizeof(h)};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        memcpy(h.id, spec->request->header.id, GUEST_ID_MAX);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_CREDENTIALS;
        c->cmsg_len = CMSG_LEN(sizeof(ucred));
        memcpy(CMSG_DATA(c), &ucred, sizeof(ucred));
        // May wait for room: this process has nothing else to do. Without hostd nobody would release it anyway.
        while (sendmsg(spec->channel, &msg, MSG_NOSIGNAL) < 0)
                if (errno != EINTR)
                        _exit(126);
}

static void child_wait(int status) {
        char byte;
        ssize_t n;

        do
                n = recv(status, &byte, 1, 0);
        while (n < 0 && errno == EINTR);
        if (n != 1)
                _exit(126);
}

// The program goes along, where process 1 of the sandbox is to find it.
static int child_sandbox_descriptors(const ChildSpec *spec) {
        int binary = spec->binary < 0 ? -EBADF : fcntl(spec->binary, F_DUPFD_CLOEXEC, SANDBOX_STATUS_FD + 1);
        int status = fcntl(spec->status, F_DUPFD_CLOEXEC, SANDBOX_STATUS_FD + 1);

        if (binary < 0) // a sandbox in a sandbox
                return -EOPNOTSUPP;
        // The helper's own channel goes before anybody else's process can be looked into: see userns_become_agent().
        if (dup3(STDIN_FILENO, SANDBOX_CHANNEL_FD, O_CLOEXEC) < 0)
                return -errno;
        if (status < 0 || dup3(binary, SANDBOX_BINARY_FD, O_CLOEXEC) < 0 || dup3(status, SANDBOX_STATUS_FD, O_CLOEXEC) < 0)
                return -errno;
        if (syscall(SYS_close_range, SANDBOX_BINARY_FD + 1U, SANDBOX_STATUS_FD - 1U, 0) < 0)
                return -errno;
        return syscall(SYS_close_range, SANDBOX_STATUS_FD + 1U, ~0U, 0) < 0 ? -errno : 0;
}

static int child_descriptors(const ChildSpec *spec) {
        // All of them are above 3: the helper keeps 0 to 3 occupied for ever.
        for (int i = 0; i < 3; i++)
                if (dup2(spec->fds[i], i) < 0)
                        return -errno;
        if (spec->request->header.value == GUEST_SANDBOX)
                return child_sandbox_descriptors(spec);
        if (dup3(spec->status, CHILD_STATUS_FD, O_CLOEXEC) < 0)
                return -errno;
        return syscall(SYS_close_range, CHILD_STATUS_FD + 1U, ~0U, 0) < 0 ? -errno : 0;
}

bool child_has_terminal(const Request *request) {
        return (request->header.flags & GUEST_FLAG_TTY) && request->header.value <= GUEST_LOGIN;
}

static int child_session(const ChildSpec *spec) {
        sigset_t none;

        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) umask(022);
        if (setsid() < 0)
                return -errno;
        if (child_has_terminal(spec->request) && ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
                return -errno;
        // oom_score_adj is put back by hostd, from outside. Neither of these is a protection the host relies on, and both may be forbidden or full inside.
        (void) setrlimit(RLIMIT_NOFILE, &spec->open_files);
        (void) syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
        return 0;
}

static int child_capabilities(void) {
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capget, &header, data) < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(data); i++)
                data[i].inheritable = 0;
        return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int child_become(const User *user) {
        if (setgroups(user->n_groups, user->groups) < 0 || setresgid(user->gid, user->gid, user->gid) < 0 ||
            setresuid(user->uid, user->uid, user->uid) < 0)
                return -errno;
        return child_capabilities();
}

static int child_enter(const char *path) {
        struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
        _cleanup_close_ int fd = (int) syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

        return fd < 0 || fchdir(fd) < 0 ? -errno : 0;
}

static int child_directory(const Request *request, const User *user) {
        if (*request->cwd)
                return *request->cwd == '/' ? child_enter(request->cwd) : -EINVAL;
        if (child_enter(user->home) < 0 && chdir("/") < 0)
                return -errno;
        return 0;
}

static void child_file(const Request *request) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = files_run(request, &err);

        if (r == 0)
                _exit(0);
        // For whoever reads fd 2, if anybody does: hostd's file calls have no reader, and the number must still get through.
        (void) signal(SIGPIPE, SIG_IGN);
        if (err.message)
                (void) !write(STDERR_FILENO, err.message, strlen(err.message));
        child_fail(CHILD_STATUS_FD, err.field && strcmp(err.field, FILES_TARGET) == 0 ? GUEST_STAGE_TARGET : GUEST_STAGE_FILE, r);
}

static void child_login(const Request *request, const User *user, char **env) {
        _cleanup_strv_ char **argv = NULL;
        int r;

        // As root, because su must be; but a directory that is missing is said before PAM opens a session.
        if (*request->cwd && (r = child_directory(request, user)) < 0)
                child_fail(CHILD_STATUS_FD, GUEST_STAGE_CWD, r);
        r = chdir("/") < 0 ? -errno : child_capabilities();
        if (r >= 0)
                r = login_argv(user, request, &argv);
        if (r < 0)
                child_fail(CHILD_STATUS_FD, GUEST_STAGE_SETUP, r);
        execve(argv[0], argv, env);
        child_fail(CHILD_STATUS_FD, GUEST_STAGE_EXEC, errno);
}

static void child_sandbox(const Request *request) __attribute__((noreturn));
static void child_sandbox(const Request *request) {
        GuestStage stage;
        int r = sandbox_run(request, &stage);

        child_fail(SANDBOX_STATUS_FD, stage, r);
}

void child_run(const ChildSpec *spec) {
        const Request *request = spec->request;
        User user = {0};
        char **env = NULL;
        int r, found, status = spec->status;

        child_say_ready(spec);
        // While hostd does its part.
        found = user_load("/etc", request->user, &user);
        if (found == 1 && request->header.value == GUEST_LOGIN)
                found = -ENOENT; // PAM knows names only
        r = found < 0 ? found : login_env(&user, request, deliver_environment(), &env);
        child_wait(status);
        if (found < 0)
                child_fail(status, GUEST_STAGE_USER, found);
        if (r >= 0)
                r = child_descriptors(spec);
        if (r < 0)
                child_fail(status, GUEST_STAGE_SETUP, r);
        status = request->header.value == GUEST_SANDBOX ? SANDBOX_STATUS_FD : CHILD_STATUS_FD;
        r = child_session(spec);
        if (r >= 0 && child_has_terminal(request))
                r = relay_start(status, user.uid);
        if (r < 0)
                child_fail(status, GUEST_STAGE_SETUP, r);
        if (request->header.value == GUEST_SANDBOX)
                child_sandbox(request);
        if (request->header.value == GUEST_LOGIN)
                child_login(request, &user, env);
        r = child_become(&user);
        if (r < 0)
                child_fail(status, GUEST_STAGE_USER, r == -ENOENT ? EPERM : r);
        r = child_directory(request, &user);
        if (r < 0)
                child_fail(status, GUEST_STAGE_CWD, r);
        if (request->header.value != GUEST_RUN)
                child_file(request);
        environ = env; // execvp searches the PATH of the command, not ours
        execvp(request->argv[0], request->argv);
        child_fail(status, GUEST_STAGE_EXEC, errno);
}
