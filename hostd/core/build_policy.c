// SPDX-License-Identifier: GPL-2.0-or-later
// BuildPolicy: see build_policy.h.
#include "core/build_policy.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <string.h>

#include "base/process.h"
#include "base/strv.h"
#include "build/apt.h"
#include "build/manifest.h"
#include "build/mirrors.h"
#include "network/compile.h"

// ---- looking up --------------------------------------------------------------------------------------------------------------

static void address_add(json_t *list, const struct sockaddr *address) {
        char text[INET6_ADDRSTRLEN];
        const void *bytes = NULL;

        if (address && address->sa_family == AF_INET)
                bytes = &((const struct sockaddr_in *) address)->sin_addr;
        else if (address && address->sa_family == AF_INET6)
                bytes = &((const struct sockaddr_in6 *) address)->sin6_addr;
        if (bytes && inet_ntop(address->sa_family, bytes, text, sizeof(text)))
                (void) json_array_append_new(list, json_string(text));
}

// None is no error: the build may have another way, by a proxy.
static json_t *addresses_of(const char *host) {
        struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
        json_t *list = json_array();

        if (getaddrinfo(host, NULL, &hints, &found) != 0)
                return list;
        for (const struct addrinfo *a = found; a; a = a->ai_next)
                address_add(list, a->ai_addr);
        freeaddrinfo(found);
        return list;
}

static json_t *own_addresses(void) {
        struct ifaddrs *all = NULL;
        json_t *list = json_array();

        if (getifaddrs(&all) < 0)
                return list; // the firewall knows them by itself
        for (const struct ifaddrs *a = all; a; a = a->ifa_next)
                address_add(list, a->ifa_addr);
        freeifaddrs(all);
        return list;
}

int build_policy_look_up(json_t **ret, Error *err) {
        char *argv[] = {(char *) "/usr/bin/apt-config", (char *) "dump", NULL};
        _cleanup_free_ char *dump = NULL, *sources = NULL, *image = NULL;
        Mirrors mirrors = {0};
        json_t *list;
        int r = process_run(argv, &dump, err);

        if (r > 0)
                return error_set(err, ERR_UNAVAILABLE, "apt-config dump failed (exit status %d)", r);
        if (r >= 0)
                r = apt_sources("", "stable", &sources, &image, err); // hosts are the same for each suite
        if (r >= 0)
                r = mirrors_parse(sources, dump, &mirrors, err);
        if (r < 0)
                return r;
        list = json_array();
        for (size_t i = 0; i < mirrors.n; i++)
                (void) json_array_append_new(list, json_pack("{s:s, s:i, s:b, s:o}", "host", mirrors.list[i].host, "port", (int) mirrors.list[i].port, "optional",
                                                             mirrors.list[i].optional, "addresses", addresses_of(mirrors.list[i].host)));
        mirrors_done(&mirrors);
        *ret = json_pack("{s:o, s:o}", "mirrors", list, "own", own_addresses());
        return *ret ? 0 : error_set_errno(err, ENOMEM, "cannot look up the mirrors");
}

// ---- the policy --------------------------------------------------------------------------------------------------------------

// What an address that a name server said never opens: this host, what is on its own wires, where clouds keep their secrets.
static bool never(const Cidr *address) {
        static const char *const ranges[] = {"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8"};

        for (size_t i = 0; i < ELEMENTS(ranges); i++) {
                Cidr range;
                if (cidr_parse(ranges[i], &range) >= 0 && range.family == address->family && cidr_contains(&range, address))
                        return true;
        }
        return false;
}

static bool lists(json_t *list, const char *text) {
        json_t *entry;
        size_t i;

        json_array_foreach(list, i, entry)
                if (strcmp(json_string_value(entry) ?: "", text) == 0)
                        return true;
        return false;
}

static int rule_add(Policy *policy, const char *to, int port, Error *err) {
        PolicyRule rule = {.action = POLICY_ALLOW, .protocol = POLICY_TCP, .to = strdup(to)};
        int r;

        if (asprintf(&rule.ports, "%d", port) < 0)
                rule.ports = NULL;
        r = rule.to && rule.ports ? policy_add(policy, &rule, err) : error_set_errno(err, ENOMEM, "cannot make the build's policy");
        if (r < 0)
                policy_rule_done(&rule);
        return r;
}

typedef struct Host {
        const char *host;
        int port;
        json_t *addresses;
        bool named;    // a rule can have it
        bool optional; // without it there is still a build
} Host;

static bool host_read(json_t *mirror, Host *ret) {
        *ret = (Host) {json_string_value(json_object_get(mirror, "host")), (int) json_integer_value(json_object_get(mirror, "port")),
                       json_object_get(mirror, "addresses"), false, json_is_true(json_object_get(mirror, "optional"))};
        if (!ret->host || ret->port < 1 || ret->port > UINT16_MAX)
                return false;
        ret->named = name_kind(ret->host) == NAME_EXACT && name_pattern_check("host", ret->host, NULL) >= 0;
        return true;
}

// A rule by address is for what a rule by name would not open, and for what no rule by name can be of.
static int add_addresses(Policy *policy, const Host *host, json_t *own, size_t *ret_usable, Error *err) {
        json_t *entry;
        size_t i;

        *ret_usable = 0;
        json_array_foreach(host->addresses, i, entry) {
                const char *text = json_string_value(entry);
                char to[CIDR_TEXT_MAX];
                Cidr cidr;
                int r;
                if (!text || cidr_parse(text, &cidr) < 0 || lists(own, text) || never(&cidr))
                        continue;
                ++*ret_usable;
                if (host->named && !denied_by_default(&cidr))
                        continue;
                r = rule_add(policy, cidr_format(&cidr, to, sizeof(to)), host->port, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int add_names(Policy *policy, json_t *mirrors, Error *err) {
        json_t *mirror;
        size_t i;

        json_array_foreach(mirrors, i, mirror) {
                Host host;
                if (!host_read(mirror, &host) || !host.named)
                        continue;
                int r = rule_add(policy, host.host, host.port, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int text_add(char **text, const Host *host) {
        char *grown = NULL;

        if (asprintf(&grown, "%s%s%s port %d", *text ?: "", *text ? ", " : "", host->host, host->port) < 0)
                return -ENOMEM;
        free(*text);
        *text = grown;
        return 0;
}

static int add_host(Policy *policy, const Host *host, json_t *own, char **text, Error *err) {
        size_t usable;
        int r = add_addresses(policy, host, own, &usable, err);

        if (r < 0)
                return r;
        if (usable == 0 && host->optional)
                return 0;
        if (usable == 0 && json_array_size(host->addresses) > 0)
                return error_set(err, ERR_UNAVAILABLE,
                                 "%s (port %d), which /etc/apt names, is this host itself or nobody that may be reached: a build has a network of its own; name an address of "
                                 "another host",
                                 host->host, host->port);
        if (usable == 0 && !host->named)
                return error_set(err, ERR_UNAVAILABLE, "%s (port %d), which /etc/apt names, has no address here and no domain by which a build could look it up", host->host,
                                 host->port);
        return text_add(text, host) < 0 ? error_set_errno(err, ENOMEM, "cannot make the build's policy") : 0;
}

int build_policy_new(const char *name, json_t *found, Policy **ret, char **ret_text, Error *err) {
        json_t *mirrors = json_object_get(found, "mirrors"), *own = json_object_get(found, "own"), *mirror;
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_free_ char *text = NULL;
        int r = policy_new(name, &policy);
        size_t i;

        if (r < 0)
                return error_set_errno(err, r, "cannot make the build's policy");
        // All rules by address in front: the proxy has no say on their ports then, and would not go to a private range.
        json_array_foreach(mirrors, i, mirror) {
                Host host;
                if (!host_read(mirror, &host))
                        continue;
                r = add_host(policy, &host, own, &text, err);
                if (r < 0)
                        return r;
        }
        r = add_names(policy, mirrors, err);
        if (r < 0)
                return r;
        if (!text)
                return error_set(err, ERR_UNAVAILABLE, "/etc/apt names no host that a build could get packages from");
        *ret = TAKE_PTR(policy);
        *ret_text = TAKE_PTR(text);
        return 0;
}

int build_policy_named(char *const *hosts, Policy **ret, Error *err) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        int r = policy_new(BUILD_POLICY_NAMED, &policy);

        if (r < 0)
                return error_set_errno(err, r, "cannot make the build's policy");
        for (; hosts && *hosts; hosts++) {
                const char *colon = strrchr(*hosts, ':');
                _cleanup_free_ char *host = colon ? strndup(*hosts, (size_t) (colon - *hosts)) : NULL;
                if (!host || !manifest_mirror_is_valid(*hosts) || name_pattern_check("host", host, NULL) < 0 || name_kind(host) != NAME_EXACT)
                        continue;
                r = rule_add(policy, host, (int) strtoul(colon + 1, NULL, 10), err);
                if (r < 0)
                        return r;
        }
        *ret = policy->n_rules > 0 ? TAKE_PTR(policy) : NULL;
        return 0;
}
