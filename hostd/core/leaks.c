// SPDX-License-Identifier: GPL-2.0-or-later
// Leaks: see leaks.h.
#include "core/leaks.h"

#include <dirent.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "core/border_link.h"
#include "core/build_wire.h"
#include "core/sandbox.h"
#include "core/sandbox_network.h"

static void leak_add(json_t *list, const char *kind, const char *object) {
        (void) json_array_append_new(list, json_pack("{s:s, s:s}", "kind", kind, "object", object));
}

static Instance *instance_of_prefix(Manager *m, const char *prefix) {
        for (Instance *i = m->instances.first; i; i = i->next) {
                _cleanup_free_ char *own = instance_cgroup_prefix(i);
                if (own && instance_is_active(i) && strcmp(own, prefix) == 0)
                        return i;
        }
        return NULL;
}

static int leaks_cgroups(Manager *m, json_t *list, Error *err) {
        _cleanup_strv_ char **prefixes = NULL;
        int r = cgroup_host_list(m->cgroup, &prefixes, err);

        for (char **p = prefixes; r >= 0 && p && *p; p++)
                if (!instance_of_prefix(m, *p))
                        leak_add(list, "cgroup", *p);
        return r;
}

static int network_leftovers(Manager *m, NetworkLeaks *ret, Error *err) {
        static uint16_t live[NETWORK_SANDBOX_LAST]; // hostd has one thread
        size_t n = 0;

        for (Instance *i = m->instances.first; i && n < ELEMENTS(live); i = i->next)
                if (instance_is_active(i))
                        live[n++] = i->record.slot;
        for (BuildWire *w = build_wire_next(m, NULL); w && n < ELEMENTS(live); w = build_wire_next(m, w))
                live[n++] = build_wire_slot(w);
        for (SandboxProfile *p = sandbox_profile_next(m, NULL); p && n < ELEMENTS(live); p = sandbox_profile_next(m, p))
                live[n++] = sandbox_profile_number(p);
        for (SandboxNetwork *s = sandbox_network_next(m, NULL); s && n < ELEMENTS(live); s = sandbox_network_next(m, s))
                live[n++] = sandbox_network_number(s);
        return network_leaks(live, n, ret, err);
}

static int leaks_network(Manager *m, json_t *list, Error *err) {
        _cleanup_(network_leaks_done) NetworkLeaks leaks = {0};
        int r = network_leftovers(m, &leaks, err);

        for (size_t i = 0; r >= 0 && i < leaks.n; i++)
                leak_add(list, "network", leaks.leaks[i].object);
        return r;
}

static void leaks_directory(Manager *m, json_t *list, const char *base, bool run) {
        _cleanup_free_ char *path = NULL;
        DIR *d = asprintf(&path, "%s/instances", base) < 0 ? NULL : opendir(path);
        struct dirent *e;
        unsigned slot;

        while (d && (e = readdir(d))) {
                Instance *i = NULL;
                if (e->d_name[0] == '.')
                        continue;
                if (run && sscanf(e->d_name, "i%4x", &slot) == 1)
                        i = instance_list_by_slot(&m->instances, (uint16_t) slot);
                if (!run)
                        i = instance_list_find(&m->instances, e->d_name);
                if (!i || (run && !instance_is_active(i)))
                        leak_add(list, run ? "run directory" : "storage", e->d_name);
        }
        if (d)
                (void) closedir(d);
}

// RUN/by-name/NAME of what does not run.
static void leaks_names(Manager *m, json_t *list) {
        _cleanup_free_ char *path = NULL;
        DIR *d = asprintf(&path, "%s/by-name", m->paths.run) < 0 ? NULL : opendir(path);
        struct dirent *e;

        while (d && (e = readdir(d))) {
                const Instance *i = e->d_name[0] == '.' ? NULL : instance_list_find(&m->instances, e->d_name);
                if (e->d_name[0] != '.' && (!i || !instance_is_active(i)))
                        leak_add(list, "run name", e->d_name);
        }
        if (d)
                (void) closedir(d);
}

static void leaks_sockets(Manager *m, json_t *list) {
        json_t *sockets = border_link_leaks(m), *name;
        size_t index;

        json_array_foreach(sockets, index, name)
                leak_add(list, "socket", json_string_value(name));
        json_decref(sockets);
}

static void leaks_sandboxes(Manager *m, json_t *list) {
        for (Instance *i = m->instances.first; i; i = i->next) {
                _cleanup_strv_ char **groups = NULL;
                if (!i->box || cgroup_sandbox_list(i->box, &groups) < 0)
                        continue;
                for (char **id = groups; id && *id; id++) {
                        const Sandbox *s = sandbox_find(m, *id);
                        if (!s || !s->has_group)
                                leak_add(list, "sandbox", *id);
                }
        }
}

json_t *leaks_list(Manager *m, Error *err) {
        json_t *list = json_array();
        int r;

        r = leaks_cgroups(m, list, err);
        if (r >= 0)
                r = leaks_network(m, list, err);
        if (r < 0) {
                json_decref(list);
                return NULL;
        }
        leaks_directory(m, list, m->paths.run, true);
        leaks_names(m, list);
        leaks_directory(m, list, m->paths.state, false);
        leaks_sockets(m, list);
        leaks_sandboxes(m, list);
        return list;
}

static void sweep_end(Manager *m, const char *kind, const char *object, int r) {
        if (r < 0)
                manager_warn(m, "leak", "host", "%s %s cannot be removed: %s", kind, object, strerror(-r));
        else
                log_info("removed leftover %s %s", kind, object);
}

// A slot has many objects, and goes as a whole.
static int sweep_network(Manager *m, Error *err) {
        _cleanup_(network_leaks_done) NetworkLeaks leaks = {0};
        int r = network_leftovers(m, &leaks, err);

        for (size_t i = 0; r >= 0 && i < leaks.n; i++) {
                bool done = false;
                for (size_t k = 0; k < i && !done; k++)
                        done = leaks.leaks[k].slot == leaks.leaks[i].slot;
                if (!done)
                        sweep_end(m, "network", leaks.leaks[i].object, network_detach(m->network, leaks.leaks[i].slot, NULL));
        }
        return r < 0 ? r : (int) leaks.n;
}

static void sweep_one(Manager *m, const char *kind, const char *object) {
        _cleanup_free_ char *path = NULL;

        if (strcmp(kind, "cgroup") == 0)
                sweep_end(m, kind, object, cgroup_host_sweep(m->cgroup, object));
        else if (strcmp(kind, "run directory") == 0 && asprintf(&path, "%s/instances/%s", m->paths.run, object) >= 0)
                sweep_end(m, kind, object, io_remove_tree(AT_FDCWD, path));
        else if (strcmp(kind, "run name") == 0 && asprintf(&path, "%s/by-name/%s", m->paths.run, object) >= 0)
                sweep_end(m, kind, object, unlink(path) < 0 ? -errno : 0);
        else if (strcmp(kind, "socket") == 0 && asprintf(&path, "%s/%s", m->paths.run, object) >= 0)
                sweep_end(m, kind, object, unlink(path) < 0 ? -errno : 0);
        // Storage without a record may be somebody's data: reported, not removed.
}

int leaks_sweep(Manager *m, Error *err) {
        int network, others;
        json_t *list, *leak;
        size_t index;

        manager_unwarn(m, "leak", "host"); // said again of what is still there
        network = sweep_network(m, err);
        list = network < 0 ? NULL : leaks_list(m, err);
        if (!list)
                return -EIO;
        others = (int) json_array_size(list);
        json_array_foreach(list, index, leak)
                sweep_one(m, json_string_value(json_object_get(leak, "kind")), json_string_value(json_object_get(leak, "object")));
        json_decref(list);
        return network + others;
}
