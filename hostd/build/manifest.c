// SPDX-License-Identifier: GPL-2.0-or-later
// Manifest: see manifest.h.
#include "build/manifest.h"

#include <stddef.h>
#include <string.h>

#include "base/strv.h"
#include "base/valid.h"

#define IMAGE_SIZE_MAX ((json_int_t) 64 << 30)

static bool version_is_valid(const char *text) {
        size_t n = strlen(text);

        return n > 0 && n <= 255 &&
               strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-:~") == n;
}

static bool time_is_valid(const char *text) {
        static const char form[] = "dddd-dd-ddTdd:dd:dd.ddddddZ";

        if (strlen(text) != sizeof(form) - 1)
                return false;
        for (size_t i = 0; form[i]; i++)
                if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i])
                        return false;
        return true;
}

typedef struct ManifestField {
        const char *key;
        ValidKind kind;
        size_t offset;
        bool array;    // a char[DIGEST_TEXT_MAX], not a pointer
        bool optional; // null or absent
} ManifestField;

#define M(member) offsetof(Manifest, member)

static const ManifestField manifest_fields[] = {
        {"architecture", VALID_NAME, M(architecture), false, true},
        {"built", VALID_TEXT, M(built), false, false},
        {"digest", VALID_DIGEST, M(digest), true, false},
        {"name", VALID_NAME, M(name), false, false},
        {"recipe", VALID_DIGEST, M(recipe), true, true},
        {"suite", VALID_SUITE, M(suite), false, true},
};

static int manifest_field(Manifest *m, const ManifestField *f, const json_t *value, Error *err) {
        void *out = (char *) m + f->offset;
        const char *text;
        int r;

        if (!value || json_is_null(value))
                return f->optional ? 0 : error_set_field(err, f->key, "the manifest has no %s", f->key);
        text = json_string_value(value);
        if (!text || strlen(text) != json_string_length(value))
                return error_set_field(err, f->key, "the manifest's %s is no plain string", f->key);
        r = valid_check(f->kind, f->key, text, err);
        if (r < 0)
                return r;
        if (f->array) {
                memcpy(out, text, DIGEST_TEXT_MAX);
                return 0;
        }
        *(char **) out = strdup(text);
        return *(char **) out ? 0 : error_set_errno(err, ENOMEM, "manifest");
}

static int manifest_packages(Manifest *m, json_t *packages, Error *err) {
        const char *name;
        json_t *version;

        if (!json_is_object(packages) || json_object_size(packages) > MANIFEST_PACKAGES_MAX)
                return error_set_field(err, "packages", "the manifest's packages are no object of at most %d entries",
                                       MANIFEST_PACKAGES_MAX);
        json_object_foreach(packages, name, version) {
                const char *text = json_string_value(version);
                if (!valid_is(VALID_PACKAGE, name) || !text || strlen(text) != json_string_length(version) ||
                    !version_is_valid(text))
                        return error_set_field(err, "packages", "the manifest names a package or version that is none");
        }
        m->packages = json_incref(packages);
        return 0;
}

bool manifest_mirror_is_valid(const char *text) {
        const char *colon = strchr(text, ':');
        char host[256];
        size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
        unsigned long port = digits > 0 && digits <= 5 && colon[1] != '0' && colon[1 + digits] == 0 ? strtoul(colon + 1, NULL, 10) : 0;

        if (port < 1 || port > UINT16_MAX || port == 53 || port == 853 || (size_t) (colon - text) >= sizeof(host))
                return false;
        (void) snprintf(host, sizeof(host), "%.*s", (int) (colon - text), text);
        return valid_is(VALID_HOST, host);
}

static int manifest_read_mirrors(Manifest *m, const json_t *mirrors, Error *err) {
        json_t *value;
        size_t i;

        if (!mirrors)
                return 0;
        if (!json_is_array(mirrors) || json_array_size(mirrors) > MANIFEST_MIRRORS_MAX)
                return error_set_field(err, "mirrors", "the manifest's mirrors are no list of at most %d entries", MANIFEST_MIRRORS_MAX);
        m->asked = true;
        json_array_foreach(mirrors, i, value) {
                const char *text = json_string_value(value);
                if (!text || strlen(text) != json_string_length(value) || !manifest_mirror_is_valid(text) || strv_contains(m->mirrors, text))
                        return error_set_field(err, "mirrors", "the manifest's mirrors have one that is no HOST:PORT, or one twice");
                if (strv_append(&m->mirrors, text) < 0)
                        return error_set_errno(err, ENOMEM, "manifest");
        }
        return 0;
}

static bool manifest_knows(const char *key) {
        for (size_t i = 0; i < ELEMENTS(manifest_fields); i++)
                if (strcmp(key, manifest_fields[i].key) == 0)
                        return true;
        return strcmp(key, "size") == 0 || strcmp(key, "packages") == 0 || strcmp(key, "version") == 0 || strcmp(key, "mirrors") == 0;
}

static int manifest_read(Manifest *m, json_t *root, Error *err) {
        const json_t *size = json_object_get(root, "size");
        const char *key;
        json_t *value;
        int r = 0;

        json_object_foreach(root, key, value)
                if (!manifest_knows(key))
                        return error_set(err, ERR_INVALID, "the manifest has an unknown key");
        if (json_integer_value(json_object_get(root, "version")) != 1)
                return error_set_field(err, "version", "the manifest's version is not 1");
        for (size_t i = 0; r >= 0 && i < ELEMENTS(manifest_fields); i++)
                r = manifest_field(m, &manifest_fields[i], json_object_get(root, manifest_fields[i].key), err);
        if (r < 0)
                return r;
        if (!time_is_valid(m->built))
                return error_set_field(err, "built", "the manifest's built is no time");
        if (!json_is_integer(size) || json_integer_value(size) < 1 || json_integer_value(size) > IMAGE_SIZE_MAX)
                return error_set_field(err, "size", "the manifest's size is not a number of bytes");
        m->size_bytes = (uint64_t) json_integer_value(size);
        int k = manifest_read_mirrors(m, json_object_get(root, "mirrors"), err);
        return k < 0 ? k : manifest_packages(m, json_object_get(root, "packages"), err);
}

int manifest_parse(const char *text, size_t size, Manifest **ret, Error *err) {
        _cleanup_(manifest_freep) Manifest *m = NULL;
        json_error_t e;
        json_t *root;
        int r;

        if (size > MANIFEST_SIZE_MAX)
                return error_set(err, ERR_INVALID, "the manifest is larger than 1 MiB");
        m = calloc(1, sizeof(*m));
        if (!m)
                return error_set_errno(err, ENOMEM, "manifest");
        // Jansson bounds the depth itself (2048 levels).
        root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &e);
        if (!json_is_object(root)) {
                json_decref(root);
                return error_set(err, ERR_INVALID, "the manifest is no JSON object");
        }
        r = manifest_read(m, root, err);
        json_decref(root);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(m);
        return 0;
}

json_t *manifest_to_json(const Manifest *m) {
        json_t *root = json_pack("{s:i, s:s?, s:s?, s:s?, s:s, s:s, s:s?, s:I, s:O}", "version", 1, "name", m->name, "suite", m->suite,
                                 "architecture", m->architecture, "built", m->built, "digest", m->digest, "recipe",
                                 m->recipe[0] ? m->recipe : NULL, "size", (json_int_t) m->size_bytes, "packages", m->packages);
        json_t *mirrors = root && m->asked ? json_array() : NULL;

        for (char **p = m->mirrors; mirrors && p && *p; p++)
                (void) json_array_append_new(mirrors, json_string(*p));
        if (mirrors)
                (void) json_object_set_new(root, "mirrors", mirrors);
        return root;
}

char *manifest_format(const Manifest *m) {
        json_t *root = manifest_to_json(m);
        char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL, *line = NULL;

        json_decref(root);
        if (text && asprintf(&line, "%s\n", text) < 0)
                line = NULL;
        free(text);
        return line;
}

Manifest *manifest_free(Manifest *m) {
        if (!m)
                return NULL;
        free(m->name);
        free(m->suite);
        free(m->architecture);
        free(m->built);
        json_decref(m->packages);
        strv_free(m->mirrors);
        free(m);
        return NULL;
}

typedef struct StatusEntry {
        char name[256], version[256], architecture[64];
        bool installed;
} StatusEntry;

static void status_copy(char *to, size_t size, const char *line, size_t n, const char *key) {
        size_t k = strlen(key);

        if (n <= k || strncmp(line, key, k) != 0 || n - k >= size)
                return;
        memcpy(to, line + k, n - k);
        to[n - k] = 0;
}

static int status_end(Manifest *m, StatusEntry *e, Error *err) {
        char key[400];
        bool installed = e->installed;

        e->installed = false;
        if (!installed || !e->name[0])
                return 0;
        // A second architecture of one package needs a name of its own.
        (void) snprintf(key, sizeof(key), "%s%s%s", e->name, json_object_get(m->packages, e->name) ? ":" : "",
                        json_object_get(m->packages, e->name) ? e->architecture : "");
        if (json_object_size(m->packages) >= MANIFEST_PACKAGES_MAX || !valid_is(VALID_PACKAGE, key) ||
            !version_is_valid(e->version))
                return error_set(err, ERR_INVALID, "the image's dpkg status names a package or version that is none");
        if (strcmp(e->name, "dpkg") == 0 && !m->architecture && valid_is(VALID_NAME, e->architecture))
                m->architecture = strdup(e->architecture);
        return json_object_set_new(m->packages, key, json_string(e->version)) < 0 ? error_set_errno(err, ENOMEM, "packages") : 0;
}

int manifest_add_packages(Manifest *m, const char *status, Error *err) {
        StatusEntry e = {0};
        int r = 0;

        for (const char *line = status; r >= 0; line++) {
                size_t n = strcspn(line, "\n");
                if (n == 0) {
                        r = status_end(m, &e, err);
                        e = (StatusEntry) {0};
                }
                status_copy(e.name, sizeof(e.name), line, n, "Package: ");
                status_copy(e.version, sizeof(e.version), line, n, "Version: ");
                status_copy(e.architecture, sizeof(e.architecture), line, n, "Architecture: ");
                if (n >= 28 && strncmp(line, "Status: ", 8) == 0 && memmem(line, n, " ok installed", 13))
                        e.installed = true;
                line += n;
                if (!*line)
                        break;
        }
        return r < 0 ? r : status_end(m, &e, err);
}
