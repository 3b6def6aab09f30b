// SPDX-License-Identifier: GPL-2.0-or-later
// Confine: see confine.h.
#include "border/confine.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static const char *const calls[] = {
        // memory; mmap and mprotect are below
        "brk", "madvise", "mremap", "munmap", "membarrier", "memfd_create",
        // bytes
        "read", "readv", "pread64", "write", "writev", "pwrite64", "splice", "tee", "pipe2", "pipe", "lseek", "fstat", "newfstatat", "statx", "close",
        "close_range", "dup", "dup2", "dup3", "fcntl",
        // sockets; socket and socketpair are below
        "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "setsockopt", "listen", "recvfrom", "recvmsg", "recvmmsg",
        "sendto", "sendmsg", "sendmmsg", "shutdown",
        // the loop
        "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "eventfd2", "signalfd4",
        "timerfd_create", "timerfd_settime", "timerfd_gettime", "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time",
        // signals and the end
        "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "sigaltstack", "tgkill", "exit", "exit_group", "restart_syscall",
        // what it is
        "getpid", "gettid", "getppid", "getuid", "geteuid", "getgid", "getegid", "uname", "sysinfo", "getrandom", "prctl", "prlimit64", "getrlimit", "getrusage",
        "sched_yield", "sched_getaffinity", "futex", "set_robust_list", "rseq", "arch_prctl", "set_tid_address", "umask",
};

static const char *const file_calls[] = {
        "openat", "open", "mkdirat", "mkdir", "renameat", "renameat2", "rename", "unlinkat", "unlink", "fsync", "fdatasync", "ftruncate", "fallocate", "getdents64",
        "fchmod", "flock", "faccessat", "faccessat2", "access", "stat", "lstat", "fstatfs", "statfs", "utimensat",
};

static const char *const given_calls[] = {"pwritev", "ftruncate"};

static int allow(scmp_filter_ctx ctx, const char *const *names, size_t n) {
        for (size_t i = 0; i < n; i++) {
                int number = seccomp_syscall_resolve_name(names[i]), r;
                if (number == __NR_SCMP_ERROR)
                        continue; // an older libseccomp does not know it
                r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, number, 0);
                if (r < 0 && r != -EDOM) // not of this architecture
                        return r;
        }
        return 0;
}

static int allow_family(scmp_filter_ctx ctx, int family) {
        return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t) family));
}

static int allow_sockets(scmp_filter_ctx ctx, bool netlink) {
        int r = allow_family(ctx, AF_UNIX);

        if (r == 0)
                r = allow_family(ctx, AF_INET);
        if (r == 0)
                r = allow_family(ctx, AF_INET6);
        if (r == 0 && netlink)
                r = allow_family(ctx, AF_NETLINK);
        if (r == 0)
                r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1, SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
        return r;
}

// No memory that becomes code: what a parser's fault writes is never run, and no library is loaded any more.
static int allow_memory(scmp_filter_ctx ctx) {
        static const int protected[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
        int r = 0;

        for (size_t i = 0; r == 0 && i < ELEMENTS(protected); i++)
                r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, protected[i], 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
        return r;
}

static int allow_reading(scmp_filter_ctx ctx) {
        return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                                SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC | __O_TMPFILE, O_RDONLY));
}

// SIOCGIFINDEX, SIOCGIFNAME, SIOCOUTQ, FIONREAD.
static int allow_ioctls(scmp_filter_ctx ctx) {
        static const uint32_t requests[] = {0x8933, 0x8910, 0x5411, 0x541b};
        int r = 0;

        for (size_t i = 0; r == 0 && i < ELEMENTS(requests); i++)
                r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, requests[i]));
        return r;
}

static int load_filter(const BorderConfine *confine) {
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
        int r = ctx ? 0 : -ENOMEM;

        if (r == 0)
                r = allow(ctx, calls, ELEMENTS(calls));
        if (r == 0 && confine->write_files)
                r = allow(ctx, file_calls, ELEMENTS(file_calls));
        if (r == 0 && confine->given)
                r = allow(ctx, given_calls, ELEMENTS(given_calls));
        if (r == 0 && !confine->write_files && !confine->given)
                r = allow_reading(ctx);
        if (r == 0 && !confine->given)
                r = allow_sockets(ctx, confine->netlink);
        if (r == 0)
                r = allow_memory(ctx);
        if (r == 0)
                r = allow_ioctls(ctx);
        if (r == 0)
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        return r;
}

// Those that it was started with for what it did before.
static int drop_capabilities(void) {
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {0};

        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &header, none) < 0)
                return -errno;
        return 0;
}

static int limit(int resource, uint64_t value) {
        struct rlimit now, want;

        if (getrlimit(resource, &now) < 0)
                return -errno;
        want.rlim_max = MIN2(now.rlim_max, (rlim_t) value); // raising needs a right that nobody here has
        want.rlim_cur = want.rlim_max;
        return setrlimit(resource, &want) < 0 ? -errno : 0;
}

int border_confine(const BorderConfine *confine, Error *err) {
        int r = 0;

        if (geteuid() == 0 && !confine->allow_root)
                return error_set(err, ERR_DENIED, "this program reads what strangers send: it does not run as root");
        (void) umask(0077);
        if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                r = -errno;
        if (r >= 0)
                r = drop_capabilities();
        if (r >= 0)
                r = limit(RLIMIT_CORE, 0);
        if (r >= 0 && confine->files_max)
                r = limit(RLIMIT_NOFILE, confine->files_max);
        if (r >= 0 && confine->memory_bytes)
                r = limit(RLIMIT_DATA, confine->memory_bytes);
        if (r >= 0 && confine->file_bytes)
                r = limit(RLIMIT_FSIZE, confine->file_bytes);
        if (r >= 0)
                r = limit(RLIMIT_NPROC, 0); // of threads and processes to come; the filter has no call that makes one either
        if (r >= 0)
                r = load_filter(confine);
        return r < 0 ? error_set_errno(err, r, "cannot confine this process") : 0;
}
