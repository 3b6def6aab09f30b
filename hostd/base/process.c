// SPDX-License-Identifier: GPL-2.0-or-later
// Process: see process.h. Errors before exec come back as an errno through a close-on-exec pipe.
#include "base/process.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"

static char *const process_env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
                                    "HOME=/", NULL};

static void child_signals(void) {
        sigset_t none;

        for (int s = 1; s < _NSIG; s++)
                (void) signal(s, SIG_DFL); // fails for KILL and STOP, as it should
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

// Places the named descriptors at 0..n-1. First everything goes above the target range, so that no dup2 overwrites one
// that is still needed.
static int child_fds(const ProcessSpec *spec) {
        int want[3 + IO_FDS_MAX], n = 3 + (int) spec->n_extra_fds;
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null_fd < 0 || spec->n_extra_fds > IO_FDS_MAX)
                return -1;
        want[0] = spec->stdin_fd >= 0 ? spec->stdin_fd : null_fd;
        want[1] = spec->stdout_fd >= 0 ? spec->stdout_fd : null_fd;
        want[2] = spec->stderr_fd >= 0 ? spec->stderr_fd : 2;
        for (size_t i = 0; i < spec->n_extra_fds; i++)
                want[3 + i] = spec->extra_fds[i];
        for (int i = 0; i < n; i++) {
                want[i] = fcntl(want[i], F_DUPFD_CLOEXEC, n);
                if (want[i] < 0)
                        return -1;
        }
        for (int i = 0; i < n; i++)
                if (dup2(want[i], i) < 0)
                        return -1;
        return (int) syscall(SYS_close_range, (unsigned) n, ~0U, 0);
}

// Needs what it takes away, so it comes before the change of ids.
static int child_bounding(uint64_t keep) {
        for (unsigned cap = 0; keep && cap < 64; cap++)
                if (!(keep & UINT64_C(1) << cap) && prctl(PR_CAPBSET_DROP, cap) < 0 && errno != EINVAL) // EINVAL: beyond the kernel's last
                        return -1;
        return 0;
}

// After the change of ids: these and no others outlive the exec.
static int child_ambient(uint64_t ambient) {
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2] = {0};

        for (unsigned i = 0; i < 2; i++)
                data[i].permitted = data[i].effective = data[i].inheritable = (uint32_t) (ambient >> (32 * i));
        if (syscall(SYS_capset, &header, data) < 0)
                return -1;
        for (unsigned cap = 0; cap < 64; cap++)
                if (ambient & UINT64_C(1) << cap && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
                        return -1;
        return 0;
}

static int child_credentials(const ProcessSpec *spec) {
        if (spec->uid == 0)
                return 0;
        if (spec->ambient && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
                return -1;
        if (setgroups(0, NULL) < 0 || setresgid(spec->gid, spec->gid, spec->gid) < 0 || setresuid(spec->uid, spec->uid, spec->uid) < 0)
                return -1;
        return spec->ambient ? child_ambient(spec->ambient) : 0;
}

// hostd may be spared by the kernel when memory runs out; what it runs for others is not to be.
static void child_oom_score(void) {
        _cleanup_free_ char *now = NULL;

        if (io_read_file(AT_FDCWD, "/proc/self/oom_score_adj", 32, &now, NULL) >= 0 && now[0] == '-')
                (void) io_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "0");
}

static void child_exec(const ProcessSpec *spec, pid_t parent, int status_fd) {
        child_signals();
        (void) umask(0022);
        child_oom_score();
        if (spec->new_session && setsid() < 0)
                goto fail;
        if (child_bounding(spec->bounding) < 0 || child_credentials(spec) < 0 || chdir(spec->cwd ?: "/") < 0)
                goto fail;
        // After the change of ids, which clears it.
        if (spec->die_with_parent && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent))
                goto fail;
        // The status pipe must survive close_range until exec, so it moves to a number that child_fds() keeps: it is
        // handed over as one more descriptor, close-on-exec.
        ProcessSpec moved = *spec;
        int fds[IO_FDS_MAX + 1];
        size_t n = spec->n_extra_fds;
        if (n + 1 > IO_FDS_MAX) {
                errno = E2BIG;
                goto fail;
        }
        for (size_t i = 0; i < n; i++)
                fds[i] = spec->extra_fds[i];
        fds[n] = status_fd;
        moved.extra_fds = fds;
        moved.n_extra_fds = n + 1;
        if (child_fds(&moved) < 0)
                goto fail;
        status_fd = 3 + (int) n;
        (void) fcntl(status_fd, F_SETFD, FD_CLOEXEC);
        execve(spec->argv[0], spec->argv, spec->env ?: process_env);
fail:;
        int e = errno;
        (void) !write(status_fd, &e, sizeof(e));
        _exit(127);
}

int process_spawn(const ProcessSpec *spec, pid_t *ret_pid, int *ret_pidfd, Error *err) {
        _cleanup_close_ int pidfd = -EBADF;
        int status[2], e = 0;
        pid_t parent = getpid(), pid;
        ssize_t n;

        if (pipe2(status, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot make a pipe");
        pid = fork();
        if (pid < 0) {
                int saved = errno;
                (void) close_fd(status[0]);
                (void) close_fd(status[1]);
                return error_set_errno(err, saved, "cannot fork for %s", spec->argv[0]);
        }
        if (pid == 0) {
                (void) close(status[0]);
                child_exec(spec, parent, status[1]);
        }
        (void) close_fd(status[1]);
        do
                n = read(status[0], &e, sizeof(e));
        while (n < 0 && errno == EINTR);
        (void) close_fd(status[0]);
        if (n > 0) {
                (void) waitpid(pid, NULL, 0);
                return error_set_errno(err, e, "cannot run %s", spec->argv[0]);
        }
        if (ret_pidfd) {
                pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
                if (pidfd < 0) {
                        int saved = errno;
                        (void) kill(pid, SIGKILL);
                        (void) waitpid(pid, NULL, 0);
                        return error_set_errno(err, saved, "cannot open a pidfd for %s", spec->argv[0]);
                }
                *ret_pidfd = TAKE_FD(pidfd);
        }
        *ret_pid = pid;
        return 0;
}

int process_run(char *const *argv, char **ret_output, Error *err) {
        _cleanup_close_ int rd = -EBADF, wr = -EBADF;
        _cleanup_free_ char *text = NULL;
        ProcessSpec spec = PROCESS_SPEC_NULL;
        size_t used = 0, max = 1 << 20;
        int p[2], status, r;
        pid_t pid;

        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot make a pipe");
        rd = p[0];
        wr = p[1];
        text = malloc(max + 1);
        if (!text)
                return error_set_errno(err, ENOMEM, "cannot run %s", argv[0]);
        spec.argv = argv;
        spec.stdout_fd = wr;
        r = process_spawn(&spec, &pid, NULL, err);
        if (r < 0)
                return r;
        wr = close_fd(wr);
        for (;;) {
                char sink[4096];
                ssize_t n = used < max ? read(rd, text + used, max - used) : read(rd, sink, sizeof(sink));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        break;
                if (used < max)
                        used += (size_t) n;
        }
        text[used] = 0;
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return error_set_errno(err, errno, "cannot wait for %s", argv[0]);
        if (ret_output)
                *ret_output = TAKE_PTR(text);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}
