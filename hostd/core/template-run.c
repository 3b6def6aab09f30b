// SPDX-License-Identifier: GPL-2.0-or-later
// How hostd-build comes to run: by a connection to hostd-build.socket, for which systemd starts a unit, or as a child, which is confined
// by the same means as far as they go without systemd.
#include <linux/capability.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/io.h"
#include "base/process.h"
#include "base/strv.h"
#include "core/template-internal.h"

// What newuidmap and newgidmap must have, and so the most that any set-uid program has below hostd-build.
#define SET_UID_CAPS (UINT64_C(1) << CAP_SETUID | UINT64_C(1) << CAP_SETGID | UINT64_C(1) << CAP_DAC_OVERRIDE | UINT64_C(1) << CAP_SYS_ADMIN)

static int job_argv(const TemplateBuildSpec *spec, char ***ret) {
        _cleanup_strv_ char **argv = NULL;
        int r = strv_append(&argv, spec->program ?: HOSTD_LIBEXECDIR "/hostd-build");

        if (r >= 0)
                r = strv_append(&argv, spec->recipe_text ? "build" : "import");
        if (r >= 0)
                r = strv_append(&argv, "--out=fd:3");
        if (r >= 0)
                r = strv_append(&argv, spec->recipe_text ? "--recipe=fd:4" : "--input=fd:4");
        if (r >= 0 && spec->recipe_text)
                r = strv_append(&argv, spec->wired ? "--network=fd:5" : "--network=host");
        if (r >= 0 && spec->suite)
                r = strv_append_format(&argv, "--suite=%s", spec->suite);
        if (r >= 0 && !spec->recipe_text)
                r = strv_append_format(&argv, "--name=%s", spec->name);
        if (r >= 0)
                *ret = TAKE_PTR(argv);
        return r;
}

// A child of ours, confined by the same means as the unit: user, capabilities, group; its syscall filter it loads itself.
static int job_spawn(TemplateJob *job, const TemplateBuildSpec *spec, char **argv, const int fds[static 4], Error *err) {
        const int inside[] = {fds[0], fds[1], fds[3]};
        ProcessSpec process = PROCESS_SPEC_NULL;
        int r;

        process.argv = argv;
        process.stdout_fd = fds[2];
        process.extra_fds = inside;
        process.n_extra_fds = spec->wired ? 3 : 2;
        process.die_with_parent = true;
        process.new_session = true;
        process.uid = spec->uid;
        process.gid = spec->gid;
        process.bounding = SET_UID_CAPS;
        r = process_spawn(&process, &job->pid, &job->pidfd, err);
        if (r < 0 || !spec->cgroup)
                return r;
        job->cgroup = spec->cgroup;
        // It has just begun its exec: what it forks later is in the group, too.
        return cgroup_host_build(spec->cgroup, job->pid, err);
}

// One of systemd's: the connection starts it, and its end ends it.
static int job_connect(TemplateJob *job, const TemplateBuildSpec *spec, char **argv, const int fds[static 4], Error *err) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char message[4096];
        size_t used = 0;

        for (char **word = argv + 1; *word; used += strlen(*word) + 1, word++) {
                if (used + strlen(*word) + 1 > sizeof(message))
                        return error_set(err, ERR_INVALID, "the arguments of hostd-build are too long");
                memcpy(message + used, *word, strlen(*word) + 1);
        }
        if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", spec->socket) >= (int) sizeof(address.sun_path))
                return error_set(err, ERR_INVALID, "%s is too long for a socket", spec->socket);
        job->pidfd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (job->pidfd < 0)
                return error_set_errno(err, errno, "cannot make a socket");
        if (connect(job->pidfd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return error_set(err, ERR_UNAVAILABLE, "hostd-build does not answer (%s): see \"systemctl status hostd-build.socket\"", strerror(errno));
        ssize_t n = io_send_fds(job->pidfd, message, used, fds, spec->wired ? 4 : 3, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
                return error_set_errno(err, (int) n, "cannot start hostd-build");
        job->unit = true;
        return 0;
}

int template_job_run(TemplateJob *job, const TemplateBuildSpec *spec, int out, int input, Error *err) {
        _cleanup_close_ int wr = -EBADF;
        _cleanup_strv_ char **argv = NULL;
        int p[2], r = job_argv(spec, &argv);

        if (r < 0 || pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, r < 0 ? r : errno, "cannot start hostd-build");
        job->out_fd = p[0];
        wr = p[1];
        const int fds[] = {out, input, wr, spec->wire}; // see hostd/build/serve.h
        r = spec->socket ? job_connect(job, spec, argv, fds, err) : job_spawn(job, spec, argv, fds, err);
        if (r < 0)
                return r;
        r = io_set_nonblock(job->out_fd, true);
        return r < 0 ? error_set_errno(err, r, "cannot watch hostd-build") : 0;
}
