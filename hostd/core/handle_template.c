// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, templates: build and import as jobs with progress, and what is kept.
#include <pwd.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "base/io.h"
#include "core/build_wire.h"
#include "core/handle.h"
#include "core/job.h"
#include "core/policy_set.h"

#define RECIPE_MAX (1 << 20)

// A build on its way: the request is held until it ends; the caller's going away ends it.
typedef struct Building {
        Manager *manager;
        Request *request; // NULL: it was answered, and what is left is to clean up
        TemplateJob *job;
        BuildWire *wire; // of a build, until hostd-build has ended
        sd_event_source *output, *exit, *again;
        unsigned told; // percent
        bool exited;
} Building;

static void building_free(Building *building) {
        sd_event_source_disable_unref(building->output);
        sd_event_source_disable_unref(building->exit);
        sd_event_source_disable_unref(building->again);
        building->wire = build_wire_free(building->wire);
        (void) template_job_free(building->job);
        free(building);
}

static int scrub_work(void *input, json_t **ret, Error *err) {
        return template_job_scrub(input, err);
}

static void scrub_done(void *userdata, int r, json_t *result, Error *err) {
        Building *building = userdata;

        if (r < 0 && !building->manager->stopping)
                manager_warn(building->manager, "template", "host", "%s", error_message(err, r));
        building_free(building);
}

static int building_scrub_again(sd_event_source *source, uint64_t usec, void *userdata);

// Hundreds of thousands of files may be there: not in the loop.
static void building_scrub(Building *building) {
        JobSpec spec = {scrub_work, building->job, scrub_done, building};

        if (job_start(building->manager->event, &spec, NULL) >= 0)
                return;
        building->again = sd_event_source_disable_unref(building->again);
        if (sd_event_add_time_relative(building->manager->event, &building->again, CLOCK_MONOTONIC, USEC_PER_SEC, 0, building_scrub_again, building) < 0)
                building_free(building); // the next hostd cleans up
}

static int building_scrub_again(sd_event_source *source, uint64_t usec, void *userdata) {
        building_scrub(userdata);
        return 0;
}

static int building_died(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Building *building = userdata;

        (void) template_job_reap(building->job);
        building->exit = sd_event_source_disable_unref(building->exit);
        building_scrub(building);
        return 0;
}

// What runs is killed; its death, and the removal of what it left, are nothing that anybody has to wait for.
static void building_clean(Building *building) {
        building->output = sd_event_source_disable_unref(building->output);
        building->exit = sd_event_source_disable_unref(building->exit);
        building->wire = build_wire_free(building->wire);
        if (building->manager->stopping) {
                building_free(building);
                return;
        }
        if (!template_job_runs(building->job)) {
                building_scrub(building);
                return;
        }
        template_job_kill(building->job);
        if (sd_event_add_io(building->manager->event, &building->exit, building->job->pidfd, EPOLLIN, building_died, building) < 0)
                building_free(building);
}

static void building_end(Building *building, int r, Error *err) {
        Request *request = TAKE_PTR(building->request);

        request->building = NULL;
        building_clean(building);
        request_done(request, r, err);
}

static void building_tell(Building *building) {
        Request *request = building->request;

        if (request->call)
                call_reply_continues(request->call, json_pack("{s:i, s:s}", "percent", (int) building->job->percent, "line", building->job->text));
}

static int building_output(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Building *building = userdata;

        if (template_build_read(building->job) > 0)
                building_tell(building);
        if (events & EPOLLHUP)
                (void) sd_event_source_set_enabled(source, SD_EVENT_OFF); // the exit ends it
        return 0;
}

static int building_watch(Building *building, Error *err);

static int building_exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Building *building = userdata;
        char digest[DIGEST_TEXT_MAX] = "";
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        while (template_build_read(building->job) > 0)
                building_tell(building);
        // Before the job closes what they watch: a closed descriptor cannot be taken out of epoll any more.
        building->output = sd_event_source_disable_unref(building->output);
        building->exit = sd_event_source_disable_unref(building->exit);
        r = template_build_finish(building->job, digest, &err);
        if (r < 0 && building->wire)
                build_wire_explain(building->wire, &err);
        building->wire = build_wire_free(building->wire);
        if (r == 1)
                r = building_watch(building, &err);
        else if (r == 0) {
                request_reply(building->request, json_pack("{s:s}", "digest", digest));
                (void) json_object_set_new(building->request->detail, "digest", json_string(digest));
                event_publish(building->manager->bus, "template-added", NULL, json_pack("{s:s}", "digest", digest));
                policy_set_changed(building->manager, digest);
                building_end(building, 0, NULL);
                return 0;
        }
        if (r < 0)
                building_end(building, r, &err);
        return 0;
}

static int building_watch(Building *building, Error *err) {
        sd_event *event = building->manager->event;
        int r;

        r = building->job->out_fd >= 0 ? sd_event_add_io(event, &building->output, building->job->out_fd, EPOLLIN, building_output, building) : 0;
        if (r >= 0)
                r = sd_event_add_io(event, &building->exit, building->job->pidfd, EPOLLIN, building_exited, building);
        return r < 0 ? error_set_errno(err, r, "cannot watch the build") : 0;
}

static void building_cancel(Request *request) {
        Building *building = request->building;
        Error err = ERROR_NULL;

        if (!building)
                return;
        int r = error_set(&err, ERR_CANCELLED, "the caller went away");
        building_end(building, r, &err);
        error_done(&err);
}

static int building_start(Request *request, TemplateBuildSpec *spec, Error *err) {
        struct passwd *account = getpwnam("hostd-build");
        _cleanup_free_ char *socket = NULL;
        _cleanup_close_ int wire = -EBADF;
        Building *building;
        int r = 0;

        if (!account || account->pw_uid == 0)
                return error_set(err, ERR_UNAVAILABLE, "there is no user hostd-build: templates are never built as root");
        if (!(building = calloc(1, sizeof(Building))))
                return error_set_errno(err, ENOMEM, "cannot build");
        spec->uid = account->pw_uid;
        spec->gid = account->pw_gid;
        spec->program = getenv("HOSTD_BUILD_PROGRAM"); // tests run it from the build tree
        building->manager = request->manager;
        spec->cgroup = request->manager->cgroup;
        if (request->manager->systemd && !spec->program) {
                if (asprintf(&socket, "%s/build.sock", request->manager->paths.run) < 0)
                        socket = NULL;
                spec->socket = socket;
        }
        building->request = request;
        spec->wired = spec->recipe_text;
        if (spec->wired)
                r = build_wire_new(request->manager, request_string(request, "recipe"), spec->uid, &building->wire, &wire, err);
        spec->wire = wire;
        if (r >= 0)
                r = template_build_start(request->manager->templates, spec, &building->job, err);
        if (r >= 0)
                r = building_watch(building, err);
        if (r < 0) {
                if (building->job)
                        building_clean(building);
                else
                        building_free(building);
                return r;
        }
        request->building = building;
        request->closed = building_cancel;
        (void) request_hold(request);
        return 0;
}

// A recipe of the operator's goes before one that ships.
static int recipe_text(Request *request, char **ret, Error *err) {
        const char *name = request_string(request, "recipe");
        _cleanup_free_ char *own = NULL, *shipped = NULL;
        Error ignored = ERROR_NULL;
        int r;

        if (asprintf(&own, "templates.d/%s.conf", name) < 0)
                own = NULL;
        if (asprintf(&shipped, "%s/%s.conf", getenv("HOSTD_TEMPLATEDIR") ?: HOSTD_TEMPLATEDIR, name) < 0)
                shipped = NULL;
        if (!own || !shipped)
                return error_set_errno(err, ENOMEM, "cannot read the recipe");
        r = confdir_read(request->manager->confdir, own, ret, &ignored);
        if (r >= 0 || ignored.code != ERR_NOT_FOUND) {
                error_move(err, &ignored);
                return r;
        }
        error_done(&ignored);
        r = io_read_file(AT_FDCWD, shipped, RECIPE_MAX, ret, NULL);
        if (r < 0)
                return error_set(err, ERR_NOT_FOUND, "there is no recipe \"%s\": neither templates.d/%s.conf nor one that ships", name, name);
        return 0;
}

void handle_template_build(Request *request) {
        TemplateBuildSpec spec = {.suite = request_string(request, "suite"), .input_fd = -EBADF};
        _cleanup_free_ char *text = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = recipe_text(request, &text, &err);

        spec.recipe_text = text;
        if (r >= 0)
                r = building_start(request, &spec, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
}

void handle_template_import(Request *request) {
        TemplateBuildSpec spec = {.name = request_string(request, "name")};
        _cleanup_error_ Error err = ERROR_NULL;
        struct stat st;
        int r = 0;

        request->fds[0] = spec.input_fd = call_take_fd(request->call, 0);
        // It goes to an unprivileged process that reads it as the caller opened it; devices have no business there.
        if (fstat(spec.input_fd, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISFIFO(st.st_mode)))
                r = error_set(&err, ERR_INVALID, "a template is imported from a file, a directory or a pipe");
        if (r >= 0)
                r = building_start(request, &spec, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
}

static char **used_digests(Manager *m) {
        char **used = NULL;

        for (Instance *i = m->instances.first; i; i = i->next)
                if (i->record.template_digest[0] && !strv_contains(used, i->record.template_digest) && strv_append(&used, i->record.template_digest) < 0)
                        return strv_free(used);
        return used;
}

static unsigned count_users(Manager *m, const char *digest) {
        unsigned n = 0;

        for (Instance *i = m->instances.first; digest && i; i = i->next)
                n += strcmp(i->record.template_digest, digest) == 0;
        return n;
}

void handle_template_list(Request *request) {
        json_t *reply = template_list_json(request->manager->templates), *row;
        size_t index;

        json_array_foreach(json_object_get(reply, "templates"), index, row)
                (void) json_object_set_new(row, "used_by",
                                           json_integer(count_users(request->manager, json_string_value(json_object_get(row, "digest")))));
        request_reply(request, reply);
}

void handle_template_show(Request *request) {
        const char *name = request_string(request, "template");
        Template *template = template_find(request->manager->templates, name);

        if (!template)
                request_failf(request, ERR_NOT_FOUND, "there is no template \"%s\"", name);
        else
                request_reply(request, template_show_json(template));
}

void handle_template_delete(Request *request) {
        _cleanup_strv_ char **used = used_digests(request->manager);
        _cleanup_error_ Error err = ERROR_NULL;
        int r = template_delete(request->manager->templates, request_string(request, "template"), used, &err);

        if (r < 0)
                (void) request_fail(request, r, &err);
}

void handle_template_prune(Request *request) {
        _cleanup_strv_ char **used = used_digests(request->manager), **deleted = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = template_prune(request->manager->templates, used, &deleted, &err);
        json_t *list;

        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        list = json_array();
        for (char **p = deleted; p && *p; p++)
                (void) json_array_append_new(list, json_string(*p));
        request_reply(request, json_pack("{s:o}", "deleted", list));
}
