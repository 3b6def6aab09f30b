// SPDX-License-Identifier: GPL-2.0-or-later
// Debootstrap: see debootstrap.h.
#include "build/debootstrap.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/process.h"
#include "base/valid.h"
#include "build/apt.h"
#include "build/jail.h"
#include "build/job.h"
#include "build/root.h"

#define MMDEBSTRAP "/usr/bin/mmdebstrap"

int debootstrap_prepare(Debootstrap *d, const Recipe *recipe, Error *err) {
        char *argv[] = {(char *) "/usr/bin/apt-config", (char *) "dump", NULL};
        _cleanup_free_ char *dump = NULL;
        int r = process_run(argv, &dump, err);

        if (r > 0)
                return error_set(err, ERR_UNAVAILABLE, "apt-config dump failed (exit status %d)", r);
        if (r < 0)
                return r;
        d->recipe = recipe;
        r = apt_sources("", recipe->suite, &d->sources, &d->image_sources, err);
        return r < 0 ? r : apt_options(dump, &d->options, &d->image_options, err);
}

void debootstrap_done(Debootstrap *d) {
        free(d->sources);
        free(d->image_sources);
        free(d->options);
        free(d->image_options);
        *d = (Debootstrap) {0};
}

// Lines of mmdebstrap that say how far it is.
static const struct {
        const char *text;
        unsigned percent;
} debootstrap_steps[] = {
        {"I: running apt-get update", 3},          {"I: downloading packages", 10},
        {"I: extracting archives", 25},            {"I: installing essential", 35},
        {"I: installing remaining", 45},           {"I: cleaning package lists", 75},
};

typedef struct Output {
        char line[1024];
        size_t used;
        char last[512], errors[512]; // last line, last line that says E: or error:
} Output;

static void output_line(Output *o) {
        _cleanup_free_ char *shown = NULL;

        o->line[o->used] = 0;
        o->used = 0;
        shown = valid_printable(o->line);
        if (!shown || !*shown)
                return;
        // For the journal, or the person who runs this by hand.
        (void) fprintf(stderr, "%s\n", shown);
        (void) snprintf(o->last, sizeof(o->last), "%s", shown);
        if (strncmp(shown, "E: ", 3) == 0 && (!o->errors[0] || strstr(o->errors, "mmdebstrap")))
                (void) snprintf(o->errors, sizeof(o->errors), "%s", shown + 3);
        for (size_t i = 0; i < ELEMENTS(debootstrap_steps); i++)
                if (strncmp(shown, debootstrap_steps[i].text, strlen(debootstrap_steps[i].text)) == 0)
                        job_progress(debootstrap_steps[i].percent, "%s", shown + 3);
}

static void output_read(int fd, Output *o) {
        char buf[4096];

        for (;;) {
                ssize_t n = read(fd, buf, sizeof(buf));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        break;
                for (ssize_t i = 0; i < n; i++)
                        if (buf[i] == '\n' || buf[i] == '\r')
                                output_line(o);
                        else if (o->used < sizeof(o->line) - 1)
                                o->line[o->used++] = buf[i];
        }
        output_line(o);
}

static int debootstrap_argv(const Debootstrap *d, char ***ret) {
        _cleanup_strv_ char **argv = NULL, **packages = recipe_packages(d->recipe);
        _cleanup_free_ char *list = packages ? strv_join(packages, ",") : NULL;
        int r = strv_append(&argv, MMDEBSTRAP);

        if (r >= 0)
                r = strv_append(&argv, "--mode=unshare");
        if (r >= 0)
                r = strv_append(&argv, "--format=directory");
        if (r >= 0)
                r = strv_append_format(&argv, "--variant=%s", d->recipe->variant);
        if (r >= 0 && list)
                r = strv_append_format(&argv, "--include=%s", list);
        if (r >= 0)
                r = strv_append(&argv, "--aptopt=" JAIL_WORK "/tmp/apt.conf");
        if (r >= 0)
                r = strv_append(&argv, d->recipe->suite);
        if (r >= 0)
                r = strv_append(&argv, JAIL_WORK "/root");
        if (r >= 0)
                r = strv_append(&argv, JAIL_WORK "/tmp/sources.list");
        if (r >= 0)
                *ret = TAKE_PTR(argv);
        return r;
}

static int debootstrap_spawn(const Debootstrap *d, int output, pid_t *ret, Error *err) {
        static char *const env[] = {(char *) "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                    (char *) "LANG=C.UTF-8", (char *) "HOME=" JAIL_WORK "/tmp",
                                    (char *) "TMPDIR=" JAIL_WORK "/tmp", (char *) "SOURCE_DATE_EPOCH=1735689600", NULL};
        _cleanup_strv_ char **argv = NULL;
        ProcessSpec spec = PROCESS_SPEC_NULL;
        int r = debootstrap_argv(d, &argv);

        if (r < 0)
                return error_set_errno(err, r, "mmdebstrap");
        if (access(MMDEBSTRAP, X_OK) < 0)
                return error_set(err, ERR_UNAVAILABLE, "cannot run %s (package mmdebstrap)", MMDEBSTRAP);
        spec.argv = argv;
        spec.env = env;
        spec.cwd = JAIL_WORK;
        spec.stdout_fd = spec.stderr_fd = output;
        return process_spawn(&spec, ret, NULL, err);
}

int debootstrap_run(const Debootstrap *d, Error *err) {
        _cleanup_close_ int rd = -EBADF, wr = -EBADF;
        Output output = {.used = 0};
        int p[2], status, r;
        pid_t pid;

        r = io_write_atomic(AT_FDCWD, JAIL_WORK "/tmp/sources.list", d->sources, strlen(d->sources), 0644);
        if (r >= 0)
                r = io_write_atomic(AT_FDCWD, JAIL_WORK "/tmp/apt.conf", d->options, strlen(d->options), 0644);
        if (r < 0 || pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, r < 0 ? r : errno, "cannot prepare mmdebstrap");
        rd = p[0];
        wr = p[1];
        r = debootstrap_spawn(d, wr, &pid, err);
        if (r < 0)
                return r;
        wr = close_fd(wr);
        output_read(rd, &output);
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return error_set_errno(err, errno, "cannot wait for mmdebstrap");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        return error_set(err, ERR_UNAVAILABLE, "mmdebstrap failed: %s", output.errors[0] ? output.errors : output.last);
}

int debootstrap_finish(const Debootstrap *d, int root, Error *err) {
        int r = root_remove(root, "/etc/apt/apt.conf.d/99mmdebstrap", err);

        if (r >= 0)
                r = root_remove(root, "/etc/apt/sources.list.d/*", err);
        if (r >= 0)
                r = root_write(root, "/etc/apt/sources.list", d->image_sources, 0644, err);
        if (r >= 0 && d->image_options[0])
                r = root_write(root, "/etc/apt/apt.conf.d/90hostd", d->image_options, 0644, err);
        return r;
}
