// SPDX-License-Identifier: GPL-2.0-or-later
// Launcher: see launcher.h.
#include "core/launcher.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <systemd/sd-bus.h>

#include "base/process.h"
#include "core/manager.h"

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

// The unit's name is made of a valid instance name, so it needs no escaping. The unit itself carries Delegate and the slice.
static int unit_start(Instance *instance, const char *run_dir, pid_t *ret_pid, Error *err) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        sd_bus_error bus_error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *unit = NULL, *path = NULL;
        uint32_t pid = 0;
        int r;

        if (asprintf(&unit, "hostd-instance@%s.service", instance->record.name) < 0) {
                unit = NULL;
                return error_set_errno(err, ENOMEM, "cannot start the unit");
        }
        r = sd_bus_open_system(&bus);
        if (r < 0)
                return error_set_errno(err, r, "cannot reach systemd");
        r = sd_bus_call_method(bus, "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager",
                               "StartUnit", &bus_error, &reply, "ss", unit, "replace");
        if (r < 0) {
                r = error_set(err, ERR_UNAVAILABLE, "systemd refuses to start %s: %s", unit, bus_error.message ?: strerror(-r));
                sd_bus_error_free(&bus_error);
                return r;
        }
        r = sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, &path);
        // The job runs in PID 1; the main pid is there as soon as exec succeeded (Type=exec), a few milliseconds later.
        for (unsigned i = 0; r >= 0 && pid == 0 && i < 2000; i++) {
                r = sd_bus_get_property_trivial(bus, "org.freedesktop.systemd1", path, "org.freedesktop.systemd1.Service", "MainPID",
                                                &bus_error, 'u', &pid);
                sd_bus_error_free(&bus_error);
                if (pid == 0)
                        (void) usleep(2000);
        }
        if (pid == 0)
                return error_set(err, ERR_TIMEOUT, "%s has no main process after 4 s", unit);
        *ret_pid = (pid_t) pid;
        return 0;
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
        if (pid > 0)
                (void) kill(pid, SIGKILL);
        return error_wrap(err, "starting hostd-instance");
}

void launcher_kill(Instance *instance) {
        if (instance->pidfd >= 0)
                (void) syscall(SYS_pidfd_send_signal, instance->pidfd, SIGKILL, NULL, 0);
}
