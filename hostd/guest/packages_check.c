// SPDX-License-Identifier: GPL-2.0-or-later
// Packages, check: see packages_check.h. What clients read, and in which order, is in tables; the code knows two kinds of text, key = value and a shell's.
#include "guest/packages_check.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "guest/user.h"

#define AGENT "1000"
#define TEXT_MAX ((size_t) 256 << 10)
#define WORDS_MAX 6 // of a list; the last is NULL
#define VALUE_MAX 64 // bytes of a value that are compared
#define PATH_ROOM 1024
#define NAMES_MAX 256 // of a directory
#define UNREADABLE (-1)

struct PackagesSetting {
        const char *client, *name; // name "": the client has no setting for this
        uint32_t flag;
        const char *programs[WORDS_MAX];
        const char *section;            // in which it stands, if the file has any
        const char *same[WORDS_MAX];    // values that do what hostd's does; "" is the key alone
        const char *against[WORDS_MAX]; // keys beside it that undo it, or have another file read, whatever their value is
        const char *variable;
        const char *variables_against[WORDS_MAX];
        const char *ours[WORDS_MAX];  // where hostd writes it; all are looked at: which counts depends on where the client is
        const char *later[WORDS_MAX]; // read after these, the last one wins; "~" is the user's home
};

#define NPM_FILES .ours = {"/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"}, .later = {"~/.npmrc"}
#define PIP_FILES \
        .ours = {"/etc/xdg/pip/pip.conf"}, .later = {"/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf", "/usr/pip.conf", "/usr/local/pip.conf"}
#define PIP_PROGRAMS .programs = {"pip", "pip3"}, .section = "install"

static const PackagesSetting settings[] = {
        {"npm", "ignore-scripts", GUEST_PACKAGES_NO_SCRIPTS, .programs = {"npm"}, .same = {"true", ""}, .against = {"globalconfig"},
         .variable = "npm_config_ignore_scripts", .variables_against = {"npm_config_globalconfig", "npm_config_userconfig", "npm_config_prefix"}, NPM_FILES},
        {"pip", "require-hashes", GUEST_PACKAGES_LOCKED, PIP_PROGRAMS, .same = {"true", "yes", "on", "1"}, .variable = "PIP_REQUIRE_HASHES",
         .variables_against = {"PIP_CONFIG_FILE"}, PIP_FILES},
        {"pip", "only-binary", GUEST_PACKAGES_NO_SCRIPTS, PIP_PROGRAMS, .same = {":all:"}, .against = {"no-binary"}, .variable = "PIP_ONLY_BINARY",
         .variables_against = {"PIP_NO_BINARY", "PIP_CONFIG_FILE"}, PIP_FILES},
        {"apt", "", 0, .programs = {"apt-get"}},
        {"cargo", "", 0, .programs = {"cargo"}},
        {"go", "", 0, .programs = {"go"}},
};

// Where programs are, for a user.
static const char *const program_places[] = {"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/go/bin", "~/.local/bin", "~/bin", "~/.cargo/bin"};

// In which a session finds variables; the last one wins. Of a directory each file.
static const char *const profiles[] = {"/etc/environment", "/etc/environment.d", "/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/zsh/zshenv", "~/.pam_environment",
                                       "~/.config/environment.d", "~/.profile", "~/.bash_profile", "~/.bash_login", "~/.bashrc", "~/.zshenv", "~/.zprofile", "~/.zshrc",
                                       "~/.config/fish/config.fish"};

const PackagesSetting *packages_setting(const char *client, const char *name) {
        for (size_t i = 0; i < ELEMENTS(settings); i++)
                if (strcmp(settings[i].client, client) == 0 && strcmp(settings[i].name, name) == 0)
                        return &settings[i];
        return NULL;
}

static bool is_one_of(const char *const *list, const char *word) {
        for (; *list; list++)
                if (strcasecmp(*list, word) == 0)
                        return true;
        return false;
}

// ---- text ----

// In place: without white space and quotes around it.
static char *trimmed(char *text) {
        size_t n;

        text += strspn(text, " \t\r\"'");
        for (n = strlen(text); n > 0 && strchr(" \t\r\"'", text[n - 1]); n--)
                ;
        text[n] = 0;
        return text;
}

// Clients take an underscore for a hyphen.
static char *as_key(char *text) {
        text = trimmed(text);
        for (char *c = text; *c; c++)
                *c = *c == '_' ? '-' : (char) tolower((unsigned char) *c);
        return text;
}

// The section that the line is in; NULL: as before.
static const char *section_of(char *line) {
        char *end = *line == '[' ? strchr(line, ']') : NULL;

        if (!end)
                return NULL;
        *end = 0;
        return trimmed(line + 1);
}

static PackagesFound found_in_line(const PackagesSetting *s, char *line) {
        char *value = strpbrk(line, s->section ? "=:" : "="), *key;

        if (value)
                *value++ = 0;
        key = as_key(line);
        if (is_one_of(s->against, key))
                return PACKAGES_FOUND_OTHER;
        if (strcmp(key, s->name) != 0)
                return PACKAGES_FOUND_NOTHING;
        value = value ? trimmed(value) : NULL;
        if (value && !*value)
                return PACKAGES_FOUND_OTHER;
        return is_one_of(s->same, value ?: "") ? PACKAGES_FOUND_SAME : PACKAGES_FOUND_OTHER;
}

PackagesFound packages_found_in_file(const PackagesSetting *s, const char *text) {
        _cleanup_free_ char *copy = strdup(text);
        PackagesFound found = PACKAGES_FOUND_NOTHING;
        bool inside = !s->section;
        char *rest = copy, *line;

        if (!copy)
                return PACKAGES_FOUND_OTHER;
        while ((line = strsep(&rest, "\n"))) {
                const char *section = section_of(line + strspn(line, " \t"));
                PackagesFound now;
                if (section)
                        inside = s->section && strcasecmp(section, s->section) == 0;
                if (section || !inside || strchr("#;", line[strspn(line, " \t")]))
                        continue;
                now = found_in_line(s, line);
                found = now ? now : found;
        }
        return found;
}

static bool is_of_a_name(char c) {
        return isalnum((unsigned char) c) || c == '_';
}

// Whether the line gives the variable a value, which is cut where it is long. Also "set -gx NAME VALUE" of fish.
static bool assigned(const char *line, const char *variable, char ret[VALUE_MAX]) {
        size_t n = strlen(variable);
        const char *at = line;

        while ((at = strcasestr(at, variable)) && ((at > line && is_of_a_name(at[-1])) || is_of_a_name(at[n])))
                at += n;
        if (!at || (at[n] != '=' && (!isblank((unsigned char) at[n]) || strncmp(line, "set ", 4) != 0)))
                return false;
        at += n + 1;
        (void) snprintf(ret, VALUE_MAX, "%.*s", (int) strcspn(at, " \t\r;&#"), at);
        return true;
}

static PackagesFound found_in_profile_line(const PackagesSetting *s, const char *line) {
        char value[VALUE_MAX];

        for (const char *const *v = s->variables_against; *v; v++)
                if (assigned(line, *v, value))
                        return PACKAGES_FOUND_OTHER;
        if (!s->variable || !assigned(line, s->variable, value) || !*trimmed(value))
                return PACKAGES_FOUND_NOTHING; // an empty one is none
        return is_one_of(s->same, trimmed(value)) ? PACKAGES_FOUND_SAME : PACKAGES_FOUND_OTHER;
}

PackagesFound packages_found_in_profile(const PackagesSetting *s, const char *text) {
        _cleanup_free_ char *copy = strdup(text);
        PackagesFound found = PACKAGES_FOUND_NOTHING;
        char *rest = copy, *line;

        if (!copy)
                return PACKAGES_FOUND_OTHER;
        while ((line = strsep(&rest, "\n"))) {
                PackagesFound now;
                line += strspn(line, " \t");
                now = *line == '#' ? PACKAGES_FOUND_NOTHING : found_in_profile_line(s, line);
                found = now ? now : found;
        }
        return found;
}

// ---- files ----

typedef struct Check {
        int root;
        const char *home;
        const PackagesSetting *setting;
        GuestPackage row;
} Check;

static int path_of(const Check *c, const char *path, char ret[PATH_ROOM]) {
        int n = *path == '~' ? snprintf(ret, PATH_ROOM, "%s%s", c->home, path + 1) : snprintf(ret, PATH_ROOM, "%s", path);

        return n < PATH_ROOM && ret[0] == '/' ? 0 : -ENAMETOOLONG;
}

static void say(Check *c, GuestPackageClaim claim, const char *path) {
        c->row.claim = claim;
        (void) snprintf(c->row.file, sizeof(c->row.file), "%s", path);
}

// As the client would, through links; but what is no plain file is not read, and nothing that comes from it is given away. 0: it is not there.
static int text_of(int root, const char *path, char **ret) {
        _cleanup_close_ int fd = openat(root, path + 1, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        size_t size;

        if (fd < 0)
                return errno == ENOENT || errno == ENOTDIR ? 0 : UNREADABLE;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || io_read_all(fd, TEXT_MAX, ret, &size) < 0)
                return UNREADABLE;
        return 1;
}

typedef PackagesFound (*Look)(const PackagesSetting *setting, const char *text);

static void look_into(Check *c, const char *path, Look look) {
        _cleanup_free_ char *text = NULL;
        int r = text_of(c->root, path, &text);
        PackagesFound found = r > 0 ? look(c->setting, text) : PACKAGES_FOUND_NOTHING;

        if (r == UNREADABLE)
                say(c, GUEST_PACKAGE_UNREADABLE, path);
        else if (found == PACKAGES_FOUND_SAME)
                say(c, GUEST_PACKAGE_KEPT, path);
        else if (found == PACKAGES_FOUND_OTHER)
                say(c, GUEST_PACKAGE_OVERRIDDEN, path);
}

static int by_name(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

// In the order in which a shell reads them.
static void look_into_directory(Check *c, int fd, const char *path) {
        char *names[NAMES_MAX], below[PATH_ROOM];
        DIR *list = fdopendir(fd);
        size_t n = 0;

        for (struct dirent *e = list ? readdir(list) : NULL; e && n < NAMES_MAX; e = readdir(list))
                if (e->d_name[0] != '.' && (names[n] = strdup(e->d_name)))
                        n++;
        qsort(names, n, sizeof(names[0]), by_name);
        for (size_t i = 0; i < n; i++) {
                if (snprintf(below, sizeof(below), "%s/%s", path, names[i]) < (int) sizeof(below))
                        look_into(c, below, packages_found_in_profile);
                free(names[i]);
        }
        if (list)
                (void) closedir(list);
        else
                (void) close(fd);
}

static void look_into_profile(Check *c, const char *path) {
        int fd = openat(c->root, path + 1, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);

        if (fd >= 0)
                look_into_directory(c, fd, path);
        else
                look_into(c, path, packages_found_in_profile);
}

// Of hostd's own files one that does not say it is enough: which of them counts nobody knows here.
static void look_into_ours(Check *c) {
        GuestPackage worst = c->row;

        for (const char *const *file = c->setting->ours; *file; file++) {
                say(c, GUEST_PACKAGE_MISSING, *file);
                look_into(c, *file, packages_found_in_file);
                if (file == c->setting->ours || c->row.claim > worst.claim)
                        worst = c->row;
        }
        c->row = worst;
}

static bool is_installed(const Check *c) {
        char path[PATH_ROOM];

        for (size_t i = 0; i < ELEMENTS(program_places); i++)
                for (const char *const *program = c->setting->programs; *program; program++) {
                        char full[PATH_ROOM + 32];
                        if (path_of(c, program_places[i], path) < 0)
                                continue;
                        (void) snprintf(full, sizeof(full), "%s/%s", path, *program);
                        if (faccessat(c->root, full + 1, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                                return true;
                }
        return false;
}

static void check_setting(Check *c) {
        char path[PATH_ROOM];

        if (!is_installed(c)) {
                say(c, GUEST_PACKAGE_NOT_INSTALLED, "");
                return;
        }
        if (!*c->setting->name) {
                say(c, GUEST_PACKAGE_NO_SETTING, "");
                return;
        }
        look_into_ours(c);
        for (const char *const *file = c->setting->later; *file; file++)
                if (path_of(c, *file, path) >= 0)
                        look_into(c, path, packages_found_in_file);
        for (size_t i = 0; i < ELEMENTS(profiles); i++)
                if (path_of(c, profiles[i], path) >= 0)
                        look_into_profile(c, path);
}

int packages_check(int root, const char *user, const char *home, PackagesEach each, void *userdata) {
        Check c = {.root = root, .home = strcmp(home, "/") == 0 ? "" : home};
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ELEMENTS(settings); i++) {
                c.setting = &settings[i];
                c.row = (GuestPackage) {.magic = GUEST_PACKAGE_MAGIC, .flag = settings[i].flag};
                (void) snprintf(c.row.user, sizeof(c.row.user), "%s", user);
                (void) snprintf(c.row.client, sizeof(c.row.client), "%s", settings[i].client);
                (void) snprintf(c.row.setting, sizeof(c.row.setting), "%s", settings[i].name);
                check_setting(&c);
                r = each(&c.row, userdata);
        }
        return r;
}

static int write_row(const GuestPackage *row, void *userdata) {
        return io_write_all(STDOUT_FILENO, row, sizeof(*row));
}

int packages_run(const Request *request, Error *err) {
        static const char *const who[] = {"0", AGENT};
        int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), r = root < 0 ? -errno : 0;

        for (size_t i = 0; r >= 0 && i < ELEMENTS(who); i++) {
                User user = {0};
                if (user_load("/etc", who[i], &user) == 0) // there is one
                        r = packages_check(root, user.name, user.home, write_row, NULL);
                user_done(&user);
        }
        (void) close_fd(root);
        return r;
}
