// SPDX-License-Identifier: GPL-2.0-or-later
// The real hostd-guest in namespaces of its own, driven by the real GuestChannel and CommandManager, with cgroup v2 groups that
// this program makes below "hostd-guest-PID". argv[1] is the hostd-guest to test. Needs root.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/digest.h"
#include "base/io.h"
#include "base/strv.h"
#include "core/command.h"
#include "guest/tree.h"
#include "guest_run.h"

#define ID_BASE 300000

static unsigned passed, failed, skipped;
int box_dir = -EBADF;
static char box_name[64], box_path[256];

void check_at(int line, bool ok, const char *what) {
        if (ok)
                passed++;
        else {
                failed++;
                fprintf(stderr, "line %d: failed: %s\n", line, what);
        }
}

// ---- quotas/cgroup.h on a plain cgroup v2 directory; only what the channel and commands call.

bool cgroup_box_has(CgroupBox *box, pid_t pid) {
        _cleanup_free_ char *text = NULL;
        char path[64];

        (void) snprintf(path, sizeof(path), "/proc/%d/cgroup", (int) pid);
        return io_read_file(AT_FDCWD, path, 4096, &text, NULL) == 0 && strstr(text, box_name);
}

static int box_write(const char *id, const char *file, const char *text) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/%s", id, file);
        return io_write_file(box_dir, path, text);
}

static bool box_lazy; // commands stay in the helper's group: for rounds where the kernel's time to move them would be all there is

static int box_attach(const char *id, pid_t pid) {
        char text[16];

        if (box_lazy)
                return 0;

        (void) snprintf(text, sizeof(text), "%d", (int) pid);
        return box_write(id, "cgroup.procs", text);
}

int cgroup_box_attach(CgroupBox *box, CgroupPart part, pid_t pid, Error *err) {
        return box_attach("login", pid);
}

int cgroup_command_create(CgroupBox *box, const char *id, Error *err) {
        return mkdirat(box_dir, id, 0755) < 0 ? error_set_errno(err, errno, "mkdir") : 0;
}

int cgroup_command_attach(CgroupBox *box, const char *id, pid_t pid, Error *err) {
        return box_attach(id, pid);
}

int cgroup_command_usage(CgroupBox *box, const char *id, CgroupUsage *ret, Error *err) {
        _cleanup_free_ char *text = NULL;
        char path[128];

        *ret = (CgroupUsage) {.memory_peak_bytes = UINT64_MAX};
        (void) snprintf(path, sizeof(path), "%s/cpu.stat", id);
        if (io_read_file(box_dir, path, 4096, &text, NULL) == 0)
                ret->cpu_usec = strtoull(text + strlen("usage_usec "), NULL, 10);
        return 0;
}

int cgroup_command_kill(CgroupBox *box, const char *id) {
        int r = box_write(id, "cgroup.kill", "1");

        return r == -ENOENT ? 0 : r;
}

int cgroup_command_remove(CgroupBox *box, const char *id) {
        return unlinkat(box_dir, id, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int cgroup_command_list(CgroupBox *box, char ***ret) {
        DIR *d = fdopendir(openat(box_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        struct dirent *e;

        *ret = NULL;
        while (d && (e = readdir(d)))
                if (e->d_type == DT_DIR && e->d_name[0] != '.' && strcmp(e->d_name, "guest") != 0 && strcmp(e->d_name, "login") != 0 &&
                    strcmp(e->d_name, "sandbox") != 0)
                        (void) strv_append(ret, e->d_name);
        if (d)
                (void) closedir(d);
        return 0;
}

// ---- the instance: user, pid and mount namespaces with a passwd of their own and /mnt as scratch space

static void mount_or_die(const char *what, const char *where, const char *type, unsigned long flags) {
        if (mount(what, where, type, flags, NULL) < 0) {
                fprintf(stderr, "mount %s: %s\n", where, strerror(errno));
                _exit(1);
        }
}

static void put_or_die(const char *path, const char *text) {
        if (io_write_atomic(AT_FDCWD, path, text, strlen(text), 0644) < 0)
                _exit(1);
}

static void instance_mounts(void) {
        mount_or_die(NULL, "/", NULL, MS_REC | MS_PRIVATE);
        mount_or_die("proc", "/proc", "proc", 0);
        mount_or_die("tmpfs", "/mnt", "tmpfs", 0);
        mount_or_die("tmpfs", "/run", "tmpfs", 0);
        if (mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620") < 0)
                _exit(1);
        mount_or_die("/dev/pts/ptmx", "/dev/ptmx", NULL, MS_BIND);
        put_or_die("/mnt/passwd", "root:x:0:0:root:/root:/bin/sh\nbroken\nagent:x:1000:1000::/mnt/home:/bin/sh\nlost:x:1001:1001::/nowhere:/bin/sh\n");
        put_or_die("/mnt/group", "root:x:0:\nagent:x:1000:\nextra:x:2000:other,agent\nno:x:2001:agen\n");
        // For PAM's account check: without a line here su refuses.
        put_or_die("/mnt/shadow", "root:*:19000:0:99999:7:::\nagent:*:19000:0:99999:7:::\n");
        put_or_die("/mnt/subids", "root:1:5\nagent:100000:65536\n");
        for (int i = 0; i < 2; i++)
                (void) mount("/mnt/subids", i ? "/etc/subuid" : "/etc/subgid", NULL, MS_BIND, NULL); // sandboxes tell if that failed
        mount_or_die("/mnt/shadow", "/etc/shadow", NULL, MS_BIND);
        mount_or_die("/mnt/passwd", "/etc/passwd", NULL, MS_BIND);
        mount_or_die("/mnt/group", "/etc/group", NULL, MS_BIND);
        if (mkdir("/mnt/home", 0755) < 0 || chown("/mnt/home", 1000, 1000) < 0 || mkdir("/mnt/race", 0777) < 0 ||
            mkdir("/mnt/keep", 0755) < 0 || io_mkdir_p(AT_FDCWD, "/mnt/tree/bound", 0755) < 0)
                _exit(1);
        put_or_die("/mnt/keep/file", "kept");
        mount_or_die("/mnt/keep", "/mnt/tree/bound", NULL, MS_BIND);
}

static void instance_main(int socket, int program, int gate) {
        char *argv[] = {"hostd-guest", NULL}, *env[] = {NULL};
        char byte;

        if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0 || write(gate, "u", 1) != 1 || read(gate, &byte, 1) != 1)
                _exit(1);
        if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
                _exit(1);
        pid_t pid = fork();
        if (pid == 0) {
                instance_mounts();
                if (dup2(socket, 3) < 0 || dup2(program, 4) < 0) // 4: what people inside get a copy of
                        _exit(1);
                (void) fcntl(3, F_SETFD, 0);
                (void) setenv("LEAK", "1", 1);
                fexecve(program, argv, env);
                _exit(1);
        }
        (void) !write(gate, &pid, sizeof(pid));
        (void) waitpid(pid, NULL, 0);
        _exit(0);
}

// Returns the launcher's pid; the helper is the namespace's PID 1.
static pid_t instance_start(const char *helper, int *ret_channel) {
        int pair[2], gate[2], program = fcntl(open(helper, O_RDONLY | O_CLOEXEC), F_DUPFD_CLOEXEC, 100);
        char path[64], byte;
        pid_t pid;

        if (program < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0)
                return -1;
        pid = fork();
        if (pid == 0) {
                (void) box_attach("guest", getpid());
                (void) close(gate[0]); // or its end of file never comes
                (void) close(pair[0]);
                instance_main(fcntl(pair[1], F_DUPFD_CLOEXEC, 50), program, fcntl(gate[1], F_DUPFD_CLOEXEC, 50));
        }
        (void) close(pair[1]);
        (void) close(gate[1]);
        (void) close(program);
        if (read(gate[0], &byte, 1) != 1)
                return -1;
        for (int i = 0; i < 2; i++) {
                (void) snprintf(path, sizeof(path), "/proc/%d/%cid_map", (int) pid, "ug"[i]);
                if (io_write_filef(AT_FDCWD, path, "0 %d 262144", ID_BASE) < 0)
                        return -1;
        }
        if (write(gate[0], "g", 1) != 1)
                return -1;
        (void) close(gate[0]);
        *ret_channel = pair[0];
        return pid;
}

// ---- running one command

sd_event *event;
CommandManager *manager;
GuestChannel *channel;


void run_done(Command *command, const CommandRecord *record, void *userdata) {
        Run *run = userdata;

        run->record = *record;
        run->record.message = record->message ? strdup(record->message) : NULL;
        run->done = true;
        run->command = NULL;
}

void run_free(Run *run) {
        free(run->output);
        free(run->record.message);
        *run = (Run) {0};
}

void loop_until(const bool *flag, usec_t limit) {
        usec_t end = clock_monotonic() + limit;

        while (!*flag && clock_monotonic() < end)
                (void) sd_event_run(event, 100 * USEC_PER_MSEC);
}

unsigned slow(void) {
        const char *text = getenv("HOSTD_TEST_SLOW");

        return text ? (unsigned) strtoul(text, NULL, 10) : 1;
}

void loop_wait(const bool *flag, usec_t limit) {
        loop_until(flag, limit * slow());
}

void loop_for(usec_t span) {
        bool never = false;

        loop_until(&never, span);
}

// As hostctl sends one file.
static void put_file(int to, const char *text) {
        int p[2];

        if (pipe2(p, O_CLOEXEC) < 0 || fcntl(p[1], F_SETPIPE_SZ, 1 << 20) < 0 || write(p[1], text, strlen(text)) < 0)
                abort();
        (void) close(p[1]);
        CHECK(tree_pack_stream(p[0], "text", to, NULL) == 0);
        (void) close(p[0]);
}

// Output and input are memfds turned pipes: small ones only.
int run_start(Run *run, int *ret_out) {
        int in[2], out[2], fds[3], r;
        _cleanup_error_ Error err = ERROR_NULL;
        CommandRequest request = {.instance = "test", .caller = "uid 0", .channel = channel, .guest = run->request,
                                  .fds = fds, .timeout = run->timeout, .done = run_done, .userdata = run};

        if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
                abort();
        (void) fcntl(out[0], F_SETPIPE_SZ, 1 << 20);
        (void) fcntl(in[0], F_SETPIPE_SZ, 1 << 20);
        if (run->input && run->request.verb == GUEST_WRITE)
                put_file(in[1], run->input);
        else if (run->input)
                (void) !write(in[1], run->input, run->input_size ?: strlen(run->input));
        (void) close(in[1]);
        fds[0] = run->tty ?: in[0];
        fds[1] = run->tty ?: run->out ?: out[1];
        fds[2] = run->tty ?: out[1];
        r = command_start(manager, &request, &run->command, &err);
        if (r < 0)
                fprintf(stderr, "command_start: %s\n", error_message(&err, r));
        (void) close(in[0]);
        (void) close(out[1]);
        *ret_out = out[0];
        return r;
}

void run_output(Run *run, int out) {
        run->output = calloc(1, (1 << 20) + 1);
        (void) io_set_nonblock(out, true);
        (void) !read(out, run->output, 1 << 20);
        (void) close(out);
}

void run(Run *r) {
        int out;

        if (run_start(r, &out) < 0)
                return;
        loop_wait(&r->done, 30 * USEC_PER_SEC);
        CHECK(r->done);
        run_output(r, out);
}

bool shell_gives(const char *script, const char *user, const char *expected) {
        _cleanup_(run_free) Run r = {.request = {.verb = GUEST_RUN, .user = user, .argv = SHELL(script)}};
        bool ok;

        run(&r);
        ok = r.record.exit == 0 && strcmp(r.output ?: "", expected) == 0;
        if (!ok)
                fprintf(stderr, "%s\n  exit %d (%s), got: %s\n", script, r.record.exit, r.record.message ?: "", r.output ?: "");
        return ok;
}

static void test_exit(void) {
        static const struct {
                char *argv[4];
                const char *user, *cwd;
                int exit, signal;
                GuestStage stage;
        } cases[] = {
                {{"true"}, NULL, NULL, 0, 0, 0},
                {{"sh", "-c", "exit 3"}, "agent", NULL, 3, 0, 0},
                {{"sh", "-c", "kill -9 $$"}, "agent", NULL, -1, SIGKILL, 0},
                {{"no-such-program"}, "agent", NULL, 127, 0, GUEST_STAGE_EXEC},
                {{"/etc/passwd"}, "agent", NULL, 126, 0, GUEST_STAGE_EXEC},
                {{"true"}, "nobody-here", NULL, 126, 0, GUEST_STAGE_USER},
                {{"true"}, "4294967295", NULL, 126, 0, GUEST_STAGE_USER},
                {{"true"}, "agent", "/missing", 126, 0, GUEST_STAGE_CWD},
                {{"true"}, "agent", "/proc/self/fd/9", 126, 0, GUEST_STAGE_CWD},
                {{"true"}, NULL, "/proc/self/fd/0", 126, 0, GUEST_STAGE_CWD},
                {{"true"}, NULL, "/proc/1/root", 126, 0, GUEST_STAGE_CWD},
                {{"true"}, NULL, "relative", 126, 0, GUEST_STAGE_CWD},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(run_free) Run r = {
                        .request = {.verb = GUEST_RUN, .user = cases[i].user, .cwd = cases[i].cwd, .argv = (char **) cases[i].argv}};
                run(&r);
                if (r.record.exit != cases[i].exit || r.record.signal != cases[i].signal || r.record.stage != cases[i].stage)
                        fprintf(stderr, "case %zu: exit %d signal %d stage %d: %s\n", i, r.record.exit, r.record.signal, r.record.stage,
                                r.record.message ?: "");
                CHECK(r.record.exit == cases[i].exit && r.record.signal == cases[i].signal && r.record.stage == cases[i].stage);
                CHECK((r.record.message != NULL) == (cases[i].stage != 0));
        }
}

static void test_surroundings(void) {
        char *env[] = {"B=2", "LANG=C", "PATH=/bin:/usr/bin", NULL};
        _cleanup_(run_free) Run r = {.request = {.verb = GUEST_RUN, .user = "agent", .env = env, .argv = (char *[]) {"env", NULL}}};

        CHECK(shell_gives("i=0; while [ $i -lt 64 ]; do [ -e /proc/$$/fd/$i ] && echo $i; i=$((i+1)); done; true", "agent", "0\n1\n2\n"));
        CHECK(shell_gives("id -u; id -g; id -G; umask; pwd", "agent", "1000\n1000\n1000 2000\n0022\n/mnt/home\n"));
        CHECK(shell_gives("id -u; pwd", "lost", "1001\n/\n"));
        CHECK(shell_gives("id -u; id -g; id -G", "1234", "1234\n1234\n1234\n"));
        CHECK(shell_gives("grep -E '^Cap(Inh|Prm|Amb)|^Sig(Blk|Ign)' /proc/self/status | cut -f2 | sort -u", "agent", "0000000000000000\n"));
        CHECK(shell_gives("grep -E '^CapInh|^CapAmb' /proc/self/status | cut -f2 | sort -u", NULL, "0000000000000000\n"));
        CHECK(shell_gives("cut -d' ' -f6 /proc/$$/stat | grep -cx $$", "agent", "1\n"));
        CHECK(shell_gives("cat /proc/self/oom_score_adj", "agent", "0\n"));
        CHECK(shell_gives("cat /proc/1/comm; cat /proc/1/environ 2>&1 | grep -c 'Permission denied'", "agent", "hostd-guest\n1\n"));
        run(&r);
        CHECK(r.output && strcmp(r.output, "PATH=/bin:/usr/bin\nHOME=/mnt/home\nUSER=agent\nLOGNAME=agent\nSHELL=/bin/sh\nLANG=C\nB=2\n") == 0);
}

static bool box_is_empty(void) {
        // commands are gone when only the two fixed groups are left
        _cleanup_free_ char *text = NULL;
        struct stat st;

        return fstat(box_dir, &st) == 0 && st.st_nlink == 4 && io_read_file(box_dir, "login/cgroup.procs", 4096, &text, NULL) == 0;
}

static void test_ends(void) {
        usec_t begin = clock_monotonic();
        int out;

        _cleanup_(run_free) Run background = {.request = {.verb = GUEST_RUN, .argv = SHELL("setsid sleep 100 & echo hi")}};
        run(&background);
        CHECK(background.record.exit == 0 && strcmp(background.output, "hi\n") == 0);
        _cleanup_(run_free) Run late = {.timeout = 200 * USEC_PER_MSEC, .request = {.verb = GUEST_RUN, .argv = SHELL("sleep 100 & sleep 100")}};
        run(&late);
        CHECK(late.record.timed_out && late.record.exit == -1 && late.record.duration < USEC_PER_SEC);
        _cleanup_(run_free) Run burner = {.request = {.verb = GUEST_RUN, .argv = SHELL("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")}};
        run(&burner);
        CHECK(burner.record.cpu_usec > 10000);
        _cleanup_(run_free) Run term = {.request = {.verb = GUEST_RUN, .argv = SHELL("sleep 100")}};
        CHECK(run_start(&term, &out) == 0);
        for (int i = 0; i < 200 && command_pid(term.command) == 0; i++)
                loop_for(USEC_PER_MSEC);
        loop_for(20 * USEC_PER_MSEC);
        CHECK(command_signal(term.command, 99, NULL) < 0);
        CHECK(command_signal(term.command, SIGTERM, NULL) == 0);
        loop_wait(&term.done, 5 * USEC_PER_SEC);
        run_output(&term, out);
        CHECK(term.record.signal == SIGTERM);
        _cleanup_(run_free) Run left = {.request = {.verb = GUEST_RUN, .argv = SHELL("sleep 100")}};
        CHECK(run_start(&left, &out) == 0);
        loop_for(50 * USEC_PER_MSEC);
        command_detach(left.command);
        loop_for(300 * USEC_PER_MSEC);
        CHECK(!left.done);
        (void) close(out);
        CHECK(clock_monotonic() - begin < 10 * USEC_PER_SEC * slow());
        CHECK(box_is_empty());
        CHECK(command_next(manager, NULL) == NULL);
}

static void test_many(void) {
        static Run runs[100];
        static int outs[100];
        unsigned good = 0;

        for (size_t i = 0; i < ELEMENTS(runs); i++) {
                runs[i] = (Run) {.request = {.verb = GUEST_RUN, .user = "agent", .argv = SHELL("echo x; exit 5")}};
                CHECK(run_start(&runs[i], &outs[i]) == 0);
        }
        for (size_t i = 0; i < ELEMENTS(runs); i++) {
                loop_wait(&runs[i].done, 10 * USEC_PER_SEC);
                run_output(&runs[i], outs[i]);
                if (runs[i].record.exit == 5 && strcmp(runs[i].output, "x\n") == 0)
                        good++;
                else
                        fprintf(stderr, "%zu of many: done %d, exit %d, signal %d, output \"%s\": %s\n", i, runs[i].done, runs[i].record.exit,
                                runs[i].record.signal, runs[i].output, runs[i].record.message ?: "");
                run_free(&runs[i]);
        }
        CHECK(good == 100);
        loop_for(200 * USEC_PER_MSEC);
        CHECK(box_is_empty());
}

// A child of this program digests what comes out of `fd`.
static void digest_pipe(int fd, int result) {
        char hash[DIGEST_TEXT_MAX];

        if (fork() == 0) {
                _exit(digest_fd(fd, hash) < 0 || write(result, hash, 64) != 64);
        }
        (void) close(fd);
}

static void feed_pipe(int fd, size_t size) {
        char block[4096];

        for (size_t i = 0; i < sizeof(block); i++)
                block[i] = (char) (i * 7 + i / 256);
        if (fork() == 0) {
                for (size_t n = 0; n < size; n += sizeof(block))
                        if (io_write_all(fd, block, sizeof(block)) < 0)
                                _exit(1);
                _exit(0);
        }
        (void) close(fd);
}

static int packed_pipe(int fd) {
        int p[2];

        if (pipe2(p, O_CLOEXEC) < 0)
                abort();
        if (fork() == 0)
                _exit(tree_pack_stream(fd, "pipe", p[1], NULL) < 0);
        (void) close(fd);
        (void) close(p[1]);
        return p[0];
}

static void transfer(GuestVerb verb, char *const *argv, size_t size, char hash[65]) {
        _cleanup_(run_free) Run r = {0};
        int p[2], result[2];
        CommandRequest request = {.instance = "test", .channel = channel, .done = run_done, .userdata = &r,
                                  .guest = {.verb = verb, .path = "/mnt/home/big", .user = "agent", .argv = argv}};

        if (pipe2(p, O_CLOEXEC) < 0 || pipe2(result, O_CLOEXEC) < 0)
                abort();
        int end = verb == GUEST_WRITE ? 0 : 1;
        if (verb == GUEST_WRITE) {
                feed_pipe(p[1], size);
                p[0] = packed_pipe(p[0]);
        }
        request.fds = (int[]) {p[end], p[end], 2};
        CHECK(command_start(manager, &request, &r.command, NULL) == 0);
        (void) close(p[end]);
        if (verb != GUEST_WRITE)
                digest_pipe(p[0], result[1]);
        loop_wait(&r.done, 60 * USEC_PER_SEC);
        CHECK(r.record.exit == 0);
        if (verb != GUEST_WRITE)
                CHECK(read(result[0], hash, 64) == 64);
        (void) close(result[0]);
        (void) close(result[1]);
}

// Ready, in its group, and yet it does not run before it may; one that ends meanwhile never does.
static void test_held(void) {
        _cleanup_(run_free) Run r = {.request = {.verb = GUEST_RUN, .user = "agent", .held = true, .argv = SHELL("echo ran")}};
        _cleanup_(run_free) Run never = {.request = {.verb = GUEST_RUN, .user = "agent", .held = true, .argv = SHELL("echo ran")}};
        int out, none;

        CHECK(run_start(&r, &out) == 0 && run_start(&never, &none) == 0);
        loop_until(&r.done, 300 * USEC_PER_MSEC);
        CHECK(!r.done && !never.done && command_pid(r.command) == 0);
        command_permit(r.command);
        loop_wait(&r.done, 10 * USEC_PER_SEC);
        run_output(&r, out);
        CHECK(r.record.exit == 0 && strcmp(r.output, "ran\n") == 0);
        command_abandon(never.command, 0);
        loop_wait(&never.done, 10 * USEC_PER_SEC);
        run_output(&never, none);
        CHECK(never.record.cancelled && strcmp(never.output, "") == 0);
}

static void test_volume(void) {
        static const size_t size = (size_t) 200 << 20;
        char hash[3][65] = {{0}};
        int p[2], result[2];
        usec_t begin = clock_monotonic();

        if (pipe2(p, O_CLOEXEC) < 0 || pipe2(result, O_CLOEXEC) < 0)
                abort();
        feed_pipe(p[1], size);
        digest_pipe(p[0], result[1]);
        CHECK(read(result[0], hash[0], 64) == 64);
        transfer(GUEST_WRITE, NULL, size, NULL);
        transfer(GUEST_READ, NULL, size, hash[1]);
        transfer(GUEST_RUN, (char *[]) {"cat", "/mnt/home/big", NULL}, size, hash[2]);
        CHECK(strcmp(hash[0], hash[1]) == 0 && strcmp(hash[0], hash[2]) == 0);
        printf("200 MB pushed, pulled and piped in %.1f s\n", (double) (clock_monotonic() - begin) / 1e6);
        CHECK(shell_gives("rm big; ls -A", "agent", ""));
}

static void test_race(void) {
        char canary[] = "/tmp/hostd-guest-canary.XXXXXX", script[512];
        _cleanup_close_ int fd = mkstemp(canary);
        _cleanup_free_ char *text = NULL;
        _cleanup_(run_free) Run racer = {0};
        unsigned rounds = 0, leaks = 0, passed_before;
        int out;
        usec_t end = clock_monotonic() + 6 * USEC_PER_SEC;

        CHECK(fd >= 0 && write(fd, "HOSTSECRET", 10) == 10);
        (void) snprintf(script, sizeof(script),
                        "chdir '/mnt/race'; mkdir 'd'; for (;;) { symlink '%s', 's'; rename 's', 'f'; symlink '/mnt', 'sd'; rename 'd', 'x'; "
                        "rename 'sd', 'd'; open F, '>t'; close F; rename 't', 'f'; unlink 'd'; rename 'x', 'd'; }", canary);
        char *argv[] = {"perl", "-e", script, NULL};
        racer.request = (GuestRequest) {.verb = GUEST_RUN, .argv = argv};
        CHECK(run_start(&racer, &out) == 0);
        loop_for(50 * USEC_PER_MSEC);
        CHECK(!racer.done);
        box_lazy = true;
        passed_before = passed;
        for (; rounds < 10000 && clock_monotonic() < end; rounds++) {
                static const char *const paths[] = {"/mnt/race/f", "/mnt/race/d/f"};
                _cleanup_(run_free) Run r = {.input = "pushed", .request = {.verb = rounds & 1 ? GUEST_READ : GUEST_WRITE, .path = paths[(rounds >> 1) & 1]}};
                run(&r);
                leaks += r.output && strstr(r.output, "HOSTSECRET");
        }
        box_lazy = false;
        passed = passed_before; // all rounds are one test
        command_detach(racer.command);
        (void) close(out);
        CHECK(leaks == 0);
        CHECK(io_read_file(AT_FDCWD, canary, 100, &text, NULL) == 0 && strcmp(text, "HOSTSECRET") == 0);
        printf("%u pushes and pulls against a racer\n", rounds);
        (void) unlink(canary);
        loop_for(200 * USEC_PER_MSEC);
}

static void test_login(void) {
        char *env[] = {"A=it's; $(id)", NULL}, *argv[] = {"sh", "-c", "echo \"$A|$1|$HOME|$PWD\"", "x", "a 'b'\n$c", NULL};
        _cleanup_(run_free) Run r = {.timeout = 10 * USEC_PER_SEC, .request = {.verb = GUEST_LOGIN, .user = "agent", .env = env, .argv = argv, .cwd = "/mnt"}};

        run(&r);
        if (r.record.exit != 0 && r.output && strstr(r.output, "su:")) {
                printf("SKIP: login: su does not work in this namespace: %s", r.output);
                skipped++;
                return;
        }
        CHECK(r.record.exit == 0 && strcmp(r.output, "it's; $(id)|a 'b'\n$c|/mnt/home|/mnt\n") == 0);
        if (r.record.exit != 0)
                fprintf(stderr, "login: exit %d: %s %s\n", r.record.exit, r.record.message ?: "", r.output ?: "");
}

static void channel_open(int fd) {
        GuestChannelConfig config = {.event = event, .fd = fd, .handlers = &command_guest_handlers};
        CommandManagerConfig commands = {.event = event, .ask = on_ask};

        if (command_manager_new(&commands, &manager) < 0)
                abort();
        config.userdata = manager;
        if (guest_channel_new(&config, &channel, NULL) < 0)
                abort();
}

static void channel_close(void) {
        manager = command_manager_free(manager);
        channel = guest_channel_free(channel);
}

// The last fifty, for everybody inside. Whatever the guest put in the file's place, the helper goes on.
static void test_denied(void) {
        bool there = false;

        for (int i = 0; i < 55; i++) {
                char text[32];
                (void) snprintf(text, sizeof(text), "denial %d", i);
                guest_channel_denied(channel, text);
        }
        guest_channel_denied(channel, "not\na line");
        for (int i = 0; i < 100 && !there; i++) {
                loop_for(50 * USEC_PER_MSEC);
                there = shell_gives("tail -n 1 /run/hostd/denied", "agent", "denial 54\n");
        }
        CHECK(there);
        CHECK(shell_gives("wc -l </run/hostd/denied; head -n 1 /run/hostd/denied; stat -c %a:%U /run/hostd/denied; ls /run/hostd", "agent",
                          "50\ndenial 5\n644:root\nask.sock\ndenied\nhostd-guest\n"));
        CHECK(shell_gives("rm -r /run/hostd; mkfifo /run/hostd", NULL, ""));
        guest_channel_denied(channel, "denial 55");
        loop_for(200 * USEC_PER_MSEC);
        CHECK(shell_gives("rm /run/hostd; mkdir -p /run/hostd/denied; echo x", NULL, "x\n"));
        guest_channel_denied(channel, "denial 56");
        loop_for(200 * USEC_PER_MSEC);
        CHECK(shell_gives("rm -r /run/hostd; echo x", NULL, "x\n"));
        guest_channel_denied(channel, "denial 57");
        there = false;
        for (int i = 0; i < 100 && !there; i++) {
                loop_for(50 * USEC_PER_MSEC);
                there = shell_gives("tail -n 3 /run/hostd/denied", "agent", "denial 55\ndenial 56\ndenial 57\n");
        }
        CHECK(there);
}

// hostd dies and comes back: what ran goes on, what ended meanwhile is told, what nobody remembers is stopped.
static void test_reconnect(int fd) {
        static const char *const scripts[] = {"sleep 1; exit 7", "sleep 0.2; exit 8", "sleep 100", "sleep 100"};
        Run runs[ELEMENTS(scripts)];
        char *lines[ELEMENTS(scripts)];
        int outs[ELEMENTS(scripts)];
        Command *command;

        for (size_t i = 0; i < ELEMENTS(scripts); i++) {
                runs[i] = (Run) {.request = {.verb = GUEST_RUN, .argv = SHELL(scripts[i])}};
                CHECK(run_start(&runs[i], &outs[i]) == 0);
        }
        for (size_t i = 0; i < ELEMENTS(scripts); i++)
                for (int tries = 0; tries < 500 && command_pid(runs[i].command) == 0; tries++)
                        loop_for(10 * USEC_PER_MSEC);
        for (size_t i = 0; i < ELEMENTS(scripts); i++)
                CHECK(command_serialize(runs[i].command, &lines[i]) == 0);
        channel_close();
        (void) usleep(300000);
        channel_open(fcntl(fd, F_DUPFD_CLOEXEC, 3));
        for (size_t i = 0; i < 3; i++) { // the fourth is forgotten
                CHECK(command_restore(manager, lines[i], channel, &command, NULL) == 0);
                if (i < 2)
                        CHECK(command_attach(command, run_done, &runs[i]) == 0);
        }
        CHECK(command_restore(manager, "1\tbroken", channel, &command, NULL) < 0);
        for (size_t i = 0; i < 2; i++) {
                loop_wait(&runs[i].done, 5 * USEC_PER_SEC);
                CHECK(runs[i].record.exit == (i == 0 ? 7 : 8));
        }
        command = command_next(manager, NULL);
        CHECK(command && strcmp(command_instance(command), "test") == 0 && strcmp(command_text(command), "sh -c sleep 100") == 0);
        if (command)
                command_detach(command);
        loop_for(300 * USEC_PER_MSEC);
        for (int i = 0; i < 50 && guest_channel_ignored(channel) < 3; i++)
                loop_for(100 * USEC_PER_MSEC);
        // LIVE and EXITED of the fourth, EXITED of the third. The second ended while nobody listened: that is told twice and no mistake.
        CHECK(guest_channel_ignored(channel) == 3);
        for (size_t i = 0; i < ELEMENTS(scripts); i++) {
                free(lines[i]);
                (void) close(outs[i]);
                run_free(&runs[i]);
        }
}

static int compare_usec(const void *a, const void *b) {
        usec_t x = *(const usec_t *) a, y = *(const usec_t *) b;

        return x < y ? -1 : x > y;
}

static void measure(const char *what) {
        static usec_t samples[1000];
        size_t n = ELEMENTS(samples) / MIN2(slow(), 20U);

        for (size_t i = 0; i < n; i++) {
                Run r = {.request = {.verb = GUEST_RUN, .user = "agent", .argv = (char *[]) {"/bin/true", NULL}}};
                usec_t begin = clock_monotonic();
                int out;
                if (run_start(&r, &out) < 0)
                        return;
                while (!r.done)
                        (void) sd_event_run(event, USEC_PER_SEC);
                samples[i] = clock_monotonic() - begin;
                (void) close(out);
                run_free(&r);
        }
        qsort(samples, n, sizeof(samples[0]), compare_usec);
        printf("exec true, %s: p50 %.3f ms, p99 %.3f ms\n", what, (double) samples[n / 2] / 1000, (double) samples[n * 99 / 100] / 1000);
}

static bool box_open(void) {
        static const char *const roots[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};

        (void) snprintf(box_name, sizeof(box_name), "hostd-guest-%d", (int) getpid());
        for (size_t i = 0; i < ELEMENTS(roots); i++) {
                (void) snprintf(box_path, sizeof(box_path), "%s/cgroup.procs", roots[i]);
                if (access(box_path, F_OK) < 0)
                        continue;
                (void) snprintf(box_path, sizeof(box_path), "%s/%s", roots[i], box_name);
                if (mkdir(box_path, 0755) == 0 && (box_dir = open(box_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0)
                        return mkdirat(box_dir, "guest", 0755) == 0 && mkdirat(box_dir, "login", 0755) == 0;
        }
        return false;
}

static void box_close(void) {
        (void) io_write_file(box_dir, "cgroup.kill", "1");
        for (int i = 0; i < 500 && rmdir(box_path) < 0; i++) {
                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
                (void) unlinkat(box_dir, "guest", AT_REMOVEDIR);
                (void) unlinkat(box_dir, "login", AT_REMOVEDIR);
                (void) usleep(10000);
        }
}

int main(int argc, char **argv) {
        int fd = -EBADF;

        if (argc < 2 || geteuid() != 0 || !box_open()) {
                printf("SKIP: needs root, cgroup v2 and the path of hostd-guest\n0 passed, 0 failed, 1 skipped\n");
                return 0;
        }
        (void) signal(SIGPIPE, SIG_IGN);
        if (sd_event_default(&event) < 0 || instance_start(argv[1], &fd) < 0) {
                printf("SKIP: no user, pid and mount namespaces here\n0 passed, 0 failed, 1 skipped\n");
                box_close();
                return 0;
        }
        channel_open(fcntl(fd, F_DUPFD_CLOEXEC, 3));
        test_exit();
        test_surroundings();
        test_ends();
        test_many();
        test_files();
        test_range();
        test_lists();
        test_mkdir();
        test_modes();
        test_move();
        test_replace();
        test_write();
        test_watch();
        test_deliver();
        test_torn();
        test_owner();
        test_tree();
        test_terminal();
        test_terminal_volume();
        test_terminal_ends();
        test_terminal_without_devpts();
        test_login();
        test_held();
        test_volume();
        test_race();
        test_ask();
        test_sandbox();
        test_denied();
        printf("%llu packets ignored so far\n", (unsigned long long) guest_channel_ignored(channel)); // told late, of commands that were killed
        test_reconnect(fd);
        measure("with its cgroup");
        box_lazy = true;
        measure("left in the helper's cgroup");
        box_lazy = false;
        loop_for(300 * USEC_PER_MSEC);
        CHECK(box_is_empty());
        channel_close();
        box_close();
        (void) close(fd);
        printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
        return failed > 0;
}
