// SPDX-License-Identifier: GPL-2.0-or-later
// Attempts by single system calls that reach the whole kernel, by the native, the 32-bit and the x32 entry.
#include "escape.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/io.h>
#include <sys/klog.h>
#include <sys/quota.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define PROJECT 2 // PRJQUOTA

static const char module_parameters[] = "";

static int call_bpf(const char *arg) {
        static const uint64_t program[] = {0xb7, 0x95}; // r0 = 0; exit
        struct {
                uint32_t type, count;
                uint64_t program, license;
                unsigned char rest[96];
        } load = {.type = 1, .count = 2, .program = (uintptr_t) program, .license = (uintptr_t) "GPL"};
        struct {
                uint32_t type, key, value, entries;
                unsigned char rest[96];
        } map = {.type = 2, .key = 4, .value = 4, .entries = 1};
        Doors doors = {-ENOTSUP};

        door(&doors, "map", syscall(SYS_bpf, 0, &map, sizeof(map)));
        door(&doors, "load", syscall(SYS_bpf, 5, &load, sizeof(load)));
        return doors.result;
}

static int call_perf(const char *arg) {
        struct {
                uint32_t type, size;
                uint64_t config, rest[14];
        } attr = {.type = 1, .size = sizeof(attr)}; // software, cpu clock
        Doors doors = {-ENOTSUP};

        door(&doors, "own", syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
        door(&doors, "all", syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0));
        return doors.result;
}

static int call_io_uring(const char *arg) {
        unsigned char parameters[120] = {0};

        return result(syscall(SYS_io_uring_setup, 8, parameters));
}

static int call_userfaultfd(const char *arg) { return result(syscall(SYS_userfaultfd, 1)); }

static int call_kexec(const char *arg) {
        Doors doors = {-ENOTSUP};

        door(&doors, "load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
        door(&doors, "file", syscall(SYS_kexec_file_load, -1, -1, 1, "", 4));
        return doors.result;
}

static int call_modules(const char *arg) {
        int fd = open("/proc/self/exe", O_RDONLY);
        Doors doors = {-ENOTSUP};

        door(&doors, "init", syscall(SYS_init_module, module_parameters, 1, module_parameters));
        door(&doors, "finit", syscall(SYS_finit_module, fd, module_parameters, 0));
        door(&doors, "delete", syscall(SYS_delete_module, "hostd_escape", O_NONBLOCK));
        return doors.result;
}

static int call_swap(const char *arg) {
        Doors doors = {-ENOTSUP};

        door(&doors, "on", swapon(arg, 0));
        door(&doors, "off", swapoff(arg));
        return doors.result;
}

static int call_acct(const char *arg) { return result(acct(arg)); }

static int call_quota(const char *arg) {
        struct dqblk limits = {.dqb_bhardlimit = 1, .dqb_valid = QIF_ALL};
        int fd = open(arg, O_RDONLY);
        Doors doors = {-ENOTSUP};

        door(&doors, "set", syscall(SYS_quotactl, QCMD(Q_SETQUOTA, PROJECT), "/dev/vda", 0, &limits));
        door(&doors, "off", syscall(SYS_quotactl, QCMD(Q_QUOTAOFF, PROJECT), "/dev/vda", 0, NULL));
        door(&doors, "fd-set", syscall(SYS_quotactl_fd, fd, QCMD(Q_SETQUOTA, PROJECT), 0, &limits));
        door(&doors, "fd-off", syscall(SYS_quotactl_fd, fd, QCMD(0x5802, PROJECT), 0, &(unsigned) {3})); // Q_XQUOTAOFF
        return doors.result;
}

static int call_time(const char *arg) {
        struct timeval day = {.tv_sec = 86400};
        struct timespec clock = {.tv_sec = 86400};
        struct timex change = {.modes = ADJ_FREQUENCY | ADJ_OFFSET, .freq = 1 << 20, .offset = 1000};
        Doors doors = {-ENOTSUP};

        door(&doors, "settimeofday", settimeofday(&day, NULL));
        door(&doors, "clock_settime", clock_settime(CLOCK_REALTIME, &clock));
        door(&doors, "adjtimex", adjtimex(&change));
        door(&doors, "clock_adjtime", clock_adjtime(CLOCK_REALTIME, &change));
        return doors.result;
}

// Allowed, and of its own only: the offsets of a time namespace.
static int time_namespace(const char *arg) {
        int r = geteuid() == 0 ? result(unshare(CLONE_NEWTIME)) : own_userns(CLONE_NEWTIME), fd;

        if (r < 0)
                return r;
        fd = open("/proc/self/timens_offsets", O_WRONLY);
        return fd < 0 ? -errno : result(write(fd, "monotonic 86400 0\nboottime 86400 0\n", 35));
}

static int call_ports(const char *arg) {
        Doors doors = {-ENOTSUP};

        door(&doors, "iopl", iopl(3));
        door(&doors, "ioperm", ioperm(0x80, 1, 1));
        return doors.result;
}

static int call_syslog(const char *arg) {
        static char text[4096];
        Doors doors = {-ENOTSUP};

        door(&doors, "read", klogctl(3, text, sizeof(text)));
        door(&doors, "level", klogctl(8, NULL, 1));
        door(&doors, "clear", klogctl(5, NULL, 0));
        return doors.result;
}

// Only what would not end the instance itself.
static int call_reboot(const char *arg) {
        Doors doors = {-ENOTSUP};

        door(&doors, "kexec", reboot(0x45584543));
        door(&doors, "suspend", reboot((int) 0xd000fce2));
        return doors.result;
}

// Below the root of its own namespaces too: a box is one, not the host's.
static int call_names(const char *arg) {
        int r = geteuid() == 0 ? 0 : own_userns(CLONE_NEWUTS);
        char old[65], domain[65];

        if (r < 0 || gethostname(old, sizeof(old)) < 0 || getdomainname(domain, sizeof(domain)) < 0)
                return r < 0 ? r : -errno;
        r = sethostname("hostd-escape", 12) < 0 || setdomainname("hostd-escape", 12) < 0 ? -errno : 0;
        (void) !sethostname(old, strlen(old));
        (void) !setdomainname(domain, strlen(domain));
        return r;
}

static int call_fanotify(const char *arg) {
        int all = (int) syscall(SYS_fanotify_init, FAN_CLASS_CONTENT, O_RDONLY);
        Doors doors = {-ENOTSUP};

        door(&doors, "content", all);
        int fd = (int) syscall(SYS_fanotify_init, FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY);
        if (fd < 0)
                return doors.result;
        door(&doors, "filesystem", syscall(SYS_fanotify_mark, fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, AT_FDCWD, arg));
        door(&doors, "mount", syscall(SYS_fanotify_mark, fd, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, AT_FDCWD, arg));
        return doors.result;
}

static int call_priority(const char *arg) {
        struct sched_param param = {.sched_priority = 50};
        Doors doors = {-ENOTSUP};

        door(&doors, "fifo", sched_setscheduler(0, SCHED_FIFO, &param));
        door(&doors, "nice", setpriority(PRIO_PROCESS, 0, -20));
        door(&doors, "io", syscall(SYS_ioprio_set, 1, 0, 1 << 13)); // real-time class
        return doors.result;
}

static int call_hangup(const char *arg) { return result(syscall(SYS_vhangup)); }

// --- keys

static long keyctl(int operation, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
        return syscall(SYS_keyctl, operation, a, b, c, d);
}

// ARG: SERIAL of a key of the host's, whose description is hostd-canary, or 0. The quota of our user is filled first: what cannot be
// made anew must not be inherited instead.
static int keys(const char *arg) {
        static const long rings[] = {KEY_SPEC_THREAD_KEYRING, KEY_SPEC_PROCESS_KEYRING, KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING, KEY_SPEC_USER_SESSION_KEYRING};
        unsigned long serial = strtoul(arg, NULL, 10);
        char text[256];
        Doors doors = {-ENOTSUP};

        for (size_t i = 0; i < ELEMENTS(rings); i++) {
                long found = keyctl(KEYCTL_SEARCH, (unsigned long) rings[i], (unsigned long) "user", (unsigned long) "hostd-canary", 0);
                door(&doors, "search", found);
                if (found > 0 && keyctl(KEYCTL_READ, (unsigned long) found, (unsigned long) text, sizeof(text) - 1, 0) > 0)
                        say("READ a key of the host");
        }
        if (!serial)
                return doors.result;
        door(&doors, "read", keyctl(KEYCTL_READ, serial, (unsigned long) text, sizeof(text), 0));
        door(&doors, "describe", keyctl(KEYCTL_DESCRIBE, serial, (unsigned long) text, sizeof(text), 0));
        door(&doors, "link", keyctl(KEYCTL_LINK, serial, (unsigned long) KEY_SPEC_PROCESS_KEYRING, 0, 0));
        door(&doors, "update", keyctl(KEYCTL_UPDATE, serial, (unsigned long) "x", 1, 0));
        door(&doors, "setperm", keyctl(KEYCTL_SETPERM, serial, 0x3f3f3f3f, 0, 0));
        door(&doors, "chown", keyctl(KEYCTL_CHOWN, serial, 0, 0, 0));
        door(&doors, "revoke", keyctl(KEYCTL_REVOKE, serial, 0, 0, 0));
        door(&doors, "invalidate", keyctl(KEYCTL_INVALIDATE, serial, 0, 0, 0));
        return doors.result;
}

// Stays filled for as long as the instance runs: the keys hang on the user's keyring.
static int fill_keys(const char *arg) {
        char name[32];
        int n = 0;

        for (; n < 100000; n++) {
                snprintf(name, sizeof(name), "fill-%d", n);
                if (syscall(SYS_add_key, "user", name, "0123456789abcdef", 16L, (long) KEY_SPEC_USER_KEYRING) < 0)
                        break;
        }
        say("%d keys until %s", n, strerrorname_np(errno));
        return n < 100000 ? 0 : -E2BIG;
}

static int empty_keys(const char *arg) {
        return result(keyctl(KEYCTL_CLEAR, (unsigned long) KEY_SPEC_USER_KEYRING, 0, 0, 0));
}

// A key that nobody has makes the kernel start /sbin/request-key: of the host, as its root, with arguments of ours.
static int request_key(const char *arg) {
        Doors doors = {-ENOTSUP};

        door(&doors, "user", syscall(SYS_request_key, "user", "hostd-escape", "hostd-escape", (long) KEY_SPEC_PROCESS_KEYRING));
        door(&doors, "keyring", syscall(SYS_request_key, "keyring", "hostd-escape", "hostd-escape", 0L));
        door(&doors, "dns", syscall(SYS_request_key, "dns_resolver", "hostd-escape", "", 0L));
        door(&doors, "cifs", syscall(SYS_request_key, "cifs.spnego", "ver=0x2;host=x", "", 0L));
        return doors.result;
}

// --- the other entries

#ifdef __x86_64__
static long int80(long number, long a, long b, long c, long d) {
        long r;

        __asm__ volatile("push %%rbx; mov %[b], %%rbx; int $0x80; pop %%rbx"
                         : "=a"(r)
                         : "a"(number), [b] "r"(a), "c"(b), "d"(c), "S"(d)
                         : "memory", "r8", "r9", "r10", "r11");
        if (r < 0 && r > -4096) {
                errno = (int) -r;
                return -1;
        }
        return r;
}

// Arguments below 4 GiB: this program is static and not relocated.
static int compat(const char *arg) {
        static int vsock_arguments[] = {40, 1, 0}, tipc_arguments[] = {30, 2, 0};
        static char type[] = "user", name[] = "hostd-escape", buffer[256];
        Doors doors = {-ENOTSUP};

        door(&doors, "bpf", int80(357, 0, (long) buffer, 64, 0));
        door(&doors, "perf", int80(336, (long) buffer, 0, -1, -1));
        door(&doors, "userfaultfd", int80(374, 1, 0, 0, 0));
        door(&doors, "io_uring", int80(425, 8, (long) buffer, 0, 0));
        door(&doors, "init_module", int80(128, (long) buffer, 1, (long) buffer, 0));
        door(&doors, "kexec", int80(283, 0, 0, 0, 0));
        door(&doors, "handle", int80(342, 0, (long) buffer, 0, 0));
        door(&doors, "swapon", int80(87, (long) name, 0, 0, 0));
        door(&doors, "request_key", int80(287, (long) type, (long) name, (long) name, 0));
        door(&doors, "socket(vsock)", int80(359, 40, 1, 0, 0));
        door(&doors, "socketcall(vsock)", int80(102, 1, (long) vsock_arguments, 0, 0));
        door(&doors, "socketcall(tipc)", int80(102, 1, (long) tipc_arguments, 0, 0));
        return doors.result;
}

static int x32(const char *arg) {
        static char buffer[256];
        Doors doors = {-ENOTSUP};

        door(&doors, "bpf", syscall(0x40000000 | SYS_bpf, 0, buffer, 64));
        door(&doors, "perf", syscall(0x40000000 | SYS_perf_event_open, buffer, 0, -1, -1, 0));
        door(&doors, "userfaultfd", syscall(0x40000000 | SYS_userfaultfd, 1));
        door(&doors, "io_uring", syscall(0x40000000 | SYS_io_uring_setup, 8, buffer));
        door(&doors, "socket", syscall(0x40000000 | SYS_socket, 40, 1, 0));
        return doors.result;
}
#else
static int compat(const char *arg) { return -ENOSYS; }
static int x32(const char *arg) { return -ENOSYS; }
#endif

const Attempt attempts_kernel[] = {
        {"bpf", call_bpf},           {"perf", call_perf},       {"io_uring", call_io_uring}, {"userfaultfd", call_userfaultfd}, {"kexec", call_kexec},
        {"modules", call_modules},   {"swap", call_swap},       {"acct", call_acct},         {"quota", call_quota},             {"time", call_time},
        {"timens", time_namespace},  {"ports", call_ports},     {"syslog", call_syslog},     {"reboot", call_reboot},           {"names", call_names},
        {"fanotify", call_fanotify}, {"priority", call_priority}, {"vhangup", call_hangup},  {"keys", keys},                    {"fill-keys", fill_keys},
        {"empty-keys", empty_keys},  {"request-key", request_key}, {"int80", compat},        {"x32", x32},                      {NULL},
};
