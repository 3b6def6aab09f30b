// SPDX-License-Identifier: GPL-2.0-or-later
// Site: the files that one HAProxy of an instance runs with, below a directory of its own:
//
//   conf/  root's, readable by HAProxy: haproxy.cfg, redact.lua, the empty map, crt/ID.pem for each host of the grants
//   sock/  HAProxy's, and the group's that may connect to it: front.sock and admin.sock
//   ca.pem the authority's certificate, for the instance to trust
//
// No value of a secret is in any of them, nor the authority's key. Made anew as a whole, also over what another hostd left.
#pragma once

#include "secret/ca.h"
#include "secret/haproxy.h"
#include "secret/runtime.h"

typedef struct Site {
        int directory;       // exists, root's, others may walk it
        const char *path;    // of the directory, absolute
        const char *instance;
        uid_t uid;           // HAProxy's
        gid_t gid;
        gid_t front_gid;     // whose members may connect
        const char *log;         // see HaproxyConfig
        const char *authorities; // see HaproxyConfig
        bool with_rules;
        const HaproxyRule *rules;
        size_t n_rules;
} Site;

// `ret_renew` gets when it should be done again: a leaf ends some time after.
int site_write(const Site *site, const Vault *vault, const Binding *const *bindings, size_t n_bindings, usec_t *ret_renew, Error *err);
// One host of the grants: what the configuration says of it, and by which grant it is named there. An equal digest is an equal treatment.
typedef struct SiteHost {
        char *host; // owned
        char id[17];
        char digest[33];
} SiteHost;
int site_hosts(const Site *site, const Binding *const *bindings, size_t n_bindings, SiteHost **ret, size_t *ret_n, Error *err);
void site_hosts_free(SiteHost *hosts, size_t n);
// The configuration that site_write() would write. Caller frees.
int site_config(const Site *site, const Binding *const *bindings, size_t n_bindings, char **ret, Error *err);
// The values of the bindings, for runtime_fill(). One that cannot stand in its place any more is an error.
int site_entries(const Vault *vault, const Binding *const *bindings, size_t n_bindings, RuntimeEntry **ret, Error *err);
// Paths below the site; caller frees, NULL on OOM.
char *site_map(const Site *site);
char *site_admin(const Site *site);
