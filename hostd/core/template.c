// SPDX-License-Identifier: GPL-2.0-or-later
// Template: see template.h. The registry itself.
#include "core/template.h"

#include <assert.h>
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/valid.h"
#include "core/template-internal.h"

char *template_digest_path(const char *digest, const char *suffix, char *ret) {
        // A digest was checked where it came in; a path made of anything else would be our own bug.
        assert(valid_is(VALID_DIGEST, digest));
        (void) snprintf(ret, TEMPLATE_NAME_MAX, "%.64s%s", digest, suffix);
        return ret;
}

static Template *template_free(Template *t) {
        if (!t)
                return NULL;
        manifest_free(t->manifest);
        free(t);
        return NULL;
}
DEFINE_CLEANUP(Template, template_free)

static int template_compare(const void *a, const void *b) {
        const Template *x = *(Template *const *) a, *y = *(Template *const *) b;
        int order = strcmp(x->manifest->name, y->manifest->name);

        if (order == 0)
                order = x->added < y->added ? 1 : x->added > y->added ? -1 : 0;
        return order ?: strcmp(x->manifest->digest, y->manifest->digest);
}

static int registry_add(TemplateRegistry *r, Template *t) {
        Template **grown = reallocarray(r->items, r->n_items + 1, sizeof(*grown));

        if (!grown)
                return -ENOMEM;
        r->items = grown;
        grown[r->n_items++] = t;
        qsort(grown, r->n_items, sizeof(*grown), template_compare);
        return 0;
}

static void registry_drop(TemplateRegistry *r, Template *t) {
        for (size_t i = 0; i < r->n_items; i++)
                if (r->items[i] == t) {
                        memmove(r->items + i, r->items + i + 1, (--r->n_items - i) * sizeof(*r->items));
                        break;
                }
        (void) template_free(t);
}

int template_registry_load(TemplateRegistry *r, const char *digest, Error *err) {
        _cleanup_(template_freep) Template *t = NULL;
        _cleanup_free_ char *text = NULL;
        char name[TEMPLATE_NAME_MAX];
        struct stat st;
        size_t size;
        int k;

        if (template_find(r, digest))
                return 0;
        t = calloc(1, sizeof(*t));
        if (!t)
                return error_set_errno(err, ENOMEM, "template");
        k = io_read_file(r->images_fd, template_digest_path(digest, ".json", name), MANIFEST_SIZE_MAX, &text, &size);
        if (k < 0)
                return error_set_errno(err, k, "cannot read %s", name);
        if (fstatat(r->images_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return error_set_errno(err, errno, "cannot look at %s", name);
        t->added = (usec_t) st.st_mtim.tv_sec * USEC_PER_SEC + (usec_t) st.st_mtim.tv_nsec / 1000;
        k = manifest_parse(text, size, &t->manifest, err);
        if (k < 0)
                return k;
        if (strcmp(t->manifest->digest, digest) != 0)
                return error_set(err, ERR_INVALID, "%s is the manifest of another image", name);
        if (fstatat(r->images_fd, template_digest_path(digest, ".erofs", name), &st, AT_SYMLINK_NOFOLLOW) < 0)
                return error_set_errno(err, errno, "cannot look at %s", name);
        if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size != t->manifest->size_bytes)
                return error_set(err, ERR_INVALID, "%s is not the file its manifest describes", name);
        t->mounted = template_is_mounted(r, digest);
        k = registry_add(r, t);
        if (k < 0)
                return error_set_errno(err, k, "template");
        t = NULL;
        return 0;
}

// An adoption that was cut short left an image without its manifest, or had only its marker to remove.
static void registry_finish_adoption(TemplateRegistry *r, const char *digest) {
        char name[TEMPLATE_NAME_MAX];

        if (!valid_is(VALID_DIGEST, digest))
                return;
        if (faccessat(r->images_fd, template_digest_path(digest, ".json", name), F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                (void) unlinkat(r->images_fd, template_digest_path(digest, ".erofs", name), 0);
        (void) unlinkat(r->images_fd, template_digest_path(digest, TEMPLATE_ADOPTING, name), 0);
}

static int registry_scan(TemplateRegistry *r, Error *err) {
        struct dirent **names = NULL;
        int n;

        io_sweep_temporaries(r->images_fd, ".");
        n = scandirat(r->images_fd, ".", &names, NULL, NULL);
        if (n < 0)
                return error_set_errno(err, errno, "cannot list the templates");
        for (int i = 0; i < n; i++) {
                _cleanup_error_ Error e = ERROR_NULL;
                char *dot = strchr(names[i]->d_name, '.');
                // Junk is ignored; a damaged template is reported and not offered. Neither stops hostd.
                if (dot && strcmp(dot, ".json") == 0) {
                        *dot = 0;
                        int k = valid_is(VALID_DIGEST, names[i]->d_name) ? template_registry_load(r, names[i]->d_name, &e) : 0;
                        if (k < 0)
                                log_warning("template %s is ignored: %s", names[i]->d_name, error_message(&e, k));
                } else if (dot && strcmp(dot, ".tmp") == 0)
                        (void) unlinkat(r->images_fd, names[i]->d_name, 0); // of an adoption that was cut short
                else if (dot && strcmp(dot, TEMPLATE_ADOPTING) == 0) {
                        *dot = 0;
                        registry_finish_adoption(r, names[i]->d_name);
                }
                free(names[i]);
        }
        free(names);
        return 0;
}

// Emptied, not removed and made anew: on a full disk that may fail, and hostd must come up on one.
static int registry_clear_builds(TemplateRegistry *r) {
        _cleanup_close_ int fd = -EBADF;
        struct dirent **names = NULL;
        int k = io_mkdir_p(r->state_fd, "build", 0700), n;

        if (k < 0)
                return k;
        fd = openat(r->state_fd, "build", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        n = fd < 0 ? -1 : scandirat(fd, ".", &names, NULL, NULL);
        if (n < 0)
                return -errno;
        for (int i = 0; i < n; i++) {
                if (k == 0 && strcmp(names[i]->d_name, ".") != 0 && strcmp(names[i]->d_name, "..") != 0)
                        k = io_remove_tree(fd, names[i]->d_name);
                free(names[i]);
        }
        free(names);
        return k;
}

int template_registry_new(int state_fd, const char *run_dir, TemplateRegistry **ret, Error *err) {
        _cleanup_(template_registry_freep) TemplateRegistry *r = calloc(1, sizeof(*r));
        int k;

        if (!r)
                return error_set_errno(err, ENOMEM, "templates");
        r->images_fd = -EBADF;
        r->state_fd = fcntl(state_fd, F_DUPFD_CLOEXEC, 3);
        r->run_dir = strdup(run_dir);
        if (r->state_fd < 0 || !r->run_dir)
                return error_set_errno(err, r->state_fd < 0 ? errno : ENOMEM, "templates");
        k = io_mkdir_p(r->state_fd, "templates", 0700);
        if (k >= 0)
                k = registry_clear_builds(r);
        if (k < 0)
                return error_set_errno(err, k, "cannot prepare the directories of the templates");
        r->images_fd = openat(r->state_fd, "templates", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (r->images_fd < 0)
                return error_set_errno(err, errno, "cannot open the templates' directory");
        k = registry_scan(r, err);
        if (k < 0)
                return k;
        *ret = TAKE_PTR(r);
        return 0;
}

TemplateRegistry *template_registry_free(TemplateRegistry *r) {
        if (!r)
                return NULL;
        for (size_t i = 0; i < r->n_items; i++)
                (void) template_free(r->items[i]);
        free(r->items);
        free(r->run_dir);
        (void) close_fd(r->images_fd);
        (void) close_fd(r->state_fd);
        free(r);
        return NULL;
}

Template *template_find(TemplateRegistry *r, const char *name_or_digest) {
        bool digest = valid_is(VALID_DIGEST, name_or_digest);

        // Sorted: the first of a name is its newest.
        for (size_t i = 0; i < r->n_items; i++)
                if (strcmp(digest ? r->items[i]->manifest->digest : r->items[i]->manifest->name, name_or_digest) == 0)
                        return r->items[i];
        return NULL;
}

json_t *template_list_json(TemplateRegistry *r) {
        json_t *rows = json_array();

        for (size_t i = 0; rows && i < r->n_items; i++) {
                const Template *t = r->items[i];
                const Manifest *m = t->manifest;
                json_t *row = json_pack("{s:s, s:s, s:s?, s:s, s:I, s:I, s:s?, s:b, s:b}", "name", m->name, "digest", m->digest, "suite",
                                        m->suite, "built", m->built, "size", (json_int_t) m->size_bytes, "packages",
                                        (json_int_t) json_object_size(m->packages), "recipe", m->recipe[0] ? m->recipe : NULL, "newest",
                                        template_find(r, m->name) == t, "mounted", t->mounted);
                if (json_array_append_new(rows, row) < 0) {
                        json_decref(rows);
                        return NULL;
                }
        }
        return rows ? json_pack("{s:o}", "templates", rows) : NULL;
}

json_t *template_show_json(const Template *t) {
        return manifest_to_json(t->manifest);
}

int template_verify(TemplateRegistry *r, const char *digest, Error *err) {
        char name[TEMPLATE_NAME_MAX], found[DIGEST_TEXT_MAX];
        _cleanup_close_ int fd = -EBADF;
        int k;

        if (!valid_is(VALID_DIGEST, digest) || !template_find(r, digest))
                return error_set(err, ERR_NOT_FOUND, "there is no such template");
        fd = openat(r->images_fd, template_digest_path(digest, ".erofs", name), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        k = fd < 0 ? -errno : digest_fd(fd, found);
        if (k < 0)
                return error_set_errno(err, k, "cannot read %s", name);
        if (strcmp(found, digest) != 0)
                return error_set(err, ERR_INVALID, "the image %s was changed on disk", name);
        return 0;
}

static int registry_delete(TemplateRegistry *r, Template *t, char *const *used, Error *err) {
        char image[TEMPLATE_NAME_MAX], manifest[TEMPLATE_NAME_MAX];
        const char *digest = t->manifest->digest;
        int k;

        if (strv_contains(used, digest) || t->refs > 0)
                return error_set(err, ERR_BUSY, "the template %s (%.12s) is used by an instance", t->manifest->name, digest);
        k = template_detach(r, digest, err);
        if (k < 0)
                return k;
        // The manifest first: an image without one is nothing, a manifest without an image would be reported.
        if ((unlinkat(r->images_fd, template_digest_path(digest, ".json", manifest), 0) < 0 && errno != ENOENT) ||
            (unlinkat(r->images_fd, template_digest_path(digest, ".erofs", image), 0) < 0 && errno != ENOENT))
                return error_set_errno(err, errno, "cannot delete the template %.12s", digest);
        registry_drop(r, t);
        if (fsync(r->images_fd) < 0)
                return error_set_errno(err, errno, "cannot sync the templates' directory");
        return 0;
}

int template_delete(TemplateRegistry *r, const char *name_or_digest, char *const *used, Error *err) {
        Template *t = valid_is(VALID_TEMPLATE, name_or_digest) ? template_find(r, name_or_digest) : NULL;

        if (!t)
                return error_set(err, ERR_NOT_FOUND, "there is no such template");
        return registry_delete(r, t, used, err);
}

int template_prune(TemplateRegistry *r, char *const *used, char ***ret_deleted, Error *err) {
        _cleanup_strv_ char **deleted = NULL;
        int k;

        for (size_t i = 0; i < r->n_items;) {
                Template *t = r->items[i];
                if (template_find(r, t->manifest->name) == t || t->refs > 0 || strv_contains(used, t->manifest->digest)) {
                        i++;
                        continue;
                }
                k = strv_append(&deleted, t->manifest->digest);
                if (k < 0)
                        return error_set_errno(err, k, "prune");
                k = registry_delete(r, t, used, err);
                if (k < 0)
                        return k;
        }
        *ret_deleted = TAKE_PTR(deleted);
        return 0;
}
