// SPDX-License-Identifier: GPL-2.0-or-later
// The part of root.h that a recipe asks for: users, files, units.
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "base/valid.h"
#include "build/root.h"

#define ACCOUNT_MAX ((size_t) 1 << 20)

// "Line of `name`" in passwd or group, or NULL.
static const char *account_line(const char *text, const char *name) {
        size_t n = strlen(name);

        for (const char *p = text; p; p = strchr(p, '\n')) {
                p += *p == '\n';
                if (strncmp(p, name, n) == 0 && p[n] == ':')
                        return p;
        }
        return NULL;
}

static bool account_id_taken(const char *text, int64_t id) {
        char field[32];

        // passwd and group both have the id third.
        (void) snprintf(field, sizeof(field), ":x:%lld:", (long long) id);
        return strstr(text, field) != NULL;
}

static int append_format(int root, const char *path, Error *err, const char *format, ...) _printf_(4, 5);
static int append_format(int root, const char *path, Error *err, const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        va_list ap;
        int n;

        va_start(ap, format);
        n = vasprintf(&text, format, ap);
        va_end(ap);
        if (n < 0) {
                text = NULL;
                return error_set_errno(err, ENOMEM, "%s", path);
        }
        return root_append(root, path, text, err);
}

// Adds the user to an existing group: members are the last field of its line.
static int group_add(int root, const RecipeUser *u, const char *group, Error *err) {
        _cleanup_free_ char *text = NULL, *changed = NULL;
        const char *line, *end;
        int r = root_read(root, "/etc/group", ACCOUNT_MAX, &text, err);

        if (r < 0)
                return r;
        line = account_line(text, group);
        if (!line)
                return error_set_field(err, "groups", "the group %s of user %s is not in the image", group, u->name);
        end = line + strcspn(line, "\n");
        if (asprintf(&changed, "%.*s%s%s%s", (int) (end - text), text, end[-1] == ':' ? "" : ",", u->name, end) < 0) {
                changed = NULL;
                return error_set_errno(err, ENOMEM, "groups");
        }
        return root_write(root, "/etc/group", changed, 0644, err);
}

static int user_home(int root, const RecipeUser *u, Error *err) {
        static const char *const skeleton[] = {".bashrc", ".profile", ".bash_logout"};
        _cleanup_free_ char *home = NULL;
        int r;

        if (asprintf(&home, "/home/%s", u->name) < 0) {
                home = NULL;
                return error_set_errno(err, ENOMEM, "home");
        }
        r = root_mkdir(root, home, 0700, err);
        if (r >= 0)
                r = root_chown(root, home, (uid_t) u->uid, (gid_t) u->uid, err);
        for (size_t i = 0; r >= 0 && i < ELEMENTS(skeleton); i++) {
                _cleanup_free_ char *from = NULL, *to = NULL, *text = NULL;
                if (asprintf(&from, "/etc/skel/%s", skeleton[i]) < 0 || asprintf(&to, "%s/%s", home, skeleton[i]) < 0)
                        return error_set_errno(err, ENOMEM, "home");
                if (root_read(root, from, 65536, &text, NULL) < 0)
                        continue;
                r = root_write(root, to, text, 0644, err);
                if (r >= 0)
                        r = root_chown(root, to, (uid_t) u->uid, (gid_t) u->uid, err);
        }
        return r;
}

static int user_subids(int root, const RecipeUser *u, Error *err) {
        static const char *const files[] = {"/etc/subuid", "/etc/subgid"};
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ELEMENTS(files) && u->subids; i++)
                r = append_format(root, files[i], err, "%s:%s\n", u->name, u->subids);
        return r;
}

static int user_linger(int root, const RecipeUser *u, Error *err) {
        _cleanup_free_ char *path = NULL;

        if (!u->linger)
                return 0;
        if (asprintf(&path, "/var/lib/systemd/linger/%s", u->name) < 0) {
                path = NULL;
                return error_set_errno(err, ENOMEM, "linger");
        }
        return root_write(root, path, "", 0644, err);
}

static int customise_user(int root, const RecipeUser *u, Error *err) {
        _cleanup_free_ char *passwd = NULL, *group = NULL;
        long long id = u->uid;
        int r = root_read(root, "/etc/passwd", ACCOUNT_MAX, &passwd, err);

        if (r >= 0)
                r = root_read(root, "/etc/group", ACCOUNT_MAX, &group, err);
        if (r < 0)
                return r;
        if (account_line(passwd, u->name) || account_line(group, u->name) || account_id_taken(passwd, id) ||
            account_id_taken(group, id))
                return error_set_field(err, "users", "the user %s or the id %lld is already in the image", u->name, id);
        r = append_format(root, "/etc/passwd", err, "%s:x:%lld:%lld::/home/%s:%s\n", u->name, id, id, u->name, u->shell);
        if (r >= 0)
                r = append_format(root, "/etc/group", err, "%s:x:%lld:\n", u->name, id);
        // No password is right ("*"), yet the account is not locked: keys and su from root work. The day of the last
        // change is a constant, so that the same recipe gives the same image.
        if (r >= 0)
                r = append_format(root, "/etc/shadow", err, "%s:*:20089:0:99999:7:::\n", u->name);
        if (r >= 0)
                r = append_format(root, "/etc/gshadow", err, "%s:!::\n", u->name);
        for (size_t i = 0; r >= 0 && i < strv_length(u->groups); i++)
                r = group_add(root, u, u->groups[i], err);
        if (r >= 0)
                r = user_subids(root, u, err);
        if (r >= 0)
                r = user_linger(root, u, err);
        return r < 0 ? r : user_home(root, u, err);
}

static int mask_unit(int root, const char *unit, Error *err) {
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "/etc/systemd/system/%s", unit) < 0) {
                path = NULL;
                return error_set_errno(err, ENOMEM, "mask_units");
        }
        return root_symlink(root, "/dev/null", path, err);
}

// Makes the links of the unit's WantedBy= lines, as `systemctl enable` would.
static int enable_unit(int root, const char *unit, Error *err) {
        static const char *const dirs[] = {"/etc/systemd/system", "/usr/lib/systemd/system"};
        _cleanup_free_ char *file = NULL, *text = NULL;
        _cleanup_strv_ char **lines = NULL;
        int r = -ENOENT, links = 0;

        for (size_t i = 0; r < 0 && i < ELEMENTS(dirs); i++) {
                free(TAKE_PTR(file));
                if (asprintf(&file, "%s/%s", dirs[i], unit) < 0) {
                        file = NULL;
                        return error_set_errno(err, ENOMEM, "enable_units");
                }
                r = root_read(root, file, 65536, &text, NULL);
        }
        if (r < 0)
                return error_set_field(err, "enable_units", "the unit %s is not in the image", unit);
        r = strv_split(text, "\n", &lines);
        for (size_t i = 0; r >= 0 && i < strv_length(lines); i++) {
                _cleanup_strv_ char **targets = NULL;
                if (strncmp(lines[i], "WantedBy=", 9) != 0)
                        continue;
                r = strv_split(lines[i] + 9, " \t\r", &targets);
                for (size_t k = 0; r >= 0 && k < strv_length(targets); k++, links++) {
                        _cleanup_free_ char *path = NULL;
                        if (!valid_is(VALID_UNIT, targets[k]))
                                return error_set_field(err, "enable_units", "%s is wanted by what is no unit", unit);
                        if (asprintf(&path, "/etc/systemd/system/%s.wants/%s", targets[k], unit) < 0) {
                                path = NULL;
                                return error_set_errno(err, ENOMEM, "enable_units");
                        }
                        r = root_symlink(root, file, path, err);
                }
        }
        if (r >= 0 && links == 0)
                return error_set_field(err, "enable_units", "the unit %s has no WantedBy=", unit);
        return r;
}

int root_customise(int root, const Recipe *recipe, Error *err) {
        int r = 0;

        for (size_t i = 0; r >= 0 && i < recipe->n_users; i++)
                r = customise_user(root, &recipe->users[i], err);
        for (size_t i = 0; r >= 0 && i < recipe->n_files; i++) {
                const RecipeFile *f = &recipe->files[i];
                r = root_write(root, f->path, f->content, f->mode_bits & 0777, err);
                if (r >= 0)
                        r = root_chown(root, f->path, (uid_t) f->uid, (gid_t) f->gid, err);
                if (r >= 0 && (f->mode_bits & 07000)) { // a change of owner clears these
                        _cleanup_close_ int fd = root_open(root, f->path, O_RDONLY | O_NOFOLLOW);
                        if (fd < 0 || fchmod(fd, f->mode_bits) < 0)
                                r = error_set_errno(err, errno, "cannot set the mode of %s", f->path);
                }
        }
        for (size_t i = 0; r >= 0 && i < strv_length(recipe->mask_units); i++)
                r = mask_unit(root, recipe->mask_units[i], err);
        for (size_t i = 0; r >= 0 && i < strv_length(recipe->enable_units); i++)
                r = enable_unit(root, recipe->enable_units[i], err);
        for (size_t i = 0; r >= 0 && i < strv_length(recipe->cleanup); i++)
                r = root_remove(root, recipe->cleanup[i], err);
        return r;
}
