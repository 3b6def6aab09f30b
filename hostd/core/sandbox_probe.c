// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, probe: a command that says by its exit status whether what its maker waits for is there. It is tried again until it does or the time is over;
// until then the sandbox is "creating": nobody else enters it, and a hostd that dies meanwhile leaves it to the next one to be ended.
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
        if (record->started && record->exit == 0 && !record->timed_out)
                probe_later(s, 0, probe_succeeded);
        else
                probe_later(s, PROBE_EVERY, probe_again);
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

static void sandbox_probe_try(Sandbox *s) {
        char sh[] = "/bin/sh", c[] = "-c", script[] = "exec </dev/null >/dev/null 2>&1; eval \"$1\"", name[] = "probe", *argv[] = {sh, c, script, name, s->probe, NULL};
        _cleanup_free_ char *place = sandbox_place(s);
        int fds[3] = {-EBADF, -EBADF, -EBADF};
        CommandRequest request = {
                .instance = place, .caller = s->caller, .channel = s->channel, .fds = fds, .timeout = PROBE_LIMIT, .done = probe_done, .userdata = s->manager,
                .guest = {.verb = GUEST_RUN, .user = s->root ? "0" : "1000", .cwd = GUEST_WORKSPACE, .argv = argv},
        };
        Command *command;
        int r = place ? 0 : -ENOMEM;

        if (s->state != SANDBOX_CREATING || !s->channel)
                return; // it ended meanwhile, or its channel did: what comes of that is on its way
        if (r >= 0)
                r = probe_pipes(fds);

        if (r >= 0)
                r = command_start(s->manager->commands, &request, &command, NULL);
        for (int i = 0; i < 3; i++)
                (void) close_fd(fds[i]);
        if (r < 0)
                probe_later(s, PROBE_EVERY, probe_again);
}

void sandbox_probe_begin(Sandbox *s) {
        s->limit = sd_event_source_disable_unref(s->limit);
        if (sd_event_add_time_relative(s->manager->event, &s->limit, CLOCK_MONOTONIC, s->probe_time, 0, probe_over, s) < 0)
                probe_later(s, 0, probe_over);
        else
                probe_later(s, 0, probe_again); // from the loop: this is the channel's own turn
}
