// SPDX-License-Identifier: GPL-2.0-or-later
// Launcher, units: hostd-instance@NAME.service, started through the bus without ever waiting for it.
//
// StartUnit is asked, the end of its job is a signal, then the main process is asked for. The job ends when the process has joined the
// unit's group, runs our program and has said so (Type=notify); its pid is known before that, when a group with controllers handed on
// would not take it. A start that follows an end closely may meet a unit whose end systemd has not noticed yet: a main process that is dead
// does not count, and the start is asked for again.
//
// The bus is opened for each start and closed with it: an idle hostd has no connection that could need care.
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <systemd/sd-bus.h>

#include "core/launcher.h"
#include "core/manager.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"
#define UNIT_TIMEOUT (30 * USEC_PER_SEC) // 13 s were seen between the request and the unit's start on a host with too much to do
#define UNIT_TOO_LATE "systemd did not start it within 30 s"
#define UNIT_AGAIN (2 * USEC_PER_MSEC)
#define UNIT_ASK_MAX 3

typedef struct UnitStart {
        Instance *instance;
        LauncherDone done;
        char *unit, *path;
        sd_bus *bus;
        sd_bus_slot *match, *call;
        sd_event_source *deadline, *again;
        unsigned asked;
} UnitStart;

static UnitStart *unit_start_free(UnitStart *start) {
        if (!start)
                return NULL;
        sd_event_source_disable_unref(start->deadline);
        sd_event_source_disable_unref(start->again);
        sd_bus_slot_unref(start->match);
        sd_bus_slot_unref(start->call);
        if (start->bus)
                (void) sd_bus_detach_event(start->bus);
        sd_bus_close_unref(start->bus);
        free(start->unit);
        free(start->path);
        free(start);
        return NULL;
}
DEFINE_CLEANUP(UnitStart, unit_start_free)

void launcher_forget(Instance *instance) {
        instance->launch = unit_start_free(instance->launch);
}

// The last thing that is done with `start`.
static void unit_end(UnitStart *start, int r, Error *err) {
        Instance *instance = start->instance;
        LauncherDone done = start->done;

        launcher_forget(instance);
        done(instance, r, err);
}

static void unit_fail(UnitStart *start, ErrorCode code, const char *why) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = error_set(&err, code, "starting hostd-instance: %s: %s (see \"journalctl -u %s\")", start->unit, why, start->unit);

        unit_end(start, r, &err);
}

static void unit_ask(UnitStart *start);

static int unit_ask_again(sd_event_source *source, uint64_t usec, void *userdata) {
        UnitStart *start = userdata;

        start->again = sd_event_source_disable_unref(start->again);
        unit_ask(start);
        return 0;
}

// It is not there although its job is over.
static void unit_down(UnitStart *start) {
        if (start->asked > UNIT_ASK_MAX)
                unit_fail(start, ERR_UNAVAILABLE, "it ends at once");
        else if (!start->again)
                (void) sd_event_add_time_relative(start->instance->manager->event, &start->again, CLOCK_MONOTONIC, UNIT_AGAIN, 1, unit_ask_again, start);
}

static int unit_process(sd_bus_message *reply, void *userdata, sd_bus_error *unused) {
        UnitStart *start = userdata;
        Instance *instance = start->instance;
        struct pollfd death = {.events = POLLIN};
        uint32_t pid = 0;

        start->call = sd_bus_slot_unref(start->call);
        if (sd_bus_message_is_method_error(reply, NULL) || sd_bus_message_read(reply, "v", "u", &pid) < 0 || pid == 0) {
                unit_down(start);
                return 0;
        }
        death.fd = (int) syscall(SYS_pidfd_open, (pid_t) pid, 0);
        if (death.fd < 0 || poll(&death, 1, 0) != 0) {
                (void) close_fd(death.fd);
                unit_down(start);
                return 0;
        }
        instance->supervisor = (pid_t) pid;
        instance->pidfd = death.fd;
        unit_end(start, 0, NULL);
        return 0;
}

static void unit_ask_process(UnitStart *start) {
        int r;

        start->call = sd_bus_slot_unref(start->call);
        r = sd_bus_call_method_async(start->bus, &start->call, SYSTEMD, start->path, "org.freedesktop.DBus.Properties", "Get", unit_process, start,
                                     "ss", SYSTEMD ".Service", "MainPID");
        if (r < 0)
                unit_fail(start, ERR_UNAVAILABLE, strerror(-r));
}

static int job_removed(sd_bus_message *message, void *userdata, sd_bus_error *unused) {
        UnitStart *start = userdata;
        const char *job, *unit, *result;
        uint32_t id;

        if (sd_bus_message_read(message, "uoss", &id, &job, &unit, &result) < 0 || strcmp(unit, start->unit) != 0 || start->asked == 0)
                return 0;
        if (strcmp(result, "done") == 0)
                unit_ask_process(start);
        else
                unit_down(start);
        return 0;
}

static int unit_asked(sd_bus_message *reply, void *userdata, sd_bus_error *unused) {
        UnitStart *start = userdata;
        const sd_bus_error *error = sd_bus_message_get_error(reply);

        start->call = sd_bus_slot_unref(start->call);
        if (error)
                unit_fail(start, ERR_UNAVAILABLE, error->message ?: error->name);
        return 0; // the end of the job is a signal
}

static void unit_ask(UnitStart *start) {
        int r;

        start->asked++;
        start->call = sd_bus_slot_unref(start->call);
        r = sd_bus_call_method_async(start->bus, &start->call, SYSTEMD, SYSTEMD_PATH, SYSTEMD ".Manager", "StartUnit", unit_asked, start, "ss",
                                     start->unit, "replace");
        if (r < 0)
                unit_fail(start, ERR_UNAVAILABLE, strerror(-r));
}

// What comes up after that would find nobody: systemd is told, and whether it hears is its affair.
static int unit_timed_out(sd_event_source *source, uint64_t usec, void *userdata) {
        UnitStart *start = userdata;

        (void) sd_bus_call_method_async(start->bus, NULL, SYSTEMD, SYSTEMD_PATH, SYSTEMD ".Manager", "StopUnit", NULL, NULL, "ss", start->unit, "replace");
        (void) sd_bus_flush(start->bus);
        unit_fail(start, ERR_TIMEOUT, UNIT_TOO_LATE);
        return 0;
}

// The unit's name is made of a valid instance name, so it needs no escaping. The unit itself carries Delegate and the slice.
static int unit_prepare(UnitStart *start) {
        sd_event *event = start->instance->manager->event;
        int r;

        if (asprintf(&start->unit, "hostd-instance@%s.service", start->instance->record.name) < 0) {
                start->unit = NULL;
                return -ENOMEM;
        }
        r = sd_bus_path_encode(SYSTEMD_PATH "/unit", start->unit, &start->path);
        if (r >= 0)
                r = sd_bus_open_system(&start->bus);
        if (r >= 0)
                r = sd_bus_attach_event(start->bus, event, 0);
        // systemd sends this to everybody who started a job; the bus handles both calls in their order.
        if (r >= 0)
                r = sd_bus_match_signal_async(start->bus, &start->match, SYSTEMD, SYSTEMD_PATH, SYSTEMD ".Manager", "JobRemoved", job_removed, NULL, start);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &start->deadline, CLOCK_MONOTONIC, UNIT_TIMEOUT, 0, unit_timed_out, start);
        return r;
}

int launcher_unit_start(Instance *instance, LauncherDone done, Error *err) {
        _cleanup_(unit_start_freep) UnitStart *start = calloc(1, sizeof(UnitStart));
        int r;

        if (!start)
                return error_set_errno(err, ENOMEM, "cannot ask systemd");
        start->instance = instance;
        start->done = done;
        r = unit_prepare(start);
        if (r >= 0) // from the loop, so that `done` is never called from in here
                r = sd_event_add_time_relative(instance->manager->event, &start->again, CLOCK_MONOTONIC, 0, 1, unit_ask_again, start);
        if (r < 0)
                return error_set_errno(err, r, "cannot ask systemd");
        launcher_forget(instance);
        instance->launch = TAKE_PTR(start);
        return LAUNCHER_ASKED;
}
