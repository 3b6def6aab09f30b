// SPDX-License-Identifier: GPL-2.0-or-later
// Container: liblxc configuration and start.
//
// Every value comes from the checked spec or is a constant here; there is no include, no default file and no raw key.
// The lxc name is made from the slot, so that the operator's string is nothing but the host name inside.
//
// A reboot from inside must pass through hostd, which applies all host state again, so liblxc must not restart by itself: a
// post-stop hook that fails turns the reboot into a stop. How init died tells which it was.
#include "instance/container.h"

#include <lxc/lxccontainer.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/log.h"
#include "instance/rootfs.h"
#include "instance/seccomp.h"

#define LOG_TAIL_MAX (256 * 1024)

static const struct {
        const char *key, *value;
} config_fixed[] = {
        {"lxc.rootfs.path", "dir:" ROOTFS_PATH},
        {"lxc.rootfs.mount", ROOTFS_PIVOT},
        {"lxc.rootfs.managed", "0"},
        {"lxc.mount.auto", "proc:mixed sys:mixed"},
        // One v2 hierarchy inside, also on a hybrid host: systemd from 256 on refuses v1, and v1 gives a guest nothing it
        // may use. The mount is made in the guest's own control group namespace.
        {"lxc.mount.entry", "cgroup2 sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec 0 0"},
        // The kernel lets a nested user namespace mount proc and sysfs only where an unmasked one is visible already.
        {"lxc.mount.entry", "proc dev/.lxc/proc proc create=dir,optional 0 0"},
        {"lxc.mount.entry", "sys dev/.lxc/sys sysfs create=dir,optional 0 0"},
        {"lxc.mount.entry", ROOTFS_DEVICES "/fuse dev/fuse none bind,create=file 0 0"},
        {"lxc.mount.entry", ROOTFS_DEVICES "/tun dev/net/tun none bind,create=file 0 0"},
        {"lxc.mount.entry", "mqueue dev/mqueue mqueue rw,nosuid,nodev,noexec,create=dir,optional 0 0"},
        {"lxc.autodev", "1"},
        {"lxc.pty.max", "1024"},
        {"lxc.tty.max", "0"},
        {"lxc.console.buffer.size", "131072"},
        {"lxc.console.size", "1048576"},
        {"lxc.console.rotate", "1"},
        {"lxc.signal.halt", "SIGRTMIN+3"},
        {"lxc.hook.post-stop", "/bin/false"},
        {"lxc.cgroup.relative", "0"},
        // Stacks ours upon whatever filter this process has, instead of leaving ours out.
        {"lxc.seccomp.allow_nesting", "1"},
        {"lxc.log.level", "WARN"},
};

// What a guest with a read-only root must still be able to write; lost at stop.
static const char *const config_read_only[] = {
        "tmpfs run tmpfs rw,nosuid,nodev,mode=755,size=20%,create=dir 0 0",
        "tmpfs tmp tmpfs rw,nosuid,nodev,mode=1777,size=50% 0 0",
        "tmpfs var/tmp tmpfs rw,nosuid,nodev,mode=1777,size=50%,optional 0 0",
        "tmpfs var/log tmpfs rw,nosuid,nodev,mode=755,size=5%,optional 0 0",
        "tmpfs var/cache tmpfs rw,nosuid,nodev,mode=755,size=20%,optional 0 0",
        "tmpfs var/lib/systemd tmpfs rw,nosuid,nodev,mode=755,size=5%,optional 0 0",
};

static _printf_(3, 4) int set(struct lxc_container *c, const char *key, const char *format, ...) {
        char value[8192];
        va_list ap;

        va_start(ap, format);
        int n = vsnprintf(value, sizeof(value), format, ap);
        va_end(ap);
        if (n < 0 || (size_t) n >= sizeof(value) || strpbrk(value, "\n\r"))
                return -EINVAL;
        if (!c->set_config_item(c, key, value)) {
                log_error("liblxc refuses %s = %s", key, value);
                return -EINVAL;
        }
        return 0;
}

// The hook runs when everything else of the container is there, and its init is held back until it ends. Its standard input is this
// process's, a pipe whose other end the supervisor holds alone: its death is an end of file and fails the start. liblxc writes "exec "
// in front of the line (an exec without a command only redirects) and words behind it, which are a comment to the shell.
#define WAIT_FOR_PLUG "<&0; read -r word && [ \"$word\" = go ] #"

// liblxc moves no device: hostd makes one in the namespace, which spares the waits of a move.
static int config_network(struct lxc_container *c, const InstanceSpec *spec) {
        int r = set(c, "lxc.net.0.type", "empty");

        if (spec->network)
                r |= set(c, "lxc.hook.start-host", "%s", WAIT_FOR_PLUG);
        return r;
}

static int config_limits(struct lxc_container *c, const InstanceSpec *spec) {
        int r = 0;

        r |= set(c, "lxc.idmap", "u 0 %u %u", spec->id_base, spec->id_count);
        r |= set(c, "lxc.idmap", "g 0 %u %u", spec->id_base, spec->id_count);
        r |= set(c, "lxc.cgroup.dir.monitor", "%s/monitor", spec->cgroup_prefix);
        r |= set(c, "lxc.cgroup.dir.container", "%s/box/payload", spec->cgroup_prefix);
        r |= set(c, "lxc.seccomp.profile", "%s/seccomp", spec->run_dir);
        if (spec->open_files != UINT64_MAX)
                r |= set(c, "lxc.prlimit.nofile", "%llu", (unsigned long long) spec->open_files);
        if (spec->apparmor_profile) {
                r |= set(c, "lxc.apparmor.profile", "%s", spec->apparmor_profile);
                r |= set(c, "lxc.apparmor.allow_nesting", "1");
        } else if (access("/sys/kernel/security/apparmor", F_OK) == 0)
                r |= set(c, "lxc.apparmor.profile", "unconfined"); // hostd decided so; liblxc would pick its own
        return r;
}

static int config_fill(struct lxc_container *c, const InstanceSpec *spec) {
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(config_fixed); i++)
                r |= set(c, config_fixed[i].key, "%s", config_fixed[i].value);
        for (size_t i = 0; spec->read_only && i < ELEMENTS(config_read_only); i++)
                r |= set(c, "lxc.mount.entry", "%s", config_read_only[i]);
        r |= set(c, "lxc.uts.name", "%s", spec->name);
        r |= set(c, "lxc.log.file", "%s/lxc.log", spec->run_dir);
        r |= set(c, "lxc.console.logfile", "%s", spec->log_file);
        r |= config_limits(c, spec);
        r |= config_network(c, spec);
        return r ? -EINVAL : 0;
}

// The files that liblxc would make itself, with its own modes; ours are private.
static int prepare_files(const InstanceSpec *spec) {
        _cleanup_close_ int run = open(spec->run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC), log = -EBADF, console = -EBADF;

        if (run < 0)
                return -errno;
        log = openat(run, "lxc.log", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        console = open(spec->log_file, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (log < 0 || console < 0)
                return -errno;
        return seccomp_write_profile(run, "seccomp", NULL);
}

// lxcpath and name make the address of liblxc's command socket, which all of a network namespace share: the supervisor's pid
// keeps two installations or a test apart.
static struct lxc_container *container_open(const InstanceSpec *spec, pid_t supervisor) {
        char name[32];

        (void) snprintf(name, sizeof(name), "i%04u-%d", spec->slot, (int) supervisor);
        return lxc_container_new(name, ROOTFS_LXC);
}

// A child that outlives nobody. Returns false if the parent is gone already.
static bool child_of(pid_t parent) {
        return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

// reboot(2) in a pid namespace kills init: by SIGHUP for a reboot, by SIGINT for halt and power-off. liblxc reports a death by
// signal in the form of a stop by it (seen with 5.0.2), and a failed start as 1. An init that ends otherwise has crashed.
static int monitor_status(int status) {
        int number = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;

        return number == SIGHUP ? MONITOR_REBOOT : number == SIGINT ? MONITOR_HALT : MONITOR_CRASH;
}

noreturn void container_monitor(const InstanceSpec *spec, pid_t parent, int plug) {
        char init[] = "/sbin/init", *argv[] = {init, NULL};
        struct lxc_container *c;

        if (!child_of(parent) || (plug >= 0 && dup2(plug, STDIN_FILENO) < 0))
                _exit(MONITOR_FAILED);
        // liblxc calls newuidmap wherever it finds one, even as root, and would then depend on /etc/subuid, which hostd
        // itself has checked. Without a PATH it writes the maps directly. Its hook has an absolute path.
        (void) clearenv();
        (void) setenv("PATH", "/nonexistent", 1);
        if (prepare_files(spec) < 0)
                _exit(MONITOR_FAILED);
        c = container_open(spec, parent);
        if (!c)
                _exit(MONITOR_FAILED);
        c->clear_config(c);
        if (config_fill(c, spec) < 0 || !c->want_daemonize(c, false) || !c->want_close_all_fds(c, true))
                _exit(MONITOR_FAILED);
        (void) c->start(c, 0, argv); // its result says nothing after the hook has failed on purpose
        _exit(monitor_status(c->error_num));
}

static bool copy_some(int from, int to) {
        char buffer[4096];
        ssize_t n = read(from, buffer, sizeof(buffer));

        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        return n > 0 && io_write_all(to, buffer, (size_t) n) == 0;
}

noreturn void container_console(const InstanceSpec *spec, pid_t parent, int in, int out) {
        int number = 0, console = -EBADF;
        struct lxc_container *c;
        struct winsize size;

        if (!child_of(parent))
                _exit(1);
        c = container_open(spec, parent);
        if (!c || c->console_getfd(c, &number, &console) < 0 || console < 0)
                _exit(1);
        if (ioctl(in, TIOCGWINSZ, &size) == 0)
                (void) ioctl(console, TIOCSWINSZ, &size);
        for (;;) {
                struct pollfd fds[] = {{.fd = in, .events = POLLIN}, {.fd = console, .events = POLLIN}, {.fd = out}};
                if (poll(fds, ELEMENTS(fds), -1) < 0 && errno != EINTR)
                        _exit(1);
                if (fds[0].revents && !copy_some(in, console))
                        _exit(0);
                if (fds[1].revents && !copy_some(console, out))
                        _exit(0);
                if (fds[2].revents & (POLLERR | POLLHUP | POLLNVAL))
                        _exit(0);
        }
}

void container_log_tail(int run_fd, char *ret, size_t size) {
        _cleanup_free_ char *text = NULL;
        const char *found = NULL;

        ret[0] = 0;
        if (io_read_file(run_fd, "lxc.log", LOG_TAIL_MAX, &text, NULL) < 0)
                return;
        // "lxc i0001 20260101120000.123 ERROR    start - start.c:fn:12 - text". The first error is the cause, later ones its echo.
        char *save = NULL;
        for (char *line = strtok_r(text, "\n", &save); line && !found; line = strtok_r(NULL, "\n", &save)) {
                const char *dash = strstr(line, " ERROR ") ? strstr(line, " - ") : NULL;
                dash = dash ? strstr(dash + 3, " - ") : NULL;
                found = dash ? dash + 3 : NULL;
        }
        if (found)
                (void) snprintf(ret, size, "%s", found);
}
