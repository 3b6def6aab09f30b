// SPDX-License-Identifier: GPL-2.0-or-later
// Expose: one value of the store for each port of the host: "network.expose/tcp/8080" is "NAME ID PORT UNTIL FROM".
//
// UNTIL is a time of the wall clock, in microseconds, 0 for none: it counts also while the instance or the host is off.
#include "core/expose.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/strv.h"
#include "network/compile.h"

#define PREFIX "network.expose/"
#define PROC_MAX (16U << 20)

typedef struct Exposure {
        char name[33], from[CIDR_TEXT_MAX]; // "-": everywhere
        char key[64];
        unsigned id;
        uint16_t port, as;
        uint8_t protocol;
        unsigned long long until;
} Exposure;

typedef struct Exposures { Exposure *list; size_t n; } Exposures;

static void exposures_done(Exposures *exposures) {
        free(exposures->list);
}

static const char *protocol_name(uint8_t protocol) {
        return protocol == IPPROTO_UDP ? "udp" : "tcp";
}

static bool exposure_parse(const char *key, const char *text, Exposure *ret) {
        char protocol[4];
        unsigned port, as;

        *ret = (Exposure) {0};
        if (sscanf(key, PREFIX "%3[a-z]/%u", protocol, &as) != 2 || sscanf(text, "%32s %u %u %llu %63s", ret->name, &ret->id, &port, &ret->until, ret->from) != 5)
                return false;
        (void) snprintf(ret->key, sizeof(ret->key), "%s", key);
        ret->protocol = strcmp(protocol, "udp") == 0 ? IPPROTO_UDP : IPPROTO_TCP;
        ret->port = (uint16_t) port;
        ret->as = (uint16_t) as;
        return true;
}

static int exposures_read(Manager *m, Exposures *ret, Error *err) {
        _cleanup_strv_ char **keys = NULL;
        int r = store_value_list(m->store, PREFIX, &keys, err);

        if (r < 0)
                return r;
        ret->list = calloc(strv_length(keys) + 1, sizeof(Exposure));
        if (!ret->list)
                return error_set_errno(err, ENOMEM, "reading what is exposed");
        for (char **key = keys; key && *key; key++) {
                _cleanup_free_ char *text = NULL;
                if (store_value_get(m->store, *key, &text, NULL) >= 0 && exposure_parse(*key, text, &ret->list[ret->n]))
                        ret->n++;
        }
        return 0;
}

static bool has_ended(const Exposure *exposure) {
        return exposure->until && exposure->until <= clock_realtime();
}

static NetworkExposure network_exposure(const Instance *instance, const Exposure *exposure) {
        NetworkExposure e = {.slot = instance->record.slot, .id = (uint8_t) exposure->id, .protocol = exposure->protocol, .host_port = exposure->as,
                             .port = exposure->port};
        usec_t now = clock_realtime();
        Cidr from;

        if (exposure->until)
                e.left_ms = exposure->until > now ? (exposure->until - now) / USEC_PER_MSEC + 1 : 1;
        if (strcmp(exposure->from, "-") == 0)
                return e;
        if (cidr_parse(exposure->from, &from) < 0) // a value that somebody broke: nobody comes from there
                from = (Cidr) {.family = AF_INET, .prefix = 32};
        e.from_family = from.family;
        e.from_prefix = from.prefix;
        memcpy(e.from, from.bytes, sizeof(e.from));
        return e;
}

// Columns of /proc/net/tcp and its like: number, address:port, peer, state. What listens on loopback only is not in the way.
static bool line_has_port(const char *line, bool tcp, uint16_t port) {
        char address[33];
        unsigned found, state;

        if (sscanf(line, "%*u: %32[0-9A-F]:%x %*s %x", address, &found, &state) != 3 || found != port || (tcp && state != 0x0a))
                return false;
        return strcmp(address + strlen(address) - 2, "7F") != 0 && strcmp(address, "00000000000000000000000001000000") != 0;
}

// Where a port is led away its listener is not reached from outside any more: nobody should lock himself out of ssh.
static int check_host(const ExposeAsk *ask, Error *err) {
        bool tcp = ask->protocol == IPPROTO_TCP;
        const char *const files[] = {tcp ? "/proc/net/tcp" : "/proc/net/udp", tcp ? "/proc/net/tcp6" : "/proc/net/udp6"};

        for (size_t i = 0; i < ELEMENTS(files); i++) {
                _cleanup_free_ char *text = NULL;
                char *rest, *line;
                int r = io_read_file(AT_FDCWD, files[i], PROC_MAX, &text, NULL);
                if (r == -ENOENT)
                        continue;
                if (r < 0)
                        return error_set_errno(err, r, "reading %s", files[i]);
                rest = text;
                while ((line = strsep(&rest, "\n")))
                        if (line_has_port(line, tcp, ask->as))
                                return error_set(err, ERR_CONFLICT, "something on this host listens on %s port %u: choose another one with --as", protocol_name(ask->protocol), ask->as);
        }
        return 0;
}

// The first free number of the instance; -1 if it has them all.
static int free_id(const Exposures *all, const char *name) {
        for (unsigned id = 0; id < NETWORK_EXPOSURES_MAX; id++) {
                bool used = false;
                for (size_t i = 0; i < all->n && !used; i++)
                        used = all->list[i].id == id && strcmp(all->list[i].name, name) == 0;
                if (!used)
                        return (int) id;
        }
        return -1;
}

static int check_others(const Exposures *all, const Instance *instance, const ExposeAsk *ask, Error *err) {
        for (size_t i = 0; i < all->n; i++)
                if (all->list[i].as == ask->as && all->list[i].protocol == ask->protocol)
                        return error_set(err, ERR_CONFLICT, "%s port %u of the host leads to port %u of %s already%s", protocol_name(ask->protocol), ask->as,
                                         all->list[i].port, all->list[i].name, strcmp(all->list[i].name, instance->record.name) == 0 ? ": unexpose it first" : "");
        return 0;
}

static int exposure_write(Manager *m, const Exposure *exposure, Error *err) {
        char text[160];

        (void) snprintf(text, sizeof(text), "%s %u %u %llu %s", exposure->name, exposure->id, exposure->port, exposure->until, exposure->from);
        return store_value_set(m->store, exposure->key, text, err);
}

static void tell(const Exposure *exposure, Manager *m, const char *event) {
        event_publish(m->bus, event, exposure->name, json_pack("{s:s, s:i, s:i, s:s}", "protocol", protocol_name(exposure->protocol), "port", (int) exposure->port,
                                                               "as", (int) exposure->as, "from", exposure->from));
}

// Rules about "@preview" say which ports may be led to.
static bool policies_allow(const Instance *instance, uint8_t protocol, uint16_t port) {
        _cleanup_free_ Policy **policies = NULL;
        size_t n = 0;

        if (!instance->config)
                return true;
        if (desired_find_policies(instance->manager->desired, instance->config->policies, &policies, &n, NULL) < 0)
                return false;
        return policy_may_expose(policies, n, protocol == IPPROTO_UDP ? POLICY_UDP : POLICY_TCP, port);
}

int expose_add(Instance *instance, const ExposeAsk *ask, Error *err) {
        Manager *m = instance->manager;
        _cleanup_(exposures_done) Exposures all = {0};
        char network[CIDR_TEXT_MAX];
        Exposure exposure = {.port = ask->port, .as = ask->as, .protocol = ask->protocol};
        Cidr from;
        int id, r;

        if (ask->from && cidr_parse(ask->from, &from) < 0)
                return error_set_field(err, "from", "from must be an address or a network without host bits, such as 192.0.2.0/24");
        if (!policies_allow(instance, ask->protocol, ask->port))
                return error_set(err, ERR_DENIED, "the policies of %s have rules to @" POLICY_PREVIEW ", and none allows %s port %u", instance->record.name,
                                 protocol_name(ask->protocol), ask->port);
        expose_expire(m);
        r = exposures_read(m, &all, err);
        if (r >= 0)
                r = check_others(&all, instance, ask, err);
        if (r >= 0)
                r = check_host(ask, err);
        if (r < 0)
                return r;
        id = free_id(&all, instance->record.name);
        if (id < 0)
                return error_set(err, ERR_QUOTA, "%s has %d exposed ports: unexpose one first", instance->record.name, NETWORK_EXPOSURES_MAX);
        exposure.id = (unsigned) id;
        exposure.until = ask->span ? clock_realtime() + ask->span : 0;
        (void) snprintf(exposure.name, sizeof(exposure.name), "%s", instance->record.name);
        (void) snprintf(exposure.from, sizeof(exposure.from), "%s", ask->from ? cidr_format(&from, network, sizeof(network)) : "-");
        (void) snprintf(exposure.key, sizeof(exposure.key), PREFIX "%s/%u", protocol_name(ask->protocol), ask->as);
        r = exposure_write(m, &exposure, err);
        if (r >= 0 && instance_is_live(instance)) {
                NetworkExposure e = network_exposure(instance, &exposure);
                r = network_expose(m->network, &e, err);
                if (r < 0)
                        (void) store_value_set(m->store, exposure.key, NULL, NULL);
        }
        if (r >= 0)
                tell(&exposure, m, "port-exposed");
        return r;
}

int expose_remove(Instance *instance, uint8_t protocol, uint16_t port, Error *err) {
        Manager *m = instance->manager;
        _cleanup_(exposures_done) Exposures all = {0};
        bool found = false;
        int r = exposures_read(m, &all, err);

        for (size_t i = 0; i < all.n && r >= 0; i++) {
                const Exposure *exposure = &all.list[i];
                NetworkExposure e = network_exposure(instance, exposure);
                if (exposure->port != port || exposure->protocol != protocol || strcmp(exposure->name, instance->record.name) != 0)
                        continue;
                found = true;
                if (instance_is_live(instance))
                        r = network_unexpose(m->network, &e, err);
                if (r >= 0)
                        r = store_value_set(m->store, exposure->key, NULL, err);
                if (r >= 0)
                        tell(exposure, m, "port-unexposed");
        }
        if (r >= 0 && !found)
                return error_set(err, ERR_NOT_FOUND, "%s port %u of %s is not exposed", protocol_name(protocol), port, instance->record.name);
        return r;
}

json_t *expose_list(Manager *m, const char *name) {
        _cleanup_(exposures_done) Exposures all = {0};
        json_t *list = json_array();

        (void) exposures_read(m, &all, NULL);
        for (size_t i = 0; i < all.n; i++) {
                const Exposure *e = &all.list[i];
                if (has_ended(e) || (name && strcmp(e->name, name) != 0))
                        continue;
                (void) json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:s, s:o}", "name", e->name, "protocol", protocol_name(e->protocol), "port", (int) e->port,
                                                             "as", (int) e->as, "from", strcmp(e->from, "-") == 0 ? "everywhere" : e->from, "left",
                                                             e->until ? json_integer((json_int_t) (e->until - clock_realtime())) : json_null()));
        }
        return list;
}

int expose_resume(Instance *instance, Error *err) {
        Manager *m = instance->manager;
        _cleanup_(exposures_done) Exposures all = {0};
        int r = exposures_read(m, &all, err);

        for (size_t i = 0; i < all.n && r >= 0; i++) {
                NetworkExposure e = network_exposure(instance, &all.list[i]);
                if (!has_ended(&all.list[i]) && strcmp(all.list[i].name, instance->record.name) == 0)
                        r = network_expose(m->network, &e, err);
        }
        instance->exposed = r >= 0;
        return r;
}

int expose_forget(Instance *instance, Error *err) {
        _cleanup_(exposures_done) Exposures all = {0};
        int r = exposures_read(instance->manager, &all, err);

        for (size_t i = 0; i < all.n && r >= 0; i++)
                if (strcmp(all.list[i].name, instance->record.name) == 0)
                        r = store_value_set(instance->manager->store, all.list[i].key, NULL, err);
        return r;
}

void expose_expire(Manager *m) {
        _cleanup_(exposures_done) Exposures all = {0};

        (void) exposures_read(m, &all, NULL);
        for (size_t i = 0; i < all.n; i++) {
                Instance *instance = has_ended(&all.list[i]) ? instance_list_find(&m->instances, all.list[i].name) : NULL;
                if (!has_ended(&all.list[i]))
                        continue;
                if (instance && instance_is_live(instance)) { // the kernel's clock may be behind the wall's
                        NetworkExposure e = network_exposure(instance, &all.list[i]);
                        (void) network_unexpose(m->network, &e, NULL);
                }
                (void) store_value_set(m->store, all.list[i].key, NULL, NULL);
                tell(&all.list[i], m, "port-unexposed");
        }
}

void expose_review(Instance *instance) {
        Manager *m = instance->manager;
        _cleanup_(exposures_done) Exposures all = {0};

        if (exposures_read(m, &all, NULL) < 0)
                return; // the store's own failure is told elsewhere; the next change of a policy tries again
        for (size_t i = 0; i < all.n; i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                const Exposure *e = &all.list[i];
                if (strcmp(e->name, instance->record.name) != 0 || policies_allow(instance, e->protocol, e->port))
                        continue;
                int r = expose_remove(instance, e->protocol, e->port, &err);
                if (r < 0 && r != -ENOENT)
                        manager_warn(m, "expose", instance->record.name, "port %u is still exposed, which no policy allows any more: %s", e->port, error_message(&err, r));
        }
}
