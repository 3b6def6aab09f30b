// SPDX-License-Identifier: GPL-2.0-or-later
// Attach: by our own setns() rather than liblxc's attach: it needs no answer from the monitor, no process in the payload's group
// (an instance at its pids limit still gets its helper back) and is the same with every liblxc.
//
// What keeps the guest out: the child is not dumpable before it enters, holds nothing but /dev/null, its channel and the
// binary, and the binary cannot be read from inside (mode 0111, an owner that is not mapped), which makes the kernel
// refuse ptrace and /proc/PID access to the running helper for every process of the instance, root included. Seccomp filter,
// LSM label, limits and groups are those of init.
#include "instance/attach.h"

#include <dirent.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "instance/confine.h"
#include "instance/seccomp.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

#define BINARY_MAX (64 * 1024 * 1024)
#define SPAWN_TIMEOUT_MSEC 10000
#define OOM_SCORE "-900" // the helper must be there when the instance is out of memory
#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

// What the children write to their maker: the pid first, and a stage only if something failed.
typedef struct SpawnReport {
        int32_t pid, errnum;
        char stage[24];
} SpawnReport;

typedef struct Spawn {
        const InstanceSpec *spec;
        pid_t init;
        int init_pidfd, binary, channel, null, proc, report;
} Spawn;

int guest_binary_load(Error *err) {
        const char *path = secure_getenv("HOSTD_GUEST") ?: HOSTD_LIBEXECDIR "/hostd-guest";
        _cleanup_close_ int in = open(path, O_RDONLY | O_CLOEXEC), out = -EBADF;
        struct stat st;

        if (in < 0 || fstat(in, &st) < 0)
                return error_set_errno(err, errno, "opening the guest helper %s", path);
        if (!S_ISREG(st.st_mode) || st.st_size == 0 || st.st_size > BINARY_MAX)
                return error_set(err, ERR_UNAVAILABLE, "the guest helper %s is no program of at most 64 MiB", path);
        out = memfd_create("hostd-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
        if (out < 0 && errno == EINVAL) // before Linux 6.3 there is no such flag, and all are executable
                out = memfd_create("hostd-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (out < 0)
                return error_set_errno(err, errno, "making a memory file");
        for (off_t left = st.st_size; left > 0;) {
                ssize_t n = sendfile(out, in, NULL, (size_t) left);
                if (n <= 0)
                        return error_set_errno(err, n < 0 ? errno : EIO, "copying the guest helper");
                left -= n;
        }
        if (fchmod(out, 0111) < 0 ||
            fcntl(out, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
                return error_set_errno(err, errno, "sealing the guest helper");
        return TAKE_FD(out);
}

// Writes our pid to `group` in one hierarchy. Absent is fine: not every v1 hierarchy has it.
static int join_one(int hierarchy, const char *prefix, const char *group) {
        char path[600];

        (void) snprintf(path, sizeof(path), "%s/box/%s/cgroup.procs", prefix, group);
        int r = io_write_file(hierarchy, path, "0");
        // A v1 cpuset without processors set takes nobody and limits nothing.
        return r == -ENOENT || r == -ENOSPC ? 0 : r < 0 ? r : 1;
}

// box/guest in every hierarchy: below the root where that is v2 itself, else below each v1 mount and "unified".
static int join_group(const InstanceSpec *spec) {
        DIR *dir = opendir("/sys/fs/cgroup");
        struct dirent *entry;
        int r;

        if (!dir)
                return -errno;
        r = join_one(dirfd(dir), spec->cgroup_prefix, "guest");
        while (r >= 0 && !spec->unified_cgroup && (entry = readdir(dir))) {
                _cleanup_close_ int fd = -EBADF;
                if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
                        continue;
                fd = openat(dirfd(dir), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (fd >= 0)
                        r = join_one(fd, spec->cgroup_prefix, "guest");
        }
        (void) closedir(dir);
        return MIN2(r, 0);
}

static noreturn void spawn_fail(const Spawn *spawn, const char *stage, int errnum) {
        SpawnReport report = {.errnum = errnum};

        (void) snprintf(report.stage, sizeof(report.stage), "%s", stage);
        (void) !write(spawn->report, &report, sizeof(report));
        _exit(127);
}

static void spawn_signals(void) {
        sigset_t none;

        for (int i = 1; i < _NSIG; i++)
                (void) signal(i, SIG_DFL);
        (void) sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

// In the container, pid namespace included. Only system calls that the guest cannot make wait.
static noreturn void spawn_exec(const Spawn *spawn) {
        char name[] = "hostd-guest", path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        char lang[] = "LANG=C.UTF-8", home[] = "HOME=/", kind[] = "container=lxc";
        char *argv[] = {name, NULL}, *env[] = {path, lang, home, kind, NULL};
        int binary;

        (void) setsid();
        const char *profile = spawn->spec->apparmor_profile;
        int r = profile ? io_write_filef(spawn->proc, "self/attr/exec", "exec %s", profile) : 0;
        if (r < 0)
                spawn_fail(spawn, "AppArmor profile", -r);
        // Out of the way of 0 to 3 first; report and binary close at exec.
        int channel = fcntl(spawn->channel, F_DUPFD_CLOEXEC, 10), report = fcntl(spawn->report, F_DUPFD_CLOEXEC, 10);
        binary = fcntl(spawn->binary, F_DUPFD_CLOEXEC, 10);
        int null = fcntl(spawn->null, F_DUPFD_CLOEXEC, 10);
        if (channel < 0 || report < 0 || binary < 0 || null < 0)
                spawn_fail(spawn, "descriptors", errno);
        Spawn last = {.report = report};
        // The program once more as 4: the helper gives people inside a copy to ask with. It is sealed, and nobody there can open it.
        if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 || dup2(channel, 3) < 0 || dup2(binary, 4) < 0 ||
            close_range(5, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
                spawn_fail(&last, "descriptors", errno);
        r = seccomp_load_filter();
        if (r < 0)
                spawn_fail(&last, "seccomp filter", -r);
        (void) syscall(SYS_execveat, binary, "", argv, env, AT_EMPTY_PATH);
        spawn_fail(&last, "exec", errno);
}

static noreturn void spawn_enter(const Spawn *spawn) {
        struct rlimit files = {spawn->spec->open_files, spawn->spec->open_files};
        int r;

        spawn_signals();
        (void) umask(022);
        if (prctl(PR_SET_DUMPABLE, 0) < 0)
                spawn_fail(spawn, "dumpable", errno);
        // Apart from init's and the previous helper's; a command whose user can make no more keyrings keeps this one.
        r = confine_session_keyring();
        if (r < 0)
                spawn_fail(spawn, "session keyring", -r);
        r = join_group(spawn->spec);
        if (r < 0)
                spawn_fail(spawn, "control group", -r);
        // Needs CAP_SYS_RESOURCE, which a machine that is a container itself may lack: the helper is then as mortal as others.
        (void) io_write_file(spawn->proc, "self/oom_score_adj", OOM_SCORE);
        if (spawn->spec->open_files != UINT64_MAX && setrlimit(RLIMIT_NOFILE, &files) < 0)
                spawn_fail(spawn, "open files", errno);
        if (setns(spawn->init_pidfd, NAMESPACES) < 0)
                spawn_fail(spawn, "namespaces", errno);
        if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || chdir("/") < 0)
                spawn_fail(spawn, "identity", errno);
        // A pid namespace is entered by a child only; CLONE_PARENT makes it the supervisor's, who will wait for it.
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
        if (pid == 0)
                spawn_exec(spawn);
        if (pid < 0)
                spawn_fail(spawn, "fork", errno);
        SpawnReport report = {.pid = (int32_t) pid};
        _exit(write(spawn->report, &report, sizeof(report)) != sizeof(report));
}

// Reads reports until the last writer is gone, which is at exec. Returns the pid.
static int spawn_wait(int report_fd, Error *err) {
        pid_t pid = 0;

        for (;;) {
                struct pollfd fd = {.fd = report_fd, .events = POLLIN};
                SpawnReport report;

                if (poll(&fd, 1, SPAWN_TIMEOUT_MSEC) <= 0) {
                        if (pid > 0)
                                (void) kill(pid, SIGKILL);
                        return error_set(err, ERR_TIMEOUT, "the guest helper did not start in 10 s");
                }
                ssize_t n = read(report_fd, &report, sizeof(report));
                if (n == 0)
                        return pid > 0 ? pid : error_set(err, ERR_INTERNAL, "the guest helper died before its start");
                if (n != sizeof(report))
                        return error_set_errno(err, n < 0 ? errno : EIO, "starting the guest helper");
                if (report.errnum)
                        return error_set_errno(err, report.errnum, "starting the guest helper (%.23s)", report.stage);
                pid = report.pid;
        }
}

int guest_spawn(const InstanceSpec *spec, pid_t init, int init_pidfd, int binary, int *ret_channel, Error *err) {
        _cleanup_close_ int host = -EBADF, guest = -EBADF, report = -EBADF, report_child = -EBADF, null = -EBADF, proc = -EBADF;
        int pair[2], on = 1, r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set_errno(err, errno, "making the guest channel");
        host = pair[0], guest = pair[1];
        if (pipe2(pair, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "making a pipe");
        report = pair[0], report_child = pair[1];
        // From birth, so that no message can come without its sender's pid.
        if (setsockopt(host, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
                return error_set_errno(err, errno, "asking for credentials on the guest channel");
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
        proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (null < 0 || proc < 0)
                return error_set_errno(err, errno, "opening /dev/null and /proc");
        Spawn spawn = {.spec = spec, .init = init, .init_pidfd = init_pidfd, .binary = binary, .channel = guest, .null = null,
                       .proc = proc, .report = report_child};
        pid_t pid = fork();
        if (pid < 0)
                return error_set_errno(err, errno, "forking for the guest helper");
        if (pid == 0)
                spawn_enter(&spawn);
        report_child = close_fd(report_child);
        r = spawn_wait(report, err);
        if (r < 0)
                (void) kill(pid, SIGKILL);
        (void) waitpid(pid, NULL, 0);
        if (r < 0)
                return r;
        pid = r;
        r = confine_await("/proc", pid, spec->apparmor_profile, "the guest helper", err);
        if (r < 0) {
                (void) kill(pid, SIGKILL); // reaped by the supervisor, whose child it is
                return r;
        }
        *ret_channel = TAKE_FD(host);
        return pid;
}
