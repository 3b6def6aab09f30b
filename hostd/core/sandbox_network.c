// SPDX-License-Identifier: GPL-2.0-or-later
// SandboxNetwork: see sandbox_network.h. A profile stays a while when its last sandbox has gone: to make one is a transaction of libnftables, and the
// next sandbox is often like the last. Numbers are given round robin, so that a number is used again late.
#include "core/sandbox_network.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/log.h"
#include "base/strv.h"
#include "core/approvals.h"
#include "core/border_link.h"
#include "core/job.h"

#define PROFILES_IDLE 8 // without a sandbox; what is more goes, the oldest first

struct SandboxProfile {
        SandboxProfile *next;
        Manager *manager;
        uint16_t number;
        char instance[33];
        char **policies; // owned
        bool own;        // there are none: its instance's are meant, not nothing
        unsigned users;
        uint64_t idle; // counts up with each that became idle
};

struct SandboxNetwork {
        SandboxNetwork *next;
        Manager *manager;
        SandboxProfile *profile;
        uint16_t number;
        char id[33];
        NetworkAddress address;
};

typedef struct Removal { uint16_t number, profile; unsigned interface; } Removal;

typedef struct Removals {
        NetworkSettings settings;
        Removal *list; // owned
        size_t n;
} Removals;

typedef struct SandboxNetworks {
        SandboxProfile *profiles;
        SandboxNetwork *networks;
        size_t n;
        uint16_t last; // number that was given
        uint64_t idle;
        Removals removals;
        bool removing;
} SandboxNetworks;

static void removals_run(Manager *m);

static SandboxNetworks *networks_of(const Manager *m) {
        return m->sandbox_networks;
}

// ---- profiles

SandboxProfile *sandbox_profile_next(const Manager *m, const SandboxProfile *profile) {
        return profile ? profile->next : networks_of(m) ? networks_of(m)->profiles : NULL;
}

SandboxProfile *sandbox_profile_find(const Manager *m, uint16_t number) {
        SandboxProfile *p = sandbox_profile_next(m, NULL);

        while (p && p->number != number)
                p = p->next;
        return p;
}

uint16_t sandbox_profile_number(const SandboxProfile *profile) {
        return profile->number;
}

char *const *sandbox_profile_policies(const SandboxProfile *profile) {
        return profile->policies;
}

Instance *sandbox_profile_instance(const SandboxProfile *profile) {
        Instance *instance = instance_list_find(&profile->manager->instances, profile->instance);

        return instance && instance_is_live(instance) ? instance : NULL;
}

static void profile_forget(SandboxProfile *profile) {
        SandboxProfile **p = &networks_of(profile->manager)->profiles;

        while (*p && *p != profile)
                p = &(*p)->next;
        if (*p)
                *p = profile->next;
        strv_free(profile->policies);
        free(profile);
}

static void profile_remove(SandboxProfile *profile) {
        Manager *m = profile->manager;
        uint16_t number = profile->number;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = network_detach(m->network, number, &err);

        if (r < 0)
                manager_warn(m, "clean", profile->instance, "the network of sandboxes that are over cannot be removed: %s", error_message(&err, r));
        profile_forget(profile);
        border_link_changed(m, number);
}

static void profiles_trim(Manager *m) {
        for (;;) {
                SandboxProfile *oldest = NULL;
                unsigned n = 0;
                for (SandboxProfile *p = sandbox_profile_next(m, NULL); p; p = p->next)
                        if (p->users == 0) {
                                n++;
                                oldest = !oldest || p->idle < oldest->idle ? p : oldest;
                        }
                if (n <= PROFILES_IDLE)
                        return;
                profile_remove(oldest);
        }
}

// What the instance may, and what is named, as it is for this instance's template.
static int profile_policies(const SandboxProfile *profile, const Instance *instance, PolicySet *ret, Error *err) {
        InstanceConfig config;

        if (profile->own)
                return instance_policies(instance, ret, err);
        config = *instance->config; // borrowed; the names of its policies are others
        config.policies = profile->policies;
        return policy_set_load(instance->manager, instance->manager->desired, &config, NULL, ret, err);
}

static int profile_load(SandboxProfile *profile, Instance *instance, Error *err) {
        _cleanup_(policy_set_done) PolicySet policies = POLICY_SET_NULL;
        Manager *m = profile->manager;
        int r = profile_policies(profile, instance, &policies, err);

        if (r >= 0)
                r = network_profile_attach(m->network, profile->number, instance->record.slot, err);
        if (r >= 0)
                r = border_link_lead(m, profile->number, err);
        if (r >= 0)
                r = network_set_policy(m->network, profile->number, policies.list, policies.n, err);
        if (r >= 0)
                border_link_changed(m, profile->number);
        return r < 0 ? error_wrap(err, "the network of sandboxes") : 0;
}

// What it is to have cannot be had. The sandbox was made to have no more than that, so it has nothing until it can.
static int profile_close(SandboxProfile *profile, const Instance *instance, const Error *why, Error *err) {
        Manager *m = profile->manager;
        int r = network_profile_attach(m->network, profile->number, instance->record.slot, err);

        manager_warn(m, "sandbox-policy", profile->instance, "sandboxes of it reach nothing: %s", error_message(why, -EIO));
        if (r >= 0)
                r = border_link_lead(m, profile->number, err);
        if (r >= 0)
                r = network_set_policy(m->network, profile->number, NULL, 0, err);
        if (r >= 0)
                border_link_changed(m, profile->number);
        return r;
}

static bool has_policies(const SandboxProfile *profile, char *const *policies) {
        return profile->own == !policies && strv_equal(profile->policies, policies);
}

static uint16_t profile_number_choose(const Manager *m) {
        for (unsigned number = NETWORK_PROFILE_FIRST; number <= NETWORK_PROFILE_LAST; number++)
                if (!sandbox_profile_find(m, (uint16_t) number) && !network_compiled(m->network, (uint16_t) number))
                        return (uint16_t) number;
        return 0;
}

// `adopted`: whose sandboxes are there already, and stay.
static int profile_new(Instance *instance, uint16_t number, bool adopted, char *const *policies, SandboxProfile **ret, Error *err) {
        _cleanup_error_ Error why = ERROR_NULL;
        Manager *m = instance->manager;
        SandboxProfile *profile = number ? calloc(1, sizeof(SandboxProfile)) : NULL;
        int r;

        if (!number)
                return error_set(err, ERR_QUOTA, "too many sandboxes have policies of their own");
        if (!profile || (policies && *policies && !(profile->policies = strv_copy(policies)))) {
                free(profile);
                return error_set_errno(err, ENOMEM, "making the network of a sandbox");
        }
        profile->manager = m;
        profile->number = number;
        profile->own = !policies;
        (void) snprintf(profile->instance, sizeof(profile->instance), "%s", instance->record.name);
        profile->next = networks_of(m)->profiles;
        networks_of(m)->profiles = profile;
        r = profile_load(profile, instance, &why);
        if (r < 0 && adopted)
                r = profile_close(profile, instance, &why, err);
        else if (r < 0)
                error_move(err, &why);
        if (r < 0) {
                (void) network_detach(m->network, number, NULL); // the first error is the one to report
                profile_forget(profile);
                return r;
        }
        *ret = profile;
        return 0;
}

// One that the instance's stop took from the kernel is made anew. `number`: of an earlier hostd, 0: whichever.
static int profile_get(Instance *instance, uint16_t number, char *const *policies, SandboxProfile **ret, Error *err) {
        Manager *m = instance->manager;

        for (SandboxProfile *p = sandbox_profile_next(m, NULL); p; p = p->next) {
                if (strcmp(p->instance, instance->record.name) != 0 || !has_policies(p, policies) || (number && p->number != number))
                        continue;
                *ret = p;
                return network_compiled(m->network, p->number) ? 0 : profile_load(p, instance, err);
        }
        return profile_new(instance, number ?: profile_number_choose(m), number > 0, policies, ret, err);
}

void sandbox_network_apply(Instance *instance) {
        Manager *m = instance->manager;
        bool all = true;

        for (SandboxProfile *p = sandbox_profile_next(m, NULL); p; p = p->next) {
                _cleanup_error_ Error err = ERROR_NULL;
                int r;
                if (strcmp(p->instance, instance->record.name) != 0 || !network_compiled(m->network, p->number))
                        continue;
                r = profile_load(p, instance, &err);
                if (r >= 0)
                        continue;
                all = false;
                (void) profile_close(p, instance, &err, NULL);
        }
        if (all)
                manager_unwarn(m, "sandbox-policy", instance->record.name);
}

// ---- sandboxes

SandboxNetwork *sandbox_network_next(const Manager *m, const SandboxNetwork *network) {
        return network ? network->next : networks_of(m) ? networks_of(m)->networks : NULL;
}

SandboxNetwork *sandbox_network_find(const Manager *m, uint16_t number) {
        SandboxNetwork *n = sandbox_network_next(m, NULL);

        while (n && n->number != number)
                n = n->next;
        return n;
}

uint16_t sandbox_network_number(const SandboxNetwork *network) {
        return network->number;
}

const NetworkAddress *sandbox_network_address(const SandboxNetwork *network) {
        return &network->address;
}

const char *sandbox_network_id(const SandboxNetwork *network) {
        return network->id;
}

SandboxProfile *sandbox_network_profile(const SandboxNetwork *network) {
        return network->profile;
}

static uint16_t number_choose(const Manager *m) {
        SandboxNetworks *all = networks_of(m);
        const unsigned count = NETWORK_SANDBOX_LAST - NETWORK_SANDBOX_FIRST + 1;

        for (unsigned i = 1; i <= count; i++) {
                uint16_t number = (uint16_t) (NETWORK_SANDBOX_FIRST + (all->last + i) % count);
                if (sandbox_network_find(m, number) || network_sandbox_profile(m->network, number))
                        continue;
                all->last = (uint16_t) (number - NETWORK_SANDBOX_FIRST);
                return number;
        }
        return 0;
}

static int check(Instance *instance, Error *err) {
        Manager *m = instance->manager;

        if (!m->sandbox_networks && !(m->sandbox_networks = calloc(1, sizeof(SandboxNetworks))))
                return error_set_errno(err, ENOMEM, "making the network of a sandbox");
        if (!instance_is_live(instance) || !instance->config)
                return error_set(err, ERR_CONFLICT, "%s does not run", instance->record.name);
        if (!network_has_sandboxes(&m->desired->host.network))
                return error_set(err, ERR_QUOTA, "network.ipv4_pool has no addresses for sandboxes: it needs a prefix length of at most 18");
        if (networks_of(m)->n >= SANDBOX_NETWORKS_MAX)
                return error_set(err, ERR_QUOTA, "%d sandboxes have a network, which is as many as there may be", SANDBOX_NETWORKS_MAX);
        return 0;
}

static int network_make(SandboxProfile *profile, const char *id, uint16_t number, SandboxNetwork **ret, Error *err) {
        Manager *m = profile->manager;
        SandboxNetwork *network = number ? calloc(1, sizeof(SandboxNetwork)) : NULL;

        if (!network)
                return number ? error_set_errno(err, ENOMEM, "making the network of a sandbox") : error_set(err, ERR_QUOTA, "all numbers of sandboxes are in use");
        network->manager = m;
        network->profile = profile;
        network->number = number;
        (void) snprintf(network->id, sizeof(network->id), "%s", id);
        network_sandbox_address(&m->desired->host.network, number, profile->number, &network->address);
        profile->users++;
        network->next = networks_of(m)->networks;
        networks_of(m)->networks = network;
        networks_of(m)->n++;
        *ret = network;
        return 0;
}

int sandbox_network_new(Instance *instance, const char *id, char *const *policies, SandboxNetwork **ret, Error *err) {
        SandboxProfile *profile;
        int r = check(instance, err);

        if (r >= 0)
                r = profile_get(instance, 0, policies, &profile, err);
        return r < 0 ? r : network_make(profile, id, number_choose(instance->manager), ret, err);
}

int sandbox_network_adopt(Instance *instance, const char *id, uint16_t number, char *const *policies, SandboxNetwork **ret, Error *err) {
        Manager *m = instance->manager;
        uint16_t found = network_sandbox_profile(m->network, number);
        SandboxProfile *profile;
        int r = check(instance, err);

        if (r < 0)
                return r;
        if (!found || sandbox_network_find(m, number))
                return error_set_errno(err, ENOENT, "the network of sandbox %s", id);
        r = profile_get(instance, found, policies, &profile, err);
        if (r >= 0)
                r = network_make(profile, id, number, ret, err);
        if (r < 0)
                return r;
        networks_of(m)->last = MAX2(networks_of(m)->last, (uint16_t) (number - NETWORK_SANDBOX_FIRST));
        border_link_changed(m, number);
        return 0;
}

int sandbox_network_plug(SandboxNetwork *network, int netns, Error *err) {
        Manager *m = network->manager;
        Instance *instance = sandbox_profile_instance(network->profile);
        int r = instance ? 0 : error_set(err, ERR_CONFLICT, "%s does not run", network->profile->instance);

        if (r >= 0 && !network_compiled(m->network, network->profile->number)) // its instance was stopped and started since
                r = profile_load(network->profile, instance, err);
        if (r >= 0)
                r = network_sandbox_plug(m->network, network->number, network->profile->number, netns, err);
        if (r >= 0)
                border_link_changed(m, network->number);
        return r;
}

static int removals_work(void *input, json_t **ret, Error *err) {
        const Removals *list = input;
        int result = 0;

        for (size_t i = 0; i < list->n; i++) {
                const Removal *removal = &list->list[i];
                int r = network_unplug(removal->interface, err);
                if (r >= 0)
                        r = network_sandbox_forget(&list->settings, removal->number, removal->profile, err);
                result = result < 0 ? result : r;
        }
        return result;
}

static void removals_done(void *userdata, int r, json_t *result, Error *err) {
        Manager *m = userdata;

        if (r < 0)
                log_warning("the network of a sandbox that is over: %s", error_message(err, r));
        if (!networks_of(m))
                return;
        networks_of(m)->removing = false;
        removals_run(m);
}

// The kernel takes 20 to 40 ms to remove a wire, and looks through all connections for those of one address: not in the loop, and one process for
// all that ended meanwhile.
static void removals_run(Manager *m) {
        SandboxNetworks *all = networks_of(m);
        JobSpec spec = {removals_work, &all->removals, removals_done, m};

        if (all->removing || all->removals.n == 0 || m->stopping)
                return;
        all->removals.settings = m->desired->host.network;
        if (job_start(m->event, &spec, NULL) < 0)
                return; // with the next; what nobody removes is a leftover
        all->removing = true;
        all->removals.n = 0; // the process has its own
}

static void remove_later(const SandboxNetwork *network, unsigned interface) {
        Removals *removals = &networks_of(network->manager)->removals;
        Removal *list = reallocarray(removals->list, removals->n + 1, sizeof(Removal));

        if (!list)
                return;
        removals->list = list;
        list[removals->n++] = (Removal) {network->number, network->profile->number, interface};
        removals_run(network->manager);
}

SandboxNetwork *sandbox_network_free(SandboxNetwork *network) {
        Manager *m = network ? network->manager : NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        SandboxNetwork **p;
        unsigned interface;
        int r;

        if (!network)
                return NULL;
        for (p = &networks_of(m)->networks; *p && *p != network; p = &(*p)->next)
                ;
        if (*p)
                *p = network->next;
        networks_of(m)->n--;
        border_link_changed(m, network->number); // before the wire goes: nobody is to listen on it
        interface = network_sandbox_interface(m->network, network->number);
        r = network_sandbox_leave(m->network, network->number, &err);
        if (r < 0)
                manager_warn(m, "clean", network->profile->instance, "the network of a sandbox cannot be removed: %s", error_message(&err, r));
        remove_later(network, interface);
        if (--network->profile->users == 0) {
                network->profile->idle = ++networks_of(m)->idle;
                profiles_trim(m);
        }
        free(network);
        return NULL;
}

void sandbox_network_done(Manager *m) {
        SandboxNetworks *all = networks_of(m);

        while (all && all->networks) {
                SandboxNetwork *next = all->networks->next;
                free(all->networks);
                all->networks = next;
        }
        while (all && all->profiles)
                profile_forget(all->profiles);
        if (all)
                free(all->removals.list);
        free(all);
        m->sandbox_networks = NULL;
}
