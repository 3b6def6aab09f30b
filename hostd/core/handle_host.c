// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, host: carve, doctor, leaks, info, events, audit, warnings.
#include <string.h>

#include "core/doctor.h"
#include "core/handle.h"
#include "core/job.h"
#include "core/leaks.h"
#include "core/lifecycle.h"
#include "quotas/admission.h"

static char *millis_text(unsigned millis) {
        char *text;
        int n = millis % 1000 ? asprintf(&text, "%u.%0*u", millis / 1000, millis % 100 ? 3 : millis % 1000 % 100 ? 2 : 1,
                                         millis % 100 ? millis % 1000 : millis % 1000 / 100)
                              : asprintf(&text, "%u", millis / 1000);
        return n < 0 ? NULL : text;
}

static json_t *carve_settings(const CarvePlan *plan, const char *template) {
        _cleanup_free_ char *cpu = millis_text(plan->cpu_millis);
        json_t *settings = json_pack("{s:s, s:o, s:o, s:o}", "cpu", cpu ?: "1", "memory", json_sprintf("%llu", (unsigned long long) plan->memory_bytes),
                                     "disk", json_sprintf("%llu", (unsigned long long) plan->disk_bytes), "pids",
                                     json_sprintf("%llu", (unsigned long long) plan->pids));

        return json_pack("{s:s, s:o}", "template", template, "settings", settings);
}

static int carve_write(Request *request, const CarvePlan *plan, const char *name, const char *template, Error *err) {
        json_t *parameters = carve_settings(plan, template);
        Instance *instance;
        int r = new_instance_create(request->manager, name, parameters, &instance, err);

        json_decref(parameters);
        return r;
}

// Names that exist are kept and counted on: carving again after a cut goes on where it stopped.
static int carve_names(Request *request, unsigned count, char ***ret) {
        const char *prefix = request_string(request, "prefix") ?: "agent";
        unsigned found = 0;

        for (unsigned i = 1; found < count && i <= SLOT_MAX; i++) {
                _cleanup_free_ char *name = NULL;
                if (asprintf(&name, "%s%u", prefix, i) < 0) {
                        name = NULL;
                        return -ENOMEM;
                }
                if (!valid_is(VALID_NAME, name))
                        return -EINVAL;
                if (instance_list_find(&request->manager->instances, name))
                        continue;
                if (strv_append(ret, name) < 0)
                        return -ENOMEM;
                found++;
        }
        return 0;
}

void handle_carve(Request *request) {
        Manager *m = request->manager;
        // A copy: each instance that is written loads the configuration anew.
        _cleanup_free_ char *template = strdup(request_string(request, "template") ?: m->desired->host.default_template ?: "agent");
        unsigned count = (unsigned) request_int(request, "count", 1);
        _cleanup_free_ Promise *promised = NULL;
        _cleanup_strv_ char **names = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        Capacity capacity = manager_capacity(m);
        json_t *list = json_array();
        CarvePlan plan;
        size_t n;
        int r;

        promised = manager_promises(m, NULL, &n);
        r = promised && template ? carve_plan(&capacity, promised, n, count, &plan, &err) : -ENOMEM;
        if (r >= 0 && !template_find(m->templates, template))
                r = error_set(&err, ERR_NOT_FOUND, "there is no template \"%s\": build it with \"hostctl template build %s\"", template, template);
        if (r >= 0 && (r = carve_names(request, count, &names)) < 0)
                (void) error_set_field(&err, "prefix", "prefix: the names that it makes are too long");
        for (char **name = names; r >= 0 && name && *name; name++) {
                _cleanup_free_ char *cpu = millis_text(plan.cpu_millis);
                (void) json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "name", *name, "cpu", cpu ?: "", "memory",
                                                             (json_int_t) plan.memory_bytes, "disk", (json_int_t) plan.disk_bytes, "pids",
                                                             (json_int_t) plan.pids, "template", template));
                if (request_bool(request, "write"))
                        r = carve_write(request, &plan, *name, template, &err);
        }
        if (r < 0) {
                if (request_bool(request, "write") && json_array_size(list) > 1) {
                        (void) error_wrap(&err, "the first %zu of %u instances were created", json_array_size(list) - 1, count);
                        handle_commit(request);
                }
                json_decref(list);
                (void) request_fail(request, r, &err);
                return;
        }
        request_reply(request, json_pack("{s:o, s:b}", "plan", list, "written", request_bool(request, "write")));
        if (request_bool(request, "write"))
                handle_commit(request);
}

void handle_doctor(Request *request) {
        unsigned bad = 0;
        json_t *list = doctor_report(request->manager, &bad);

        request_reply(request, json_pack("{s:o, s:i}", "protections", list, "missing", (int) bad));
}

void handle_leaks(Request *request) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *list = leaks_list(request->manager, &err);

        if (!list)
                (void) request_fail(request, -EIO, &err);
        else
                request_reply(request, json_pack("{s:o}", "leaks", list));
}

void handle_info(Request *request) {
        Manager *m = request->manager;
        Capacity c = manager_capacity(m);
        _cleanup_free_ Promise *promised = NULL;
        uint64_t memory = 0, disk = 0;
        size_t n = 0;

        promised = manager_promises(m, NULL, &n);
        for (size_t i = 0; promised && i < n; i++) {
                memory += promised[i].memory_bytes;
                disk += promised[i].disk_bytes;
        }
        request_reply(request, json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:s, s:s?}", "version", PACKAGE_VERSION, "cpus", (int) c.cpus,
                                         "memory", (json_int_t) c.memory_bytes, "memory_reserve", (json_int_t) c.memory_reserve_bytes, "memory_promised",
                                         (json_int_t) memory, "disk", (json_int_t) c.disk_bytes, "disk_reserve", (json_int_t) c.disk_reserve_bytes,
                                         "disk_promised", (json_int_t) disk, "instances", (int) m->instances.n, "launcher",
                                         m->systemd ? "systemd" : "fork", "uplink", m->desired->host.network.uplink));
}

// The follower's answers go over the call for as long as it is open: the request itself is done.
void handle_events(Request *request) {
        const char *name = request_string(request, "name");
        json_t *recent = event_recent(request->manager->bus, name);
        bool known = !name || instance_list_find(&request->manager->instances, name) || json_array_size(recent) > 0;
        Call *call;

        if (!known)
                request_failf(request, ERR_NOT_FOUND, "there is no instance \"%s\", and no event of one is remembered", name);
        else if (call = TAKE_PTR(request->call), call_wants_more(call))
                event_follow(request->manager->bus, call, name);
        else
                call_reply(call, json_pack("{s:O}", "events", recent));
        json_decref(recent);
}

typedef struct AuditInput {
        const char *directory;
        AuditQuery query;
} AuditInput;

static void audit_job(Request *request, JobWork work, JobDone done, AuditInput *input) {
        JobSpec spec = {work, input, done, request};
        _cleanup_free_ char *directory = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = -ENOMEM;

        (void) request_hold(request);
        if (asprintf(&directory, "%s/audit", request->manager->paths.state) >= 0) {
                input->directory = directory;
                r = job_start(request->manager->event, &spec, &err);
        } else
                directory = NULL;
        if (r < 0)
                request_done(request, r, &err);
}

static int verify_work(void *userdata, json_t **ret, Error *err) {
        AuditInput *input = userdata;
        uint64_t records = 0;
        int r = audit_verify(input->directory, &records, err);

        if (r >= 0)
                *ret = json_pack("{s:I, s:b}", "records", (json_int_t) records, "intact", true);
        return r;
}

// Whoever asked is told; so is the journal, for whoever watches this host.
static void verify_done(void *userdata, int r, json_t *result, Error *err) {
        Request *request = userdata;

        if (r < 0 && err->code == ERR_CONFLICT)
                manager_warn(request->manager, "audit", "host", "the audit log does not verify: %s", error_message(err, r));
        request_job_done(request, r, result, err);
}

void handle_audit_verify(Request *request) {
        AuditInput input = {0};

        audit_job(request, verify_work, verify_done, &input);
}

static int query_each(const json_t *record, void *userdata) {
        return json_array_append(userdata, (json_t *) record);
}

// What one message may hold, with room for the rest of it; see wire/frame.h and the server's limits.
#define ANSWER_VALUES 60000
#define ANSWER_BYTES (3u << 20)

static size_t count_values(const json_t *value) {
        size_t n = 1, index;
        const char *key;
        json_t *child;

        json_object_foreach((json_t *) value, key, child)
                n += 1 + count_values(child);
        json_array_foreach((json_t *) value, index, child)
                n += count_values(child);
        return n;
}

// The newest records that fit into an answer; `ret_cut` says whether older ones had to go.
static json_t *newest_that_fit(const json_t *all, bool *ret_cut) {
        size_t n = json_array_size(all), from = n, values = 0, bytes = 0;
        json_t *list = json_array();

        while (from > 0) {
                const json_t *record = json_array_get(all, from - 1);
                values += count_values(record);
                bytes += json_dumpb(record, NULL, 0, JSON_COMPACT) + 1;
                if (values > ANSWER_VALUES || bytes > ANSWER_BYTES)
                        break;
                from--;
        }
        *ret_cut = from > 0;
        for (; from < n; from++)
                (void) json_array_append(list, json_array_get(all, from));
        return list;
}

static int query_work(void *userdata, json_t **ret, Error *err) {
        AuditInput *input = userdata;
        json_t *all = json_array();
        bool cut = false;
        int r = audit_query(input->directory, &input->query, query_each, all, err);

        if (r >= 0) {
                json_t *list = newest_that_fit(all, &cut);
                *ret = json_pack("{s:o, s:b}", "records", list, "truncated", cut);
        }
        json_decref(all);
        return r;
}

void handle_audit_tail(Request *request) {
        AuditInput input = {.query.last = (uint64_t) request_int(request, "lines", 20)};

        audit_job(request, query_work, request_job_done, &input);
}

// A method that there is not would find nothing, which reads like an answer.
static bool query_method_known(Request *request, const char *method) {
        _cleanup_strv_ char **names = NULL;
        _cleanup_free_ char *list = NULL;
        Error err = ERROR_NULL;

        if (!method || method_from_name(method) >= 0)
                return true;
        for (int i = 0; i < _METHOD_MAX; i++)
                (void) strv_append(&names, method_get(i)->name); // a shorter list is one, too
        list = strv_join(names, ", ");
        (void) request_fail(request, error_set_field(&err, "method", "method \"%s\" is not one of %s", method, list ?: ""), &err);
        return false;
}

void handle_audit_query(Request *request) {
        usec_t now = clock_realtime(), since = (usec_t) request_int(request, "since", 0);
        AuditInput input = {
                .query = {
                        .since = since > 0 && since < now ? now - since : 0,
                        .method = request_string(request, "method"),
                        .target = request_string(request, "target"),
                        .user = request_string(request, "user"),
                        .result = request_string(request, "result"),
                        .last = 10000,
                },
        };

        if (query_method_known(request, input.query.method))
                audit_job(request, query_work, request_job_done, &input);
}

void handle_warning_list(Request *request) {
        _cleanup_error_ Error err = ERROR_NULL;
        StoreWarning *warnings = NULL;
        json_t *list = json_array();
        size_t n = 0;
        int r = store_warning_list(request->manager->store, &warnings, &n, &err);

        if (r < 0) {
                json_decref(list);
                (void) request_fail(request, r, &err);
                return;
        }
        for (size_t i = 0; i < n; i++) {
                char first[CLOCK_TEXT_MAX], last[CLOCK_TEXT_MAX];
                (void) json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:s, s:s}", "kind", warnings[i].kind, "entity", warnings[i].entity, "text",
                                                             warnings[i].text, "count", (json_int_t) warnings[i].count, "first_seen",
                                                             clock_format(warnings[i].first_seen, first), "last_seen",
                                                             clock_format(warnings[i].last_seen, last)));
        }
        store_warnings_free(warnings, n);
        request_reply(request, json_pack("{s:o}", "warnings", list));
}

void handle_warning_clear(Request *request) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = store_warning_clear(request->manager->store, request_string(request, "kind"), request_string(request, "name"), &err);

        if (r < 0)
                (void) request_fail(request, r, &err);
}
