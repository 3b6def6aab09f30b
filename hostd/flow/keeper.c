// SPDX-License-Identifier: GPL-2.0-or-later
// Keeper: see keeper.h. It has one descriptor, and its syscall filter has three calls: to send on that, to sleep, to end.
#include "flow/keeper.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "flow/evidence.h"

#define KEEPER_FD 3

static int keep_one_capability(void) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2] = {{.effective = 1u << CAP_NET_ADMIN, .permitted = 1u << CAP_NET_ADMIN}};

        // Without an ambient set nothing is handed on; a process without CAP_NET_ADMIN cannot ask, and ends here.
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &head, data) < 0)
                return -errno;
        return 0;
}

static int keep_one_descriptor(int fd) {
        int high = fcntl(fd, F_DUPFD_CLOEXEC, KEEPER_FD + 1);

        if (high < 0 || dup3(high, KEEPER_FD, O_CLOEXEC) < 0 || syscall(SYS_close_range, KEEPER_FD + 1, ~0u, 0) < 0 || syscall(SYS_close_range, 0, KEEPER_FD - 1, 0) < 0)
                return -errno;
        return 0;
}

static int filter(void) {
        static const int calls[] = {SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep), SCMP_SYS(restart_syscall), SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn)};
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
        int r = ctx ? seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(sendto), 1, SCMP_A0(SCMP_CMP_EQ, KEEPER_FD)) : -ENOMEM;

        for (size_t i = 0; r == 0 && i < ELEMENTS(calls); i++)
                r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
        if (r == 0)
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        return r;
}

static int keeper_confine(int fd, pid_t parent) {
        const struct rlimit none = {0, 0};
        int r;

        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_NPROC, &none) < 0 || getppid() != parent)
                return -ECHILD;
        r = keep_one_descriptor(fd);
        if (r >= 0)
                r = keep_one_capability();
        return r < 0 ? r : filter();
}

static void keeper(int fd, usec_t interval, pid_t parent) {
        const struct timespec pause = {.tv_sec = (time_t) (interval / USEC_PER_SEC), .tv_nsec = (long) (interval % USEC_PER_SEC * 1000)};

        if (keeper_confine(fd, parent) < 0)
                _exit(1);
        for (;;) {
                (void) nanosleep(&pause, NULL);
                (void) evidence_dump(KEEPER_FD); // busy with the last one, or no memory: the next minute will do
        }
}

int keeper_start(int fd, usec_t interval, Error *err) {
        pid_t parent = getpid(), pid = fork();

        if (pid < 0)
                return error_set_errno(err, errno, "cannot start the keeper");
        if (pid == 0) {
                keeper(fd, interval, parent);
                _exit(1);
        }
        return 0;
}
