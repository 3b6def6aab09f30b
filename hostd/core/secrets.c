// SPDX-License-Identifier: GPL-2.0-or-later
// Secrets: see secrets.h.
#include "core/secrets.h"

#include <fcntl.h>
#include <string.h>

#include "border/record.h"
#include "core/delivery.h"
#include "core/interceptor.h"
#include "core/minting.h"
#include "secret/ca.h"
#include "secret/ended.h"

#define ENDING_ACCURACY USEC_PER_SEC
#define RETRY_EVERY (5 * USEC_PER_SEC) // of a store that cannot be written

static void plan_ending(Secrets *s);

// The end of a binding that no request records.
static void audit_end(Secrets *s, const Binding *b) {
        json_t *detail = json_pack("{s:s, s:s, s:s*}", "id", b->id, "secret", b->secret, "host", b->host);
        AuditRecord record = {.user = "hostd", .method = "io.hostd.Secret.Ungrant", .target = b->instance, .result = "ended", .detail = detail};
        _cleanup_error_ Error err = ERROR_NULL;

        manager_note_audit(s->manager, audit_append(s->manager->audit, &record, &err), &err);
        json_decref(detail);
}

static int sync_now(sd_event_source *source, void *userdata) {
        Manager *m = userdata;

        m->secrets->sync = sd_event_source_disable_unref(m->secrets->sync);
        interceptors_sync(m);
        deliveries_sync(m);
        return 0;
}

void secrets_plan(Manager *m) {
        if (m->secrets && !m->secrets->sync && !m->stopping)
                (void) sd_event_add_defer(m->event, &m->secrets->sync, sync_now, m);
}

static void grant_came(Secrets *s, const Binding *b) {
        secrets_plan(s->manager);
        delivery_plan(s, b->instance);
}

// So that what ends needs no memory.
static int reserve(Secrets *s, size_t n) {
        size_t all = s->n_all + s->n_resting + n;
        const struct { Binding ***list; size_t size; } lists[] = {{&s->bindings, all}, {&s->resting, all}, {&s->leaving, s->n_leaving + all}};

        for (size_t i = 0; i < ELEMENTS(lists); i++) {
                Binding **grown = reallocarray(*lists[i].list, lists[i].size, sizeof(Binding *));
                if (!grown)
                        return -ENOMEM;
                *lists[i].list = grown;
        }
        return 0;
}

static void insert(Secrets *s, Binding *b) {
        s->bindings[s->n_all++] = b;
        if (b->place == BINDING_FILE)
                return;
        memmove(s->bindings + s->n + 1, s->bindings + s->n, (s->n_all - 1 - s->n) * sizeof(Binding *));
        s->bindings[s->n++] = b;
}

static Binding *take_out(Secrets *s, size_t i) {
        Binding *b = s->bindings[i];

        memmove(s->bindings + i, s->bindings + i + 1, (--s->n_all - i) * sizeof(Binding *));
        s->n -= i < s->n;
        return b;
}

typedef bool (*BindingMatch)(const Binding *b, const void *key);

static bool is_of_secret(const Binding *b, const void *key) {
        return strcmp(b->secret, key) == 0;
}

static bool is_of_instance(const Binding *b, const void *key) {
        return strcmp(b->instance, key) == 0;
}

static bool has_id(const Binding *b, const void *key) {
        return strcmp(b->id, key) == 0;
}

static bool is_over_at(const Binding *b, const void *key) {
        return binding_is_over(b, *(const usec_t *) key);
}

// Back among the others, for what is about to be done with them: nothing is served before the loop turns.
static void wake(Secrets *s, BindingMatch match, const void *key) {
        for (size_t i = s->n_resting; i-- > 0;)
                if (match(s->resting[i], key)) {
                        Binding *b = s->resting[i];
                        memmove(s->resting + i, s->resting + i + 1, (--s->n_resting - i) * sizeof(Binding *));
                        insert(s, b);
                }
}

// Out of force, before anybody asks a disk. The others keep their order: another one would be another configuration of their HAProxies.
static void drop(Secrets *s, size_t i, const char *event) {
        Binding *b = take_out(s, i);

        s->leaving[s->n_leaving++] = b;
        if (b->place != BINDING_FILE)
                interceptors_retire(s, b);
        secrets_plan(s->manager);
        delivery_plan(s, b->instance);
        event_publish(s->manager->bus, event, b->instance, json_pack("{s:s, s:s, s:s*}", "id", b->id, "secret", b->secret, "host", b->host));
}

// A hostd that is started before the store takes it must not have them back.
static int note_leaving(Secrets *s) {
        int r = 0;

        for (size_t i = 0; i < s->n_leaving; i++) {
                int k = s->ended ? ended_add(s->ended, s->leaving[i]->id) : -EBADF;
                r = r < 0 ? r : k;
        }
        return r;
}

// Takes those that left out of the store, too.
static int settle(Secrets *s, Error *err) {
        while (s->n_leaving > 0) {
                const char *id = s->leaving[s->n_leaving - 1]->id;
                int r = binding_remove(&s->vault, id, err);
                if (r < 0)
                        return note_leaving(s) < 0 ? error_wrap(err, "what was granted is in force no more, but stays on disk, which is tried again; a start of hostd before that would have it back")
                                                   : error_wrap(err, "what was granted is in force no more, but stays on disk, which is tried again");
                if (s->ended)
                        ended_remove(s->ended, id);
                (void) binding_free(s->leaving[--s->n_leaving]);
        }
        manager_unwarn(s->manager, "secrets-store", "host");
        return 0;
}

static void end_those_over(Secrets *s) {
        usec_t now = clock_realtime();
        _cleanup_error_ Error err = ERROR_NULL;

        wake(s, is_over_at, &now);
        for (size_t i = s->n_all; i-- > 0;)
                if (binding_is_over(s->bindings[i], now)) {
                        audit_end(s, s->bindings[i]);
                        drop(s, i, "secret-ended");
                }
        if (s->n_leaving > 0 && settle(s, &err) < 0)
                manager_warn(s->manager, "secrets-store", "host", "%s", error_message(&err, -EIO));
}

static int ending_due(sd_event_source *source, uint64_t usec, void *userdata) {
        Secrets *s = userdata;

        end_those_over(s);
        plan_ending(s);
        return 0;
}

// By the wall clock, as the operator reads it: a grant until six ends at six after a suspend, too.
static void plan_ending(Secrets *s) {
        usec_t next = s->n_leaving > 0 ? clock_realtime() + RETRY_EVERY : USEC_INFINITY;

        s->ending = sd_event_source_disable_unref(s->ending);
        for (size_t i = 0; i < s->n_all; i++)
                if (s->bindings[i]->until > 0)
                        next = MIN2(next, s->bindings[i]->until);
        for (size_t i = 0; i < s->n_resting; i++)
                if (s->resting[i]->until > 0)
                        next = MIN2(next, s->resting[i]->until);
        if (next < USEC_INFINITY)
                (void) sd_event_add_time(s->manager->event, &s->ending, CLOCK_REALTIME, MAX2(next, clock_realtime() + USEC_PER_SEC), ENDING_ACCURACY, ending_due, s);
}

// Keeps the order among those for the wire.
static void order(Secrets *s) {
        for (size_t i = 0; i < s->n_all; i++)
                if (s->bindings[i]->place != BINDING_FILE) {
                        Binding *b = s->bindings[i];
                        memmove(s->bindings + s->n + 1, s->bindings + s->n, (i - s->n) * sizeof(Binding *));
                        s->bindings[s->n++] = b;
                }
}

static void open_ended(Secrets *s) {
        _cleanup_close_ int run = open(s->manager->paths.run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const int directories[] = {s->manager->state_fd, run};
        int r = ended_open(directories, &s->ended);

        if (r < 0)
                manager_warn(s->manager, "secrets-ended", "host", "grants that end while no disk takes it would be back after a start of hostd: %s", strerror(-r));
        else
                manager_unwarn(s->manager, "secrets-ended", "host");
}

// Those that ended under the hostd before, and were left in the store.
static void pass_over_ended(Secrets *s) {
        for (size_t i = s->n_all; s->ended && i-- > 0;)
                if (ended_has(s->ended, s->bindings[i]->id)) {
                        s->leaving[s->n_leaving++] = s->bindings[i];
                        memmove(s->bindings + i, s->bindings + i + 1, (--s->n_all - i) * sizeof(Binding *));
                }
}

static int load(Secrets *s, Error *err) {
        unsigned damaged = 0;
        int r = seal_open(s->manager->state_fd, getenv("CREDENTIALS_DIRECTORY"), &s->vault.seal, err);

        if (r >= 0)
                r = binding_list(&s->vault, &s->bindings, &s->n_all, &damaged, err);
        if (r < 0)
                return r;
        if (reserve(s, 1) < 0) {
                bindings_free(s->bindings, s->n_all);
                s->bindings = NULL;
                s->n_all = 0;
                return error_set_errno(err, ENOMEM, "cannot list the bindings");
        }
        pass_over_ended(s);
        order(s);
        if (damaged > 0)
                return error_set(err, ERR_CONFLICT, "%u bindings in the state database are damaged and not in force", damaged);
        return 0;
}

void secrets_open(Manager *m) {
        _cleanup_error_ Error err = ERROR_NULL;
        Secrets *s = calloc(1, sizeof(Secrets));
        int r = s ? 0 : -ENOMEM;

        if (s) {
                s->manager = m;
                s->vault.store = m->store;
                open_ended(s);
                r = load(s, &err);
        }
        if (r < 0)
                manager_warn(m, "secrets", "host", "%s", error_message(&err, r));
        else
                manager_unwarn(m, "secrets", "host");
        if (!s || !s->vault.seal) {
                (void) secrets_free(s);
                return;
        }
        m->secrets = s;
        end_those_over(s);
        plan_ending(s);
        secrets_plan(m); // also where no instance runs: something of an earlier hostd may
        mintings_open(s);
}

Secrets *secrets_free(Secrets *s) {
        if (!s)
                return NULL;
        interceptors_free(s);
        deliveries_free(s);
        mintings_free(s);
        s->ending = sd_event_source_disable_unref(s->ending);
        s->sync = sd_event_source_disable_unref(s->sync);
        bindings_free(s->bindings, s->n_all);
        bindings_free(s->leaving, s->n_leaving);
        (void) ended_free(s->ended);
        (void) flow_sender_free(s->records);
        bindings_free(s->resting, s->n_resting);
        (void) seal_free(s->vault.seal);
        free(s);
        return NULL;
}

static int check_value(Secrets *s, const Binding *b, Error *err) {
        _cleanup_(value_freep) Value *value = NULL;
        int r = secret_value(&s->vault, b->secret, &value, err);

        return r < 0 ? r : binding_check_value(b, value, err);
}

static int check_count(const Secrets *s, const Binding *b, Error *err) {
        size_t files = 0;

        for (size_t i = s->n; b->place == BINDING_FILE && i < s->n_all; i++)
                files += strcmp(s->bindings[i]->instance, b->instance) == 0;
        return files < DELIVERY_FILES_MAX ? 0 : error_set(err, ERR_QUOTA, "%s has %d secrets as files, and can have no more", b->instance, DELIVERY_FILES_MAX);
}

static int check_resting(const Secrets *s, const Binding *b, Error *err) {
        const Mint *mint = minting_find(s, b->secret);

        if (mint && mint->ends <= clock_realtime())
                return error_set(err, ERR_UNAVAILABLE, "the value of secret \"%s\" has ended, and there is no new one yet", b->secret);
        for (size_t i = 0; i < s->n_resting; i++)
                if (binding_clashes(b, s->resting[i]))
                        return error_set(err, ERR_CONFLICT, "binding %s, which rests, has this place", s->resting[i]->id);
        return 0;
}

int secrets_grant(Secrets *s, Binding *binding, Error *err) {
        int r;

        if (reserve(s, 1) < 0)
                return error_set_errno(err, ENOMEM, "cannot grant");
        r = check_count(s, binding, err);
        if (r >= 0)
                r = check_resting(s, binding, err);
        if (r >= 0)
                r = check_value(s, binding, err);
        if (r >= 0)
                r = binding_add(&s->vault, binding, s->bindings, s->n_all, err);
        if (r < 0)
                return r;
        insert(s, binding);
        grant_came(s, binding);
        plan_ending(s);
        return 0;
}

// One that left and is still in the store is asked for again, too.
int secrets_ungrant(Secrets *s, const char *id, Error *err) {
        bool found = false;
        int r;

        wake(s, has_id, id);
        for (size_t i = 0; i < s->n_leaving; i++)
                found = found || strcmp(s->leaving[i]->id, id) == 0;
        for (size_t i = s->n_all; i-- > 0;)
                if (strcmp(s->bindings[i]->id, id) == 0) {
                        drop(s, i, "secret-ungranted");
                        found = true;
                }
        if (!found)
                return error_set(err, ERR_NOT_FOUND, "there is no binding \"%s\"", id);
        r = settle(s, err);
        plan_ending(s);
        return r;
}

void secrets_rest(Secrets *s, const char *name, bool rest) {
        for (size_t i = s->n_all; rest && i-- > 0;)
                if (strcmp(s->bindings[i]->secret, name) == 0) {
                        Binding *b = take_out(s, i);
                        s->resting[s->n_resting++] = b;
                        if (b->place != BINDING_FILE)
                                interceptors_retire(s, b);
                        delivery_plan(s, b->instance);
                        event_publish(s->manager->bus, "secret-expired", b->instance, json_pack("{s:s, s:s}", "id", b->id, "secret", b->secret));
                }
        for (size_t i = s->n_resting; !rest && i-- > 0;)
                if (strcmp(s->resting[i]->secret, name) == 0)
                        grant_came(s, s->resting[i]);
        if (!rest)
                wake(s, is_of_secret, name);
}

// A value that one of its places cannot take is refused as a whole: half a rotation would be two values in use.
int secrets_rotate(Secrets *s, const char *name, const Value *value, Error *err) {
        int r = 0;

        for (size_t i = 0; i < s->n_all && r >= 0; i++)
                if (strcmp(s->bindings[i]->secret, name) == 0)
                        r = binding_check_value(s->bindings[i], value, err);
        for (size_t i = 0; i < s->n_resting && r >= 0; i++)
                if (strcmp(s->resting[i]->secret, name) == 0)
                        r = binding_check_value(s->resting[i], value, err);
        if (r >= 0)
                r = secret_rotate(&s->vault, name, value, err);
        if (r >= 0) {
                interceptors_refill(s, name);
                delivery_plan_secret(s, name);
        }
        return r;
}

// The bindings first: whatever is cut short, no binding is left without its secret.
int secrets_revoke(Secrets *s, const char *name, unsigned *ret_ended, Error *err) {
        int r = secret_get(&s->vault, name, &(Secret) {0}, err);

        *ret_ended = 0;
        if (r >= 0)
                r = minting_remove(s, name, err);
        if (r >= 0)
                wake(s, is_of_secret, name);
        for (size_t i = s->n_all; r >= 0 && i-- > 0;)
                if (strcmp(s->bindings[i]->secret, name) == 0) {
                        drop(s, i, "secret-ungranted");
                        ++*ret_ended;
                }
        if (r >= 0)
                r = settle(s, err);
        plan_ending(s);
        return r < 0 ? r : secret_remove(&s->vault, name, err);
}

// From the store itself: without the key there is no list of them, and they would be in force again with it.
static int forget_stored(const Vault *vault, const char *instance, Error *err) {
        Binding **list = NULL;
        unsigned damaged;
        size_t n = 0;
        int r = binding_list(vault, &list, &n, &damaged, err);

        for (size_t i = 0; r >= 0 && i < n; i++)
                if (strcmp(list[i]->instance, instance) == 0)
                        r = binding_remove(vault, list[i]->id, err);
        bindings_free(list, n);
        return r < 0 ? r : ca_remove(vault, instance, err);
}

int secrets_forget_instance(Manager *m, const char *instance, Error *err) {
        const Vault vault = {.store = m->store};
        Secrets *s = m->secrets;
        int r;

        if (s)
                wake(s, is_of_instance, instance);
        for (size_t i = s ? s->n_all : 0; i-- > 0;)
                if (strcmp(s->bindings[i]->instance, instance) == 0)
                        drop(s, i, "secret-ungranted");
        r = forget_stored(&vault, instance, err);
        if (!s)
                return r;
        delivery_forget(s, instance);
        if (r >= 0)
                r = settle(s, err);
        else
                (void) settle(s, NULL); // so that these do not come back either
        plan_ending(s);
        return r;
}

const Binding *secrets_find(const Secrets *s, const char *id) {
        for (size_t i = 0; i < s->n_all; i++)
                if (strcmp(s->bindings[i]->id, id) == 0)
                        return s->bindings[i];
        for (size_t i = 0; i < s->n_resting; i++)
                if (strcmp(s->resting[i]->id, id) == 0)
                        return s->resting[i];
        return NULL;
}
