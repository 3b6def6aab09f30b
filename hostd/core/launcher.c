// SPDX-License-Identifier: GPL-2.0-or-later
// Launcher: see launcher.h.
#include "core/launcher.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>

#include "base/process.h"
#include "core/manager.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define UNIT_TIMEOUT (10 * USEC_PER_SEC)
#define UNIT_ASK_MAX 3

typedef struct Launcher {
        int (*start)(Instance *instance, const char *run_dir, pid_t *ret_pid, Error *err);
} Launcher;

static int fork_start(Instance *instance, const char *run_dir, pid_t *ret_pid, Error *err) {
        const char *argv[] = {HOSTD_LIBEXECDIR "/hostd-instance", run_dir, NULL};
        const char *override = getenv("HOSTD_INSTANCE_PROGRAM"), *guest = getenv("HOSTD_GUEST"); // tests run from the build tree
        _cleanup_free_ char *guest_env = NULL;
        ProcessSpec spec = PROCESS_SPEC_NULL;
        int r;

        if (override)
                argv[0] = override;
        if (guest && asprintf(&guest_env, "HOSTD_GUEST=%s", guest) < 0)
                guest_env = NULL;
        char *const env[] = {(char *) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", (char *) "LANG=C.UTF-8", guest_env, NULL};
        spec.argv = (char *const *) argv;
        spec.env = env;
        spec.new_session = true; // a terminal's Ctrl-C is for hostd alone
        r = process_spawn(&spec, ret_pid, NULL, err);
        if (r < 0)
                return r;
        return cgroup_box_attach(instance->box, CGROUP_MONITOR, *ret_pid, err);
}

static int unit_ask(sd_bus *bus, const char *unit, Error *err) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        sd_bus_error bus_error = SD_BUS_ERROR_NULL;
        int r = sd_bus_call_method(bus, SYSTEMD, "/org/freedesktop/systemd1", SYSTEMD ".Manager", "StartUnit", &bus_error, &reply, "ss",
                                   unit, "replace");

        if (r < 0)
                r = error_set(err, ERR_UNAVAILABLE, "systemd refuses to start %s: %s", unit, bus_error.message ?: strerror(-r));
        sd_bus_error_free(&bus_error);
        return r;
}

static bool process_lives(pid_t pid) {
        _cleanup_close_ int fd = (int) syscall(SYS_pidfd_open, pid, 0);
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        return fd >= 0 && poll(&poll_fd, 1, 0) == 0;
}

// A start that follows an end closely may meet a unit whose end systemd has not noticed yet: a main process that is dead does not
// count, and the start is asked for again.
static int unit_wait(sd_bus *bus, const char *unit, pid_t *ret_pid, Error *err) {
        usec_t end = clock_monotonic() + UNIT_TIMEOUT;
        _cleanup_free_ char *path = NULL;
        unsigned asked = 0;
        uint32_t pid = 0;
        int r = sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, &path);

        if (r < 0)
                return error_set_errno(err, r, "cannot name %s", unit);
        while (clock_monotonic() < end) {
                _cleanup_free_ char *state = NULL;
                // The job runs in PID 1. Active (Type=exec) means that the process has joined the unit's group and runs our program;
                // its pid is known before that, when a group with controllers handed on would not take it.
                r = sd_bus_get_property_string(bus, SYSTEMD, path, SYSTEMD ".Unit", "ActiveState", NULL, &state);
                if (r >= 0 && strcmp(state, "active") == 0) {
                        r = sd_bus_get_property_trivial(bus, SYSTEMD, path, SYSTEMD ".Service", "MainPID", NULL, 'u', &pid);
                        if (r >= 0 && pid > 0 && process_lives((pid_t) pid)) {
                                *ret_pid = (pid_t) pid;
                                return 0;
                        }
                }
                bool down = r >= 0 && (strcmp(state, "failed") == 0 || strcmp(state, "inactive") == 0);
                if (down && asked++ == UNIT_ASK_MAX)
                        return error_set(err, ERR_UNAVAILABLE, "%s ends at once: see \"journalctl -u %s\"", unit, unit);
                if (down && (r = unit_ask(bus, unit, err)) < 0)
                        return r;
                (void) usleep(2000);
        }
        return error_set(err, ERR_TIMEOUT, "%s has no main process after %u s", unit, (unsigned) (UNIT_TIMEOUT / USEC_PER_SEC));
}

// The unit's name is made of a valid instance name, so it needs no escaping. The unit itself carries Delegate and the slice.
static int unit_start(Instance *instance, const char *run_dir, pid_t *ret_pid, Error *err) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_free_ char *unit = NULL;
        int r;

        if (asprintf(&unit, "hostd-instance@%s.service", instance->record.name) < 0) {
                unit = NULL;
                return error_set_errno(err, ENOMEM, "cannot start the unit");
        }
        r = sd_bus_open_system(&bus);
        if (r < 0)
                return error_set_errno(err, r, "cannot reach systemd");
        r = unit_ask(bus, unit, err);
        return r < 0 ? r : unit_wait(bus, unit, ret_pid, err);
}

static const Launcher launchers[] = {{fork_start}, {unit_start}};

int launcher_start(Instance *instance, const char *run_dir, pid_t *ret_pid, int *ret_pidfd, Error *err) {
        pid_t pid = 0;
        int pidfd, r;

        r = launchers[instance->manager->systemd].start(instance, run_dir, &pid, err);
        if (r < 0)
                goto fail;
        pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0) {
                r = error_set_errno(err, errno, "hostd-instance ended at once");
                goto fail;
        }
        *ret_pid = pid;
        *ret_pidfd = pidfd;
        return 0;
fail:
        if (pid > 0) {
                (void) kill(pid, SIGKILL);
                (void) waitpid(pid, NULL, 0); // ours and killed; a unit's process is not, and then this returns at once
        }
        return error_wrap(err, "starting hostd-instance");
}

void launcher_reap(pid_t pid, int pidfd) {
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        if (pid <= 0 || pidfd < 0)
                return;
        (void) poll(&p, 1, 1000);
        (void) waitpid(pid, NULL, WNOHANG);
}

void launcher_kill(Instance *instance) {
        if (instance->pidfd >= 0)
                (void) syscall(SYS_pidfd_send_signal, instance->pidfd, SIGKILL, NULL, 0);
}
