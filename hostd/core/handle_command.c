// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, commands, and how these and files (handle_file.c) enter a guest: only pipes and ptys that the caller made enter a guest, and only by this way.
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/sysmacros.h>

#include "base/digest.h"
#include "core/background.h"
#include "core/command.h"
#include "core/guest_link.h"
#include "core/handle_file.h"
#include "core/redaction.h"
#include "core/sandbox.h"

#define GUEST_TIMEOUT (30 * USEC_PER_SEC)
#define PTS_MAJOR_FIRST 136
#define PTS_MAJOR_LAST 143
#define WRITER_GRACE (10 * USEC_PER_SEC)

// A descriptor of anything else would carry the caller's terminal, a directory or a file of the host into the guest.
static bool fd_may_enter(int fd) {
        struct statfs fs;
        struct stat st;

        if (fstat(fd, &st) < 0)
                return false;
        if (S_ISFIFO(st.st_mode)) // a pipe; a named one lies in a file system of the host's, with a path and an owner
                return fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC;
        return S_ISCHR(st.st_mode) && major(st.st_rdev) >= PTS_MAJOR_FIRST && major(st.st_rdev) <= PTS_MAJOR_LAST;
}

bool request_fds_allowed(Request *request) {
        for (unsigned i = 0; i < request->method->n_fds; i++)
                if (!fd_may_enter(request->fds[i])) {
                        request_failf(request, ERR_INVALID, "%s needs %u descriptors that are pipes or ptys made for it; number %u is not", request->method->words,
                                      request->method->n_fds, i);
                        return false;
                }
        return true;
}

// All that the command wrote before it ended has been written to the caller.
static void command_drained(void *userdata, const json_t *counts) {
        Request *request = userdata;
        json_int_t sum = 0;
        const char *name;
        json_t *count;

        json_object_foreach((json_t *) counts, name, count)
                sum += json_integer_value(count);
        if (!counts)
                request_reply(request, json_pack("{s:s}", "message", "the end of the output is missing: hostd-redact, which takes values of secrets out of it, died"));
        else
                request_reply(request, json_pack("{s:I}", "redacted", sum));
        if (sum > 0) {
                (void) json_object_set(request->detail, "redacted", (json_t *) counts);
                event_publish(request->manager->bus, "secret-redacted", request->target,
                              json_pack("{s:O, s:O}", "id", json_object_get(request->detail, "id"), "replaced", counts));
        }
        request->redaction = redaction_free(request->redaction);
        request_release(request);
}

static void command_done(Command *command, const CommandRecord *record, void *userdata) {
        Request *request = userdata;

        (void) json_object_set_new(request->detail, "record", command_record_json(record));
        if (!request->call)
                (void) json_object_set_new(request->detail, "client", json_string("gone"));
        event_publish(request->manager->bus, "command-ended", command_instance(command),
                       json_pack("{s:s, s:i, s:b, s:b}", "id", command_id(command), "exit", record->exit, "oom", record->oom, "timed_out", record->timed_out));
        request_reply(request, command_record_json(record));
        request->command = NULL;
        if (request->redaction)
                redaction_drain(request->redaction, command_drained, request);
        else
                request_release(request);
}

// When it is hostd that ends, all connections close too: the commands go on, and their clients come back for them.
static void command_client_gone(Request *request) {
        if (!request->command || request->manager->stopping)
                return;
        if (command_is_detached(request->command)) { // who waited waits no longer
                command_leave(TAKE_PTR(request->command));
                request_failf(request, ERR_CANCELLED, "the caller went away");
                request_release(request);
                return;
        }
        // A writer sees that a stream of its was cut off and removes what it had written so far.
        command_abandon(request->command, command_verb(request->command) == GUEST_WRITE || command_verb(request->command) == GUEST_REPLACE ? WRITER_GRACE : 0);
}

static char **env_of(const json_t *pairs) {
        char **env = NULL;
        const char *key;
        json_t *value;

        json_object_foreach((json_t *) pairs, key, value)
                if (!valid_is(VALID_ENV_NAME, key) || strv_append_format(&env, "%s=%s", key, json_string_value(value)) < 0)
                        return strv_free(env);
        return env;
}

static char **strings_of(const json_t *array) {
        char **list = NULL;
        size_t index;
        json_t *value;

        json_array_foreach((json_t *) array, index, value)
                if (strv_append(&list, json_string_value(value)) < 0)
                        return strv_free(list);
        return list;
}

// A pipe at its end: reads give end-of-file, writes fail.
static int closed_pipe(bool read_end) {
        int p[2];

        if (pipe2(p, O_CLOEXEC) < 0)
                return -errno;
        (void) close_fd(p[read_end]);
        return p[!read_end];
}

static int fill_fds(Request *request, bool stream_is_input, int fds[3]) {
        if (request->method->n_fds == 3 || request->kept) {
                for (unsigned i = 0; i < 3; i++)
                        fds[i] = TAKE_FD(request->fds[i]);
                return 0;
        }
        fds[0] = stream_is_input && request->method->n_fds == 1 ? TAKE_FD(request->fds[0]) : closed_pipe(true);
        fds[1] = !stream_is_input && request->method->n_fds == 1 ? TAKE_FD(request->fds[0]) : closed_pipe(false);
        fds[2] = closed_pipe(false);
        return fds[0] < 0 || fds[1] < 0 || fds[2] < 0 ? -EMFILE : 0;
}

// Where a command goes.
typedef struct Place {
        Instance *instance;
        GuestChannel *channel;
        char *name; // owned
        const char *user, *cwd; // where the caller says nothing
        usec_t run_time;        // of anything at most; 0: no limit
} Place;

static void place_done(Place *place) {
        free(place->name);
}

Instance *request_place(Request *request, Sandbox **ret_sandbox) {
        const char *name = request_string(request, "name");
        Instance *instance = instance_list_find(&request->manager->instances, name);

        *ret_sandbox = instance ? NULL : sandbox_find(request->manager, name);
        if (*ret_sandbox)
                instance = instance_list_find(&request->manager->instances, (*ret_sandbox)->instance);
        if (!instance)
                request_failf(request, ERR_NOT_FOUND, "there is no instance or sandbox \"%s\"", name);
        return instance;
}

bool place_is_of(const char *place, const char *name) {
        const char *slash = strchr(place, '/');
        size_t n = slash ? (size_t) (slash - place) : strlen(place);

        return (strlen(name) == n && strncmp(place, name, n) == 0) || (slash && strcmp(slash + 1, name) == 0);
}

static int find_sandbox_place(const Request *request, Place *ret, Error *err) {
        const Sandbox *s = sandbox_find(request->manager, request->target);

        if (!s)
                return error_set(err, ERR_NOT_FOUND, "there is no sandbox \"%s\"", request->target);
        if (s->state != SANDBOX_RUNNING || s->restoring || !s->channel)
                return error_set(err, s->state == SANDBOX_ENDED ? ERR_UNAVAILABLE : ERR_BUSY, "sandbox %s %s", s->id,
                                 s->state == SANDBOX_ENDED ? "has ended" : s->state == SANDBOX_PAUSED ? "is paused: resume it first" : "is not ready yet");
        *ret = (Place) {.instance = instance_list_find(&request->manager->instances, s->instance), .channel = s->channel, .name = sandbox_place(s),
                        .user = s->root ? "0" : "1000", .cwd = GUEST_WORKSPACE, .run_time = s->run_time};
        return ret->name && ret->instance ? 0 : error_set_errno(err, ENOMEM, "finding sandbox %s", s->id);
}

static int find_place(const Request *request, Place *ret, Error *err) {
        Instance *instance;

        if (request->in_sandbox)
                return find_sandbox_place(request, ret, err);
        instance = instance_list_find(&request->manager->instances, request->target);
        if (!instance || !instance->guest)
                return error_set(err, ERR_UNAVAILABLE, "the guest helper of %s is gone again", request->target);
        *ret = (Place) {.instance = instance, .channel = instance->guest, .name = strdup(instance->record.name)};
        return ret->name ? 0 : error_set_errno(err, ENOMEM, "finding %s", request->target);
}

// What the caller asks for above the place's is no mistake to be mended in silence.
static int enter_timeout(const Request *request, const Entering *how, const Place *place, usec_t *ret, Error *err) {
        usec_t asked = (usec_t) request_int(request, "timeout", (int64_t) how->timeout);
        char text[64];

        *ret = place->run_time > 0 && (asked == 0 || asked > place->run_time) ? place->run_time : asked;
        if (*ret >= asked || !json_object_get(request->parameters, "timeout"))
                return 0;
        return error_set_field(err, "timeout", "timeout is more than the run time of sandbox %s, %s", request->target, clock_format_span(place->run_time, text, sizeof(text)));
}

static int enter(Request *request, const Place *place, const Entering *how, Error *err) {
        _cleanup_strv_ char **argv = how->options ? file_words(request, how->options) : strings_of(json_object_get(request->parameters, "command"));
        _cleanup_strv_ char **env = env_of(json_object_get(request->parameters, "env"));
        int fds[3] = {-EBADF, -EBADF, -EBADF}, r;
        CommandRequest command = {
                .instance = place->name,
                .caller = request->peer.user,
                .channel = place->channel,
                .guest = {
                        .id = json_string_value(json_object_get(request->detail, "id")),
                        .verb = how->verb,
                        .flags = how->flags,
                        .mode = (mode_t) request_int(request, "mode", 0),
                        .user = request_string(request, "user") ?: place->user,
                        .cwd = request_string(request, "cwd") ?: how->options ? NULL : place->cwd,
                        .path = request_string(request, "path") ?: how->path,
                        .argv = argv,
                        .env = env,
                        .held = true,
                },
                .fds = fds,
                .done = request->kept ? background_done : how->done,
                .started = request->kept ? background_started : NULL,
                .detached = request->kept,
                .userdata = request,
        };

        r = enter_timeout(request, how, place, &command.timeout, err);
        if (r < 0)
                return r;
        r = fill_fds(request, how->stream_is_input, fds);
        if (r < 0)
                r = error_set_errno(err, r, "cannot make pipes");
        else
                r = command_start(request->manager->commands, &command, &request->command, err);
        for (unsigned i = 0; i < 3; i++)
                (void) close_fd(fds[i]);
        return r;
}

static const Entering ways[] = {
        [GUEST_RUN] = {GUEST_RUN, .done = command_done},
        [GUEST_LOGIN] = {GUEST_LOGIN, .done = command_done},
};

// Parameters that the helper gets as a bit.
static const struct {
        const char *parameter;
        unsigned flag;
} enter_flags[] = {
        {"tty", GUEST_FLAG_TTY},
        {"recursive", GUEST_FLAG_RECURSIVE},
        {"parents", GUEST_FLAG_PARENTS},
        {"force", GUEST_FLAG_FORCE},
};

// The helper has forked meanwhile, and the child is in its group and waits: nothing runs that is not on record.
static void enter_recorded(Request *request, int r, Error *err) {
        if (!request->command) // it did not start or has ended already, and its end has told all
                return;
        if (r < 0) {
                command_detach(TAKE_PTR(request->command));
                request_done(request, r, err);
                return;
        }
        command_permit(request->command);
        if (request->call && (request->method->flags & METHOD_MORE))
                call_reply_continues(request->call, json_pack("{s:s}", "id", command_id(request->command)));
}

static void enter_name(Request *request) {
        char id[GUEST_ID_MAX] = "";

        if (json_object_get(request->detail, "id"))
                return;
        (void) digest_random(8, id);
        (void) json_object_set_new(request->detail, "id", json_string(id));
}

// The id is in both records: after a restart of hostd the end is written by another call, or by none.
static int enter_record(Request *request, Error *err) {
        enter_name(request);
        return request_audit_later(request, enter_recorded, err);
}

static void enter_failed(Request *request, int r, Error *err) {
        if (request->kept)
                background_forget(request);
        request_done(request, r, err);
}

static void enter_now(Request *request) {
        Entering how = request->verb > GUEST_LOGIN ? *file_way(request->verb) : ways[request->verb];
        _cleanup_(place_done) Place place = {0};
        _cleanup_error_ Error err = ERROR_NULL;
        int r = request->call ? find_place(request, &place, &err) : error_set(&err, ERR_CANCELLED, "the client went away");

        if (r < 0) { // nobody waits any more, or nothing is there: nothing is entered
                enter_failed(request, r, &err);
                return;
        }
        for (size_t i = 0; i < ELEMENTS(enter_flags); i++)
                how.flags |= request_bool(request, enter_flags[i].parameter) ? enter_flags[i].flag : 0;
        // On its way to the disk before anything is done, so that the disk works while the helper forks.
        r = enter_record(request, &err);
        if (r >= 0)
                r = enter(request, &place, &how, &err);
        if (r < 0) {
                enter_failed(request, r, &err);
                return;
        }
        if (!request->kept)
                request->closed = command_client_gone;
}

// Its output has a place before it begins.
static void output_kept(void *userdata, int r, Error *err) {
        Request *request = userdata;

        request->kept = r >= 0;
        if (r < 0)
                request_done(request, r, err);
        else
                enter_now(request);
}

// Without it the command runs all the same: what it guards against is a mistake, and a warning says that nobody does.
static void redaction_ready(void *userdata, int r, Error *err) {
        Request *request = userdata;

        if (r < 0) {
                manager_warn(request->manager, "redaction", request->target, "%s", error_message(err, r));
                request->redaction = redaction_free(request->redaction);
        } else
                manager_unwarn(request->manager, "redaction", request->target);
        enter_now(request);
}

// A terminal is a place of its own, whose bytes go both ways: they are not looked at.
static bool is_redacted(const Request *request, const Instance *instance) {
        struct stat out, errors;

        if (request->verb > GUEST_LOGIN || request->method->n_fds != 3 || !redaction_is_wanted(instance))
                return false;
        return fstat(request->fds[1], &out) == 0 && S_ISFIFO(out.st_mode) && fstat(request->fds[2], &errors) == 0 && S_ISFIFO(errors.st_mode);
}

static void enter_ready(void *userdata, int r, Error *wait_err) {
        Request *request = userdata;
        _cleanup_(place_done) Place place = {0};
        _cleanup_error_ Error err = ERROR_NULL;

        if (r < 0) {
                request_done(request, r, wait_err);
                return;
        }
        if (find_place(request, &place, NULL) >= 0 && request->id == METHOD_COMMAND_START) {
                enter_name(request);
                r = background_keep(request, place.instance, output_kept, &err);
                if (r < 0)
                        request_done(request, r, &err);
                return;
        }
        if (!place.instance || !is_redacted(request, place.instance)) {
                enter_now(request);
                return;
        }
        r = redaction_start(place.instance, request->fds + 1, redaction_ready, request, &request->redaction, &err);
        if (r < 0)
                redaction_ready(request, r, &err);
}

// A guest that never lets its helper run must not keep callers for ever.
static int guest_timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        Instance *instance = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = error_set(&err, ERR_TIMEOUT, "the guest helper of %s does not answer", instance->record.name);

        instance->guest_deadline = sd_event_source_disable_unref(instance->guest_deadline);
        instance_notify(instance, GOAL_GUEST, r, &err);
        return 0;
}

void request_await_guest(Request *request, Instance *instance, InstanceDone ready) {
        if (instance->state != INSTANCE_RUNNING) {
                request_failf(request, ERR_BUSY, "%s is %s: start it first", instance->record.name, instance_state_to_string(instance->state));
                return;
        }
        if (instance->paused) {
                request_failf(request, ERR_BUSY, "%s is paused: resume it first", instance->record.name);
                return;
        }
        instance_wait(instance, GOAL_GUEST, ready, request_hold(request));
        if (instance->guest_ready)
                instance_notify(instance, GOAL_GUEST, 0, NULL);
        else if (!instance->guest_deadline)
                (void) sd_event_add_time_relative(instance->manager->event, &instance->guest_deadline, CLOCK_MONOTONIC, GUEST_TIMEOUT, 0,
                                                  guest_timed_out, instance);
}

static bool env_is_allowed(Request *request) {
        const char *key;
        json_t *value;

        json_object_foreach(json_object_get(request->parameters, "env"), key, value) {
                Error err = ERROR_NULL;
                int r = valid_check(VALID_ENV_NAME, "env", key, &err);
                if (r < 0) {
                        (void) request_fail(request, r, &err);
                        return false;
                }
        }
        return true;
}

static bool fds_are_taken(Request *request) {
        for (unsigned i = 0; i < request->method->n_fds; i++)
                request->fds[i] = call_take_fd(request->call, i);
        return request_fds_allowed(request);
}

// Its commands and files are those of one user, unless it was made for root of its own.
static bool sandbox_allows(Request *request, const Sandbox *s) {
        const char *user = request_string(request, "user");

        if (request->verb == GUEST_LOGIN)
                request_failf(request, ERR_INVALID, "sandbox %s has no logins; exec runs a command in it", s->id);
        else if (!s->root && user && strcmp(user, "1000") != 0)
                request_failf(request, ERR_DENIED, "sandbox %s was not made with --root: its commands and files are those of the instance's user 1000", s->id);
        else
                return true;
        return false;
}

static void enter_sandbox(Request *request, const Instance *instance, const Sandbox *s) {
        if (!sandbox_allows(request, s))
                return;
        if (instance->paused) {
                request_failf(request, ERR_BUSY, "%s is paused: resume it first", instance->record.name);
                return;
        }
        request->in_sandbox = true;
        (void) json_object_set_new(request->detail, "instance", json_string(instance->record.name));
        enter_ready(request_hold(request), 0, NULL);
}

void request_enter(Request *request, GuestVerb verb) {
        Sandbox *s = NULL;
        Instance *instance = verb == GUEST_PACKAGES ? request_instance(request) : request_place(request, &s);

        if (!instance || !env_is_allowed(request) || !fds_are_taken(request))
                return;
        request->verb = verb;
        if (s)
                enter_sandbox(request, instance, s);
        else
                request_await_guest(request, instance, enter_ready);
}

void handle_sandbox_exec(Request *request) {
        const Sandbox *s = sandbox_find(request->manager, request->target);
        const Instance *instance = s ? instance_list_find(&request->manager->instances, s->instance) : NULL;

        if (!instance) {
                request_failf(request, ERR_NOT_FOUND, "there is no sandbox \"%s\"", request->target);
                return;
        }
        // A sandbox's own id came as a parameter of that name; a command has another.
        (void) json_object_set(request->detail, "sandbox", json_object_get(request->detail, "id"));
        (void) json_object_del(request->detail, "id");
        if (!env_is_allowed(request) || !fds_are_taken(request))
                return;
        request->verb = GUEST_RUN;
        enter_sandbox(request, instance, s);
}

void handle_exec(Request *request) {
        request_enter(request, request_bool(request, "login") ? GUEST_LOGIN : GUEST_RUN);
}

void handle_command_start(Request *request) {
        request_enter(request, GUEST_RUN);
}

void handle_shell(Request *request) {
        request_enter(request, GUEST_LOGIN);
}

// One of the last hostd's has its line in the store, and is found once the helper of its instance has answered: whoever comes back
// earlier is to ask again.
static bool command_comes_back(Request *request, const char *id) {
        _cleanup_free_ char *key = NULL, *line = NULL;

        if (asprintf(&key, "command.%s", id) < 0) {
                key = NULL;
                return false;
        }
        return store_value_get(request->manager->store, key, &line, NULL) >= 0;
}

static Command *find_command(Request *request) {
        const char *id = request_string(request, "id");
        Command *command = command_find(request->manager->commands, id);

        if (!command && command_comes_back(request, id))
                request_failf(request, ERR_BUSY, "command \"%s\" is not taken up yet after a restart of hostd", id);
        else if (!command)
                request_failf(request, ERR_NOT_FOUND, "no command \"%s\" is running", id);
        return command;
}

void handle_command_attach(Request *request) {
        Command *command = background_reply(request) ? NULL : find_command(request);
        int r;

        if (!command)
                return;
        request->command = command;
        request->closed = command_client_gone;
        r = command_attach(command, command_done, request);
        if (r < 0) {
                request->command = NULL;
                request_failf(request, ERR_BUSY, "somebody waits for this command already");
                return;
        }
        (void) request_hold(request);
        call_reply_continues(request->call, json_pack("{s:s}", "id", command_id(command)));
}

void handle_command_signal(Request *request) {
        Command *command = find_command(request);
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!command)
                return;
        r = command_signal(command, (int) request_int(request, "signal", SIGTERM), &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
}

void handle_command_list(Request *request) {
        const char *name = request_string(request, "name");
        Sandbox *s;
        json_t *list;

        if (name && !request_place(request, &s))
                return;
        list = json_array();
        for (Command *c = command_next(request->manager->commands, NULL); c; c = command_next(request->manager->commands, c)) {
                char when[CLOCK_TEXT_MAX];
                if (name && !place_is_of(command_instance(c), name))
                        continue;
                (void) json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i}", "id", command_id(c), "name", command_instance(c), "user",
                                                             command_user(c), "command", command_text(c), "started",
                                                             clock_format(command_started_at(c), when), "caller", command_caller(c), "pid", (int) command_pid(c)));
        }
        request_reply(request, json_pack("{s:o}", "commands", list));
}
