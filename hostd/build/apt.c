// SPDX-License-Identifier: GPL-2.0-or-later
// Apt: see apt.h. Reads one-line and deb822 files; an entry counts when its suite is the host's own release or an update
// or security pocket of it.
#include "build/apt.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/strv.h"

#define APT_FILE_MAX ((size_t) 1 << 20)

typedef struct Apt {
        const char *codename; // the host's
        const char *suite;    // asked for
        const char *keyring;  // of Debian, or NULL
        char **lines, **image_lines;
} Apt;

static const char *const apt_pockets[] = {"", "-updates", "-security", "/updates"};

// The same pocket of the suite asked for, or NULL when `suite` is not one of the host's release.
static const char *apt_pocket(const Apt *apt, const char *suite) {
        size_t n = strlen(apt->codename);
        const char *tail;

        if (strncmp(suite, apt->codename, n) == 0)
                tail = suite + n;
        else if (strncmp(suite, "stable", 6) == 0)
                tail = suite + 6;
        else
                return NULL;
        for (size_t i = 0; i < ELEMENTS(apt_pockets); i++)
                if (strcmp(tail, apt_pockets[i]) == 0)
                        return apt_pockets[i];
        return NULL;
}

static bool apt_word(const char *text) {
        for (const char *p = text; *p; p++)
                if ((unsigned char) *p <= 0x20 || *p == '[' || *p == ']' || (unsigned char) *p >= 0x7f)
                        return false;
        return *text;
}

static int apt_line(char ***lines, const char *options, const char *uri, const char *suite, const char *pocket) {
        char *line = NULL;
        int r;

        if (asprintf(&line, "deb %s%s %s%s main", options, uri, suite, pocket) < 0)
                return -ENOMEM;
        r = strv_contains(*lines, line) ? 0 : strv_append(lines, line);
        free(line);
        return r;
}

static int apt_entry(Apt *apt, const char *uri, const char *suite, const char *signed_by) {
        const char *pocket = apt_pocket(apt, suite), *scheme = strstr(uri, "://");
        const char *keyring = apt->keyring ?: signed_by && signed_by[0] == '/' ? signed_by : NULL;
        _cleanup_free_ char *options = NULL, *plain = NULL;
        const char *at;
        int r;

        if (!pocket || !scheme || !apt_word(uri) || (keyring && !apt_word(keyring)))
                return 0;
        if (asprintf(&options, keyring ? "[signed-by=%s] " : "%s", keyring ?: "") < 0) {
                options = NULL;
                return -ENOMEM;
        }
        scheme += 3;
        at = memchr(scheme, '@', strcspn(scheme, "/"));
        if (asprintf(&plain, "%.*s%s", (int) (scheme - uri), uri, at ? at + 1 : scheme) < 0) {
                plain = NULL;
                return -ENOMEM;
        }
        r = apt_line(&apt->lines, options, uri, apt->suite, pocket);
        return r < 0 ? r : apt_line(&apt->image_lines, options, plain, apt->suite, pocket);
}

// "deb [options] URI SUITE COMPONENT…"
static int apt_one_line(Apt *apt, char *line) {
        const char *signed_by = NULL;
        _cleanup_strv_ char **words = NULL;
        char *open = strchr(line, '['), *close = open ? strchr(open, ']') : NULL;
        int r;

        line[strcspn(line, "#")] = 0;
        if (open && close && open < close) {
                char *s = strstr(open, "signed-by=");
                if (s && s < close) {
                        signed_by = s + 10;
                        s[10 + strcspn(s + 10, " ]")] = 0;
                }
        }
        r = strv_split(open && close ? close + 1 : line, " \t\r", &words);
        if (r < 0 || strncmp(line, "deb", 3) != 0 || (line[3] != ' ' && line[3] != '\t'))
                return r;
        size_t first = open && close ? 0 : 1;
        return strv_length(words) < first + 2 ? 0 : apt_entry(apt, words[first], words[first + 1], signed_by);
}

static int apt_list(Apt *apt, char *text) {
        char *save = NULL;
        int r = 0;

        for (char *line = strtok_r(text, "\n", &save); line && r >= 0; line = strtok_r(NULL, "\n", &save))
                r = apt_one_line(apt, line + strspn(line, " \t"));
        return r;
}

typedef struct Stanza {
        char **types, **uris, **suites, **signed_by;
        bool disabled;
} Stanza;

static int stanza_end(Apt *apt, Stanza *s) {
        int r = 0;

        for (size_t u = 0; !s->disabled && strv_contains(s->types, "deb") && u < strv_length(s->uris); u++)
                for (size_t i = 0; i < strv_length(s->suites) && r >= 0; i++)
                        r = apt_entry(apt, s->uris[u], s->suites[i], s->signed_by ? s->signed_by[0] : NULL);
        strv_free(s->types);
        strv_free(s->uris);
        strv_free(s->suites);
        strv_free(s->signed_by);
        *s = (Stanza) {0};
        return r;
}

static int stanza_line(Stanza *s, const char *line) {
        const struct {
                const char *key;
                char ***values;
        } keys[] = {{"Types:", &s->types}, {"URIs:", &s->uris}, {"Suites:", &s->suites}, {"Signed-By:", &s->signed_by}};

        if (strncasecmp(line, "Enabled:", 8) == 0 && strcasestr(line + 8, "no"))
                s->disabled = true;
        for (size_t i = 0; i < ELEMENTS(keys); i++)
                if (strncasecmp(line, keys[i].key, strlen(keys[i].key)) == 0 && !*keys[i].values)
                        return strv_split(line + strlen(keys[i].key), " \t\r", keys[i].values);
        return 0;
}

static int apt_deb822(Apt *apt, char *text) {
        Stanza stanza = {0};
        int r = 0, k;

        for (char *line = text, *next; line && r >= 0; line = next) {
                next = strchr(line, '\n');
                if (next)
                        *next++ = 0;
                if (line[strspn(line, " \t\r")] == 0)
                        r = stanza_end(apt, &stanza);
                else if (line[0] != '#')
                        r = stanza_line(&stanza, line);
        }
        k = stanza_end(apt, &stanza);
        return r < 0 ? r : k;
}

static int apt_file(Apt *apt, int dir, const char *name) {
        _cleanup_free_ char *text = NULL;
        size_t n = strlen(name);
        bool deb822 = n > 8 && strcmp(name + n - 8, ".sources") == 0;

        if (!deb822 && (n < 6 || strcmp(name + n - 5, ".list") != 0))
                return 0;
        // Unreadable or absent: nothing to take from it. The caller says so when nothing is left at all.
        if (io_read_file(dir, name, APT_FILE_MAX, &text, NULL) < 0)
                return 0;
        return deb822 ? apt_deb822(apt, text) : apt_list(apt, text);
}

static int apt_files(Apt *apt, const char *root) {
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct dirent **names = NULL;
        int n, r;

        if (asprintf(&path, "%s/etc/apt", root) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return 0;
        r = apt_file(apt, fd, "sources.list");
        n = scandirat(fd, "sources.list.d", &names, NULL, alphasort);
        for (int i = 0; i < n; i++) {
                _cleanup_free_ char *name = NULL;
                if (r >= 0 && asprintf(&name, "sources.list.d/%s", names[i]->d_name) < 0)
                        name = NULL, r = -ENOMEM;
                if (r >= 0)
                        r = apt_file(apt, fd, name);
                free(names[i]);
        }
        free(names);
        return r;
}

static char *os_codename(const char *root) {
        _cleanup_free_ char *path = NULL, *text = NULL;
        char *p;

        if (asprintf(&path, "%s/usr/lib/os-release", root) < 0) {
                path = NULL;
                return NULL;
        }
        if (io_read_file(AT_FDCWD, path, 65536, &text, NULL) < 0)
                return NULL;
        p = strstr(text, "\nVERSION_CODENAME=");
        if (!p)
                return NULL;
        p += strlen("\nVERSION_CODENAME=");
        p += *p == '"';
        return strndup(p, strspn(p, "abcdefghijklmnopqrstuvwxyz"));
}

int apt_sources(const char *root, const char *suite, char **ret_sources, char **ret_image, Error *err) {
        static const char keyring[] = "/usr/share/keyrings/debian-archive-keyring.gpg";
        _cleanup_free_ char *codename = os_codename(root), *path = NULL;
        _cleanup_strv_ char **lines = NULL, **image_lines = NULL;
        Apt apt = {.codename = codename, .suite = suite};
        char *text, *image;
        int r;

        if (!codename || !*codename)
                return error_set(err, ERR_UNAVAILABLE, "cannot tell this host's Debian release from os-release");
        if (asprintf(&path, "%s%s", root, keyring) < 0)
                path = NULL;
        // Knows every release's keys; a key file per release would not do for another suite.
        if (path && access(path, R_OK) == 0)
                apt.keyring = keyring;
        r = apt_files(&apt, root);
        lines = apt.lines;
        image_lines = apt.image_lines;
        if (r < 0)
                return error_set_errno(err, r, "cannot read the host's package sources");
        if (!lines)
                return error_set(err, ERR_UNAVAILABLE, "/etc/apt names no package source for this host's release (%s)", codename);
        strv_append(&lines, "");
        strv_append(&image_lines, "");
        text = strv_join(lines, "\n");
        image = strv_join(image_lines, "\n");
        if (!text || !image) {
                free(text);
                free(image);
                return error_set_errno(err, ENOMEM, "package sources");
        }
        *ret_sources = text;
        *ret_image = image;
        return 0;
}

// Rows: prefix of an apt option, and whether it may stay in the image.
static const struct {
        const char *prefix;
        bool image;
} apt_option_rows[] = {
        {"Acquire::http::", false},          {"Acquire::https::", false},      {"Acquire::ftp::", false},
        {"Acquire::Check-Valid-Until", true}, {"Acquire::Check-Date", true},    {"Acquire::Retries", false},
        {"Acquire::ForceIPv4", false},       {"Acquire::ForceIPv6", false},    {"Acquire::Languages", true},
};

int apt_options(const char *dump, char **ret_build, char **ret_image, Error *err) {
        _cleanup_strv_ char **lines = NULL, **build = NULL, **image = NULL;
        char *b, *i;
        int r = strv_split(dump, "\n", &lines);

        for (size_t k = 0; r >= 0 && k < strv_length(lines); k++)
                for (size_t row = 0; row < ELEMENTS(apt_option_rows); row++) {
                        if (strncasecmp(lines[k], apt_option_rows[row].prefix, strlen(apt_option_rows[row].prefix)) != 0)
                                continue;
                        r = strv_append(&build, lines[k]);
                        if (r >= 0 && apt_option_rows[row].image)
                                r = strv_append(&image, lines[k]);
                        break;
                }
        if (r >= 0)
                r = strv_append(&build, "");
        if (r >= 0 && image)
                r = strv_append(&image, "");
        b = r < 0 ? NULL : strv_join(build, "\n");
        i = r < 0 ? NULL : strv_join(image, "\n");
        if (!b || !i) {
                free(b);
                free(i);
                return error_set_errno(err, ENOMEM, "apt options");
        }
        *ret_build = b;
        *ret_image = i;
        return 0;
}
