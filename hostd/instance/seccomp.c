// SPDX-License-Identifier: GPL-2.0-or-later
// Seccomp: a deny list, not an allow list: nested bwrap, podman and systemd need nearly everything, and user namespace rights stop
// the rest. Refused is what reaches the kernel beyond namespaces and has had faults worth a second lock. ENOSYS where
// programs then fall back, EPERM where they expect a refusal. All architectures of the machine are covered, so x32 and
// 32-bit entry points are no way around.
#include "instance/seccomp.h"

#include <seccomp.h>
#include <string.h>
#include <sys/mount.h>

#include "base/io.h"

static const struct {
        const char *name;
        int errnum;
} denied[] = {
        {"kexec_load", ENOSYS},    {"kexec_file_load", ENOSYS}, {"open_by_handle_at", ENOSYS}, {"init_module", ENOSYS},
        {"finit_module", ENOSYS},  {"delete_module", ENOSYS},   {"bpf", EPERM},                {"perf_event_open", EPERM},
        {"userfaultfd", EPERM},    {"swapon", EPERM},           {"swapoff", EPERM},            {"acct", ENOSYS},
        {"lookup_dcookie", ENOSYS}, {"nfsservctl", ENOSYS},     {"uselib", ENOSYS},           {"_sysctl", ENOSYS},
};

// A subvolume made inside lies outside the instance's qgroup, and any user may make one: the disk limit would end there.
// BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE, SNAP_CREATE_V2, SUBVOL_CREATE_V2 (linux/btrfs.h); programs fall back to a directory.
static const uint32_t denied_ioctls[] = {0x50009401, 0x5000940e, 0x50009417, 0x50009418};

int seccomp_write_profile(int dirfd, const char *path, Error *err) {
        char text[2048] = "2\ndenylist\nreject_force_umount\n[all]\n";
        _cleanup_close_ int fd = -EBADF;

        for (size_t i = 0; i < ELEMENTS(denied); i++) {
                size_t used = strlen(text);
                (void) snprintf(text + used, sizeof(text) - used, "%s errno %d\n", denied[i].name, denied[i].errnum);
        }
        for (size_t i = 0; i < ELEMENTS(denied_ioctls); i++) {
                size_t used = strlen(text);
                // Masked: the kernel looks at the low 32 bits of the request only.
                (void) snprintf(text + used, sizeof(text) - used, "ioctl errno %d [1,0x%x,SCMP_CMP_MASKED_EQ,0xffffffff]\n", ENOTTY, denied_ioctls[i]);
        }
        // Read once, a moment from now, by our own child: nothing to make durable.
        fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r = fd < 0 ? -errno : io_write_all(fd, text, strlen(text));
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
                r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOTTY), SCMP_SYS(ioctl), 1,
                                     SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, denied_ioctls[i]));
                if (r < 0)
                        return r;
        }
        return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(umount2), 1,
                                SCMP_A1(SCMP_CMP_MASKED_EQ, MNT_FORCE, MNT_FORCE));
}

int seccomp_load_filter(void) {
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
        int r;

        if (!ctx)
                return -ENOMEM;
        // no_new_privs would break sudo and newuidmap in everything below.
        r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
        if (r == 0)
                r = filter_fill(ctx);
        if (r == 0)
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        return r;
}
