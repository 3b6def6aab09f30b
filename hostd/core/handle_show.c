// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, looking: list, show, console, log.
#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "core/console.h"
#include "core/handle.h"
#include "core/redaction.h"

static void put(json_t *object, const char *key, json_t *value) {
        (void) json_object_set_new(object, key, value);
}

static void put_time(json_t *object, const char *key, usec_t when) {
        char text[CLOCK_TEXT_MAX];

        put(object, key, when ? json_string(clock_format(when, text)) : json_null());
}

static void put_limit(json_t *object, const char *key, uint64_t value) {
        put(object, key, value == UINT64_MAX ? json_null() : json_integer((json_int_t) value));
}

static const char *shown_state(const Instance *instance) {
        if (!instance->config)
                return manager_is_unmanaged(instance->manager, instance->record.name) ? "unmanaged" : "orphan";
        if (instance->state == INSTANCE_RUNNING && instance->paused)
                return "paused";
        return instance_state_to_string(instance->state);
}

static void put_usage(json_t *object, Instance *instance) {
        _cleanup_free_ char *path = instance_disk_path(instance);
        CgroupUsage usage;
        DiskUsage disk;

        if (instance->box && cgroup_box_usage(instance->box, &usage, NULL) >= 0) {
                put_limit(object, "memory_used", usage.memory_bytes);
                put_limit(object, "memory_peak", usage.memory_peak_bytes);
                put_limit(object, "pids_used", usage.pids);
                put_limit(object, "cpu_used", usage.cpu_usec);
                put_limit(object, "oom_kills", usage.oom_kills);
        }
        if (path && disk_usage(&instance->manager->disk, path, instance->record.slot, &disk, NULL) >= 0) {
                put_limit(object, "disk_used", disk.bytes);
                put_limit(object, "inodes_used", disk.inodes);
        }
}

static void put_config(json_t *object, const InstanceConfig *config) {
        _cleanup_free_ char *cpu = limit_format(LIMIT_CPU, &config->limits), *policies = strv_join(config->policies, ",");
        json_t *labels = json_object();

        put(object, "template", json_string(config->template));
        put(object, "preset", config->preset ? json_string(config->preset) : json_null());
        put(object, "description", config->description ? json_string(config->description) : json_null());
        put(object, "boot", json_string(boot_mode_to_string(config->boot)));
        put(object, "cpu", json_string(cpu ?: ""));
        put_limit(object, "memory", config->limits.value[LIMIT_MEMORY]);
        put_limit(object, "disk", config->limits.value[LIMIT_DISK]);
        put_limit(object, "pids", config->limits.value[LIMIT_PIDS]);
        put(object, "policies", json_string(policies ?: ""));
        for (size_t i = 0; labels && i < config->n_labels; i++)
                put(labels, config->labels[i].key, json_string(config->labels[i].value));
        put(object, "labels", labels);
}

static json_t *describe(Instance *instance) {
        char v4[INET_ADDRSTRLEN], v6[INET6_ADDRSTRLEN];
        json_t *object = json_object();
        NetworkAddress address;

        network_address(&instance->manager->desired->host.network, instance->record.slot, &address);
        put(object, "name", json_string(instance->record.name));
        put(object, "state", json_string(shown_state(instance)));
        put(object, "ipv4", json_string(inet_ntop(AF_INET, &address.ipv4, v4, sizeof(v4))));
        put(object, "ipv6", json_string(inet_ntop(AF_INET6, &address.ipv6, v6, sizeof(v6))));
        put(object, "slot", json_integer(instance->record.slot));
        put(object, "digest", json_string(instance->record.template_digest));
        put(object, "pid", instance->init ? json_integer(instance->init) : json_null());
        put_time(object, "created", instance->record.created);
        put_time(object, "started", instance->record.started);
        put(object, "wanted", json_boolean(instance->record.wanted));
        put(object, "failure", instance->failure ? json_string(instance->failure) : json_null());
        if (instance->config)
                put_config(object, instance->config);
        put_usage(object, instance);
        return object;
}

void handle_list(Request *request) {
        json_t *list = json_array();

        for (Instance *i = request->manager->instances.first; i; i = i->next)
                (void) json_array_append_new(list, describe(i));
        request_reply(request, json_pack("{s:o}", "instances", list));
}

static json_t *expanded(const InstanceConfig *config) {
        json_t *list = json_array();

        for (size_t row = 0; config && row < instance_schema_size(); row++) {
                _cleanup_free_ char *value = instance_config_value(config, row);
                (void) json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "key", instance_schema_key(row), "value", value ?: "", "source",
                                                             value_source_to_string(config->sources[row])));
        }
        return list;
}

// What the kernel has now, next to what is asked for. What it cannot enforce is not shown.
static json_t *enforced(Instance *instance) {
        json_t *object = json_object();
        Limits limits;

        limits_init(&limits);
        if (instance->box && cgroup_box_read(instance->box, &limits, NULL) >= 0)
                for (LimitId id = 0; id < _LIMIT_MAX; id++) {
                        _cleanup_free_ char *text = NULL;
                        if (limit_row(id)->where == LIMIT_WHERE_CGROUP && cgroup_host_can(instance->manager->cgroup, id, NULL) && (text = limit_format(id, &limits)))
                                put(object, limit_row(id)->key, json_string(text));
                }
        limits_done(&limits);
        return object;
}

void handle_show(Request *request) {
        Instance *instance = request_instance(request);
        json_t *object;

        if (!instance)
                return;
        object = describe(instance);
        put(object, "supervisor", instance->supervisor ? json_integer(instance->supervisor) : json_null());
        put(object, "guest_helper", json_boolean(instance->guest_ready));
        put(object, "enforced", enforced(instance));
        put(object, "events", event_recent(request->manager->bus, instance->record.name));
        if (request_bool(request, "expanded"))
                put(object, "settings", expanded(instance->config));
        request_reply(request, object);
}

static void console_closed(Request *request) {
        // hostd-instance sees the hang-up of the pty and ends the session; that releases the request.
}

void handle_console(Request *request) {
        Instance *instance = request_instance(request);
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        if (instance->state != INSTANCE_RUNNING) {
                request_failf(request, ERR_BUSY, "%s is %s: it has a console only while it runs", instance->record.name, shown_state(instance));
                return;
        }
        for (unsigned i = 0; i < request->method->n_fds; i++)
                request->fds[i] = call_take_fd(request->call, i);
        if (!request_fds_allowed(request))
                return;
        request->closed = console_closed;
        r = console_session_start(instance, request, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
}

#define LOG_SHOWN_MAX (256u << 10) // each byte may take five in the answer

// The end of the file, without a first line that is not whole.
static char *log_tail(int dir, const char *path, size_t *ret_size) {
        _cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        _cleanup_free_ char *text = malloc(LOG_SHOWN_MAX + 1);
        struct stat st;
        off_t from;
        ssize_t n;

        if (fd < 0 || !text || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return NULL;
        from = st.st_size > LOG_SHOWN_MAX ? st.st_size - LOG_SHOWN_MAX : 0;
        n = pread(fd, text, LOG_SHOWN_MAX, from);
        if (n <= 0)
                return NULL;
        text[n] = 0;
        const char *whole = from > 0 ? memchr(text, '\n', (size_t) n) : NULL;
        *ret_size = (size_t) n;
        if (whole) {
                *ret_size = (size_t) (text + n - (whole + 1));
                memmove(text, whole + 1, *ret_size + 1);
        }
        return TAKE_PTR(text);
}

static void log_line(json_t *list, char *line, size_t length) {
        _cleanup_free_ char *shown = NULL;

        for (size_t i = 0; i < length; i++)
                if (!line[i])
                        line[i] = 1; // would end the string; any control character is shown as one
        if (length > 0 && line[length - 1] == '\r')
                length--;
        line[length] = 0;
        shown = valid_printable(line);
        if (shown)
                (void) json_array_append_new(list, json_string(shown));
}

// As the guest printed it, but for values of secrets. Each line of it ends with a line break.
static int log_redact(const Instance *instance, const char *text, size_t size, RedactStream *ret, uint64_t *ret_count, Error *err) {
        _cleanup_(redactor_freep) Redactor *redactor = NULL;
        int r = redaction_of(instance, &redactor, err);

        if (r >= 0 && !redactor)
                r = redactor_new(NULL, 0, &redactor);
        if (r >= 0)
                r = redactor_feed(redactor, ret, text, size, true);
        if (r >= 0 && ret->n_out > 0 && ret->out[ret->n_out - 1] != '\n')
                r = redactor_feed(redactor, ret, "\n", 1, true);
        if (r >= 0)
                *ret_count = redactor_count(redactor, NULL);
        return r < 0 ? error_set_errno(err, r, "cannot show the log") : 0;
}

// The log is what the guest printed: bytes, not text. It is shown line by line with control characters made visible.
void handle_log(Request *request) {
        Instance *instance = request_instance(request);
        int64_t lines = request_int(request, "lines", 1000);
        _cleanup_free_ char *dir = NULL, *path = NULL, *text = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        RedactStream shown = {0};
        size_t size = 0, from;
        uint64_t replaced = 0;
        json_t *list;
        int r;

        if (!instance)
                return;
        dir = instance_disk_path(instance);
        if (!dir || asprintf(&path, "%s/console.log", dir) < 0) {
                path = NULL;
                request_failf(request, ERR_INTERNAL, "out of memory");
                return;
        }
        text = log_tail(instance->manager->state_fd, path, &size) ?: strdup("");
        from = size;
        for (int64_t n = 0; from > 0; from--)
                if (text[from - 1] == '\n' && from != size && ++n >= lines)
                        break;
        r = log_redact(instance, text + from, size - from, &shown, &replaced, &err);
        if (r < 0) {
                (void) request_fail(request, r, &err);
                redact_stream_done(&shown);
                return;
        }
        list = json_array();
        for (char *at = shown.out, *end = at + shown.n_out; at < end;) {
                char *stop = memchr(at, '\n', (size_t) (end - at));
                log_line(list, at, (size_t) (stop - at));
                at = stop + 1;
        }
        redact_stream_done(&shown);
        request_reply(request, json_pack("{s:o, s:I}", "lines", list, "redacted", (json_int_t) replaced));
}
