// SPDX-License-Identifier: GPL-2.0-or-later
// Template: the images of this host, their mounts, and the jobs that make new ones.
//
// On disk, below the state directory (root only): templates/DIGEST.erofs and templates/DIGEST.json, nothing else; names
// are in the manifests. The file's name is the truth about its content: adoption hashes the bytes it keeps. A digest that
// is not 64 hex digits never becomes a path: template_digest_path() is the one place that makes them.
// hostd-build's output is a stranger's until it was adopted; scratch directories are build/ID.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include <jansson.h>

#include "base/clock.h"
#include "build/manifest.h"
#include "quotas/cgroup.h"

typedef struct TemplateRegistry TemplateRegistry;

typedef struct Template {
        Manifest *manifest;
        usec_t added;  // when it was adopted here; the newest of a name is what the name means
        unsigned refs; // template_mount() minus template_unmount()
        usec_t unused; // monotonic: since when refs is 0
        bool mounted;
} Template;

// `state_fd` is duplicated; `run_dir` is absolute (mounts go to RUN/templates/DIGEST). Removes what unfinished jobs left.
int template_registry_new(int state_fd, const char *run_dir, TemplateRegistry **ret, Error *err);
// Unmounts nothing: instances may live on.
TemplateRegistry *template_registry_free(TemplateRegistry *registry);
DEFINE_CLEANUP(TemplateRegistry, template_registry_free)

// By name (the newest) or digest; NULL if absent. Borrowed until the registry changes.
Template *template_find(TemplateRegistry *registry, const char *name_or_digest);
// {"templates": [{name, digest, suite, built, size, packages, recipe, newest, mounted}]}; NULL on OOM.
json_t *template_list_json(TemplateRegistry *registry);
json_t *template_show_json(const Template *template);
// Reads the whole image again; slow, never in the event loop.
int template_verify(TemplateRegistry *registry, const char *digest, Error *err);

// `used`: digests that instances need (NULL-terminated, may be NULL).
int template_delete(TemplateRegistry *registry, const char *name_or_digest, char *const *used, Error *err);
// Deletes all but the newest of each name and those in use; ret_deleted gets the digests.
int template_prune(TemplateRegistry *registry, char *const *used, char ***ret_deleted, Error *err);

// Mounted already (by us, or by a hostd before us) is success. ret_path: caller frees.
int template_mount(TemplateRegistry *registry, const char *digest, char **ret_path, Error *err);
// References are of this hostd only: after a restart each instance takes its own again. Without one the mount stays for a while, since
// both ways take the kernel 10 ms, until template_unmount_idle().
int template_unmount(TemplateRegistry *registry, const char *digest, Error *err);
// Unmounts one that nobody has used for so long.
void template_unmount_idle(TemplateRegistry *registry, usec_t idle);

typedef struct TemplateBuildSpec {
        const char *program; // NULL: the installed hostd-build
        uid_t uid;           // of hostd-build, never 0
        gid_t gid;
        const char *recipe_text; // build
        const char *suite;       // build: NULL for the recipe's own
        const char *name;        // import
        int input_fd;            // import: tar stream or directory; borrowed
        const char *socket;      // of hostd-build.socket: systemd starts it, by a unit of its own; NULL: a child of ours is
        bool wired;              // build: it has a network of its own, and asks for what is to be in there
        int wire;                // at this socket; borrowed. Otherwise it has this host's: for tests
        CgroupHost *cgroup;      // for a child: where it is limited; NULL: nowhere
} TemplateBuildSpec;

// One job: first hostd-build runs, then a child of hostd's copies and hashes the image. The event loop watches `pidfd` and
// `out_fd`, which change in between (template_build_finish() returns 1). Of a unit `pidfd` is the connection, which ends with it.
typedef struct TemplateJob {
        TemplateRegistry *registry;
        pid_t pid;
        int pidfd, out_fd;
        unsigned percent;
        char text[256];  // what it does, printable
        char id[17];     // scratch directory
        bool adopting;
        bool unit;       // one of systemd's runs: `pidfd` is the connection to it
        bool complete;   // hostd-build said that it is done: the only way to know it of a unit
        CgroupHost *cgroup;
        char line[1200]; // unfinished line of output
        size_t line_used;
        Error error;     // of an "error" line
        Manifest *manifest;
} TemplateJob;

int template_build_start(TemplateRegistry *registry, const TemplateBuildSpec *spec, TemplateJob **ret, Error *err);
// Takes what is there. 1: percent or text changed; 0: nothing new, or the end of file.
int template_build_read(TemplateJob *job);
// Once `pidfd` is readable. 1: another child runs, watch it; 0: done, the template is in the registry.
int template_build_finish(TemplateJob *job, char ret_digest[DIGEST_TEXT_MAX], Error *err);
bool template_job_runs(const TemplateJob *job);
void template_job_kill(TemplateJob *job); // what runs of it; its death is seen by `pidfd`
int template_job_reap(TemplateJob *job);  // then; as wait(2) has the status
// Removes what a dead job left on disk, which may take long: for a helper process.
int template_job_scrub(const TemplateJob *job, Error *err);
// Forgets it. What still runs is killed and reaped; what is on disk stays until template_job_scrub() or the next hostd.
TemplateJob *template_job_free(TemplateJob *job);
DEFINE_CLEANUP(TemplateJob, template_job_free)
