// SPDX-License-Identifier: GPL-2.0-or-later
// Haproxy: the configuration of the HAProxy (2.6 and later) that serves one instance's grants: a pure function from bindings to text.
//
// What it does: takes streams from hostd-proxy over a unix socket, with a PROXY header that has the address to connect to; ends TLS with a leaf of the
// instance's authority, for the hosts of the grants and no other; wants SNI, Host and the name that hostd-proxy decided on to be one; puts the
// value in the place of the exact placeholder, in the declared place of a request in scope; connects to the address that it was given and verifies the
// host's certificate. A placeholder that is left after that is not sent on: 403, and an alert in the log.
//
// Values are not in the text. They are in HAProxy's memory, by runtime.h, under the id of their binding: the map's file is empty and stays so.
//
// On the way back a program, which HAProxy loads (haproxy_lua.c), puts names in the place of values in the heads of responses.
#pragma once

#include "base/digest.h"
#include "secret/binding.h"

#define HAPROXY_FRONT "front.sock" // 0660
#define HAPROXY_SERVER "origin" // of each host's backend, "host_ID"
#define HAPROXY_SERVER_H2 "origin2" // for clients that speak HTTP/2
#define HAPROXY_QUERY_PARAMETERS 12 // of a request that are looked at
#define HAPROXY_ADMIN "admin.sock" // 0600: who speaks there reads the values
#define HAPROXY_REDACT_MIN 8 // bytes; shorter values are not looked for in responses, as redact/redact.h has it
#define HAPROXY_REDACT_NAMES 8 // secrets that are counted of one response

typedef enum HaproxyGit { HAPROXY_GIT_ANY, HAPROXY_GIT_READ, HAPROXY_GIT_WRITE } HaproxyGit; // as PolicyGit

// What a policy says of requests to a host, in the order of its rules: the first that a request meets decides, none is a denial.
typedef struct HaproxyRule {
        const char *host; // borrowed, of a binding
        bool allow;
        char *const *methods, *const *paths; // borrowed; NULL: any
        HaproxyGit git;
} HaproxyRule;

typedef struct HaproxyConfig {
        const char *sockets;      // directory, which HAProxy's user may write
        const char *certificates; // directory of leaves
        const char *map;          // the empty file; also the map's name
        const char *program;      // file with what haproxy_program() gives
        const char *log;          // datagram socket for JSON lines, which need not be there, or "stdout"
        const char *authorities;  // file of those that upstream certificates come from; NULL: the host's
        const Binding *const *bindings; // of one instance
        size_t n_bindings;
        bool with_rules; // false: whoever sends streams here looks at them for himself
        const HaproxyRule *rules;
        size_t n_rules;
} HaproxyConfig;

// Several grants of one host share its leaf and its connections.
bool haproxy_is_first_of_host(const Binding *const *bindings, size_t i);
// ERR_INVALID for whatever does not pass its validator: nothing unchecked gets into the texts.
int haproxy_check(const HaproxyConfig *config, Error *err);
int haproxy_config(const HaproxyConfig *config, char **ret, Error *err); // caller frees
int haproxy_program(const HaproxyConfig *config, char **ret, Error *err); // caller frees
const char *haproxy_program_version(char ret[DIGEST_TEXT_MAX]); // part of the configuration: another one is another HAProxy
