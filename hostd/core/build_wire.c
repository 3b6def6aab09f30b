// SPDX-License-Identifier: GPL-2.0-or-later
// BuildWire: see build_wire.h. In order: hostd-build asks; a helper process looks up the mirrors; the slot with its policy; the wire; what enforces
// has taken over; the answer. Then, perhaps, once more for what the template's own clients named: a second policy behind the first one.
#include "core/build_wire.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/strv.h"
#include "build/wire.h"
#include "core/border_link.h"
#include "core/build_policy.h"
#include "core/job.h"
#include "instance/netns.h"

#define DENIED_MAX 4 // that are told
#define NAME_PREFIX "build-"
#define QUESTIONS_MAX 2
#define WAITS_MAX 15 // for a program that is there and slow: half a minute, which a build has and an operator has not

struct BuildWire {
        BuildWire *next;
        Manager *manager;
        uint16_t slot;
        char name[33];
        char *recipe;
        uid_t owner;
        int socket, netns;
        sd_event_source *asked;
        unsigned questions;
        Policy *policy, *named; // named: of the second question
        char *reach; // what it may, for people
        char *denied[DENIED_MAX];
        unsigned holds; // what still calls back
        unsigned waits; // for what enforces, since the last question
        bool attached, ended;
};

BuildWire *build_wire_next(const Manager *m, const BuildWire *wire) {
        return wire ? wire->next : m->builds;
}

BuildWire *build_wire_by_slot(const Manager *m, uint16_t slot) {
        for (BuildWire *wire = m->builds; wire; wire = wire->next)
                if (wire->slot == slot)
                        return wire;
        return NULL;
}

uint16_t build_wire_slot(const BuildWire *wire) {
        return wire->slot;
}

const char *build_wire_name(const BuildWire *wire) {
        return wire->name;
}

bool build_wire_is_live(const BuildWire *wire) {
        return wire->attached && !wire->ended;
}

static void wire_forget(BuildWire *wire) {
        for (BuildWire **p = &wire->manager->builds; *p; p = &(*p)->next)
                if (*p == wire) {
                        *p = wire->next;
                        break;
                }
        sd_event_source_disable_unref(wire->asked);
        (void) close_fd(wire->socket);
        (void) close_fd(wire->netns);
        (void) policy_free(wire->policy);
        (void) policy_free(wire->named);
        for (size_t i = 0; i < DENIED_MAX; i++)
                free(wire->denied[i]);
        free(wire->reach);
        free(wire->recipe);
        free(wire);
}

static void wire_detach(BuildWire *wire) {
        Manager *m = wire->manager;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = wire->attached ? network_detach(m->network, wire->slot, &err) : 0;

        if (r < 0)
                manager_warn(m, "clean", "host", "the network of a build cannot be removed: %s", error_message(&err, r));
        if (wire->attached)
                border_link_changed(m, wire->slot);
        wire->attached = false;
}

// No question will come, or none is heard any more.
static void wire_close(BuildWire *wire) {
        wire->asked = sd_event_source_disable_unref(wire->asked);
        wire->socket = close_fd(wire->socket);
        wire->netns = close_fd(wire->netns);
}

typedef struct Unplug {
        BuildWire *wire;
        unsigned interface;
} Unplug;

static int unplug_work(void *input, json_t **ret, Error *err) {
        return network_unplug(((const Unplug *) input)->interface, err);
}

static void unplug_done(void *userdata, int r, json_t *result, Error *err) {
        BuildWire *wire = userdata;

        wire->holds--;
        wire_detach(wire); // meets what failed again, and says so
        wire_forget(wire);
}

// The last hold is gone. The kernel takes 20 to 40 ms to remove a wire: not in the loop.
static void wire_end(BuildWire *wire) {
        Unplug unplug = {wire, wire->attached ? network_interface(wire->manager->network, wire->slot) : 0};
        JobSpec spec = {unplug_work, &unplug, unplug_done, wire};

        if (unplug.interface > 0 && !wire->manager->stopping && job_start(wire->manager->event, &spec, NULL) >= 0) {
                wire->holds++;
                return;
        }
        wire_detach(wire);
        wire_forget(wire);
}

BuildWire *build_wire_free(BuildWire *wire) {
        if (!wire)
                return NULL;
        wire->ended = true;
        wire_close(wire);
        if (wire->attached)
                border_link_changed(wire->manager, wire->slot); // before the wire goes: nobody is to listen on it
        if (wire->holds == 0)
                wire_end(wire);
        return NULL;
}

// False: nobody waits for it any more, and it may be gone.
static bool wire_release(BuildWire *wire) {
        bool ended = wire->ended;

        wire->holds--;
        if (ended && wire->holds == 0)
                wire_end(wire);
        return !ended;
}

// Hostd-build goes on, or ends with the sentence; to the second question it does without.
static void wire_answer(BuildWire *wire, int r, const Error *err) {
        WireAnswer answer = {.error = r < 0 ? r : 0};

        if (r < 0)
                (void) snprintf(answer.text, sizeof(answer.text), "%s", error_message(err, r));
        (void) !send(wire->socket, &answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL); // if nobody takes it, nobody is there
        if (r < 0 || wire->questions == QUESTIONS_MAX || sd_event_source_set_enabled(wire->asked, SD_EVENT_ON) < 0)
                wire_close(wire);
}

static const BorderPart needed[] = {BORDER_PART_RESOLVER, BORDER_PART_PROXY};

static void wire_in_force(void *userdata);

static void wire_wait(BuildWire *wire) {
        wire->holds++;
        border_link_wait(wire->manager, wire_in_force, wire);
}

static bool wire_waits_on(BuildWire *wire) {
        bool late = false;

        for (size_t i = 0; i < ELEMENTS(needed); i++) {
                BorderState state;
                (void) border_link_state(wire->manager, needed[i], &state);
                if (state != BORDER_UP)
                        return false;
                late = late || border_link_is_late(wire->manager, wire->slot, needed[i]);
        }
        return late && wire->waits++ < WAITS_MAX;
}

static void wire_in_force(void *userdata) {
        BuildWire *wire = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = 0;

        if (!wire_release(wire))
                return;
        if (wire_waits_on(wire)) {
                wire_wait(wire);
                return;
        }
        for (size_t i = 0; i < ELEMENTS(needed) && r >= 0; i++) {
                BorderState state;
                const char *why = border_link_state(wire->manager, needed[i], &state);
                if (state != BORDER_UP || border_link_is_late(wire->manager, wire->slot, needed[i]))
                        r = error_set(&err, ERR_UNAVAILABLE, "a build reaches its mirrors through %s, which does not work now: %s", border_part_to_string(needed[i]), why);
        }
        wire_answer(wire, r, &err);
}

static int wire_plug(BuildWire *wire, json_t *found, Error *err) {
        Manager *m = wire->manager;
        int r = build_policy_new(wire->name, found, &wire->policy, &wire->reach, err);

        if (r < 0)
                return r;
        r = network_attach(m->network, wire->slot, err);
        if (r < 0)
                return r;
        wire->attached = true;
        r = border_link_lead(m, wire->slot, err);
        if (r >= 0)
                r = network_set_policy(m->network, wire->slot, &wire->policy, 1, err);
        return r < 0 ? r : network_plug(m->network, wire->slot, wire->netns, err);
}

static void wire_looked_up(void *userdata, int r, json_t *result, Error *err) {
        BuildWire *wire = userdata;
        Manager *m = wire->manager;
        _cleanup_error_ Error later = ERROR_NULL;

        if (!wire_release(wire))
                return;
        if (r < 0)
                error_move(&later, err);
        else
                r = wire_plug(wire, result, &later);
        if (r < 0) {
                wire_answer(wire, r, &later); // what is attached goes with the build
                return;
        }
        log_info("%s: may reach %s", wire->name, wire->reach);
        border_link_changed(m, wire->slot);
        wire->waits = 0;
        wire_wait(wire);
}

static bool same_file(int a, int b) {
        struct stat x, y;

        return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// The kernel says who asks. It has to be hostd-build's user in a network namespace which that user's own namespace owns.
static int wire_read(BuildWire *wire, WireQuestion *question, Error *err) {
        union {
                char buf[CMSG_SPACE(sizeof(struct ucred))];
                struct cmsghdr align;
        } control = {0};
        _cleanup_close_ int netns = -EBADF;
        struct iovec iov = {question, sizeof(*question)};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
        ssize_t n = recvmsg(wire->socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        struct cmsghdr *c = n == sizeof(*question) ? CMSG_FIRSTHDR(&msg) : NULL;
        struct ucred from;
        int r;

        if (n == 0)
                return error_set(err, ERR_CANCELLED, "hostd-build is gone");
        if (!c || (msg.msg_flags & MSG_TRUNC) || question->n > WIRE_HOSTS_MAX || (question->n > 0) != (wire->questions > 0) ||
            c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS || c->cmsg_len != CMSG_LEN(sizeof(from)))
                return error_set(err, ERR_INTERNAL, "hostd-build asks for what it may not");
        memcpy(&from, CMSG_DATA(c), sizeof(from));
        if (from.uid != wire->owner || from.pid <= 0)
                return error_set(err, ERR_DENIED, "somebody else than hostd-build asks for its network");
        r = netns_open_of(from.pid, wire->owner, &netns, err);
        if (r >= 0 && wire->questions > 0 && !same_file(netns, wire->netns))
                r = error_set(err, ERR_DENIED, "somebody else than the build asks for its network");
        if (r >= 0 && wire->questions == 0)
                wire->netns = TAKE_FD(netns);
        return r;
}

static int wire_widen(BuildWire *wire, const WireQuestion *question, Error *err) {
        _cleanup_strv_ char **hosts = NULL;
        Manager *m = wire->manager;
        Policy *policies[2];
        int r = 0;

        for (uint32_t i = 0; r >= 0 && i < question->n; i++)
                r = strv_append_format(&hosts, "%.*s:%u", (int) sizeof(question->hosts[i].host) - 1, question->hosts[i].host, question->hosts[i].port);
        r = r < 0 ? error_set_errno(err, r, "cannot read the hosts of the clients") : build_policy_named(hosts, &wire->named, err);
        if (r < 0 || !wire->named)
                return r;
        policies[0] = wire->policy;
        policies[1] = wire->named;
        r = network_set_policy(m->network, wire->slot, policies, 2, err);
        if (r < 0)
                return r;
        border_link_changed(m, wire->slot);
        wire->waits = 0;
        wire_wait(wire);
        return 1;
}

static int look_up_work(void *input, json_t **ret, Error *err) {
        return build_policy_look_up(ret, err);
}

static int wire_asked(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        BuildWire *wire = userdata;
        WireQuestion question;
        _cleanup_error_ Error err = ERROR_NULL;
        JobSpec spec = {look_up_work, NULL, wire_looked_up, wire};
        int r;

        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF); // until it is answered
        r = wire_read(wire, &question, &err);
        if (r >= 0 && ++wire->questions > 1) {
                r = wire_widen(wire, &question, &err);
                if (r <= 0)
                        wire_answer(wire, r, &err);
                return 0;
        }
        if (r >= 0)
                r = job_start(wire->manager->event, &spec, &err);
        if (r >= 0)
                wire->holds++;
        else
                wire_answer(wire, r, &err);
        return 0;
}

// From the end of the pool, which instances reach last: a small one has no room behind them.
static uint16_t slot_choose(const Manager *m) {
        unsigned last = (1U << (32 - m->desired->host.network.ipv4_prefix)) - 2; // the first address is the network's, the last the broadcast's

        for (unsigned i = 0, slot = MIN2(last, (unsigned) SLOT_LAST); i < SLOT_BUILDS; i++, slot--)
                if (!build_wire_by_slot(m, (uint16_t) slot) && !instance_list_by_slot(&m->instances, (uint16_t) slot))
                        return (uint16_t) slot;
        return 0;
}

// An instance may be called like a log: each has one of its own.
static void name_choose(const Manager *m, const char *recipe, char ret[static 33]) {
        size_t n = MIN2(strlen(recipe), 32 - strlen(NAME_PREFIX));

        (void) snprintf(ret, 33, NAME_PREFIX "%.*s", (int) n, recipe);
        for (n = strlen(ret); instance_list_find(&m->instances, ret) && n < 32; n++)
                ret[n] = '-', ret[n + 1] = 0;
}

static int sockets_make(int ret[static 2]) {
        int one = 1;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0)
                return -errno;
        // Before anything can come: who sent it is what the kernel knew then.
        return setsockopt(ret[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0 ? -errno : 0;
}

int build_wire_new(Manager *m, const char *recipe, uid_t owner, BuildWire **ret, int *ret_socket, Error *err) {
        BuildWire *wire;
        int pair[2] = {-EBADF, -EBADF}, r;

        for (size_t i = 0; i < ELEMENTS(needed); i++)
                if (!border_link_leads(m, needed[i]))
                        return error_set(err, ERR_UNAVAILABLE, "a template is built behind the border, which needs %s: its program or its user is missing", border_part_to_string(needed[i]));
        wire = calloc(1, sizeof(BuildWire));
        if (!wire)
                return error_set_errno(err, ENOMEM, "cannot build");
        wire->manager = m;
        wire->socket = wire->netns = -EBADF;
        wire->owner = owner;
        wire->slot = slot_choose(m);
        wire->recipe = strdup(recipe);
        name_choose(m, recipe, wire->name);
        r = !wire->recipe ? -ENOMEM : sockets_make(pair);
        wire->socket = pair[0];
        if (r >= 0 && wire->slot > 0)
                r = sd_event_add_io(m->event, &wire->asked, wire->socket, EPOLLIN, wire_asked, wire);
        if (r >= 0 && wire->slot == 0)
                r = error_set(err, ERR_BUSY, "%d templates are built already", SLOT_BUILDS);
        else if (r < 0)
                r = error_set_errno(err, r, "cannot make a network for the build");
        if (r < 0) {
                (void) close_fd(pair[1]);
                wire_forget(wire);
                return r;
        }
        wire->next = m->builds;
        m->builds = wire;
        *ret = wire;
        *ret_socket = pair[1];
        return 0;
}

// ---- what was denied ---------------------------------------------------------------------------------------------------------

// Looking for a service's host ("_http._tcp.NAME") is what apt does with each mirror, and goes on without.
void build_wire_denied(BuildWire *wire, const FlowRecord *record) {
        char address[INET6_ADDRSTRLEN] = "", text[320];
        size_t i = 0;

        if (record->verdict != FLOW_DENY || record->name[0] == '_')
                return;
        if (record->family)
                (void) inet_ntop(record->family == 4 ? AF_INET : AF_INET6, record->address, address, sizeof(address));
        (void) snprintf(text, sizeof(text), "%s", record->name[0] ? record->name : address);
        if (record->port && record->kind != FLOW_DNS)
                (void) snprintf(text + strlen(text), sizeof(text) - strlen(text), " port %u", record->port);
        while (i < DENIED_MAX && wire->denied[i] && strcmp(wire->denied[i], text) != 0)
                i++;
        if (text[0] && i < DENIED_MAX && !wire->denied[i])
                wire->denied[i] = strdup(text);
}

void build_wire_explain(const BuildWire *wire, Error *err) {
        char text[DENIED_MAX * 336] = "";

        for (size_t i = 0; i < DENIED_MAX && wire->denied[i]; i++)
                (void) snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? ", " : "", wire->denied[i]);
        if (text[0])
                (void) error_wrap(err, "template %s: denied to it: %s; a build may reach only %s", wire->recipe, text, wire->reach ?: "nothing");
}
