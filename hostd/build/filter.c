// SPDX-License-Identifier: GPL-2.0-or-later
// Filter: see filter.h. A deny list, since maintainer scripts may run anything: what reaches the kernel beyond namespaces, looks into other
// processes, or has had faults worth a second lock. EPERM, which scripts take for a missing right, as in a container.
#include "build/filter.h"

#include <seccomp.h>

static const char *const denied[] = {
        "acct",           "add_key",       "adjtimex",       "bpf",              "clock_adjtime", "clock_settime", "delete_module",    "finit_module",
        "init_module",    "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm",       "iopl",          "kcmp",             "kexec_file_load",
        "kexec_load",     "keyctl",        "lookup_dcookie", "nfsservctl",       "open_by_handle_at", "perf_event_open", "pidfd_getfd", "process_vm_readv",
        "process_vm_writev", "ptrace",     "quotactl",       "quotactl_fd",      "reboot",        "request_key",   "settimeofday",     "swapoff",
        "swapon",         "syslog",        "uselib",         "userfaultfd",      "vhangup",
};

int filter_load(Error *err) {
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
        int r = ctx ? 0 : -ENOMEM;

        // Entry points of other architectures end in the default of libseccomp, which kills: packages are of this one.
        for (size_t i = 0; r == 0 && i < ELEMENTS(denied); i++) {
                int number = seccomp_syscall_resolve_name(denied[i]);
                r = number == __NR_SCMP_ERROR ? 0 : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number, 0);
                if (r == -EDOM) // not of this architecture
                        r = 0;
        }
        if (r == 0)
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        return r < 0 ? error_set_errno(err, r, "cannot load the syscall filter") : 0;
}
