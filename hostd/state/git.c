// SPDX-License-Identifier: GPL-2.0-or-later
// Git: see git.h.
#include "state/git.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/process.h"
#include "base/strv.h"
#include "base/valid.h"

#define GIT_PROGRAM "/usr/bin/git"

// What any of these could start or read must not depend on who owns or edited the directory.
static const char *const git_options[] = {
        "core.hooksPath=/dev/null", "commit.gpgsign=false", "gc.auto=0", "maintenance.auto=false", "safe.directory=*",
        "core.fsmonitor=false", "core.untrackedCache=false", "core.quotePath=true", "core.autocrlf=false", "core.fileMode=false",
        "core.attributesFile=/dev/null", "core.excludesFile=/dev/null", "core.symlinks=true", "core.pager=cat",
        // A power cut must leave no empty file where an object, a reference or the index was. Nothing reads a reflog, and none is synced.
        "core.fsync=all", "core.logAllRefUpdates=false", "diff.external=", "i18n.commitEncoding=UTF-8",
};

// Options come first, so that no subcommand can take them for its own; nothing here came from a caller but the path.
static int git_argv(const Git *git, const char *const *arguments, char ***ret) {
        _cleanup_strv_ char **argv = NULL;
        int r = strv_append(&argv, GIT_PROGRAM);

        for (size_t i = 0; r >= 0 && i < ELEMENTS(git_options); i++) {
                r = strv_append(&argv, "-c");
                if (r >= 0)
                        r = strv_append(&argv, git_options[i]);
        }
        if (r >= 0)
                r = strv_append_format(&argv, "--git-dir=%s/.git", git->path);
        if (r >= 0)
                r = strv_append_format(&argv, "--work-tree=%s", git->path);
        if (r >= 0)
                r = strv_append(&argv, "--no-pager");
        if (r >= 0)
                r = strv_append(&argv, "--literal-pathspecs");
        for (; r >= 0 && *arguments; arguments++)
                r = strv_append(&argv, *arguments);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(argv);
        return 0;
}

// Built from nothing: GIT_DIR, GIT_CONFIG_COUNT, GIT_SSH and the like in hostd's environment mean nothing to this git.
static int git_env(const Git *git, char ***ret) {
        static const char *const fixed[] = {
                "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/nonexistent", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1",
                "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
                "GIT_COMMITTER_NAME=hostd", "GIT_COMMITTER_EMAIL=hostd@localhost", "GIT_AUTHOR_NAME=hostd", "GIT_AUTHOR_EMAIL=hostd@localhost",
        };
        _cleanup_strv_ char **env = NULL;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ELEMENTS(fixed); i++)
                r = strv_append(&env, fixed[i]);
        if (r >= 0 && git->index)
                r = strv_append_format(&env, "GIT_INDEX_FILE=%s", git->index);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(env);
        return 0;
}

// git's exit status, or -EINTR when a signal ended it.
static int wait_for(pid_t pid) {
        int status;

        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

// Descriptors come with `spec`; everything else is decided here.
static int git_start(const Git *git, const char *const *arguments, ProcessSpec *spec, pid_t *ret_pid, Error *err) {
        _cleanup_strv_ char **argv = NULL, **env = NULL;
        int r = git_argv(git, arguments, &argv);

        if (r >= 0)
                r = git_env(git, &env);
        if (r < 0)
                return error_set_errno(err, r, "cannot run git");
        spec->argv = argv;
        spec->env = env;
        spec->cwd = git->path;
        return process_spawn(spec, ret_pid, NULL, err);
}

typedef struct GitCapture {
        int input; // -EBADF: none
        size_t max;
        GitText output, said; // results, owned
} GitCapture;

static void git_capture_done(GitCapture *capture) {
        free(capture->output.data);
        free(capture->said.data);
}

// stderr goes to a memory file, so that neither pipe can block the other.
static int git_capture(const Git *git, const char *const *arguments, GitCapture *capture, Error *err) {
        _cleanup_close_ int rd = -EBADF, wr = -EBADF, said = -EBADF;
        ProcessSpec spec = PROCESS_SPEC_NULL;
        int p[2], r, status;
        pid_t pid;

        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot make a pipe");
        rd = p[0];
        wr = p[1];
        said = memfd_create("git", MFD_CLOEXEC);
        if (said < 0)
                return error_set_errno(err, errno, "cannot make a memory file");
        spec.stdin_fd = capture->input;
        spec.stdout_fd = wr;
        spec.stderr_fd = said;
        r = git_start(git, arguments, &spec, &pid, err);
        if (r < 0)
                return r;
        wr = close_fd(wr);
        r = io_read_all(rd, capture->max, &capture->output.data, &capture->output.size);
        rd = close_fd(rd); // git ends with SIGPIPE when its output was too long
        status = wait_for(pid);
        if (r < 0)
                return error_set_errno(err, r, "cannot read git's output");
        if (status < 0) {
                (void) error_set(err, ERR_INTERNAL, "git was killed");
                return status;
        }
        if (lseek(said, 0, SEEK_SET) >= 0)
                (void) io_read_all(said, GIT_OUTPUT_MAX, &capture->said.data, &capture->said.size);
        return status;
}

int git_run(const Git *git, const char *const *arguments, char **ret_output, Error *err) {
        _cleanup_(git_capture_done) GitCapture capture = {.input = -EBADF, .max = GIT_OUTPUT_MAX};
        int r = git_capture(git, arguments, &capture, err);

        if (r >= 0 && ret_output)
                *ret_output = TAKE_PTR(capture.output.data);
        return r;
}

// The first line says it; git's advice behind it is for people at a terminal.
static int git_failed(const char *command, char *said, Error *err) {
        _cleanup_free_ char *shown = NULL;

        if (said) {
                said[strcspn(said, "\n")] = 0;
                shown = valid_printable(said);
        }
        return error_set(err, ERR_INTERNAL, "git %s failed: %s", command, shown && *shown ? shown : "no reason given");
}

int git_check(const Git *git, const char *const *arguments, char **ret_output, Error *err) {
        _cleanup_(git_capture_done) GitCapture capture = {.input = -EBADF, .max = GIT_OUTPUT_MAX};
        int r = git_capture(git, arguments, &capture, err);

        if (r < 0)
                return r;
        if (r > 0)
                return git_failed(arguments[0], capture.said.data, err);
        if (ret_output)
                *ret_output = TAKE_PTR(capture.output.data);
        return 0;
}

int git_filter(const Git *git, const char *const *arguments, const GitText *input, GitText *ret, Error *err) {
        _cleanup_(git_capture_done) GitCapture capture = {.input = -EBADF, .max = GIT_INPUT_MAX};
        _cleanup_close_ int fd = memfd_create("git-input", MFD_CLOEXEC);
        int r;

        if (fd < 0)
                return error_set_errno(err, errno, "cannot make a memory file");
        r = io_write_all(fd, input->data, input->size);
        if (r < 0 || lseek(fd, 0, SEEK_SET) < 0)
                return error_set_errno(err, r < 0 ? r : -errno, "cannot write to a memory file");
        capture.input = fd;
        r = git_capture(git, arguments, &capture, err);
        if (r < 0)
                return r;
        if (r > 0)
                return git_failed(arguments[0], capture.said.data, err);
        if (ret) {
                *ret = capture.output;
                capture.output = (GitText) {0};
        }
        return 0;
}

bool git_is_installed(void) {
        return access(GIT_PROGRAM, X_OK) == 0;
}
