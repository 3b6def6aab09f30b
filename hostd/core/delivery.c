// SPDX-License-Identifier: GPL-2.0-or-later
// Delivery: see delivery.h.
#include "core/delivery.h"

#include <string.h>

#include "base/io.h"
#include "core/command.h"
#include "core/guest_link.h"
#include "secret/ca.h"

#define PUT_TIMEOUT (30 * USEC_PER_SEC)
#define ADOPT_TIMEOUT (180 * USEC_PER_SEC)
#define AGAIN_MAX (60 * USEC_PER_SEC)
#define MARK_PREFIX "delivered/"

static void run(Delivery *d);

static Manager *manager_of(const Delivery *d) {
        return d->secrets->manager;
}

static Delivery *find(const Secrets *s, const char *instance) {
        for (Delivery *d = s->deliveries; d; d = d->next)
                if (strcmp(d->instance, instance) == 0)
                        return d;
        return NULL;
}

static Delivery *get(Secrets *s, const char *instance) {
        Delivery *d = find(s, instance);

        if (d || !(d = calloc(1, sizeof(Delivery))))
                return d;
        d->secrets = s;
        (void) snprintf(d->instance, sizeof(d->instance), "%s", instance);
        d->next = s->deliveries;
        s->deliveries = d;
        return d;
}

static bool has_wire(const Secrets *s, const char *instance) {
        for (size_t i = 0; i < s->n; i++)
                if (strcmp(s->bindings[i]->instance, instance) == 0)
                        return true;
        return false;
}

// The package policy, as the helper is told.
static uint32_t packages_of(const Secrets *s, const char *name) {
        const InstanceConfig *config = desired_find_instance(s->manager->desired, name);

        if (!config)
                return 0;
        return (config->package_lock_only ? (uint32_t) GUEST_PACKAGES_LOCKED : 0) | (config->package_no_scripts ? (uint32_t) GUEST_PACKAGES_NO_SCRIPTS : 0);
}

static bool has_any(const Secrets *s, const char *instance) {
        if (packages_of(s, instance))
                return true;
        for (size_t i = 0; i < s->n_all; i++)
                if (strcmp(s->bindings[i]->instance, instance) == 0)
                        return true;
        return false;
}

static Instance *reachable(const Delivery *d) {
        Instance *instance = instance_list_find(&manager_of(d)->instances, d->instance);

        return instance && instance->guest && instance->state == INSTANCE_RUNNING && !instance->paused ? instance : NULL;
}

// ---- the mark ----

static char *mark_key(const char *instance, char ret[64]) {
        (void) snprintf(ret, 64, MARK_PREFIX "%.32s", instance);
        return ret;
}

static bool mark_read(const Secrets *s, const char *instance) {
        _cleanup_free_ char *text = NULL;
        char key[64];

        return store_value_get(s->vault.store, mark_key(instance, key), &text, NULL) >= 0;
}

static int mark_write(Delivery *d, bool marked, Error *err) {
        char key[64];
        int r = d->marked == marked ? 0 : store_value_keep(d->secrets->vault.store, mark_key(d->instance, key), marked ? "1" : NULL, err);

        if (r >= 0)
                d->marked = marked;
        return r;
}

// ---- who waits ----

static void finish(Delivery *d, int r, Error *err) {
        DeliveryWaiter **p = &d->waiters;
        Instance *instance = instance_list_find(&manager_of(d)->instances, d->instance);

        if (d->first && instance && instance->guest)
                guest_link_open(instance);
        d->first = false;
        while (*p) {
                DeliveryWaiter *w = *p;
                if (!w->counted) {
                        p = &w->next;
                        continue;
                }
                *p = w->next;
                w->done(w->userdata, r, err);
                free(w);
        }
}

static void count_waiters(Delivery *d) {
        for (DeliveryWaiter *w = d->waiters; w; w = w->next)
                w->counted = true;
}

static int again_due(sd_event_source *source, uint64_t usec, void *userdata) {
        Delivery *d = userdata;

        d->again = sd_event_source_disable_unref(d->again);
        run(d);
        return 0;
}

static void again(Delivery *d) {
        usec_t span = MIN2(USEC_PER_SEC << MIN2(d->failures, 7u), AGAIN_MAX);

        d->failures++;
        if (!d->again)
                (void) sd_event_add_time_relative(manager_of(d)->event, &d->again, CLOCK_MONOTONIC, span, 1, again_due, d);
}

// One that is not there any more fails silently: its next helper gets all of it.
static void trouble(Delivery *d, int r, Error *err) {
        if (!reachable(d))
                return;
        manager_warn(manager_of(d), "delivery", d->instance, "%s", error_message(err, r));
        again(d);
}

static void settled(Delivery *d) {
        if (d->due || d->adopt_due || d->putting || d->adopting || !d->done)
                return;
        d->failures = 0;
        manager_unwarn(manager_of(d), "delivery", d->instance);
}

// ---- values into a pipe ----

static int put_packages(const Delivery *d, int fd, Error *err) {
        GuestFile file = {.magic = GUEST_FILE_MAGIC, .kind = GUEST_FILE_PACKAGES, .uid = packages_of(d->secrets, d->instance)};
        int r = file.uid ? io_write_all(fd, &file, sizeof(file)) : 0;

        return r < 0 ? error_set_errno(err, r, "cannot hand the package policy on") : 0;
}

static int put_file(int fd, GuestFileKind kind, const Binding *b, const void *data, size_t size) {
        GuestFile file = {.magic = GUEST_FILE_MAGIC, .kind = kind, .size = (uint32_t) size, .uid = b ? b->owner : 0};
        int r;

        if (b)
                memcpy(file.name, b->secret, strlen(b->secret));
        r = io_write_all(fd, &file, sizeof(file));
        return r < 0 || size == 0 ? r : io_write_all(fd, data, size);
}

static int put_secret(const Delivery *d, int fd, const Binding *b, Error *err) {
        _cleanup_(value_freep) Value *value = NULL;
        int r = secret_value(&d->secrets->vault, b->secret, &value, err);

        if (r < 0)
                return r;
        r = put_file(fd, GUEST_FILE_SECRET, b, value->data, value->size);
        return r < 0 ? error_set_errno(err, r, "cannot hand secret \"%s\" on", b->secret) : 0;
}

static int put_authority(const Delivery *d, int fd, Error *err) {
        _cleanup_(ca_freep) Ca *ca = NULL;
        int r = ca_open(&d->secrets->vault, d->instance, clock_realtime(), &ca, err);

        if (r < 0)
                return r;
        r = put_file(fd, GUEST_FILE_AUTHORITY, NULL, ca->certificate, strlen(ca->certificate));
        return r < 0 ? error_set_errno(err, r, "cannot hand the authority's certificate on") : 0;
}

// All of it is in the pipe before the helper hears of it: hostd waits for nobody.
static int fill(const Delivery *d, int fd, Error *err) {
        const Secrets *s = d->secrets;
        int r = put_packages(d, fd, err);

        if (r >= 0 && has_wire(s, d->instance))
                r = put_authority(d, fd, err);

        for (size_t i = s->n; r >= 0 && i < s->n_all; i++)
                if (strcmp(s->bindings[i]->instance, d->instance) == 0)
                        r = put_secret(d, fd, s->bindings[i], err);
        if (r >= 0 && (r = put_file(fd, GUEST_FILE_END, NULL, NULL, 0)) < 0)
                r = error_set_errno(err, r, "cannot hand the end on");
        return r;
}

// For the authority, and as much as the files may have.
#define PIPE_BYTES (DELIVERY_FILES_MAX * (SEAL_VALUE_MAX + 4096) + 65536)

static int filled_pipe(const Delivery *d, Error *err) {
        _cleanup_close_ int rd = -EBADF, wr = -EBADF;
        int r = io_pipe(d->secrets->n_all > d->secrets->n ? PIPE_BYTES : 0, &rd, &wr);

        if (r < 0)
                return error_set_errno(err, r, "cannot make a pipe");
        r = fill(d, wr, err);
        return r < 0 ? r : TAKE_FD(rd);
}

// ---- the commands ----

static void put_done(Command *command, const CommandRecord *record, void *userdata);
static void adopt_done(Command *command, const CommandRecord *record, void *userdata);

// The other two are closed already: nothing that the helper says there is read by anybody.
static int start(Delivery *d, const Instance *instance, bool adopt, int input, Error *err) {
        CommandRequest request = {
                .instance = d->instance,
                .caller = "hostd",
                .channel = instance->guest,
                .guest = {.verb = adopt ? GUEST_ADOPT : GUEST_DELIVER, .path = GUEST_FILES},
                .timeout = adopt ? ADOPT_TIMEOUT : PUT_TIMEOUT,
                .done = adopt ? adopt_done : put_done,
                .userdata = d,
        };
        int out[2], fds[3], r;

        if (pipe2(out, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot make a pipe");
        fds[0] = input >= 0 ? input : out[0];
        fds[1] = fds[2] = out[1];
        request.fds = fds;
        r = command_start(manager_of(d)->commands, &request, adopt ? &d->adopting : &d->putting, err);
        (void) close_fd(out[0]);
        (void) close_fd(out[1]);
        return r;
}

static int put(Delivery *d, const Instance *instance, Error *err) {
        _cleanup_close_ int input = -EBADF;
        int r;

        d->empty = !has_any(d->secrets, d->instance);
        r = d->empty ? 0 : mark_write(d, true, err);
        if (r >= 0)
                r = input = filled_pipe(d, err);
        return r < 0 ? r : start(d, instance, false, input, err);
}

// 0, or why it failed. What the guest claims decides about no more than whether it is tried again.
static int outcome(const CommandRecord *record, Error *err) {
        if (!record->message && record->exit == 0 && record->signal == 0)
                return 0;
        if (record->errnum)
                return error_set_errno(err, record->errnum, "the helper in the instance could not put certificate, secrets and package policy in place");
        return error_set(err, ERR_UNAVAILABLE, "certificate, secrets and package policy are not in place in the instance: %s", record->message ?: "its helper ended early");
}

static void unmark_empty(Delivery *d) {
        _cleanup_error_ Error err = ERROR_NULL;

        if (d->done && d->empty && !d->adopted && mark_write(d, false, &err) < 0)
                trouble(d, -EIO, &err);
}

static void put_done(Command *command, const CommandRecord *record, void *userdata) {
        Delivery *d = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = outcome(record, &err);

        d->putting = NULL;
        d->done = r >= 0;
        if (r < 0) {
                d->due = true;
                trouble(d, r, &err);
        } else if (d->authority != d->adopted || d->unknown || d->empty)
                d->adopt_due = true;
        finish(d, r, &err);
        run(d);
}

static void adopt_done(Command *command, const CommandRecord *record, void *userdata) {
        Delivery *d = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = outcome(record, &err);

        d->adopting = NULL;
        if (r < 0) {
                d->adopt_due = true;
                trouble(d, r, &err);
                return;
        }
        d->adopted = d->adopting_authority;
        d->unknown = false;
        d->adopt_due = d->adopt_due || d->adopted != d->authority;
        unmark_empty(d);
        run(d);
}

static void begin_put(Delivery *d, const Instance *instance) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        d->due = d->done = false;
        d->authority = has_wire(d->secrets, d->instance);
        count_waiters(d);
        r = put(d, instance, &err);
        if (r >= 0)
                return;
        d->due = true;
        trouble(d, r, &err);
        finish(d, r, &err);
}

static void begin_adopt(Delivery *d, const Instance *instance) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        d->adopt_due = false;
        d->adopting_authority = d->authority;
        r = start(d, instance, true, -EBADF, &err);
        if (r >= 0)
                return;
        d->adopt_due = true;
        trouble(d, r, &err);
}

// A failure has its clock; until then nothing is begun but what is new.
static void run(Delivery *d) {
        const Instance *instance = reachable(d);

        if (!instance) {
                count_waiters(d);
                finish(d, 0, NULL);
                return;
        }
        if (d->due && !d->putting && !d->again)
                begin_put(d, instance);
        if (d->adopt_due && !d->adopting && !d->putting && !d->again)
                begin_adopt(d, instance);
        settled(d);
}

// ---- when ----

void deliveries_sync(Manager *m) {
        for (Delivery *d = m->secrets ? m->secrets->deliveries : NULL; d && !m->stopping; d = d->next)
                run(d);
}

void delivery_plan(Secrets *s, const char *instance) {
        Delivery *d = get(s, instance);

        if (!d)
                return; // the next helper gets it
        d->due = true;
        d->failures = 0;
        d->again = sd_event_source_disable_unref(d->again);
        secrets_plan(s->manager);
}

void delivery_plan_secret(Secrets *s, const char *secret) {
        for (size_t i = s->n; i < s->n_all; i++)
                if (strcmp(s->bindings[i]->secret, secret) == 0)
                        delivery_plan(s, s->bindings[i]->instance);
}

// Without secrets nothing is handed in at all.
static void tell_no_policy(Instance *instance) {
        const InstanceConfig *config = instance->config;

        if (config && (config->package_lock_only || config->package_no_scripts))
                manager_warn(instance->manager, "delivery", instance->record.name, "its package policy is not in place: hostd runs without its store of secrets, which hands it in");
}

bool delivery_link_up(Instance *instance) {
        Secrets *s = instance->manager->secrets;
        bool marked = s && mark_read(s, instance->record.name);
        Delivery *d;

        if (!s)
                tell_no_policy(instance);
        if (!s || (!marked && !has_any(s, instance->record.name)) || !(d = get(s, instance->record.name)))
                return false;
        d->marked = marked;
        d->first = d->unknown = true;
        d->adopt_due = d->adopted = false;
        delivery_plan(s, d->instance);
        return true;
}

// Its commands have ended already, and with an instance all that is below /run.
void delivery_link_down(Instance *instance) {
        Delivery *d = instance->manager->secrets ? find(instance->manager->secrets, instance->record.name) : NULL;

        if (!d)
                return;
        d->again = sd_event_source_disable_unref(d->again);
        d->first = d->due = d->done = d->adopt_due = d->adopted = false;
        d->failures = 0;
        count_waiters(d);
        finish(d, 0, NULL);
}

void delivery_wait(Secrets *s, const char *instance, InstanceDone done, void *userdata) {
        Delivery *d = find(s, instance);
        DeliveryWaiter *w = d && reachable(d) && d->due ? calloc(1, sizeof(DeliveryWaiter)) : NULL;

        if (!w) {
                done(userdata, 0, NULL);
                return;
        }
        *w = (DeliveryWaiter) {.next = d->waiters, .done = done, .userdata = userdata};
        d->waiters = w;
}

const char *delivery_state(const Secrets *s, const char *instance) {
        const Delivery *d = find(s, instance);

        if (!d || !reachable(d))
                return "none";
        return d->done && !d->due ? "delivered" : d->failures > 0 ? "failed" : "pending";
}

// When hostd ends, commands and requests are forgotten before this.
static void delivery_free(Delivery *d) {
        bool stopping = manager_of(d)->stopping;

        d->again = sd_event_source_disable_unref(d->again);
        if (d->putting && !stopping)
                command_detach(d->putting);
        if (d->adopting && !stopping)
                command_detach(d->adopting);
        while (d->waiters) {
                DeliveryWaiter *w = d->waiters;
                d->waiters = w->next;
                if (!stopping)
                        w->done(w->userdata, 0, NULL);
                free(w);
        }
        free(d);
}

void delivery_forget(Secrets *s, const char *instance) {
        char key[64];

        for (Delivery **p = &s->deliveries; *p; p = &(*p)->next)
                if (strcmp((*p)->instance, instance) == 0) {
                        Delivery *d = *p;
                        *p = d->next;
                        delivery_free(d);
                        break;
                }
        (void) store_value_set(s->vault.store, mark_key(instance, key), NULL, NULL); // one that is left costs one empty delivery
}

void deliveries_free(Secrets *s) {
        while (s->deliveries) {
                Delivery *d = s->deliveries;
                s->deliveries = d->next;
                delivery_free(d);
        }
}
