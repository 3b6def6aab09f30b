// SPDX-License-Identifier: GPL-2.0-or-later
// Supervisor: one loop over the control socket, SIGCHLD and a few clocks. It keeps what must outlive hostd: the mount namespace,
// the guest channel, the way to ask init to stop. liblxc runs in its monitor child; when this process dies, by whatever
// cause, the kernel kills the monitor (PDEATHSIG), then init by the monitor's, then everything in init's namespaces.
//
// Whether init runs is read from the kernel: the monitor's child that is pid 1 of a namespace and has lost PF_FORKNOEXEC.
#include "instance/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/log.h"
#include "instance/attach.h"
#include "instance/confine.h"
#include "instance/container.h"
#include "instance/netns.h"
#include "instance/rootfs.h"

#define PF_FORKNOEXEC 0x00000040u // <linux/sched.h> of the kernel; part of the /proc ABI as "flags"
#define START_POLL 300ULL // usec; a start has two moments that are only seen by looking
#define START_POLL_FOR (200 * USEC_PER_MSEC)
#define START_POLL_SLOW (5 * USEC_PER_MSEC)
#define START_TIMEOUT (60 * USEC_PER_SEC)
#define HALT_POLL (50 * USEC_PER_MSEC) // while init is deaf
#define HALT_AGAIN (1 * USEC_PER_SEC)
#define BACKOFF_MIN (100 * USEC_PER_MSEC)
#define BACKOFF_MAX (10 * USEC_PER_SEC)
#define GUEST_STABLE (30 * USEC_PER_SEC)
#define LINGER (1 * USEC_PER_SEC) // for a hostd that has not connected yet

static const char *const target_names[] = {"none", "halt", "reboot", "crash", "terminated"};

static void supervisor_done(Supervisor *s) {
        int *fds[] = {&s->run_fd, &s->listen_fd, &s->signal_fd, &s->init_pidfd, &s->plug_fd, &s->binary, &s->guest_channel};

        for (size_t i = 0; i < ELEMENTS(fds); i++)
                *fds[i] = close_fd(*fds[i]);
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                s->clients[i].fd = close_fd(s->clients[i].fd);
        instance_spec_done(&s->spec);
}

static void supervisor_failed(Supervisor *s, const char *text) {
        if (s->failure[0])
                return;
        (void) snprintf(s->failure, sizeof(s->failure), "%.*s", (int) sizeof(s->failure) - 1, text);
        (void) io_write_atomic(s->run_fd, "error", s->failure, strlen(s->failure), 0600); // for a hostd that comes later
        control_send_error(s, NULL);
        log_event(LOG_ERR, LOG_ID_INSTANCE_FAILED, s->spec.name, "%s", text);
}

// init and hostd-guest get their limit from inside the user namespace, where nobody may go above the hard limit they inherit.
static int raise_open_files(const InstanceSpec *spec, Error *err) {
        struct rlimit now;

        if (spec->open_files == UINT64_MAX || getrlimit(RLIMIT_NOFILE, &now) < 0 || now.rlim_max >= spec->open_files)
                return 0;
        struct rlimit wanted = {now.rlim_cur, spec->open_files};
        if (setrlimit(RLIMIT_NOFILE, &wanted) < 0)
                return error_set_errno(err, errno, "open_files: this host allows only %llu open files", (unsigned long long) now.rlim_max);
        return 0;
}

// A person who types "systemctl start" must learn what to type instead.
static int not_prepared(const char *run_dir, const char *what, Error *err) {
        const char *name = strrchr(run_dir, '/') ?: run_dir;

        return error_set(err, ERR_UNAVAILABLE, "%s %s: limits, network and disk of an instance are made by hostd before it runs, so it is started by \"hostctl start %s\"",
                         what, run_dir, name + (*name == '/'));
}

// What hostd has prepared is good for one start. Another one would come without a network, or into what hostd is removing.
static int take_spec(Supervisor *s, const char *run_dir, Error *err) {
        _cleanup_close_ int fd = openat(s->run_fd, "started", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd >= 0)
                return 0;
        return errno == EEXIST ? not_prepared(run_dir, "there was a start already with", err) : error_set_errno(err, errno, "marking the start");
}

// The run directory is named by hostd, and all else hangs on it: it must be root's alone.
static int open_run_dir(Supervisor *s, const char *run_dir, Error *err) {
        struct stat given, named;
        char path[4200];
        int r;

        s->run_fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (s->run_fd < 0 && errno == ENOENT)
                return not_prepared(run_dir, "there is no", err);
        if (s->run_fd < 0 || fstat(s->run_fd, &given) < 0)
                return error_set_errno(err, errno, "opening %s", run_dir);
        if (given.st_uid != 0 || (given.st_mode & 0077))
                return error_set(err, ERR_INVALID, "%s must belong to root and have mode 0700", run_dir);
        if (snprintf(path, sizeof(path), "%s/spec.json", run_dir) >= (int) sizeof(path))
                return error_set(err, ERR_INVALID, "the run directory's name is too long");
        r = instance_spec_load(path, &s->spec, err);
        if (r < 0)
                return r;
        if (stat(s->spec.run_dir, &named) < 0 || named.st_dev != given.st_dev || named.st_ino != given.st_ino)
                return error_set_field(err, "run_dir", "the spec names another directory than %s", run_dir);
        r = take_spec(s, run_dir, err);
        if (r < 0)
                return r;
        if (s->spec.apparmor_profile && access("/sys/kernel/security/apparmor", F_OK) < 0)
                return error_set(err, ERR_DEGRADED, "AppArmor profile %s is asked for, but this kernel has no AppArmor",
                                 s->spec.apparmor_profile);
        return raise_open_files(&s->spec, err);
}

static int setup_signals(Supervisor *s, Error *err) {
        static const int handled[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
        sigset_t mask;

        (void) sigemptyset(&mask);
        for (size_t i = 0; i < ELEMENTS(handled); i++)
                (void) sigaddset(&mask, handled[i]);
        s->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
        if (s->signal_fd < 0 || sigprocmask(SIG_SETMASK, &mask, NULL) < 0)
                return error_set_errno(err, errno, "setting up signals");
        return 0;
}

static int start_monitor(Supervisor *s, Error *err) {
        _cleanup_close_ int plug = -EBADF;
        pid_t parent = getpid(), pid;
        int p[2];

        if (s->spec.network) {
                if (pipe2(p, O_CLOEXEC) < 0)
                        return error_set_errno(err, errno, "making the pipe that init waits for");
                plug = p[0];
                s->plug_fd = p[1];
        }
        pid = fork();
        if (pid < 0)
                return error_set_errno(err, errno, "forking the monitor");
        if (pid == 0) {
                sigset_t none;
                s->plug_fd = close_fd(s->plug_fd); // else it would wait for itself
                (void) sigemptyset(&none);
                (void) sigprocmask(SIG_SETMASK, &none, NULL);
                container_monitor(&s->spec, parent, plug);
        }
        s->monitor = pid;
        s->started = clock_monotonic();
        return 0;
}

// True if `pid` is pid 1 of a namespace below ours and runs what it was made for.
static bool is_running_init(pid_t pid) {
        _cleanup_free_ char *status = NULL, *stat_text = NULL;
        char path[64];
        unsigned flags;

        (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
        if (io_read_file(AT_FDCWD, path, 64 * 1024, &status, NULL) < 0)
                return false;
        char *line = strstr(status, "\nNSpid:");
        if (!line)
                return false;
        line += strlen("\nNSpid:");
        line[strcspn(line, "\n")] = 0;
        const char *last = strrchr(line, '\t');
        if (!last || last == line || strcmp(last, "\t1") != 0)
                return false;
        (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        if (io_read_file(AT_FDCWD, path, 4096, &stat_text, NULL) < 0)
                return false;
        const char *after = strrchr(stat_text, ')'); // the name before may hold anything
        return after && sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && !(flags & PF_FORKNOEXEC);
}

// The first child of the monitor that passes.
static pid_t find_child(const Supervisor *s, bool (*passes)(const Supervisor *s, pid_t pid)) {
        _cleanup_free_ char *text = NULL;
        char path[64], *save = NULL;

        (void) snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int) s->monitor, (int) s->monitor);
        if (io_read_file(AT_FDCWD, path, 64 * 1024, &text, NULL) < 0)
                return 0;
        for (char *part = strtok_r(text, " \n", &save); part; part = strtok_r(NULL, " \n", &save)) {
                pid_t pid = (pid_t) strtol(part, NULL, 10);
                if (passes(s, pid))
                        return pid;
        }
        return 0;
}

static bool runs(const Supervisor *s, pid_t pid) {
        return is_running_init(pid);
}

static bool has_netns(const Supervisor *s, pid_t pid) {
        _cleanup_close_ int netns = -EBADF;

        return netns_open(pid, s->spec.id_base, s->spec.id_count, &netns, NULL) >= 0;
}

static void guest_start(Supervisor *s) {
        _cleanup_error_ Error err = ERROR_NULL;
        usec_t now = clock_monotonic();
        int r;

        s->guest_retry = USEC_INFINITY;
        r = guest_spawn(&s->spec, s->init, s->init_pidfd, s->binary, &s->guest_channel, &err);
        if (r < 0) {
                log_event(LOG_WARNING, NULL, s->spec.name, "%s", error_message(&err, r));
                s->guest_backoff = MIN2(MAX2(s->guest_backoff * 2, BACKOFF_MIN), BACKOFF_MAX);
                s->guest_retry = now + s->guest_backoff;
                return;
        }
        s->guest = r;
        s->guest_started = now;
        control_send_guest(s, NULL);
}

static void guest_died(Supervisor *s, int status) {
        usec_t now = clock_monotonic();

        s->guest = 0;
        s->guest_channel = close_fd(s->guest_channel);
        control_send_guest(s, NULL); // pid 0 and no descriptor: it is gone
        if (s->stopping || s->state != CONTROL_STATE_RUNNING)
                return;
        log_event(LOG_WARNING, NULL, s->spec.name, "the guest helper died (%s %d)", WIFSIGNALED(status) ? "signal" : "exit",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        if (now - s->guest_started > GUEST_STABLE)
                s->guest_backoff = 0;
        s->guest_backoff = MIN2(MAX2(s->guest_backoff * 2, BACKOFF_MIN), BACKOFF_MAX);
        s->guest_retry = now + s->guest_backoff;
}

// Until init has its interface it cannot run. hostd makes it as soon as there is a namespace to make it in, while liblxc is busy with
// the rest.
static pid_t watch_plug(Supervisor *s) {
        if (s->plug_pid == 0 && (s->plug_pid = find_child(s, has_netns)) > 0)
                control_send_plug(s, NULL);
        return 0;
}

void supervisor_plugged(Supervisor *s) {
        static const char go[] = "go\n";

        if (s->plug_fd < 0 || s->plug_pid == 0)
                return;
        (void) io_write_all(s->plug_fd, go, strlen(go)); // an empty pipe takes three bytes
        s->plug_fd = close_fd(s->plug_fd);
        s->plugged = true;
}

static void watch_start(Supervisor *s) {
        _cleanup_error_ Error err = ERROR_NULL;
        pid_t pid = s->spec.network && !s->plugged ? watch_plug(s) : find_child(s, runs);

        if (pid <= 0) {
                if (clock_monotonic() - s->started > START_TIMEOUT) {
                        supervisor_failed(s, "init did not run within 60 s");
                        (void) kill(s->monitor, SIGKILL);
                }
                return;
        }
        s->init = pid;
        s->init_pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        // The pid may have been reused between the look and the open: look again with the descriptor held.
        if (s->init_pidfd < 0 || !is_running_init(pid)) {
                s->init_pidfd = close_fd(s->init_pidfd);
                s->init = 0;
                return;
        }
        // liblxc must have done what it was told; a container without its filter or profile does not go on.
        if (confine_await("/proc", s->init, s->spec.apparmor_profile, "init", &err) < 0) {
                supervisor_failed(s, error_message(&err, -EPERM));
                (void) kill(s->monitor, SIGKILL);
                return;
        }
        s->state = CONTROL_STATE_RUNNING;
        control_send_state(s, NULL);
        control_notify("STATUS=Runs, init is process %d", (int) pid);
        log_event(LOG_INFO, LOG_ID_INSTANCE_STARTED, s->spec.name, "init runs as process %d", (int) pid);
        guest_start(s);
}

void supervisor_request_stop(Supervisor *s) {
        if (s->stopping)
                return;
        s->stopping = true;
        s->next_halt = 0;
        control_notify("STOPPING=1\nSTATUS=The guest is asked to shut down");
}

// By SIGTERM: systemctl, or the shutdown of the host, when hostd is gone already.
static void terminate(Supervisor *s) {
        if (s->stopping)
                return;
        s->terminated = true;
        if (s->spec.stop_seconds > 0)
                s->kill_at = clock_monotonic() + s->spec.stop_seconds * USEC_PER_SEC;
        log_event(LOG_NOTICE, NULL, s->spec.name, "SIGTERM: the guest is asked to shut down");
        supervisor_request_stop(s);
}

static void kill_late(Supervisor *s) {
        s->kill_at = USEC_INFINITY;
        log_event(LOG_WARNING, NULL, s->spec.name, "did not shut down within %u s and is killed", (unsigned) s->spec.stop_seconds);
        (void) kill(s->monitor, SIGKILL); // takes init along
}

static void halt_again(Supervisor *s) {
        usec_t now = clock_monotonic();

        if (s->state != CONTROL_STATE_RUNNING) { // not yet: the signal would be lost
                s->next_halt = now + HALT_POLL;
                return;
        }
        int number = halt_signal("/proc", s->init, s->blind);
        s->next_halt = now + (number == HALT_SIGNAL_SYSTEMD ? HALT_AGAIN : HALT_POLL);
        if (number == 0 || (number != HALT_SIGNAL_SYSTEMD && now < s->next_blind))
                return;
        if (number != HALT_SIGNAL_SYSTEMD) {
                s->next_blind = now + HALT_AGAIN;
                s->blind++;
        }
        (void) syscall(SYS_pidfd_send_signal, s->init_pidfd, number, NULL, 0);
}

static void monitor_ended(Supervisor *s, int status) {
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        char text[160], sentence[sizeof(s->failure)];

        s->monitor = 0;
        if (s->state == CONTROL_STATE_STARTING && code != MONITOR_HALT && code != MONITOR_REBOOT) {
                container_log_tail(s->run_fd, text, sizeof(text));
                (void) snprintf(sentence, sizeof(sentence), "the container did not start%s%s", text[0] ? ": " : "", text);
                supervisor_failed(s, sentence);
        }
        s->target = s->terminated          ? CONTROL_TARGET_TERMINATED
                    : s->stopping          ? CONTROL_TARGET_HALT
                    : code == MONITOR_HALT   ? CONTROL_TARGET_HALT
                    : code == MONITOR_REBOOT ? CONTROL_TARGET_REBOOT
                                             : CONTROL_TARGET_CRASH;
        s->state = CONTROL_STATE_STOPPED;
        (void) io_write_atomic(s->run_fd, "target", target_names[s->target], strlen(target_names[s->target]), 0600);
        control_send_state(s, NULL);
        log_event(LOG_INFO, LOG_ID_INSTANCE_STOPPED, s->spec.name, "init is gone (%s)", target_names[s->target]);
}

static void reap(Supervisor *s) {
        int status;

        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
                if (pid == s->monitor)
                        monitor_ended(s, status);
                else if (pid == s->guest)
                        guest_died(s, status);
                else
                        control_console_ended(s, pid);
        }
}

static void read_signals(Supervisor *s) {
        struct signalfd_siginfo info;

        while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
                if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
                        terminate(s);
        }
        reap(s);
}

// Until the next clock. SIGCHLD may arrive after the last reap, but the descriptor remembers it.
static usec_t next_timeout(const Supervisor *s) {
        usec_t now = clock_monotonic(), next = MIN2(MIN2(s->next_halt, s->kill_at), s->guest_retry);

        if (s->state == CONTROL_STATE_STARTING && s->monitor > 0)
                next = MIN2(next, now + (now - s->started < START_POLL_FOR ? START_POLL : START_POLL_SLOW));
        return next == USEC_INFINITY ? USEC_INFINITY : next <= now ? 0 : next - now;
}

static void wait_once(Supervisor *s, usec_t timeout) {
        struct pollfd fds[2 + CLIENTS_MAX] = {{.fd = s->signal_fd, .events = POLLIN}, {.fd = s->listen_fd, .events = POLLIN}};
        struct timespec wait = {.tv_sec = (time_t) (timeout / USEC_PER_SEC), .tv_nsec = (long) (timeout % USEC_PER_SEC * 1000)};

        for (size_t i = 0; i < CLIENTS_MAX; i++)
                fds[2 + i] = (struct pollfd) {.fd = s->clients[i].fd, .events = POLLIN};
        if (ppoll(fds, ELEMENTS(fds), timeout == USEC_INFINITY ? NULL : &wait, NULL) <= 0)
                return;
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                if (fds[2 + i].revents && s->clients[i].fd == fds[2 + i].fd)
                        control_receive(s, &s->clients[i]);
        if (fds[1].revents)
                control_accept(s);
        if (fds[0].revents)
                read_signals(s);
}

static void loop(Supervisor *s) {
        while (s->monitor > 0) {
                wait_once(s, next_timeout(s));
                usec_t now = clock_monotonic();
                if (s->monitor > 0 && s->state == CONTROL_STATE_STARTING)
                        watch_start(s);
                if (s->monitor > 0 && s->next_halt <= now)
                        halt_again(s);
                if (s->monitor > 0 && s->kill_at <= now)
                        kill_late(s);
                if (s->monitor > 0 && s->state == CONTROL_STATE_RUNNING && s->guest_retry <= now)
                        guest_start(s);
        }
}

// Whoever connects has written the limits first.
static int await_hostd(Supervisor *s, Error *err) {
        usec_t end = clock_monotonic() + 30 * USEC_PER_SEC;

        while (!control_has_client(s)) {
                if (s->stopping)
                        return error_set(err, ERR_CANCELLED, "it was stopped before it began");
                if (clock_monotonic() >= end)
                        return error_set(err, ERR_TIMEOUT, "hostd did not connect within 30 s: without it there are no limits");
                wait_once(s, 20 * USEC_PER_MSEC);
        }
        return 0;
}

static int supervisor_start(Supervisor *s, const char *run_dir, Error *err) {
        int r = open_run_dir(s, run_dir, err);

        if (r == 0) {
                r = confine_session_keyring();
                if (r < 0)
                        return error_set_errno(err, r, "making a session keyring");
        }
        if (r == 0)
                r = setup_signals(s, err);
        if (r == 0)
                r = control_listen(s, err);
        // Whatever fails from here on is told to hostd through that socket; before it, "systemctl start" is to fail.
        if (r == 0)
                control_notify("READY=1\nSTATUS=Starting");
        if (r == 0)
                r = rootfs_private_mounts(err);
        if (r == 0)
                r = rootfs_assemble(&s->spec, err);
        if (r == 0 && s->spec.wait_for_hello)
                r = await_hostd(s, err);
        if (r == 0)
                r = start_monitor(s, err);
        if (r == 0) { // while liblxc works; if it is missing, the monitor ends with us
                s->binary = guest_binary_load(err);
                r = MIN2(s->binary, 0);
        }
        return r;
}

// A failure that nobody has heard waits a moment for a hostd that is about to connect.
static void linger(Supervisor *s) {
        usec_t end = clock_monotonic() + LINGER;

        while (s->listen_fd >= 0 && !control_has_client(s) && clock_monotonic() < end)
                wait_once(s, 20 * USEC_PER_MSEC);
}

int supervisor_run(const char *run_dir) {
        _cleanup_(supervisor_done) Supervisor s = SUPERVISOR_NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        for (size_t i = 0; i < CLIENTS_MAX; i++)
                s.clients[i].fd = -EBADF;
        r = supervisor_start(&s, run_dir, &err);
        if (r < 0) {
                if (s.monitor > 0)
                        (void) kill(s.monitor, SIGKILL);
                if (s.run_fd < 0)
                        log_error("%s", error_message(&err, r));
                else
                        supervisor_failed(&s, error_message(&err, r));
                s.state = CONTROL_STATE_STOPPED;
                s.target = CONTROL_TARGET_CRASH;
                control_send_state(&s, NULL);
        } else
                loop(&s);
        if (s.failure[0])
                linger(&s);
        return r < 0 || s.failure[0] ? EXIT_FAILURE : EXIT_SUCCESS;
}
