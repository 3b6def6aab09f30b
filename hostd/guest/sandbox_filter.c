// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, filter: on top of the instance's own (instance/seccomp.c), which refuses what reaches the kernel beyond namespaces. Here is what
// untrusted work has no use for: mounts, namespaces and keys, whose code has had more faults than any other. Other architectures
// than the machine's own are no way around: they have no calls at all.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "guest/sandbox.h"

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#define FILTER_X32 0x40000000u
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call filter for this architecture"
#endif

#define FILTER_NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

static const struct {
        int number;
        bool user; // root of its own user namespace may, by its capabilities
} filter_denied[] = {
        {SYS_mount, false},        {SYS_umount2, false},       {SYS_pivot_root, false},    {SYS_setns, false},       {SYS_chroot, true},
        {SYS_open_tree, false},    {SYS_move_mount, false},    {SYS_fsopen, false},        {SYS_fsconfig, false},    {SYS_fsmount, false},
        {SYS_fspick, false},       {SYS_mount_setattr, false}, {SYS_quotactl, false},      {SYS_keyctl, false},      {SYS_add_key, false},
        {SYS_request_key, false},  {SYS_bpf, false},           {SYS_perf_event_open, false}, {SYS_userfaultfd, false}, {SYS_io_uring_setup, false},
        {SYS_swapon, false},       {SYS_swapoff, false},       {SYS_reboot, false},        {SYS_acct, false},        {SYS_syslog, false},
        {SYS_settimeofday, false}, {SYS_clock_settime, false}, {SYS_adjtimex, false},      {SYS_vhangup, false},     {SYS_name_to_handle_at, false},
        {SYS_kexec_load, false},   {SYS_init_module, false},   {SYS_finit_module, false},  {SYS_delete_module, false}, {SYS_open_by_handle_at, false},
};

typedef struct Filter {
        struct sock_filter code[SANDBOX_FILTER_MAX];
        size_t n;
} Filter;

static void filter_add(Filter *filter, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf) {
        filter->code[filter->n++] = (struct sock_filter) {code, jt, jf, k};
}

// The call in the accumulator, if it is this one, ends with that errno.
static void filter_deny(Filter *filter, int number, int errnum) {
        filter_add(filter, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t) number, 0, 1);
        filter_add(filter, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t) errnum, 0, 0);
}

static void filter_deny_namespaces(Filter *filter, int number, size_t argument) {
        filter_add(filter, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t) number, 0, 4);
        filter_add(filter, BPF_LD | BPF_W | BPF_ABS, (uint32_t) (offsetof(struct seccomp_data, args) + 8 * argument), 0, 0); // the low half: all flags are there
        filter_add(filter, BPF_JMP | BPF_JSET | BPF_K, FILTER_NAMESPACES, 0, 1);
        filter_add(filter, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
        filter_add(filter, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
}

static void filter_build(Filter *filter, bool root) {
        filter_add(filter, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
        filter_add(filter, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0);
        filter_add(filter, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS, 0, 0);
        filter_add(filter, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
#ifdef FILTER_X32
        filter_add(filter, BPF_JMP | BPF_JGE | BPF_K, FILTER_X32, 0, 1);
        filter_add(filter, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS, 0, 0);
#endif
        for (size_t i = 0; i < ELEMENTS(filter_denied); i++)
                if (!root || !filter_denied[i].user)
                        filter_deny(filter, filter_denied[i].number, EPERM);
        filter_deny(filter, SYS_clone3, ENOSYS); // its flags are out of sight; all who use it fall back to clone
        filter_deny_namespaces(filter, SYS_clone, 0);
        filter_deny_namespaces(filter, SYS_unshare, 0);
        filter_add(filter, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

_Static_assert(ELEMENTS(filter_denied) * 2 + 32 < SANDBOX_FILTER_MAX, "the filter fits");

int sandbox_filter(bool root, int *ret_fd) {
        Filter filter = {.n = 0};
        int rd, wr, r;

        filter_build(&filter, root);
        r = io_pipe((int) sizeof(filter.code), &rd, &wr);
        if (r < 0)
                return r;
        r = io_write_all(wr, filter.code, filter.n * sizeof(filter.code[0]));
        (void) close(wr);
        if (r < 0) {
                (void) close(rd);
                return r;
        }
        *ret_fd = rd;
        return 0;
}
