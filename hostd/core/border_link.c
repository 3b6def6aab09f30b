// SPDX-License-Identifier: GPL-2.0-or-later
// BorderLink: see border_link.h.
#include "core/border_link.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/strv.h"
#include "border/border.h"
#include "core/build_wire.h"
#include "core/guest.h"
#include "core/sandbox_network.h"
#include "network/view.h"

#define RESOLV_CONF "/etc/resolv.conf"

// What a build may ask for; an instance's file says it of that.
#define DNS_RATE 200
#define DNS_BURST 400
#define DNS_NAMES 100

#define NUMBER_LAST NETWORK_SANDBOX_LAST

typedef struct LinkSlot {
        uint64_t generation; // of the last view that has it; 0: no helper was told of it
        bool changed;        // since then
        bool late[_BORDER_PART_MAX];
} LinkSlot;

typedef struct BorderLink {
        Manager *manager;
        Border *border;
        uint64_t generation; // of the last views that were made
        LinkSlot slots[NUMBER_LAST + 1]; // of instances, builds, profiles and sandboxes
        size_t n_changed; // of them
        bool everything;  // all are to be told anew
        char **upstreams;
        uint64_t denied; // packets that the fence has stopped
        sd_event_source *publish;
} BorderLink;

typedef struct LinkWaiter {
        Manager *manager;
        void (*done)(void *userdata);
        void *userdata;
} LinkWaiter;

// ---- views -------------------------------------------------------------------------------------------------------------------

// Addresses only; one with a scope ("fe80::1%eth0") is of an interface that the resolver need not have.
static int host_upstreams(char ***ret) {
        _cleanup_free_ char *text = NULL;
        _cleanup_strv_ char **lines = NULL, **found = NULL;
        int r = io_read_file(AT_FDCWD, RESOLV_CONF, 1 << 16, &text, NULL);

        if (r >= 0)
                r = strv_split(text, "\n", &lines);
        for (char **line = lines; r >= 0 && line && *line && strv_length(found) < VIEW_UPSTREAMS_MAX; line++) {
                _cleanup_strv_ char **words = NULL;
                struct in6_addr address;
                r = strv_split(*line, " \t", &words);
                if (r >= 0 && strv_length(words) >= 2 && strcmp(words[0], "nameserver") == 0 &&
                    (inet_pton(AF_INET, words[1], &address) == 1 || inet_pton(AF_INET6, words[1], &address) == 1))
                        r = strv_append(&found, words[1]);
        }
        if (r >= 0)
                *ret = TAKE_PTR(found);
        return r;
}

_Static_assert(VIEW_UPSTREAMS_MAX == NETWORK_UPSTREAMS_MAX, "whom the resolver asks the firewall must let it ask");

static void upstream_add(NetworkHelpers *helpers, const char *text) {
        struct NetworkUpstream *u = &helpers->upstreams[helpers->n_upstreams];

        u->family = strchr(text, ':') ? AF_INET6 : AF_INET;
        helpers->n_upstreams += inet_pton(u->family, text, u->address) == 1;
}

// The firewall keeps the helpers from what they have no business with. Users that do not exist yet have no processes either; they are
// looked for again each minute.
static void link_fence(BorderLink *link) {
        static const char *const users[] = {BORDER_RESOLVER, BORDER_PROXY, BORDER_FLOW, BORDER_HAPROXY};
        _cleanup_error_ Error err = ERROR_NULL;
        NetworkHelpers helpers = {0};

        for (size_t i = 0; i < ELEMENTS(users); i++) {
                uid_t uid;
                gid_t gid;
                if (border_account(users[i], &uid, &gid) < 0)
                        continue;
                helpers.uids[helpers.n_uids++] = uid;
                if (i == 0)
                        helpers.resolver = uid;
        }
        // One for each slot: a HAProxy runs as it (core/interceptor.h). Where there are none, none of them runs.
        if (idpool_load_range("/etc", BORDER_HAPROXY, SLOT_MAX + 1, &helpers.first_uid, NULL) >= 0)
                helpers.last_uid = helpers.first_uid + SLOT_MAX;
        for (char **p = link->upstreams; p && *p && helpers.n_upstreams < NETWORK_UPSTREAMS_MAX; p++)
                upstream_add(&helpers, *p);
        if (network_set_helpers(link->manager->network, &helpers, &err) >= 0)
                manager_unwarn(link->manager, "border-fence", "host");
        else
                manager_warn(link->manager, "border-fence", "host", "the border's programs are not fenced in: %s", error_message(&err, -EIO));
}

static void link_read_upstreams(BorderLink *link) {
        char **configured = link->manager->desired->host.resolver_upstream, **fresh = NULL;

        if (configured)
                fresh = strv_copy(configured);
        else if (host_upstreams(&fresh) < 0)
                return; // what was there before may still answer
        strv_free(link->upstreams);
        link->upstreams = fresh;
        link_fence(link);
}

// The number of an instance comes from the store's file: what is no slot's there is nobody's here.
static LinkSlot *link_slot(BorderLink *link, uint16_t slot) {
        return link->slots + (slot <= NUMBER_LAST ? slot : 0);
}

// A slot without a wire has no client: the helpers listen on the wire itself. Nothing is to be freed: strings are borrowed, and so is the list.
static bool wire_view(Manager *m, uint16_t slot, const char *name, ViewSlot *ret) {
        Compiled *compiled = network_compiled(m->network, slot);
        NetworkAddress address;

        if (!compiled || !network_is_plugged(m->network, slot))
                return false;
        network_address(&m->desired->host.network, slot, &address);
        *ret = (ViewSlot) {.slot = slot, .instance = (char *) name, .dns = {.rate = DNS_RATE, .burst = DNS_BURST, .names = DNS_NAMES}, .compiled = compiled};
        memcpy(ret->ifname, address.host_ifname, sizeof(ret->ifname));
        return inet_ntop(AF_INET, &address.ipv4, ret->ipv4, sizeof(ret->ipv4)) && inet_ntop(AF_INET6, &address.ipv6, ret->ipv6, sizeof(ret->ipv6));
}

static void view_limits(const InstanceConfig *config, ViewSlot *view) {
        uint64_t destinations = config->limits.value[LIMIT_DESTINATIONS];

        view->destinations = destinations == LIMIT_UNSET ? 0 : (uint32_t) destinations;
        view->dns = (ViewDns) {.rate = (uint32_t) config->dns_rate, .burst = (uint32_t) config->dns_burst, .names = (uint32_t) config->dns_names, .types = config->dns_types};
}

static bool slot_view(Manager *m, const Instance *instance, ViewSlot *ret) {
        if (!instance_is_active(instance) || instance->unplugged || !wire_view(m, instance->record.slot, instance->record.name, ret))
                return false;
        ret->offline = instance_network_is_cut(instance);
        if (instance->config)
                view_limits(instance->config, ret);
        return true;
}

static bool build_view(Manager *m, const BuildWire *wire, ViewSlot *ret) {
        return build_wire_is_live(wire) && wire_view(m, build_wire_slot(wire), build_wire_name(wire), ret);
}

// Without a wire, and without its instance nothing.
static bool profile_view(const SandboxProfile *profile, ViewSlot *ret) {
        const Instance *instance = sandbox_profile_instance(profile);
        uint16_t number = sandbox_profile_number(profile);
        Compiled *compiled = instance ? network_compiled(instance->manager->network, number) : NULL;

        if (!compiled)
                return false;
        *ret = (ViewSlot) {.slot = number, .within = instance->record.slot, .instance = (char *) instance->record.name, .compiled = compiled};
        return true;
}

static bool sandbox_view(Manager *m, const SandboxNetwork *network, ViewSlot *ret) {
        const Instance *instance = sandbox_profile_instance(sandbox_network_profile(network));
        const NetworkAddress *address = sandbox_network_address(network);

        if (!instance || !network_sandbox_is_plugged(m->network, sandbox_network_number(network)))
                return false;
        *ret = (ViewSlot) {.slot = sandbox_network_number(network), .profile = sandbox_profile_number(sandbox_network_profile(network)), .instance = (char *) instance->record.name,
                           .sandbox = (char *) sandbox_network_id(network), .dns = {.rate = DNS_RATE, .burst = DNS_BURST, .names = DNS_NAMES}, .offline = instance_network_is_cut(instance)};
        if (instance->config)
                view_limits(instance->config, ret);
        memcpy(ret->ifname, address->host_ifname, sizeof(ret->ifname));
        return inet_ntop(AF_INET, &address->ipv4, ret->ipv4, sizeof(ret->ipv4)) && inet_ntop(AF_INET6, &address->ipv6, ret->ipv6, sizeof(ret->ipv6));
}

static bool number_view(Manager *m, uint16_t number, ViewSlot *ret) {
        const SandboxNetwork *network = network_is_sandbox(number) ? sandbox_network_find(m, number) : NULL;
        const SandboxProfile *profile = network_is_profile(number) ? sandbox_profile_find(m, number) : NULL;
        const Instance *instance = network || profile ? NULL : instance_list_by_slot(&m->instances, number);
        const BuildWire *build = instance || network || profile ? NULL : build_wire_by_slot(m, number);

        if (network)
                return sandbox_view(m, network, ret);
        if (profile)
                return profile_view(profile, ret);
        return (instance && slot_view(m, instance, ret)) || (build && build_view(m, build, ret));
}

static size_t count_slots(const Manager *m) {
        size_t n = m->instances.n + SLOT_BUILDS;

        for (SandboxProfile *p = sandbox_profile_next(m, NULL); p; p = sandbox_profile_next(m, p))
                n++;
        for (SandboxNetwork *s = sandbox_network_next(m, NULL); s; s = sandbox_network_next(m, s))
                n++;
        return n;
}

// A slot that fits into no frame is in no helper: it is led to ports where nobody listens.
static int link_format(BorderLink *link, const View *view, char ***ret) {
        Manager *m = link->manager;
        _cleanup_free_ bool *large = calloc(view->n_slots + 1, sizeof(bool));
        int r = large ? view_format_parts(view, CONTROL_TEXT_MAX, ret, large) : -ENOMEM;

        for (size_t i = 0; r >= 0 && i < view->n_slots; i++)
                if (large[i])
                        manager_warn(m, "border-size", view->slots[i].instance, "its policies are too large for what enforces names: it has neither names nor what a name opens");
                else
                        manager_unwarn(m, "border-size", view->slots[i].instance);
        return r;
}

static int views_of_all(void *userdata, char ***ret, uint64_t *ret_generation) {
        BorderLink *link = userdata;
        Manager *m = link->manager;
        _cleanup_free_ ViewSlot *slots = calloc(count_slots(m), sizeof(ViewSlot));
        View view = {.whole = true, .slots = slots};
        int r;

        if (!slots)
                return -ENOMEM;
        link_read_upstreams(link);
        view.upstreams = link->upstreams;
        // No later than what the others have: what was changed and not told yet goes to everybody next, and then to this one once more.
        view.generation = link->generation;
        for (Instance *i = m->instances.first; i; i = i->next)
                view.n_slots += slot_view(m, i, slots + view.n_slots);
        for (BuildWire *w = build_wire_next(m, NULL); w; w = build_wire_next(m, w))
                view.n_slots += build_view(m, w, slots + view.n_slots);
        // In this order: a text that is cut in parts has a sandbox behind its profile, and that behind its instance.
        for (SandboxProfile *p = sandbox_profile_next(m, NULL); p; p = sandbox_profile_next(m, p))
                view.n_slots += profile_view(p, slots + view.n_slots);
        for (SandboxNetwork *s = sandbox_network_next(m, NULL); s; s = sandbox_network_next(m, s))
                view.n_slots += sandbox_view(m, s, slots + view.n_slots);
        for (size_t i = 0; i < view.n_slots; i++) {
                LinkSlot *told = link_slot(link, slots[i].slot);
                if (link->everything || told->generation == 0)
                        told->generation = link->generation;
        }
        r = link_format(link, &view, ret);
        *ret_generation = link->generation;
        return r;
}

static int views_of_changed(BorderLink *link, char ***ret) {
        Manager *m = link->manager;
        _cleanup_free_ ViewSlot *slots = calloc(link->n_changed + 1, sizeof(ViewSlot));
        _cleanup_free_ uint16_t *gone = calloc(link->n_changed + 1, sizeof(uint16_t));
        View view = {.generation = link->generation, .upstreams = link->upstreams, .slots = slots, .gone = gone};

        if (!slots || !gone)
                return -ENOMEM;
        for (uint16_t slot = 1; slot <= NUMBER_LAST; slot++) {
                if (link->slots[slot].changed && number_view(m, slot, slots + view.n_slots)) {
                        link->slots[slot].generation = link->generation;
                        view.n_slots++;
                } else if (link->slots[slot].changed) {
                        link->slots[slot] = (LinkSlot) {.changed = true};
                        gone[view.n_gone++] = slot;
                }
        }
        return link_format(link, &view, ret);
}

static void link_watch(BorderLink *link);

static void link_publish(BorderLink *link) {
        _cleanup_strv_ char **texts = NULL;
        uint64_t generation;
        int r;

        if (link->n_changed == 0 && !link->everything)
                return;
        link->generation++;
        r = link->everything ? views_of_all(link, &texts, &generation) : views_of_changed(link, &texts);
        if (r < 0) {
                link->everything = true; // at the next change, or tick
                manager_warn(link->manager, "border", "host", "the policies cannot be told to what enforces names: %s", strerror(-r));
                link_watch(link); // what was not told is not in force
                return;
        }
        for (size_t i = 0; i <= NUMBER_LAST; i++)
                link->slots[i].changed = false;
        link->n_changed = 0;
        link->everything = false;
        manager_unwarn(link->manager, "border", "host");
        border_send(link->border, texts, link->generation);
        link_watch(link);
}

static int on_publish(sd_event_source *source, void *userdata) {
        link_publish(userdata);
        return 0;
}

static void link_mark(BorderLink *link, uint16_t slot) {
        link->n_changed += !link_slot(link, slot)->changed;
        link_slot(link, slot)->changed = true;
}

static bool profile_is_of(const SandboxProfile *profile, uint16_t slot) {
        const Instance *instance = sandbox_profile_instance(profile);

        return sandbox_profile_number(profile) == slot || (instance && instance->record.slot == slot);
}

// What changes of an instance changes for its profiles, whose rules have other ids then, and what of these for their sandboxes.
void border_link_changed(Manager *m, uint16_t slot) {
        BorderLink *link = m->border;

        if (!link)
                return;
        link_mark(link, slot);
        for (SandboxProfile *p = sandbox_profile_next(m, NULL); p; p = sandbox_profile_next(m, p))
                if (profile_is_of(p, slot))
                        link_mark(link, sandbox_profile_number(p));
        for (SandboxNetwork *s = network_is_sandbox(slot) ? NULL : sandbox_network_next(m, NULL); s; s = sandbox_network_next(m, s))
                if (profile_is_of(sandbox_network_profile(s), slot))
                        link_mark(link, sandbox_network_number(s));
        (void) sd_event_source_set_enabled(link->publish, SD_EVENT_ONESHOT);
}

// A helper that tries what it must not is misled, or conquered.
static void link_tell_denied(BorderLink *link) {
        uint64_t packets = 0;

        if (network_helpers_denied(link->manager->network, &packets) < 0)
                return;
        if (packets > link->denied)
                manager_warn(link->manager, "border-denied", "host",
                             "a program of the border tried to reach an address of this host, of an instance or of a private range (%llu packets): it was kept from that",
                             (unsigned long long) packets);
        link->denied = packets;
}

void border_link_tick(Manager *m) {
        BorderLink *link = m->border;
        _cleanup_strv_ char **before = link ? strv_copy(link->upstreams) : NULL;

        if (!link)
                return;
        link_read_upstreams(link);
        link_tell_denied(link);
        link->everything = link->everything || !strv_equal(before, link->upstreams);
        link_publish(link);
}

static bool slot_is_live(const Manager *m, uint16_t slot) {
        const SandboxProfile *profile = sandbox_profile_find(m, slot);
        const Instance *instance = instance_list_by_slot(&m->instances, slot);
        const BuildWire *build = instance ? NULL : build_wire_by_slot(m, slot);

        if (profile)
                return sandbox_profile_instance(profile) && network_compiled(m->network, slot);
        return instance ? instance_is_live(instance) : build && build_wire_is_live(build);
}

// ---- who is late -------------------------------------------------------------------------------------------------------------

// And what is within it: a profile of an instance whose rules a helper may have from before is shut out as the instance is.
static void link_lead_all(Manager *m, uint16_t slot) {
        if (slot_is_live(m, slot) && border_link_lead(m, slot, NULL) < 0)
                log_warning("slot %u: cannot be shut out of the border, or let to it", slot);
        for (SandboxProfile *p = sandbox_profile_next(m, NULL); p; p = sandbox_profile_next(m, p)) {
                uint16_t number = sandbox_profile_number(p);
                if (number != slot && profile_is_of(p, slot) && slot_is_live(m, number) && border_link_lead(m, number, NULL) < 0)
                        log_warning("profile %u: cannot be shut out of the border, or let to it", number);
        }
}

// Of all that was told up to `generation`, once the time for it is over; and of those that were late, who has come in time since.
static void link_judge(BorderLink *link, uint64_t generation) {
        for (uint16_t slot = 1; slot <= NUMBER_LAST; slot++) {
                LinkSlot *told = link->slots + slot;
                bool changed = false;
                for (BorderPart part = 0; told->generation && part < _BORDER_PART_MAX; part++) {
                        bool over = told->generation <= generation && border_is_late(link->border, part, told->generation);
                        bool late = (told->late[part] || over) && !border_has_applied(link->border, part, told->generation);
                        changed = changed || late != told->late[part];
                        told->late[part] = late;
                }
                if (changed)
                        link_lead_all(link->manager, slot);
        }
}

typedef struct LinkDeadline {
        BorderLink *link;
        uint64_t generation;
} LinkDeadline;

static void deadline_done(void *userdata, BorderPart late) {
        LinkDeadline *deadline = userdata;

        if (late >= 0)
                link_judge(deadline->link, deadline->generation);
        free(deadline);
}

static void link_watch(BorderLink *link) {
        LinkDeadline *deadline = malloc(sizeof(LinkDeadline));

        if (deadline) {
                *deadline = (LinkDeadline) {link, link->generation};
                if (border_wait(link->border, link->generation, BORDER_APPLY_TIMEOUT, deadline_done, deadline) >= 0)
                        return;
        }
        free(deadline);
        link_judge(link, link->generation); // no waiting for it: what has it not now is late
}

// ---- waiting -----------------------------------------------------------------------------------------------------------------

static void wait_done(void *userdata, BorderPart late) {
        LinkWaiter *waiter = userdata;

        if (late >= 0)
                manager_warn(waiter->manager, border_part_to_string(late), "host", "%s has not taken over the last change of a policy: %s",
                             border_part_to_string(late), border_reason(waiter->manager->border->border, late));
        waiter->done(waiter->userdata);
        free(waiter);
}

void border_link_wait(Manager *m, void (*done)(void *userdata), void *userdata) {
        BorderLink *link = m->border;
        LinkWaiter *waiter = link ? malloc(sizeof(LinkWaiter)) : NULL;

        if (link)
                link_publish(link);
        if (waiter) {
                *waiter = (LinkWaiter) {m, done, userdata};
                if (border_wait(link->border, link->generation, BORDER_APPLY_TIMEOUT, wait_done, waiter) >= 0)
                        return;
        }
        free(waiter);
        done(userdata);
}

// ---- what helpers say --------------------------------------------------------------------------------------------------------

static int on_insert(void *userdata, const BorderInsert *insert) {
        BorderLink *link = userdata;
        Manager *m = link->manager;
        NetworkName name = {.slot = insert->slot, .rule_id = insert->rule_id, .family = insert->family == 4 ? AF_INET : AF_INET6, .ttl_s = insert->ttl_s, .ports = insert->ports};
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!slot_is_live(m, insert->slot))
                return -ENOENT;
        memcpy(name.address, insert->address, sizeof(name.address));
        r = network_name_insert(m->network, &name, &err);
        if (r < 0)
                log_debug("slot %u: %s", insert->slot, error_message(&err, r)); // the resolver tells who asked
        return r;
}

static json_t *event_json(const FlowRecord *record, const char *sandbox) {
        char address[INET6_ADDRSTRLEN] = "";

        if (record->family)
                (void) inet_ntop(record->family == 4 ? AF_INET : AF_INET6, record->address, address, sizeof(address));
        return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:i, s:s, s:s*}", "by", flow_kind_to_string(record->kind), "verdict",
                         flow_verdict_to_string(record->verdict), "to", record->name, "address", address, "protocol", (int) record->protocol, "port",
                         (int) record->port, "policy", record->policy, "rule", (int) record->rule, "reason", record->reason, "sandbox", sandbox);
}

// How to ask for it, if a rule decided: a sentence of the policy's code begins with "denied". Of UDP and TCP only.
static bool ask_words(const FlowRecord *record, const char *address, char buf[400]) {
        bool six = !record->name[0] && record->family == 6, udp = record->protocol == IPPROTO_UDP && record->kind != FLOW_DNS;
        char port[16] = "";

        if (strncmp(record->reason, "denied", 6) != 0 || (!record->name[0] && !*address) || (!udp && record->protocol != IPPROTO_TCP && record->kind != FLOW_DNS))
                return false;
        if (record->port && record->kind != FLOW_DNS)
                (void) snprintf(port, sizeof(port), ":%u", record->port);
        return snprintf(buf, 400, "; to ask for it: " BORDER_ASK " %s%s%s%s%s --reason WHY", six ? "[" : "", record->name[0] ? record->name : address, six ? "]" : "", port,
                        udp ? " --protocol udp" : "") < 400;
}

// For /run/hostd/denied inside: when, what, why. A valid record holds printable characters only.
static void tell_guest(const Instance *instance, const FlowRecord *record) {
        char time[CLOCK_TEXT_MAX], address[INET6_ADDRSTRLEN] = "", port[16] = "", ask[400], text[512];
        int n;

        if (!instance->guest || record->verdict != FLOW_DENY)
                return;
        if (record->family)
                (void) inet_ntop(record->family == 4 ? AF_INET : AF_INET6, record->address, address, sizeof(address));
        if (record->port)
                (void) snprintf(port, sizeof(port), " port %u", record->port);
        n = snprintf(text, sizeof(text), "%s %s %s%s: %s", clock_format((usec_t) record->realtime_usec, time), flow_kind_to_string(record->kind),
                     record->name[0] ? record->name : address, port, record->reason);
        if (n > 0 && ask_words(record, address, ask) && (size_t) n + strlen(ask) < sizeof(text))
                memcpy(text + n, ask, strlen(ask) + 1);
        guest_channel_denied(instance->guest, text);
}

// Of a slot that exists: a helper that was conquered can tell lies, but only of instances that there are.
static void on_event(void *userdata, const FlowRecord *record) {
        BorderLink *link = userdata;
        const SandboxNetwork *sandbox = network_is_sandbox(record->slot) ? sandbox_network_find(link->manager, record->slot) : NULL;
        const Instance *instance = sandbox ? sandbox_profile_instance(sandbox_network_profile(sandbox)) : instance_list_by_slot(&link->manager->instances, record->slot);
        BuildWire *build = instance ? NULL : build_wire_by_slot(link->manager, record->slot);

        if (instance && !sandbox)
                tell_guest(instance, record);
        else if (build)
                build_wire_denied(build, record);
        if ((instance || build) && link->manager->bus)
                event_publish(link->manager->bus, "network-denied", instance ? instance->record.name : build_wire_name(build), event_json(record, sandbox ? sandbox_network_id(sandbox) : NULL));
}

static void on_state(void *userdata, BorderPart part) {
        BorderLink *link = userdata;
        BorderState state = border_state(link->border, part);
        const char *name = border_part_to_string(part), *reason = border_reason(link->border, part);

        if (link->manager->stopping)
                return;
        link_judge(link, 0);
        for (Instance *i = link->manager->instances.first; i; i = i->next) // its program may have come or gone
                if (instance_is_live(i) && instance_network_lead(i, NULL) < 0)
                        log_warning("%s: cannot be led to %s", i->record.name, name);
        for (BuildWire *w = build_wire_next(link->manager, NULL); w; w = build_wire_next(link->manager, w))
                if (build_wire_is_live(w) && border_link_lead(link->manager, build_wire_slot(w), NULL) < 0)
                        log_warning("%s: cannot be led to %s", build_wire_name(w), name);
        for (SandboxProfile *p = sandbox_profile_next(link->manager, NULL); p; p = sandbox_profile_next(link->manager, p))
                if (slot_is_live(link->manager, sandbox_profile_number(p)) && border_link_lead(link->manager, sandbox_profile_number(p), NULL) < 0)
                        log_warning("profile %u: cannot be led to %s", sandbox_profile_number(p), name);
        if (state == BORDER_DOWN || (state == BORDER_UP && *reason))
                manager_warn(link->manager, name, "host", "%s: %s", name, reason);
        else if (state != BORDER_CALLING)
                manager_unwarn(link->manager, name, "host");
}

int border_link_query(Manager *m, const BorderQuery *query, int fd, BorderAnswered done, void *userdata) {
        return m->border ? border_query(m->border->border, query, fd, done, userdata) : -ENOTCONN;
}

// ---- the object --------------------------------------------------------------------------------------------------------------

static BorderLink *link_free(BorderLink *link) {
        if (!link)
                return NULL;
        sd_event_source_disable_unref(link->publish);
        (void) border_free(link->border);
        strv_free(link->upstreams);
        free(link);
        return NULL;
}
DEFINE_CLEANUP(BorderLink, link_free)

int border_link_new(Manager *m, Error *err) {
        static const BorderHandlers handlers = {.views = views_of_all, .insert = on_insert, .event = on_event, .changed = on_state};
        _cleanup_(link_freep) BorderLink *link = calloc(1, sizeof(BorderLink));
        BorderConfig config = {.event = m->event, .run = m->paths.run, .programs = getenv("HOSTD_BORDER_PROGRAMS") ?: HOSTD_LIBEXECDIR, .systemd = m->systemd, .handlers = &handlers, .userdata = link};
        int r;

        // A hostd with a run directory of its own (a test) leaves nothing elsewhere.
        if (strcmp(m->paths.run, BORDER_RUN) != 0)
                config.data = m->paths.run;
        if (!link)
                return error_set_errno(err, ENOMEM, "cannot look after the border");
        link->manager = m;
        link->generation = 1;
        r = border_new(&config, &link->border, err);
        if (r < 0)
                return r;
        r = sd_event_add_defer(m->event, &link->publish, on_publish, link);
        if (r >= 0)
                r = sd_event_source_set_enabled(link->publish, SD_EVENT_OFF);
        if (r < 0)
                return error_set_errno(err, r, "cannot look after the border");
        link_read_upstreams(link);
        m->border = TAKE_PTR(link);
        return 0;
}

void border_link_start(Manager *m) {
        border_start(m->border->border);
}

void border_link_free(Manager *m) {
        m->border = link_free(m->border);
}

bool border_link_leads(const Manager *m, BorderPart part) {
        return m->border && border_can_run(m->border->border, part);
}

bool border_link_is_late(const Manager *m, uint16_t slot, BorderPart part) {
        const SandboxProfile *profile = network_is_profile(slot) ? sandbox_profile_find(m, slot) : NULL;
        const Instance *instance = profile ? sandbox_profile_instance(profile) : NULL;

        if (!m->border)
                return false;
        return link_slot(m->border, slot)->late[part] || (instance && link_slot(m->border, instance->record.slot)->late[part]);
}

int border_link_lead(Manager *m, uint16_t slot, Error *err) {
        bool resolver = border_link_leads(m, BORDER_PART_RESOLVER), shut = border_link_is_late(m, slot, BORDER_PART_RESOLVER);
        const NetworkBorder border = { // the proxy connects to the resolver's addresses
                .resolver = resolver, .proxy = resolver && border_link_leads(m, BORDER_PART_PROXY),
                .resolver_shut = shut, .proxy_shut = shut || border_link_is_late(m, slot, BORDER_PART_PROXY),
        };

        return network_set_border(m->network, slot, &border, err);
}

const char *border_link_state(const Manager *m, BorderPart part, BorderState *ret_state) {
        *ret_state = m->border ? border_state(m->border->border, part) : BORDER_NOT_INSTALLED;
        return m->border ? border_reason(m->border->border, part) : "";
}

bool border_link_is_old(const Manager *m, BorderPart part) {
        return m->border && border_is_old(m->border->border, part);
}

// Of a helper whose program is gone. Under systemd they are of units.
json_t *border_link_leaks(const Manager *m) {
        json_t *list = json_array();
        BorderState state;

        for (BorderPart part = 0; part < _BORDER_PART_MAX && m->border && !m->systemd; part++) {
                (void) border_link_state(m, part, &state);
                for (const char *const *file = state == BORDER_NOT_INSTALLED ? border_sockets(part) : NULL; file && *file; file++) {
                        _cleanup_free_ char *path = NULL;
                        if (asprintf(&path, "%s/%s", m->paths.run, *file) >= 0 && access(path, F_OK) == 0)
                                (void) json_array_append_new(list, json_string(*file));
                }
        }
        return list;
}
