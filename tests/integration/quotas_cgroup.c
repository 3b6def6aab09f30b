// SPDX-License-Identifier: GPL-2.0-or-later
// Real processes against real control groups: what is limited stays limited, what is killed is gone, what is removed leaves nothing.
// Makes groups below <hierarchy>/hostd-test-quotas-PID only.
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/strv.h"
#include "quotas/cgroup.h"
#include "tests/integration/report.h"

#pragma GCC diagnostic ignored "-Wformat-nonliteral"

#define ROOT "/sys/fs/cgroup"
#define MIB (1ULL << 20)

static char parent[64], prefix[96];
static CgroupHost *host;

#define PART_MAIN ((CgroupPart) -1) // of a sandbox

// A child that waits for its place before it runs `fn`.
static pid_t spawn(CgroupBox *box, CgroupPart part, const char *command, void (*fn)(uint64_t), uint64_t argument) {
        int gate[2];
        char c;

        if (pipe(gate) < 0)
                return -1;
        pid_t pid = fork();
        if (pid == 0) {
                (void) close(gate[1]);
                if (read(gate[0], &c, 1) != 1)
                        _exit(99);
                fn(argument);
                _exit(0);
        }
        (void) close(gate[0]);
        _cleanup_error_ Error err = ERROR_NULL;
        int r = command              ? cgroup_command_attach(box, command, pid, &err)
                : part == PART_MAIN ? cgroup_sandbox_attach(box, pid, &err)
                                    : cgroup_box_attach(box, part, pid, &err);
        if (r < 0)
                printf("attach: %s\n", error_message(&err, r));
        if (r == 0 && write(gate[1], "x", 1) != 1)
                r = -errno;
        (void) close(gate[1]);
        return pid;
}

static void run_hog(uint64_t bytes) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        for (uint64_t i = 0; i < bytes; i += 4096)
                p[i] = 1;
}

static void run_holder(uint64_t bytes) {
        run_hog(bytes);
        pause();
}

static void run_sleep(uint64_t unused) {
        for (;;)
                pause();
}

static void run_spin(uint64_t unused) {
        for (;;)
                ;
}

static void run_bomb(uint64_t unused) {
        (void) signal(SIGCHLD, SIG_IGN);
        for (;;) {
                pid_t pid = fork();
                if (pid < 0)
                        (void) poll(NULL, 0, 1);
        }
}

static void sleep_msec(int msec) {
        (void) poll(NULL, 0, msec);
}

static int death(pid_t pid) {
        int status = 0;

        (void) waitpid(pid, &status, 0);
        return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static CgroupBox *box_with(const char *name, const char *memory, const char *pids, const char *cpu) {
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupBox *box = NULL;
        Limits limits;
        int r;

        (void) snprintf(prefix, sizeof(prefix), "%s/%s", parent, name);
        limits_init(&limits);
        (void) limit_parse(LIMIT_MEMORY, memory, &limits, NULL);
        (void) limit_set(LIMIT_SWAP, 0, &limits, NULL);
        (void) limit_parse(LIMIT_PIDS, pids, &limits, NULL);
        (void) limit_parse(LIMIT_CPU, cpu, &limits, NULL);
        r = cgroup_box_create(host, prefix, &box, &err);
        if (r == 0)
                r = cgroup_box_apply(box, &limits, NULL, false, &err);
        if (!CHECK(r == 0, "box %s made and limited: %s", name, error_message(&err, r)))
                exit(report_end() ?: 1);
        return box;
}

static void box_gone(CgroupBox *box) {
        _cleanup_error_ Error err = ERROR_NULL;
        usec_t t = clock_monotonic();
        int r = cgroup_box_remove(box, &err);

        CHECK(r == 0, "removed in %llu us: %s", (unsigned long long) (clock_monotonic() - t), error_message(&err, r));
        cgroup_box_free(box);
}

static void test_memory(void) {
        CgroupBox *box = box_with("memory", "64MiB", "max", "max");
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupUsage usage;
        uint32_t events;
        int fd = -EBADF, r;

        r = cgroup_box_oom_fd(box, &fd, &events, &err);
        CHECK(r == 0, "OOM watch: %s", error_message(&err, r));
        CHECK(cgroup_command_create(box, "hog", &err) == 0, "command group");
        pid_t pid = spawn(box, 0, "hog", run_hog, 256 * MIB);
        CHECK(death(pid) == SIGKILL, "a command that takes 256 MiB of 64 MiB is killed");
        struct pollfd p = {fd, POLLIN, 0};
        CHECK(poll(&p, 1, 2000) == 1, "the watch tells");
        (void) close_fd(fd);
        r = cgroup_command_usage(box, "hog", &usage, &err);
        // A group that dies as a whole (memory.oom.group of v2) has its first victim counted twice by the kernel.
        uint64_t kills = usage.oom_kills;
        CHECK(r == 0 && kills >= 1 && kills <= (cgroup_host_is_unified(host) ? 2 : 1), "the command has %llu OOM kills: %s", (unsigned long long) usage.oom_kills,
              error_message(&err, r));
        CHECK(usage.memory_peak_bytes > 48 * MIB && usage.memory_peak_bytes <= 65 * MIB, "its peak is %llu KiB",
              (unsigned long long) (usage.memory_peak_bytes / 1024));
        CHECK(cgroup_command_remove(box, "hog") == 0, "command removed");
        r = cgroup_box_usage(box, &usage, &err);
        CHECK(r == 0 && usage.oom_kills == kills, "the box remembers %llu kills: %s", (unsigned long long) usage.oom_kills, error_message(&err, r));
        pid = spawn(box, CGROUP_PAYLOAD, NULL, run_hog, 256 * MIB);
        CHECK(death(pid) == SIGKILL, "the payload is killed as well");
        r = cgroup_box_usage(box, &usage, &err);
        CHECK(r == 0 && usage.oom_kills == kills + 1, "and counted: %llu, %s", (unsigned long long) usage.oom_kills, error_message(&err, r));
        CHECK(usage.swap_bytes == 0, "no swap was used");
        box_gone(box);
}

static void test_live_change(void) {
        CgroupBox *box = box_with("live", "256MiB", "512", "1.5");
        _cleanup_error_ Error err = ERROR_NULL;
        Limits limits, have;
        int r;

        limits_init(&limits);
        limits_init(&have);
        pid_t pid = spawn(box, CGROUP_PAYLOAD, NULL, run_holder, 128 * MIB);
        CgroupUsage usage = {0};
        for (int i = 0; i < 200 && usage.memory_bytes < 120 * MIB; i++) {
                sleep_msec(50);
                (void) cgroup_box_usage(box, &usage, NULL);
        }
        CHECK(cgroup_box_read(box, &limits, &err) == 0 && limits.value[LIMIT_MEMORY] == 256 * MIB &&
                      limits.value[LIMIT_SWAP] == 0 && limits.value[LIMIT_PIDS] == 512 && limits.value[LIMIT_CPU] == 1500,
              "read back what was written");
        limits.value[LIMIT_MEMORY] = 64 * MIB;
        limits.value[LIMIT_PIDS] = 1024;
        r = cgroup_box_apply(box, &limits, NULL, false, &err);
        CHECK(r == -EBUSY && err.code == ERR_BUSY, "lowering below use is refused: %s", error_message(&err, r));
        CHECK(cgroup_box_read(box, &have, NULL) == 0 && have.value[LIMIT_MEMORY] == 256 * MIB && have.value[LIMIT_PIDS] == 512,
              "and nothing changed");
        static const uint64_t steps[] = {1024 * MIB, 192 * MIB, LIMIT_UNSET, 160 * MIB, 512 * MIB};
        for (size_t i = 0; i < ELEMENTS(steps); i++)
                for (unsigned swap = 0; swap < 2; swap++) {
                        _cleanup_error_ Error e = ERROR_NULL;
                        limits.value[LIMIT_MEMORY] = steps[i];
                        limits.value[LIMIT_SWAP] = steps[i] == LIMIT_UNSET ? LIMIT_UNSET : swap * 64 * MIB;
                        limits.value[LIMIT_CPU_WEIGHT] = 50 + i;
                        limits.value[LIMIT_CPU] = 100 + i;
                        r = cgroup_box_apply(box, &limits, NULL, false, &e);
                        CHECK(r == 0, "step %zu, swap %u: %s", i, swap, error_message(&e, r));
                }
        CHECK(!cgroup_host_is_unified(host) || cgroup_host_can(host, LIMIT_CPU_PIN, NULL), "cpu_pin on v2");
        if (!cgroup_host_is_unified(host)) {
                _cleanup_error_ Error e = ERROR_NULL;
                char *allow[] = {(char *) "cpu_pin", NULL};
                (void) limit_parse(LIMIT_CPU_PIN, "0", &limits, NULL);
                r = cgroup_box_apply(box, &limits, NULL, false, &e);
                CHECK(r == -EOPNOTSUPP && e.code == ERR_DEGRADED, "not enforceable: %s", error_message(&e, r));
                CHECK(cgroup_box_apply(box, &limits, allow, false, NULL) == 0, "allowed by name");
        }
        limits_done(&limits);
        limits_done(&have);
        CHECK(cgroup_box_has(box, pid) && !cgroup_box_has(box, getpid()), "who is in the box");
        box_gone(box);
        (void) death(pid);
}

static void test_bomb(void) {
        CgroupBox *box = box_with("bomb", "512MiB", "256", "1");
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_strv_ char **ids = NULL;
        CgroupUsage usage;
        Limits limits;

        limits_init(&limits);
        pid_t pid = spawn(box, CGROUP_PAYLOAD, NULL, run_sleep, 0); // makes payload, as liblxc does
        CHECK(cgroup_box_read(box, &limits, NULL) == 0 && cgroup_box_apply(box, &limits, NULL, false, &err) == 0,
              "payload gets its share");
        limits_done(&limits);
        pid_t bomb = spawn(box, CGROUP_PAYLOAD, NULL, run_bomb, 0);
        for (unsigned i = 0; i < 20 * report_slow() && cgroup_box_usage(box, &usage, NULL) == 0 && usage.pids <= 150; i++)
                sleep_msec(50);
        CHECK(cgroup_box_usage(box, &usage, &err) == 0 && usage.pids <= 192 && usage.pids > 150, "the bomb has %llu of 192 pids",
              (unsigned long long) usage.pids);
        CHECK(cgroup_command_create(box, "cmd1", &err) == 0, "a command in the bombed box");
        pid_t command = spawn(box, 0, "cmd1", run_hog, MIB);
        CHECK(death(command) == 0, "runs");
        CHECK(cgroup_command_list(box, &ids) == 0 && strv_length(ids) == 1 && strcmp(ids[0], "cmd1") == 0, "is listed");
        CHECK(cgroup_command_remove(box, "cmd1") == 0, "is removed");
        usec_t t = clock_monotonic();
        CHECK(cgroup_box_kill(box) == 0, "kill");
        while (cgroup_box_is_populated(box) && clock_monotonic() - t < 5 * USEC_PER_SEC * report_slow())
                sleep_msec(1);
        CHECK(!cgroup_box_is_populated(box), "the bomb is gone after %llu ms", (unsigned long long) (clock_monotonic() - t) / 1000);
        (void) death(pid);
        (void) death(bomb);
        box_gone(box);
}

static uint64_t resident(pid_t pid) {
        char path[64];
        unsigned long long size, pages = 0;

        (void) snprintf(path, sizeof(path), "/proc/%d/statm", pid);
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%llu %llu", &size, &pages) != 2)
                pages = 0;
        if (f)
                (void) fclose(f);
        return pages * 4096;
}

// A process that is being killed stays in its group while its memory is given back, and cannot be moved meanwhile.
static void test_dying(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupBox *box = NULL;
        char path[192];

        if (!cgroup_host_is_unified(host)) {
                SKIP("a dying process in the unit's group: only v2 minds it");
                return;
        }
        (void) snprintf(prefix, sizeof(prefix), "%s/dying", parent);
        (void) snprintf(path, sizeof(path), ROOT "/%s", parent);
        (void) mkdir(path, 0755);
        (void) snprintf(path, sizeof(path), ROOT "/%s", prefix);
        (void) mkdir(path, 0755);
        pid_t pid = fork();
        if (pid == 0) {
                run_holder(1024 * MIB);
                _exit(0);
        }
        (void) snprintf(path, sizeof(path), ROOT "/%s/cgroup.procs", prefix);
        FILE *f = fopen(path, "we");
        CHECK(f && fprintf(f, "%d\n", pid) > 0 && fclose(f) == 0, "a process in the unit's group");
        for (int i = 0; i < 1200 && resident(pid) < 900 * MIB; i++)
                sleep_msec(50);
        (void) kill(pid, SIGKILL);
        int r, busy = 0;
        for (; (r = cgroup_box_create(host, prefix, &box, &err)) == -EBUSY && busy < 400; busy++) {
                error_done(&err);
                sleep_msec(5);
        }
        if (CHECK(r == 0, "a box is made beside a dying process, which was in the way %d times: %s", busy, error_message(&err, r)))
                box_gone(box);
        (void) death(pid);
}

static void test_cpu(void) {
        CgroupBox *box = box_with("cpu", "max", "max", "0.2");
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupUsage usage = {0};

        pid_t pid = spawn(box, CGROUP_PAYLOAD, NULL, run_spin, 0);
        usec_t t = clock_monotonic();
        // On a busy machine it may get less than it is allowed for a while.
        for (int i = 0; i < 10 && (i == 0 || usage.throttled_usec == 0); i++) {
                sleep_msec(1500);
                CHECK(cgroup_box_usage(box, &usage, &err) == 0, "usage");
        }
        double ratio = (double) usage.cpu_usec / (double) (clock_monotonic() - t);
        CHECK(ratio > 0.08 && ratio < 0.3, "0.2 CPUs gave %.3f", ratio);
        CHECK(usage.throttled_usec > 0, "throttled for %llu ms", (unsigned long long) usage.throttled_usec / 1000);
        box_gone(box);
        (void) death(pid);
}

// As hostd does it: told, then seen by the events of both groups.
static int freeze(CgroupBox *box, bool frozen, Error *err) {
        usec_t end = clock_monotonic() + 2 * USEC_PER_SEC;
        struct pollfd fds[CGROUP_FREEZE_GROUPS];
        int raw[CGROUP_FREEZE_GROUPS], r = cgroup_box_freeze(box, frozen, err);
        char text[512];

        if (r >= 0)
                r = cgroup_box_freeze_fds(box, raw);
        if (r < 0)
                return r;
        for (size_t i = 0; i < CGROUP_FREEZE_GROUPS; i++)
                fds[i] = (struct pollfd) {.fd = raw[i], .events = POLLPRI};
        while (!cgroup_box_froze(box, frozen) && clock_monotonic() < end && poll(fds, CGROUP_FREEZE_GROUPS, 2000) > 0)
                for (size_t i = 0; i < CGROUP_FREEZE_GROUPS; i++)
                        (void) !pread(raw[i], text, sizeof(text), 0);
        for (size_t i = 0; i < CGROUP_FREEZE_GROUPS; i++)
                (void) close(raw[i]);
        return cgroup_box_froze(box, frozen) ? 0 : -ETIMEDOUT;
}

static void test_freeze(void) {
        CgroupBox *box = box_with("freeze", "max", "max", "0.5");
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupUsage a, b;

        CHECK(cgroup_box_freeze(box, true, NULL) == -EBUSY, "a box without payload cannot be frozen");
        CHECK(cgroup_command_create(box, "spin", &err) == 0, "command");
        pid_t p1 = spawn(box, CGROUP_PAYLOAD, NULL, run_spin, 0), p2 = spawn(box, 0, "spin", run_spin, 0);
        int r = freeze(box, true, &err);
        CHECK(r == 0 && !cgroup_box_froze(box, false), "frozen: %s", error_message(&err, r));
        (void) cgroup_box_usage(box, &a, NULL);
        sleep_msec(200);
        (void) cgroup_box_usage(box, &b, NULL);
        CHECK(b.cpu_usec - a.cpu_usec < 5000, "no CPU time passes");
        CHECK(freeze(box, false, &err) == 0 && !cgroup_box_froze(box, true), "thawed");
        sleep_msec(200);
        (void) cgroup_box_usage(box, &a, NULL);
        CHECK(a.cpu_usec - b.cpu_usec > 20000, "and running");
        CHECK(freeze(box, true, &err) == 0, "frozen again");
        CHECK(cgroup_command_remove(box, "spin") == -EBUSY, "a populated command group stays");
        CHECK(cgroup_command_kill(box, "spin") == 0 && death(p2) == SIGKILL, "a frozen command dies by kill");
        CHECK(cgroup_command_kill(box, "absent") == 0 && cgroup_command_kill(box, "../x") == -EINVAL, "absent and bad ids");
        box_gone(box);
        CHECK(death(p1) == SIGKILL, "a frozen box is removed");
}

static CgroupBox *sandbox_with(CgroupBox *box, const char *id, uint64_t memory, uint64_t pids, uint64_t millicpus) {
        _cleanup_error_ Error err = ERROR_NULL;
        CgroupBox *sandbox = NULL;
        Limits limits;
        int r;

        limits_init(&limits);
        limits.value[LIMIT_MEMORY] = memory;
        limits.value[LIMIT_SWAP] = 0;
        limits.value[LIMIT_PIDS] = pids;
        limits.value[LIMIT_CPU] = millicpus;
        if (cgroup_host_can(host, LIMIT_IO_READ, NULL)) { // read back and compared, as all of them
                limits.value[LIMIT_IO_READ] = 10 * MIB;
                limits.value[LIMIT_IO_WRITE_OPS] = 1000;
        }
        r = cgroup_sandbox_create(box, id, &sandbox, &err);
        if (r == 0)
                r = cgroup_sandbox_apply(sandbox, &limits, NULL, &err);
        if (!CHECK(r == 0, "sandbox %s made and limited: %s", id, error_message(&err, r)))
                exit(report_end() ?: 1);
        return sandbox;
}

static bool sandbox_goes(CgroupBox *box, const char *id) {
        int r = -EBUSY;

        if (cgroup_sandbox_kill(box, id) < 0)
                return false;
        for (unsigned i = 0; i < 2000 * report_slow() && (r = cgroup_sandbox_remove(box, id)) == -EBUSY; i++)
                sleep_msec(1);
        return r == 0;
}

static void test_sandbox(void) {
        CgroupBox *box = box_with("sandbox", "512MiB", "512", "max"), *one = sandbox_with(box, "one", 48 * MIB, 32, 200), *again = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_strv_ char **ids = NULL;
        CgroupUsage usage = {0};
        Limits limits;
        uint32_t events;
        int fd = -EBADF;

        CHECK(cgroup_sandbox_create(box, "one", &again, NULL) == -EEXIST && cgroup_sandbox_create(box, "../x", &again, NULL) < 0, "its name is taken, others are none");
        CHECK(cgroup_sandbox_open(box, "one", &again, NULL) == 0 && cgroup_box_free(again) == NULL, "it is found again");
        CHECK(cgroup_sandbox_open(box, "two", &again, &err) < 0 && err.code == ERR_NOT_FOUND, "another is not");
        error_done(&err);
        pid_t outside = spawn(box, CGROUP_PAYLOAD, NULL, run_sleep, 0), inside = spawn(one, PART_MAIN, NULL, run_sleep, 0);
        CHECK(cgroup_box_has(one, inside) && cgroup_box_has(box, inside) && !cgroup_box_has(one, outside), "who is in it is in the instance's box as well");
        pid_t bomb = spawn(one, PART_MAIN, NULL, run_bomb, 0);
        sleep_msec(300);
        CHECK(cgroup_box_usage(one, &usage, &err) == 0 && usage.pids <= 32 && usage.pids > 20, "a bomb has %llu of 32 pids", (unsigned long long) usage.pids);
        CHECK(cgroup_box_usage(box, &usage, &err) == 0 && usage.pids < 64, "and the instance %llu of 512", (unsigned long long) usage.pids);
        CHECK(cgroup_sandbox_remove(box, "one") == -EBUSY, "a populated sandbox stays");
        CHECK(sandbox_goes(box, "one") && death(bomb) == SIGKILL && death(inside) == SIGKILL, "the bomb is killed, and the sandbox removed");
        CHECK(cgroup_box_is_populated(box) && cgroup_sandbox_remove(box, "one") == 0 && cgroup_sandbox_kill(box, "one") == 0, "the rest of the instance lives; absent is success");
        cgroup_box_free(one);

        one = sandbox_with(box, "hog", 48 * MIB, 32, LIMIT_UNSET);
        limits_init(&limits);
        limits.value[LIMIT_IO_READ] = 10 * MIB;
        CHECK(cgroup_host_can(host, LIMIT_IO_READ, NULL) || (cgroup_sandbox_apply(one, &limits, NULL, &err) < 0 && err.code == ERR_DEGRADED), "io is limited, or refused");
        error_done(&err);
        CHECK(cgroup_box_oom_fd(one, &fd, &events, &err) == 0, "OOM watch");
        CHECK(cgroup_command_create(one, "c1", &err) == 0, "a command's group in it: %s", error_message(&err, 0));
        pid_t bystander = spawn(one, PART_MAIN, NULL, run_sleep, 0), hog = spawn(one, 0, "c1", run_hog, 200 * MIB);
        CHECK(death(hog) == SIGKILL, "a command that takes 200 MiB of 48 MiB is killed");
        struct pollfd p = {fd, POLLIN, 0};
        CHECK(poll(&p, 1, 2000) == 1, "the watch tells");
        (void) close_fd(fd);
        if (cgroup_host_is_unified(host))
                CHECK(death(bystander) == SIGKILL, "and the sandbox with it");
        else
                SKIP("the whole sandbox dies of one process's memory: only v2 does so by itself");
        CHECK(cgroup_box_usage(one, &usage, &err) == 0 && usage.oom_kills >= 1 && usage.oom_own >= 1 && usage.oom_own != UINT64_MAX && usage.memory_peak_bytes > 32 * MIB && usage.memory_peak_bytes <= 49 * MIB,
              "%llu kills, its peak is %llu KiB", (unsigned long long) usage.oom_kills, (unsigned long long) usage.memory_peak_bytes / 1024);
        CHECK(cgroup_command_list(one, &ids) == 0 && strv_length(ids) == 1, "its commands are its own");
        bool gone = sandbox_goes(box, "hog");
        int r = cgroup_box_usage(box, &usage, &err);
        CHECK(gone && r == 0 && usage.oom_kills >= 1, "removed: %d, and the instance remembers %llu kills: %s", gone, (unsigned long long) usage.oom_kills, error_message(&err, r));
        if (!cgroup_host_is_unified(host))
                (void) death(bystander);
        cgroup_box_free(one);

        one = sandbox_with(box, "spin", 48 * MIB, 32, 500);
        pid_t spin = spawn(one, PART_MAIN, NULL, run_spin, 0);
        fd = cgroup_sandbox_events_fd(one);
        CHECK(fd >= 0 && cgroup_sandbox_freeze(one, true) == 0, "told to stop");
        for (unsigned i = 0; i < 200 * report_slow() && !cgroup_sandbox_froze(one, true); i++)
                sleep_msec(5);
        CHECK(cgroup_sandbox_froze(one, true) && !cgroup_box_froze(box, true), "it is frozen, its instance is not");
        (void) close_fd(fd);
        CHECK(freeze(box, true, &err) == 0 && freeze(box, false, &err) == 0 && cgroup_sandbox_froze(one, true), "and stays so when the instance was paused and resumed");
        CHECK(cgroup_sandbox_freeze(one, false) == 0, "thawed");
        cgroup_box_free(one);
        box_gone(box);
        CHECK(death(spin) == SIGKILL && death(outside) == SIGKILL, "with its box a sandbox goes too");
}

static size_t count_groups(void) {
        static const char *const trees[] = {"unified", "memory", "pids", "cpu", "cpuacct", "blkio", "cpuset", "."};
        size_t n = 0;

        for (size_t i = 0; i < ELEMENTS(trees); i++) {
                char path[128];
                struct stat st;
                (void) snprintf(path, sizeof(path), ROOT "/%s/%s", trees[i], parent);
                if (stat(path, &st) == 0)
                        n += st.st_nlink - 2;
        }
        return n;
}

static void test_cycles(void) {
        usec_t t = clock_monotonic();
        int failures = 0;

        for (int i = 0; i < 200; i++) {
                CgroupBox *box = NULL;
                (void) snprintf(prefix, sizeof(prefix), "%s/i%d-g1", parent, i);
                failures += cgroup_box_create(host, prefix, &box, NULL) < 0 || cgroup_command_create(box, "a", NULL) < 0 ||
                            cgroup_box_remove(box, NULL) < 0;
                cgroup_box_free(box);
        }
        CHECK(failures == 0 && count_groups() == 0, "200 boxes made and removed, %llu us each, %zu groups left",
              (unsigned long long) (clock_monotonic() - t) / 200, count_groups());
}

static void test_deep(void) {
        CgroupBox *box = box_with("deep", "max", "max", "max");
        char path[4096];
        size_t n;
        int depth = 0;

        // What liblxc and a guest leave behind: groups in a hierarchy that is not written, and a deep nest.
        n = (size_t) snprintf(path, sizeof(path), ROOT "/%s/%s/box/payload",
                              cgroup_host_is_unified(host) ? "." : "cpuset", prefix);
        if (!cgroup_host_is_unified(host)) {
                (void) io_mkdir_p(AT_FDCWD, path, 0755);
                for (; depth < 300 && n + 3 < sizeof(path) && mkdir(path, 0755) == (depth ? 0 : -1); depth++)
                        n += (size_t) snprintf(path + n, sizeof(path) - n, "/d");
                CHECK(depth == 300, "a nest of %d groups", depth);
        }
        box_gone(box);
        CHECK(count_groups() == 0, "nothing is left in any hierarchy");
}

static void bench_command(void) {
        CgroupBox *box = box_with("bench", "512MiB", "512", "max");
        enum { N = 200 };
        usec_t total = 0, worst = 0;
        int failures = 0;

        for (int i = 0; i < N; i++) {
                CgroupUsage usage;
                char id[16];
                int gate[2];
                (void) snprintf(id, sizeof(id), "c%d", i);
                if (pipe(gate) < 0)
                        break;
                pid_t pid = fork();
                if (pid == 0) {
                        char c;
                        (void) close(gate[1]);
                        _exit(read(gate[0], &c, 1) != 0);
                }
                usec_t t = clock_monotonic();
                failures += cgroup_command_create(box, id, NULL) < 0 || cgroup_command_attach(box, id, pid, NULL) < 0;
                usec_t spent = clock_monotonic() - t;
                (void) close(gate[0]);
                (void) close(gate[1]);
                failures += death(pid) != 0;
                t = clock_monotonic();
                failures += cgroup_command_usage(box, id, &usage, NULL) < 0 || cgroup_command_remove(box, id) < 0;
                spent += clock_monotonic() - t;
                total += spent;
                worst = MAX2(worst, spent);
        }
        CHECK(failures == 0, "a command's group costs %llu us (worst %llu us): create, attach, usage, remove",
              (unsigned long long) total / N, (unsigned long long) worst);
        box_gone(box);
}

static void bench_sandbox(void) {
        CgroupBox *box = box_with("bench2", "512MiB", "512", "max");
        enum { N = 200 };
        usec_t t = clock_monotonic();
        int failures = 0;
        Limits limits;

        limits_init(&limits);
        limits.value[LIMIT_MEMORY] = 64 * MIB;
        limits.value[LIMIT_SWAP] = 0;
        limits.value[LIMIT_PIDS] = 64;
        limits.value[LIMIT_CPU] = 1000;
        for (int i = 0; i < N; i++) {
                CgroupBox *sandbox = NULL;
                failures += cgroup_sandbox_create(box, "b", &sandbox, NULL) < 0 || cgroup_sandbox_apply(sandbox, &limits, NULL, NULL) < 0;
                cgroup_box_free(sandbox);
                failures += cgroup_sandbox_remove(box, "b") < 0;
        }
        CHECK(failures == 0, "a sandbox's groups cost %llu us: create, limit, remove", (unsigned long long) (clock_monotonic() - t) / N);
        box_gone(box);
}

int main(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        const char *reason;
        int r;

        if (geteuid() != 0) {
                SKIP("control groups need root");
                (void) report_end();
                return 77;
        }
        (void) snprintf(parent, sizeof(parent), "hostd-test-quotas-%d", getpid());
        r = cgroup_host_new(ROOT, &host, &err);
        if (!CHECK(r == 0, "probe: %s", error_message(&err, r)))
                return report_end();
        for (int i = 0; i < _LIMIT_MAX; i++)
                if (limit_row(i)->where == LIMIT_WHERE_CGROUP && !cgroup_host_can(host, i, &reason))
                        printf("not enforced here: %s: %s\n", limit_row(i)->key, reason);
        test_memory();
        test_live_change();
        test_bomb();
        test_dying();
        test_cpu();
        test_freeze();
        test_sandbox();
        bench_sandbox();
        test_cycles();
        test_deep();
        bench_command();
        CHECK(cgroup_host_sweep(host, parent) == 0, "the parents are swept");
        cgroup_host_free(host);
        return report_end();
}
