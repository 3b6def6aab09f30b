// SPDX-License-Identifier: GPL-2.0-or-later
// Site: see site.h.
#include "secret/site.h"

#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define FILE_MODE 0640
#define DIRECTORY_MODE 02750 // what is made in it belongs to its group
#define CONF "conf"
#define SOCK "sock"
#define CRT "crt"
#define MAP "secret.map"
#define PROGRAM "redact.lua"

static char *below(const Site *site, const char *name) {
        char *path;

        return asprintf(&path, "%s/%s", site->path, name) < 0 ? NULL : path;
}

char *site_map(const Site *site) {
        return below(site, CONF "/" MAP);
}

char *site_admin(const Site *site) {
        return below(site, SOCK "/" HAPROXY_ADMIN);
}

// The mode while its group is hostd's own: hostd.service has no CAP_FSETID, without which the bit is dropped for a group that one is not in.
// A directory keeps it when its owner changes.
static int make_directory(int parent, const char *name, uid_t uid, gid_t gid, int *ret, Error *err) {
        _cleanup_close_ int fd = -EBADF;

        if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
                return error_set_errno(err, errno, "cannot make %s", name);
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fchown(fd, geteuid(), getegid()) < 0 || fchmod(fd, DIRECTORY_MODE) < 0 || fchown(fd, uid, gid) < 0)
                return error_set_errno(err, errno, "cannot prepare %s", name);
        *ret = TAKE_FD(fd);
        return 0;
}

// Named by a grant: the name of a host may be too long for one.
static int write_leaf(int crt, const Ca *ca, const Binding *b, Error *err) {
        _cleanup_(value_freep) Value *pem = NULL;
        _cleanup_free_ char *name = NULL;
        int r = ca_issue(ca, b->host, clock_realtime(), &pem, err);

        if (r < 0)
                return r;
        if (asprintf(&name, "%s.pem", b->id) < 0) {
                name = NULL;
                return error_set_errno(err, ENOMEM, "cannot write a certificate");
        }
        r = io_write_atomic(crt, name, pem->data, pem->size, FILE_MODE);
        return r < 0 ? error_set_errno(err, r, "cannot write a certificate") : 0;
}

// All anew: a leaf of a host that is no longer granted must not be served.
static int write_leaves(int conf, const Site *site, const Ca *ca, const Binding *const *bindings, size_t n, Error *err) {
        _cleanup_close_ int crt = -EBADF;
        int r = io_remove_tree(conf, CRT);

        if (r < 0)
                return error_set_errno(err, r, "cannot remove old certificates");
        r = make_directory(conf, CRT, 0, site->gid, &crt, err);
        for (size_t i = 0; r >= 0 && i < n; i++)
                if (haproxy_is_first_of_host(bindings, i))
                        r = write_leaf(crt, ca, bindings[i], err);
        return r;
}

// The paths in a configuration.
typedef struct Paths {
        char *sockets, *certificates, *map, *program;
} Paths;

static void paths_done(Paths *paths) {
        free(paths->sockets);
        free(paths->certificates);
        free(paths->map);
        free(paths->program);
}

static int config_fill(const Site *site, const Binding *const *bindings, size_t n, Paths *paths, HaproxyConfig *ret, Error *err) {
        *paths = (Paths) {below(site, SOCK), below(site, CONF "/" CRT), site_map(site), below(site, CONF "/" PROGRAM)};
        if (!paths->sockets || !paths->certificates || !paths->map || !paths->program)
                return error_set_errno(err, ENOMEM, "cannot write a configuration");
        *ret = (HaproxyConfig) {.sockets = paths->sockets, .certificates = paths->certificates, .map = paths->map, .program = paths->program, .log = site->log,
                                .bindings = bindings, .n_bindings = n, .authorities = site->authorities, .with_rules = site->with_rules, .rules = site->rules, .n_rules = site->n_rules};
        return 0;
}

int site_config(const Site *site, const Binding *const *bindings, size_t n, char **ret, Error *err) {
        _cleanup_(paths_done) Paths paths = {0};
        HaproxyConfig config;
        int r = config_fill(site, bindings, n, &paths, &config, err);

        return r < 0 ? r : haproxy_config(&config, ret, err);
}

// ---- hosts ----

void site_hosts_free(SiteHost *hosts, size_t n) {
        for (size_t i = 0; hosts && i < n; i++)
                free(hosts[i].host);
        free(hosts);
}

// What alone concerns the host, as the configuration would say it; where it stands is no part of it.
static int host_text(const Site *site, const Binding *const *bindings, size_t n, const char *host, char **ret, Error *err) {
        _cleanup_free_ const Binding **own = calloc(n + 1, sizeof(Binding *));
        _cleanup_free_ HaproxyRule *rules = calloc(site->n_rules + 1, sizeof(HaproxyRule));
        HaproxyConfig config = {.sockets = "/s", .certificates = "/c", .map = "/m", .program = "/p", .log = "stdout", .authorities = site->authorities, .bindings = own,
                                .with_rules = site->with_rules, .rules = rules};

        if (!own || !rules)
                return error_set_errno(err, ENOMEM, "cannot describe a host");
        for (size_t i = 0; i < n; i++)
                if (strcmp(bindings[i]->host, host) == 0)
                        own[config.n_bindings++] = bindings[i];
        for (size_t i = 0; i < site->n_rules; i++)
                if (strcmp(site->rules[i].host, host) == 0)
                        rules[config.n_rules++] = site->rules[i];
        return haproxy_config(&config, ret, err);
}

static int host_fill(const Site *site, const Binding *const *bindings, size_t n, const Binding *first, SiteHost *ret, Error *err) {
        unsigned char hash[sizeof(ret->digest) / 2];
        _cleanup_free_ char *text = NULL;
        int r = host_text(site, bindings, n, first->host, &text, err);

        if (r < 0)
                return r;
        ret->host = strdup(first->host);
        if (!ret->host || crypto_generichash(hash, sizeof(hash), (const unsigned char *) text, strlen(text), NULL, 0) != 0)
                return error_set_errno(err, ENOMEM, "cannot describe a host");
        (void) snprintf(ret->id, sizeof(ret->id), "%s", first->id);
        (void) sodium_bin2hex(ret->digest, sizeof(ret->digest), hash, sizeof(hash));
        return 0;
}

int site_hosts(const Site *site, const Binding *const *bindings, size_t n, SiteHost **ret, size_t *ret_n, Error *err) {
        SiteHost *hosts = calloc(n + 1, sizeof(SiteHost));
        size_t used = 0;
        int r = hosts ? 0 : error_set_errno(err, ENOMEM, "cannot describe the hosts");

        for (size_t i = 0; r >= 0 && i < n; i++)
                if (haproxy_is_first_of_host(bindings, i))
                        r = host_fill(site, bindings, n, bindings[i], &hosts[used++], err);
        if (r < 0) {
                site_hosts_free(hosts, used);
                return r;
        }
        *ret = hosts;
        *ret_n = used;
        return 0;
}

// ---- the whole ----

static int write_config(int conf, const Site *site, const Binding *const *bindings, size_t n, Error *err) {
        _cleanup_(paths_done) Paths paths = {0};
        _cleanup_free_ char *text = NULL, *program = NULL;
        HaproxyConfig config;
        int r = config_fill(site, bindings, n, &paths, &config, err);

        if (r >= 0)
                r = haproxy_config(&config, &text, err);
        if (r >= 0)
                r = haproxy_program(&config, &program, err);
        if (r < 0)
                return r;
        r = io_write_atomic(conf, MAP, "", 0, FILE_MODE);
        if (r >= 0)
                r = io_write_atomic(conf, PROGRAM, program, strlen(program), FILE_MODE);
        if (r >= 0)
                r = io_write_atomic(conf, "haproxy.cfg", text, strlen(text), FILE_MODE);
        return r < 0 ? error_set_errno(err, r, "cannot write a configuration") : 0;
}

int site_write(const Site *site, const Vault *vault, const Binding *const *bindings, size_t n, usec_t *ret_renew, Error *err) {
        _cleanup_close_ int conf = -EBADF, sock = -EBADF;
        _cleanup_(ca_freep) Ca *ca = NULL;
        usec_t now = clock_realtime();
        int r = ca_open(vault, site->instance, now, &ca, err);

        if (r >= 0)
                r = make_directory(site->directory, CONF, 0, site->gid, &conf, err);
        if (r >= 0)
                r = make_directory(site->directory, SOCK, site->uid, site->front_gid, &sock, err);
        if (r >= 0)
                r = write_leaves(conf, site, ca, bindings, n, err);
        if (r >= 0)
                r = write_config(conf, site, bindings, n, err);
        if (r < 0)
                return r;
        r = io_write_atomic(site->directory, "ca.pem", ca->certificate, strlen(ca->certificate), 0644);
        if (r < 0)
                return error_set_errno(err, r, "cannot write the authority's certificate");
        *ret_renew = now + (usec_t) (LEAF_DAYS - LEAF_RENEW_DAYS) * 86400 * USEC_PER_SEC;
        return 0;
}

static int entry_fill(const Vault *vault, const Binding *b, RuntimeEntry *ret, Error *err) {
        int r = secret_value(vault, b->secret, &ret->value, err);

        if (r >= 0)
                r = binding_check_value(b, ret->value, err);
        (void) snprintf(ret->key, sizeof(ret->key), "%s", b->id);
        return r;
}

int site_entries(const Vault *vault, const Binding *const *bindings, size_t n, RuntimeEntry **ret, Error *err) {
        RuntimeEntry *entries = calloc(n + 1, sizeof(RuntimeEntry));
        int r = entries ? 0 : error_set_errno(err, ENOMEM, "cannot hand values on");

        for (size_t i = 0; r >= 0 && i < n; i++)
                r = entry_fill(vault, bindings[i], &entries[i], err);
        if (r < 0) {
                runtime_entries_free(entries, n);
                return r;
        }
        *ret = entries;
        return 0;
}
