// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, wire: how it comes to its network (core/sandbox_network.h). Number and policies are in its line before anything of them is in the kernel. The wire is
// plugged when its process 1 has answered and was found to be in its group: that has the network namespace and is hostd-guest, which starts nothing before it
// is asked to. So no command of it ever runs without the network that it was promised, and names can be resolved as soon as one does.
#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>

#include "base/log.h"
#include "base/strv.h"
#include "base/valid.h"
#include "core/border_link.h"
#include "core/manager.h"
#include "core/sandbox.h"
#include "core/sandbox_network.h"
#include "instance/netns.h"

#define AGENT 1000 // inside the instance: who owns the user namespaces of its sandboxes
#define GONE_LIMIT (4 * USEC_PER_SEC) // for its interface to go
#define POLICIES_MAX 64

typedef struct WireWait {
        Manager *manager;
        char id[GUEST_ID_MAX];
} WireWait;

// ---- what is asked for

static bool is_word(const char *text) {
        return strcmp(text, SANDBOX_NETWORK_NONE) == 0 || strcmp(text, SANDBOX_NETWORK_INSTANCE) == 0;
}

// *ret: policies' names; NULL for none and for the instance's own.
int sandbox_network_parse(const char *text, char ***ret, Error *err) {
        _cleanup_strv_ char **names = NULL;
        int r = is_word(text) ? 0 : strv_split(text, ",", &names);

        for (char **name = names; r >= 0 && name && *name; name++) {
                r = valid_check(VALID_NAME, "network", *name, err);
                if (r >= 0 && is_word(*name))
                        r = error_set_field(err, "network", "network: \"%s\" stands alone, and not among policies", *name);
        }
        if (r >= 0 && !names && !is_word(text))
                r = error_set_field(err, "network", "network: \"%s\" is neither none nor instance nor names of policies", text);
        if (r >= 0 && strv_length(names) > POLICIES_MAX)
                r = error_set_field(err, "network", "network: there are %zu policies, and at most %d", strv_length(names), POLICIES_MAX);
        if (r >= 0)
                *ret = TAKE_PTR(names);
        return r;
}

int sandbox_wire_check(const Manager *m, const char *text, Error *err) {
        _cleanup_strv_ char **names = NULL;
        int r = text ? sandbox_network_parse(text, &names, err) : 0;

        for (char **name = names; r >= 0 && name && *name; name++)
                if (!desired_find_policy(m->desired, *name))
                        r = error_set(err, ERR_NOT_FOUND, "network names \"%s\", and there is no policy of that name: create it with \"hostctl policy set\"", *name);
        return r;
}

static Instance *wire_instance(const Sandbox *s) {
        return instance_list_find(&s->manager->instances, s->instance);
}

// ---- making it

int sandbox_wire_new(Sandbox *s, Error *err) {
        _cleanup_strv_ char **policies = NULL;
        Instance *instance = wire_instance(s);
        int r;

        if (!s->network)
                return 0;
        r = instance ? sandbox_network_parse(s->network, &policies, err) : error_set(err, ERR_NOT_FOUND, "there is no instance %s", s->instance);
        if (r >= 0)
                r = sandbox_network_new(instance, s->id, policies, &s->wire, err);
        if (r >= 0)
                s->number = sandbox_network_number(s->wire);
        return r;
}

// Of a process that the kernel says is in the sandbox's group, before its namespace was opened and afterwards; netns_open_of() looks whether it lived meanwhile.
static int wire_netns(const Sandbox *s, const Instance *instance, int *ret, Error *err) {
        uid_t agent = (uid_t) idpool_slot_base(&s->manager->pool, instance->record.slot) + AGENT;
        _cleanup_close_ int netns = -EBADF;
        pid_t pid = guest_channel_helper(s->channel);
        int r;

        if (pid <= 0 || !cgroup_box_has(s->box, pid))
                return error_set(err, ERR_DENIED, "its first process is not in its group any more");
        r = netns_open_of(pid, agent, &netns, err);
        if (r < 0)
                return r;
        if (!cgroup_box_has(s->box, pid))
                return error_set(err, ERR_DENIED, "its first process is not in its group any more");
        *ret = TAKE_FD(netns);
        return 0;
}

static int wire_plug(Sandbox *s, Error *err) {
        const Instance *instance = wire_instance(s);
        _cleanup_close_ int netns = -EBADF;
        int r = 0;

        if (!instance || !s->channel || !s->box)
                return error_set(err, ERR_UNAVAILABLE, "its first process is gone");
        if (!s->wire) { // of an earlier hostd, and the kernel had it no more
                r = sandbox_wire_new(s, err);
                if (r >= 0)
                        r = sandbox_save(s, err);
        }
        if (r >= 0)
                r = wire_netns(s, instance, &netns, err);
        return r < 0 ? r : sandbox_network_plug(s->wire, netns, err);
}

static void wire_usable(void *userdata) {
        WireWait *wait = userdata;
        Sandbox *s = sandbox_find(wait->manager, wait->id);

        free(wait);
        if (s && s->state == SANDBOX_CREATING && s->channel) // else what comes of its end is on its way
                sandbox_made(s);
}

static void wire_failed(Sandbox *s, const Error *err, int r) {
        if (s->state == SANDBOX_CREATING) {
                sandbox_end(s, SANDBOX_CAUSE_FAILED, error_message(err, r));
                return;
        }
        sandbox_wire_cut(s); // it goes on, closed
        log_event(LOG_WARNING, NULL, s->instance, "sandbox %s has no network since hostd was restarted: %s", s->id, error_message(err, r));
}

static void wire_begin(Sandbox *s) {
        WireWait *wait = calloc(1, sizeof(WireWait));
        _cleanup_error_ Error err = ERROR_NULL;
        int r = wait ? wire_plug(s, &err) : error_set_errno(&err, ENOMEM, "giving it a network");

        if (r < 0) {
                free(wait);
                wire_failed(s, &err, r);
                return;
        }
        if (s->state != SANDBOX_CREATING)
                log_event(LOG_WARNING, NULL, s->instance, "the interface of sandbox %s was gone and is made anew", s->id);
        wait->manager = s->manager;
        (void) snprintf(wait->id, sizeof(wait->id), "%s", s->id);
        border_link_wait(s->manager, wire_usable, wait); // two seconds at most
}

void sandbox_wire_begin(Sandbox *s) {
        if (s->network && (s->state == SANDBOX_CREATING || !s->wire))
                wire_begin(s);
        else if (s->state == SANDBOX_CREATING)
                sandbox_made(s);
}

// ---- keeping and ending it

// What the kernel has no more is made anew when the sandbox answers.
void sandbox_wire_adopt(Sandbox *s) {
        _cleanup_strv_ char **policies = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        Instance *instance = wire_instance(s);
        int r = instance && s->network ? sandbox_network_parse(s->network, &policies, &err) : -ENOENT;

        if (r >= 0)
                r = sandbox_network_adopt(instance, s->id, s->number, policies, &s->wire, &err);
        if (r >= 0 && !network_sandbox_is_plugged(s->manager->network, s->number)) // somebody removed it, while no hostd was there perhaps
                s->wire = sandbox_network_free(s->wire);
        if (r < 0 && r != -ENOENT)
                log_event(LOG_WARNING, NULL, s->instance, "sandbox %s: %s", s->id, error_message(&err, r));
}

void sandbox_wire_cut(Sandbox *s) {
        if (!s->wire)
                return;
        s->interface = network_sandbox_interface(s->manager->network, s->number);
        s->wire_cut = clock_monotonic();
        s->wire = sandbox_network_free(s->wire);
}

void sandbox_wires_cut(Instance *instance) {
        for (Sandbox *s = instance->manager->sandboxes; s; s = s->next)
                if (strcmp(s->instance, instance->record.name) == 0)
                        sandbox_wire_cut(s);
}

// A job removes it, which takes the kernel some 30 ms. What is still there after seconds is a leftover, and "hostctl leaks" says so.
bool sandbox_wire_lingers(const Sandbox *s) {
        char name[IF_NAMESIZE];

        return s->interface > 0 && clock_monotonic() - s->wire_cut < GONE_LIMIT && if_indextoname(s->interface, name);
}

void sandbox_wire_describe(const Sandbox *s, json_t *object) {
        char ipv4[INET_ADDRSTRLEN], ipv6[INET6_ADDRSTRLEN];
        const NetworkAddress *address = s->wire ? sandbox_network_address(s->wire) : NULL;

        (void) json_object_set_new(object, "network", json_string(s->network ?: SANDBOX_NETWORK_NONE));
        (void) json_object_set_new(object, "address", address && inet_ntop(AF_INET, &address->ipv4, ipv4, sizeof(ipv4)) ? json_string(ipv4) : json_null());
        (void) json_object_set_new(object, "address6", address && inet_ntop(AF_INET6, &address->ipv6, ipv6, sizeof(ipv6)) ? json_string(ipv6) : json_null());
}
