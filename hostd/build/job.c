// SPDX-License-Identifier: GPL-2.0-or-later
// Job: see job.h. Three processes: hostd-build itself (waits, and moves two files at the end), the first process of the
// outer namespaces (runs mmdebstrap, owns the scratch directory), and in the inner one, one after the other, the stages: unpack, customise and
// ask the package clients; ask an index, with the network; pack. What the template's own programs may have done to a stage ends with it.
#include "build/job.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/size.h"
#include "base/strv.h"
#include "build/clients.h"
#include "build/debootstrap.h"
#include "build/pack.h"
#include "build/root.h"
#include "build/unpack.h"
#include "build/wire.h"

typedef struct Job {
        const JobSpec *spec;
        Recipe *recipe; // build
        Debootstrap debootstrap;
        int tar_fd; // import
        time_t start;
        int mirrors_fd; // of the stages: where the clients' lines go
        char **mirrors;
        bool asked;
} Job;

static const char *const job_results[] = {"image.erofs", "manifest.json"};

void job_progress(unsigned percent, const char *format, ...) {
        va_list ap;

        (void) printf("progress %u ", percent);
        va_start(ap, format);
        (void) vprintf(format, ap);
        va_end(ap);
        (void) printf("\n");
        (void) fflush(stdout);
}

static void job_unpacked(uint64_t bytes, void *data) {
        static uint64_t shown;
        char text[SIZE_TEXT_MAX];

        // The total is unknown: a line per 64 MiB, between 5 and 75 percent.
        if (bytes < shown + ((uint64_t) 64 << 20))
                return;
        shown = bytes;
        job_progress((unsigned) (5 + MIN2(bytes >> 26, 70)), "unpacked %s", size_format_short(bytes, text));
}

// A tarball may hold its root in "rootfs/" (as Incus' images do).
static int job_find_root(int root, int *ret, Error *err) {
        struct stat st;
        int fd;

        if (fstatat(root, "rootfs", &st, AT_SYMLINK_NOFOLLOW) < 0 || fstatat(root, "etc", &st, AT_SYMLINK_NOFOLLOW) == 0) {
                *ret = fcntl(root, F_DUPFD_CLOEXEC, 3);
                return *ret < 0 ? error_set_errno(err, errno, "root") : 0;
        }
        fd = openat(root, "rootfs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return error_set(err, ERR_INVALID, "the image is refused: its rootfs is no directory");
        *ret = fd;
        return 0;
}

static int job_tree(Job *job, int root, Error *err) {
        static const char resolver[] = "nameserver 169.254.0.1\n", hosts[] = "127.0.0.1 localhost\n::1 localhost\n";
        struct stat st;
        int r = root_check(root, err);

        if (r >= 0)
                r = root_clean(root, err);
        if (r >= 0)
                r = root_write(root, "/etc/resolv.conf", resolver, 0644, err);
        if (r >= 0 && fstatat(root, "etc/hosts", &st, AT_SYMLINK_NOFOLLOW) < 0)
                r = root_write(root, "/etc/hosts", hosts, 0644, err);
        if (r >= 0 && job->recipe)
                r = debootstrap_finish(&job->debootstrap, root, err);
        if (r >= 0 && job->recipe)
                r = root_customise(root, job->recipe, err);
        return r < 0 ? r : root_clamp_times(root, job->start, err);
}

static Manifest *job_manifest(const Job *job) {
        Manifest *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        m->name = strdup(job->recipe ? job->recipe->name : job->spec->name);
        if (job->recipe) {
                m->suite = strdup(job->recipe->suite);
                memcpy(m->recipe, job->recipe->digest, sizeof(m->recipe));
        }
        m->asked = job->asked;
        m->mirrors = strv_copy(job->mirrors);
        return m->name && (!job->recipe || m->suite) ? m : manifest_free(m);
}

static int job_open_root(int *ret, Error *err) {
        _cleanup_close_ int scratch = open("root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        return scratch < 0 ? error_set_errno(err, errno, "cannot open the scratch directory") : job_find_root(scratch, ret, err);
}

// A template whose clients cannot be asked is one without a list, which hostd says where it matters.
static void job_ask(const Job *job, int root, bool index_only) {
        _cleanup_error_ Error why = ERROR_NULL;
        int r = clients_ask(root, index_only, job->mirrors_fd, &why);

        if (r < 0)
                job_progress(80, "%s", error_message(&why, r));
}

// In the inner namespace, without a network; the current directory is JAIL_WORK.
static int job_stage_tree(void *data, Error *err) {
        UnpackLimits limits = UNPACK_LIMITS_DEFAULT;
        _cleanup_close_ int scratch = open("root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), root = -EBADF;
        Job *job = data;
        int r = scratch < 0 ? error_set_errno(err, errno, "cannot open the scratch directory") : 0;

        if (r >= 0 && !job->recipe) {
                job_progress(2, "unpacking");
                r = unpack_tar(job->tar_fd, scratch, &limits, job_unpacked, err);
        }
        if (r >= 0)
                r = job_find_root(scratch, &root, err);
        job_progress(78, "customising");
        if (r >= 0)
                r = job_tree(job, root, err);
        if (r >= 0) {
                job_progress(80, "asking the package clients");
                job_ask(job, root, false); // last: see clients_ask()
        }
        return r;
}

// The same with the network of a build: only an index itself says where it has its downloads.
static int job_stage_index(void *data, Error *err) {
        _cleanup_close_ int root = -EBADF;
        int r = job_open_root(&root, err);

        if (r >= 0)
                job_ask(data, root, true);
        return r;
}

static int job_stage_pack(void *data, Error *err) {
        const Job *job = data;
        _cleanup_(manifest_freep) Manifest *manifest = job_manifest(job);
        _cleanup_close_ int stage = open("stage", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), root = -EBADF;
        int r = job_open_root(&root, err);

        if (!manifest)
                return error_set_errno(err, ENOMEM, "manifest");
        if (r >= 0 && stage < 0)
                return error_set_errno(err, errno, "cannot open the scratch directory");
        return r < 0 ? r : pack_image(root, stage, manifest, err);
}

static int job_inner(JailMain stage, Job *job, bool network, Error *err) {
        JailChild child = {.error_fd = -EBADF};
        int r = jail_start_inner(stage, job, network, &child, err);

        return r < 0 ? r : jail_wait(&child, err);
}

// Runs a stage that has clients asked, and takes what they say.
static int job_inner_asking(JailMain stage, Job *job, bool network, bool *ret_whole, Error *err) {
        JailChild child = {.error_fd = -EBADF};
        int p[2], r, k;

        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot make a pipe");
        job->mirrors_fd = p[1];
        r = jail_start_inner(stage, job, network, &child, err);
        job->mirrors_fd = close_fd(p[1]);
        k = r < 0 ? 0 : clients_take(p[0], &job->mirrors, ret_whole);
        (void) close_fd(p[0]);
        if (r >= 0)
                r = jail_wait(&child, err);
        return r >= 0 && k < 0 ? error_set_errno(err, k, "cannot read what the package clients say") : r;
}

// Without the hosts that the clients named there is no index to be asked, and a list without its downloads: as where there is no network.
static bool job_may_ask_index(const Job *job) {
        _cleanup_error_ Error why = ERROR_NULL;
        int r = job->spec->network == JAIL_WIRED ? wire_ask_for(job->spec->wire_fd, job->mirrors, &why) : 0;

        if (r < 0)
                job_progress(85, "%s", error_message(&why, r));
        return r >= 0;
}

static int job_make_scratch(const Job *job, const JailIds *ids, Error *err) {
        // mmdebstrap makes and owns its own root.
        if (mkdir("tmp", 0755) < 0 || mkdir("stage", 0755) < 0 || chown("stage", ids->uid_start, ids->gid_start) < 0 ||
            (!job->recipe && (mkdir("root", 0755) < 0 || chown("root", ids->uid_start, ids->gid_start) < 0)))
                return error_set_errno(err, errno, "cannot make the scratch directory");
        return 0;
}

// The files become ours again, else hostd-build could not rename them.
static int job_take_results(Error *err) {
        for (size_t i = 0; i < ELEMENTS(job_results); i++) {
                _cleanup_free_ char *from = NULL;
                if (asprintf(&from, "stage/%s", job_results[i]) < 0) {
                        from = NULL;
                        return error_set_errno(err, ENOMEM, "results");
                }
                if (lchown(from, getuid(), getgid()) < 0 || rename(from, job_results[i]) < 0)
                        return error_set_errno(err, errno, "cannot take %s", job_results[i]);
        }
        return 0;
}

// The first process of the outer namespaces; the current directory is JAIL_WORK.
static int job_outer(void *data, Error *err) {
        static const char *const scratch[] = {"root", "tmp", "stage"};
        Job *job = data;
        bool ignored;
        JailIds ids;
        int r = jail_ids(&ids, err);

        if (r >= 0)
                r = job_make_scratch(job, &ids, err);
        if (r >= 0 && job->recipe)
                r = debootstrap_run(&job->debootstrap, err);
        if (r >= 0)
                r = job_inner_asking(job_stage_tree, job, false, &job->asked, err);
        if (r >= 0 && job->recipe && job->asked && job_may_ask_index(job))
                r = job_inner_asking(job_stage_index, job, true, &ignored, err);
        if (r >= 0)
                r = job_inner(job_stage_pack, job, false, err);
        job->mirrors = strv_free(job->mirrors);
        if (r >= 0)
                r = job_take_results(err);
        // Only here are there capabilities over the subids that own these files.
        for (size_t i = 0; i < ELEMENTS(scratch); i++) {
                int k = io_remove_tree(AT_FDCWD, scratch[i]);
                if (k < 0 && r >= 0)
                        r = error_set_errno(err, k, "cannot remove the scratch directory");
        }
        return r;
}

static int job_publish(int out, int work, int result, Error *err) {
        for (size_t i = 0; i < ELEMENTS(job_results); i++) {
                if (result >= 0 && renameat(work, job_results[i], out, job_results[i]) < 0)
                        result = error_set_errno(err, errno, "cannot publish %s", job_results[i]);
                if (result < 0) {
                        (void) unlinkat(work, job_results[i], 0);
                        (void) unlinkat(out, job_results[i], 0);
                }
        }
        (void) io_remove_tree(out, "work"); // what a killed stage left is not ours to remove: hostd does, as root
        return result;
}

static int job_in_work(Job *job, Error *err) {
        const JailPlan plan = {job->recipe ? job->spec->network : JAIL_ALONE, job->spec->wire_fd};
        int out = job->spec->out_fd, r;
        _cleanup_close_ int work = -EBADF;

        if (mkdirat(out, "work", 0755) < 0)
                return error_set_errno(err, errno, "cannot make a work directory (is a job running there?)");
        work = openat(out, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = work < 0 || fchdir(work) < 0 ? error_set_errno(err, errno, "cannot enter the work directory") : 0;
        if (r >= 0)
                r = jail_run_outer(job_outer, job, &plan, err);
        (void) !chdir("/");
        return job_publish(out, work, r, err);
}

static int job_build(Job *job, Error *err) {
        int r = recipe_parse(job->spec->origin, job->spec->recipe_text, job->spec->suite, &job->recipe, err);

        if (r >= 0)
                r = debootstrap_prepare(&job->debootstrap, job->recipe, err);
        if (r >= 0)
                r = job_in_work(job, err);
        debootstrap_done(&job->debootstrap);
        job->recipe = recipe_free(job->recipe);
        return r;
}

typedef struct Feed {
        int dir, out, in;
} Feed;

static int job_feed(void *data, Error *err) {
        Feed *feed = data;

        feed->in = close_fd(feed->in);
        (void) signal(SIGPIPE, SIG_IGN);
        return unpack_pack_directory(feed->dir, feed->out, err);
}

static int job_import_directory(Job *job, Error *err) {
        _cleanup_error_ Error feed_error = ERROR_NULL;
        JailChild child = {.error_fd = -EBADF};
        Feed feed = {.dir = job->spec->input_fd};
        int p[2], r, k;

        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot make a pipe");
        feed.in = p[0];
        feed.out = p[1];
        r = jail_start_plain(job_feed, &feed, &child, err);
        feed.out = close_fd(feed.out);
        if (r < 0) {
                feed.in = close_fd(feed.in);
                return r;
        }
        job->tar_fd = feed.in;
        r = job_in_work(job, err);
        feed.in = close_fd(feed.in);
        k = jail_wait(&child, &feed_error);
        // A feeder that stopped by itself is the cause of what the unpacker says.
        if (k < 0 && feed_error.code != ERR_CANCELLED) {
                error_done(err);
                error_move(err, &feed_error);
                return k;
        }
        return r;
}

int job_run(const JobSpec *spec, Error *err) {
        Job job = {.spec = spec, .tar_fd = spec->input_fd, .mirrors_fd = -EBADF, .start = (time_t) (clock_realtime() / USEC_PER_SEC)};
        struct stat st;

        if (spec->recipe_text)
                return job_build(&job, err);
        if (fstat(spec->input_fd, &st) < 0)
                return error_set_errno(err, errno, "cannot read what is imported");
        return S_ISDIR(st.st_mode) ? job_import_directory(&job, err) : job_in_work(&job, err);
}
