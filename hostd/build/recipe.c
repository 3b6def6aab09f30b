// SPDX-License-Identifier: GPL-2.0-or-later
// Recipe: see recipe.h. One table per kind of group; recipe_group() walks it.
#include "build/recipe.h"

#include <ctype.h>
#include <libconfig.h>
#include <stddef.h>
#include <string.h>

#include "base/valid.h"

typedef enum FieldType { FIELD_STRING, FIELD_INT, FIELD_BOOL, FIELD_STRINGS } FieldType;

typedef struct Field {
        const char *key;
        FieldType type;
        ValidKind kind; // of strings
        size_t offset;
        bool required;
        int64_t min, max; // of integers; of lists: most entries
} Field;

#define R(member) offsetof(Recipe, member)
#define U(member) offsetof(RecipeUser, member)
#define F(member) offsetof(RecipeFile, member)

static const Field recipe_fields[] = {
        {"name", FIELD_STRING, VALID_NAME, R(name), true},
        {"description", FIELD_STRING, VALID_TEXT, R(description)},
        {"suite", FIELD_STRING, VALID_SUITE, R(suite)},
        {"variant", FIELD_STRING, VALID_NAME, R(variant)},
        {"packages", FIELD_STRINGS, VALID_PACKAGE, R(packages), .max = 2000},
        {"packages_bookworm", FIELD_STRINGS, VALID_PACKAGE, R(packages_bookworm), .max = 2000},
        {"packages_trixie", FIELD_STRINGS, VALID_PACKAGE, R(packages_trixie), .max = 2000},
        {"mask_units", FIELD_STRINGS, VALID_UNIT, R(mask_units), .max = 500},
        {"enable_units", FIELD_STRINGS, VALID_UNIT, R(enable_units), .max = 500},
        {"cleanup", FIELD_STRINGS, VALID_PATH, R(cleanup), .max = 500},
        {NULL},
};

static const Field user_fields[] = {
        {"name", FIELD_STRING, VALID_USER, U(name), true},
        {"uid", FIELD_INT, 0, U(uid), true, 1, RECIPE_IMAGE_IDS - 3}, // 65534 and 65535 mean nobody and nothing
        {"shell", FIELD_STRING, VALID_PATH, U(shell)},
        {"linger", FIELD_BOOL, 0, U(linger)},
        {"subids", FIELD_STRING, VALID_LABEL_VALUE, U(subids)},
        {"groups", FIELD_STRINGS, VALID_USER, U(groups), .max = 64},
        {NULL},
};

static const Field file_fields[] = {
        {"path", FIELD_STRING, VALID_PATH, F(path), true},
        {"mode", FIELD_STRING, VALID_LABEL_VALUE, F(mode)},
        {"uid", FIELD_INT, 0, F(uid), false, 0, RECIPE_IMAGE_IDS - 3},
        {"gid", FIELD_INT, 0, F(gid), false, 0, RECIPE_IMAGE_IDS - 3},
        {"content", FIELD_STRING, VALID_ARGUMENT, F(content), true},
        {NULL},
};

typedef struct Place {
        const char *origin; // file
        const char *prefix; // "users[0]." or ""
} Place;

// "FILE:LINE: KEY: REASON": prefixes what `err` says.
static int recipe_at(const Place *place, const config_setting_t *s, Error *err) {
        return error_wrap(err, "%s:%u", place->origin, config_setting_source_line(s));
}

static int recipe_value(const Place *place, const Field *f, const config_setting_t *s, const char *value, Error *err) {
        _cleanup_free_ char *field = NULL;

        if (asprintf(&field, "%s%s", place->prefix, f->key) < 0) {
                field = NULL;
                return error_set_errno(err, ENOMEM, "%s", f->key);
        }
        if (f->kind == VALID_USER && isdigit((unsigned char) value[0]))
                error_set_field(err, field, "%s must be a name, not a number", field);
        else if (valid_check(f->kind, field, value, err) == 0)
                return 0;
        return recipe_at(place, s, err);
}

static int recipe_type_error(const Place *place, const Field *f, const config_setting_t *s, Error *err) {
        static const char *const wanted[] = {"a string in quotes", "a whole number", "true or false", "a list of strings"};

        error_set_field(err, f->key, "%s%s must be %s", place->prefix, f->key, wanted[f->type]);
        return recipe_at(place, s, err);
}

static int recipe_strings(const Place *place, const Field *f, const config_setting_t *s, char ***out, Error *err) {
        int n = config_setting_length(s), r;

        if (!config_setting_is_array(s) && !config_setting_is_list(s))
                return recipe_type_error(place, f, s, err);
        if (n > f->max) {
                error_set_field(err, f->key, "%s%s has more than %lld entries", place->prefix, f->key, (long long) f->max);
                return recipe_at(place, s, err);
        }
        for (int i = 0; i < n; i++) {
                const config_setting_t *e = config_setting_get_elem(s, (unsigned) i);
                const char *value = config_setting_get_string(e);

                if (!value)
                        return recipe_type_error(place, f, e, err);
                r = recipe_value(place, f, e, value, err);
                if (r < 0)
                        return r;
                r = strv_append(out, value);
                if (r < 0)
                        return error_set_errno(err, r, "%s", f->key);
        }
        return 0;
}

static int recipe_int(const Place *place, const Field *f, const config_setting_t *s, int64_t *out, Error *err) {
        int type = config_setting_type(s);
        long long value = config_setting_get_int64(s);

        if (type != CONFIG_TYPE_INT && type != CONFIG_TYPE_INT64)
                return recipe_type_error(place, f, s, err);
        if (type == CONFIG_TYPE_INT)
                value = config_setting_get_int(s);
        if (value < f->min || value > f->max) {
                error_set_field(err, f->key, "%s%s must be between %lld and %lld, not %lld", place->prefix, f->key,
                                (long long) f->min, (long long) f->max, value);
                return recipe_at(place, s, err);
        }
        *out = value;
        return 0;
}

static int recipe_field(const Place *place, const Field *f, const config_setting_t *s, void *object, Error *err) {
        void *out = (char *) object + f->offset;
        const char *text;
        int r;

        switch (f->type) {
        case FIELD_STRING:
                text = config_setting_get_string(s);
                if (!text)
                        return recipe_type_error(place, f, s, err);
                r = recipe_value(place, f, s, text, err);
                if (r < 0)
                        return r;
                *(char **) out = strdup(text);
                return *(char **) out ? 0 : error_set_errno(err, ENOMEM, "%s", f->key);
        case FIELD_BOOL:
                if (config_setting_type(s) != CONFIG_TYPE_BOOL)
                        return recipe_type_error(place, f, s, err);
                *(bool *) out = config_setting_get_bool(s);
                return 0;
        case FIELD_INT:
                return recipe_int(place, f, s, out, err);
        case FIELD_STRINGS:
        default:
                return recipe_strings(place, f, s, out, err);
        }
}

// `except` names keys that the caller reads itself (NULL-terminated, may be NULL).
static int recipe_group(const Place *place, const Field *fields, const config_setting_t *group,
                        const char *const *except, void *object, Error *err) {
        int n = config_setting_length(group), r;

        for (int i = 0; i < n; i++) {
                const config_setting_t *s = config_setting_get_elem(group, (unsigned) i);
                const char *key = config_setting_name(s);
                const Field *f = fields;

                if (except && strv_contains((char *const *) except, key))
                        continue;
                while (f->key && strcmp(f->key, key) != 0)
                        f++;
                if (!f->key) {
                        error_set_field(err, key, "%s%s is not a key of a recipe", place->prefix, key);
                        return recipe_at(place, s, err);
                }
                r = recipe_field(place, f, s, object, err);
                if (r < 0)
                        return r;
        }
        for (const Field *f = fields; f->key; f++)
                if (f->required && !config_setting_get_member(group, f->key)) {
                        error_set_field(err, f->key, "%s%s is missing", place->prefix, f->key);
                        return recipe_at(place, group, err);
                }
        return 0;
}

static int user_finish(const Place *place, const config_setting_t *s, RecipeUser *u, Error *err) {
        long long start, count;
        int used = 0;

        if (!u->shell && !(u->shell = strdup("/bin/bash")))
                return error_set_errno(err, ENOMEM, "users");
        if (strchr(u->shell, ':')) {
                error_set_field(err, "shell", "%sshell must not contain a colon", place->prefix);
                return recipe_at(place, s, err);
        }
        if (!u->subids)
                return 0;
        if (strlen(u->subids) > 20 || sscanf(u->subids, "%lld:%lld%n", &start, &count, &used) != 2 || u->subids[used] ||
            start < RECIPE_IMAGE_IDS || count < 1 || count > RECIPE_ID_RANGE - start) {
                error_set_field(err, "subids", "%ssubids must be START:COUNT within %lld and %lld (an instance's range)",
                                place->prefix, (long long) RECIPE_IMAGE_IDS, (long long) RECIPE_ID_RANGE);
                return recipe_at(place, s, err);
        }
        u->subid_start = start;
        u->subid_count = count;
        return 0;
}

static int file_finish(const Place *place, const config_setting_t *s, RecipeFile *f, Error *err) {
        const char *mode = f->mode ?: "0644";
        size_t n = strlen(mode);

        if (n < 3 || n > 5 || strspn(mode, "01234567") != n || strtoul(mode, NULL, 8) > 07777) {
                error_set_field(err, "mode", "%smode must be an octal string such as \"0644\"", place->prefix);
                return recipe_at(place, s, err);
        }
        if (strcmp(f->path, "/") == 0) {
                error_set_field(err, "path", "%spath must name a file", place->prefix);
                return recipe_at(place, s, err);
        }
        f->mode_bits = (mode_t) strtoul(mode, NULL, 8);
        return 0;
}

static int recipe_user(const Place *place, const config_setting_t *s, void *object, Error *err) {
        int r = recipe_group(place, user_fields, s, NULL, object, err);
        return r < 0 ? r : user_finish(place, s, object, err);
}

static int recipe_file(const Place *place, const config_setting_t *s, void *object, Error *err) {
        int r = recipe_group(place, file_fields, s, NULL, object, err);
        return r < 0 ? r : file_finish(place, s, object, err);
}

typedef struct GroupList {
        const char *key;
        size_t size; // of one object
        size_t array, count; // offsets in Recipe
        int (*parse)(const Place *place, const config_setting_t *s, void *object, Error *err);
} GroupList;

static const GroupList recipe_lists[] = {
        {"users", sizeof(RecipeUser), R(users), R(n_users), recipe_user},
        {"files", sizeof(RecipeFile), R(files), R(n_files), recipe_file},
};

static int recipe_list(const char *origin, const GroupList *list, const config_setting_t *root, Recipe *recipe, Error *err) {
        const config_setting_t *s = config_setting_get_member(root, list->key);
        void **array = (void **) ((char *) recipe + list->array);
        size_t *count = (size_t *) ((char *) recipe + list->count);
        Place place = {origin, ""};
        int n;

        if (!s)
                return 0;
        n = config_setting_length(s);
        if (!config_setting_is_list(s) || n > 500) {
                error_set_field(err, list->key, "%s must be a list of at most 500 groups", list->key);
                return recipe_at(&place, s, err);
        }
        *array = calloc((size_t) n + 1, list->size);
        if (!*array)
                return error_set_errno(err, ENOMEM, "%s", list->key);
        for (int i = 0; i < n; i++) {
                const config_setting_t *e = config_setting_get_elem(s, (unsigned) i);
                char prefix[64];

                (void) snprintf(prefix, sizeof(prefix), "%s[%d].", list->key, i);
                place.prefix = prefix;
                if (!config_setting_is_group(e)) {
                        error_set_field(err, list->key, "%s[%d] must be a group in braces", list->key, i);
                        return recipe_at(&place, e, err);
                }
                *count = (size_t) i + 1; // counted before it is whole, so that recipe_free() sees it
                int r = list->parse(&place, e, (char *) *array + (size_t) i * list->size, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int recipe_defaults(const char *origin, const char *suite, Recipe *recipe, Error *err) {
        static const char *const suites[] = {"trixie", "bookworm", NULL};
        static const char *const variants[] = {"minbase", "essential", "apt", "important", "standard", NULL};

        if (suite) {
                free(recipe->suite);
                recipe->suite = strdup(suite);
        } else if (!recipe->suite)
                recipe->suite = strdup("trixie");
        if (!recipe->variant)
                recipe->variant = strdup("minbase");
        if (!recipe->suite || !recipe->variant)
                return error_set_errno(err, ENOMEM, "%s", origin);
        if (!strv_contains((char *const *) suites, recipe->suite))
                return error_set_field(err, "suite", "suite must be trixie or bookworm");
        if (!strv_contains((char *const *) variants, recipe->variant)) {
                error_set_field(err, "variant", "variant must be minbase, essential, apt, important or standard");
                return error_wrap(err, "%s", origin);
        }
        return 0;
}

static int recipe_users_unique(const char *origin, const Recipe *recipe, Error *err) {
        for (size_t i = 0; i < recipe->n_users; i++)
                for (size_t k = 0; k < i; k++) {
                        const RecipeUser *a = &recipe->users[i], *b = &recipe->users[k];
                        if (a->uid == b->uid || strcmp(a->name, b->name) == 0) {
                                error_set_field(err, "users", "users[%zu] and users[%zu] have the same name or uid", k, i);
                                return error_wrap(err, "%s", origin);
                        }
                        if (a->subids && b->subids && a->subid_start < b->subid_start + b->subid_count &&
                            b->subid_start < a->subid_start + a->subid_count) {
                                error_set_field(err, "subids", "users[%zu] and users[%zu] share subids", k, i);
                                return error_wrap(err, "%s", origin);
                        }
                }
        return 0;
}

// libconfig would read any file that "@include" names.
static bool text_includes(const char *text) {
        for (const char *p = text; p; p = strchr(p, '\n')) {
                p += *p == '\n';
                p += strspn(p, " \t\r\f\v");
                if (strncmp(p, "@include", 8) == 0)
                        return true;
        }
        return false;
}

static int recipe_read(const char *origin, const config_t *config, const char *suite, Recipe *recipe, Error *err) {
        static const char *const lists[] = {"users", "files", NULL};
        const config_setting_t *root = config_root_setting(config);
        Place place = {origin, ""};
        int r;

        r = recipe_group(&place, recipe_fields, root, lists, recipe, err);
        for (size_t i = 0; r >= 0 && i < ELEMENTS(recipe_lists); i++)
                r = recipe_list(origin, &recipe_lists[i], root, recipe, err);
        if (r >= 0)
                r = recipe_defaults(origin, suite, recipe, err);
        return r < 0 ? r : recipe_users_unique(origin, recipe, err);
}

int recipe_parse(const char *origin, const char *text, const char *suite, Recipe **ret, Error *err) {
        _cleanup_(recipe_freep) Recipe *recipe = calloc(1, sizeof(*recipe));
        config_t config;
        int r;

        if (!recipe)
                return error_set_errno(err, ENOMEM, "%s", origin);
        if (strlen(text) > RECIPE_SIZE_MAX || !valid_utf8(text, strlen(text)))
                return error_set(err, ERR_INVALID, "%s is no recipe: at most 256 KiB of UTF-8 text", origin);
        if (text_includes(text))
                return error_set(err, ERR_INVALID, "%s: @include is not allowed in a recipe", origin);
        (void) digest_bytes(text, strlen(text), recipe->digest);
        config_init(&config);
        if (config_read_string(&config, text) == CONFIG_TRUE)
                r = recipe_read(origin, &config, suite, recipe, err);
        else
                r = error_set(err, ERR_INVALID, "%s:%d: %s", origin, config_error_line(&config), config_error_text(&config));
        config_destroy(&config);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(recipe);
        return 0;
}

Recipe *recipe_free(Recipe *recipe) {
        if (!recipe)
                return NULL;
        for (size_t i = 0; i < recipe->n_users; i++) {
                RecipeUser *u = &recipe->users[i];
                free(u->name);
                free(u->shell);
                free(u->subids);
                strv_free(u->groups);
        }
        for (size_t i = 0; i < recipe->n_files; i++) {
                RecipeFile *f = &recipe->files[i];
                free(f->path);
                free(f->mode);
                free(f->content);
        }
        free(recipe->users);
        free(recipe->files);
        free(recipe->name);
        free(recipe->description);
        free(recipe->suite);
        free(recipe->variant);
        strv_free(recipe->packages);
        strv_free(recipe->packages_bookworm);
        strv_free(recipe->packages_trixie);
        strv_free(recipe->mask_units);
        strv_free(recipe->enable_units);
        strv_free(recipe->cleanup);
        free(recipe);
        return NULL;
}

char **recipe_packages(const Recipe *recipe) {
        char **all = strv_copy(recipe->packages);
        char **more = strcmp(recipe->suite, "bookworm") == 0 ? recipe->packages_bookworm : recipe->packages_trixie;

        for (size_t i = 0; i < strv_length(more); i++)
                if (strv_append(&all, more[i]) < 0)
                        return strv_free(all);
        return all;
}
