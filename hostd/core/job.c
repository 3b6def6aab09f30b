// SPDX-License-Identifier: GPL-2.0-or-later
// Job: see job.h.
#include "core/job.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/io.h"

#define JOB_RESULT_MAX (16u << 20)

typedef struct Job {
        struct Job *next;
        pid_t pid;
        int fd;
        char *text;
        size_t used, room;
        JobDone done;
        void *userdata;
        sd_event_source *source;
} Job;

// Only so that jobs_cancel() finds them: each belongs to its event source.
static Job *jobs;
static unsigned job_count;

static Job *job_free(Job *job) {
        if (!job)
                return NULL;
        for (Job **p = &jobs; *p; p = &(*p)->next)
                if (*p == job) {
                        *p = job->next;
                        break;
                }
        sd_event_source_disable_unref(job->source);
        if (job->pid > 0) {
                (void) kill(job->pid, SIGKILL);
                (void) waitpid(job->pid, NULL, 0);
        }
        (void) close_fd(job->fd);
        free(job->text);
        free(job);
        job_count--;
        return NULL;
}
DEFINE_CLEANUP(Job, job_free)

static void job_child(const JobSpec *spec, int fd, pid_t parent) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_free_ char *text = NULL;
        json_t *result = NULL, *reply;
        int r;

        // It holds hostd's lock and sockets: none may outlive hostd.
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(1);
        r = spec->work(spec->input, &result, &err);
        reply = r < 0 ? json_pack("{s:i, s:s, s:s?, s:s}", "r", r, "message", error_message(&err, r), "field", err.field, "code",
                                  error_code_info(err.code ? err.code : error_code_from_errno(r))->name)
                      : json_pack("{s:i, s:o?}", "r", r, "result", result);
        text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
        if (!text || io_write_all(fd, text, strlen(text)) < 0)
                _exit(1);
        _exit(0);
}

static void job_finish(Job *job) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *reply = job->text ? json_loadb(job->text, job->used, 0, NULL) : NULL;
        json_t *result = reply ? json_object_get(reply, "result") : NULL;
        int r = reply ? (int) json_integer_value(json_object_get(reply, "r")) : -EIO;

        if (!reply)
                (void) error_set(&err, ERR_INTERNAL, "a helper process ended without an answer");
        else if (r < 0) {
                ErrorCode code = error_code_from_name(json_string_value(json_object_get(reply, "code")));
                const char *field = json_string_value(json_object_get(reply, "field"));
                const char *message = json_string_value(json_object_get(reply, "message")) ?: "";
                if (field)
                        r = error_set_field(&err, field, "%s", message);
                else
                        r = error_set(&err, code < 0 ? ERR_INTERNAL : code, "%s", message);
        }
        job->done(job->userdata, r, json_is_null(result) ? NULL : result, &err);
        json_decref(reply);
}

static int job_readable(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        _cleanup_(job_freep) Job *job = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        ssize_t n;

        if (job->room - job->used < 65536 && job->room < JOB_RESULT_MAX) {
                char *grown = realloc(job->text, job->room + 262144);
                if (!grown) {
                        job->used = 0;
                        job_finish(job);
                        return 0;
                }
                job->text = grown;
                job->room += 262144;
        }
        n = read(fd, job->text + job->used, job->room - job->used);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
                (void) TAKE_PTR(job);
                return 0;
        }
        if (n > 0 && job->used + (size_t) n < JOB_RESULT_MAX) {
                job->used += (size_t) n;
                (void) TAKE_PTR(job);
                return 0;
        }
        if (n == 0) {
                (void) waitpid(job->pid, NULL, 0); // the pipe is closed: it is exiting
                job->pid = 0;
                job_finish(job);
                return 0;
        }
        int r = n > 0 ? error_set(&err, ERR_QUOTA, "the answer is larger than %u MiB", JOB_RESULT_MAX >> 20)
                      : error_set_errno(&err, errno, "cannot read from a helper process");
        job->done(job->userdata, r, NULL, &err);
        return 0;
}

int job_start(sd_event *event, const JobSpec *spec, Error *err) {
        _cleanup_(job_freep) Job *job = NULL;
        int p[2], r;

        if (job_count >= JOB_MAX)
                return error_set(err, ERR_BUSY, "%u helper jobs are running already; try again later", job_count);
        if (!(job = calloc(1, sizeof(Job))))
                return error_set_errno(err, ENOMEM, "cannot start a job");
        job_count++;
        job->next = jobs;
        jobs = job;
        job->fd = -EBADF;
        job->done = spec->done;
        job->userdata = spec->userdata;
        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot start a job");
        job->fd = p[0];
        pid_t parent = getpid();
        job->pid = fork();
        if (job->pid == 0)
                job_child(spec, p[1], parent);
        r = job->pid < 0 ? -errno : 0;
        (void) close_fd(p[1]);
        if (r < 0) {
                job->pid = 0;
                return error_set_errno(err, r, "cannot start a job");
        }
        (void) io_set_nonblock(job->fd, true);
        r = sd_event_add_io(event, &job->source, job->fd, EPOLLIN, job_readable, job);
        if (r < 0)
                return error_set_errno(err, r, "cannot watch a job");
        (void) TAKE_PTR(job);
        return 0;
}

void jobs_cancel(void) {
        while (jobs) {
                Job *job = jobs;
                JobDone done = job->done;
                void *userdata = job->userdata;
                Error err = ERROR_NULL;
                (void) job_free(job);
                int r = error_set(&err, ERR_CANCELLED, "hostd is shutting down");
                done(userdata, r, NULL, &err);
                error_done(&err);
        }
}
