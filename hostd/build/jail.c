// SPDX-License-Identifier: GPL-2.0-or-later
// Jail: see jail.h.
#include "build/jail.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/process.h"
#include "build/filter.h"
#include "build/recipe.h"
#include "build/wire.h"

// What a child tells of its failure: code, errno, then the sentence. One SOCK_SEQPACKET message.
typedef struct JailReport {
        int code, errnum;
        char message[1024];
} JailReport;

static void report_send(int fd, const Error *err, int r) {
        JailReport report = {.code = (int) err->code, .errnum = err->errnum ?: -r};

        (void) snprintf(report.message, sizeof(report.message), "%s", error_message(err, r));
        (void) !send(fd, &report, sizeof(report), MSG_NOSIGNAL);
}

static int report_receive(int fd, const char *what, Error *err) {
        JailReport report;
        ssize_t n = recv(fd, &report, sizeof(report), 0);

        if (n != sizeof(report))
                return error_set(err, ERR_INTERNAL, "%s died without saying why", what);
        report.message[sizeof(report.message) - 1] = 0;
        if (report.code <= ERR_NONE || report.code >= _ERR_MAX)
                report.code = ERR_INTERNAL;
        return error_set(err, (ErrorCode) report.code, "%s", report.message);
}

static int subids_of(const char *path, const char *user, uid_t uid, unsigned *ret, Error *err) {
        _cleanup_(fclosep) FILE *f = fopen(path, "re");
        char line[256], name[64];
        unsigned long start, count;

        while (f && fgets(line, sizeof(line), f)) {
                if (sscanf(line, "%63[^:]:%lu:%lu", name, &start, &count) != 3 || count < (unsigned long) RECIPE_IMAGE_IDS)
                        continue;
                if (strcmp(name, user) != 0 && strtoul(name, NULL, 10) != uid)
                        continue;
                *ret = (unsigned) start;
                return 0;
        }
        return error_set(err, ERR_UNAVAILABLE, "%s has no line of 65536 ids for the user %s", path, user);
}

int jail_ids(JailIds *ret, Error *err) {
        const struct passwd *pw = getpwuid(getuid());
        int r;

        if (getuid() == 0 || !pw)
                return error_set(err, ERR_DENIED, "hostd-build must run as a user of its own, never as root");
        ret->count = (unsigned) RECIPE_IMAGE_IDS;
        r = subids_of("/etc/subuid", pw->pw_name, getuid(), &ret->uid_start, err);
        return r < 0 ? r : subids_of("/etc/subgid", pw->pw_name, getuid(), &ret->gid_start, err);
}

static int run_mapper(const char *program, pid_t pid, unsigned own, unsigned start, unsigned count, Error *err) {
        char text[5][16];
        char *argv[] = {(char *) program, text[0], text[1], text[1], (char *) "1", text[2], text[2], text[3], NULL};
        int r;

        (void) snprintf(text[0], sizeof(text[0]), "%d", (int) pid);
        (void) snprintf(text[1], sizeof(text[1]), "%u", own);
        (void) snprintf(text[2], sizeof(text[2]), "%u", start);
        (void) snprintf(text[3], sizeof(text[3]), "%u", count);
        r = process_run(argv, NULL, err);
        if (r > 0)
                return error_set(err, ERR_UNAVAILABLE, "%s refused the ids of this user (exit status %d)", program, r);
        return r;
}

// A socket to somebody who may write maps; -EBADF: newuidmap and newgidmap, which are set-uid, do it.
static int map_socket = -EBADF;

void jail_map_by(int socket) {
        map_socket = socket;
}

static int map_ids(pid_t pid, const JailIds *ids, Error *err) {
        int32_t request = pid, result;
        int r;

        if (map_socket < 0) {
                r = run_mapper("/usr/bin/newuidmap", pid, getuid(), ids->uid_start, ids->count, err);
                return r < 0 ? r : run_mapper("/usr/bin/newgidmap", pid, getgid(), ids->gid_start, ids->count, err);
        }
        if (send(map_socket, &request, sizeof(request), MSG_NOSIGNAL) != sizeof(request) || recv(map_socket, &result, sizeof(result), 0) != sizeof(result))
                return error_set(err, ERR_INTERNAL, "nobody maps the ids of the job");
        return result < 0 ? error_set_errno(err, result, "cannot map the ids of the job") : 0;
}

// The namespace's owner has every capability in it, until exec: ambient ones stay for mmdebstrap and its newuidmap.
static int raise_ambient(void) {
        static const int caps[] = {CAP_SETUID, CAP_SETGID};
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2];

        if (syscall(SYS_capget, &head, data) < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(caps); i++)
                data[0].inheritable |= 1U << caps[i];
        if (syscall(SYS_capset, &head, data) < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(caps); i++)
                if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, caps[i], 0, 0) < 0)
                        return -errno;
        return 0;
}

// The sockets of the host's programs are not of a network namespace: what looks up names there would look them up past the border. A link of
// /etc/resolv.conf may lead into /run; it leads to a file of ours then.
static int outer_names(void) {
        static const char text[] = "nameserver 169.254.0.1\n";
        _cleanup_free_ char *target = realpath("/etc/resolv.conf", NULL);
        _cleanup_close_ int fd = -EBADF;
        char *end;
        int r;

        if (!target)
                return -errno;
        if (mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=1m") < 0)
                return -errno;
        r = io_write_atomic(AT_FDCWD, "/tmp/resolv.conf", text, strlen(text), 0644);
        if (r < 0)
                return r;
        if (strncmp(target, "/run/", 5) == 0) {
                end = strrchr(target, '/');
                *end = 0;
                r = io_mkdir_p(AT_FDCWD, target, 0755);
                *end = '/';
                fd = r < 0 ? -1 : open(target, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
                if (r < 0 || fd < 0)
                        return r < 0 ? r : -errno;
        }
        return mount("/tmp/resolv.conf", target, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

static int outer_mounts(void) {
        // The bind needs the directory as this namespace sees it: that is what "." became when the namespace was made.
        if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
            mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
            mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") < 0 ||
            mkdir(JAIL_WORK, 0755) < 0 || mount(".", JAIL_WORK, NULL, MS_BIND, NULL) < 0 || chdir(JAIL_WORK) < 0)
                return -errno;
        return 0;
}

static void jail_limits(void) {
        static const struct {
                int what;
                rlim_t value;
        } limits[] = {{RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 4096}, {RLIMIT_NPROC, 4096}, {RLIMIT_FSIZE, (rlim_t) 40 << 30}};

        for (size_t i = 0; i < ELEMENTS(limits); i++) {
                struct rlimit now, limit = {limits[i].value, limits[i].value};
                if (getrlimit((__rlimit_resource_t) limits[i].what, &now) == 0 && now.rlim_max != RLIM_INFINITY && now.rlim_max < limit.rlim_max)
                        limit.rlim_cur = limit.rlim_max = now.rlim_max;
                (void) setrlimit((__rlimit_resource_t) limits[i].what, &limit);
        }
}

static int outer_setup(int sync_fd, const JailPlan *plan, Error *err) {
        char go;
        int r;

        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return error_set_errno(err, errno, "cannot tie the job to its parent");
        // A parent that died before the line above shows as the end of file.
        if (read(sync_fd, &go, 1) != 1)
                return error_set(err, ERR_CANCELLED, "the parent is gone");
        jail_limits();
        r = outer_mounts();
        if (r < 0)
                return error_set_errno(err, r, "cannot prepare the job's mounts");
        if (plan->network == JAIL_WIRED) {
                r = outer_names();
                if (r < 0)
                        return error_set_errno(err, r, "cannot give the job a resolv.conf of its own");
                r = wire_ask(plan->wire, err);
                if (r < 0)
                        return r;
        }
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return error_set_errno(err, errno, "cannot give up set-uid programs");
        r = raise_ambient();
        if (r < 0)
                return error_set_errno(err, r, "cannot keep the capabilities over the subids");
        return filter_load(err);
}

static void jail_child(JailMain fn, void *data, int error_fd, int r, Error *err) __attribute__((noreturn));
static void jail_child(JailMain fn, void *data, int error_fd, int r, Error *err) {
        if (r >= 0)
                r = fn(data, err);
        if (r < 0)
                report_send(error_fd, err, r);
        (void) fflush(NULL);
        _exit(r < 0 ? 1 : 0);
}

// fork() into new namespaces. `sync` is a pipe on which the child waits until its ids are mapped.
static pid_t jail_clone(unsigned long flags, int *sync, int *report) {
        int p[2], s[2];
        pid_t pid;

        if (pipe2(p, O_CLOEXEC) < 0)
                return -errno;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) < 0) {
                int e = errno;
                (void) close_fd(p[0]);
                (void) close_fd(p[1]);
                return -e;
        }
        (void) fflush(NULL);
        pid = (pid_t) syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
        if (pid < 0)
                pid = -errno;
        (void) close_fd(p[pid != 0 ? 0 : 1]);
        (void) close_fd(s[pid != 0 ? 1 : 0]);
        *sync = p[pid != 0 ? 1 : 0];
        *report = s[pid != 0 ? 0 : 1];
        return pid;
}

int jail_wait(JailChild *child, Error *err) {
        _cleanup_close_ int fd = TAKE_FD(child->error_fd);
        int status;

        while (waitpid(child->pid, &status, 0) < 0)
                if (errno != EINTR)
                        return error_set_errno(err, errno, "cannot wait for the job");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        if (WIFSIGNALED(status))
                return error_set(err, ERR_INTERNAL, "the job was killed by signal %d", WTERMSIG(status));
        return report_receive(fd, "the job", err);
}

int jail_run_outer(JailMain fn, void *data, const JailPlan *plan, Error *err) {
        unsigned long flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC;
        _cleanup_close_ int sync = -EBADF;
        _cleanup_error_ Error ignored = ERROR_NULL;
        JailChild child = {.error_fd = -EBADF};
        JailIds ids;
        int r;

        r = jail_ids(&ids, err);
        if (r < 0)
                return r;
        child.pid = jail_clone(flags | (plan->network == JAIL_HOST ? 0 : CLONE_NEWNET), &sync, &child.error_fd);
        if (child.pid < 0)
                return error_set_errno(err, child.pid, "cannot make a user namespace (is kernel.unprivileged_userns_clone 0?)");
        if (child.pid == 0) {
                Error e = ERROR_NULL;
                r = outer_setup(sync, plan, &e);
                jail_child(fn, data, child.error_fd, r, &e);
        }
        r = map_ids(child.pid, &ids, err);
        if (r >= 0 && write(sync, "g", 1) != 1)
                r = error_set_errno(err, errno, "cannot start the job");
        if (r < 0) {
                sync = close_fd(sync);
                (void) jail_wait(&child, &ignored);
                return r;
        }
        return jail_wait(&child, err);
}

int jail_start_plain(JailMain fn, void *data, JailChild *ret, Error *err) {
        _cleanup_close_ int sync = -EBADF;
        JailChild child = {.error_fd = -EBADF};
        pid_t parent = getpid();

        child.pid = jail_clone(0, &sync, &child.error_fd);
        if (child.pid < 0)
                return error_set_errno(err, child.pid, "cannot fork");
        if (child.pid == 0) {
                Error e = ERROR_NULL;
                int r = prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent ? -ESRCH : 0;
                jail_child(fn, data, child.error_fd, r, &e);
        }
        *ret = child;
        return 0;
}

static int inner_setup(int sync_fd, Error *err) {
        char go;

        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return error_set_errno(err, errno, "cannot tie the stage to its parent");
        if (read(sync_fd, &go, 1) != 1)
                return error_set(err, ERR_CANCELLED, "the parent is gone");
        if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
                return error_set_errno(err, errno, "cannot become root of the inner namespace");
        // The change of ids cleared it; should the parent have died meanwhile, so has the pid namespace.
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return error_set_errno(err, errno, "cannot tie the stage to its parent");
        (void) umask(0);
        return 0;
}

static int write_map(pid_t pid, const char *file, unsigned start, unsigned count) {
        char path[64];

        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        return io_write_filef(AT_FDCWD, path, "0 %u %u\n", start, count);
}

int jail_start_inner(JailMain fn, void *data, bool network, JailChild *ret, Error *err) {
        _cleanup_close_ int sync = -EBADF;
        JailChild child = {.error_fd = -EBADF};
        JailIds ids;
        int r;

        r = jail_ids(&ids, err);
        if (r < 0)
                return r;
        child.pid = jail_clone(CLONE_NEWUSER | CLONE_NEWNS | (network ? 0 : CLONE_NEWNET), &sync, &child.error_fd);
        if (child.pid < 0)
                return error_set_errno(err, child.pid, "cannot make the inner user namespace");
        if (child.pid == 0) {
                Error e = ERROR_NULL;
                r = inner_setup(sync, &e);
                jail_child(fn, data, child.error_fd, r, &e);
        }
        r = write_map(child.pid, "uid_map", ids.uid_start, ids.count);
        if (r >= 0)
                r = write_map(child.pid, "gid_map", ids.gid_start, ids.count);
        if (r >= 0 && write(sync, "g", 1) != 1)
                r = -errno;
        if (r < 0) {
                _cleanup_error_ Error ignored = ERROR_NULL;
                sync = close_fd(sync);
                (void) jail_wait(&child, &ignored);
                return error_set_errno(err, r, "cannot map the ids of the inner namespace");
        }
        *ret = child;
        return 0;
}
