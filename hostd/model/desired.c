// SPDX-License-Identifier: GPL-2.0-or-later
// Desired: loads the whole set from a directory, or refuses it whole; or, for a start, mends it from history file by file.
//
// Order: categories, policies (which name categories), hostd.conf (which names policies), instances (which inherit from hostd.conf and name policies). Everything is
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
        for (size_t i = 0; i < desired->n_categories; i++)
                category_free(desired->categories[i]);
        free(desired->categories);
        free(desired->category_stamps);
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

Category *desired_find_category(const Desired *desired, const char *name) {
        for (size_t i = 0; i < desired->n_categories; i++)
                if (strcmp(desired->categories[i]->name, name) == 0)
                        return desired->categories[i];
        return NULL;
}

Policy *desired_find_policy(const Desired *desired, const char *name) {
        for (size_t i = 0; i < desired->n_policies; i++)
                if (strcmp(desired->policies[i]->name, name) == 0)
                        return desired->policies[i];
        return NULL;
}

int desired_find_policies(const Desired *desired, char *const *names, Policy ***ret, size_t *ret_n, Error *err) {
        _cleanup_free_ Policy **list = calloc(strv_length(names) + 1, sizeof(Policy *));
        size_t n = 0;

        if (!list)
                return error_set_errno(err, ENOMEM, "cannot collect policies");
        for (; names && *names; names++)
                if (!(list[n++] = desired_find_policy(desired, *names)))
                        return error_set(err, ERR_NOT_FOUND, "there is no policy \"%s\"", *names);
        *ret = TAKE_PTR(list);
        *ret_n = n;
        return 0;
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

// Listed first and read later, by descriptor: whatever is renamed meanwhile, names and files belong together.
typedef struct Folder {
        const char *path;
        char **names;
        int fd; // -EBADF if it is missing
} Folder;

static void folder_done(Folder *folder) {
        folder->names = strv_free(folder->names);
        folder->fd = close_fd(folder->fd);
}

void desired_rescue_done(DesiredRescue *rescue) {
        for (size_t i = 0; i < rescue->n_problems; i++) {
                free(rescue->problems[i].path);
                free(rescue->problems[i].reason);
        }
        free(rescue->problems);
        rescue->problems = NULL;
        rescue->n_problems = 0;
}

static int rescue_note(DesiredRescue *rescue, const char *path, const char *reason, bool replaced) {
        DesiredProblem *grown = realloc(rescue->problems, (rescue->n_problems + 1) * sizeof(*grown)), problem;

        if (!grown)
                return -ENOMEM;
        rescue->problems = grown;
        problem = (DesiredProblem) {valid_printable(path), strdup(reason), replaced};
        if (!problem.path || !problem.reason) {
                free(problem.path);
                free(problem.reason);
                return -ENOMEM;
        }
        rescue->problems[rescue->n_problems++] = problem;
        return 0;
}

// A file with a bad name is a mistake that a start goes on without.
static int rescue_name(DesiredRescue *rescue, const char *folder, const char *entry, const Error *why, Error *err) {
        char path[300];

        (void) snprintf(path, sizeof(path), "%s/%s", folder, entry);
        return rescue_note(rescue, path, error_message(why, -EINVAL), false) < 0 ? error_set_errno(err, ENOMEM, "cannot read %s", folder) : 0;
}

// Sorted names.
static int list_folder(int etc_fd, Folder *folder, DesiredRescue *rescue, Error *err) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *e;
        int copy, r = 0;

        folder->fd = openat(etc_fd, folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder->fd < 0)
                return errno == ENOENT ? 0 : error_set_errno(err, errno, "cannot open %s", folder->path);
        copy = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        d = copy < 0 ? NULL : fdopendir(copy);
        if (!d) {
                r = -errno;
                (void) close_fd(copy);
                return error_set_errno(err, r, "cannot open %s", folder->path);
        }
        while (r >= 0 && (errno = 0, e = readdir(d))) {
                _cleanup_error_ Error why = ERROR_NULL;
                r = entry_name(folder->path, e->d_name, &folder->names, &why);
                if (r == -EINVAL && rescue)
                        r = rescue_name(rescue, folder->path, e->d_name, &why, err);
                else if (r < 0)
                        error_move(err, &why);
        }
        if (r < 0)
                return r;
        if (errno)
                return error_set_errno(err, errno, "cannot read %s", folder->path);
        if (folder->names)
                qsort(folder->names, strv_length(folder->names), sizeof(char *), compare_names);
        return 0;
}

// An edited file is there, or is not, whatever the folder says.
static int edit_names(const DesiredEdit *edit, const char *folder, char ***names, Error *err) {
        _cleanup_free_ char *name = NULL;
        size_t n = strlen(folder), at = 0;
        int r;

        if (!edit || strncmp(edit->path, folder, n) != 0 || edit->path[n] != '/')
                return 0;
        name = strndup(edit->path + n + 1, strcspn(edit->path + n + 1, "."));
        if (!name)
                return error_set_errno(err, ENOMEM, "cannot read %s", folder);
        while (*names && (*names)[at] && strcmp((*names)[at], name) != 0)
                at++;
        if (*names && (*names)[at]) {
                if (edit->text)
                        return 0;
                free((*names)[at]);
                for (; (*names)[at]; at++)
                        (*names)[at] = (*names)[at + 1];
                return 0;
        }
        if (!edit->text)
                return 0;
        _cleanup_free_ char *file = NULL;
        if (asprintf(&file, "%s.conf", name) < 0) {
                file = NULL;
                return error_set_errno(err, ENOMEM, "cannot read %s", folder);
        }
        r = entry_name(folder, file, names, err);
        if (r >= 0)
                qsort(*names, strv_length(*names), sizeof(char *), compare_names);
        return r;
}

static bool is_edited(const DesiredEdit *edit, const char *file) {
        return edit && strcmp(edit->path, file) == 0;
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

// Whether what the rules' categories stand for is what it was.
static bool categories_are_the_same(const Desired *desired, const Policy *policy) {
        if (!category_equal(policy->spared, desired_find_category(desired, POLICY_SPARED)))
                return false;
        for (size_t i = 0; i < policy->n_rules; i++) {
                const PolicyRule *rule = &policy->rules[i];
                if (rule->to[0] == '@' && strcmp(rule->to + 1, POLICY_PREVIEW) != 0 && !category_equal(rule->category, desired_find_category(desired, rule->to + 1)))
                        return false;
        }
        return true;
}

// A policy of a thousand rules takes longer to parse than to enforce: one whose file is as it was is shared with the old set.
static bool share_policy(Desired *desired, const Desired *old, const char *name) {
        for (size_t i = 0; old && i < old->n_policies; i++) {
                if (strcmp(old->policies[i]->name, name) != 0 || !stamp_equal(&old->stamps[i], &desired->stamps[desired->n_policies]) ||
                    !categories_are_the_same(desired, old->policies[i]))
                        continue;
                desired->policies[desired->n_policies++] = policy_share(old->policies[i]);
                return true;
        }
        return false;
}

static bool share_category(Desired *desired, const Desired *old, const char *name) {
        for (size_t i = 0; old && i < old->n_categories; i++) {
                if (strcmp(old->categories[i]->name, name) != 0 || !stamp_equal(&old->category_stamps[i], &desired->category_stamps[desired->n_categories]))
                        continue;
                desired->categories[desired->n_categories++] = category_share(old->categories[i]);
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

static int add_category(Desired *desired, const ParseContext *context, const char *name, const char *text, Error *err) {
        int r = category_parse(name, context->file, text, &desired->categories[desired->n_categories], err);

        desired->n_categories += r >= 0;
        return r;
}

// Each policy may be valid, and all of them together too much.
static int check_together(const Desired *desired, const ParseContext *context, const InstanceConfig *config, Error *err) {
        _cleanup_free_ Policy **policies = NULL;
        size_t n = 0;
        int r = desired_find_policies(desired, config->policies, &policies, &n, err);

        if (r >= 0)
                r = policies_check(policies, n, err);
        return r < 0 ? error_wrap(err, "%s", context->file) : 0;
}

static int add_instance(Desired *desired, const ParseContext *context, const char *name, const char *text, Error *err) {
        _cleanup_(instance_config_freep) InstanceConfig *config = NULL;
        int r = instance_config_parse_in(context, name, text, &config, err);

        if (r >= 0)
                r = check_together(desired, context, config, err);
        if (r < 0)
                return r;
        desired->instances[desired->n_instances++] = TAKE_PTR(config);
        return 0;
}

static int add_host(Desired *desired, const ParseContext *context, const char *name, const char *text, Error *err) {
        return host_config_parse_in(context, text, &desired->host, err);
}

typedef struct Loading {
        AddFn add;
        char *const *policies; // names that may be used
        DesiredStamp *stamps;  // one per file that is added, or NULL
        const size_t *n;       // how many there are already
        bool (*share)(Desired *desired, const Desired *old, const char *name);
        bool required;         // a set without it is none
        const char *missing;   // what a file that is not there says; NULL: nothing, as if it was not listed
        const Desired *old;    // whose policies and categories may be shared
        const DesiredEdit *edit;
        DesiredRescue *rescue; // NULL: a bad file refuses the set
} Loading;

// 0: mended, or left out.
static int rescue_file(Desired *desired, const ParseContext *context, const char *name, const Loading *how, Error *why) {
        bool replaced = false;
        char *text;

        // What is in force is not what is in the file: the next load must not take it for that.
        if (how->stamps)
                how->stamps[*how->n] = (DesiredStamp) {0};
        for (unsigned n = 0; !replaced && (text = how->rescue->earlier(how->rescue->userdata, context->file, n)); n++) {
                replaced = how->add(desired, context, name, text, NULL) >= 0;
                free(text);
        }
        if (how->required && !replaced)
                return -EINVAL;
        if (rescue_note(how->rescue, context->file, error_message(why, -EINVAL), replaced) < 0)
                return -ENOMEM;
        error_done(why);
        *why = ERROR_NULL;
        return 0;
}

// context->file is the path below /etc/hostd, `dir` its folder.
static int load_file(Desired *desired, int dir, const ParseContext *context, const char *name, const Loading *how, Error *err) {
        const char *slash = strrchr(context->file, '/');
        _cleanup_free_ char *text = NULL;
        _cleanup_error_ Error why = ERROR_NULL;
        bool edited = is_edited(how->edit, context->file);
        int r = edited ? 0 : read_text(dir, slash ? slash + 1 : context->file, context->file, &text, &why);

        if (edited && how->edit->text && !(text = strdup(how->edit->text)))
                r = error_set_errno(&why, ENOMEM, "cannot read %s", context->file);
        // A file that vanished since the folder was read is as if it had never been there.
        if (r >= 0 && (text || how->missing))
                r = how->add(desired, context, name, text ?: how->missing, &why);
        if (r < 0 && r != -ENOMEM && how->rescue)
                r = rescue_file(desired, context, name, how, &why);
        if (r < 0)
                error_move(err, &why);
        return r;
}

// Each file in the order of names, so that the same set is always refused with the same sentence.
static int load_folder(Desired *desired, const Folder *folder, const Loading *how, Error *err) {
        for (char **p = folder->names; p && *p; p++) {
                _cleanup_free_ char *file = NULL;
                if (asprintf(&file, "%s/%s.conf", folder->path, *p) < 0) {
                        file = NULL;
                        return error_set_errno(err, ENOMEM, "cannot read %s", folder->path);
                }
                if (how->stamps && !is_edited(how->edit, file)) {
                        how->stamps[*how->n] = stamp_of(folder->fd, file + strlen(folder->path) + 1);
                        if (how->share(desired, how->old, *p))
                                continue;
                }
                ParseContext context = {.file = file, .policies = how->policies, .categories = desired->categories, .n_categories = desired->n_categories,
                                        .check_policies = true, .host = &desired->host};
                int r = load_file(desired, folder->fd, &context, *p, how, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

// Only what was loaded may be named.
static int policy_names(const Desired *desired, char ***ret, Error *err) {
        int r = 0;

        for (size_t i = 0; r >= 0 && i < desired->n_policies; i++)
                r = strv_append(ret, desired->policies[i]->name);
        return r < 0 ? error_set_errno(err, r, "cannot read the configuration") : 0;
}

static int make_room(Desired *desired, const Folder *categories, const Folder *policies, const Folder *instances, Error *err) {
        desired->categories = calloc(strv_length(categories->names) + 1, sizeof(*desired->categories));
        desired->category_stamps = calloc(strv_length(categories->names) + 1, sizeof(*desired->category_stamps));
        desired->policies = calloc(strv_length(policies->names) + 1, sizeof(*desired->policies));
        desired->stamps = calloc(strv_length(policies->names) + 1, sizeof(*desired->stamps));
        desired->instances = calloc(strv_length(instances->names) + 1, sizeof(*desired->instances));
        if (!desired->categories || !desired->category_stamps || !desired->policies || !desired->stamps || !desired->instances)
                return error_set_errno(err, ENOMEM, "cannot read the configuration");
        return 0;
}

static int load_set(Desired *desired, int etc_fd, const Loading *common, Error *err) {
        _cleanup_(folder_done) Folder categories = {"categories.d", NULL, -EBADF}, policies = {"policies.d", NULL, -EBADF},
                                      instances = {"instances.d", NULL, -EBADF}, recipes = {"templates.d", NULL, -EBADF};
        _cleanup_strv_ char **names = NULL;
        Folder *folders[] = {&categories, &policies, &instances, &recipes};
        Loading how = *common;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ELEMENTS(folders); i++)
                if ((r = list_folder(etc_fd, folders[i], how.rescue, err)) >= 0)
                        r = edit_names(how.edit, folders[i]->path, &folders[i]->names, err);
        if (r >= 0)
                r = make_room(desired, &categories, &policies, &instances, err);
        if (r < 0)
                return r;
        how.add = add_category, how.share = share_category, how.stamps = desired->category_stamps, how.n = &desired->n_categories;
        r = load_folder(desired, &categories, &how, err);
        how.add = add_policy, how.share = share_policy, how.stamps = desired->stamps, how.n = &desired->n_policies;
        if (r >= 0)
                r = load_folder(desired, &policies, &how, err);
        if (r >= 0)
                r = policy_names(desired, &names, err);
        ParseContext host = {.file = "hostd.conf", .policies = names, .check_policies = true};
        how.add = add_host, how.stamps = NULL, how.missing = "", how.required = true; // a missing file is all defaults
        if (r >= 0)
                r = load_file(desired, etc_fd, &host, NULL, &how, err);
        how.add = add_instance, how.policies = names, how.missing = NULL, how.required = false;
        if (r >= 0)
                r = load_folder(desired, &instances, &how, err);
        desired->recipes = TAKE_PTR(recipes.names);
        return r;
}

static int desired_load_with(int etc_fd, const Loading *how, Desired **ret, Error *err) {
        _cleanup_(desired_freep) Desired *desired = calloc(1, sizeof(*desired));
        int r = desired ? load_set(desired, etc_fd, how, err) : error_set_errno(err, ENOMEM, "cannot read the configuration");

        if (r >= 0)
                *ret = TAKE_PTR(desired);
        return r;
}

int desired_load(int etc_fd, Desired **ret, Error *err) {
        return desired_load_with(etc_fd, &(Loading) {0}, ret, err);
}

int desired_reload(int etc_fd, const Desired *old, const DesiredEdit *edit, Desired **ret, Error *err) {
        return desired_load_with(etc_fd, &(Loading) {.old = old, .edit = edit}, ret, err);
}

int desired_load_rescue(int etc_fd, DesiredRescue *rescue, Desired **ret, Error *err) {
        return desired_load_with(etc_fd, &(Loading) {.rescue = rescue}, ret, err);
}
