// SPDX-License-Identifier: GPL-2.0-or-later
// Interceptor: see interceptor.h.
#include "core/interceptor.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "border/border.h"
#include "core/border.h"
#include "core/policy_rules.h"
#include "secret/haproxy_log.h"

#define DIRECTORY "haproxy" // below the run directory, as hostd-proxy knows it
#define FRONT_NEW "front.new"
#define RESTART_MAX (60 * USEC_PER_SEC)
#define LOOK_EVERY (60 * USEC_PER_SEC) // at the age of its leaves
#define GENERATIONS_MAX 8 // the oldest ends for the next

static void renew(Interceptor *i);

static Manager *manager_of(const Interceptor *i) {
        return i->secrets->manager;
}

const char *interceptor_state(const Interceptor *i) {
        if (!i)
                return "none";
        if (!i->generations)
                return "failed";
        return i->generations->filled && !i->outdated && !i->secrets->sync ? "ready" : "starting";
}

const Interceptor *interceptor_find(const Secrets *s, const char *instance) {
        for (const Interceptor *i = s->interceptors; i; i = i->next)
                if (strcmp(i->instance, instance) == 0)
                        return i;
        return NULL;
}

static int by_id(const void *a, const void *b) {
        return strcmp((*(const Binding *const *) a)->id, (*(const Binding *const *) b)->id);
}

// As the store lists them, whenever each was granted: the next hostd is to make the same configuration of them.
const Binding **interceptor_grants(const Secrets *s, const char *instance, size_t *ret_n) {
        const Binding **list = calloc(s->n + 1, sizeof(Binding *));
        size_t n = 0;

        for (size_t k = 0; list && k < s->n; k++)
                if (strcmp(s->bindings[k]->instance, instance) == 0)
                        list[n++] = s->bindings[k];
        if (n > 1)
                qsort(list, n, sizeof(*list), by_id);
        *ret_n = n;
        return list;
}

// ---- time ----

static int again_due(sd_event_source *source, uint64_t usec, void *userdata) {
        Interceptor *i = userdata;

        i->again = sd_event_source_disable_unref(i->again);
        renew(i);
        return 0;
}

static void again_in(Interceptor *i, usec_t span) {
        i->again = sd_event_source_disable_unref(i->again);
        (void) sd_event_add_time_relative(manager_of(i)->event, &i->again, CLOCK_MONOTONIC, span, 1, again_due, i);
}

static void trouble(Interceptor *i, const char *why) {
        manager_warn(manager_of(i), "interceptor", i->instance, "HAProxy for its secrets: %s", why);
        i->failures++;
        again_in(i, MIN2(USEC_PER_SEC << MIN2(i->failures, 7u), RESTART_MAX));
}

// ---- plan ----

// All that a generation is made of, and who owns it.
typedef struct Plan {
        GenerationPlan plan;
        const Binding **grants; // borrowed pointers
        PolicyRules *rules;
} Plan;

static void plan_done(Plan *plan) {
        free(plan->grants);
        (void) policy_rules_free(plan->rules);
}

static int accounts(const Interceptor *i, Site *site, Error *err) {
        uid_t proxy;

        site->uid = i->uid;
        site->gid = i->uid;
        if (border_account(BORDER_PROXY, &proxy, &site->front_gid) < 0)
                return error_set(err, ERR_UNAVAILABLE, "there is no user " BORDER_PROXY);
        return 0;
}

static int plan_fill(const Interceptor *i, Plan *plan, Error *err) {
        const Instance *instance = instance_list_find(&manager_of(i)->instances, i->instance);
        Site *site = &plan->plan.site;
        int r = accounts(i, site, err);

        if (r < 0)
                return r;
        site->instance = i->instance;
        site->log = "stdout";
        plan->grants = interceptor_grants(i->secrets, i->instance, &plan->plan.n_grants);
        plan->plan.grants = plan->grants;
        if (!plan->grants)
                return error_set_errno(err, ENOMEM, "cannot start");
        if (!instance || !instance->config)
                return 0; // hostd-proxy knows no rules of it either, and sends nothing
        r = policy_rules_new(instance, plan->grants, plan->plan.n_grants, &plan->rules, err);
        if (r < 0)
                return r;
        site->with_rules = true;
        site->rules = policy_rules_list(plan->rules, &site->n_rules);
        return 0;
}

// 1: it is what the plan says.
static int is_as_planned(const Generation *g, const Plan *plan, Error *err) {
        _cleanup_free_ char *config = NULL;
        Site site = plan->plan.site;
        int r;

        site.path = g->path;
        r = site_config(&site, plan->grants, plan->plan.n_grants, &config, err);
        return r < 0 ? r : generation_is_as(g, &plan->plan, config);
}

// ---- generations ----

static void take_off(Interceptor *i, const Generation *g) {
        for (Generation **p = &i->generations; *p; p = &(*p)->next)
                if (*p == g) {
                        *p = g->next;
                        break;
                }
        if (i->serving == g)
                i->serving = NULL;
}

static void end(Interceptor *i, Generation *g) {
        take_off(i, g);
        (void) generation_end(g);
}

static void end_all(Interceptor *i) {
        while (i->generations)
                end(i, i->generations);
}

void interceptor_ended(Generation *g, const char *why) {
        Interceptor *i = g->interceptor;
        bool matters = g == i->generations || g == i->serving;
        _cleanup_free_ char *text = NULL;

        if (!matters) {
                end(i, g);
                return;
        }
        // One that served for a while has not failed in a row.
        if (g == i->serving && clock_monotonic() - i->served > RESTART_MAX)
                i->failures = 0;
        end(i, g);
        if (asprintf(&text, "%s; see %s/" HAPROXY_LOG_FILE, why ?: "it ended", i->path) < 0)
                text = NULL;
        trouble(i, text ?: "it ended");
}

// In one step: whoever connects meets the one or the other.
static int lead_to(const Interceptor *i, const Generation *g) {
        char target[64];

        (void) snprintf(target, sizeof(target), "%u/sock/" HAPROXY_FRONT, g->number);
        (void) unlinkat(i->directory, FRONT_NEW, 0); // of a hostd that was cut short
        return symlinkat(target, i->directory, FRONT_NEW) < 0 || renameat(i->directory, FRONT_NEW, i->directory, HAPROXY_FRONT) < 0 ? -errno : 0;
}

static void close_older(Interceptor *i) {
        unsigned n = 0;

        for (Generation *g = i->generations, *next; g; g = next) {
                next = g->next;
                if (++n > GENERATIONS_MAX)
                        end(i, g);
                else if (g != i->serving)
                        generation_close(g);
        }
}

// Also after a rotation, where it serves already.
void interceptor_filled(Generation *g) {
        Interceptor *i = g->interceptor;
        int r;

        if (g != i->serving) {
                r = lead_to(i, g);
                if (r < 0) {
                        interceptor_ended(g, strerror(-r));
                        return;
                }
                i->serving = g;
                i->served = clock_monotonic();
                close_older(i);
        }
        if (g == i->generations && !i->outdated)
                manager_unwarn(manager_of(i), "interceptor", i->instance);
        again_in(i, LOOK_EVERY);
}

// One that has not served yet was made from what is not so any more: it never will.
static void end_unserved(Interceptor *i) {
        while (i->generations && i->generations != i->serving && !i->generations->closing)
                end(i, i->generations);
}

// Hosts of which the plan says nothing, or something else.
static int retire_changed(Interceptor *i, const Plan *plan, Error *err) {
        SiteHost *hosts = NULL;
        size_t n = 0;
        int r = site_hosts(&plan->plan.site, plan->grants, plan->plan.n_grants, &hosts, &n, err);

        end_unserved(i);
        for (Generation *g = r < 0 ? NULL : i->generations; g; g = g->next)
                for (size_t k = 0; k < g->n_hosts; k++) {
                        bool same = false;
                        for (size_t h = 0; h < n; h++)
                                same = same || (strcmp(hosts[h].host, g->hosts[k].host) == 0 && strcmp(hosts[h].digest, g->hosts[k].digest) == 0);
                        if (!same)
                                (void) generation_retire(g, g->hosts[k].host); // or it is dead
                }
        site_hosts_free(hosts, n);
        return r;
}

// Numbers are not used again, as long as the clock goes forward: a unit of before may not have ended for systemd yet.
static unsigned next_number(Interceptor *i) {
        unsigned now = (unsigned) (clock_realtime() / USEC_PER_SEC % 1000000000);

        i->last = now > i->last ? now : i->last + 1;
        return i->last;
}

static int start(Interceptor *i, const Plan *plan, Error *err) {
        Generation *g;
        int r;

        end_unserved(i);
        r = generation_new(i, next_number(i), &plan->plan, &g, err);
        if (r < 0)
                return r;
        g->next = i->generations;
        i->generations = g;
        i->outdated = false;
        return 0;
}

// Where nobody can say what the rules are now, those from before are not held to be them.
static void renew(Interceptor *i) {
        _cleanup_(plan_done) Plan plan = {.grants = NULL};
        _cleanup_error_ Error err = ERROR_NULL;
        int r = plan_fill(i, &plan, &err);

        if (r < 0)
                end_all(i);
        if (r >= 0)
                r = i->generations ? is_as_planned(i->generations, &plan, &err) : 0;
        i->outdated = r <= 0;
        if (r == 0) {
                r = retire_changed(i, &plan, &err);
                if (r >= 0)
                        r = start(i, &plan, &err);
        } else if (r > 0) {
                if (i->serving && clock_monotonic() - i->served > RESTART_MAX)
                        i->failures = 0;
                if (!i->again)
                        again_in(i, LOOK_EVERY);
        }
        if (r < 0)
                trouble(i, error_message(&err, r));
}

void interceptors_refill(Secrets *s, const char *secret) {
        for (Interceptor *i = s->interceptors; i; i = i->next)
                for (size_t k = 0; k < s->n; k++)
                        if (strcmp(s->bindings[k]->secret, secret) == 0 && strcmp(s->bindings[k]->instance, i->instance) == 0) {
                                for (Generation *g = i->generations; g; g = g->next)
                                        generation_refill(g);
                                break;
                        }
}

static bool has_grants(const Secrets *s, const char *instance) {
        for (size_t k = 0; k < s->n; k++)
                if (strcmp(s->bindings[k]->instance, instance) == 0)
                        return true;
        return false;
}

// Without grants nothing is left to serve.
void interceptors_retire(Secrets *s, const Binding *b) {
        for (Interceptor *i = s->interceptors; i; i = i->next)
                if (strcmp(i->instance, b->instance) != 0)
                        continue;
                else if (!has_grants(s, i->instance))
                        end_all(i);
                else {
                        end_unserved(i);
                        for (Generation *g = i->generations; g; g = g->next)
                                (void) generation_retire(g, b->host); // or it is dead
                }
}

// ---- which there are ----

static int open_site(Interceptor *i, Error *err) {
        Manager *m = manager_of(i);
        _cleanup_close_ int run = open(m->paths.run, O_RDONLY | O_DIRECTORY | O_CLOEXEC), parent = -EBADF;
        char name[16];

        if (asprintf(&i->path, "%s/" DIRECTORY "/%u", m->paths.run, i->slot) < 0) {
                i->path = NULL;
                return error_set_errno(err, ENOMEM, "cannot start");
        }
        (void) snprintf(name, sizeof(name), "%u", i->slot);
        if (run < 0 || (mkdirat(run, DIRECTORY, 0711) < 0 && errno != EEXIST))
                return error_set_errno(err, errno, "cannot make %s", i->path);
        parent = openat(run, DIRECTORY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (parent < 0 || fchmod(parent, 0711) < 0 || (mkdirat(parent, name, 0711) < 0 && errno != EEXIST))
                return error_set_errno(err, errno, "cannot make %s", i->path);
        i->directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return i->directory >= 0 && fchmod(i->directory, 0711) == 0 ? 0 : error_set_errno(err, errno, "cannot open %s", i->path);
}

// What is left is made over by the next. HAProxy owns some of it, and one that was conquered may have made it hard to remove.
static void tell_left(const char *path, int r) {
        if (r < 0)
                log_warning("%s cannot be removed: %s", path, strerror(-r));
}

// The object alone.
static Interceptor *interceptor_forget(Interceptor *i) {
        if (!i)
                return NULL;
        while (i->generations) {
                Generation *g = i->generations;
                take_off(i, g);
                (void) generation_forget(g);
        }
        i->again = sd_event_source_disable_unref(i->again);
        (void) haproxy_log_free(i->log);
        interceptor_redacted_end(i);
        (void) close_fd(i->directory);
        free(i->path);
        free(i);
        return NULL;
}

static Interceptor *interceptor_end(Interceptor *i) {
        end_all(i);
        if (i->path)
                tell_left(i->path, io_remove_tree(AT_FDCWD, i->path));
        return interceptor_forget(i);
}

static void insert_adopted(Interceptor *i, Generation *g) {
        Generation **p = &i->generations;

        while (*p && (*p)->number > g->number)
                p = &(*p)->next;
        g->next = *p;
        *p = g;
        i->last = MAX2(i->last, g->number);
}

// The number of the one at the front; 0: none.
static unsigned front_number(const Interceptor *i) {
        char target[64];
        ssize_t n = readlinkat(i->directory, HAPROXY_FRONT, target, sizeof(target) - 1);

        if (n < 0)
                return 0;
        target[n] = 0;
        return (unsigned) strtoul(target, NULL, 10);
}

// Those that never served do not begin now.
static void settle_adopted(Interceptor *i) {
        unsigned front = front_number(i);

        for (Generation *g = i->generations, *next; g; g = next) {
                next = g->next;
                if (g->number == front) {
                        i->serving = g;
                        i->served = clock_monotonic();
                } else if (g->number > front)
                        end(i, g);
                else
                        generation_close(g);
        }
}

// Takes over what an earlier hostd started for the same instance; anything else is ended.
static void adopt(Interceptor *i) {
        int fd = openat(i->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
        Generation *g;

        for (struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list)) {
                unsigned number = (unsigned) strtoul(e->d_name, NULL, 10);
                if (number > 0 && strspn(e->d_name, "0123456789") == strlen(e->d_name) && generation_adopt(i, number, &g) >= 0)
                        insert_adopted(i, g);
        }
        if (list)
                (void) closedir(list);
        else
                (void) close_fd(fd);
        settle_adopted(i);
}

static int interceptor_new(Secrets *s, uint16_t slot, const char *instance, Interceptor **ret, Error *err) {
        Interceptor *i = calloc(1, sizeof(Interceptor));
        uint32_t base;
        int r;

        if (!i)
                return error_set_errno(err, ENOMEM, "cannot start");
        i->secrets = s;
        i->directory = -EBADF;
        i->slot = slot;
        (void) snprintf(i->instance, sizeof(i->instance), "%s", instance);
        r = idpool_load_range("/etc", BORDER_HAPROXY, SLOT_MAX + 1, &base, err);
        if (r >= 0) {
                i->uid = base + slot;
                r = open_site(i, err);
        }
        if (r >= 0)
                r = haproxy_log_new(s->manager->event, i->directory, i->uid, &i->log, err);
        if (r < 0) {
                (void) interceptor_forget(i);
                return r;
        }
        haproxy_log_listen(i->log, interceptor_alert, interceptor_redacted, i);
        *ret = i;
        return 0;
}

static void add(Secrets *s, const Instance *instance) {
        _cleanup_error_ Error err = ERROR_NULL;
        Interceptor *i;
        int r = interceptor_new(s, instance->record.slot, instance->record.name, &i, &err);

        if (r < 0) {
                manager_warn(s->manager, "interceptor", instance->record.name, "HAProxy for its secrets: %s", error_message(&err, r));
                return; // the next sync
        }
        i->next = s->interceptors;
        s->interceptors = i;
        adopt(i);
        renew(i);
}

static bool is_wanted(const Secrets *s, const char *name) {
        const Instance *instance = instance_list_find(&s->manager->instances, name);

        return instance && instance_is_live(instance) && has_grants(s, name);
}

static void remove_unwanted(Secrets *s) {
        Interceptor **p = &s->interceptors;

        while (*p) {
                Interceptor *i = *p;
                if (is_wanted(s, i->instance)) {
                        p = &i->next;
                        continue;
                }
                *p = i->next;
                manager_unwarn(s->manager, "interceptor", i->instance);
                (void) interceptor_end(i);
        }
}

static bool is_ours(const Secrets *s, uint16_t slot) {
        for (const Interceptor *i = s->interceptors; i; i = i->next)
                if (i->slot == slot)
                        return true;
        return false;
}

// What an earlier hostd left of instances that do not run any more, or have no grants: HAProxies of nobody.
static void sweep(Secrets *s) {
        _cleanup_free_ char *path = NULL;
        DIR *list;

        if (asprintf(&path, "%s/" DIRECTORY, s->manager->paths.run) < 0)
                path = NULL;
        list = path ? opendir(path) : NULL;
        for (struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list)) {
                unsigned long slot = strtoul(e->d_name, NULL, 10);
                Interceptor *left;
                if (slot < 1 || slot > SLOT_MAX || is_ours(s, (uint16_t) slot) || interceptor_new(s, (uint16_t) slot, "", &left, NULL) < 0)
                        continue;
                adopt(left); // none is
                (void) interceptor_end(left);
        }
        if (list)
                (void) closedir(list);
}

void interceptors_sync(Manager *m) {
        Secrets *s = m->secrets;

        if (!s || m->stopping)
                return;
        remove_unwanted(s);
        for (Interceptor *i = s->interceptors; i; i = i->next)
                renew(i);
        for (const Instance *instance = m->instances.first; instance; instance = instance->next)
                if (is_wanted(s, instance->record.name) && !interceptor_find(s, instance->record.name))
                        add(s, instance);
        if (!s->swept)
                sweep(s);
        s->swept = true;
}

void interceptors_free(Secrets *s) {
        while (s->interceptors) {
                Interceptor *i = s->interceptors;
                s->interceptors = i->next;
                (void) interceptor_forget(i);
        }
}
