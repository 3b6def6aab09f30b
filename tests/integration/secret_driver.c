// SPDX-License-Identifier: GPL-2.0-or-later
// Keeps secrets below a directory and writes a site as hostd would, for tests/integration/secrets.sh.
// usage: secret_driver DIR set|rotate NAME <VALUE
//        secret_driver DIR grant SECRET HOST PORT header|basic|query FIELD|- [method=M] [path=P] [inject=WORD|-] [login=USER]   prints id and placeholder
//        secret_driver DIR site UID AUTHORITIES      writes DIR/site
//        secret_driver DIR fill UID                  puts the values into the running HAProxy
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/strv.h"
#include "secret/site.h"

typedef struct Driver {
        const char *directory;
        int fd;
        Vault vault;
        Binding **bindings;
        size_t n;
} Driver;

static int fail(int r, const Error *err) {
        fprintf(stderr, "secret_driver: %s\n", error_message(err, r));
        return 1;
}

static int read_value(Value **ret, Error *err) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        int r = io_read_all(STDIN_FILENO, SEAL_VALUE_MAX, &text, &size);

        if (r < 0 || value_new(size, ret) < 0)
                return error_set_errno(err, r < 0 ? r : ENOMEM, "reading");
        memcpy((*ret)->data, text, size);
        explicit_bzero(text, size);
        return 0;
}

static int run_value(Driver *d, char **argv, Error *err) {
        _cleanup_(value_freep) Value *value = NULL;
        int r = read_value(&value, err);

        if (r < 0)
                return r;
        return (strcmp(argv[0], "set") == 0 ? secret_add : secret_rotate)(&d->vault, argv[1], value, err);
}

static void apply_option(Binding *b, const char *option) {
        const char *value = strchr(option, '=') + 1;

        if (strncmp(option, "method=", 7) == 0)
                (void) strv_append(&b->methods, value);
        else if (strncmp(option, "path=", 5) == 0)
                (void) strv_append(&b->paths, value);
        else if (strncmp(option, "login=", 6) == 0)
                b->user = strdup(value);
        else if (strncmp(option, "inject=", 7) == 0) {
                b->inject = true;
                b->word = strcmp(value, "-") == 0 ? NULL : strdup(value);
        }
}

static int run_grant(Driver *d, char **argv, Error *err) {
        _cleanup_(binding_freep) Binding *b = calloc(1, sizeof(Binding));
        int r;

        snprintf(b->secret, sizeof(b->secret), "%s", argv[1]);
        snprintf(b->instance, sizeof(b->instance), "one");
        b->host = strdup(argv[2]);
        b->port = (uint16_t) strtoul(argv[3], NULL, 10);
        b->place = binding_place_from_string(argv[4]);
        b->field = strcmp(argv[5], "-") == 0 ? NULL : strdup(argv[5]);
        for (char **o = argv + 6; *o; o++)
                apply_option(b, *o);
        r = binding_add(&d->vault, b, d->bindings, d->n, err);
        if (r >= 0)
                printf("%s %s\n", b->id, b->placeholder);
        return r;
}

static void fill_site(const Driver *d, Site *site, char *path, size_t size) {
        snprintf(path, size, "%s/site", d->directory);
        site->path = path;
        site->instance = "one";
        site->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

#define RULES_MAX 16

// DIR/rules, where it is: lines of "allow|deny HOST [method=M] [path=P] [git=read|write]".
static int read_rules(const Driver *d, HaproxyRule *ret, size_t *ret_n) {
        _cleanup_strv_ char **lines = NULL;
        _cleanup_free_ char *text = NULL;
        size_t n = 0;

        if (io_read_file(d->fd, "rules", 4096, &text, NULL) < 0)
                return 0;
        if (strv_split(text, "\n", &lines) < 0)
                return -ENOMEM;
        for (char **line = lines; *line && n < RULES_MAX; line++, n++) {
                char **words = NULL, **methods = NULL, **paths = NULL; // for the life of the process
                (void) strv_split(*line, " ", &words);
                HaproxyGit git = HAPROXY_GIT_ANY;
                for (char **w = words + 2; *w; w++)
                        if (strncmp(*w, "git=", 4) == 0)
                                git = strcmp(*w + 4, "read") == 0 ? HAPROXY_GIT_READ : HAPROXY_GIT_WRITE;
                        else
                                (void) strv_append(strncmp(*w, "path=", 5) == 0 ? &paths : &methods, strchr(*w, '=') + 1);
                ret[n] = (HaproxyRule) {words[1], strcmp(words[0], "allow") == 0, methods, paths, git};
        }
        *ret_n = n;
        return 1;
}

static int run_site(Driver *d, char **argv, Error *err) {
        HaproxyRule rules[RULES_MAX];
        char path[256], log[256];
        Site site = {.uid = (uid_t) strtoul(argv[1], NULL, 10), .log = log, .authorities = argv[2]};
        usec_t renew;
        int r;

        (void) umask(0); // the site's own modes do not depend on it
        if (mkdirat(d->fd, "site", 0711) < 0 && errno != EEXIST)
                return error_set_errno(err, errno, "site");
        (void) umask(0077);
        snprintf(log, sizeof(log), "%s/log.sock", d->directory);
        site.gid = site.front_gid = site.uid;
        fill_site(d, &site, path, sizeof(path));
        site.rules = rules;
        site.with_rules = read_rules(d, rules, &site.n_rules) > 0;
        r = site_write(&site, &d->vault, (const Binding *const *) d->bindings, d->n, &renew, err);
        (void) close(site.directory);
        return r;
}

typedef struct Wait {
        sd_event *event;
        int r;
} Wait;

static void filled(void *userdata, int r, Error *err) {
        Wait *wait = userdata;

        if (r < 0)
                fprintf(stderr, "secret_driver: %s\n", error_message(err, r));
        (void) sd_event_exit(wait->event, r < 0 ? 1 : 0);
}

static int run_fill(Driver *d, char **argv, Error *err) {
        _cleanup_(runtime_freep) Runtime *runtime = NULL;
        char path[256];
        Site site = {0};
        Wait wait = {0};
        RuntimeSpec spec = {.uid = (uid_t) strtoul(argv[1], NULL, 10), .n_entries = d->n, .done = filled, .userdata = &wait};
        int r;

        fill_site(d, &site, path, sizeof(path));
        (void) close(site.directory);
        _cleanup_free_ char *admin = site_admin(&site), *map = site_map(&site);
        spec.socket = admin;
        spec.map = map;
        r = site_entries(&d->vault, (const Binding *const *) d->bindings, d->n, &spec.entries, err);
        if (r < 0 || (r = sd_event_new(&wait.event)) < 0)
                return r;
        r = runtime_fill(wait.event, &spec, &runtime, err);
        return r < 0 ? r : sd_event_loop(wait.event) ? error_set(err, ERR_UNAVAILABLE, "not filled") : 0;
}

static const struct {
        const char *word;
        int argc;
        int (*run)(Driver *d, char **argv, Error *err);
} verbs[] = {{"set", 2, run_value}, {"rotate", 2, run_value}, {"grant", 6, run_grant}, {"site", 3, run_site}, {"fill", 2, run_fill}};

int main(int argc, char **argv) {
        _cleanup_error_ Error err = ERROR_NULL;
        Driver d = {.directory = argc > 2 ? argv[1] : ""};
        _cleanup_free_ char *db = NULL;
        unsigned damaged;
        int r;

        (void) umask(0077);
        if (argc < 3 || asprintf(&db, "%s/state.db", d.directory) < 0)
                return 2;
        d.fd = open(d.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = store_open(db, &d.vault.store, &err);
        if (r >= 0)
                r = seal_open(d.fd, NULL, &d.vault.seal, &err);
        if (r >= 0)
                r = binding_list(&d.vault, &d.bindings, &d.n, &damaged, &err);
        if (r < 0)
                return fail(r, &err);
        for (size_t i = 0; i < ELEMENTS(verbs); i++)
                if (strcmp(verbs[i].word, argv[2]) == 0 && argc - 2 >= verbs[i].argc) {
                        r = verbs[i].run(&d, argv + 2, &err);
                        bindings_free(d.bindings, d.n);
                        (void) seal_free(d.vault.seal);
                        (void) store_close(d.vault.store);
                        return r < 0 ? fail(r, &err) : 0;
                }
        fprintf(stderr, "secret_driver: unknown command\n");
        return 2;
}
