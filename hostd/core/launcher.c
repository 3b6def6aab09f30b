// SPDX-License-Identifier: GPL-2.0-or-later
// Launcher: see launcher.h.
#include "core/launcher.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/process.h"
#include "core/manager.h"

static int fork_start(Instance *instance, const char *run_dir, Error *err) {
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
        r = process_spawn(&spec, &instance->supervisor, &instance->pidfd, err);
        if (r < 0)
                return r;
        r = cgroup_box_attach(instance->box, CGROUP_MONITOR, instance->supervisor, err);
        if (r >= 0)
                return LAUNCHER_STARTED;
        launcher_kill(instance);
        (void) waitpid(instance->supervisor, NULL, 0); // ours, and killed before it did anything
        instance->supervisor = 0;
        instance->pidfd = close_fd(instance->pidfd);
        return r;
}

int launcher_start(Instance *instance, const char *run_dir, LauncherDone done, Error *err) {
        int r = instance->manager->systemd ? launcher_unit_start(instance, done, err) : fork_start(instance, run_dir, err);

        return r < 0 ? error_wrap(err, "starting hostd-instance") : r;
}

void launcher_kill(Instance *instance) {
        if (instance->pidfd >= 0)
                (void) syscall(SYS_pidfd_send_signal, instance->pidfd, SIGKILL, NULL, 0);
}
