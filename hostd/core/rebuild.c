// SPDX-License-Identifier: GPL-2.0-or-later
// Rebuild: see rebuild.h. Sources: instances/NAME/slot (root's, written at creation), the spec of a running instance for its start
// generation, and the names in the trash for slots whose files are not gone yet.
#include "core/rebuild.h"

#include <dirent.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/valid.h"

// A running instance's control group carries its generation: with another number it would not be found again.
static void find_generation(Manager *m, StoreInstance *record) {
        _cleanup_(instance_spec_done) InstanceSpec spec = {0};
        _cleanup_free_ char *path = NULL;
        unsigned slot, generation;

        if (asprintf(&path, "%s/instances/i%04x/spec.json", m->paths.run, record->slot) < 0) {
                path = NULL;
                return;
        }
        if (instance_spec_load(path, &spec, NULL) < 0)
                return;
        // Under systemd the unit names the group.
        if (sscanf(spec.cgroup_prefix, "hostd/i%4x-g%u", &slot, &generation) == 2)
                record->generation = generation;
        record->wanted = true;
        record->started = clock_realtime();
}

static int restore_one(Manager *m, int dir, const char *name, Error *err) {
        StoreInstance record = {.created = clock_realtime()};
        _cleanup_free_ char *path = NULL, *text = NULL;
        unsigned slot = 0;
        char digest[65] = "";

        if (!valid_is(VALID_NAME, name) || asprintf(&path, "%s/slot", name) < 0) {
                path = NULL;
                return 0;
        }
        if (io_read_file(dir, path, 256, &text, NULL) < 0 || sscanf(text, "%4u %64s", &slot, digest) < 1 || slot < 1 || slot > SLOT_MAX) {
                manager_warn(m, "rebuild", name, "its storage has no readable slot: it is not taken over");
                return 0;
        }
        memcpy(record.name, name, strlen(name) + 1); // valid names are at most 32 bytes
        record.slot = (uint16_t) slot;
        if (valid_is(VALID_DIGEST, digest))
                snprintf(record.template_digest, sizeof(record.template_digest), "%s", digest);
        find_generation(m, &record);
        int r = store_instance_restore(m->store, &record, err);
        if (r >= 0)
                log_info("%s: taken over with slot %u", name, slot);
        return r;
}

static int restore_instances(Manager *m, Error *err) {
        int fd = openat(m->state_fd, "instances", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        struct dirent *e;
        int r = 0;

        if (!d) {
                (void) close_fd(fd);
                return error_set_errno(err, errno, "cannot read the instances' storage");
        }
        while ((e = readdir(d)) && r >= 0)
                if (e->d_name[0] != '.')
                        r = restore_one(m, dirfd(d), e->d_name, err);
        (void) closedir(d);
        return r;
}

int rebuild_store(Manager *m, Error *err) {
        _cleanup_strv_ char **trash = NULL;
        unsigned slot;
        int r = restore_instances(m, err);

        if (r < 0)
                return error_wrap(err, "rebuilding the store");
        if (disk_trash_list(&m->disk, &trash) >= 0)
                for (char **name = trash; name && *name; name++)
                        if (sscanf(*name, "i%4x-", &slot) == 1 && slot >= 1 && slot <= SLOT_MAX)
                                (void) store_slot_retire(m->store, (uint16_t) slot, NULL); // taken by an instance: that one has it
        return store_rebuild_done(m->store, err);
}
