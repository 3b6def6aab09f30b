// SPDX-License-Identifier: GPL-2.0-or-later
// Connection, where to: see connection.h. The rules are asked when it is known what the client wants, again for each address of the name,
// and again whenever the slot's rules change.
#include "proxy/connection_internal.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/un.h>

#define OTHER_FAMILY (50 * USEC_PER_MSEC) // that its answer may be later
#define REASON_MAX 256

// ---- questions to the rules

static Cidr cidr_of(const ProxyAddress *address) {
        return cidr_of_address(address->family == 4 ? AF_INET : AF_INET6, address->address);
}

static RouteQuestion connection_question(const Connection *c, Cidr *wanted) {
        RouteQuestion question = {.name = c->host.kind == HOST_NAME ? c->host.name : NULL, .port = c->port};

        if (c->wanted.family) {
                *wanted = cidr_of(&c->wanted);
                question.wanted = wanted;
        }
        if (c->request) {
                question.method = c->head.method;
                question.path = c->path ?: "/";
        }
        return question;
}

// The text of the rule is the meter's name.
static int meter_of(Connection *c, const Compiled *compiled, const CompiledRule *rule, Meter **ret) {
        _cleanup_free_ char *text = NULL, *ports = NULL;
        char to[NAME_TEXT_MAX + 2];

        if (!rule || (rule->rate == 0 && rule->budget == 0))
                return 0;
        ports = compiled_rule_ports(rule);
        if (!ports || asprintf(&text, "%s %s", compiled_rule_to(rule, to), ports) < 0)
                return -ENOMEM;
        return meter_ref(c->slot->proxy->meters, &(MeterKey) {c->slot->instance, compiled->policies[rule->policy].name, text}, rule->rate, rule->budget, ret);
}

// What the record and the relay need to know of the rules. What a sandbox moves counts for its own rule and for its instance's.
static int connection_take_rule(Connection *c, const Route *route) {
        const PolicyDecision *d = &route->decision;
        Meter *meters[2] = {NULL};
        int r = 0;

        c->rule = d->rule ? (uint16_t) compiled_rule_number(d->of, d->rule) : 0;
        (void) snprintf(c->policy, sizeof(c->policy), "%s", d->policy ?: "");
        c->by_name = route_is_by_name(route);
        c->names_denied = route->names_denied;
        if (route->kind != ROUTE_DENIED)
                r = meter_of(c, d->of, d->rule, &meters[0]);
        if (route->kind != ROUTE_DENIED && r >= 0 && d->outer)
                r = meter_of(c, d->of->within, d->outer, &meters[1]);
        if (meters[1] == meters[0]) // the same rule in both: once
                meters[1] = meter_unref(meters[1]);
        for (size_t i = 0; i < ELEMENTS(meters); i++) {
                (void) meter_unref(r < 0 ? meters[i] : c->meters[i]);
                if (r >= 0)
                        c->meters[i] = meters[i];
        }
        return r;
}

static bool connection_is_spent(const Connection *c, const MeterTime *now) {
        for (size_t i = 0; i < ELEMENTS(c->meters); i++)
                if (c->meters[i] && meter_is_spent(c->meters[i], now))
                        return true;
        return false;
}

static void connection_deny(Connection *c, const Route *route, const char *where) {
        char text[REASON_MAX], reason[REASON_MAX * 2];

        (void) connection_take_rule(c, route);
        if (route->decision.action == POLICY_ALLOW)
                (void) snprintf(text, sizeof(text), "denied: private and special addresses are not reached by a name");
        else
                (void) policy_decision_text(c->slot->compiled, &route->decision, text, sizeof(text));
        (void) snprintf(reason, sizeof(reason), "%s%s%s%s", c->said ?: "", c->said ? "; " : "", text, where);
        connection_refuse(c, &(Refusal) {
                .verdict = FLOW_DENY,
                .status = c->said ? 400 : 403,
                .alert = c->said == hello_result_text(HELLO_NOT_TLS) || c->said == hello_result_text(HELLO_MORE) ? 0 :
                         c->said ? ALERT_UNRECOGNIZED_NAME : ALERT_ACCESS_DENIED,
                .reason = reason,
        });
}

static void connection_fail(Connection *c, unsigned status, const char *what, int r) {
        char reason[REASON_MAX];

        (void) snprintf(reason, sizeof(reason), "%s%s%s", what, r < 0 ? ": " : "", r < 0 ? strerror(-r) : "");
        connection_refuse(c, &(Refusal) {.verdict = FLOW_ERROR, .status = status, .reason = reason});
}

// ---- connected

static void connection_connected(Connection *c) {
        static const char answer[] = "HTTP/1.1 200 Connection established\r\n\r\n";

        if (c->kind != FLOW_CONNECT || c->request) {
                connection_relay(c);
                return;
        }
        if (send(c->client, answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(answer) - 1) {
                connection_end(c, FLOW_ERROR, 0, "the client went");
                return;
        }
        c->size -= c->head.size;
        memmove(c->data, c->data + c->head.size, c->size);
        // What is allowed by a name must be that name's TLS: else the tunnel would lead to whatever else the server's address serves.
        if (c->by_name && c->port == 443)
                connection_read_tunnel(c);
        else
                connection_relay(c);
}

static void dialed(int fd, const ProxyAddress *address, void *userdata) {
        Connection *c = userdata;
        char reason[REASON_MAX];

        c->target = *address; // the dial's, which goes now
        c->dial = dial_free(c->dial);
        if (fd < 0) {
                connection_fail(c, fd == -ETIMEDOUT ? 504 : 502, "cannot connect", fd);
                return;
        }
        c->server = fd;
        // Meanwhile the rules may be other ones, and of several addresses only the first was asked about.
        if (!connection_still_allowed(c, reason, sizeof(reason)))
                connection_end(c, FLOW_DENY, FLOW_FLAG_CUT, reason);
        else
                connection_connected(c);
}

static void connection_dial(Connection *c, const ProxyAddress *addresses, size_t n) {
        int r;

        c->target = addresses[0];
        c->state = CONNECTION_DIALING;
        r = sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
        if (r >= 0)
                r = sd_event_source_set_io_events(c->client_io, 0);
        if (r >= 0)
                r = dial_new(c->slot->proxy->event, addresses, n, dialed, c, &c->dial);
        if (r < 0)
                connection_fail(c, 503, "cannot connect", r);
}

// The slot's HAProxy. Without it nothing that is to be inspected goes anywhere.
static void connection_intercept(Connection *c, const ProxyAddress *target) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%u/front.sock", c->slot->proxy->interceptors, c->slot->number);

        c->target = *target;
        c->intercepted = true;
        if (fd < 0 || n >= (int) sizeof(address.sun_path) || connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0) {
                connection_fail(c, 503, "nothing here can inspect it, as its rule says", -errno);
                return;
        }
        c->server = TAKE_FD(fd);
        if (sd_event_source_set_enabled(c->timer, SD_EVENT_OFF) < 0)
                connection_fail(c, 503, "out of memory", 0);
        else
                connection_connected(c);
}

// ---- by its name

// Of all that were found those that one rule admits, the client's own family first and then in turn.
static size_t connection_candidates(Connection *c, ProxyAddress ret[DIAL_ADDRESSES_MAX], Route *ret_route) {
        size_t first = c->from.family == 6, n = 0;
        Cidr wanted, address;
        RouteQuestion question = connection_question(c, &wanted);

        for (size_t i = 0; i < 2 * DIAL_ADDRESSES_MAX && n < DIAL_ADDRESSES_MAX; i++) {
                const Found *found = &c->found[first ^ (i & 1)];
                Route route;
                if (i / 2 >= found->n)
                        continue;
                address = cidr_of(&found->addresses[i / 2]);
                route = route_admits(c->slot->compiled, &question, &address);
                if (n == 0)
                        *ret_route = route;
                if (route.kind == ROUTE_DENIED || route.decision.rule != ret_route->decision.rule || route.decision.outer != ret_route->decision.outer)
                        continue;
                ret[n] = found->addresses[i / 2];
                ret[n++].port = c->port;
        }
        return n;
}

static void connection_unresolved(Connection *c) {
        int error = c->found[0].error;

        // Of two families the one that says more than that there is nothing of it.
        if (error == -ENODATA || (error == -ENOENT && c->found[1].error != -ENODATA))
                error = c->found[1].error;
        if (error == -EACCES)
                connection_refuse(c, &(Refusal) {FLOW_DENY, 403, ALERT_ACCESS_DENIED, "denied: its addresses are private or special"});
        else if (error == -ENOENT)
                connection_fail(c, 502, "there is no such name", 0);
        else
                connection_fail(c, 502, "cannot be resolved", error);
}

void connection_stop_asking(Connection *c) {
        for (size_t i = 0; i < ELEMENTS(c->found); i++) {
                if (c->found[i].cookie)
                        resolve_client_cancel(c->slot->proxy->resolver, c->found[i].cookie);
                c->found[i].cookie = 0;
        }
}

// A name is one destination, wherever it leads; what a rule by address allows is its address.
static bool connection_is_one_too_many(Connection *c, const ProxyAddress *target, usec_t now) {
        char text[NAME_TEXT_MAX + 8], address[INET6_ADDRSTRLEN] = "";
        Slot *around = c->slot->around ? proxy_find(c->slot->proxy, c->slot->around) : NULL;

        if (!c->by_name)
                (void) inet_ntop(target->family == 4 ? AF_INET : AF_INET6, target->address, address, sizeof(address));
        (void) snprintf(text, sizeof(text), "%s %u", c->by_name ? c->host.name : address, c->port);
        return !seen_take(&(around ?: c->slot)->seen, text, c->slot->destinations, now);
}

// False: it is refused, since what its rule bounds cannot be counted, or is used up, or the instance has had too many destinations.
static bool connection_admit(Connection *c, const Route *route, const ProxyAddress *target) {
        MeterTime now = {clock_monotonic(), clock_realtime()};
        int r = connection_take_rule(c, route);
        char reason[REASON_MAX];

        if (r < 0)
                connection_fail(c, 503, "cannot count what the rule bounds", r);
        else if (connection_is_spent(c, &now))
                connection_refuse(c, &(Refusal) {FLOW_DENY, 403, ALERT_ACCESS_DENIED, "the rule's budget for today is used up"});
        else if (connection_is_one_too_many(c, target, now.monotonic)) {
                (void) snprintf(reason, sizeof(reason), "more than %u different destinations in a minute", c->slot->destinations);
                connection_refuse(c, &(Refusal) {FLOW_DENY, 403, ALERT_ACCESS_DENIED, reason});
        } else
                return true;
        return false;
}

static void connection_resolved(Connection *c) {
        ProxyAddress candidates[DIAL_ADDRESSES_MAX];
        Route route;
        size_t n;

        connection_stop_asking(c);
        if (c->found[0].n + c->found[1].n == 0) {
                connection_unresolved(c);
                return;
        }
        n = connection_candidates(c, candidates, &route);
        if (n == 0) {
                connection_deny(c, &route, " (at the addresses of this name)");
                return;
        }
        if (!connection_admit(c, &route, &candidates[0]))
                return;
        // Of plain HTTP the proxy itself has seen all that there is to inspect.
        if (route_inspects(&route) && !c->request)
                connection_intercept(c, &candidates[0]);
        else
                connection_dial(c, candidates, n);
}

void connection_resolve_timeout(Connection *c) {
        for (size_t i = 0; i < ELEMENTS(c->found); i++)
                if (c->found[i].cookie)
                        c->found[i].error = -ETIMEDOUT;
        connection_resolved(c);
}

static void found_fill(Found *found, const ResolveAnswer *answer) {
        found->cookie = 0;
        found->error = answer->error;
        for (size_t i = 0; i < answer->n && found->n < DIAL_ADDRESSES_MAX; i++) {
                found->addresses[found->n].family = answer->addresses[i].family;
                memcpy(found->addresses[found->n++].address, answer->addresses[i].address, 16);
        }
}

static void answered(const ResolveAnswer *answer, void *userdata) {
        Connection *c = userdata;

        for (size_t i = 0; i < ELEMENTS(c->found); i++)
                if (c->found[i].cookie == answer->cookie)
                        found_fill(&c->found[i], answer);
        if (c->found[0].cookie == 0 && c->found[1].cookie == 0)
                connection_resolved(c);
        else if (answer->error == 0)
                (void) connection_set_timer(c, OTHER_FAMILY);
}

static void connection_resolve(Connection *c) {
        ResolveQuestion question;
        int r;

        c->state = CONNECTION_RESOLVING;
        r = sd_event_source_set_io_events(c->client_io, 0);
        if (r >= 0)
                r = connection_set_timer(c, RESOLVE_LIMIT);
        for (size_t i = 0; r >= 0 && i < ELEMENTS(c->found); i++) {
                r = resolve_question_init(&question, c->slot->number, i == 0 ? 4 : 6, c->host.name);
                if (r >= 0)
                        r = resolve_client_ask(c->slot->proxy->resolver, &question, answered, c, &c->found[i].cookie);
        }
        if (r < 0)
                connection_fail(c, 503, "the resolver cannot be asked", r);
}

// ---- the rules

void connection_route(Connection *c) {
        ProxyAddress wanted = c->wanted;
        Cidr address;
        RouteQuestion question = connection_question(c, &address);
        Route route = route_decide(c->slot->compiled, &question);

        switch (route.kind) {
        case ROUTE_DENIED:
                connection_deny(c, &route, "");
                return;
        case ROUTE_RESOLVE:
                connection_resolve(c);
                return;
        default:
                break;
        }
        if (!connection_admit(c, &route, &wanted))
                return;
        // What a rule by address allows is a plain wire, unless a later request on it could name somebody who is denied.
        if (c->kind == FLOW_HTTP && !c->names_denied)
                c->request = false;
        connection_dial(c, &wanted, 1);
}

// With the slot's rules as they are now. `reason` says why not.
bool connection_still_allowed(Connection *c, char *reason, size_t size) {
        Cidr address, target;
        RouteQuestion question = connection_question(c, &address);
        Route route = route_decide(c->slot->compiled, &question);
        bool inspect;

        if (route.kind != ROUTE_DENIED && c->target.family) {
                target = cidr_of(&c->target);
                if (route.kind == ROUTE_RESOLVE)
                        route = route_admits(c->slot->compiled, &question, &target);
                else if (memcmp(c->target.address, c->wanted.address, sizeof(c->target.address)) != 0)
                        route.kind = ROUTE_DENIED; // it would go somewhere else now
        }
        if (route.kind == ROUTE_DENIED) {
                (void) snprintf(reason, size, "cut by other rules: ");
                (void) policy_decision_text(c->slot->compiled, &route.decision, reason + strlen(reason), size - strlen(reason));
                return false;
        }
        if (!c->target.family) // its addresses will be asked about
                return true;
        inspect = route_inspects(&route) && !c->request;
        if (inspect != c->intercepted) {
                (void) snprintf(reason, size, "cut by other rules: it %s inspected now", inspect ? "is" : "is not");
                return false;
        }
        if (connection_take_rule(c, &route) < 0) {
                (void) snprintf(reason, size, "cannot count what the rule bounds");
                return false;
        }
        return true;
}
