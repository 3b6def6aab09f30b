// SPDX-License-Identifier: GPL-2.0-or-later
// Desired: loads the whole set from a directory, or refuses it whole.
//
// Order: policies, hostd.conf (which names policies), instances (which inherit from hostd.conf and name policies). Everything is
// opened without following links, so that a link planted in the directory is an error and not a way to read another file.
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "model/schema.h"

#define FOLDER_FILES_MAX 4096 // four times the slots there are; more is a mistake, and would take long to read

Desired *desired_free(Desired *desired) {
        if (!desired)
                return NULL;
        for (size_t i = 0; i < desired->n_instances; i++)
                instance_config_free(desired->instances[i]);
        for (size_t i = 0; i < desired->n_policies; i++)
                policy_free(desired->policies[i]);
        free(desired->instances);
        free(desired->policies);
        free(desired->stamps);
        strv_free(desired->recipes);
        host_config_done(&desired->host);
        free(desired);
        return NULL;
}

InstanceConfig *desired_find_instance(const Desired *desired, const char *name) {
        for (size_t i = 0; i < desired->n_instances; i++)
                if (strcmp(desired->instances[i]->name, name) == 0)
                        return desired->instances[i];
        return NULL;
}

Policy *desired_find_policy(const Desired *desired, const char *name) {
        for (size_t i = 0; i < desired->n_policies; i++)
                if (strcmp(desired->policies[i]->name, name) == 0)
                        return desired->policies[i];
        return NULL;
}

// `file` is the name for people. *ret is NULL if there is no such file.
static int read_text(int dir, const char *name, const char *file, char **ret, Error *err) {
        _cleanup_free_ char *text = NULL;
        struct stat st;
        size_t size;
        int r;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : error_set_errno(err, errno, "cannot look at %s", file);
        if (!S_ISREG(st.st_mode))
                return error_set(err, ERR_INVALID, "%s is not a regular file", file);
        r = io_read_file(dir, name, CONFIG_TEXT_MAX, &text, &size);
        if (r == -EFBIG)
                return error_set(err, ERR_INVALID, "%s is larger than 1 MiB", file);
        if (r < 0)
                return error_set_errno(err, r, "cannot read %s", file);
        if (strlen(text) != size)
                return error_set(err, ERR_INVALID, "%s contains a NUL byte", file);
        *ret = TAKE_PTR(text);
        return 0;
}

static int compare_names(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

// Name without ".conf", or NULL for what is none of ours (editors' backups, our own temporary files, a README).
static int entry_name(const char *folder, const char *entry, char ***names, Error *err) {
        _cleanup_free_ char *name = NULL, *shown = NULL;
        size_t size = strlen(entry);

        if (entry[0] == '.' || size <= 5 || strcmp(entry + size - 5, ".conf") != 0)
                return 0;
        name = strndup(entry, size - 5);
        if (!name)
                return error_set_errno(err, ENOMEM, "cannot read %s", folder);
        if (!valid_is(VALID_NAME, name)) {
                shown = valid_printable(entry);
                return error_set_field(err, "name", "%s/%s: the file's name must be 1 to 32 lower-case letters, digits and dashes, "
                                       "beginning with a letter, and .conf", folder, shown ?: "");
        }
        if (strv_length(*names) >= FOLDER_FILES_MAX)
                return error_set(err, ERR_INVALID, "%s has more than %d files", folder, FOLDER_FILES_MAX);
        return strv_append(names, name) < 0 ? error_set_errno(err, ENOMEM, "cannot read %s", folder) : 0;
}

static void closedirp(DIR **d) {
        if (*d)
                (void) closedir(*d);
}

// Sorted names and the folder's descriptor (-EBADF if it is missing).
static int list_folder(int etc_fd, const char *folder, char ***ret, int *ret_fd, Error *err) {
        _cleanup_close_ int fd = openat(etc_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_(closedirp) DIR *d = NULL;
        _cleanup_strv_ char **names = NULL;
        struct dirent *e;
        int copy, r = 0;

        if (fd < 0)
                return errno == ENOENT ? 0 : error_set_errno(err, errno, "cannot open %s", folder);
        copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        d = copy < 0 ? NULL : fdopendir(copy);
        if (!d) {
                r = -errno;
                (void) close_fd(copy);
                return error_set_errno(err, r, "cannot open %s", folder);
        }
        while (r >= 0 && (errno = 0, e = readdir(d)))
                r = entry_name(folder, e->d_name, &names, err);
        if (r < 0)
                return r;
        if (errno)
                return error_set_errno(err, errno, "cannot read %s", folder);
        if (names)
                qsort(names, strv_length(names), sizeof(char *), compare_names);
        *ret = TAKE_PTR(names);
        *ret_fd = TAKE_FD(fd);
        return 0;
}

// What a file was when it was read. A younger one has no stamp, since it may change again without its times changing.
static DesiredStamp stamp_of(int dir, const char *name) {
        static const struct timespec settled = {.tv_sec = 2};
        struct timespec now;
        struct stat st;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) || clock_gettime(CLOCK_REALTIME, &now) < 0 ||
            st.st_ctim.tv_sec + settled.tv_sec >= now.tv_sec)
                return (DesiredStamp) {0};
        return (DesiredStamp) {st.st_ino, st.st_size, st.st_mtim, st.st_ctim};
}

static bool stamp_equal(const DesiredStamp *a, const DesiredStamp *b) {
        return a->ino != 0 && a->ino == b->ino && a->size == b->size && a->modified.tv_sec == b->modified.tv_sec &&
               a->modified.tv_nsec == b->modified.tv_nsec && a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

// A policy of a thousand rules takes longer to parse than to enforce: one whose file is as it was is shared with the old set.
static bool share_policy(Desired *desired, const Desired *old, const char *name) {
        for (size_t i = 0; old && i < old->n_policies; i++) {
                if (strcmp(old->policies[i]->name, name) != 0 || !stamp_equal(&old->stamps[i], &desired->stamps[desired->n_policies]))
                        continue;
                desired->policies[desired->n_policies++] = policy_share(old->policies[i]);
                return true;
        }
        return false;
}

// What one folder's files become: called with the file's text. The vectors have room for all names of the folder.
typedef int (*AddFn)(Desired *desired, const ParseContext *context, const char *name, const char *text, Error *err);

static int add_policy(Desired *desired, const ParseContext *context, const char *name, const char *text, Error *err) {
        int r = policy_parse_in(context, name, text, &desired->policies[desired->n_policies], err);

        desired->n_policies += r >= 0;
        return r;
}

static int add_instance(Desired *desired, const ParseContext *context, const char *name, const char *text, Error *err) {
        int r = instance_config_parse_in(context, name, text, &desired->instances[desired->n_instances], err);

        desired->n_instances += r >= 0;
        return r;
}

// Listed first and read later, by descriptor: whatever is renamed meanwhile, names and files belong together.
typedef struct Folder {
        const char *path;
        char **names;
        int fd;
} Folder;

static void folder_done(Folder *folder) {
        folder->names = strv_free(folder->names);
        folder->fd = close_fd(folder->fd);
}

typedef struct Loading {
        AddFn add;
        char *const *policies; // names that may be used
        bool stamped;
        const Desired *old; // whose policies may be shared
} Loading;

// Each file in the order of names, so that the same set is always refused with the same sentence.
static int load_folder(Desired *desired, const Folder *folder, const Loading *how, Error *err) {
        for (char **p = folder->names; p && *p; p++) {
                _cleanup_free_ char *file = NULL, *text = NULL;
                if (asprintf(&file, "%s/%s.conf", folder->path, *p) < 0) {
                        file = NULL;
                        return error_set_errno(err, ENOMEM, "cannot read %s", folder->path);
                }
                const char *name = file + strlen(folder->path) + 1;
                if (how->stamped) {
                        desired->stamps[desired->n_policies] = stamp_of(folder->fd, name);
                        if (share_policy(desired, how->old, *p))
                                continue;
                }
                ParseContext context = {.file = file, .policies = how->policies, .check_policies = true, .host = &desired->host};
                int r = read_text(folder->fd, name, file, &text, err);
                // A file that vanished since the folder was read is as if it had never been there.
                if (r >= 0 && text)
                        r = how->add(desired, &context, *p, text, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

// A missing file is all defaults.
static int load_host(int etc_fd, Desired *desired, char *const *policies, Error *err) {
        ParseContext context = {.file = "hostd.conf", .policies = policies, .check_policies = true};
        _cleanup_free_ char *text = NULL;
        int r = read_text(etc_fd, "hostd.conf", "hostd.conf", &text, err);

        return r < 0 ? r : host_config_parse_in(&context, text ?: "", &desired->host, err);
}

int desired_load(int etc_fd, Desired **ret, Error *err) {
        return desired_reload(etc_fd, NULL, ret, err);
}

int desired_reload(int etc_fd, const Desired *old, Desired **ret, Error *err) {
        _cleanup_(desired_freep) Desired *desired = calloc(1, sizeof(*desired));
        _cleanup_(folder_done) Folder policies = {"policies.d", NULL, -EBADF}, instances = {"instances.d", NULL, -EBADF},
                                      recipes = {"templates.d", NULL, -EBADF};
        Folder *folders[] = {&policies, &instances, &recipes};
        int r;

        if (!desired)
                return error_set_errno(err, ENOMEM, "cannot read the configuration");
        for (size_t i = 0; i < ELEMENTS(folders); i++) {
                r = list_folder(etc_fd, folders[i]->path, &folders[i]->names, &folders[i]->fd, err);
                if (r < 0)
                        return r;
        }
        desired->policies = calloc(strv_length(policies.names) + 1, sizeof(*desired->policies));
        desired->instances = calloc(strv_length(instances.names) + 1, sizeof(*desired->instances));
        desired->stamps = calloc(strv_length(policies.names) + 1, sizeof(*desired->stamps));
        if (!desired->policies || !desired->instances || !desired->stamps)
                return error_set_errno(err, ENOMEM, "cannot read the configuration");
        r = load_folder(desired, &policies, &(Loading) {.add = add_policy, .stamped = true, .old = old}, err);
        if (r >= 0)
                r = load_host(etc_fd, desired, policies.names, err);
        if (r >= 0)
                r = load_folder(desired, &instances, &(Loading) {.add = add_instance, .policies = policies.names}, err);
        if (r < 0)
                return r;
        desired->recipes = TAKE_PTR(recipes.names);
        *ret = TAKE_PTR(desired);
        return 0;
}
