// SPDX-License-Identifier: GPL-2.0-or-later
// Seccomp: a deny list, not an allow list: nested bwrap, podman and systemd need nearly everything, and user namespace rights stop
// the rest. Refused is what reaches the kernel beyond namespaces and has had faults worth a second lock. ENOSYS where
// programs then fall back, EPERM where they expect a refusal. All architectures of the machine are covered, so x32 and
// 32-bit entry points are no way around.
#include "instance/seccomp.h"

#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include "base/io.h"

static const struct {
        const char *name;
        int errnum;
} denied[] = {
        {"kexec_load", ENOSYS},    {"kexec_file_load", ENOSYS}, {"open_by_handle_at", ENOSYS}, {"init_module", ENOSYS},
        {"finit_module", ENOSYS},  {"delete_module", ENOSYS},   {"bpf", EPERM},                {"perf_event_open", EPERM},
        {"userfaultfd", EPERM},    {"swapon", EPERM},           {"swapoff", EPERM},            {"acct", ENOSYS},
        {"lookup_dcookie", ENOSYS}, {"nfsservctl", ENOSYS},     {"uselib", ENOSYS},           {"_sysctl", ENOSYS},
        // A second way to most system calls, past this filter, and the subject of many faults. All who use it can do without.
        {"io_uring_setup", ENOSYS}, {"io_uring_enter", ENOSYS}, {"io_uring_register", ENOSYS},
        // For a key that nobody has the kernel runs the host's /sbin/request-key, as the host's root, with the guest's words.
        {"request_key", EPERM},
        // Only a setting of the host's (kernel.dmesg_restrict) keeps its log from everybody otherwise.
        {"syslog", EPERM},
};

static const struct {
        uint32_t request;
        int errnum;
} denied_ioctls[] = {
        // A subvolume made inside lies outside the instance's qgroup, and any user may make one: the disk limit would end there.
        // BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE, SNAP_CREATE_V2, SUBVOL_CREATE_V2 (linux/btrfs.h); programs fall back to a directory.
        {0x50009401, ENOTTY}, {0x5000940e, ENOTTY}, {0x50009417, ENOTTY}, {0x50009418, ENOTTY},
        // TIOCSETD: any user with a pty could have line disciplines loaded, old drivers for serial lines.
        {0x5423, EPERM},
        // TIOCSTI: what runs in a sandbox on an agent's terminal would type into the agent's shell.
        {0x5412, EPERM},
};

// Sockets of five families are all that an instance has a use for. Most others know no network namespaces (vsock reaches the machine
// below the host), and asking for one has its module loaded. The 32-bit socketcall(2) of i386 hides its arguments from any filter:
// for it there is the AppArmor profile.
static const int allowed_families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};
#define FAMILY_LAST AF_PACKET
static const char *const family_calls[] = {"socket", "socketpair"};

// Kinds of netlink that are for the machine alone, and whose modules any socket would load: NETLINK_ISCSI, SCSITRANSPORT, ECRYPTFS,
// RDMA, CRYPTO (linux/netlink.h).
static const int denied_netlink[] = {8, 18, 19, 20, 21};

#ifdef __x86_64__
#define FAMILY_SECTIONS "x86_64", "x32"
#else
#define FAMILY_SECTIONS "all"
#endif

static bool family_is_allowed(int family) {
        for (size_t i = 0; i < ELEMENTS(allowed_families); i++)
                if (allowed_families[i] == family)
                        return true;
        return false;
}

static void write_families(FILE *f) {
        static const char *const sections[] = {FAMILY_SECTIONS};

        for (size_t s = 0; s < ELEMENTS(sections); s++) {
                fprintf(f, "[%s]\n", sections[s]);
                for (size_t c = 0; c < ELEMENTS(family_calls); c++) {
                        // Masked where equality is asked for: the kernel looks at the low 32 bits only.
                        for (int family = 0; family <= FAMILY_LAST; family++)
                                if (!family_is_allowed(family))
                                        fprintf(f, "%s errno %d [0,%d,SCMP_CMP_MASKED_EQ,0xffffffff]\n", family_calls[c], EAFNOSUPPORT, family);
                        fprintf(f, "%s errno %d [0,%d,SCMP_CMP_GT]\n", family_calls[c], EAFNOSUPPORT, FAMILY_LAST);
                        for (size_t i = 0; i < ELEMENTS(denied_netlink); i++)
                                fprintf(f, "%s errno %d [0,%d,SCMP_CMP_MASKED_EQ,0xffffffff] [2,%d,SCMP_CMP_MASKED_EQ,0xffffffff]\n", family_calls[c],
                                        EPROTONOSUPPORT, AF_NETLINK, denied_netlink[i]);
                }
        }
}

int seccomp_write_profile(int dirfd, const char *path, Error *err) {
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return error_set_errno(err, ENOMEM, "writing the seccomp profile");
        fprintf(f, "2\ndenylist\nreject_force_umount\n[all]\n");
        for (size_t i = 0; i < ELEMENTS(denied); i++)
                fprintf(f, "%s errno %d\n", denied[i].name, denied[i].errnum);
        for (size_t i = 0; i < ELEMENTS(denied_ioctls); i++)
                fprintf(f, "ioctl errno %d [1,0x%x,SCMP_CMP_MASKED_EQ,0xffffffff]\n", denied_ioctls[i].errnum, denied_ioctls[i].request);
        write_families(f);
        if (fclose(f) != 0)
                return error_set_errno(err, ENOMEM, "writing the seccomp profile");
        // Read once, a moment from now, by our own child: nothing to make durable.
        fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r = fd < 0 ? -errno : io_write_all(fd, text, size);
        return r < 0 ? error_set_errno(err, r, "writing the seccomp profile") : 0;
}

static int filter_fill(scmp_filter_ctx ctx) {
        int r;

#ifdef __x86_64__
        // -EEXIST: it is the native one already.
        static const uint32_t archs[] = {SCMP_ARCH_X86, SCMP_ARCH_X32};
        for (size_t i = 0; i < ELEMENTS(archs); i++) {
                r = seccomp_arch_add(ctx, archs[i]);
                if (r < 0 && r != -EEXIST)
                        return r;
        }
#endif
        for (size_t i = 0; i < ELEMENTS(denied); i++) {
                int number = seccomp_syscall_resolve_name(denied[i].name);
                if (number == __NR_SCMP_ERROR)
                        continue; // an older libseccomp does not know it, as liblxc's parser would skip it
                r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((uint32_t) denied[i].errnum), number, 0);
                if (r < 0 && r != -EDOM)
                        return r;
        }
        for (size_t i = 0; i < ELEMENTS(denied_ioctls); i++) {
                r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((uint32_t) denied_ioctls[i].errnum), SCMP_SYS(ioctl), 1,
                                     SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, denied_ioctls[i].request));
                if (r < 0)
                        return r;
        }
        return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(umount2), 1,
                                SCMP_A1(SCMP_CMP_MASKED_EQ, MNT_FORCE, MNT_FORCE));
}

// A filter of its own, for the entries whose arguments can be seen: in the common one libseccomp would turn these rules into one
// that refuses every socket of a 32-bit program.
static int filter_fill_families(scmp_filter_ctx ctx) {
        int r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW);

#ifdef __x86_64__
        if (r == 0)
                r = seccomp_arch_add(ctx, SCMP_ARCH_X32);
#endif
        for (size_t c = 0; r == 0 && c < ELEMENTS(family_calls); c++) {
                int number = seccomp_syscall_resolve_name(family_calls[c]);
                for (int family = 0; r == 0 && family <= FAMILY_LAST; family++)
                        if (!family_is_allowed(family))
                                r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), number, 1,
                                                     SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffff, (scmp_datum_t) family));
                if (r == 0)
                        r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), number, 1, SCMP_A0(SCMP_CMP_GT, FAMILY_LAST));
                for (size_t i = 0; r == 0 && i < ELEMENTS(denied_netlink); i++)
                        r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), number, 2, SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffff, AF_NETLINK),
                                             SCMP_A2(SCMP_CMP_MASKED_EQ, 0xffffffff, (scmp_datum_t) denied_netlink[i]));
        }
        return r;
}

int seccomp_load_filter(void) {
        static int (*const fill[])(scmp_filter_ctx) = {filter_fill, filter_fill_families};
        int r = 0;

        for (size_t i = 0; r == 0 && i < ELEMENTS(fill); i++) {
                scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
                if (!ctx)
                        return -ENOMEM;
                // no_new_privs would break sudo and newuidmap in everything below.
                r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
                if (r == 0)
                        r = fill[i](ctx);
                if (r == 0)
                        r = seccomp_load(ctx);
                seccomp_release(ctx);
        }
        return r;
}
