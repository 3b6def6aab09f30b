// SPDX-License-Identifier: GPL-2.0-or-later
// Attempts on processes: those of the host by their numbers, the guest helper, what is shared between processes.
#include "escape.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

// Everything that takes the number of a process. ARG: one of the host's.
static int by_number(const char *arg) {
        pid_t pid = (pid_t) atoi(arg);
        char byte;
        struct iovec own = {&byte, 1}, other = {(void *) 0x400000, 1};
        struct rlimit zero = {0, 0};
        siginfo_t info = {.si_code = SI_QUEUE};
        cpu_set_t one;
        size_t size;
        void *list;
        Doors doors = {-ENOTSUP};

        CPU_ZERO(&one);
        CPU_SET(0, &one);
        door(&doors, "kill", kill(pid, SIGUSR1));
        door(&doors, "tgkill", syscall(SYS_tgkill, pid, pid, SIGUSR1));
        door(&doors, "sigqueue", syscall(SYS_rt_sigqueueinfo, pid, SIGUSR1, &info));
        door(&doors, "pidfd", syscall(SYS_pidfd_open, pid, 0));
        door(&doors, "attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
        door(&doors, "seize", ptrace(PTRACE_SEIZE, pid, 0, 0));
        door(&doors, "read", process_vm_readv(pid, &own, 1, &other, 1, 0));
        door(&doors, "prlimit", syscall(SYS_prlimit64, pid, RLIMIT_NOFILE, &zero, NULL));
        door(&doors, "affinity", sched_setaffinity(pid, sizeof(one), &one));
        door(&doors, "priority", setpriority(PRIO_PROCESS, (id_t) pid, 19));
        door(&doors, "ioprio", syscall(SYS_ioprio_set, 1, pid, 3 << 13));
        door(&doors, "migrate", syscall(SYS_migrate_pages, pid, 1, &(unsigned long) {1}, &(unsigned long) {1}));
        door(&doors, "robust", syscall(SYS_get_robust_list, pid, &list, &size));
        door(&doors, "kcmp", syscall(SYS_kcmp, pid, getpid(), KCMP_FILE, 0, 0));
        door(&doors, "sched", sched_setscheduler(pid, SCHED_BATCH, &(struct sched_param) {0}));
        return doors.result;
}

// A signal that kills nobody, to all whom we may signal.
static int everybody(const char *arg) {
        return result(kill(-1, SIGWINCH));
}

static bool is_helper(const char *pid) {
        char path[320], name[64] = "";
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%s/comm", pid);
        f = fopen(path, "r");
        if (!f || !fgets(name, sizeof(name), f))
                name[0] = 0;
        if (f)
                fclose(f);
        return strcmp(name, "hostd-guest\n") == 0;
}

static void attack(Doors *doors, const char *number) {
        static const char *const files[] = {"mem", "environ", "maps", "exe", "stack", "syscall", "auxv", "pagemap", "fd/0", "fd/3", "cwd/etc", "map_files", "fdinfo/3"};
        pid_t pid = (pid_t) atoi(number);
        int pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        char path[320], byte[8];
        struct iovec own = {byte, sizeof(byte)}, other = {(void *) 0x400000, sizeof(byte)};

        for (size_t i = 0; i < ELEMENTS(files); i++) {
                snprintf(path, sizeof(path), "/proc/%s/%s", number, files[i]);
                int fd = open(path, O_RDONLY | O_NONBLOCK);
                door(doors, files[i], fd < 0 ? -1 : read(fd, byte, sizeof(byte)));
                if (fd >= 0)
                        close(fd);
        }
        door(doors, "attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
        door(doors, "seize", ptrace(PTRACE_SEIZE, pid, 0, 0));
        door(doors, "read", process_vm_readv(pid, &own, 1, &other, 1, 0));
        door(doors, "write", process_vm_writev(pid, &own, 1, &other, 1, 0));
        for (int fd = 0; fd < 8; fd++)
                door(doors, "getfd", syscall(SYS_pidfd_getfd, pidfd, fd, 0));
        door(doors, "kcmp", syscall(SYS_kcmp, pid, getpid(), KCMP_FILE, 3, 0));
}

// The helper holds the socket to hostd. It may be killed, never read or steered.
static int helper(const char *arg) {
        DIR *proc = opendir("/proc");
        struct dirent *e;
        Doors doors = {-ENOTSUP};
        int seen = 0;

        while (proc && (e = readdir(proc))) {
                if (e->d_name[0] < '0' || e->d_name[0] > '9' || !is_helper(e->d_name))
                        continue;
                seen++;
                attack(&doors, e->d_name);
        }
        if (proc)
                closedir(proc);
        say("helpers=%d", seen);
        return seen ? doors.result : -ESRCH;
}

static int trace_init(const char *arg) {
        return result(ptrace(PTRACE_ATTACH, 1, 0, 0));
}

// System V and POSIX objects of others. Ours are made after the look.
static int ipc(const char *arg) {
        struct shm_info shm;
        struct shmid_ds shm_one;
        struct msginfo msg;
        struct msqid_ds msg_one;
        int n = 0, last;

        last = shmctl(0, SHM_INFO, (struct shmid_ds *) &shm);
        for (int i = 0; i <= last; i++)
                n += shmctl(i, SHM_STAT, &shm_one) >= 0;
        last = msgctl(0, MSG_INFO, (struct msqid_ds *) &msg);
        for (int i = 0; i <= last; i++)
                n += msgctl(i, MSG_STAT, &msg_one) >= 0;
        if (shmget(0x65736361, 1, 0) >= 0)
                n++, say("shm by key");
        if (mq_open("/hostd-escape", O_RDONLY) >= 0)
                n++, say("mqueue");
        if (access("/dev/shm/hostd-escape", F_OK) == 0)
                n++, say("/dev/shm");
        say("%d objects of others", n);
        return n ? 0 : -ENOENT;
}

// What an exec'ed process was given: three pipes and nothing more, and none that leads anywhere.
static int descriptors(const char *arg) {
        DIR *dir = opendir("/proc/self/fd");
        struct dirent *e;
        struct stat st;
        char path[64], target[128];
        int wrong = 0;

        while (dir && (e = readdir(dir))) {
                int fd = atoi(e->d_name);
                if (e->d_name[0] == '.' || fd == dirfd(dir))
                        continue;
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                ssize_t n = readlink(path, target, sizeof(target) - 1);
                target[n < 0 ? 0 : n] = 0;
                say("%d:%s", fd, target);
                if (fd > 2 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode) || openat(fd, "..", O_RDONLY) >= 0 || fchdir(fd) == 0)
                        wrong++;
        }
        if (dir)
                closedir(dir);
        return wrong ? 0 : -ENOENT;
}

// Leaves the control group of its command by each door, and would live on when its client is gone. Its name is what the host looks for.
static int outlive(const char *arg) {
        static const char *const doors[] = {
                "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/init.scope/cgroup.procs", "/sys/fs/cgroup/system.slice/cgroup.procs",
                "/sys/fs/cgroup/../cgroup.procs", "/sys/fs/cgroup/../../../cgroup.procs"};
        int moved = 0;

        if (fork() > 0)
                return 0;
        (void) setsid();
        if (fork() > 0)
                _exit(0);
        for (int fd = 0; fd < 64; fd++)
                close(fd);
        (void) prctl(PR_SET_NAME, "hostd-escapee");
        for (size_t i = 0; i < ELEMENTS(doors); i++) {
                int fd = open(doors[i], O_WRONLY);
                moved += fd >= 0 && write(fd, "0", 1) == 1;
        }
        for (int i = 1; i < 64; i++)
                (void) signal(i, SIG_IGN);
        sleep(300);
        _exit(moved);
}

const Attempt attempts_process[] = {
        {"by-number", by_number}, {"everybody", everybody},     {"helper", helper},   {"trace-init", trace_init},
        {"ipc", ipc},             {"descriptors", descriptors}, {"outlive", outlive}, {NULL},
};
