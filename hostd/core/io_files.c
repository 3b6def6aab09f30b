// SPDX-License-Identifier: GPL-2.0-or-later
// IoFiles: see io_files.h.
#include "core/io_files.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/valid.h"
#include "core/background.h"
#include "core/manager.h"
#include "io/budget.h"

#define FILES_MAX 250 // of an instance; hostd-io writes no more at once either
#define MIB UINT64_C(1048576)

// Many sandboxes share what there is: no one of them gets all.
static Budget budget_of(const char *owner) {
        return (Budget) {.owner_max = (*owner ? 16 : 64) * MIB, .total_max = 64 * MIB, .files_max = FILES_MAX};
}

int io_files_name(const char *owner, const char *id, char ret[IO_ID_MAX]) {
        if (!valid_is(VALID_ID, id) || (*owner && !valid_is(VALID_ID, owner)))
                return -EINVAL;
        memset(ret, 0, IO_ID_MAX);
        return snprintf(ret, IO_ID_MAX, "%s%s%s", owner, *owner ? "." : "", id) >= IO_ID_MAX ? -ENAMETOOLONG : 0;
}

static int open_directory(const IoPlace *place, bool make) {
        char path[64]; // a name has 32
        int fd, r;

        if (!valid_is(VALID_NAME, place->instance) || snprintf(path, sizeof(path), "output/%s", place->instance) >= (int) sizeof(path))
                return -EINVAL;
        r = make ? io_mkdir_p(place->manager->state_fd, path, 0700) : 0;
        if (r < 0)
                return r;
        fd = openat(place->manager->state_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

int io_files_open(const IoPlace *place, const char *name) {
        _cleanup_close_ int directory = open_directory(place, false);
        int fd = directory < 0 ? -1 : openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

        return directory < 0 ? directory : fd < 0 ? -errno : fd;
}

void io_files_remove(const IoPlace *place, const char *name) {
        _cleanup_close_ int directory = open_directory(place, false);

        if (directory >= 0 && unlinkat(directory, name, 0) < 0 && errno != ENOENT)
                log_warning("output %s of %s cannot be removed: %s", name, place->instance, strerror(errno));
}

int io_files_list(const IoPlace *place, const char *owner, char ***ret) {
        int fd = open_directory(place, false), r = 0, n = 0;
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        struct dirent *e;

        if (!d) {
                (void) close_fd(fd);
                return fd == -ENOENT ? 0 : fd < 0 ? fd : -ENOMEM;
        }
        while (r >= 0 && (e = readdir(d))) {
                const char *dot = strchr(e->d_name, '.');
                size_t length = dot ? (size_t) (dot - e->d_name) : 0;
                if (dot == e->d_name || length != strlen(owner) || strncmp(e->d_name, owner, length) != 0)
                        continue;
                r = strv_append(ret, dot ? dot + 1 : e->d_name);
                n++;
        }
        (void) closedir(d);
        return r < 0 ? r : n;
}

void io_files_remove_all(const IoPlace *place) {
        char path[64];
        int r;

        if (!valid_is(VALID_NAME, place->instance) || snprintf(path, sizeof(path), "output/%s", place->instance) >= (int) sizeof(path))
                return;
        r = io_remove_tree(place->manager->state_fd, path);
        if (r < 0)
                log_warning("the output of commands of %s cannot be removed: %s", place->instance, strerror(-r));
}

// ---- making room ----

typedef struct Listed {
        BudgetFile files[2 * FILES_MAX];
        char names[2 * FILES_MAX][IO_ID_MAX], owners[2 * FILES_MAX][IO_ID_MAX];
        size_t n;
} Listed;

static void list_one(Listed *listed, int directory, const char *name, const IoFilesSpec *spec) {
        BudgetFile *file = listed->files + listed->n;
        const char *dot = strrchr(name, '.');
        struct stat st;

        if (strlen(name) >= IO_ID_MAX || fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
                return;
        memcpy(listed->names[listed->n], name, strlen(name));
        memcpy(listed->owners[listed->n], name, dot ? (size_t) (dot - name) : 0);
        *file = (BudgetFile) {.owner = listed->owners[listed->n], .live = spec->is_live(name, spec->userdata)};
        file->bytes = file->live ? (uint64_t) st.st_size : (uint64_t) st.st_blocks * 512;
        file->time = (uint64_t) st.st_mtim.tv_sec * USEC_PER_SEC + (uint64_t) st.st_mtim.tv_nsec / 1000;
        listed->n++;
}

static Listed *list(int directory, const IoFilesSpec *spec) {
        Listed *listed = calloc(1, sizeof(Listed));
        int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
        struct dirent *e;

        while (listed && d && listed->n < ELEMENTS(listed->files) && (e = readdir(d)))
                if (e->d_name[0] != '.')
                        list_one(listed, directory, e->d_name, spec);
        if (d)
                (void) closedir(d);
        else
                (void) close_fd(copy);
        return listed;
}

static int make_room(const IoPlace *place, int directory, const IoFilesSpec *spec, uint64_t *size) {
        _cleanup_free_ Listed *listed = list(directory, spec);
        const Budget budget = budget_of(spec->owner);

        if (!listed)
                return -ENOMEM;
        *size = budget_room(&budget, listed->files, listed->n, spec->owner, *size);
        for (size_t i = 0; i < listed->n; i++)
                if (listed->files[i].evict) {
                        (void) unlinkat(directory, listed->names[i], 0);
                        background_evicted(place->manager, listed->names[i]);
                }
        return *size > 0 ? 0 : -EDQUOT;
}

int io_files_make(const IoPlace *place, const IoFilesSpec *spec, uint64_t *size, Error *err) {
        _cleanup_close_ int directory = open_directory(place, true);
        int fd, r = directory < 0 ? directory : make_room(place, directory, spec, size);

        if (r == -EDQUOT)
                return error_set(err, ERR_QUOTA, "there is no room for the output of one more command: those that run have it all (64 MiB for an instance, 16 MiB for a sandbox)");
        if (r < 0)
                return error_set_errno(err, r, "cannot make a file for the output");
        fd = openat(directory, spec->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return error_set_errno(err, errno, "cannot make a file for the output");
        // What it may become counts from now on.
        if (ftruncate(fd, (off_t) *size) < 0) {
                r = error_set_errno(err, errno, "cannot make a file for the output");
                (void) close_fd(fd);
                (void) unlinkat(directory, spec->name, 0);
                return r;
        }
        return fd;
}
