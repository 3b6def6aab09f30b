// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, record: its line in the store ("sandbox.ID"), and what people are shown.
#include <string.h>

#include "base/strv.h"
#include "base/valid.h"
#include "core/manager.h"
#include "core/sandbox.h"
#include "network/number.h"

static const char *const state_names[_SANDBOX_STATE_MAX] = {"creating", "running", "paused", "ended"};
static const char *const cause_names[_SANDBOX_CAUSE_MAX] = {"none", "deleted", "deadline", "idle", "oom", "oom-outside", "exited", "instance", "failed", "lost"};

static int name_find(const char *const *names, int n, const char *text) {
        for (int i = 0; i < n; i++)
                if (text && strcmp(names[i], text) == 0)
                        return i;
        return -EINVAL;
}

const char *sandbox_state_to_string(SandboxState state) {
        return state >= 0 && state < _SANDBOX_STATE_MAX ? state_names[state] : NULL;
}

SandboxState sandbox_state_from_string(const char *text) {
        return name_find(state_names, _SANDBOX_STATE_MAX, text);
}

const char *sandbox_cause_to_string(SandboxCause cause) {
        return cause >= 0 && cause < _SANDBOX_CAUSE_MAX ? cause_names[cause] : NULL;
}

SandboxCause sandbox_cause_from_string(const char *text) {
        return name_find(cause_names, _SANDBOX_CAUSE_MAX, text);
}

// All numbers of the line, with where they are. JSON's are signed: no limit and unknown are -1.
#define NUMBERS(X) \
        X(memory, limits.value[LIMIT_MEMORY]) X(pids, limits.value[LIMIT_PIDS]) X(cpu, limits.value[LIMIT_CPU]) X(disk, limits.value[LIMIT_DISK]) \
        X(deadline, lease.deadline) X(idle, lease.idle) X(grace, lease.grace) \
        X(active, lease.active) X(gone, lease.ended) X(created, created) X(ended, ended) X(memory_peak, memory_peak) X(cpu_usec, cpu_usec)

// Lines of earlier versions do not have these.
#define LATER_NUMBERS(X) \
        X(open_files, limits.value[LIMIT_OPEN_FILES]) X(io_read, limits.value[LIMIT_IO_READ]) X(io_write, limits.value[LIMIT_IO_WRITE]) \
        X(io_read_ops, limits.value[LIMIT_IO_READ_OPS]) X(io_write_ops, limits.value[LIMIT_IO_WRITE_OPS]) X(run_time, run_time)

json_t *sandbox_json(const Sandbox *s) {
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:O}", "id", s->id, "instance", s->instance, "runtime", s->runtime, "caller", s->caller,
                                   "state", sandbox_state_to_string(s->state), "cause", sandbox_cause_to_string(s->cause), "root", s->root, "labels", s->labels);

        if (!object)
                return NULL;
#define PUT(key, field) (void) json_object_set_new(object, #key, json_integer((json_int_t) s->field));
        NUMBERS(PUT)
        LATER_NUMBERS(PUT)
        if (s->network) {
                (void) json_object_set_new(object, "wire", json_integer(s->number));
                (void) json_object_set_new(object, "network", json_string(s->network));
        }
        if (s->workspace)
                (void) json_object_set_new(object, "workspace", json_string(s->workspace));
        if (s->key)
                (void) json_object_set_new(object, "key", json_string(s->key));
        if (s->message)
                (void) json_object_set_new(object, "message", json_string(s->message));
        return object;
}

static int parse_text(const json_t *object, const char *key, bool required, char **ret) {
        const char *text = json_string_value(json_object_get(object, key));

        if (!text)
                return required ? -EINVAL : 0;
        *ret = strdup(text);
        return *ret ? 0 : -ENOMEM;
}

static int parse_words(const json_t *object, Sandbox *s) {
        const struct {
                const char *key;
                bool required;
                char **ret;
        } words[] = {{"runtime", true, &s->runtime}, {"caller", true, &s->caller}, {"workspace", false, &s->workspace}, {"key", false, &s->key}, {"message", false, &s->message}, {"network", false, &s->network}};
        const char *id = json_string_value(json_object_get(object, "id")), *instance = json_string_value(json_object_get(object, "instance"));
        int r = 0;

        if (!guest_id_valid(id) || !valid_is(VALID_NAME, instance))
                return -EINVAL;
        (void) snprintf(s->id, sizeof(s->id), "%s", id);
        (void) snprintf(s->instance, sizeof(s->instance), "%s", instance);
        for (size_t i = 0; i < ELEMENTS(words) && r == 0; i++)
                r = parse_text(object, words[i].key, words[i].required, words[i].ret);
        return r;
}

static int parse_network(const json_t *object, Sandbox *s) {
        _cleanup_strv_ char **policies = NULL;
        json_int_t number = json_integer_value(json_object_get(object, "wire"));

        if (!s->network)
                return 0; // of before there were networks, too
        if (number < NETWORK_SANDBOX_FIRST || number > NETWORK_SANDBOX_LAST || sandbox_network_parse(s->network, &policies, NULL) < 0)
                return -EINVAL;
        s->number = (uint16_t) number;
        return 0;
}

int sandbox_parse(const char *text, Sandbox **ret) {
        _cleanup_(sandbox_freep) Sandbox *s = calloc(1, sizeof(*s));
        json_t *object = json_loads(text, 0, NULL);
        int r = s && object ? 0 : s ? -EINVAL : -ENOMEM;

        if (s) {
                s->errors = -EBADF;
                limits_init(&s->limits);
        }
        if (r == 0)
                r = parse_words(object, s);
        if (r == 0)
                r = parse_network(object, s);
        if (r == 0) {
                s->state = sandbox_state_from_string(json_string_value(json_object_get(object, "state")));
                s->cause = sandbox_cause_from_string(json_string_value(json_object_get(object, "cause")));
                s->root = json_is_true(json_object_get(object, "root"));
                s->labels = json_deep_copy(json_object_get(object, "labels"));
                r = s->state < 0 || s->cause < 0 || !json_is_object(s->labels) ? -EINVAL : 0;
        }
#define GET(name, field) \
        if (r == 0 && !json_is_integer(json_object_get(object, #name))) \
                r = -EINVAL; \
        else if (r == 0) \
                s->field = (uint64_t) json_integer_value(json_object_get(object, #name));
        NUMBERS(GET)
#define GET_LATER(name, field) \
        if (json_object_get(object, #name)) { \
                GET(name, field) \
        }
        LATER_NUMBERS(GET_LATER)
        json_decref(object);
        if (r == 0)
                *ret = TAKE_PTR(s);
        return r;
}

// Whoever wrote it is the guest's: lines are joined, and what is no text is shown as what it is.
char *sandbox_said(const char *bytes, size_t n) {
        char text[SANDBOX_SAID_MAX + 1], *at = text;
        bool gap = false;

        for (size_t i = n > SANDBOX_SAID_MAX ? n - SANDBOX_SAID_MAX : 0; i < n; i++) {
                bool space = bytes[i] == 0 || strchr(" \t\r\n", bytes[i]);
                if (!space && gap)
                        *at++ = ' ';
                gap = space && (gap || at > text);
                if (!space)
                        *at++ = bytes[i];
        }
        *at = 0;
        // The first character may have been cut in half.
        for (at = text; ((unsigned char) *at & 0xc0) == 0x80; at++)
                ;
        return *at ? valid_printable(at) : NULL;
}

static int sandbox_key(const Sandbox *s, char key[static 64]) {
        return snprintf(key, 64, "sandbox.%s", s->id);
}

int sandbox_save(Sandbox *s, Error *err) {
        json_t *object = sandbox_json(s);
        _cleanup_free_ char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
        char key[64];

        json_decref(object);
        if (!text)
                return error_set_errno(err, ENOMEM, "remembering sandbox %s", s->id);
        (void) sandbox_key(s, key);
        return store_value_set(s->manager->store, key, text, err);
}

void sandbox_unsave(Sandbox *s) {
        char key[64];

        (void) sandbox_key(s, key);
        (void) store_value_set(s->manager->store, key, NULL, NULL); // what stays is swept by the next hostd
}

static void describe_moment(json_t *object, const char *key, usec_t at) {
        char text[CLOCK_TEXT_MAX];

        (void) json_object_set_new(object, key, at == 0 ? json_null() : json_string(clock_format(at, text)));
}

static json_t *describe_number(uint64_t value) {
        return value > INT64_MAX ? json_null() : json_integer((json_int_t) value);
}

static void describe_use(json_t *object, Sandbox *s) {
        CgroupUsage usage = {.memory_bytes = UINT64_MAX, .memory_peak_bytes = s->memory_peak, .pids = UINT64_MAX, .cpu_usec = s->cpu_usec};

        if (s->box)
                (void) cgroup_box_usage(s->box, &usage, NULL);
        (void) json_object_set_new(object, "memory_used", describe_number(usage.memory_bytes));
        (void) json_object_set_new(object, "memory_peak", describe_number(usage.memory_peak_bytes));
        (void) json_object_set_new(object, "pids_used", describe_number(usage.pids));
        (void) json_object_set_new(object, "cpu_usec", describe_number(usage.cpu_usec));
}

json_t *sandbox_describe(Sandbox *s) {
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:O, s:i}", "id", s->id, "instance", s->instance, "state",
                                   s->restoring ? "restoring" : sandbox_state_to_string(s->state), "runtime", s->runtime, "root", s->root, "caller",
                                   s->caller, "labels", s->labels, "commands", (int) sandbox_commands(s));

        if (!object)
                return NULL;
        sandbox_wire_describe(s, object);
        sandbox_limits_describe(&s->limits, object);
        (void) json_object_set_new(object, "run_time", describe_number(s->run_time ?: UINT64_MAX));
        (void) json_object_set_new(object, "workspace", s->workspace ? json_string(s->workspace) : json_null());
        (void) json_object_set_new(object, "key", s->key ? json_string(s->key) : json_null());
        (void) json_object_set_new(object, "idle", describe_number(s->lease.idle ?: UINT64_MAX));
        (void) json_object_set_new(object, "grace", describe_number(s->lease.grace));
        describe_moment(object, "created", s->created);
        describe_moment(object, "deadline", s->lease.deadline);
        describe_moment(object, "ended", s->ended);
        describe_use(object, s);
        if (s->state == SANDBOX_ENDED) {
                (void) json_object_set_new(object, "cause", json_string(sandbox_cause_to_string(s->cause)));
                if (s->message)
                        (void) json_object_set_new(object, "message", json_string(s->message));
        }
        return object;
}

Sandbox *sandbox_free(Sandbox *s) {
        if (!s)
                return NULL;
        sd_event_source **sources[] = {&s->by_realtime, &s->by_boottime, &s->limit, &s->sweep, &s->oom, &s->oom_again, &s->probing};
        for (size_t i = 0; i < ELEMENTS(sources); i++)
                *sources[i] = sd_event_source_disable_unref(*sources[i]);
        if (s->manager)
                for (Sandbox **at = &s->manager->sandboxes; *at; at = &(*at)->next)
                        if (*at == s) {
                                *at = s->next;
                                break;
                        }
        for (SandboxWaiter *w = s->waiters, *after; w; w = after) { // hostd ends: requests end by themselves
                after = w->next;
                free(w);
        }
        sandbox_pause_done(s);
        (void) guest_channel_free(s->channel);
        (void) guest_channel_free(s->dying);
        (void) cgroup_box_free(s->box);
        (void) close_fd(s->errors);
        free(s->runtime);
        free(s->workspace);
        free(s->key);
        free(s->caller);
        free(s->message);
        free(s->entry);
        free(s->probe);
        free(s->network);
        json_decref(s->labels);
        free(s);
        return NULL;
}
