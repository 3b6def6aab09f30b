// SPDX-License-Identifier: GPL-2.0-or-later
// Handler of diff: hostd-diff reads the instance's tree, its list goes straight into the caller's pipe, and hostd sees none
// of it. While it runs the template is held, since the instance may be stopped or deleted meanwhile.
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/process.h"
#include "core/handle.h"

typedef struct DiffRun {
        Request *request;
        char digest[DIGEST_TEXT_MAX]; // held
        pid_t pid;
        int pidfd, messages;
        sd_event_source *exit;
} DiffRun;

static DiffRun *diff_free(DiffRun *run) {
        if (!run)
                return NULL;
        sd_event_source_disable_unref(run->exit);
        if (run->pid > 0) { // still there
                (void) syscall(SYS_pidfd_send_signal, run->pidfd, SIGKILL, NULL, 0);
                (void) waitpid(run->pid, NULL, 0);
        }
        (void) close_fd(run->pidfd);
        (void) close_fd(run->messages);
        if (run->digest[0]) // busy cannot be: the instance has a hold of its own
                (void) template_unmount(run->request->manager->templates, run->digest, NULL);
        run->request->diff = NULL;
        free(run);
        return NULL;
}
DEFINE_CLEANUP(DiffRun, diff_free)

static void diff_end(DiffRun *run, int r, Error *err) {
        Request *request = run->request;

        (void) diff_free(run);
        request_done(request, r, err);
}

// What it said before it ended. The program that says it may have been conquered by what it read: text, no more.
static int diff_failed(DiffRun *run, int status, Error *err) {
        const char *name = run->request->target;
        char text[512];
        ssize_t n = read(run->messages, text, sizeof(text) - 1);

        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        if (n <= 0)
                return error_set(err, ERR_INTERNAL, "hostd-diff died while it read %s", name);
        text[n] = 0;
        text[strcspn(text, "\n")] = 0;
        _cleanup_free_ char *shown = valid_printable(text);
        return error_set(err, ERR_INTERNAL, "the changes of %s cannot be read: %s", name, shown ?: "out of memory");
}

static int diff_exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        DiffRun *run = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int status = 0, r;

        (void) waitpid(run->pid, &status, 0);
        run->pid = 0;
        r = diff_failed(run, status, &err);
        diff_end(run, r, &err);
        return 0;
}

static void diff_cancel(Request *request) {
        Error err = ERROR_NULL;

        if (!request->diff)
                return;
        int r = error_set(&err, ERR_CANCELLED, "the caller went away");
        diff_end(request->diff, r, &err);
        error_done(&err);
}

static int diff_spawn(DiffRun *run, const char *upper, const char *template_dir, uint32_t base, Error *err) {
        _cleanup_close_ int write_end = -EBADF;
        char base_text[16], count_text[16];
        const char *argv[] = {getenv("HOSTD_DIFF_PROGRAM") ?: HOSTD_LIBEXECDIR "/hostd-diff", upper, template_dir, base_text, count_text, NULL};
        ProcessSpec spec = PROCESS_SPEC_NULL;
        int p[2];

        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot make a pipe");
        run->messages = p[0];
        write_end = p[1];
        (void) io_set_nonblock(run->messages, true); // ours and valid
        (void) snprintf(base_text, sizeof(base_text), "%u", base);
        (void) snprintf(count_text, sizeof(count_text), "%u", SLOT_IDS);
        spec.argv = (char *const *) argv;
        spec.stdout_fd = run->request->fds[0];
        spec.stderr_fd = write_end;
        spec.die_with_parent = spec.new_session = true;
        return process_spawn(&spec, &run->pid, &run->pidfd, err);
}

static int diff_start(Request *request, const Instance *instance, Error *err) {
        _cleanup_(diff_freep) DiffRun *run = calloc(1, sizeof(DiffRun));
        _cleanup_free_ char *upper = NULL, *template_dir = NULL;
        Manager *m = request->manager;
        uint32_t base = idpool_slot_base(&m->pool, instance->record.slot);
        int r;

        if (!run)
                return error_set_errno(err, ENOMEM, "cannot read the changes");
        run->request = request;
        run->pidfd = run->messages = -EBADF;
        if (asprintf(&upper, "%s/instances/%s/upper", m->paths.state, instance->record.name) < 0) {
                upper = NULL;
                return error_set_errno(err, ENOMEM, "cannot read the changes");
        }
        if (base == 0)
                return error_set(err, ERR_QUOTA, "the root line of /etc/subuid has no ids left for slot %u", instance->record.slot);
        r = template_mount(m->templates, instance->record.template_digest, &template_dir, err);
        if (r < 0)
                return error_wrap(err, "template");
        memcpy(run->digest, instance->record.template_digest, sizeof(run->digest));
        r = diff_spawn(run, upper, template_dir, base, err);
        request->fds[0] = close_fd(request->fds[0]); // or the list would not end with the program
        if (r < 0)
                return r;
        r = sd_event_add_io(m->event, &run->exit, run->pidfd, EPOLLIN, diff_exited, run);
        if (r < 0)
                return error_set_errno(err, r, "cannot watch hostd-diff");
        request->closed = diff_cancel;
        request->diff = TAKE_PTR(run);
        (void) request_hold(request);
        return 0;
}

void handle_diff(Request *request) {
        Instance *instance = request_instance(request);
        _cleanup_error_ Error err = ERROR_NULL;
        struct stat st;
        int r;

        if (!instance)
                return;
        request->fds[0] = call_take_fd(request->call, 0);
        if (fstat(request->fds[0], &st) < 0 || !S_ISFIFO(st.st_mode))
                r = error_set(&err, ERR_INVALID, "diff needs one descriptor, a pipe that the list is written to");
        else
                r = diff_start(request, instance, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
}
