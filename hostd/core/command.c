// SPDX-License-Identifier: GPL-2.0-or-later
// Command: see core/command.h. One timer per command serves all its clocks; what it does depends on the state.
#include "core/command_internal.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "base/digest.h"
#include "base/strv.h"

// From a process's death to the helper's word of it, without which nobody knows the exit status. A helper that dies is noticed at once; one
// that waits for a processor, as beside a hundred commands on a host with too much to do, needs more than two seconds.
#define COMMAND_REPORT_GRACE (10 * USEC_PER_SEC)
#define COMMAND_TERM_GRACE USEC_PER_SEC

struct CommandManager {
        CommandManagerConfig config;
        Command *first, *last;
};

static void command_arm(Command *command);

static Command *command_free(Command *command) {
        if (!command)
                return NULL;
        if (command->manager) {
                *(command->prev ? &command->prev->next : &command->manager->first) = command->next;
                *(command->next ? &command->next->prev : &command->manager->last) = command->prev;
        }
        sd_event_source_disable_unref(command->timer);
        sd_event_source_disable_unref(command->watch);
        sd_event_source_disable_unref(command->deliver);
        command->pidfd = close_fd(command->pidfd);
        command_record_done(&command->record);
        free(command->instance);
        free(command->caller);
        free(command->user);
        free(command->text);
        free(command->word);
        free(command->place);
        free(command);
        return NULL;
}
DEFINE_CLEANUP(Command, command_free)

static void command_link(CommandManager *manager, Command *command) {
        command->manager = manager;
        command->prev = manager->last;
        *(manager->last ? &manager->last->next : &manager->first) = command;
        manager->last = command;
}

int command_manager_new(const CommandManagerConfig *config, CommandManager **ret) {
        CommandManager *manager = calloc(1, sizeof(*manager));

        if (!manager)
                return -ENOMEM;
        manager->config = *config;
        manager->config.kill_retry = config->kill_retry ?: 20 * USEC_PER_MSEC;
        manager->config.start_limit = config->start_limit ?: 30 * USEC_PER_SEC;
        manager->config.orphan_limit = config->orphan_limit ?: 30 * USEC_PER_SEC;
        *ret = manager;
        return 0;
}

CommandManager *command_manager_free(CommandManager *manager) {
        while (manager && manager->first)
                command_free(manager->first);
        free(manager);
        return NULL;
}

static void command_usage(Command *command) {
        CommandRecord *record = &command->record;
        CgroupUsage usage;

        record->cpu_usec = record->memory_peak_bytes = UINT64_MAX;
        record->duration = clock_monotonic() - command->begun;
        if (!command->has_group || cgroup_command_usage(command->box, command->id, &usage, NULL) < 0)
                return;
        record->cpu_usec = usage.cpu_usec;
        record->memory_peak_bytes = usage.memory_peak_bytes;
        record->oom = usage.oom_kills > 0 && usage.oom_kills != UINT64_MAX;
}

// A login is spread over the guest's own session, which no cgroup of ours holds: its leader is asked, then killed.
static void command_kill_login(Command *command, bool hard) {
        if (command->channel)
                (void) guest_channel_signal(command->channel, command->id, hard ? SIGKILL : SIGTERM);
        if (command->pidfd >= 0)
                (void) syscall(SYS_pidfd_send_signal, command->pidfd, hard ? SIGKILL : SIGTERM, NULL, 0);
}

static void command_kill(Command *command) {
        if (command->has_group && !command->foreign)
                (void) cgroup_command_kill(command->box, command->id);
        else if (command->verb == GUEST_LOGIN && command->kill_at == 0) {
                command_kill_login(command, false);
                command->kill_at = clock_monotonic() + COMMAND_TERM_GRACE;
        }
}

static void command_deliver(Command *command) {
        if (command->delivered || !command->done)
                return;
        command->delivered = true;
        command->done(command, &command->record, command->userdata);
}

// The single end of every command. `reason` may be NULL; what the record says already is kept.
static void command_end(Command *command, const char *reason) {
        CommandManager *manager = command->manager;

        if (command->state == COMMAND_STATE_ENDED)
                return;
        if (reason && !command->record.message)
                command->record.message = strdup(reason);
        // A child that still waits to be released is in the helper's cgroup, where only the helper can end it.
        if (command->state == COMMAND_STATE_STARTING && command->channel)
                (void) guest_channel_signal(command->channel, command->id, SIGKILL);
        command->state = COMMAND_STATE_ENDED;
        command->watch = sd_event_source_disable_unref(command->watch);
        command_kill(command);
        command_usage(command);
        if (command->channel)
                guest_channel_forget(command->channel, command->id);
        if (manager->config.ended)
                manager->config.ended(command, &command->record, manager->config.userdata);
        if (!command->done && !command->orphan)
                command->delivered = true; // nobody waits
        command_deliver(command);
        command_arm(command);
}

// Returns true when nothing is left and nobody may ask any more.
static bool command_sweep(Command *command, usec_t now) {
        if (command->kill_at != 0 && now >= command->kill_at) {
                command_kill_login(command, true);
                command->kill_at = 0;
        }
        if (command->has_group) {
                int r = cgroup_command_remove(command->box, command->id);
                if (r == -EBUSY) {
                        command_kill(command); // again: something may have been forked into it by what died
                        command->stubborn = true;
                        return false;
                }
                command->has_group = false; // any other failure will be the same next time; `leaks` will tell
        }
        return command->kill_at == 0 && (command->delivered || now >= command->orphan_until);
}

static int command_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Command *command = userdata;
        usec_t now = clock_monotonic();

        if (command->state == COMMAND_STATE_ENDED) {
                if (command_sweep(command, now)) {
                        command_free(command);
                        return 0;
                }
                command_arm(command);
        } else if (now >= command->deadline) {
                command->record.timed_out = true;
                command_end(command, "the time limit ran out");
        } else if (now >= command->abandon_at) {
                command->record.cancelled = true;
                command_end(command, "the client went away");
        } else if (command->state == COMMAND_STATE_STARTING && now >= command->start_by)
                command_end(command, "the helper in the instance did not start the command");
        else if (now >= command->report_by)
                command_end(command, "the process ended, but the helper in the instance did not say how");
        else if (command->orphan && now >= command->orphan_until) {
                command->orphan = false;
                command_detach(command);
        } else
                command_arm(command);
        return 0;
}

static usec_t command_next_time(const Command *command) {
        usec_t t = command->deadline;

        // At once when its end has been told: the next command must not find this work in its way.
        if (command->state == COMMAND_STATE_ENDED) {
                t = command->kill_at ?: clock_monotonic() + (command->stubborn ? command->manager->config.kill_retry : 0);
                return command->kill_at == 0 && !command->has_group && !command->delivered ? command->orphan_until : t;
        }
        if (command->state == COMMAND_STATE_STARTING)
                t = MIN2(t, command->start_by);
        if (command->orphan)
                t = MIN2(t, command->orphan_until);
        return MIN2(MIN2(t, command->report_by), command->abandon_at);
}

static void command_arm(Command *command) {
        usec_t t = command_next_time(command);

        // The source was made with the command, and changing it allocates nothing: no failure to handle.
        (void) sd_event_source_set_time(command->timer, t);
        (void) sd_event_source_set_enabled(command->timer, t == USEC_INFINITY ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

static int command_pidfd_ready(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Command *command = userdata;

        command->report_by = clock_monotonic() + COMMAND_REPORT_GRACE;
        command_arm(command);
        return 0; // one-shot
}

static void command_watch(Command *command, int pidfd) {
        sd_event *event = command->manager->config.event;

        command->pidfd = pidfd;
        if (pidfd >= 0 && sd_event_add_io(event, &command->watch, pidfd, EPOLLIN, command_pidfd_ready, command) >= 0)
                (void) sd_event_source_set_enabled(command->watch, SD_EVENT_ONESHOT);
}

// Also the check that an instance speaks of its own commands only.
static Command *command_of(CommandManager *manager, GuestChannel *channel, const char *id) {
        Command *command = command_find(manager, id);

        return command && command->channel == channel && command->state != COMMAND_STATE_ENDED ? command : NULL;
}

static void command_on_ready(GuestChannel *channel, const char *id, pid_t pid, int pidfd, void *userdata) {
        CommandManager *manager = userdata;
        Command *command = command_of(manager, channel, id);

        if (!command) {
                (void) close_fd(pidfd);
                return;
        }
        command->pid = pid;
        command_watch(command, pidfd);
        if (manager->config.ready)
                manager->config.ready(command, manager->config.userdata);
}

static void command_on_started(GuestChannel *channel, const char *id, void *userdata) {
        Command *command = command_of(userdata, channel, id);

        if (!command)
                return;
        command->state = COMMAND_STATE_RUNNING;
        command->record.started = true;
        command_arm(command);
        if (command->started)
                command->started(command, command->userdata);
}

static void command_on_failed(GuestChannel *channel, const char *id, GuestStage stage, int errnum, void *userdata) {
        Command *command = command_of(userdata, channel, id);

        if (!command)
                return;
        command->foreign = stage == GUEST_STAGE_SETUP && errnum == ESRCH && command->pid == 0;
        command_record_failed(&command->record, command, stage, errnum);
        command_end(command, NULL);
}

static void command_on_exited(GuestChannel *channel, const char *id, int wait_status, void *userdata) {
        Command *command = command_of(userdata, channel, id);

        if (!command)
                return;
        command_record_exit(&command->record, wait_status);
        command_end(command, NULL);
}

static void command_on_live(GuestChannel *channel, const char *id, void *userdata) {
        Command *command = command_of(userdata, channel, id);

        if (command)
                command->unconfirmed = false;
}

static int command_new(CommandManager *manager, Command **ret) {
        _cleanup_(command_freep) Command *command = calloc(1, sizeof(*command));
        int r;

        if (!command)
                return -ENOMEM;
        command->pidfd = -EBADF;
        command->record.exit = -1;
        command->begun = clock_monotonic();
        command->started_at = clock_realtime();
        command->deadline = command->start_by = command->report_by = command->abandon_at = USEC_INFINITY;
        r = sd_event_add_time(manager->config.event, &command->timer, CLOCK_MONOTONIC, USEC_INFINITY, 1000, command_timer, command);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(command);
        return 0;
}

// Groups that no command of ours explains: left by a hostd that died before it wrote its line. Each becomes a command that has
// ended, for the sake of the kill and the removal with retries.
static void command_adopt_group(CommandManager *manager, GuestChannel *channel, const char *id) {
        Command *command;

        for (Command *c = manager->first; c; c = c->next)
                if (strcmp(c->id, id) == 0)
                        return;
        if (!guest_id_valid(id) || command_new(manager, &command) < 0)
                return; // out of memory: the next synchronisation tries again
        memcpy(command->id, id, strlen(id));
        command->box = guest_channel_box(channel);
        command->state = COMMAND_STATE_ENDED;
        command->has_group = command->delivered = true;
        command_link(manager, command);
        command_kill(command);
        command_arm(command);
}

static void command_on_synced(GuestChannel *channel, void *userdata) {
        CommandManager *manager = userdata;
        _cleanup_strv_ char **groups = NULL;

        for (Command *c = manager->first, *next; c; c = next) {
                next = c->next;
                if (c->channel == channel && c->unconfirmed)
                        command_end(c, "the command was lost while hostd was restarted");
        }
        if (cgroup_command_list(guest_channel_box(channel), &groups) >= 0)
                for (char **id = groups; id && *id; id++)
                        command_adopt_group(manager, channel, *id);
        if (manager->config.synced)
                manager->config.synced(channel, manager->config.userdata);
}

void command_manager_drop_channel(CommandManager *manager, GuestChannel *channel, const char *why) {
        for (Command *c = manager->first, *next; c; c = next) {
                next = c->next;
                if (c->channel != channel)
                        continue;
                command_end(c, why);
                c->channel = NULL;
        }
}

void command_manager_drop_box(CommandManager *manager, CgroupBox *box, const char *why) {
        for (Command *c = manager->first, *next; c; c = next) {
                next = c->next;
                if (c->box != box)
                        continue;
                command_end(c, why);
                c->has_group = false; // goes with the box
                c->box = NULL;
                command_arm(c);
        }
}

static void command_on_gone(GuestChannel *channel, void *userdata) {
        const char *why = "the helper in the instance died";
        CommandManager *manager = userdata;

        for (const Command *c = manager->first; c; c = c->next)
                if (c->channel == channel && strchr(c->instance, '/'))
                        why = "the first process of the sandbox ended";
        command_manager_drop_channel(manager, channel, why);
        if (manager->config.channel_gone)
                manager->config.channel_gone(channel, manager->config.userdata);
}

static void command_on_ask(GuestChannel *channel, const GuestAsk *ask, void *userdata) {
        CommandManager *manager = userdata;

        if (manager->config.ask)
                manager->config.ask(channel, ask, manager->config.userdata);
}

const GuestChannelHandlers command_guest_handlers = {
        .ask = command_on_ask,
        .ready = command_on_ready,
        .started = command_on_started,
        .failed = command_on_failed,
        .exited = command_on_exited,
        .live = command_on_live,
        .synced = command_on_synced,
        .gone = command_on_gone,
};

static int command_launch(Command *command, const CommandRequest *request, Error *err) {
        GuestRequest guest = request->guest;
        int r;

        guest.id = command->id;
        if (command->verb != GUEST_LOGIN) {
                r = cgroup_command_create(command->box, command->id, err);
                if (r < 0)
                        return error_wrap(err, "starting a command");
                command->has_group = true;
        }
        r = guest_channel_exec(request->channel, &guest, request->fds, err);
        if (r < 0 && command->has_group)
                (void) cgroup_command_remove(command->box, command->id); // nothing is in it yet
        return r;
}

int command_start(CommandManager *manager, const CommandRequest *request, Command **ret, Error *err) {
        _cleanup_(command_freep) Command *command = NULL;
        int r = command_new(manager, &command);

        if (r >= 0)
                r = command_describe(command, request);
        if (r < 0)
                return error_set_errno(err, r, "cannot start a command");
        if (!request->guest.id)
                (void) digest_random(8, command->id);
        else if (!guest_id_valid(request->guest.id) || command_find(manager, request->guest.id))
                return error_set_field(err, "id", "\"%s\" is no free id of a command", request->guest.id);
        else
                memcpy(command->id, request->guest.id, strlen(request->guest.id));
        command->channel = request->channel;
        command->box = guest_channel_box(request->channel);
        command->done = request->done;
        command->started = request->started;
        command->detached = request->detached;
        command->userdata = request->userdata;
        if (request->timeout != 0 && __builtin_add_overflow(command->begun, request->timeout, &command->deadline))
                command->deadline = USEC_INFINITY;
        command->start_by = command->begun + manager->config.start_limit;
        r = command_launch(command, request, err);
        if (r < 0)
                return r;
        command_link(manager, command);
        command_arm(command);
        *ret = TAKE_PTR(command);
        return 0;
}

void command_permit(Command *command) {
        if (command->state != COMMAND_STATE_ENDED && command->channel)
                guest_channel_permit(command->channel, command->id);
}

static bool command_is_listed(const Command *command) {
        return command->state != COMMAND_STATE_ENDED || !command->delivered;
}

Command *command_find(CommandManager *manager, const char *id) {
        for (Command *c = manager->first; c; c = c->next)
                if (command_is_listed(c) && strcmp(c->id, id) == 0)
                        return c;
        return NULL;
}

Command *command_next(CommandManager *manager, Command *after) {
        Command *c = after ? after->next : manager->first;

        while (c && c->state == COMMAND_STATE_ENDED)
                c = c->next;
        return c;
}

int command_signal(Command *command, int signal, Error *err) {
        if (signal < 1 || signal > 64)
                return error_set_field(err, "signal", "%d is no signal", signal);
        if (command->state == COMMAND_STATE_ENDED || !command->channel)
                return error_set(err, ERR_NOT_FOUND, "the command has ended");
        if (command->state == COMMAND_STATE_STARTING)
                return error_set(err, ERR_BUSY, "the command is not running yet");
        if (signal == SIGKILL && command->has_group)
                (void) cgroup_command_kill(command->box, command->id);
        int r = guest_channel_signal(command->channel, command->id, signal);
        return r < 0 ? error_set_errno(err, r, "cannot signal the command") : 0;
}

void command_detach(Command *command) {
        command->done = NULL;
        if (command->state == COMMAND_STATE_ENDED) {
                command->delivered = true;
                command_arm(command);
                return;
        }
        command->record.cancelled = true;
        command_end(command, "the client went away");
}

void command_leave(Command *command) {
        command->done = NULL;
        command->started = NULL;
        command->userdata = NULL;
}

bool command_is_detached(const Command *command) {
        return command->detached;
}

void command_abandon(Command *command, usec_t grace) {
        command->abandon_at = MIN2(command->abandon_at, clock_monotonic() + grace);
        command_arm(command);
}

static int command_deliver_later(sd_event_source *source, void *userdata) {
        Command *command = userdata;

        command_deliver(command);
        command_arm(command);
        return 0;
}

bool command_is_awaited(const Command *command) {
        return command->done != NULL;
}

int command_attach(Command *command, CommandDoneFn done, void *userdata) {
        if (!(command->orphan || command->detached) || command->done)
                return -EBUSY;
        if (command->state == COMMAND_STATE_ENDED) {
                int r = sd_event_add_defer(command->manager->config.event, &command->deliver, command_deliver_later, command);
                if (r < 0)
                        return r;
        }
        command->orphan = false;
        command->done = done;
        command->userdata = userdata;
        command_arm(command);
        return 0;
}

#define COMMAND_FIELDS 11
// 1 or, of a detached one, 2; id, instance, caller, user, verb, deadline, begun, started at, pid, text
int command_serialize(const Command *command, char **ret) {
        char *line = NULL;

        if (asprintf(&line, "%d\t%s\t%s\t%s\t%s\t%d\t%llu\t%llu\t%llu\t%d\t%s", command->detached ? 2 : 1, command->id, command->instance, command->caller,
                     command->user, (int) command->verb, (unsigned long long) command->deadline,
                     (unsigned long long) command->begun, (unsigned long long) command->started_at, (int) command->pid, command->text) < 0)
                return -ENOMEM;
        *ret = line;
        return 0;
}

static int command_line_split(char *line, char *fields[COMMAND_FIELDS]) {
        for (int i = 0; i < COMMAND_FIELDS; i++)
                if (!(fields[i] = strsep(&line, "\t")))
                        return -EBADMSG;
        return line || (strcmp(fields[0], "1") != 0 && strcmp(fields[0], "2") != 0) || !guest_id_valid(fields[1]) ? -EBADMSG : 0;
}

int command_line_instance(const char *line, char **ret) {
        _cleanup_free_ char *copy = strdup(line);
        char *fields[COMMAND_FIELDS];

        if (!copy)
                return -ENOMEM;
        if (command_line_split(copy, fields) < 0)
                return -EBADMSG;
        *ret = strdup(fields[2]);
        return *ret ? 0 : -ENOMEM;
}

static int command_line_numbers(Command *command, char *const fields[COMMAND_FIELDS]) {
        unsigned long long n[5];

        for (int i = 0; i < 5; i++) {
                char *end;
                errno = 0;
                n[i] = strtoull(fields[5 + i], &end, 10);
                if (errno || *end || end == fields[5 + i])
                        return -EBADMSG;
        }
        if (n[0] >= _GUEST_VERB_MAX || n[4] > INT32_MAX)
                return -EBADMSG;
        command->verb = (GuestVerb) n[0];
        command->deadline = n[1];
        command->begun = n[2];
        command->started_at = n[3];
        command->pid = (pid_t) n[4];
        return 0;
}

static void command_restore_pid(Command *command) {
        int pidfd = command->pid > 0 ? (int) syscall(SYS_pidfd_open, command->pid, 0) : -EBADF;

        // The pid may have been used again since: only something in this box is ours to watch and to kill.
        if (pidfd >= 0 && !cgroup_box_has(command->box, command->pid))
                pidfd = close_fd(pidfd);
        command_watch(command, pidfd);
}

int command_restore(CommandManager *manager, const char *line, GuestChannel *channel, Command **ret, Error *err) {
        _cleanup_(command_freep) Command *command = NULL;
        _cleanup_free_ char *copy = strdup(line);
        char *fields[COMMAND_FIELDS];
        int r = copy ? command_new(manager, &command) : -ENOMEM;

        if (r < 0)
                return error_set_errno(err, r, "cannot restore a command");
        if (command_line_split(copy, fields) < 0 || command_line_numbers(command, fields) < 0)
                return error_set(err, ERR_INVALID, "the stored line of a command is malformed");
        CommandRequest request = {.instance = fields[2], .caller = fields[3], .guest = {.verb = command->verb, .user = fields[4]}};
        char *argv[] = {fields[10], NULL};
        request.guest.argv = argv;
        request.guest.path = command->verb == GUEST_RUN || command->verb == GUEST_LOGIN ? NULL : fields[10];
        r = command_describe(command, &request);
        if (r >= 0)
                r = guest_channel_adopt(channel, fields[1], command->verb == GUEST_LOGIN);
        if (r < 0)
                return error_set_errno(err, r, "cannot restore command %s", fields[1]);
        memcpy(command->id, fields[1], strlen(fields[1]));
        command->channel = channel;
        command->box = guest_channel_box(channel);
        command->has_group = command->verb != GUEST_LOGIN;
        command->state = COMMAND_STATE_RUNNING;
        command->record.started = command->unconfirmed = true;
        command->detached = fields[0][0] == '2';
        command->orphan = !command->detached;
        command->orphan_until = clock_monotonic() + manager->config.orphan_limit;
        command_link(manager, command);
        command_restore_pid(command);
        command_arm(command);
        *ret = TAKE_PTR(command);
        return 0;
}

const char *command_id(const Command *command) {
        return command->id;
}

const char *command_instance(const Command *command) {
        return command->instance;
}

const char *command_caller(const Command *command) {
        return command->caller;
}

const char *command_user(const Command *command) {
        return command->user;
}

const char *command_text(const Command *command) {
        return command->text;
}

GuestVerb command_verb(const Command *command) {
        return command->verb;
}

pid_t command_pid(const Command *command) {
        return command->record.started ? command->pid : 0;
}

usec_t command_started_at(const Command *command) {
        return command->started_at;
}
