// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, probe: what comes between its first process and its being ready. Its entry is started, a command that runs on; then something is to listen on a
// port (its process 1 looks: hostd connects to nothing); then a command says by its exit status whether what its maker waits for is there. Each is tried
// again until it is so or the time is over; until then the sandbox is "creating": nobody else enters it, and a hostd that dies meanwhile leaves it to the
// next one to be ended.
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/command.h"
#include "core/manager.h"
#include "core/sandbox.h"

#define PROBE_EVERY (200 * USEC_PER_MSEC)
#define PROBE_LIMIT (10 * USEC_PER_SEC) // of one attempt

static void sandbox_probe_try(Sandbox *s);

static int probe_over(sd_event_source *source, uint64_t usec, void *userdata) {
        sandbox_end(userdata, SANDBOX_CAUSE_FAILED, "its probe did not succeed in time");
        return 0;
}

static int probe_again(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;

        s->probing = sd_event_source_disable_unref(s->probing);
        sandbox_probe_try(s);
        return 0;
}

static int probe_succeeded(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;

        s->probing = sd_event_source_disable_unref(s->probing);
        s->limit = sd_event_source_disable_unref(s->limit);
        sandbox_ready(s);
        return 0;
}

// From the loop: this is a turn of the command that has ended.
static void probe_later(Sandbox *s, usec_t wait, sd_event_time_handler_t handler) {
        s->probing = sd_event_source_disable_unref(s->probing);
        (void) sd_event_add_time_relative(s->manager->event, &s->probing, CLOCK_MONOTONIC, wait, 1000, handler, s); // without it the time runs out
}

static void probe_done(Command *command, const CommandRecord *record, void *userdata) {
        Sandbox *s = sandbox_find(userdata, strchr(command_instance(command), '/') + 1);

        if (!s || s->state != SANDBOX_CREATING)
                return;
        if (!record->started || record->exit != 0 || record->timed_out)
                probe_later(s, PROBE_EVERY, probe_again);
        else if (s->probe_port > 0 && s->probe) { // on to the next
                s->probe_port = 0;
                probe_later(s, 0, probe_again);
        } else
                probe_later(s, 0, probe_succeeded);
}

// Pipes whose other end is closed: what the probe reads and writes is nobody's, and it has the sandbox's own /dev/null instead.
static int probe_pipes(int fds[3]) {
        int p[2];

        for (int i = 0; i < 3; i++) {
                if (pipe2(p, O_CLOEXEC) < 0)
                        return -errno;
                (void) close_fd(p[i == 0]);
                fds[i] = p[i != 0];
        }
        return 0;
}

static int probe_start(Sandbox *s, CommandRequest *request, Error *err) {
        _cleanup_free_ char *place = sandbox_place(s);
        int fds[3] = {-EBADF, -EBADF, -EBADF};
        int r = place ? probe_pipes(fds) : -ENOMEM;
        Command *command;

        request->instance = place;
        request->caller = s->caller;
        request->channel = s->channel;
        request->fds = fds;
        request->guest.user = s->root ? "0" : "1000";
        request->guest.cwd = GUEST_WORKSPACE;
        r = r < 0 ? error_set_errno(err, r, "making its pipes") : command_start(s->manager->commands, request, &command, err);
        for (int i = 0; i < 3; i++)
                (void) close_fd(fds[i]);
        return r;
}

static int probe_start_sh(Sandbox *s, char *text, CommandRequest *request, Error *err) {
        char sh[] = "/bin/sh", c[] = "-c", script[] = "exec </dev/null >/dev/null 2>&1; eval \"$1\"", name[] = "sandbox", *argv[] = {sh, c, script, name, text, NULL};

        request->guest.verb = GUEST_RUN;
        request->guest.argv = argv;
        return probe_start(s, request, err);
}

static int probe_start_port(Sandbox *s, CommandRequest *request, Error *err) {
        char port[32], *words[] = {port, NULL};

        (void) snprintf(port, sizeof(port), GUEST_WORD_PORT "=%u", s->probe_port);
        request->guest.verb = GUEST_LISTENS;
        request->guest.path = "/";
        request->guest.argv = words;
        return probe_start(s, request, err);
}

// It needs no client, and its end is nobody's.
static int probe_start_entry(Sandbox *s, Error *err) {
        CommandRequest request = {.timeout = s->run_time, .detached = true};
        int r = probe_start_sh(s, s->entry, &request, err);

        free(s->entry);
        s->entry = NULL;
        return r;
}

static void sandbox_probe_try(Sandbox *s) {
        CommandRequest request = {.timeout = PROBE_LIMIT, .done = probe_done, .userdata = s->manager};
        _cleanup_error_ Error err = ERROR_NULL;
        int r = 0;

        if (s->state != SANDBOX_CREATING || !s->channel)
                return; // it ended meanwhile, or its channel did: what comes of that is on its way
        if (s->entry && (r = probe_start_entry(s, &err)) < 0)
                sandbox_end(s, SANDBOX_CAUSE_FAILED, error_message(&err, r));
        else if (s->probe_port > 0)
                r = probe_start_port(s, &request, NULL);
        else if (s->probe)
                r = probe_start_sh(s, s->probe, &request, NULL);
        else
                probe_later(s, 0, probe_succeeded);
        if (r < 0 && sandbox_is_alive(s))
                probe_later(s, PROBE_EVERY, probe_again);
}

void sandbox_probe_begin(Sandbox *s) {
        s->limit = sd_event_source_disable_unref(s->limit);
        if (sd_event_add_time_relative(s->manager->event, &s->limit, CLOCK_MONOTONIC, s->probe_time, 0, probe_over, s) < 0)
                probe_later(s, 0, probe_over);
        else
                probe_later(s, 0, probe_again); // from the loop: this is the channel's own turn
}
