// SPDX-License-Identifier: GPL-2.0-or-later
// Instance, storage: directories with their quota, made whole or not at all.
//
//   instances/NAME/{upper,work,data,snapshots}, instances/NAME/console.log, instances/NAME/slot (number and template, so that a lost
//   store can be rebuilt)
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/valid.h"
#include "core/background.h"
#include "core/job.h"
#include "core/manager.h"

static const struct {
        const char *name;
        mode_t mode;
} instance_dirs[] = {{"upper", 0755}, {"work", 0700}, {"data", 0755}, {"snapshots", 0700}};

#define SLOT_REBUILDING "rebuilding" // third word: what is set aside is the root, until this word is gone

// The slot file of a directory of an instance: its number, its template, and whether a rebuild is under way.
static int slot_write(uint16_t slot, const char *digest, bool rebuilding, int dir) {
        char text[128];

        snprintf(text, sizeof(text), "%u %s%s\n", slot, digest, rebuilding ? " " SLOT_REBUILDING : "");
        return io_write_atomic(dir, "slot", text, strlen(text), 0600);
}

static bool slot_read(int dir, char ret_digest[65], bool *ret_rebuilding) {
        _cleanup_free_ char *text = NULL;
        char word[16] = "";
        unsigned slot;

        if (io_read_file(dir, "slot", 256, &text, NULL) < 0 || sscanf(text, "%4u %64s %15s", &slot, ret_digest, word) < 2)
                return false;
        *ret_rebuilding = strcmp(word, SLOT_REBUILDING) == 0;
        return valid_is(VALID_DIGEST, ret_digest);
}

static int make_dirs(uint16_t slot, const char *digest, int dir, Error *err) {
        int r;

        for (size_t i = 0; i < ELEMENTS(instance_dirs); i++)
                // chmod: the mode of `upper` becomes the guest's "/", whatever the umask is.
                if ((mkdirat(dir, instance_dirs[i].name, 0700) < 0 && errno != EEXIST) ||
                    fchmodat(dir, instance_dirs[i].name, instance_dirs[i].mode, 0) < 0)
                        return error_set_errno(err, errno, "cannot make %s", instance_dirs[i].name);
        r = slot_write(slot, digest, false, dir);
        return r < 0 ? error_set_errno(err, r, "cannot write the slot") : 0;
}

static uint64_t wanted_bytes(const Instance *instance) {
        return instance->manager->disk.bytes ? instance->config->limits.value[LIMIT_DISK] : UINT64_MAX;
}

static uint64_t wanted_inodes(const Instance *instance) {
        return instance->manager->disk.inodes ? instance->config->limits.value[LIMIT_INODES] : UINT64_MAX;
}

int instance_disk_create(Instance *instance, Error *err) {
        _cleanup_free_ char *path = instance_disk_path(instance);
        Manager *m = instance->manager;
        _cleanup_close_ int dir = -EBADF;
        Error ignored = ERROR_NULL;
        int r;

        if (!path)
                return error_set_errno(err, ENOMEM, "cannot make the instance's directory");
        r = disk_create(&m->disk, path, instance->record.slot, wanted_bytes(instance), wanted_inodes(instance), err);
        if (r < 0)
                return r;
        dir = openat(m->state_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = dir < 0 ? error_set_errno(err, errno, "cannot open %s", path) : make_dirs(instance->record.slot, instance->record.template_digest, dir, err);
        if (r < 0) {
                (void) instance_disk_remove(instance, &ignored);
                error_done(&ignored);
        }
        return r;
}

#define ROOT_DIRS 2 // of instance_dirs: what a rebuild replaces
#define ASIDE ".old"
#define GONE ".gone" // set aside by a rebuild that got through, and being removed by a job

static char *dir_name(size_t i, const char *suffix, char ret[32]) {
        snprintf(ret, 32, "%s%s", instance_dirs[i].name, suffix);
        return ret;
}

static bool dir_exists(int dir, const char *name) {
        return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int put_back(int dir) {
        char aside[32];
        int r = 0;

        for (size_t i = 0; i < ROOT_DIRS && r == 0; i++) {
                if (!dir_exists(dir, dir_name(i, ASIDE, aside)))
                        continue; // not set aside yet
                r = disk_remove_tree(dir, instance_dirs[i].name); // new and empty
                if (r == 0 && renameat(dir, aside, dir, instance_dirs[i].name) < 0)
                        r = -errno;
        }
        return r;
}

static int set_aside(int dir) {
        char aside[32];

        for (size_t i = 0; i < ROOT_DIRS; i++)
                if (renameat(dir, instance_dirs[i].name, dir, dir_name(i, ASIDE, aside)) < 0 && errno != ENOENT)
                        return -errno;
        return 0;
}

static int remove_dirs(int dir, const char *suffix) {
        char name[32];
        int r = 0;

        for (size_t i = 0; i < ROOT_DIRS && r == 0; i++)
                r = disk_remove_tree(dir, dir_name(i, suffix, name));
        return r;
}

// Renamed, not emptied: until the slot file has the new template, the old root is whole and is put back, by this process or, after a
// crash, by the next start of hostd. The quota and its inherited id stay on the directory above.
int instance_disk_rebuild(const Instance *instance, const char *digest, Error *err) {
        _cleanup_free_ char *path = instance_disk_path(instance);
        const StoreInstance *record = &instance->record;
        _cleanup_close_ int dir = -EBADF;
        int r;

        if (!path)
                return error_set_errno(err, ENOMEM, "cannot rebuild");
        dir = openat(instance->manager->state_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = dir < 0 ? -errno : remove_dirs(dir, ASIDE);
        if (r == 0)
                r = slot_write(record->slot, record->template_digest, true, dir);
        if (r < 0)
                return error_set_errno(err, r, "cannot begin to rebuild %s", record->name);
        r = set_aside(dir);
        if (r < 0)
                (void) error_set_errno(err, r, "cannot set the root of %s aside", record->name);
        else
                r = make_dirs(record->slot, digest, dir, err);
        if (r < 0) {
                if (put_back(dir) == 0)
                        (void) slot_write(record->slot, record->template_digest, false, dir); // the next start of hostd does it otherwise
                return r;
        }
        (void) remove_dirs(dir, ASIDE); // what stays counts against the limit until the next start of hostd
        return 0;
}

static int remove_gone_work(void *input, json_t **ret, Error *err) {
        int r = remove_dirs(*(int *) input, GONE);

        return r < 0 ? error_set_errno(err, r, "cannot remove what a rebuild set aside") : 0;
}

static void remove_gone_done(void *userdata, int r, json_t *result, Error *err) {
        if (r < 0)
                log_debug("%s", error_message(err, r)); // the next start of hostd tries again
}

// It may be large, so a job removes it; under another name, because a new rebuild may set its own aside meanwhile.
static void remove_aside_later(const Instance *instance, int dir) {
        JobSpec spec = {.work = remove_gone_work, .input = &dir, .done = remove_gone_done};
        _cleanup_error_ Error err = ERROR_NULL;
        char aside[32], gone[32];
        bool any = false;

        for (size_t i = 0; i < ROOT_DIRS; i++) {
                (void) renameat(dir, dir_name(i, ASIDE, aside), dir, dir_name(i, GONE, gone)); // not while one of before is there
                any = any || dir_exists(dir, gone);
        }
        if (any && job_start(instance->manager->event, &spec, &err) < 0)
                remove_gone_done(NULL, -EBUSY, NULL, &err);
}

void instance_disk_repair(Instance *instance) {
        _cleanup_free_ char *path = instance_disk_path(instance);
        _cleanup_close_ int dir = path ? openat(instance->manager->state_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -EBADF;
        StoreInstance *record = &instance->record;
        _cleanup_error_ Error err = ERROR_NULL;
        char digest[65];
        bool rebuilding;

        if (dir < 0)
                return;
        io_sweep_temporaries(dir, ".");
        if (!slot_read(dir, digest, &rebuilding))
                return;
        if (rebuilding) {
                log_info("%s: a rebuild was interrupted, the old root is put back", record->name);
                if (put_back(dir) < 0 || slot_write(record->slot, digest, false, dir) < 0)
                        manager_warn(instance->manager, "rebuild", record->name, "the root that an interrupted rebuild set aside cannot be put back");
        } else
                remove_aside_later(instance, dir);
        if (strcmp(record->template_digest, digest) == 0)
                return;
        // The rebuild had got through, its record had not.
        snprintf(record->template_digest, sizeof(record->template_digest), "%s", digest);
        if (store_instance_update(instance->manager->store, record, &err) < 0)
                manager_warn(instance->manager, "store", record->name, "%s", error_message(&err, -EIO));
}

typedef struct Purge {
        Manager *manager;
        DiskHost disk;
        uint16_t slot;
        char trash[48];
} Purge;

static int purge_work(void *input, json_t **ret, Error *err) {
        Purge *purge = input;

        return disk_purge(&purge->disk, purge->trash, err);
}

// Only now may the slot, and with it the id range, be given to somebody else.
static void purge_done(void *userdata, int r, json_t *result, Error *err) {
        Purge *purge = userdata;
        Manager *m = purge->manager;
        _cleanup_error_ Error store_err = ERROR_NULL;

        m->purging--;
        if (m->stopping) // the next hostd goes on with it
                ;
        else if (r < 0)
                manager_warn(m, "purge", "host", "%s: %s", purge->trash, error_message(err, r));
        else if (store_slot_release(m->store, purge->slot, &store_err) < 0)
                manager_warn(m, "store", "host", "%s", error_message(&store_err, -EIO));
        else {
                manager_unwarn(m, "purge", "host");
                instance_disk_purge_leftovers(m); // found while this one was under way
        }
        free(purge);
}

bool instance_disk_is_in_trash(Manager *m, uint16_t slot) {
        _cleanup_strv_ char **names = NULL;
        unsigned other;

        if (disk_trash_list(&m->disk, &names) < 0)
                return true; // not known: the slot is not given out
        for (char **name = names; name && *name; name++)
                if (sscanf(*name, "i%4x-", &other) == 1 && other == slot)
                        return true;
        return false;
}

static int purge_begin(sd_event_source *source, uint64_t usec, void *userdata) {
        Purge *purge = userdata;
        Manager *m = purge->manager;
        _cleanup_error_ Error err = ERROR_NULL;
        JobSpec spec = {purge_work, purge, purge_done, purge};

        (void) sd_event_source_set_destroy_callback(source, NULL); // the job's end frees it from here on
        (void) sd_event_source_set_floating(source, false);        // and this the source
        if (job_start(m->event, &spec, &err) < 0) {
                log_debug("purge of %s is put off: %s", purge->trash, error_message(&err, -EIO)); // the tick tries again
                m->purging--;
                free(purge);
        }
        return 0;
}

// The answer to the deletion and its record go first: all of them wait for the same disk.
#define PURGE_AFTER (50 * USEC_PER_MSEC)

static void purge_start(Manager *m, uint16_t slot, const char *trash) {
        Purge *purge = calloc(1, sizeof(Purge));
        sd_event_source *source = NULL;

        if (!purge)
                return;
        *purge = (Purge) {.manager = m, .disk = m->disk, .slot = slot};
        snprintf(purge->trash, sizeof(purge->trash), "%s", trash);
        if (sd_event_add_time_relative(m->event, &source, CLOCK_MONOTONIC, PURGE_AFTER, 0, purge_begin, purge) < 0) {
                free(purge); // the tick tries again
                return;
        }
        (void) sd_event_source_set_destroy_callback(source, free);
        (void) sd_event_source_set_floating(source, true); // belongs to the loop
        sd_event_source_unref(source);
        m->purging++;
}

int instance_disk_remove(Instance *instance, Error *err) {
        _cleanup_free_ char *path = instance_disk_path(instance);
        char trash[48];
        int r;

        snprintf(trash, sizeof(trash), "i%04x-%llx", instance->record.slot, (unsigned long long) clock_realtime());
        r = path ? disk_remove(&instance->manager->disk, path, trash, err) : error_set_errno(err, ENOMEM, "cannot remove the storage");
        if (r < 0)
                return r;
        background_remove(instance);
        purge_start(instance->manager, instance->record.slot, trash);
        return 0;
}

void instance_disk_purge_leftovers(Manager *m) {
        _cleanup_strv_ char **names = NULL;
        unsigned slot;

        // One that is under way would be started twice.
        if (m->purging > 0 || disk_trash_list(&m->disk, &names) < 0)
                return;
        for (char **name = names; name && *name; name++)
                if (sscanf(*name, "i%4x-", &slot) == 1 && slot <= SLOT_MAX)
                        purge_start(m, (uint16_t) slot, *name);
}

// What an instance uses of what it may, in percent: the larger of bytes and inodes.
static unsigned percent_used(const DiskUsage *usage) {
        uint64_t pairs[][2] = {{usage->bytes, usage->bytes_max}, {usage->inodes, usage->inodes_max}};
        unsigned most = 0;

        for (size_t i = 0; i < ELEMENTS(pairs); i++)
                if (pairs[i][0] != UINT64_MAX && pairs[i][1] != UINT64_MAX && pairs[i][1] > 0)
                        most = MAX2(most, (unsigned) (pairs[i][0] * 100.0 / pairs[i][1]));
        return most;
}

#define FULL_PERCENT 98
#define ROOM_PERCENT 90 // apart, so that one file does not make a warning a minute

void instance_disk_watch(Manager *m) {
        for (Instance *i = m->instances.first; i; i = i->next) {
                _cleanup_free_ char *path = instance_is_active(i) ? instance_disk_path(i) : NULL;
                DiskUsage usage;
                unsigned percent;
                if (!path || disk_usage(&m->disk, path, i->record.slot, &usage, NULL) < 0)
                        continue;
                percent = percent_used(&usage);
                if (percent >= FULL_PERCENT && !i->disk_full) {
                        manager_warn(m, "disk-full", i->record.name, "%u %% of its disk or inode limit are used", percent);
                        i->disk_full = true;
                } else if (percent < ROOM_PERCENT && i->disk_full) {
                        manager_unwarn(m, "disk-full", i->record.name);
                        i->disk_full = false;
                }
        }
}
