// SPDX-License-Identifier: GPL-2.0-or-later
// Diff, what a walker gives up. The order matters: first the user namespace, in which it then is root; its root directory
// and its limits while it still may; then every capability but the one that reads directories of other users; last the filter.
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "instance/diff.h"

// Neither opening files, nor receiving a descriptor, nor anything that makes one but openat2().
static const char *const allowed[] = {
        "brk",       "clock_gettime", "close",  "exit",       "exit_group", "fcntl",   "fstat",      "getdents64", "getppid",      "lseek",
        "madvise",   "mmap",          "mprotect", "mremap",   "munmap",     "newfstatat", "openat2",  "read",       "readlinkat",   "rt_sigreturn",
        "sendmsg",   "sigreturn",     "statx",  "write",
#ifdef __SANITIZE_ADDRESS__ // what its runtime does at the end
        "getpid",    "gettid",        "sigaltstack", "rt_sigaction", "rt_sigprocmask", "futex",
#endif
};

static int filter(void) {
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        int r = ctx ? 0 : -ENOMEM;

        for (size_t i = 0; r == 0 && i < ELEMENTS(allowed); i++) {
                int number = seccomp_syscall_resolve_name(allowed[i]);
                r = number == __NR_SCMP_ERROR ? 0 : seccomp_rule_add(ctx, SCMP_ACT_ALLOW, number, 0);
                if (r == -EDOM) // not of this architecture
                        r = 0;
        }
        if (r == 0)
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        return r;
}

static int limit(void) {
        static const struct {
                __rlimit_resource_t what;
                rlim_t value;
        } limits[] = {
                {RLIMIT_CORE, 0}, {RLIMIT_NPROC, 0}, {RLIMIT_CPU, 300}, {RLIMIT_NOFILE, 512},
#ifndef __SANITIZE_ADDRESS__ // which maps terabytes
                {RLIMIT_AS, 256u << 20},
#endif
        };

        for (size_t i = 0; i < ELEMENTS(limits); i++) {
                struct rlimit value = {limits[i].value, limits[i].value};
                if (setrlimit(limits[i].what, &value) < 0)
                        return -errno;
        }
        return 0;
}

static int keep_one_capability(void) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2] = {{.effective = 1u << CAP_DAC_READ_SEARCH, .permitted = 1u << CAP_DAC_READ_SEARCH}};

        for (int cap = 0; cap <= 63; cap++)
                if (prctl(PR_CAPBSET_DROP, cap) < 0 && errno != EINVAL)
                        return -errno;
        return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int diff_confine(const DiffWalk *walk, int userns, Error *err) {
        int r;

        if (setns(userns, CLONE_NEWUSER) < 0 || setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
                return error_set_errno(err, errno, "cannot enter the instance's user namespace");
        if (fchdir(walk->upper) < 0 || chroot(".") < 0)
                return error_set_errno(err, errno, "cannot change the root directory");
        r = limit();
        if (r < 0)
                return error_set_errno(err, r, "cannot set limits");
        // The change of ids cleared the first one.
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return error_set_errno(err, errno, "cannot tie the walker to its keeper");
        r = keep_one_capability();
        if (r < 0)
                return error_set_errno(err, r, "cannot give up capabilities");
        r = filter();
        return r < 0 ? error_set_errno(err, r, "cannot load the syscall filter") : 0;
}
