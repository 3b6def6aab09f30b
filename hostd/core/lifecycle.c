// SPDX-License-Identifier: GPL-2.0-or-later
// Lifecycle: see lifecycle.h.
#include "core/lifecycle.h"

#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "core/sandbox.h"
#include "core/secrets.h"

static Promise promise_of(const InstanceConfig *config) {
        return (Promise) {config->name, config->limits.value[LIMIT_MEMORY], config->limits.value[LIMIT_DISK]};
}

// What was promised stays promised: a host that shrank refuses what is new, never the rest of a change, such as a policy that
// forbids more.
static bool asks_for_more(const Manager *m, const InstanceConfig *config) {
        const InstanceConfig *before = desired_find_instance(m->desired, config->name);
        Promise new = promise_of(config), old = before ? promise_of(before) : (Promise) {0};

        return !before || new.memory_bytes > old.memory_bytes || new.disk_bytes > old.disk_bytes;
}

int lifecycle_admit(Manager *m, const InstanceConfig *config, Error *err) {
        Promise asked = promise_of(config);
        _cleanup_free_ Promise *promised = NULL;
        Capacity capacity = manager_capacity(m);
        size_t n;


        promised = manager_promises(m, config->name, &n);
        if (!promised)
                return error_set_errno(err, ENOMEM, "cannot check the admission");
        return admission_check(&capacity, promised, n, &asked, err);
}

int lifecycle_admit_change(Manager *m, const InstanceConfig *config, Error *err) {
        return asks_for_more(m, config) ? lifecycle_admit(m, config, err) : 0;
}

int lifecycle_check_set(Manager *m, const Desired *desired, Error *err) {
        Capacity capacity = manager_capacity(m);
        _cleanup_free_ Promise *promised = calloc(desired->n_instances + 1, sizeof(Promise));
        size_t n = 0;

        if (!promised)
                return error_set_errno(err, ENOMEM, "cannot check the admission");
        for (size_t i = 0; i < desired->n_instances; i++)
                if (!asks_for_more(m, desired->instances[i]))
                        promised[n++] = promise_of(desired->instances[i]);
        for (size_t i = 0; i < desired->n_instances; i++) {
                if (!asks_for_more(m, desired->instances[i]))
                        continue;
                Promise asked = promise_of(desired->instances[i]);
                int r = admission_check(&capacity, promised, n, &asked, err);
                if (r < 0)
                        return r;
                promised[n++] = asked;
        }
        return 0;
}

static char *conf_path(const char *name) {
        char *path;

        return asprintf(&path, "instances.d/%s.conf", name) < 0 ? NULL : path;
}

static void undo_create(Instance *instance) {
        Manager *m = instance->manager;
        Error ignored = ERROR_NULL;
        uint16_t slot = instance->record.slot;
        bool used = false;

        // With a directory, here or in the trash, the purge releases the slot; without one nothing was ever written with its ids.
        _cleanup_free_ char *path = instance_disk_path(instance);
        struct stat st;
        if (path && fstatat(m->state_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
                used = true; // also when it cannot be removed: a slot whose files exist is not given out again
                if (instance_disk_remove(instance, &ignored) < 0)
                        manager_warn(m, "storage", instance->record.name, "what was made of it cannot be removed: %s", error_message(&ignored, -EIO));
        }
        error_done(&ignored);
        (void) store_instance_retire(m->store, instance->record.name, &ignored);
        error_done(&ignored);
        if (!used && !instance_disk_is_in_trash(m, slot))
                (void) store_slot_release(m->store, slot, &ignored);
        error_done(&ignored);
        (void) instance_free(instance);
}

void lifecycle_undo_create(Instance *instance) {
        _cleanup_free_ char *path = conf_path(instance->record.name);
        _cleanup_error_ Error err = ERROR_NULL;

        if (path && confdir_remove(instance->manager->confdir, path, &err) < 0)
                manager_warn(instance->manager, "create", instance->record.name, "%s", error_message(&err, -EIO));
        instance->config = NULL;
        undo_create(instance);
}

static int create_record(Manager *m, const CreateOptions *options, Instance **ret, Error *err) {
        StoreInstance record = {.created = clock_realtime()};
        Template *template = template_find(m->templates, options->template);
        Instance *instance;
        int r;

        snprintf(record.name, sizeof(record.name), "%s", options->name);
        snprintf(record.template_digest, sizeof(record.template_digest), "%s", template->manifest->digest);
        r = store_instance_add(m->store, &record, err);
        if (r < 0)
                return r;
        instance = instance_new(m, &record, options->config);
        if (!instance) {
                (void) store_instance_retire(m->store, record.name, NULL);
                (void) store_slot_release(m->store, record.slot, NULL);
                return error_set_errno(err, ENOMEM, "cannot create %s", options->name);
        }
        *ret = instance;
        return 0;
}

int lifecycle_create(Manager *m, const CreateOptions *options, Instance **ret, Error *err) {
        _cleanup_free_ char *path = conf_path(options->name);
        Instance *instance = NULL;
        int r;

        if (!path)
                return error_set_errno(err, ENOMEM, "cannot create %s", options->name);
        if (instance_list_find(&m->instances, options->name))
                return error_set(err, ERR_EXISTS, "instance \"%s\" exists already", options->name);
        if (!template_find(m->templates, options->template))
                return error_set(err, ERR_NOT_FOUND, "there is no template \"%s\": build one with \"hostctl template build\" or see \"hostctl template list\"",
                                 options->template);
        r = lifecycle_admit(m, options->config, err);
        if (r < 0)
                return r;
        r = create_record(m, options, &instance, err);
        if (r < 0)
                return r;
        sandbox_forget_instance(m, options->name); // of another of this name, which something else than a deletion ended
        r = instance_network_forget(instance, err); // the same
        if (r >= 0)
                r = instance_disk_create(instance, err);
        // The file is the point of no return: with it the instance exists, without it the start of hostd undoes the rest.
        if (r >= 0 && options->text)
                r = confdir_write(m->confdir, path, options->text, err);
        if (r < 0) {
                undo_create(instance);
                return error_wrap(err, "cannot create %s", options->name);
        }
        (void) store_instance_pardon(m->store, options->name, NULL); // else the next start of hostd does, as there is a file
        instance_event(instance, "instance-created", json_pack("{s:s}", "template", options->template));
        *ret = instance;
        return 0;
}

typedef struct Deletion {
        Instance *instance;
        InstanceDone done;
        void *userdata;
} Deletion;

// The file goes first, so that its commit overlaps with the end of the instance. From here on the instance is one without a
// configuration: if hostd dies now, the next one goes on with it, as the note in the store says. Without that note (a full disk
// must not keep anybody from deleting) it reports the instance, and "delete" finishes the rest.
static int delete_file(Instance *instance, Error *err) {
        _cleanup_free_ char *path = conf_path(instance->record.name);
        Store *store = instance->manager->store;
        int r;

        (void) store_instance_condemn(store, instance->record.name, NULL);
        r = path ? confdir_remove(instance->manager->confdir, path, err) : error_set_errno(err, ENOMEM, "cannot delete %s", instance->record.name);
        if (r < 0 && r != -ENOENT)
                (void) store_instance_pardon(store, instance->record.name, NULL);
        if (r != -ENOENT)
                return r;
        if (err)
                error_done(err);
        return 0;
}

static int delete_now(Instance *instance, Error *err) {
        Manager *m = instance->manager;
        int r = instance_disk_remove(instance, err);

        if (r < 0)
                return r;
        // Before the name is free.
        sandbox_forget_instance(m, instance->record.name);
        r = secrets_forget_instance(m, instance->record.name, err);
        if (r >= 0)
                r = instance_network_forget(instance, err);
        if (r >= 0)
                r = store_instance_retire(m->store, instance->record.name, err);
        if (r < 0)
                return r;
        instance_event(instance, "instance-deleted", NULL);
        manager_unwarn_all(m, instance->record.name);
        return 0;
}

static void delete_stopped(void *userdata, int r, Error *stop_err) {
        Deletion *deletion = userdata;
        Instance *instance = deletion->instance;
        Manager *m = instance->manager;
        _cleanup_error_ Error err = ERROR_NULL;

        if (r < 0) { // hostd ends: the instance is not ours to free
                instance->deleting = false;
                deletion->done(deletion->userdata, r, stop_err);
                free(deletion);
                return;
        }
        r = delete_now(instance, &err);
        if (r >= 0) {
                // The list forgets it; the configuration set still owns `config` until the next load.
                instance->config = NULL;
                (void) instance_free(instance);
                r = manager_reload(m, false, NULL, &err);
                if (r < 0) { // another file is broken: not this caller's fault
                        error_done(&err);
                        r = 0;
                }
        } else
                instance->deleting = false;
        deletion->done(deletion->userdata, r, &err);
        free(deletion);
}

int lifecycle_delete(Instance *instance, InstanceDone done, void *userdata, Error *err) {
        Deletion *deletion;
        StopOptions options = {.force = true};
        bool active = instance_is_active(instance);
        int r;

        if (instance->deleting)
                return error_set(err, ERR_BUSY, "%s is being deleted already", instance->record.name);
        if (!(deletion = calloc(1, sizeof(Deletion))))
                return error_set_errno(err, ENOMEM, "cannot delete %s", instance->record.name);
        *deletion = (Deletion) {instance, done, userdata};
        instance->deleting = true;
        r = delete_file(instance, err);
        if (r >= 0 && instance->rebuilding) { // the job's end tells
                instance_wait(instance, GOAL_STOPPED, delete_stopped, deletion);
                return 0;
        }
        if (r >= 0 && active)
                r = instance_stop(instance, &options, delete_stopped, deletion, err);
        if (r < 0) {
                instance->deleting = false;
                free(deletion);
                return r;
        }
        if (!active)
                delete_stopped(deletion, 0, NULL);
        return 0;
}

static void deletion_finished(void *userdata, int r, Error *err) {
        Manager *m = userdata;

        if (r < 0 && !m->stopping)
                manager_warn(m, "delete", "host", "what an interrupted creation or deletion left cannot be removed: %s", error_message(err, r));
        else
                manager_unwarn(m, "delete", "host");
}

void lifecycle_finish_deletions(Manager *m) {
        Instance *next;

        for (Instance *i = m->instances.first; i; i = next) {
                _cleanup_error_ Error err = ERROR_NULL;
                next = i->next;
                if (!store_instance_is_condemned(m->store, i->record.name))
                        continue;
                if (i->config) { // the cut came before the file was gone
                        (void) store_instance_pardon(m->store, i->record.name, NULL);
                        continue;
                }
                log_info("%s: its creation or deletion was interrupted: removed", i->record.name);
                int r = lifecycle_delete(i, deletion_finished, m, &err);
                if (r < 0)
                        deletion_finished(m, r, &err);
        }
}

// Hundreds of new files would hold up the loop for seconds: what is left over comes with the next plan.
#define CREATE_PORTION (500 * USEC_PER_MSEC)

void lifecycle_create_missing(Manager *m) {
        usec_t end = clock_monotonic() + CREATE_PORTION;
        uint64_t revision = m->revision;
        size_t i = m->create_revision == revision ? m->create_next : 0;

        m->create_revision = revision;
        for (; i < m->desired->n_instances; i++) {
                InstanceConfig *config = m->desired->instances[i];
                if (clock_monotonic() >= end) {
                        m->create_next = i;
                        manager_replan(m);
                        return;
                }
                _cleanup_error_ Error err = ERROR_NULL;
                CreateOptions options = {config->name, config->template, NULL, config};
                Instance *instance;
                int r;
                if (instance_list_find(&m->instances, config->name))
                        continue;
                r = lifecycle_create(m, &options, &instance, &err);
                if (r < 0) {
                        manager_warn(m, "create", config->name, "%s", error_message(&err, r));
                        continue;
                }
                manager_unwarn(m, "create", config->name);
                instance->record.wanted = config->boot != BOOT_OFF;
                (void) store_instance_update(m->store, &instance->record, NULL);
        }
        m->create_next = m->desired->n_instances;
}

int lifecycle_load(Manager *m, Error *err) {
        _cleanup_free_ StoreInstance *records = NULL;
        size_t n;
        int r = store_instance_list(m->store, &records, &n, err);

        if (r < 0)
                return r;
        for (size_t i = 0; i < n; i++) {
                InstanceConfig *config = desired_find_instance(m->desired, records[i].name);
                Instance *instance = instance_new(m, &records[i], config);
                _cleanup_free_ char *path = instance ? instance_disk_path(instance) : NULL;
                struct stat st;
                if (!path)
                        return error_set_errno(err, ENOMEM, "cannot load instances");
                bool stored = fstatat(m->state_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
                if (stored) {
                        instance_disk_repair(instance);
                        manager_unwarn(m, "storage", records[i].name);
                        manager_unwarn(m, "disk-full", records[i].name); // the first look tells
                }
                if ((config && stored) || manager_is_unmanaged(m, records[i].name))
                        continue;
                if (!config && !stored) {
                        log_info("%s was not created completely or its deletion was interrupted: undone", records[i].name);
                        undo_create(instance);
                } else if (!config && store_instance_is_condemned(m->store, records[i].name)) {
                        ; // for lifecycle_finish_deletions(), when it is known what runs
                } else if (!config) {
                        manager_warn(m, "orphan", records[i].name, "instances.d/%s.conf is gone: data kept until \"hostctl delete %s\"", records[i].name,
                                     records[i].name);
                } else {
                        manager_warn(m, "storage", records[i].name, "its storage is gone: \"hostctl delete %s\" removes the rest", records[i].name);
                }
        }
        return 0;
}
