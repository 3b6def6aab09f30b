// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of hostd-build, and the adoption of what they made. The image is copied, and the copy hashed: whoever built it may
// still hold the original open for writing.
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/strv.h"
#include "base/valid.h"
#include "core/template-internal.h"

static int job_directory(const TemplateJob *job, int *ret) {
        char path[32];

        (void) snprintf(path, sizeof(path), "build/%s", job->id);
        *ret = openat(job->registry->state_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return *ret < 0 ? -errno : 0;
}

static int job_make_directory(TemplateJob *job, const TemplateBuildSpec *spec, int *ret) {
        char path[32];

        (void) digest_random(8, job->id);
        (void) snprintf(path, sizeof(path), "build/%s", job->id);
        if (mkdirat(job->registry->state_fd, path, 0700) < 0)
                return -errno;
        int r = job_directory(job, ret);
        return r < 0 ? r : fchown(*ret, spec->uid, spec->gid) < 0 ? -errno : 0;
}

// Of a job that did not begin: nothing is in it.
static void job_unmake_directory(const TemplateJob *job) {
        char path[32];

        (void) snprintf(path, sizeof(path), "build/%s", job->id);
        (void) unlinkat(job->registry->state_fd, path, AT_REMOVEDIR);
}

static int recipe_memfd(const char *text, int *ret) {
        _cleanup_close_ int fd = memfd_create("recipe", MFD_CLOEXEC);
        int r = fd < 0 ? -errno : io_write_all(fd, text, strlen(text));

        if (r < 0)
                return r;
        *ret = TAKE_FD(fd);
        return 0;
}

int template_build_start(TemplateRegistry *registry, const TemplateBuildSpec *spec, TemplateJob **ret, Error *err) {
        _cleanup_(template_job_freep) TemplateJob *job = NULL;
        _cleanup_close_ int out = -EBADF, recipe = -EBADF;
        int r;

        if (spec->uid == 0)
                return error_set(err, ERR_UNAVAILABLE, "templates are never built as root: the user hostd-build is missing");
        if (!spec->recipe_text) {
                r = valid_check(VALID_NAME, "name", spec->name, err);
                if (r < 0)
                        return r;
        }
        if (spec->suite) {
                r = valid_check(VALID_SUITE, "suite", spec->suite, err);
                if (r < 0)
                        return r;
        }
        job = calloc(1, sizeof(*job));
        if (!job)
                return error_set_errno(err, ENOMEM, "template");
        job->registry = registry;
        job->pidfd = job->out_fd = -EBADF;
        r = job_make_directory(job, spec, &out);
        if (r >= 0 && spec->recipe_text)
                r = recipe_memfd(spec->recipe_text, &recipe);
        if (r < 0)
                (void) error_set_errno(err, r, "cannot prepare the template's scratch directory");
        else
                r = template_job_run(job, spec, out, spec->recipe_text ? recipe : spec->input_fd, err);
        if (r < 0) {
                job_unmake_directory(job);
                return r;
        }
        *ret = TAKE_PTR(job);
        return 0;
}

// "progress PERCENT TEXT" or "error CODE TEXT"; anything else is dropped. Returns whether progress changed.
static int job_line(TemplateJob *job) {
        _cleanup_free_ char *shown = NULL;
        char *line = job->line, *text, *end;

        line[job->line_used] = 0;
        job->line_used = 0;
        text = strchr(line, ' ');
        text = text ? strchr(text + 1, ' ') : NULL;
        if (!text)
                return 0;
        *text++ = 0;
        shown = valid_printable(text);
        if (!shown)
                return 0;
        if (strncmp(line, "error ", 6) == 0) {
                ErrorCode code = error_code_from_name(line + 6);
                (void) error_set(&job->error, code > ERR_NONE ? code : ERR_INTERNAL, "%.1000s", shown);
                return 0;
        }
        if (strncmp(line, "progress ", 9) != 0)
                return 0;
        unsigned long percent = strtoul(line + 9, &end, 10);
        if (*end || percent > 100)
                return 0;
        job->complete = percent == 100;
        // What is still to come after hostd-build is done belongs to the same bar.
        job->percent = (unsigned) percent * 95 / 100;
        (void) snprintf(job->text, sizeof(job->text), "%s", shown);
        return 1;
}

int template_build_read(TemplateJob *job) {
        char buf[4096];
        int changed = 0;

        // At most 64 KiB a turn, so that a flood cannot hold the loop.
        for (int turn = 0; turn < 16 && job->out_fd >= 0; turn++) {
                ssize_t n = read(job->out_fd, buf, sizeof(buf));
                if (n < 0 && errno == EINTR)
                        continue;
                // Not closed at its end: the caller watches it, and a closed descriptor cannot be taken out of epoll any more.
                if (n <= 0)
                        break;
                for (ssize_t i = 0; i < n; i++)
                        if (buf[i] == '\n')
                                changed |= job_line(job);
                        else if (job->line_used < sizeof(job->line) - 1)
                                job->line[job->line_used++] = buf[i];
        }
        return changed;
}

static int adopt_copy(int from, int to, uint64_t size) {
        uint64_t left = size;

        while (left > 0) {
                ssize_t n = copy_file_range(from, NULL, to, NULL, (size_t) MIN2(left, (uint64_t) 64 << 20), 0);
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -EIO; // shorter than its manifest says
                left -= (uint64_t) n;
        }
        return 0;
}

// In a child of hostd's, because it reads and writes the whole image. Exit status: 0, or an errno.
static int adopt_image(TemplateJob *job, int out) {
        const Manifest *m = job->manifest;
        TemplateRegistry *r = job->registry;
        _cleanup_close_ int from = openat(out, "image.erofs", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), to = -EBADF;
        char temp[TEMPLATE_NAME_MAX], name[TEMPLATE_NAME_MAX], marker[TEMPLATE_NAME_MAX], found[DIGEST_TEXT_MAX];
        struct stat st;
        int k;

        if (from < 0 || fstat(from, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size != m->size_bytes)
                return -EBADMSG;
        (void) snprintf(temp, sizeof(temp), "%s.tmp", job->id);
        to = openat(r->images_fd, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
        if (to < 0)
                return -errno;
        k = adopt_copy(from, to, m->size_bytes);
        if (k >= 0 && lseek(to, 0, SEEK_SET) < 0)
                k = -errno;
        if (k >= 0)
                k = digest_fd(to, found);
        if (k >= 0 && strcmp(found, m->digest) != 0)
                k = -EBADMSG;
        if (k >= 0 && fsync(to) < 0)
                k = -errno;
        if (k >= 0)
                k = io_write_atomic(r->images_fd, template_digest_path(m->digest, TEMPLATE_ADOPTING, marker), "", 0, 0600);
        if (k >= 0 && renameat(r->images_fd, temp, r->images_fd, template_digest_path(m->digest, ".erofs", name)) < 0)
                k = -errno;
        if (k < 0) {
                (void) unlinkat(r->images_fd, temp, 0);
                (void) unlinkat(r->images_fd, template_digest_path(m->digest, TEMPLATE_ADOPTING, marker), 0);
        }
        return k;
}

static int adopt_start(TemplateJob *job, int out, Error *err) {
        pid_t parent = getpid();

        job->pid = fork();
        if (job->pid < 0)
                return job->pid = 0, error_set_errno(err, errno, "cannot fork to adopt the image");
        if (job->pid == 0) {
                int r = prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent ? -ESRCH : adopt_image(job, out);
                _exit(-r & 0xff);
        }
        (void) close_fd(job->pidfd);
        job->pidfd = (int) syscall(SYS_pidfd_open, job->pid, 0);
        job->adopting = true;
        job->percent = 96;
        (void) snprintf(job->text, sizeof(job->text), "adopting the image");
        return job->pidfd < 0 ? error_set_errno(err, errno, "cannot watch the adoption") : 1;
}

// The same image once more. Where its package clients fetch from may be known better this time (a network was there, or hostd-build is newer).
static int job_renew(TemplateJob *job, Template *known, Error *err) {
        Manifest *old = known->manifest, *new = job->manifest;
        char name[TEMPLATE_NAME_MAX], **mirrors = old->mirrors;
        _cleanup_free_ char *text = NULL;
        int r;

        if (!new->asked || (old->asked && strv_equal(old->mirrors, new->mirrors)))
                return 0;
        old->mirrors = new->mirrors;
        new->mirrors = mirrors;
        old->asked = true;
        text = manifest_format(old);
        if (!text)
                return error_set_errno(err, ENOMEM, "manifest");
        r = io_write_atomic(job->registry->images_fd, template_digest_path(old->digest, ".json", name), text, strlen(text), 0600);
        return r < 0 ? error_set_errno(err, r, "cannot store the manifest") : 0;
}

static int job_built(TemplateJob *job, Error *err) {
        _cleanup_free_ char *text = NULL;
        _cleanup_close_ int out = -EBADF;
        Template *known;
        size_t size;
        int status, r;

        while (job->out_fd >= 0 && job->error.code == ERR_NONE && template_build_read(job) > 0)
                ;
        job->out_fd = close_fd(job->out_fd); // nobody watches it at this moment
        status = template_job_reap(job);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                if (job->error.code == ERR_NONE)
                        return error_set(err, ERR_INTERNAL, "hostd-build died without saying why");
                return error_set(err, job->error.code, "%s", job->error.message ?: "hostd-build failed");
        }
        r = job_directory(job, &out);
        if (r >= 0)
                r = io_read_file(out, "manifest.json", MANIFEST_SIZE_MAX, &text, &size);
        if (r < 0)
                return error_set_errno(err, r, "cannot read the new template's manifest");
        r = manifest_parse(text, size, &job->manifest, err);
        if (r < 0)
                return r;
        known = template_find(job->registry, job->manifest->digest);
        if (known && strcmp(known->manifest->name, job->manifest->name) != 0)
                return error_set(err, ERR_EXISTS, "the same image is already here as the template %s", known->manifest->name);
        return known ? job_renew(job, known, err) : adopt_start(job, out, err);
}

static int job_adopted(TemplateJob *job, Error *err) {
        TemplateRegistry *r = job->registry;
        char name[TEMPLATE_NAME_MAX];
        _cleanup_free_ char *text = NULL;
        int status = template_job_reap(job), k;

        if (!WIFEXITED(status))
                return error_set(err, ERR_INTERNAL, "the adoption of the image was killed");
        if (WEXITSTATUS(status) == EBADMSG)
                return error_set(err, ERR_INVALID, "the image is refused: it is not the one its manifest describes");
        if (WEXITSTATUS(status) != 0)
                return error_set_errno(err, WEXITSTATUS(status), "cannot store the image");
        text = manifest_format(job->manifest);
        if (!text)
                return error_set_errno(err, ENOMEM, "manifest");
        // Written by us from what was checked, not copied. The image is there: from now on the template exists.
        k = io_write_atomic(r->images_fd, template_digest_path(job->manifest->digest, ".json", name), text, strlen(text), 0600);
        if (k < 0)
                (void) unlinkat(r->images_fd, template_digest_path(job->manifest->digest, ".erofs", name), 0);
        (void) unlinkat(r->images_fd, template_digest_path(job->manifest->digest, TEMPLATE_ADOPTING, name), 0);
        if (k < 0)
                return error_set_errno(err, k, "cannot store the manifest");
        return template_registry_load(r, job->manifest->digest, err);
}

int template_build_finish(TemplateJob *job, char ret_digest[DIGEST_TEXT_MAX], Error *err) {
        int r = job->adopting ? job_adopted(job, err) : job_built(job, err);

        if (r == 0)
                memcpy(ret_digest, job->manifest->digest, DIGEST_TEXT_MAX);
        return r;
}

bool template_job_runs(const TemplateJob *job) {
        return job->pid > 0 || job->unit;
}

// A unit is told by the end of what hostd says; its own end, then, ends the connection.
void template_job_kill(TemplateJob *job) {
        if (job->unit)
                (void) shutdown(job->pidfd, SHUT_WR);
        else if (job->pid > 0)
                (void) kill(job->pid, SIGKILL);
}

int template_job_reap(TemplateJob *job) {
        int status = -1;

        if (job->pid > 0)
                (void) waitpid(job->pid, &status, 0);
        else if (job->unit && job->complete) // nobody tells the status of a unit: its last line does
                status = 0;
        job->pid = 0;
        job->unit = false;
        return status;
}

// The job's other processes die with their pid namespace, a moment after hostd-build: until then files may appear.
#define SCRUB_TRIES 250
#define SCRUB_PAUSE_USEC 20000

int template_job_scrub(const TemplateJob *job, Error *err) {
        char path[32];
        int r = 0;

        if (job->adopting) {
                (void) snprintf(path, sizeof(path), "%s.tmp", job->id);
                (void) unlinkat(job->registry->images_fd, path, 0);
        }
        (void) snprintf(path, sizeof(path), "build/%s", job->id);
        for (int attempt = 0; job->id[0] && attempt < SCRUB_TRIES; attempt++) {
                r = io_remove_tree(job->registry->state_fd, path);
                if (r >= 0)
                        return 0;
                (void) usleep(SCRUB_PAUSE_USEC);
        }
        return r < 0 ? error_set_errno(err, r, "cannot remove the scratch directory of a build") : 0;
}

TemplateJob *template_job_free(TemplateJob *job) {
        if (!job)
                return NULL;
        if (template_job_runs(job)) {
                template_job_kill(job);
                (void) template_job_reap(job);
        }
        if (job->cgroup)
                cgroup_host_build_done(job->cgroup);
        (void) close_fd(job->pidfd);
        (void) close_fd(job->out_fd);
        error_done(&job->error);
        manifest_free(job->manifest);
        free(job);
        return NULL;
}
